// The nearest integer of a float32, ties to even, held within -2^20 to 2^20: zero points have 16 bits and results 8, so
// what lies beyond is clamped whatever it is.
module float32_to_integer (
    input  wire [31:0]        value,
    output reg  signed [21:0] result
);
    localparam [20:0] LARGEST = 21'd1 << 20;

    wire               negative, infinite;
    wire [23:0]        significand;
    wire signed [11:0] exponent;

    float32_unpack unpack (
        .value(value), .negative(negative), .infinite(infinite), .significand(significand), .exponent(exponent)
    );

    reg        beyond;
    reg [4:0]  drop;
    reg [49:0] aligned;
    reg [20:0] magnitude;

    always @* begin
        beyond = infinite | exponent >= -12'sd3;  // a normal number of 2^20 or more
        drop = exponent < -12'sd26 ? 5'd26 : -exponent;
        aligned = {significand, 26'b0} >> drop;
        magnitude = aligned[45:26] + {20'b0, aligned[25] & (|aligned[24:0] | aligned[26])};
        if (beyond) magnitude = LARGEST;
        result = negative ? -$signed({1'b0, magnitude}) : $signed({1'b0, magnitude});
    end
endmodule
