// Shifts a value to the left until its leading one is the top bit, and counts the zeros that were there.
//
// A step for each power of two: logarithmic in WIDTH, like a barrel shifter. For the value 0 the count says nothing.
module normalise #(
    parameter WIDTH = 32
) (
    input  wire [WIDTH-1:0] value,
    output reg  [WIDTH-1:0] shifted,
    output reg  [7:0]       zeros
);
    localparam LEVELS = $clog2(WIDTH);

    reg [WIDTH-1:0] moved;
    reg [7:0]       count;
    integer         level;

    always @* begin
        moved = value;
        count = 0;
        for (level = LEVELS - 1; level >= 0; level = level - 1)
            if (moved >> (WIDTH - (1 << level)) == 0) begin
                moved = moved << (1 << level);
                count = count + (1 << level);
            end
        shifted = moved;
        zeros = count;
    end
endmodule
