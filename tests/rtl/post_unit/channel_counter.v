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
    output wire [LANES*20-1:0] channel
);
    reg  [31:0] first_position;
    reg  [19:0] first_channel;
    wire [31:0] position [0:LANES];
    wire [19:0] number [0:LANES];

    assign position[0] = first_position;
    assign number[0] = first_channel;

    genvar lane;
    generate
        for (lane = 0; lane < LANES; lane = lane + 1) begin : lanes
            wire next_channel = position[lane] + 1 == length;
            wire next_row = number[lane] + 1 == channels;

            assign channel[lane*20 +: 20] = number[lane];
            assign position[lane + 1] = next_channel ? 0 : position[lane] + 1;
            assign number[lane + 1] = !next_channel ? number[lane] : next_row ? 0 : number[lane] + 1;
        end
    endgenerate

    always @(posedge clock)
        if (start) begin
            first_position <= 0;
            first_channel <= 0;
        end else if (advance) begin
            first_position <= position[LANES];
            first_channel <= number[LANES];
        end
endmodule
