// float32 product of two float32, rounded to nearest, ties to even.
module float32_multiply (
    input  wire [31:0] a,
    input  wire [31:0] b,
    output wire [31:0] result
);
    wire               a_negative, b_negative, a_infinite, b_infinite;
    wire [23:0]        a_significand, b_significand;
    wire signed [11:0] a_exponent, b_exponent;

    float32_unpack unpack_a (
        .value(a), .negative(a_negative), .infinite(a_infinite), .significand(a_significand), .exponent(a_exponent)
    );
    float32_unpack unpack_b (
        .value(b), .negative(b_negative), .infinite(b_infinite), .significand(b_significand), .exponent(b_exponent)
    );

    wire        negative = a_negative ^ b_negative;
    wire [47:0] product = a_significand * b_significand;
    wire [31:0] rounded;

    float32_round #(.WIDTH(48)) to_float (
        .negative(negative), .magnitude(product), .exponent(a_exponent + b_exponent), .inexact(1'b0), .result(rounded)
    );

    assign result = a_infinite | b_infinite ? {negative, 8'hff, 23'b0} : rounded;
endmodule
