"""Small programs for tests of the sanitizer: a load, a computation and a store.

They are correct or have one error.
"""

from __future__ import annotations

from isa.assembler import assemble
from isa.program import Program
from isa.sanitizer import sanitize

HEADER = """
.arch {"alignment":8,"isa":"v2","sram_banks":1,"sram_bytes":4096}
.memory 0x2000 commands 0x1000
.tensor ["x","input","int8",[64],0]
.tensor ["y","output","int8",[64],512]
"""
CHAIN = """
.source [3,"in","DMA","OP_DMA_READ",0,[]]
SET LD_DRAM_ADDRESS, 0
SET LD_BYTES, 64
OP_DMA_READ push.EX
.source [6,"relu","ACT","OP_ACT_RELU",1,[]]
SET EX_LENGTH, 64
SET EX_OUTPUT_ADDRESS, 64
OP_ACT_RELU pop.LD push.ST
.source [10,"out","DMA","OP_DMA_WRITE",2,[]]
SET ST_DRAM_ADDRESS, 512
SET ST_SRAM_ADDRESS, 64
SET ST_BYTES, 64
OP_DMA_WRITE pop.EX
"""
"""Words 2, 5 and 9: 64 bytes come in at 0, go through a ReLU to 64, and out."""


def program(body: str = CHAIN, *changes: tuple[str, str], header: str = HEADER) -> Program:
    """Return the program of ``body`` with texts replaced.

    Each old text must occur in it or in the header.
    """
    text = header + body + "OP_END\n"
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return assemble(text)


def findings(body: str = CHAIN, *changes: tuple[str, str], header: str = HEADER) -> list[str]:
    """The texts of the findings on such a program."""
    return [finding.text for finding in sanitize(program(body, *changes, header=header))]
