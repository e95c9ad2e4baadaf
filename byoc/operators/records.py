"""Records of one operation: operands, traits, loops, settings, commands and constants."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Value
from byoc.operators.nest import LoopNest
from byoc.operators.pieces import Dim
from isa.layout import Layout, dense
from isa.ops.requant import ChannelScales

Registers = Mapping[str, int]
MANY = 1 << 16
Tables = Literal["none", "one", "each"]
"""Look-up tables applied to results: none, one for all channels, or one per output channel."""
Second = Literal["alike", "columns", "rows"]
"""Tiling of the second operand.

It is tiled like the first, or by output channels like weights, along columns or rows.
"""
MappingType = Literal["one-to-one", "one-to-many", "many-to-many", "reorganise", "shuffle"]
"""Mapping from operand elements to result elements.

Source: Li et al., CoCoPIE XGen, 2022, section 2.2.2.
"""
_TYPES: tuple[MappingType, ...] = (
    "one-to-one",
    "one-to-many",
    "many-to-many",
    "reorganise",
    "shuffle",
)
_FUSED: Mapping[MappingType, tuple[MappingType | None, ...]] = {
    "one-to-one": _TYPES,
    "one-to-many": ("one-to-many", "one-to-many", None, "one-to-many", "one-to-many"),
    "many-to-many": ("many-to-many", "many-to-many", None, "many-to-many", "many-to-many"),
    "reorganise": ("reorganise", "one-to-many", "many-to-many", "reorganise", "reorganise"),
    "shuffle": ("shuffle", "one-to-many", "many-to-many", "reorganise", "shuffle"),
}
COMBINED: Mapping[tuple[MappingType, MappingType], MappingType | None] = {
    (first, second): fused
    for second, row in _FUSED.items()
    for first, fused in zip(_TYPES, row, strict=True)
}
"""Mapping type of two fused operators (first, second); None: fusion is unprofitable.

Source: table 1 of Li et al., CoCoPIE XGen, 2022.
"""
NUMBERS = frozenset(
    {"EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_OFFSET"}
    | {"EX_CLAMP_LOW", "EX_CLAMP_HIGH"}
    | {f"EX_{kind}_{operand}" for kind in ("SCALE", "SHIFT") for operand in "ABY"}
    | {"relu"}
)
"""Registers and fields that cycle formulas do not read.

Layers that differ only in them have the same tiling.
"""


@dataclass(frozen=True)
class Operand:
    """Operand of an operation: a dense slice of a tensor.

    The slice has ``shape`` elements in row-major order from element ``offset``. ``assigned``: its
    layout in banked memory, which has whole channels of all positions and begins with an atom.
    """

    value: str
    shape: tuple[int, ...]
    offset: int = 0
    dtype: Literal["int8", "int32"] = "int8"
    assigned: Layout | None = None

    @classmethod
    def from_value(cls, value: Value, shape: tuple[int, ...]) -> Operand:
        """Return an operand that is a whole tensor, viewed with the given shape."""
        return cls(value.name, shape, dtype="int32" if value.dtype == "int32" else "int8")

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element: 1 for int8, 4 for int32."""
        return 1 if self.dtype == "int8" else 4

    @property
    def nbytes(self) -> int:
        return self.layout.images * self.layout.image_bytes * self.element_bytes

    @cached_property
    def layout(self) -> Layout:
        """Layout of the operand: dense unless another is assigned."""
        return self.assigned or dense(self.shape, self.offset)

    @property
    def start(self) -> int:
        """Position of the operand's first byte in its tensor."""
        return self.layout.begin * self.element_bytes

    def part(self, source: Operand, offset: int) -> Operand:
        """Return a slice of the operand with the shape and layout of ``source``.

        The slice begins at element ``offset``.
        """
        layout = source.change_layout(begin=self.layout.count_bytes_before(offset))
        return Operand(self.value, source.shape, self.offset + offset, source.dtype, layout)

    def change_layout(self, **changes: Any) -> Layout | None:
        """Return the operand's assigned layout with changed fields, or None if it has none."""
        return self.assigned and self.assigned._replace(**changes)


