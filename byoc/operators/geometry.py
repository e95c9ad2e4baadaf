"""Geometry of one operation: loop nest, operands in tiles, and units of its channels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from byoc.operators.nest import (
    Box,
    LoopNest,
    RowTransfer,
    Span,
    Tile,
    band_rows,
    matrix_transfer,
    plane_transfer,
)
from byoc.operators.pieces import (
    NO_PADDING,
    Dim,
    find_padded_runs,
    layout,
    make_strided_transfers,
    spread_of,
)
from byoc.operators.records import (
    NO_REPEAT,
    ChannelConstants,
    Registers,
    Repeat,
    Second,
    Tables,
    Traits,
)
from isa.arch import Arch
from isa.instruction import Instruction
from isa.ops.convolution import parallel_groups
from isa.ops.lookup import TABLE_BYTES
from isa.ops.products import ArrayProduct, product_blocks, product_bytes, use_mapping
from isa.ops.windows import ACCUMULATE
from isa.packing import WeightShape, block_weights, depthwise_places


class TiledFamily(Protocol):
    """Methods and attributes of an operator family that its tile geometries use."""

    traits: ClassVar[Traits]
    numbers: ClassVar[frozenset[str]]

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the hardware registers that depend on a tile's shape."""
        ...


@dataclass(frozen=True, kw_only=True)
class PlainChannels:
    """Unit in which the loop nest of a geometry counts channels in ideal memory: single channels.

    ``plain``: the geometry itself. ``atom``: channels counted as one. ``piece``: records are padded
    to multiples of this many bytes. ``apart``: whether a band of a whole tensor is scattered in
    memory. ``mapping``: value of the instruction's mapping field.
    """

    apart: ClassVar[bool] = False

    plain: Geometry
    atom: int = 1
    piece: int = 8
    mapping: int = 0

    def channels(self, atoms: Span, count: int) -> Span:
        """Return the range of channels in a range of atoms, limited to ``count`` channels."""
        return Span(atoms.start * self.atom, min(atoms.stop * self.atom, count))

    def outputs_in(self, atoms: Span) -> Span:
        """Return the range of output channels in a range of atoms."""
        return self.channels(atoms, self.plain.nest.channels)

    def outputs(self, atoms: int) -> int:
        """Return the maximum number of output channels in ``atoms`` atoms."""
        return min(atoms * self.atom, self.plain.nest.channels)

    def record_bytes(self, atoms: int) -> int:
        """Return the size in bytes of the channel records of ``atoms`` atoms, with padding."""
        return -(-self.outputs(atoms) * self.plain.record_bytes // self.piece) * self.piece

    def weight_bytes(self, atoms: int, depth: int) -> int:
        """Return the size in bytes of the weights of ``atoms`` output and ``depth`` input atoms.

        A ``depth`` of 0 means all input atoms.
        """
        plain = self.plain
        return atoms * (
            plain.weight_bytes * depth // plain.nest.input_channels if depth else plain.weight_bytes
        )

    def weights(
        self, constants: ChannelConstants, part: tuple[Span, Span | None]
    ) -> NDArray[np.generic]:
        """Return weights for ranges of output and input atoms, in the order of their use."""
        weights = self.cut(constants, part)
        return weights.T if constants.by_row else weights

    def cut(
        self, constants: ChannelConstants, part: tuple[Span, Span | None]
    ) -> NDArray[np.generic]:
        """Return weights for ranges of output and input atoms, with output channels first."""
        assert constants.weights is not None
        outputs = self.outputs_in(part[0])
        depth = part[1]
        weights = constants.weights[slice(*outputs)]
        return (
            weights
            if depth is None
            else weights[:, slice(*self.channels(depth, self.plain.nest.input_channels))]
        )

    def parallel_channels(self, nest: LoopNest, arch: Arch) -> int:
        """Return how many output channels of ``nest`` the array computes in parallel."""
        array = arch.pe
        if nest.grouped and nest.group_inputs > 1:
            return nest.group_outputs * parallel_groups(
                nest.groups, nest.group_inputs, nest.group_outputs, arch
            )
        return array.ic * array.oc if nest.grouped else array.oc

    def tile_registers(self, tile: Tile) -> Registers:
        """Return the hardware registers that depend on a tile's shape."""
        return self.plain.operator.tile_registers(self.plain, tile)


@dataclass(frozen=True, kw_only=True)
class Packing(PlainChannels):
    """Unit in which a geometry counts channels in banked memory: atoms of channels.

    The channels are those of the ``plain`` geometry. ``machine`` has only array and memory of the
    machine. ``kernel``: rows and columns of the window. ``second_bytes``: bytes per output atom of
    a second operand in place of weights.
    """

    apart: ClassVar[bool] = True

    machine: Arch
    kernel: tuple[int, int] = (1, 1)
    second_bytes: int = 0

    def product(self, outputs: int, depth: int) -> ArrayProduct:
        """Return an ArrayProduct of ``outputs`` output channels and ``depth`` input channels.

        A ``depth`` of 0 means all input channels.
        """
        nest = self.plain.nest
        groups = max(outputs // nest.group_outputs, 1) if nest.grouped else 1
        inputs = min(depth, nest.group_inputs) if depth else nest.group_inputs
        shape = WeightShape(groups, outputs // groups, inputs, *self.kernel)
        return use_mapping(ArrayProduct(shape, 1, 1), self.mapping)

    @property
    def depthwise(self) -> bool:
        """True if the depthwise instruction is used, for which weights are stored atom by atom."""
        instruction = self.plain.instruction
        return instruction is not None and instruction.mnemonic == "OP_DEPTH_CONV"

    def weight_bytes(self, atoms: int, depth: int) -> int:
        """Return the size in bytes of the weights of ``atoms`` output and ``depth`` input atoms.

        A ``depth`` of 0 means all input atoms.
        """
        found = self._weight_bytes.get((atoms, depth))
        if found is None:
            found = self._weight_bytes[atoms, depth] = self._count_weight_bytes(atoms, depth)
        return found

    @cached_property
    def _weight_bytes(self) -> dict[tuple[int, int], int]:
        """Cache of the bytes of weights, by number of output and of input atoms."""
        return {}

    def _count_weight_bytes(self, atoms: int, depth: int) -> int:
        outputs = self.outputs(atoms)
        plain = self.plain
        if plain.second != "alike":
            return atoms * self.second_bytes
        if not plain.weight_bytes or not plain.record_bytes:
            return outputs * plain.weight_bytes
        if self.depthwise:
            return outputs * prod(self.kernel)
        return product_bytes(self.product(outputs, depth * self.atom), self.machine)

    def weights(
        self, constants: ChannelConstants, part: tuple[Span, Span | None]
    ) -> NDArray[np.generic]:
        """Return weights for ranges of output and input atoms, in the order of their use."""
        weights = self.cut(constants, part).view(np.uint8)
        if not self.plain.record_bytes:
            return weights.reshape(-1)
        outputs = self.outputs_in(part[0]).size
        if self.depthwise:
            return block_weights(weights, depthwise_places(outputs, prod(self.kernel), self.atom))
        product = self.product(outputs, 0 if part[1] is None else weights.shape[1])
        return product_blocks(product, self.machine, weights.reshape(product.weights))

    def parallel_channels(self, nest: LoopNest, arch: Arch) -> int:
        """Return how many atoms of output channels of ``nest`` the array computes in parallel."""
        return 1 if nest.grouped else max(1, arch.pe.oc // self.atom)

    def tile_registers(self, tile: Tile) -> Registers:
        """Return the registers that a tile's shape sets, in channels, or as a length in bytes."""
        plain = self.plain
        operator = self.plain.operator
        if plain.flat:
            registers = operator.tile_registers(plain, tile)
            if "EX_OUTPUT_CHANNELS" not in registers:
                return registers
            return {
                **registers,
                "EX_OUTPUT_CHANNELS": self.atom,
                "EX_LENGTH": tile.output.rows.size,
            }
        (outputs, *made), (inputs, *read) = tile[:2]
        nest = plain.nest
        channels = self.channels(outputs, nest.channels)
        sources = self.channels(inputs, nest.input_channels)
        boxes = Box(channels, *made), Box(sources, *read)
        registers = operator.tile_registers(
            plain, Tile(*boxes, tile.pad_top, tile.first, tile.last)
        )
        instruction = plain.instruction
        if instruction is not None and instruction.mnemonic == "OP_LUT" and channels.size == 1:
            # one table: length in dense bytes
            return {**registers, "EX_LENGTH": registers["EX_LENGTH"] * self.atom}
        return registers


@dataclass(frozen=True)
class Geometry:
    """All properties of a layer that tilings and their costs depend on.

    Layers of equal geometry share them.

    Searches and estimates get only the geometry, so that no dependency can be missed.

    ``operator``: the family's class. ``instruction``: None for a copy, which computes nothing.
    ``registers`` and ``fields``: those of the layer without its ``numbers``. ``weight_bytes`` and
    ``record_bytes``: per output channel. ``input_bytes`` and ``output_bytes``: per element.
    ``single``: a command computes one output channel of a tile, not all. ``inputs``: number of
    operands tiled like the first; a ``second`` operand tiled otherwise takes the place of weights.
    ``tables``: look-up tables applied to results, loaded separately from other constants.
    ``repeats``: broadcast of each operand; empty: none. ``dims``: dimensions of a strided copy in
    elements, those of channels and rows first; empty: no copy. ``depths``: input channels of each
    operand, if they differ. ``planes``: as in :class:`Loops`. ``packing``: set in banked memory,
    where channels of the nest are atoms.
    """

    operator: type[TiledFamily]
    instruction: Instruction | None
    nest: LoopNest
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
        """Return the hardware registers that depend on a tile's shape.

        Addresses and planes are not included.
        """
        return self.channels.tile_registers(tile)

    @cached_property
    def channels(self) -> PlainChannels:
        """Unit in which the loop nest counts channels: single channels or atoms."""
        return self.packing or PlainChannels(plain=self)

    def tile_dims(self, channels: int, rows: int) -> tuple[Dim, ...]:
        """Return a strided copy's dimensions in a tile of ``channels`` and ``rows``."""
        first, second, *inner = self.dims
        return (first._replace(size=channels), second._replace(size=rows), *inner)

    @property
    def flat(self) -> bool:
        """True if the layer is element-wise without channels, so that tiles are lengths."""
        return self.operator.traits.flat and not self.nest.grouped

    def parallel_channels(self, arch: Arch) -> int:
        """Return the number of output channels that the array computes in parallel.

        Channel tiles are multiples of it if possible.
        """
        one = self.single or self.operator.traits.along_elements
        return 1 if one else self.channels.parallel_channels(self.nest, arch)

    def parallel_inputs(self, arch: Arch) -> int:
        """Return the number of input channels that the array sums in parallel.

        Tiles that divide the input channels have multiples of it if possible.
        """
        return max(1, arch.pe.ic // self.channels.atom)

    @property
    def in_place(self) -> bool:
        """True if a tile's result overwrites its only operand in the scratchpad."""
        return self.operator.traits.in_place

    @property
    def splits_depth(self) -> bool:
        """True if tiles may split the input channels and accumulate partial sums.

        A tile of a grouped convolution keeps all input channels of its groups (``grouped``, or
        ``channel_step`` if groups share atoms).
        """
        nest = self.nest
        undivided = nest.grouped or nest.channel_step
        able = self.weight_bytes and not self.single and not undivided and self.second == "alike"
        return bool(able) and self.instruction is not None and ACCUMULATE in self.instruction.fields

    @property
    def has_constants(self) -> bool:
        """True if there are weights or channel records to load."""
        return bool(self.weight_bytes or self.record_bytes)

    def weights_offset(self, channels: int) -> int:
        """Return the offset of the weights in a packed constant tile, after the channel records."""
        return self.channels.record_bytes(channels)

    def constant_bytes(self, channels: int, depth: int = 0) -> int:
        """Return the size in bytes of the packed constants of ``channels`` output channels.

        Constants are records, padding and weights. Weights are those of ``depth`` input channels, 0
        for all.
        """
        return self.channels.record_bytes(channels) + self.channels.weight_bytes(channels, depth)

    def table_bytes(self, channels: int) -> int:
        return {
            "none": 0,
            "one": TABLE_BYTES,
            "each": TABLE_BYTES * self.channels.outputs(channels),
        }[self.tables]

    def repeat(self, index: int) -> Repeat:
        """Return the dimensions along which operand number ``index`` is broadcast."""
        return self.repeats[index] if self.repeats else NO_REPEAT

    def input_tiles(self, index: int, parts: int, bands: int) -> int:
        """Return the number of different tiles of operand number ``index``.

        ``parts`` and ``bands`` count the channel tiles and the bands of the layer.
        """
        repeat = self.repeat(index)
        return (parts if self.nest.grouped and not repeat.channels else 1) * (
            1 if repeat.rows else bands
        )

    def input_tile_bytes(self, channels: int, rows: int, index: int = 0, depth: int = 0) -> int:
        """Return the size in bytes of the largest input box of a tile.

        The tile has ``channels`` output channels and ``rows`` rows. The tile has ``depth`` input
        channels; 0 means all that its output channels read.
        """
        nest = self.nest
        repeat = self.repeat(index)
        if self.depths:
            depth = self.depths[index]
        depth = (
            1
            if repeat.channels
            else depth or -(-channels // nest.group_outputs) * nest.group_inputs
        )
        return (
            depth
            * (1 if repeat.rows else band_rows(nest, rows))
            * nest.input_columns
            * self.input_bytes
        )

    def output_tile_bytes(self, channels: int, rows: int) -> int:
        return channels * rows * self.nest.columns * self.output_bytes

    def sums_bytes(self, channels: int, rows: int) -> int:
        """Return the size in bytes of a tile's int32 partial sums."""
        return 4 * self.channels.atom * channels * rows * self.nest.columns

    def weight_transfer(self, channels: Span) -> RowTransfer:
        """Return the transfer of a second operand that is used as weights."""
        if self.second == "rows":
            return RowTransfer(
                channels.start * self.weight_bytes, channels.size * self.weight_bytes
            )
        depth = Span(0, self.nest.input_channels)
        return matrix_transfer(
            Box(channels, depth, Span(0, 1)), self.nest.channels, self.input_bytes
        )

    def input_box(self, tile: Tile, index: int = 0) -> Box:
        """Return the box of operand number ``index`` that a tile reads."""
        box = tile.input
        repeat = self.repeat(index)
        one = Span(0, 1)
        channels = Span(0, self.depths[index]) if self.depths else box.channels
        return Box(
            one if repeat.channels else channels, one if repeat.rows else box.rows, box.columns
        )

    def input_transfer(self, tile: Tile, index: int = 0) -> RowTransfer:
        """Return the tile's input box as a transfer from the dense operand."""
        nest = self.nest
        repeat = self.repeat(index)
        rows = 1 if repeat.rows else nest.input_rows
        return self._transfer(
            self.input_box(tile, index),
            nest.input_channels,
            rows,
            nest.input_columns,
            self.input_bytes,
        )

    def output_transfer(self, tile: Tile, plane: int = 0) -> RowTransfer:
        """Return the tile's output box as a transfer to the dense result.

        ``plane`` as in :func:`plane_transfer`.
        """
        nest = self.nest
        return self._transfer(
            tile.output, nest.channels, nest.rows, nest.columns, self.output_bytes, plane
        )

    def transfers(
        self, tile: Tile, operand: int | None, plane: int = 0, *, whole: bool = False
    ) -> tuple[RowTransfer, ...]:
        """Return the transfers that load a tile's operand or store its result.

        The first transfer begins at the lowest byte. Strided sources also transfer the small gaps
        between elements.

        Args:
            tile: the tile.
            operand: number of the operand, or None for the result.
            plane: bytes between channels of the result in the scratchpad, 0 if dense.
            whole: whether the result is a whole tensor in the scratchpad.
        """
        if not self.dims:
            return (
                self.output_transfer(tile, plane)
                if operand is None
                else self.input_transfer(tile, operand),
            )
        box = tile.output
        side = 2 if operand is None else 1
        offset = box.channels.start * self.dims[0][side] + box.rows.start * self.dims[1][side]
        spread, runs = (
            (1, NO_PADDING)
            if operand is None
            else (spread_of(self.dims), find_padded_runs(self.dims))
        )
        loops = self.tile_dims(box.channels.size, box.rows.size)
        axes = layout([(dim.size, abs(dim[side])) for dim in loops], spread, runs)
        return make_strided_transfers(offset, axes, spread, runs, whole=whole)

    def _transfer(
        self, box: Box, channels: int, rows: int, columns: int, element: int, plane: int = 0
    ) -> RowTransfer:
        if self.nest.matrix:
            return matrix_transfer(box, channels, element)
        return plane_transfer(box, rows, columns, element, plane)
