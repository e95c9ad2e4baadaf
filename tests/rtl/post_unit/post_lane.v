// One lane: an element of every instruction of the unit, six stages from the operands to the result. The register of
// the sixth is the unit's.
//
// A machine has one kind of numbers (Arch.numerics), so a lane has one of the two scaling pipelines.
`include "dla_isa.vh"

module post_lane #(
    parameter FIXED = 0
) (
    input  wire               clock,
    input  wire               reset,
    input  wire [7:0]         opcode,
    input  wire               to_the_right,
    input  wire [1:0]         rounding,
    input  wire signed [15:0] input_zero_point,
    input  wire signed [15:0] operand_zero_point,
    input  wire signed [15:0] output_zero_point,
    input  wire signed [7:0]  clamp_low,
    input  wire signed [7:0]  clamp_high,
    input  wire [7:0]         offset,
    input  wire [31:0]        scale_a,
    input  wire [31:0]        scale_b,
    input  wire [31:0]        scale_y,
    input  wire signed [7:0]  shift_a,
    input  wire signed [7:0]  shift_b,
    input  wire signed [7:0]  shift_y,
    input  wire [31:0]        first,
    input  wire [31:0]        second,
    input  wire [31:0]        channel_scale,
    input  wire [31:0]        channel_shift,
    output wire [31:0]        result,
    output wire               overflow
);
    wire without_scale = opcode == `DLA_OP_C_MIN | opcode == `DLA_OP_C_MAX | opcode == `DLA_OP_E32_ADD
                         | opcode == `DLA_OP_E32_SHIFT;

    // Operands go to the pipeline that they are for; the other one rests.
    wire [31:0] integer_first = without_scale ? first : 32'b0;
    wire [31:0] integer_second = without_scale ? second : 32'b0;
    wire [31:0] scaled_first = without_scale ? 32'b0 : first;
    wire [31:0] scaled_second = without_scale ? 32'b0 : second;
    wire [31:0] integer_result;
    wire [7:0]  scaled_result;
    wire        integer_overflow;

    lane_integer integers (
        .clock(clock), .reset(reset), .opcode(opcode), .to_the_right(to_the_right), .rounding(rounding),
        .shift_amount(shift_a[4:0]), .first(integer_first), .second(integer_second), .result(integer_result),
        .overflow(integer_overflow)
    );

    generate
        if (FIXED) begin : scaling
            lane_fixed fixed (
                .clock(clock), .reset(reset), .opcode(opcode), .input_zero_point(input_zero_point),
                .operand_zero_point(operand_zero_point), .output_zero_point(output_zero_point),
                .clamp_low(clamp_low), .clamp_high(clamp_high), .scale_a(scale_a), .scale_b(scale_b),
                .scale_y(scale_y), .shift_a(shift_a), .shift_b(shift_b), .shift_y(shift_y), .first(scaled_first),
                .second(scaled_second), .channel_multiplier(channel_scale), .channel_shift(channel_shift),
                .result(scaled_result)
            );
        end else begin : scaling
            lane_float floats (
                .clock(clock), .opcode(opcode), .input_zero_point(input_zero_point),
                .output_zero_point(output_zero_point), .clamp_low(clamp_low), .clamp_high(clamp_high),
                .offset(offset), .scale_a(scale_a), .scale_b(scale_b), .scale_y(scale_y), .first(scaled_first),
                .second(scaled_second), .channel_scale(channel_scale), .result(scaled_result)
            );
        end
    endgenerate

    assign result = without_scale ? integer_result : {24'b0, scaled_result};
    assign overflow = without_scale & integer_overflow;
endmodule
