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

    reg [8:0]         magnitude;
    reg [32:0]        product, high, low;
    reg               product_negative, product_leads, high_negative, low_negative, far, low_wins, negative;
    reg signed [11:0] high_exponent, low_exponent, distance, exponent;
    reg [5:0]         shift;
    reg [WIDTH-1:0]   left, right, sum;

    always @* begin
        magnitude = value[9] ? -value : value;  // the value is -128 to 382
        product = magnitude * factor_significand;
        product_negative = value[9] ^ factor_negative;

        // Which of the two has the higher last place; 0 never has.
        product_leads = addend_significand == 0 | (product != 0 & factor_exponent >= addend_exponent);
        {high_negative, high, high_exponent} = {addend_negative, 9'b0, addend_significand, addend_exponent};
        {low_negative, low, low_exponent} = {product_negative, product, factor_exponent};
        if (product_leads) begin
            {high_negative, high, high_exponent} = {product_negative, product, factor_exponent};
            {low_negative, low, low_exponent} = {addend_negative, 9'b0, addend_significand, addend_exponent};
        end

        distance = low == 0 ? 12'sd0 : high_exponent - low_exponent;
        far = distance > REACH;
        shift = far ? REACH : distance[5:0];
        left = {{(WIDTH - 33){1'b0}}, high} << shift;
        right = far ? 1 : low;

        low_wins = high_negative != low_negative & left < right;
        sum = high_negative == low_negative ? left + right : low_wins ? right - left : left - right;
        exponent = high_exponent - $signed({6'b0, shift});
        negative = low_wins ? low_negative : high_negative;
    end

    float32_round #(.WIDTH(WIDTH)) to_float (
        .negative(negative), .magnitude(sum), .exponent(exponent), .inexact(1'b0), .result(result)
    );
endmodule
