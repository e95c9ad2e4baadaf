// OP_E32_SHIFT: to the left with a check for overflow; to the right rounded down, to even or away from zero.
module int32_shift (
    input  wire signed [31:0] value,
    input  wire [4:0]         amount,
    input  wire               to_the_right,
    input  wire [1:0]         rounding,
    output reg  signed [31:0] result,
    output reg                overflow
);
    localparam FLOOR = 0, NEAREST_EVEN = 1, HALF_AWAY = 2;

    reg signed [63:0] wide;
    reg signed [31:0] floor;
    reg [31:0]        unit, rest;
    reg [32:0]        doubled;
    reg               tie_goes_up, goes_up;

    always @* begin
        wide = $signed({{32{value[31]}}, value}) <<< amount;
        floor = value >>> amount;
        unit = 32'd1 << amount;
        rest = value & (unit - 32'd1);
        doubled = {rest, 1'b0};
        tie_goes_up = rounding == NEAREST_EVEN ? floor[0] : !value[31];
        goes_up = rounding != FLOOR & (doubled > unit | (doubled == unit & tie_goes_up));
        result = to_the_right ? floor + {31'b0, goes_up} : wide[31:0];
        overflow = !to_the_right & wide[63:31] != {33{wide[31]}};
    end
endmodule
