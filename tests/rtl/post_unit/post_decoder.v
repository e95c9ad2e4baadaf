// What a command word asks of this unit, and whether it is legal: what the specification calls an error is a fault.
`include "dla_isa.vh"

module post_decoder #(
    parameter FIXED = 0
) (
    input  wire [7:0]        opcode,
    input  wire [1:0]        rounding,
    input  wire signed [7:0] clamp_low,
    input  wire signed [7:0] clamp_high,
    input  wire [31:0]       scale_a,
    input  wire [31:0]       scale_y,
    input  wire [7:0]        shift_a,
    output reg               supported,
    output wire              two_operands,
    output wire              by_channel,   // rows · channels · length elements, each channel with its record
    output wire              wide_input,   // int32 operands
    output wire              wide_output,  // int32 results
    output wire              illegal
);
    wire is_shift = opcode == `DLA_OP_E32_SHIFT;
    wire is_unary = opcode == `DLA_OP_ACT_RELU | opcode == `DLA_OP_ACT_LRELU | opcode == `DLA_OP_E_ABS;

    always @*
        case (opcode)
            `DLA_OP_REQUANT, `DLA_OP_ACT_RELU, `DLA_OP_ACT_LRELU, `DLA_OP_E_ABS, `DLA_OP_C_MIN, `DLA_OP_C_MAX,
            `DLA_OP_E_ADD, `DLA_OP_E32_ADD, `DLA_OP_E32_SHIFT: supported = 1;
            default: supported = 0;
        endcase

    assign two_operands = opcode == `DLA_OP_C_MIN | opcode == `DLA_OP_C_MAX | opcode == `DLA_OP_E_ADD
                          | opcode == `DLA_OP_E32_ADD;
    assign by_channel = opcode == `DLA_OP_REQUANT;
    assign wide_output = opcode == `DLA_OP_E32_ADD | is_shift;
    assign wide_input = wide_output | by_channel;

    // Scales of activations are positive and finite; a float32 that is not has its sign set, or exponent and
    // significand at an end.
    wire bad_a = scale_a[31] | scale_a[30:0] == 0 | scale_a[30:23] == 8'hff;
    wire bad_y = scale_y[31] | scale_y[30:0] == 0 | scale_y[30:23] == 8'hff;
    wire clamps = by_channel | is_unary | opcode == `DLA_OP_E_ADD;

    assign illegal = (clamps & clamp_low > clamp_high)
                     | (is_unary & !FIXED & (bad_a | bad_y))
                     | (is_shift & (shift_a > 31 | rounding == 3));
endmodule
