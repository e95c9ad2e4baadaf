// One program on a machine whose configuration is tied, with its memory behind the port and no flash: cycles on
// standard output, both memories as files. It reads dram.hex and sram.hex from the folder that it runs in.
module bench #(parameter BUS = 8, DRAM = 65536);
    reg  clk = 0, rst = 1;
    wire memory_valid, memory_write, interrupt, fault;
    wire [31:0] memory_address;
    wire [$clog2(BUS + 1)-1:0] memory_count;
    wire [8*BUS-1:0] memory_write_data, memory_read_data;
    reg  [7:0]  dram [0:DRAM-1];
    reg  [31:0] command_address, command_words;
    integer     dram_bytes, sram_bytes, limit, cycle = 0, lane;

    dla_machine machine(
        .clk(clk), .rst(rst), .command_address(command_address), .command_words(command_words),
        .memory_valid(memory_valid), .memory_write(memory_write), .memory_address(memory_address),
        .memory_count(memory_count), .memory_write_data(memory_write_data), .memory_read_data(memory_read_data),
        .lookup_ld_constant(1'b0), .lookup_st_constant(1'b0), .interrupt(interrupt), .fault(fault));

    always #5 clk = !clk;

    genvar place;
    generate for (place = 0; place < BUS; place = place + 1) begin: answer
        assign memory_read_data[8*place +: 8] = dram[memory_address + place];
    end endgenerate

    always @(posedge clk) if (!rst & memory_valid & memory_write)
        for (lane = 0; lane < memory_count; lane = lane + 1)
            dram[memory_address + lane] <= memory_write_data[8*lane +: 8];

    // Cycle 0 begins with the last rising edge that sees rst. At the falling edge all of a cycle is steady.
    always @(negedge clk) if (!rst) begin
        if (interrupt !== 0 | fault !== 0 | cycle == limit) begin
            $display("cycles %0d interrupt %b fault %b", cycle, interrupt, fault);
            $writememh("dram_after.hex", dram, 0, dram_bytes - 1);
            $writememh("sram_after.hex", machine.scratchpad.bytes, 0, sram_bytes - 1);
            $finish(0);
        end
        cycle = cycle + 1;
    end

    initial begin
        if (!$value$plusargs("command_address=%d", command_address) | !$value$plusargs("command_words=%d", command_words)
            | !$value$plusargs("dram_bytes=%d", dram_bytes) | !$value$plusargs("sram_bytes=%d", sram_bytes)
            | !$value$plusargs("limit=%d", limit)) $fatal;
        $readmemh("dram.hex", dram, 0, dram_bytes - 1);
        #1 $readmemh("sram.hex", machine.scratchpad.bytes, 0, sram_bytes - 1);  // behind the model's own zeros
        repeat (2) @(posedge clk);
        #1 rst = 0;
    end
endmodule
