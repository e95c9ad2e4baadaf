// OP_E32_SHIFT: to the left with a check for overflow; to the right rounded down, to even or away from zero.
module int32_shift (
    input  wire signed [31:0] value,
    input  wire [4:0]         amount,
    input  wire               to_the_right,
    input  wire [1:0]         rounding,
    output wire signed [31:0] result,
    output wire               overflow
);
    localparam FLOOR = 0, NEAREST_EVEN = 1, HALF_AWAY = 2;

    wire signed [63:0] wide = $signed({{32{value[31]}}, value}) <<< amount;

    wire signed [31:0] floor = value >>> amount;
    wire [31:0]        unit = 32'd1 << amount;
    wire [31:0]        rest = value & (unit - 32'd1);
    wire [32:0]        doubled = {rest, 1'b0};
    wire               tie_goes_up = rounding == NEAREST_EVEN ? floor[0] : !value[31];
    wire               goes_up = rounding != FLOOR & (doubled > unit | (doubled == unit & tie_goes_up));

    assign result = to_the_right ? floor + {31'b0, goes_up} : wide[31:0];
    assign overflow = !to_the_right & wide[63:31] != {33{wide[31]}};
endmodule
