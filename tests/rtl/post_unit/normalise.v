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

    integer level;

    always @* begin
        shifted = value;
        zeros = 0;
        for (level = LEVELS - 1; level >= 0; level = level - 1)
            if (shifted >> (WIDTH - (1 << level)) == 0) begin
                shifted = shifted << (1 << level);
                zeros = zeros + (1 << level);
            end
    end
endmodule
