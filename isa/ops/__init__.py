"""Instruction families, one per file.

``ALL`` maps each mnemonic of the project to its instruction.
"""

from isa.instruction import Instruction
from isa.ops import (
    control,
    convolution,
    dma,
    elementwise,
    lookup,
    matmul,
    movement,
    packed,
    pairs,
    pooling,
    requant,
    rows,
)
from isa.packing import add_packing

_FAMILIES = (
    control,
    dma,
    convolution,
    matmul,
    requant,
    pooling,
    elementwise,
    lookup,
    movement,
    pairs,
    rows,
)
ALL: dict[str, Instruction] = {
    item.mnemonic: add_packing(item, packed.PACKED[item.mnemonic])
    if item.mnemonic in packed.PACKED
    else item
    for family in _FAMILIES
    for item in family.INSTRUCTIONS
}
