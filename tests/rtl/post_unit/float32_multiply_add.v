// Fused multiply-add of a small integer: float32(value * factor + addend), rounded once. All finite.
//
// The product and the addend are added exactly, as integers at the lower one's last place. Where they are more than
// REACH places apart, the lower one is replaced by the smallest number of its sign. It decides only on which side of a
// tie the sum lies: at that distance it is below 2^32 of the sum's last places, the rounding below 2^35.
module float32_multiply_add (
    input  wire signed [9:0] value,
    input  wire [31:0]       factor,
    input  wire [31:0]       addend,
    output wire [31:0]       result
);
    localparam REACH = 60;
    localparam WIDTH = 33 + REACH + 1;

    wire               factor_negative, addend_negative, factor_infinite, addend_infinite;
    wire [23:0]        factor_significand, addend_significand;
    wire signed [11:0] factor_exponent, addend_exponent;

    float32_unpack unpack_factor (
        .value(factor), .negative(factor_negative), .infinite(factor_infinite), .significand(factor_significand),
        .exponent(factor_exponent)
    );
    float32_unpack unpack_addend (
        .value(addend), .negative(addend_negative), .infinite(addend_infinite), .significand(addend_significand),
        .exponent(addend_exponent)
    );

    wire [8:0]  magnitude = value[9] ? -value : value;  // the value is -128 to 382
    wire [32:0] product = magnitude * factor_significand;
    wire        product_negative = value[9] ^ factor_negative;

    wire               product_leads = addend_significand == 0 | (product != 0 & factor_exponent >= addend_exponent);
    wire [32:0]        high = product_leads ? product : {9'b0, addend_significand};
    wire [32:0]        low = product_leads ? {9'b0, addend_significand} : product;
    wire signed [11:0] high_exponent = product_leads ? factor_exponent : addend_exponent;
    wire signed [11:0] low_exponent = product_leads ? addend_exponent : factor_exponent;
    wire               high_negative = product_leads ? product_negative : addend_negative;
    wire               low_negative = product_leads ? addend_negative : product_negative;

    wire signed [11:0] distance = low == 0 ? 12'sd0 : high_exponent - low_exponent;
    wire               far = distance > REACH;
    wire [5:0]         shift = far ? REACH : distance[5:0];
    wire [WIDTH-1:0]   left = {{(WIDTH - 33){1'b0}}, high} << shift;
    wire [WIDTH-1:0]   right = far ? 1 : low;

    wire             subtract = high_negative ^ low_negative;
    wire             low_wins = subtract & left < right;
    wire [WIDTH-1:0] sum = !subtract ? left + right : low_wins ? right - left : left - right;

    float32_round #(.WIDTH(WIDTH)) to_float (
        .negative(low_wins ? low_negative : high_negative), .magnitude(sum),
        .exponent(high_exponent - $signed({6'b0, shift})), .inexact(1'b0), .result(result)
    );
endmodule
