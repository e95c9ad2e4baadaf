.program "largest"
.arch {"pe":{"ic":1,"oc":1,"ow":1},"post_lanes":1,"sram_bytes":4096,"sram_banks":2,"isa":"v2"}
.memory 512 commands 256
.tensor ["a","input","int8",[40],0]
.tensor ["b","input","int8",[40],64]
.tensor ["y","output","int8",[40],128]
    SET LD_BYTES, 40
OP_DMA_READ
    SET LD_DRAM_ADDRESS, 64
    SET LD_SRAM_ADDRESS, 64
OP_DMA_READ push.EX
    SET EX_OPERAND_ADDRESS, 64
    SET EX_OUTPUT_ADDRESS, 128
    SET EX_LENGTH, 40
OP_C_MAX pop.LD push.ST
    SET ST_SRAM_ADDRESS, 128
    SET ST_DRAM_ADDRESS, 128
    SET ST_BYTES, 40
OP_DMA_WRITE pop.EX
OP_END
