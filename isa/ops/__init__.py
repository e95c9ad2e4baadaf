"""Instruction families, one a file; ``ALL`` is every instruction of the project, by mnemonic."""

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
    pairs,
    pooling,
    requant,
    rows,
    wide,
)

_FAMILIES = (control, dma, convolution, matmul, requant, pooling, elementwise, wide, lookup, movement, pairs, rows)
ALL: dict[str, Instruction] = {item.mnemonic: item for family in _FAMILIES for item in family.INSTRUCTIONS}
