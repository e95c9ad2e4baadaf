// Rounds magnitude * 2^exponent to float32: to nearest, ties to even, with subnormal numbers and infinity.
//
// The only copy of float32 rounding in this unit. `inexact` says that something lies below the last bit of the
// magnitude; the magnitude must then have at least 26 significant bits.
module float32_round #(
    parameter WIDTH = 48
) (
    input  wire               negative,
    input  wire [WIDTH-1:0]   magnitude,
    input  wire signed [11:0] exponent,
    input  wire               inexact,
    output wire [31:0]        result
);
    localparam signed [11:0] SMALLEST_NORMAL = -126;
    localparam EXTRA = 26;  // so far below the last place of a subnormal number nothing is left but its existence
    localparam TOP = WIDTH + EXTRA - 1;

    wire [WIDTH-1:0] normalised;
    wire [7:0]       zeros;

    normalise #(.WIDTH(WIDTH)) find_leading_one (.value(magnitude), .shifted(normalised), .zeros(zeros));

    // Exponent of the leading one, and how far below the normal numbers it is: there the last place stays where it is.
    wire signed [11:0] leading = exponent + WIDTH - 12'sd1 - $signed({4'b0, zeros});
    wire               subnormal = leading < SMALLEST_NORMAL;
    wire signed [11:0] below = SMALLEST_NORMAL - leading;
    wire [4:0]         drop = !subnormal ? 5'd0 : below > EXTRA ? EXTRA : below[4:0];

    wire [TOP:0] aligned = {normalised, {EXTRA{1'b0}}} >> drop;
    wire [23:0]  kept = aligned[TOP -: 24];
    wire         half = aligned[TOP - 24];
    wire         rest = |aligned[TOP - 25 : 0] | inexact;
    wire [24:0]  rounded = kept + {24'b0, half & (rest | kept[0])};

    // The hidden bit is added to the exponent field, so a carry out of the significand lands there, too.
    wire signed [11:0] field = leading - SMALLEST_NORMAL;
    wire [34:0]        bits = {subnormal ? 12'd0 : field, 23'b0} + {10'b0, rounded};
    wire               overflow = bits[34:23] >= 12'd255;

    assign result = magnitude == 0 ? {negative, 31'b0} :
                    overflow       ? {negative, 8'hff, 23'b0} :
                                     {negative, bits[30:0]};
endmodule
