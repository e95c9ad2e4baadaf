"""Instruction families, one per file; ``ALL`` maps each mnemonic of the project to its instruction."""

from __future__ import annotations

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
from isa.packing import with_words

_FAMILIES = (control, dma, convolution, matmul, requant, pooling, elementwise, lookup, movement, pairs, rows)
ALL: dict[str, Instruction] = {
    item.mnemonic: with_words(item, packed.PACKED[item.mnemonic]) if item.mnemonic in packed.PACKED else item
    for family in _FAMILIES
    for item in family.INSTRUCTIONS
}
