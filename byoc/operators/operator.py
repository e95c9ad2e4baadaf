"""The operator: one class a family, everything about it; an instance is one operation of the family on the accelerator.

All numbers live in the accelerator's int8 domain: uint8 ONNX tensors have been moved by 128 (values and zero points),
except where a family says that it computes with the original zero point and an ``offset``. Tensors are dense, CHW or
row-major, without a batch dimension: a batch or a group becomes several operations on slices.

A node that breaks a rule of its family is refused: what was found are facts as data, sentences are made last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, ParamSpec

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators.definition import Definition
from byoc.operators.forms import Kinds, Reading
from byoc.operators.nest import (
    Box,
    Dim,
    Nest,
    Piece,
    Span,
    Tile,
    Transfer,
    band_rows,
    layout,
    matrix_transfer,
    plane_transfer,
    spread_of,
    strided_transfers,
)
from byoc.operators.sharding import Along, Sharding
from byoc.options import Target
from isa.arch import Arch
from isa.instruction import Instruction
from isa.ops.convolution import ACCUMULATE, parallel_groups
from isa.ops.lookup import TABLE_BYTES
from isa.ops.packed import Product, mapped, product_bytes, product_places
from isa.ops.requant import ChannelScales
from isa.packing import Shape, blocked, depthwise_places

Asked = ParamSpec("Asked")


@dataclass(frozen=True)
class Finding:
    """What is wrong with the actual ``values``; ``text`` is the format string of the sentence that tells them."""

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text.format(**self.values)


def finding(text: str, **values: Any) -> Finding:
    """A finding of ``values``, told by ``text``."""
    return Finding(text, values)


@dataclass(frozen=True)
class Rule(Generic[Asked]):
    """One rule: ``check`` returns None where it holds, else what it found.

    ``text`` states the rule once: it ends the message that the user reads and is the row of the support table.
    """

    name: str
    text: str
    check: Callable[Asked, Finding | None]

    def __call__(self, *arguments: Asked.args, **options: Asked.kwargs) -> Finding | None:
        """What breaks the rule, or None."""
        return self.check(*arguments, **options)


def rule(text: str) -> Callable[[Callable[Asked, Finding | None]], Rule[Asked]]:
    """Makes a check the rule that ``text`` states, named as the function is."""
    return lambda check: Rule(check.__name__, text, check)


@dataclass(frozen=True)
class Refusal:
    """Why ``node`` does not run on the accelerator: the name of the rule that it misses, and what was found.

    ``finding`` has the actual values. ``rule_text`` states the rule where the finding does not say it all. ``str`` is
    the line that the user reads.
    """

    node: str
    rule: str
    finding: Finding
    rule_text: str = ""

    @property
    def values(self) -> Mapping[str, Any]:
        return self.finding.values

    def __str__(self) -> str:
        return f"{self.finding}; {self.rule_text}" if self.rule_text else str(self.finding)


Requirement = Rule[[Graph, Node]]
Constraint = Rule[[Any, Target]]
Registers = Mapping[str, int]
MANY = 1 << 16
Tables = Literal["none", "one", "each"]
"""In how many tables results are looked up last: none, one for all, or one an output channel."""
Second = Literal["alike", "columns", "rows"]
"""How the second operand is cut: as the first one is, or, as weights are, by output channels: its columns or rows."""
MappingType = Literal["one-to-one", "one-to-many", "many-to-many", "reorganise", "shuffle"]
"""How elements of operands become elements of results (Li et al., CoCoPIE XGen, 2022, section 2.2.2)."""
_TYPES: tuple[MappingType, ...] = ("one-to-one", "one-to-many", "many-to-many", "reorganise", "shuffle")
_FUSED: Mapping[MappingType, tuple[MappingType | None, ...]] = {
    "one-to-one": _TYPES,
    "one-to-many": ("one-to-many", "one-to-many", None, "one-to-many", "one-to-many"),
    "many-to-many": ("many-to-many", "many-to-many", None, "many-to-many", "many-to-many"),
    "reorganise": ("reorganise", "one-to-many", "many-to-many", "reorganise", "reorganise"),
    "shuffle": ("shuffle", "one-to-many", "many-to-many", "reorganise", "shuffle"),
}
COMBINED: Mapping[tuple[MappingType, MappingType], MappingType | None] = {
    (first, second): fused for second, row in _FUSED.items() for first, fused in zip(_TYPES, row, strict=True)
}
"""What two operators, (first, second), are as one: table 1 of the same source; None: it says that they do not pay."""
NUMBERS = frozenset(
    {"EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_OFFSET"}
    | {"EX_CLAMP_LOW", "EX_CLAMP_HIGH"}
    | {f"EX_{kind}_{operand}" for kind in ("SCALE", "SHIFT") for operand in "ABY"}
    | {"relu"}
)
"""Registers and fields that the cycle formulas do not read: layers that differ in nothing else are tiled alike."""


class Lying(NamedTuple):
    """How an operand lies on a machine of words: ``images`` of so many channels of so many positions, in atoms.

    An atom has ``atom`` channels of a position. In their order elements are channels of positions, or ``by_row``
    positions of channels, as a matrix has them. ``begin``: bytes of int8 elements before it in its value.
    """

    channels: int
    positions: int
    atom: int
    by_row: bool = False
    images: int = 1
    begin: int = 0

    @property
    def surfaces(self) -> int:
        """Atoms of a position."""
        return -(-self.channels // self.atom)

    @property
    def elements(self) -> int:
        return self.images * self.channels * self.positions

    @property
    def stored(self) -> tuple[int, int, int]:
        """The shape in memory: surfaces of all images, positions, bytes of an atom."""
        return self.images * self.surfaces, self.positions, self.atom

    @property
    def canonical(self) -> Lying:
        """The same bytes in one way of saying it: images of whole atoms are channels, what has one order no other."""
        found = self
        if found.by_row and 1 in (found.channels, found.positions):
            found = found._replace(by_row=False)
        if not found.by_row and found.images > 1 and found.channels % found.atom == 0:
            found = found._replace(channels=found.images * found.channels, images=1)
        return found

    @property
    def image_bytes(self) -> int:
        """Bytes of one image of int8 elements."""
        return self.surfaces * self.positions * self.atom

    def before(self, offset: int) -> int:
        """Bytes before element ``offset``, with which an image begins, or an atom of one."""
        image, rest = divmod(offset, max(self.channels * self.positions, 1))
        atoms = 0 if self.by_row else rest // max(self.positions, 1) // self.atom
        return self.begin + image * self.image_bytes + atoms * self.positions * self.atom

    def places(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        """The byte of each of some elements, counted in their order, int8."""
        image, rest = np.divmod(elements, self.channels * self.positions)
        if self.by_row:
            position, channel = np.divmod(rest, self.channels)
        else:
            channel, position = np.divmod(rest, self.positions)
        inside = channel // self.atom * (self.positions * self.atom) + position * self.atom + channel % self.atom
        found: NDArray[np.int64] = self.begin + image * self.image_bytes + inside
        return found


Layouts = tuple[Lying, ...]
"""The layouts of an operation's inputs, and of its output last."""


