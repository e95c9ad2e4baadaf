// The instructions without scales: OP_C_MIN, OP_C_MAX, OP_E32_ADD, OP_E32_SHIFT. The first stage computes, four
// carry on, so that a result comes when those of the scaling instructions do.
`include "dla_isa.vh"

module lane_integer (
    input  wire               clock,
    input  wire               reset,
    input  wire [7:0]         opcode,
    input  wire               to_the_right,
    input  wire [1:0]         rounding,
    input  wire [4:0]         shift_amount,
    input  wire signed [31:0] first,
    input  wire signed [31:0] second,
    output wire [31:0]        result,
    output wire               overflow
);
    wire signed [7:0]  a = first[7:0];
    wire signed [7:0]  b = second[7:0];
    wire [7:0]         chosen = (opcode == `DLA_OP_C_MIN) == (a < b) ? a : b;
    wire signed [32:0] sum = first + second;
    wire [31:0]        shifted;
    wire               shift_overflow;

    int32_shift shifter (
        .value(first), .amount(shift_amount), .to_the_right(to_the_right), .rounding(rounding), .result(shifted),
        .overflow(shift_overflow)
    );

    reg [31:0] value;
    reg        too_large;

    always @(posedge clock) begin
        too_large <= 0;
        case (opcode)
            `DLA_OP_E32_ADD: {too_large, value} <= {sum[32] ^ sum[31], sum[31:0]};
            `DLA_OP_E32_SHIFT: {too_large, value} <= {shift_overflow, shifted};
            default: value <= {24'b0, chosen};
        endcase
    end

    delay #(.WIDTH(33), .CYCLES(4)) carry_on (
        .clock(clock), .reset(reset), .value({too_large, value}), .delayed({overflow, result})
    );
endmodule
