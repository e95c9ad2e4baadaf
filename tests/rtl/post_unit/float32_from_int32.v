// float32 of an int32, rounded to nearest, ties to even: exact below 2^24.
module float32_from_int32 (
    input  wire signed [31:0] value,
    output wire [31:0]        result
);
    wire        negative = value[31];
    wire [31:0] magnitude = negative ? -value : value;  // of the lowest int32 it is 2^31, unsigned

    float32_round #(.WIDTH(32)) to_float (
        .negative(negative), .magnitude(magnitude), .exponent(12'sd0), .inexact(1'b0), .result(result)
    );
endmodule
