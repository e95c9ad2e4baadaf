// The channel of each lane's element: elements are numbered row by row, channel by channel, and a channel has `length`.
//
// Lane 0 holds its place in a register; the others follow by stepping once from lane to lane, and the step beyond the
// last lane is lane 0's next place. Long for many lanes, but free of divisions.
module channel_counter #(
    parameter LANES = 64
) (
    input  wire                clock,
    input  wire                start,
    input  wire                advance,
    input  wire [19:0]         channels,
    input  wire [31:0]         length,
    output reg  [LANES*20-1:0] channel
);
    reg [31:0]         first_position, position;
    reg [19:0]         first_number, number;
    reg [LANES*20-1:0] numbers;
    integer            lane;

    always @* begin
        position = first_position;
        number = first_number;
        for (lane = 0; lane < LANES; lane = lane + 1) begin
            numbers[lane*20 +: 20] = number;
            position = position + 1;
            if (position == length) begin
                position = 0;
                number = number + 1 == channels ? 0 : number + 1;
            end
        end
        channel = numbers;
    end

    always @(posedge clock)
        if (start) begin
            first_position <= 0;
            first_number <= 0;
        end else if (advance) begin
            first_position <= position;
            first_number <= number;
        end
endmodule
