// An independent design with the project's command stream and registers, and the ports of docs/own-rtl.md.
// It executes OP_DMA_READ, OP_C_MAX and OP_DMA_WRITE one after another, one byte a cycle, so its cycles
// differ from the simulator's. It supports one row per copy and results that overlap no operand.
`include "dla_isa.vh"

module own_machine (
    input  wire        clk, rst,
    input  wire [31:0] command_address, command_words,
    output wire        memory_valid, memory_write,
    output wire [31:0] memory_address,
    output wire [3:0]  memory_count,
    output wire [63:0] memory_write_data,
    input  wire [63:0] memory_read_data,
    output reg         interrupt,
    output wire        probe_ld_done, probe_ex_done, probe_st_done
);
    reg [7:0]  scratchpad [0:4095];
    reg [31:0] load_from, load_to, load_bytes, store_from, store_to, store_bytes;
    reg [31:0] first, second, result, length;
    reg [31:0] next, step;
    reg [7:0]  opcode;
    reg        busy;

    // While the machine is idle it reads a command word in every cycle.
    wire        fetches = !rst & !busy & !interrupt;
    wire [63:0] word = memory_read_data;
    wire        loads = busy & opcode == `DLA_OP_DMA_READ;
    wire        computes = busy & opcode == `DLA_OP_C_MAX;
    wire        stores = busy & opcode == `DLA_OP_DMA_WRITE;
    wire        last = step + 1 >= (loads ? load_bytes : stores ? store_bytes : length);

    assign memory_valid = fetches | loads | stores;
    assign memory_write = stores;
    assign memory_address = fetches ? next : loads ? load_from + step : store_to + step;
    assign memory_count = fetches ? 8 : 1;
    assign memory_write_data = {56'b0, scratchpad[store_from + step]};
    assign probe_ld_done = loads & last;
    assign probe_ex_done = busy & !loads & !stores & last;
    assign probe_st_done = stores & last;

    wire signed [7:0] x = scratchpad[first + step];
    wire signed [7:0] y = scratchpad[second + step];

    always @(posedge clk)
        if (rst) begin
            {load_from, load_to, load_bytes, store_from, store_to, store_bytes} <= 0;
            {first, second, result, length, step, busy, interrupt} <= 0;
            next <= command_address;
        end else if (fetches) begin
            next <= next + 8;
            step <= 0;
            opcode <= word[`DLA_OPCODE_SHIFT +: `DLA_OPCODE_WIDTH];
            busy <= word[`DLA_OPCODE_SHIFT +: `DLA_OPCODE_WIDTH] != `DLA_SET
                & word[`DLA_OPCODE_SHIFT +: `DLA_OPCODE_WIDTH] != `DLA_OP_END;
            interrupt <= word[`DLA_OPCODE_SHIFT +: `DLA_OPCODE_WIDTH] == `DLA_OP_END;
            if (word[`DLA_OPCODE_SHIFT +: `DLA_OPCODE_WIDTH] == `DLA_SET)
                case (word[`DLA_SET_REGISTER_SHIFT +: `DLA_SET_REGISTER_WIDTH])
                    `DLA_REG_LD_DRAM_ADDRESS: load_from <= word[31:0];
                    `DLA_REG_LD_SRAM_ADDRESS: load_to <= word[31:0];
                    `DLA_REG_LD_BYTES: load_bytes <= word[31:0];
                    `DLA_REG_ST_SRAM_ADDRESS: store_from <= word[31:0];
                    `DLA_REG_ST_DRAM_ADDRESS: store_to <= word[31:0];
                    `DLA_REG_ST_BYTES: store_bytes <= word[31:0];
                    `DLA_REG_EX_INPUT_ADDRESS: first <= word[31:0];
                    `DLA_REG_EX_OPERAND_ADDRESS: second <= word[31:0];
                    `DLA_REG_EX_OUTPUT_ADDRESS: result <= word[31:0];
                    `DLA_REG_EX_LENGTH: length <= word[31:0];
                endcase
        end else if (busy) begin
            step <= step + 1;
            busy <= !last;
            if (loads) scratchpad[load_to + step] <= memory_read_data[7:0];
            if (computes) scratchpad[result + step] <= x > y ? x : y;
        end
endmodule
