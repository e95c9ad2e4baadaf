// The second step: value * multiplier / 2^31, rounded to nearest, ties upwards, saturated (gemmlowp's
// SaturatingRoundingDoublingHighMul). Adding half and truncating towards zero rounds ties of both signs upwards.
module fixed_high_multiply (
    input  wire signed [31:0] value,
    input  wire signed [31:0] multiplier,
    output wire signed [31:0] result
);
    localparam signed [63:0] HALF = 64'sd1 << 30;

    wire signed [63:0] product = value * multiplier;
    wire signed [63:0] nudged = product + (product[63] ? 64'sd1 - HALF : HALF);
    wire signed [63:0] truncated = nudged[63] ? -(-nudged >>> 31) : nudged >>> 31;

    assign result = truncated > 64'sd2147483647 ? 32'h7fffffff : truncated[31:0];
endmodule