def dense(shape: tuple[int, ...], begin: int = 0) -> Lying:
    """Return the layout of a dense tensor: the first dimension as channels, in atoms of one."""
    return Lying(prod(shape[:1]), prod(shape[1:]), 1, begin=begin)


@dataclass(frozen=True)
class Operand:
    """A dense slice of a value: ``offset`` elements from its start, then ``shape`` elements row-major.

    ``lying``: on a machine of words it is whole channels of all positions, and begins with an atom.
    """

    value: str
    shape: tuple[int, ...]
    offset: int = 0
    dtype: Literal["int8", "int32"] = "int8"
    lying: Lying | None = None

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
    def layout(self) -> Lying:
        """Its layout: dense unless another is assigned."""
        return self.lying or dense(self.shape, self.offset)

    @property
    def start(self) -> int:
        """Where it begins in its value, in bytes."""
        return self.layout.begin * self.element_bytes

    def part(self, source: Operand, offset: int) -> Operand:
        """The slice from element ``offset`` on that has the elements of ``source``, which lies as that does."""
        lying = source.laid(begin=self.layout.before(offset))
        return Operand(self.value, source.shape, self.offset + offset, source.dtype, lying)

    def laid(self, **changes: Any) -> Lying | None:
        """Return the layout that is assigned, with changes; None where none is."""
        return self.lying and self.lying._replace(**changes)


