// float32 quotient, rounded to nearest, ties to even. The divisor is a scale: positive and finite.
//
// One division of integers in one clock keeps the example short. A fast unit takes it apart over several clocks, or
// keeps the 256 results of a command in a table.
module float32_divide (
    input  wire [31:0] dividend,
    input  wire [31:0] divisor,
    output wire [31:0] result
);
    localparam FRACTION = 26;  // bits of the quotient that float32 has no room for, one at least

    wire               negative, infinite, divisor_negative, divisor_infinite;
    wire [23:0]        a_significand, b_significand, a, b;
    wire signed [11:0] a_exponent, b_exponent;
    wire [7:0]         a_zeros, b_zeros;

    float32_unpack unpack_dividend (
        .value(dividend), .negative(negative), .infinite(infinite), .significand(a_significand), .exponent(a_exponent)
    );
    float32_unpack unpack_divisor (
        .value(divisor), .negative(divisor_negative), .infinite(divisor_infinite), .significand(b_significand),
        .exponent(b_exponent)
    );

    // Subnormal operands have fewer bits: only after normalising does the quotient have 26 of them for sure.
    normalise #(.WIDTH(24)) normalise_dividend (.value(a_significand), .shifted(a), .zeros(a_zeros));
    normalise #(.WIDTH(24)) normalise_divisor (.value(b_significand), .shifted(b), .zeros(b_zeros));

    wire [23+FRACTION:0] numerator = {a, {FRACTION{1'b0}}};
    wire [23+FRACTION:0] quotient = numerator / b;
    wire                 inexact = quotient * b != numerator;
    wire signed [11:0]   exponent = a_exponent - $signed({4'b0, a_zeros}) - b_exponent + $signed({4'b0, b_zeros})
                                    - FRACTION;
    wire [31:0]          rounded;

    float32_round #(.WIDTH(28)) to_float (
        .negative(negative), .magnitude(quotient[27:0]), .exponent(exponent), .inexact(inexact), .result(rounded)
    );

    assign result = infinite ? {negative, 8'hff, 23'b0} : rounded;
endmodule
