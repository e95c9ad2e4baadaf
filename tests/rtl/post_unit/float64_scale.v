// value * factor in float64, rounded to nearest, ties away from zero, held within int32: the records of products that are
// rounded once. The factor is a positive normal float64.
//
// The product has 85 bits; as a float64 it keeps the first 53 of them, ties to even, and only that is rounded to an
// integer.
module float64_scale (
    input  wire signed [31:0] value,
    input  wire [63:0]        factor,
    output reg  signed [31:0] result
);
    localparam signed [12:0] BIAS = 13'sd1075;  // of the exponent of a significand that is an integer

    wire [31:0] magnitude = value[31] ? -value : value;
    wire [84:0] product = magnitude * {33'b1, factor[51:0]};
    wire [84:0] shifted;
    wire [7:0]  zeros;

    normalise #(.WIDTH(85)) align (.value(product), .shifted(shifted), .zeros(zeros));

    wire [53:0]        kept = shifted[84:32] + {53'b0, shifted[31] & ((|shifted[30:0]) | shifted[32])};
    wire signed [12:0] exponent = $signed({2'b0, factor[62:52]}) - BIAS + 13'sd32 - $signed({5'b0, zeros});
    wire signed [12:0] places = -exponent;
    reg [54:0]         rounded;

    always @* begin
        if (product == 0 | places > 13'sd54) rounded = 0;
        else if (places < 13'sd1) rounded = {55{1'b1}};
        else rounded = ({1'b0, kept} + (55'd1 << (places - 13'sd1))) >> places;
        if (rounded > 55'd2147483647) rounded = 55'd2147483647;
        result = value[31] ? -rounded[31:0] : rounded[31:0];
    end
endmodule