class Repeat(NamedTuple):
    """Along what an operand repeats: it has one of all ``channels``, or one of all ``rows``, of its loop nest."""

    channels: bool = False
    rows: bool = False


_NO_REPEAT = Repeat()


class Traits(NamedTuple):
    """What is so of all operations of a class, whatever their shapes.

    ``flat``: they work on elements without channels, so that tiles are lengths. ``banded``: tiles are rows, by the
    published schedule, too, which cuts channels else. ``in_place``: a tile's result takes the place of its (only)
    operand in the scratchpad. ``whole_planes``: it takes channels one right after the other, so that a tile of several
    has all of their rows.
    ``along_elements``: its lanes run along elements, whatever their channels, so that channel tiles are of any size.
    ``mapping``: where results come from; "shuffle": nothing is known, and bands do not pass. ``moves``: they hand on
    what others compute, and are alone not worth a call of the accelerator. ``constants_name``: what weights are called
    where they do not fit. ``mnemonic``: the instruction of all, where it is not the first that the family needs.
    ``gathers``: each command reads one of several operands. ``dense_result``: in banked memory its results have no
    padding. ``by_position``: there every position is computed by itself, from channels that are a row.
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
    """An operation as a loop nest, and how its operands are cut along it.

    ``second`` of two operands, and how each of them ``repeats``; empty: none does. ``dims``, where all it does is to
    copy or to fill by strides: its dimensions, those of channels and rows first. ``single``: a command computes one
    output channel of a tile, not all of them. ``images``: any equal slices of operands and result along their first
    dimension belong together alone. ``depths``: the input channels of each operand, where they differ. ``planes``: the
    instruction finds channels in planes that may lie apart. ``kernel``: rows and columns of inputs that an output
    reads.
    """

    nest: Nest
    second: Second = "alike"
    repeats: tuple[Repeat, ...] = ()
    dims: tuple[Dim, ...] = ()
    single: bool = False
    images: bool = False
    depths: tuple[int, ...] = ()
    planes: bool = False
    kernel: tuple[int, int] = (1, 1)


class Whole(NamedTuple):
    """Whether the first operand and the result lie in the scratchpad as a whole, not as the tile alone.

    ``operands``: the same of each. ``planes``: bytes from plane to plane of each operand, then of the result, where
    they are in windows of bands.
    """

    operand: bool
    result: bool
    operands: tuple[bool, ...] = ()
    planes: tuple[int, ...] = ()


class Settings(NamedTuple):
    """Registers, in the order in which they are written, and fields that are the same for all tiles of a layer."""

    registers: Registers
    fields: Mapping[str, int]


class Part(NamedTuple):
    """One command of a tile: its registers, and by how many bytes its address registers are moved on.

    ``operand``: the number of the one at EX_INPUT_ADDRESS; ``fields`` that it has of its own.
    """

    registers: Registers
    moved: Mapping[str, int]
    operand: int = 0
    fields: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class ChannelConstants:
    """What a layer loads beside its operands: a record (int32 bias, scale) for every output channel, weights.

    ``bias`` and ``scale`` None: no records. ``weights``: int8, output channels first, or None. ``by_row``: in memory
    they lie row by row with the channels of a tile side by side, (K, channels), instead of channel by channel. What has
    one ``shared`` key in a program is the same, and is there once.
    """

    bias: NDArray[np.int32] | None = None
    scale: ChannelScales | None = None
    weights: NDArray[np.int8] | None = None
    by_row: bool = False
    shared: Hashable = None


@dataclass(frozen=True, kw_only=True)
class PlainChannels:
    """What the loop nest of a geometry counts in ideal memory: the channels of its ``plain`` geometry, itself.

    ``atom``: channels that are counted as one; ``piece``: bytes that records are padded to; ``apart``: whether a band
    of a whole tensor lies apart in memory; ``mapping``: the value of that field of the instruction.
    """

    apart: ClassVar[bool] = False

    plain: Geometry
    atom: int = 1
    piece: int = 8
    mapping: int = 0

    def channels(self, atoms: Span, count: int) -> Span:
        """The channels, of ``count``, that some atoms hold."""
        return Span(atoms.start * self.atom, min(atoms.stop * self.atom, count))

    def outputs_in(self, atoms: Span) -> Span:
        """The output channels that some atoms hold."""
        return self.channels(atoms, self.plain.nest.channels)

    def outputs(self, atoms: int) -> int:
        """The output channels that so many atoms hold at most."""
        return min(atoms * self.atom, self.plain.nest.channels)

    def record_bytes(self, atoms: int) -> int:
        """Bytes of the channel records of so many atoms, with padding."""
        return -(-self.outputs(atoms) * self.plain.record_bytes // self.piece) * self.piece

    def weight_bytes(self, atoms: int, depth: int) -> int:
        """Bytes of the weights of so many atoms of output channels, of ``depth`` atoms of input channels, 0: of all."""
        plain = self.plain
        return atoms * (plain.weight_bytes * depth // plain.nest.input_channels if depth else plain.weight_bytes)

    def weights(self, constants: ChannelConstants, part: tuple[Span, Span | None]) -> NDArray[np.generic]:
        """The weights of some atoms of output channels, and of input channels, in the order of their use."""
        weights = self.cut(constants, part)
        return weights.T if constants.by_row else weights

    def cut(self, constants: ChannelConstants, part: tuple[Span, Span | None]) -> NDArray[np.generic]:
        """The same, output channels first."""
        assert constants.weights is not None
        outputs, depth = self.outputs_in(part[0]), part[1]
        weights = constants.weights[slice(*outputs)]
        return weights if depth is None else weights[:, slice(*self.channels(depth, self.plain.nest.input_channels))]

    def parallel_channels(self, nest: Nest, arch: Arch) -> int:
        """Output channels of ``nest`` that the array computes at once."""
        array = arch.pe
        if nest.grouped and nest.group_inputs > 1:
            return nest.group_outputs * parallel_groups(nest.groups, nest.group_inputs, nest.group_outputs, arch)
        return array.ic * array.oc if nest.grouped else array.oc

    def tile_registers(self, tile: Tile) -> Registers:
        """What an instruction is told of a tile."""
        return self.plain.operator.tile_registers(self.plain, tile)


@dataclass(frozen=True, kw_only=True)
class Packing(PlainChannels):
    """What the loop nest of a geometry counts in banked memory: atoms of the channels of its ``plain`` geometry.

    ``machine``: its array and memory and nothing else of it. ``kernel``: rows and columns of its window.
    ``second_bytes``: of a second operand in the weights' place, those of an atom of outputs.
    """

    apart: ClassVar[bool] = True

    machine: Arch
    kernel: tuple[int, int] = (1, 1)
    second_bytes: int = 0

    def product(self, outputs: int, depth: int) -> Product:
        """So many output channels as the array sees them, of ``depth`` input channels, 0: of all."""
        nest = self.plain.nest
        groups = max(outputs // nest.group_outputs, 1) if nest.grouped else 1
        inputs = min(depth, nest.group_inputs) if depth else nest.group_inputs
        shape = Shape(groups, outputs // groups, inputs, *self.kernel)
        return mapped(Product(shape, 1, 1), self.mapping)

    @property
    def depthwise(self) -> bool:
        """Whether weights lie atom by atom."""
        instruction = self.plain.instruction
        return instruction is not None and instruction.mnemonic == "OP_DEPTH_CONV"

    def weight_bytes(self, atoms: int, depth: int) -> int:
        """Bytes of the weights of so many atoms of output channels, of ``depth`` atoms of input channels, 0: of all."""
        outputs, plain = self.outputs(atoms), self.plain
        if plain.second != "alike":
            return atoms * self.second_bytes
        if not plain.weight_bytes or not plain.record_bytes:
            return outputs * plain.weight_bytes
        if self.depthwise:
            return outputs * prod(self.kernel)
        return product_bytes(self.product(outputs, depth * self.atom), self.machine)

    def weights(self, constants: ChannelConstants, part: tuple[Span, Span | None]) -> NDArray[np.generic]:
        """The weights of some atoms of output channels, and of input channels, in the order of their use."""
        weights = self.cut(constants, part)
        if not self.plain.record_bytes or self.plain.nest.grouped or self.kernel != (1, 1):
            inputs_first = False
        else:  # a copy of a matrix (inputs, outputs) in the other order would read every byte from another cache line
            inputs_first = weights.strides[0] < weights.strides[1]
        ordered = weights.swapaxes(0, 1) if inputs_first else weights
        plain = np.ascontiguousarray(ordered).reshape(-1).view(np.uint8)
        if not self.plain.record_bytes:
            return plain
        outputs = self.outputs_in(part[0]).size
        if self.depthwise:
            return blocked(plain, depthwise_places(outputs, prod(self.kernel), self.atom))
        inputs = 0 if part[1] is None else weights.shape[1]
        return blocked(plain, product_places(self.product(outputs, inputs), self.machine, inputs_first=inputs_first))

    def parallel_channels(self, nest: Nest, arch: Arch) -> int:
        """Atoms of output channels of ``nest`` that the array computes at once."""
        return 1 if nest.grouped else max(1, arch.pe.oc // self.atom)

    def tile_registers(self, tile: Tile) -> Registers:
        """What an instruction is told of a tile: channels, or a length in bytes."""
        plain, operator = self.plain, self.plain.operator
        if plain.flat:
            registers = operator.tile_registers(plain, tile)
            if "EX_OUTPUT_CHANNELS" not in registers:
                return registers
            return {**registers, "EX_OUTPUT_CHANNELS": self.atom, "EX_LENGTH": tile.output.rows.size}
        output, source, nest = tile.output, tile.input, plain.nest
        made = Box(self.channels(output.channels, nest.channels), output.rows, output.columns)
        read = Box(self.channels(source.channels, nest.input_channels), source.rows, source.columns)
        registers = operator.tile_registers(plain, Tile(made, read, tile.pad_top, tile.first, tile.last))
        instruction = plain.instruction
        if instruction is not None and instruction.mnemonic == "OP_LUT" and made.channels.size == 1:
            return {**registers, "EX_LENGTH": registers["EX_LENGTH"] * self.atom}  # one table is for dense bytes
        return registers


@dataclass(frozen=True)
class Geometry:
    """All of a layer that tilings and their costs can depend on: layers of equal geometry share them.

    Searches and estimates are given this and nothing else, so that nothing can be forgotten in it. ``operator`` is the
    family's class; ``instruction`` None: a copy, which has no computation. ``registers`` and ``fields`` are those of
    the layer less its ``numbers``. ``weight_bytes`` and ``record_bytes`` are those of one output channel,
    ``input_bytes`` and ``output_bytes`` those of one element. ``single``: a command computes one output channel of a
    tile, not all. ``inputs`` counts the operands that are cut alike; a ``second`` that is not takes the weights' place.
    ``tables``: those in which results are looked up last, which lie apart from the other constants.
    ``repeats`` says how each of those operands repeats; empty: none does. ``dims`` are the dimensions of a copy by
    strides, in elements, those of its channels and rows first; empty: it is none. ``depths``: the input channels of
    each operand, where they differ. ``planes`` as in :class:`Loops`. ``packing``: on a machine of words, where channels
    of the nest are atoms.
    """

    operator: type[Operator]
    instruction: Instruction | None
    nest: Nest
    inputs: int
    weight_bytes: int
    record_bytes: int
    input_bytes: int
    output_bytes: int
    single: bool
    registers: tuple[tuple[str, int], ...]
    fields: tuple[tuple[str, int], ...]
    second: Second = "alike"
    tables: Tables = "none"
    repeats: tuple[Repeat, ...] = ()
    dims: tuple[Dim, ...] = ()
    depths: tuple[int, ...] = ()
    planes: bool = False
    packing: Packing | None = None

    def tile_registers(self, tile: Tile) -> Registers:
        """The registers that a tile's shape sets (addresses and planes apart)."""
        return self.channels.tile_registers(tile)

    @cached_property
    def channels(self) -> PlainChannels:
        """What the loop nest counts as a channel."""
        return self.packing or PlainChannels(plain=self)

    def tile_dims(self, channels: int, rows: int) -> tuple[Dim, ...]:
        """The dimensions of a copy in a tile of so many channels and rows."""
        first, second, *inner = self.dims
        return (first._replace(size=channels), second._replace(size=rows), *inner)

    @property
    def flat(self) -> bool:
        """Whether the layer works on elements without channels, so that tiles are lengths."""
        return self.operator.traits.flat and not self.nest.grouped

    def parallel_channels(self, arch: Arch) -> int:
        """Output channels that the array computes at once: channel tiles are multiples of it where they can be."""
        one = self.single or self.operator.traits.along_elements
        return 1 if one else self.channels.parallel_channels(self.nest, arch)

    def parallel_inputs(self, arch: Arch) -> int:
        """Input channels that the array sums at once: cuts of them are multiples of it where they can be."""
        return max(1, arch.pe.ic // self.channels.atom)

    @property
    def in_place(self) -> bool:
        """Whether a tile's result takes the place of its (only) operand in the scratchpad."""
        return self.operator.traits.in_place

    @property
    def splits_depth(self) -> bool:
        """Return whether tiles may split the input channels and accumulate partial sums.

        A tile of a grouped convolution keeps all input channels of its groups (``grouped``, or ``whole`` where groups
        share atoms).
        """
        nest = self.nest
        able = self.weight_bytes and not self.single and not (nest.grouped or nest.whole) and self.second == "alike"
        return bool(able) and self.instruction is not None and ACCUMULATE in self.instruction.fields

    @property
    def has_constants(self) -> bool:
        """Whether there are weights or channel records to load."""
        return bool(self.weight_bytes or self.record_bytes)

    def weights_offset(self, channels: int) -> int:
        """Where the weights begin behind the channel records of a packed constant tile."""
        return self.channels.record_bytes(channels)

    def constant_bytes(self, channels: int, depth: int = 0) -> int:
        """Bytes of the packed constants of ``channels`` output channels: records, padding, weights.

        Those of ``depth`` input channels, 0: of all.
        """
        return self.channels.record_bytes(channels) + self.channels.weight_bytes(channels, depth)

    def table_bytes(self, channels: int) -> int:
        return {"none": 0, "one": TABLE_BYTES, "each": TABLE_BYTES * self.channels.outputs(channels)}[self.tables]

    def repeat(self, index: int) -> Repeat:
        """How operand number ``index`` repeats."""
        return self.repeats[index] if self.repeats else _NO_REPEAT

    def input_tiles(self, index: int, parts: int, bands: int) -> int:
        """Different tiles of an operand where the result has ``parts`` channel tiles and ``bands`` bands of rows."""
        repeat = self.repeat(index)
        return (parts if self.nest.grouped and not repeat.channels else 1) * (1 if repeat.rows else bands)

    def input_tile_bytes(self, channels: int, rows: int, index: int = 0, depth: int = 0) -> int:
        """Bytes of the input box of a tile of so many output channels and rows, where it is largest.

        The tile is of ``depth`` input channels, 0: of all that its output channels read.
        """
        nest, repeat = self.nest, self.repeat(index)
        if self.depths:
            depth = self.depths[index]
        depth = 1 if repeat.channels else depth or -(-channels // nest.group_outputs) * nest.group_inputs
        return depth * (1 if repeat.rows else band_rows(nest, rows)) * nest.input_columns * self.input_bytes

    def output_tile_bytes(self, channels: int, rows: int) -> int:
        return channels * rows * self.nest.columns * self.output_bytes

    def sums_bytes(self, channels: int, rows: int) -> int:
        """Bytes of the int32 sums of a tile."""
        return 4 * self.channels.atom * channels * rows * self.nest.columns

    def weight_transfer(self, channels: Span) -> Transfer:
        """What these output channels need of a second operand in the weights' place."""
        if self.second == "rows":
            return Transfer(channels.start * self.weight_bytes, channels.size * self.weight_bytes)
        depth = Span(0, self.nest.input_channels)
        return matrix_transfer(Box(channels, depth, Span(0, 1)), self.nest.channels, self.input_bytes)

    def input_box(self, tile: Tile, index: int = 0) -> Box:
        """What a tile reads of operand number ``index``."""
        box, repeat, one = tile.input, self.repeat(index), Span(0, 1)
        channels = Span(0, self.depths[index]) if self.depths else box.channels
        return Box(one if repeat.channels else channels, one if repeat.rows else box.rows, box.columns)

    def input_transfer(self, tile: Tile, index: int = 0) -> Transfer:
        """The tile's input box as a transfer from the dense operand."""
        nest, repeat = self.nest, self.repeat(index)
        rows = 1 if repeat.rows else nest.input_rows
        return self._transfer(
            self.input_box(tile, index), nest.input_channels, rows, nest.input_columns, self.input_bytes
        )

    def output_transfer(self, tile: Tile, plane: int = 0) -> Transfer:
        """The tile's output box as a transfer to the dense result; ``plane`` as in :func:`plane_transfer`."""
        nest = self.nest
        return self._transfer(tile.output, nest.channels, nest.rows, nest.columns, self.output_bytes, plane)

    def transfers(
        self, tile: Tile, operand: int | None, plane: int = 0, *, whole: bool = False
    ) -> tuple[Transfer, ...]:
        """What brings the tile's part of an operand, by its number, into a tile buffer.

        Or, None, what takes the tile's result out of one, or out of the ``whole`` tensor there, whose channels lie
        ``plane`` bytes apart. The first transfer begins at the lowest byte. Of a source by strides come what the tile
        reads, and what little lies between.
        """
        if not self.dims:
            return (self.output_transfer(tile, plane) if operand is None else self.input_transfer(tile, operand),)
        box, side = tile.output, 2 if operand is None else 1
        offset = box.channels.start * self.dims[0][side] + box.rows.start * self.dims[1][side]
        spread = 1 if operand is None else spread_of(self.dims)
        loops = self.tile_dims(box.channels.size, box.rows.size)
        return strided_transfers(offset, layout([(dim.size, abs(dim[side])) for dim in loops], spread), spread, whole)

    def _transfer(self, box: Box, channels: int, rows: int, columns: int, element: int, plane: int = 0) -> Transfer:
        if self.nest.matrix:
            return matrix_transfer(box, channels, element)
        return plane_transfer(box, rows, columns, element, plane)


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator(Reading):
    """One operator family; an instance is one operation: a layer ``name`` of account ``kind`` from ``onnx_nodes``.

    A family declares: ``family``, its name; ``forms``, how models write it; ``requirements`` on graph and node, which
    depend on nothing else; where all hold, ``parse`` makes the record that both ``constraints`` (which may depend on
    the target) and ``operations`` work on. ``instructions`` are those that the target must have for the family to be
    asked at all. ``arity``: least and most operands of its nodes. ``inner_types`` are canonical types of nodes that no
    ONNX operator names. Families of packages outside the project are subclasses as the project's own are.
    """

    family: ClassVar[str] = ""
    inner_types: ClassVar[tuple[str, ...]] = ()
    requirements: ClassVar[tuple[Requirement, ...]] = ()
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    instructions: ClassVar[tuple[str, ...]] = ()
    arity: ClassVar[tuple[int, int]] = (1, MANY)
    traits: ClassVar[Traits] = Traits()
    kinds: ClassVar[Kinds] = {}
    """What the attributes of its canonical nodes are; they have no others."""
    numbers: ClassVar[frozenset[str]] = NUMBERS
    """Registers and fields that cycle formulas do not read; the estimates of its layers do not get them."""

    name: str
    kind: str
    inputs: tuple[Operand, ...]
    output: Operand
    onnx_nodes: tuple[str, ...] = ()
    tables: NDArray[np.int8] | None = None
    """In which its results are looked up last: (1, 256), or one an output channel; None: they are not."""
    constant_operands: Mapping[str, NDArray[np.int8]] = field(default_factory=dict)
    """The operands that are constant, by the names of their values, in the accelerator's int8 domain."""
    offsets: tuple[int, ...] = ()
    """Of what only places its inputs, unchanged: the first element in the output of each."""

    @property
    def slices(self) -> tuple[tuple[Operand, Operand], ...]:
        """Of what needs no instruction as long as buffers can be shared: each input with the slice of the output that
        is its elements. Of all else nothing."""
        pairs = zip(self.inputs, self.offsets, strict=False)
        return tuple((source, self.output.part(source, offset)) for source, offset in pairs)

    # From a canonical node to operations. ---------------------------------------------------------------------------

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """What of the shapes that requirements rely on does not hold in a graph that anybody may have written."""
        return None

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Any:
        """The record of a node that meets every requirement."""
        raise NotImplementedError(f"{cls.__name__} does not say how its nodes are read")

    @classmethod
    def operations(cls, record: Any, target: Target) -> tuple[Operator, ...]:
        """The operations of a record that meets every constraint; one that is an operation, or several, is that."""
        return record if isinstance(record, tuple) else (record,)

    @classmethod
    def definition(cls, graph: Graph, node: Node) -> Definition | None:
        """What the instruction computes, where ONNX Runtime computes the node in float and to other bits; else None."""
        return None

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """How several machines share a node that meets every requirement, each some of its channels, or rows.

        In a few words why they cannot, unless the family says otherwise.
        """
        return "its channels are not independent" if along == "channels" else "its rows depend on all rows"

    def rows_read(self) -> NDArray[np.bool_] | None:
        """Which rows of every plane of its (only) input it reads; None where it reads every element of its inputs."""
        loops = self.loops
        dims = loops.dims
        if not dims or not self.inputs:
            return loops.nest.rows_read
        read = np.zeros(self.inputs[0].elements, np.bool_)
        read[Piece(-Piece(0, 0, dims).lowest, 0, dims).positions()[0]] = True
        return None if read.all() else read

    # Layouts in banked memory. -------------------------------------------------------------------------------------

    @property
    def elementwise(self) -> bool:
        """Whether it computes elements one by one, so that operands and result have one layout, whichever that is."""
        return self.traits.flat and not self.loops.nest.grouped

    @property
    def omits_padding(self) -> bool:
        """Whether its result has no padding behind a last channel that leaves a part of an atom."""
        return self.traits.dense_result and self.output.elements % self.output.layout.atom > 0

    @property
    def takes_any_layout(self) -> bool:
        """Whether operands may have any layout: those of element-wise operators and of movements."""
        return self.traits.moves or self.elementwise

    def layouts(self, atom: int) -> Layouts | Finding:
        """Return the layouts that operands and result need in banked memory, or why there are none.

        Only what does not take any layout is asked. By default operands are channels of positions, or matrices, as the
        loop nest has them. ``atom``: bytes of an atom.
        """
        loops, nest = self.loops, self.loops.nest
        if loops.second != "alike" or loops.dims or loops.single:
            return finding("operands of {mnemonic} are not worked out on words", mnemonic=self.mnemonic)
        source = Lying(nest.input_channels, nest.input_rows * nest.input_columns, atom, nest.matrix)
        result = Lying(nest.channels, nest.rows * nest.columns, atom, nest.matrix)
        return (*[source] * len(self.inputs), result)

    def on_channels(self) -> Operator:
        """Return the operation that computes the same on operands in :meth:`layouts`: by default itself."""
        return self

    # From an operation to commands. ---------------------------------------------------------------------------------

    @property
    def mnemonic(self) -> str | None:
        """The instruction that computes it; None where there is nothing to compute."""
        return self.traits.mnemonic or (self.instructions[0] if self.instructions else None)

    @property
    def loops(self) -> Loops:
        """Its loop nest, and how it is cut: by default one channel of as many rows as there are elements."""
        elements = self.output.elements
        return Loops(Nest(1, elements, 1, 1, elements, 1))

    def settings(self, arch: Arch) -> Settings:
        """Registers and fields that are the same for all tiles."""
        return Settings({}, {})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """The registers that a tile's shape sets (addresses and planes apart)."""
        return {"EX_LENGTH": tile.output.elements}

    def commands(self, geometry: Geometry, tile: Tile, registers: Registers, whole: Whole) -> tuple[Part, ...]:
        """The commands that compute a tile; ``registers`` are those of layer and tile, planes included."""
        return (Part(registers, {}),)

    def constants(self) -> ChannelConstants | None:
        """Channel records and weights, or None."""
        return None

    def finer(self) -> tuple[Operator, ...]:
        """Operations that make the same results from smaller tiles, for want of memory; none where there is no way."""
        return ()


def missing_instruction(mnemonic: str, isa: str) -> Finding:
    """That the machine's ISA lacks an instruction."""
    return finding("{mnemonic} is not in ISA {isa}; choose an ISA that has it (dla isa)", mnemonic=mnemonic, isa=isa)


def open_shape(graph: Graph, node: Node) -> Refusal | None:
    """That a tensor of an integer node has a shape that depends on the data; None where none has."""
    for name in (*node.inputs, *node.outputs) if node.integer else ():
        if graph.values[name].open:
            return Refusal(node.name, "static_shape", finding("the shape of '{name}' depends on the data", name=name))
    return None


def unknown_operator(node: Node) -> Refusal:
    """That no family knows a node's operator."""
    return Refusal(node.name, "known", finding("operator {operator} has no pattern", operator=node.op_type))
