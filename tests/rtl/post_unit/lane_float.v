// The scaling instructions with ONNX Runtime's numbers: float32, rounded where the documentation says so.
//
//   stage  OP_REQUANT         OP_ACT_RELU, OP_ACT_LRELU, OP_E_ABS   OP_E_ADD
//   1      float32(acc)       float32(x - zero point)               a + offset, b + offset
//   2      times scale        times SCALE_A                         fma(b, SCALE_B, SCALE_Y)
//   3                         relu, leaky relu, absolute            fma(a, SCALE_A, the sum so far)
//   4                         divided by SCALE_Y
//   5      rounded to an integer
//   6      plus the output zero point (OP_E_ADD: minus the offset), clamped; its register is the unit's
//
// Registers that an instruction does not need keep their values, so that the logic behind them rests.
`include "dla_isa.vh"

module lane_float (
    input  wire               clock,
    input  wire [7:0]         opcode,
    input  wire signed [15:0] input_zero_point,
    input  wire signed [15:0] output_zero_point,
    input  wire signed [7:0]  clamp_low,
    input  wire signed [7:0]  clamp_high,
    input  wire [7:0]         offset,
    input  wire [31:0]        scale_a,
    input  wire [31:0]        scale_b,
    input  wire [31:0]        scale_y,
    input  wire signed [31:0] first,
    input  wire signed [31:0] second,
    input  wire [31:0]        channel_scale,
    output wire signed [7:0]  result
);
    wire is_requantise = opcode == `DLA_OP_REQUANT;
    wire is_add = opcode == `DLA_OP_E_ADD;
    wire is_unary = !is_requantise & !is_add;

    // Stage 1: the operands as float32, or as the small integers that a fused multiply-add takes.
    wire signed [7:0]  a = first[7:0];
    wire signed [7:0]  b = second[7:0];
    wire signed [31:0] centred = a - input_zero_point;
    wire [31:0]        as_float;
    reg  [31:0]        converted, factor;
    reg  signed [9:0]  a_moved, b_moved;

    float32_from_int32 convert (.value(is_requantise ? first : centred), .result(as_float));

    always @(posedge clock)
        if (is_add) begin
            a_moved <= a + $signed({2'b0, offset});
            b_moved <= b + $signed({2'b0, offset});
        end else begin
            converted <= as_float;
            factor <= is_requantise ? channel_scale : scale_a;
        end

    // Stage 2: the first product.
    wire [31:0]       product, inner;
    reg  [31:0]       scaled, inner_sum;
    reg  signed [9:0] a_waiting;

    float32_multiply scale_input (.a(converted), .b(factor), .result(product));
    float32_multiply_add add_inner (.value(b_moved), .factor(scale_b), .addend(scale_y), .result(inner));

    always @(posedge clock)
        if (is_add) begin
            inner_sum <= inner;
            a_waiting <= a_moved;
        end else
            scaled <= product;

    // Stage 3: the function of the activation, or the other operand of the addition.
    wire [31:0] sloped, total;
    wire        negative = scaled[31];
    reg  [31:0] activated, dividend;

    float32_multiply scale_slope (
        .a(opcode == `DLA_OP_ACT_LRELU ? scaled : 32'b0), .b(scale_b), .result(sloped)
    );
    float32_multiply_add add_outer (.value(a_waiting), .factor(scale_a), .addend(inner_sum), .result(total));

    always @(posedge clock) begin
        if (is_unary)
            case (opcode)
                `DLA_OP_ACT_RELU: dividend <= negative ? 32'b0 : scaled;
                `DLA_OP_ACT_LRELU: dividend <= negative ? sloped : scaled;
                default: dividend <= {1'b0, scaled[30:0]};
            endcase
        else
            activated <= is_add ? total : scaled;
    end

    // Stage 4: in units of the output scale.
    wire [31:0] quotient;
    reg  [31:0] rescaled;

    float32_divide divide_by_scale (.dividend(dividend), .divisor(scale_y), .result(quotient));

    always @(posedge clock) rescaled <= is_unary ? quotient : activated;

    // Stage 5: an integer.
    wire signed [21:0] nearest;
    reg  signed [21:0] integer_value;

    float32_to_integer round_to_integer (.value(rescaled), .result(nearest));

    always @(posedge clock) integer_value <= nearest;

    // Stage 6: int8. OP_E_ADD has its zero points in the constant SCALE_Y already.
    wire signed [16:0] moved_by = is_add ? -$signed({9'b0, offset}) : {output_zero_point[15], output_zero_point};

    clamp_int8 clamp (
        .value({{10{integer_value[21]}}, integer_value}), .offset(moved_by), .low(clamp_low), .high(clamp_high),
        .result(result)
    );
endmodule
