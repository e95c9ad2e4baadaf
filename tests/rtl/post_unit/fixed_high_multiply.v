// The second step: value * multiplier / 2^31, rounded to nearest, ties upwards, saturated (gemmlowp's
// SaturatingRoundingDoublingHighMul). Adding half and truncating towards zero rounds ties of both signs upwards.
module fixed_high_multiply (
    input  wire signed [31:0] value,
    input  wire signed [31:0] multiplier,
    output reg  signed [31:0] result
);
    localparam signed [63:0] HALF = 64'sd1 << 30;

    reg signed [63:0] product, nudged, truncated;

    always @* begin
        product = value * multiplier;
        nudged = product + (product[63] ? 64'sd1 - HALF : HALF);
        truncated = nudged[63] ? -(-nudged >>> 31) : nudged >>> 31;
        result = truncated > 64'sd2147483647 ? 32'h7fffffff : truncated[31:0];
    end
endmodule
