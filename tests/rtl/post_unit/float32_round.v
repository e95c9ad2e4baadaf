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
    output reg  [31:0]        result
);
    localparam signed [11:0] SMALLEST_NORMAL = -126;
    localparam EXTRA = 26;  // so far below the last place of a subnormal number nothing is left but its existence
    localparam TOP = WIDTH + EXTRA - 1;

    wire [WIDTH-1:0] normalised;
    wire [7:0]       zeros;

    normalise #(.WIDTH(WIDTH)) find_leading_one (.value(magnitude), .shifted(normalised), .zeros(zeros));

    reg signed [11:0] leading;    // exponent of the leading one
    reg signed [11:0] below;      // how far that is below the normal numbers: there the last place stays where it is
    reg               subnormal;
    reg [4:0]         drop;
    reg [TOP:0]       aligned;
    reg [23:0]        kept;
    reg               half, rest;
    reg [11:0]        field;
    reg [34:0]        bits;

    always @* begin
        leading = exponent + WIDTH - 12'sd1 - $signed({4'b0, zeros});
        subnormal = leading < SMALLEST_NORMAL;
        below = SMALLEST_NORMAL - leading;
        drop = !subnormal ? 5'd0 : below > EXTRA ? EXTRA : below[4:0];

        aligned = {normalised, {EXTRA{1'b0}}} >> drop;
        kept = aligned[TOP -: 24];
        half = aligned[TOP - 24];
        rest = |aligned[TOP - 25 : 0] | inexact;

        // The hidden bit is added to the exponent field, so a carry out of the significand lands there, too.
        field = subnormal ? 12'd0 : leading - SMALLEST_NORMAL;
        bits = {field, 23'b0} + {11'b0, kept} + {34'b0, half & (rest | kept[0])};
        if (magnitude == 0)
            result = {negative, 31'b0};
        else if (bits[34:23] >= 12'd255)
            result = {negative, 8'hff, 23'b0};
        else
            result = {negative, bits[30:0]};
    end
endmodule