class Repeat(NamedTuple):
    """Flags for the loop nest dimensions along which an operand is broadcast."""

    channels: bool = False
    rows: bool = False


NO_REPEAT = Repeat()


class Traits(NamedTuple):
    """Properties of all operations of a class, for all shapes.

    ``flat``: element-wise without channels, so tiles are lengths. ``banded``: tiles are rows in the
    published schedule too, which otherwise cuts channels. ``in_place``: a tile's result overwrites
    its only operand in the scratchpad. ``whole_planes``: the instruction needs contiguous channels,
    so a tile of several channels has all their rows. ``along_elements``: lanes run along elements
    across channels, so channel tiles may have any size. ``mapping``: mapping type of operands to
    results; "shuffle": unknown, and bands cannot cross the operation. ``moves``: the operation only
    moves elements and alone does not justify a region. ``constants_name``: name of the weights in a
    message that they do not fit. ``mnemonic``: the instruction, if not the first of
    ``instructions``. ``gathers``: each command reads one of several operands. ``dense_result``:
    results in banked memory have no padding. ``by_position``: positions are computed independently
    in banked memory, each from a row of channels.
    """

    flat: bool = False
    banded: bool = False
    in_place: bool = False
    whole_planes: bool = False
    along_elements: bool = False
    mapping: MappingType = "shuffle"
    moves: bool = False
    constants_name: str = "weights"
    mnemonic: str = ""
    gathers: bool = False
    dense_result: bool = False
    by_position: bool = False


class Loops(NamedTuple):
    """Loop nest of an operation, and how its operands are tiled.

    ``second``: how the second operand is tiled. ``repeats``: broadcast of each operand; empty:
    none. ``dims``: dimensions of a strided copy or fill, those of channels and rows first.
    ``single``: a command computes one output channel of a tile instead of all. ``images``: slices
    of operands and result along their first dimension are independent. ``depths``: input channels
    of each operand, if they differ. ``planes``: the instruction takes channels as planes that need
    not be contiguous. ``kernel``: rows and columns of inputs that an output reads.
    """

    nest: LoopNest
    second: Second = "alike"
    repeats: tuple[Repeat, ...] = ()
    dims: tuple[Dim, ...] = ()
    single: bool = False
    images: bool = False
    depths: tuple[int, ...] = ()
    planes: bool = False
    kernel: tuple[int, int] = (1, 1)


class Whole(NamedTuple):
    """Flags for operands and results that are whole tensors in the scratchpad, not tiles.

    ``operand`` is the first operand, ``result`` the result. ``operands``: the same for each
    operand. ``planes``: bytes from plane to plane of each operand, then of the result, if they are
    in windows of bands.
    """

    operand: bool
    result: bool
    operands: tuple[bool, ...] = ()
    planes: tuple[int, ...] = ()


class Settings(NamedTuple):
    """Register and field values that are the same for all tiles of a layer.

    Registers are in the order of their writes.
    """

    registers: Registers
    fields: Mapping[str, int]


class CommandPart(NamedTuple):
    """One command of a tile, with its registers and the offsets added to its addresses.

    Offsets are in bytes. ``operand``: number of the operand at EX_INPUT_ADDRESS. ``fields``: fields
    of this command alone.
    """

    registers: Registers
    moved: Mapping[str, int]
    operand: int = 0
    fields: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class ChannelConstants:
    """Constants that a layer loads: channel records and weights.

    A channel record is the int32 bias and the scale of one output channel. ``bias`` and ``scale``
    None: no records. ``weights``: int8, output channels first, or None. ``by_row``: a tile's
    weights are stored as (K, channels) instead of channel by channel. ``shared``: equal keys mean
    equal constants, which a program stores once.
    """

    bias: NDArray[np.int32] | None = None
    scale: ChannelScales | None = None
    weights: NDArray[np.int8] | None = None
    by_row: bool = False
    shared: Hashable = None
