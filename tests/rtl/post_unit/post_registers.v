// The configuration registers that the unit reads. A SET word writes one; values persist.
`include "dla_isa.vh"

module post_registers (
    input  wire        clock,
    input  wire        reset,
    input  wire        write,
    input  wire [63:0] word,
    output reg  [31:0] input_address,
    output reg  [31:0] operand_address,
    output reg  [31:0] channel_address,
    output reg  [31:0] output_address,
    output reg  [19:0] rows,
    output reg  [19:0] channels,
    output reg  [31:0] length,
    output reg  [15:0] input_zero_point,
    output reg  [15:0] operand_zero_point,
    output reg  [15:0] output_zero_point,
    output reg  [7:0]  clamp_low,
    output reg  [7:0]  clamp_high,
    output reg  [7:0]  offset,
    output reg  [31:0] scale_a,
    output reg  [31:0] scale_b,
    output reg  [31:0] scale_y,
    output reg  [7:0]  shift_a,
    output reg  [7:0]  shift_b,
    output reg  [7:0]  shift_y
);
    wire [7:0]  register = word[`DLA_SET_REGISTER_SHIFT +: `DLA_SET_REGISTER_WIDTH];
    wire [31:0] value = word[`DLA_SET_VALUE_SHIFT +: `DLA_SET_VALUE_WIDTH];

    always @(posedge clock)
        if (reset) begin
            input_address <= `DLA_REG_EX_INPUT_ADDRESS_RESET;
            operand_address <= `DLA_REG_EX_OPERAND_ADDRESS_RESET;
            channel_address <= `DLA_REG_EX_CHANNEL_ADDRESS_RESET;
            output_address <= `DLA_REG_EX_OUTPUT_ADDRESS_RESET;
            rows <= `DLA_REG_EX_ROWS_RESET;
            channels <= `DLA_REG_EX_OUTPUT_CHANNELS_RESET;
            length <= `DLA_REG_EX_LENGTH_RESET;
            input_zero_point <= `DLA_REG_EX_INPUT_ZERO_POINT_RESET;
            operand_zero_point <= `DLA_REG_EX_OPERAND_ZERO_POINT_RESET;
            output_zero_point <= `DLA_REG_EX_OUTPUT_ZERO_POINT_RESET;
            clamp_low <= `DLA_REG_EX_CLAMP_LOW_RESET;
            clamp_high <= `DLA_REG_EX_CLAMP_HIGH_RESET;
            offset <= `DLA_REG_EX_OFFSET_RESET;
            scale_a <= `DLA_REG_EX_SCALE_A_RESET;
            scale_b <= `DLA_REG_EX_SCALE_B_RESET;
            scale_y <= `DLA_REG_EX_SCALE_Y_RESET;
            shift_a <= `DLA_REG_EX_SHIFT_A_RESET;
            shift_b <= `DLA_REG_EX_SHIFT_B_RESET;
            shift_y <= `DLA_REG_EX_SHIFT_Y_RESET;
        end else if (write)
            case (register)
                `DLA_REG_EX_INPUT_ADDRESS: input_address <= value;
                `DLA_REG_EX_OPERAND_ADDRESS: operand_address <= value;
                `DLA_REG_EX_CHANNEL_ADDRESS: channel_address <= value;
                `DLA_REG_EX_OUTPUT_ADDRESS: output_address <= value;
                `DLA_REG_EX_ROWS: rows <= value;
                `DLA_REG_EX_OUTPUT_CHANNELS: channels <= value;
                `DLA_REG_EX_LENGTH: length <= value;
                `DLA_REG_EX_INPUT_ZERO_POINT: input_zero_point <= value;
                `DLA_REG_EX_OPERAND_ZERO_POINT: operand_zero_point <= value;
                `DLA_REG_EX_OUTPUT_ZERO_POINT: output_zero_point <= value;
                `DLA_REG_EX_CLAMP_LOW: clamp_low <= value;
                `DLA_REG_EX_CLAMP_HIGH: clamp_high <= value;
                `DLA_REG_EX_OFFSET: offset <= value;
                `DLA_REG_EX_SCALE_A: scale_a <= value;
                `DLA_REG_EX_SCALE_B: scale_b <= value;
                `DLA_REG_EX_SCALE_Y: scale_y <= value;
                `DLA_REG_EX_SHIFT_A: shift_a <= value;
                `DLA_REG_EX_SHIFT_B: shift_b <= value;
                `DLA_REG_EX_SHIFT_Y: shift_y <= value;
                default: ;  // a register of another unit
            endcase
endmodule
