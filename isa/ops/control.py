"""Control instructions ``OP_SYNC`` and ``OP_END``.

``OP_SYNC`` moves tokens on the unit named in its word; ``OP_END`` waits until all units are
drained.
"""

from isa.instruction import Instruction
from isa.registers import Field

OP_SYNC = Instruction(
    mnemonic="OP_SYNC", opcode=0x02, unit=None, kind="ISSUE",
    description="Pops and pushes tokens on the named unit and does nothing else. On EX it passes "
                "tokens between ST and LD.",
    fields=(Field("unit", 50, 2, description="0 LD, 1 EX, 2 ST", defined=3),),
)  # fmt: skip
OP_END = Instruction(
    mnemonic="OP_END", opcode=0x03, unit=None, kind="ISSUE",
    description="Ends the program: completes when all units are idle and raises the interrupt.",
)  # fmt: skip
INSTRUCTIONS = (OP_SYNC, OP_END)
