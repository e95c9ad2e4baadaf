// The nearest integer of a float32, ties to even, held within -2^20 to 2^20: zero points have 16 bits and results 8, so
// what lies beyond is clamped whatever it is.
module float32_to_integer (
    input  wire [31:0]        value,
    output wire signed [21:0] result
);
    localparam [20:0] LARGEST = 21'd1 << 20;

    wire               negative, infinite;
    wire [23:0]        significand;
    wire signed [11:0] exponent;

    float32_unpack unpack (
        .value(value), .negative(negative), .infinite(infinite), .significand(significand), .exponent(exponent)
    );

    wire        beyond = infinite | exponent >= -12'sd3;  // a normal number of 2^20 or more
    wire [4:0]  drop = exponent < -12'sd26 ? 5'd26 : -exponent;
    wire [49:0] aligned = {significand, 26'b0} >> drop;
    wire [19:0] floor = aligned[45:26];
    wire        half = aligned[25];
    wire        rest = |aligned[24:0];
    wire [20:0] magnitude = beyond ? LARGEST : floor + {20'b0, half & (rest | floor[0])};

    assign result = negative ? -$signed({1'b0, magnitude}) : $signed({1'b0, magnitude});
endmodule
