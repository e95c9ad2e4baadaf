// The scaling instructions with integers only: TensorFlow Lite's multipliers and shifts, rounded twice.
//
//   stage  OP_REQUANT, OP_ACT_RELU, OP_ACT_LRELU, OP_E_ABS      OP_E_ADD
//   1      the value, shifted to the left, within int32         both operands, less zero points, times 2^20, shifted
//   2      times the multiplier, upper half                     both
//   3      shifted to the right                                 both; their sum, shifted to the left
//   4                                                           times the multiplier of the result, upper half
//   5                                                           shifted to the right
//   6      plus the output zero point, clamped; its register is the unit's
//
// A negative slope takes its sign in stage 5. OP_REQUANT has a float64 factor where the shift of a record is none.
`include "dla_isa.vh"

module lane_fixed (
    input  wire               clock,
    input  wire               reset,
    input  wire [7:0]         opcode,
    input  wire signed [15:0] input_zero_point,
    input  wire signed [15:0] operand_zero_point,
    input  wire signed [15:0] output_zero_point,
    input  wire signed [7:0]  clamp_low,
    input  wire signed [7:0]  clamp_high,
    input  wire signed [31:0] scale_a,
    input  wire signed [31:0] scale_b,
    input  wire signed [31:0] scale_y,
    input  wire signed [7:0]  shift_a,
    input  wire signed [7:0]  shift_b,
    input  wire signed [7:0]  shift_y,
    input  wire signed [31:0] first,
    input  wire signed [31:0] second,
    input  wire signed [31:0] channel_multiplier,
    input  wire signed [31:0] channel_shift,
    output wire signed [7:0]  result
);
    localparam HEADROOM = 20;  // places that OP_E_ADD moves its operands up, to keep what rounding would cost
    localparam LARGEST_SHIFT = 30;

    wire is_requantise = opcode == `DLA_OP_REQUANT;
    wire is_add = opcode == `DLA_OP_E_ADD;

    // Stage 1: the value of each instruction, and the multiplier and shift that belong to it.
    wire signed [7:0]  a = first[7:0];
    wire signed [7:0]  b = second[7:0];
    wire signed [39:0] a_centred = a - input_zero_point;
    wire signed [39:0] b_centred = b - operand_zero_point;
    wire               below_zero = a_centred[39];
    wire               use_slope = opcode == `DLA_OP_ACT_LRELU & below_zero;
    reg  signed [39:0] value;

    always @*
        case (opcode)
            `DLA_OP_REQUANT: value = first;
            `DLA_OP_E_ADD: value = a_centred <<< HEADROOM;
            `DLA_OP_ACT_RELU: value = below_zero ? 40'sd0 : a_centred;
            `DLA_OP_E_ABS: value = below_zero ? -a_centred : a_centred;
            default: value = a_centred;
        endcase

    wire               is_negative = use_slope & scale_b[31];
    wire signed [31:0] slope = scale_b[31] ? -scale_b : scale_b;
    wire signed [31:0] multiplier = is_requantise ? channel_multiplier : use_slope ? slope : scale_a;
    wire signed [7:0]  shift = is_requantise ? channel_shift[7:0] : use_slope ? shift_b : shift_a;
    wire               is_once = is_requantise & channel_shift > LARGEST_SHIFT;
    wire signed [31:0] a_up, b_up, once;
    reg  signed [31:0] a_shifted, b_shifted, a_multiplier;
    reg  signed [7:0]  a_shift;

    fixed_shift_left shift_up_a (.value(value), .shift(shift), .result(a_up));
    fixed_shift_left shift_up_b (.value(b_centred <<< HEADROOM), .shift(shift_b), .result(b_up));
    float64_scale scale_once (
        .value(is_once ? first : 32'sd0), .factor({channel_shift, channel_multiplier}), .result(once)
    );

    always @(posedge clock) begin
        a_shifted <= a_up;
        a_multiplier <= multiplier;
        a_shift <= shift;
        if (is_add) b_shifted <= b_up;
    end

    // Stage 2: the multiplications.
    wire signed [31:0] a_high, b_high;
    reg  signed [31:0] a_product, b_product;
    reg  signed [7:0]  a_waiting_shift;

    fixed_high_multiply multiply_a (.value(a_shifted), .multiplier(a_multiplier), .result(a_high));
    fixed_high_multiply multiply_b (.value(b_shifted), .multiplier(scale_b), .result(b_high));

    always @(posedge clock) begin
        a_product <= a_high;
        a_waiting_shift <= a_shift;
        if (is_add) b_product <= b_high;
    end

    // Stage 3: the shifts to the right. The sum of an addition is scaled once more.
    wire signed [31:0] a_scaled, b_scaled, sum_up;
    wire signed [39:0] sum = a_scaled + b_scaled;
    reg  signed [31:0] scaled, sum_shifted;

    fixed_shift_right shift_down_a (.value(a_product), .shift(a_waiting_shift), .result(a_scaled));
    fixed_shift_right shift_down_b (.value(b_product), .shift(shift_b), .result(b_scaled));
    fixed_shift_left shift_up_sum (.value(sum), .shift(shift_y), .result(sum_up));

    always @(posedge clock) begin
        scaled <= a_scaled;
        if (is_add) sum_shifted <= sum_up;
    end

    // Stage 4.
    wire signed [31:0] sum_high;
    reg  signed [31:0] scaled_waiting, sum_product;

    fixed_high_multiply multiply_sum (.value(sum_shifted), .multiplier(scale_y), .result(sum_high));

    always @(posedge clock) begin
        scaled_waiting <= scaled;
        sum_product <= sum_high;
    end

    // Stage 5.
    wire               was_negative, was_once;
    wire signed [31:0] once_waiting, sum_scaled;
    reg  signed [31:0] rescaled;

    delay #(.WIDTH(34), .CYCLES(4)) carry (
        .clock(clock), .reset(reset), .value({is_negative, is_once, once}),
        .delayed({was_negative, was_once, once_waiting})
    );
    fixed_shift_right shift_down_sum (.value(sum_product), .shift(shift_y), .result(sum_scaled));

    always @(posedge clock)
        if (is_add) rescaled <= sum_scaled;
        else if (was_once) rescaled <= once_waiting;
        else rescaled <= was_negative ? -scaled_waiting : scaled_waiting;

    // Stage 6: int8.
    clamp_int8 clamp (
        .value(rescaled), .offset({output_zero_point[15], output_zero_point}), .low(clamp_low), .high(clamp_high),
        .result(result)
    );
endmodule
