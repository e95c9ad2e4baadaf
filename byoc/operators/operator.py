"""Base class of operators: one class per family.

An instance is one operation of the family on the accelerator.

All numbers are in the accelerator's int8 domain: uint8 ONNX tensors have been shifted by 128
(values and zero points), unless a family states that it computes with the original zero point and
an ``offset``. Tensors are dense, CHW or row-major, without a batch dimension: a batch or a group
becomes several operations on slices.

A node that breaks a rule of its family is rejected. Findings are stored as data and formatted as
text last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators.definition import Definition
from byoc.operators.forms import Kinds, Reading
from byoc.operators.nest import (
    NO_PADDING,
    Box,
    Dim,
    LoopNest,
    Piece,
    RowTransfer,
    Span,
    Tile,
    band_rows,
    find_padded_runs,
    layout,
    make_strided_transfers,
    matrix_transfer,
    plane_transfer,
    spread_of,
)
from byoc.operators.records import (
    MANY,
    NO_REPEAT,
    NUMBERS,
    ChannelConstants,
    CommandPart,
    Loops,
    Operand,
    Registers,
    Repeat,
    Second,
    Settings,
    Tables,
    Traits,
    Whole,
)
from byoc.operators.rules import Constraint, Finding, Requirement, finding
from byoc.operators.rules import rule as rule  # plug-ins written for 0.1 import it from here
from byoc.operators.sharding import Along, Sharding
from byoc.options import Target
from isa.arch import Arch
from isa.instruction import Instruction
from isa.layout import Layout
from isa.ops.convolution import parallel_groups
from isa.ops.lookup import TABLE_BYTES
from isa.ops.products import ArrayProduct, product_blocks, product_bytes, use_mapping
from isa.ops.windows import ACCUMULATE
from isa.packing import WeightShape, block_weights, depthwise_places

Layouts = tuple[Layout, ...]
"""Layouts of an operation's inputs, then of its output."""


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
        """Return the channels, of ``count``, in a span of atoms."""
        return Span(atoms.start * self.atom, min(atoms.stop * self.atom, count))

    def outputs_in(self, atoms: Span) -> Span:
        """Return the output channels in a span of atoms."""
        return self.channels(atoms, self.plain.nest.channels)

    def outputs(self, atoms: int) -> int:
        """Return the maximum number of output channels in ``atoms`` atoms."""
        return min(atoms * self.atom, self.plain.nest.channels)

    def record_bytes(self, atoms: int) -> int:
        """Return the bytes of the channel records of ``atoms`` atoms, with padding."""
        return -(-self.outputs(atoms) * self.plain.record_bytes // self.piece) * self.piece

    def weight_bytes(self, atoms: int, depth: int) -> int:
        """Return the bytes of the weights of ``atoms`` output atoms and ``depth`` input atoms, 0
        for all.
        """
        plain = self.plain
        return atoms * (
            plain.weight_bytes * depth // plain.nest.input_channels if depth else plain.weight_bytes
        )

    def weights(
        self, constants: ChannelConstants, part: tuple[Span, Span | None]
    ) -> NDArray[np.generic]:
        """Return the weights of a span of output atoms and of input atoms, in the order of their
        use.
        """
        weights = self.cut(constants, part)
        return weights.T if constants.by_row else weights

    def cut(
        self, constants: ChannelConstants, part: tuple[Span, Span | None]
    ) -> NDArray[np.generic]:
        """Return the weights of a span of output atoms and of input atoms, output channels
        first.
        """
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
        """Return the output channels of ``nest`` that the array computes in parallel."""
        array = arch.pe
        if nest.grouped and nest.group_inputs > 1:
            return nest.group_outputs * parallel_groups(
                nest.groups, nest.group_inputs, nest.group_outputs, arch
            )
        return array.ic * array.oc if nest.grouped else array.oc

    def tile_registers(self, tile: Tile) -> Registers:
        """Return the registers that a tile's shape sets."""
        return self.plain.operator.tile_registers(self.plain, tile)


@dataclass(frozen=True, kw_only=True)
class Packing(PlainChannels):
    """Unit in which the loop nest of a geometry counts channels in banked memory: atoms of
    channels.

    The channels are those of the ``plain`` geometry. ``machine`` has only array and memory of the
    machine. ``kernel``: rows and columns of the window. ``second_bytes``: bytes per output atom of
    a second operand in place of weights.
    """

    apart: ClassVar[bool] = True

    machine: Arch
    kernel: tuple[int, int] = (1, 1)
    second_bytes: int = 0

    def product(self, outputs: int, depth: int) -> ArrayProduct:
        """Return the matrix product of ``outputs`` output channels and ``depth`` input channels,
        0 for all.
        """
        nest = self.plain.nest
        groups = max(outputs // nest.group_outputs, 1) if nest.grouped else 1
        inputs = min(depth, nest.group_inputs) if depth else nest.group_inputs
        shape = WeightShape(groups, outputs // groups, inputs, *self.kernel)
        return use_mapping(ArrayProduct(shape, 1, 1), self.mapping)

    @property
    def depthwise(self) -> bool:
        """True if weights are stored atom by atom."""
        instruction = self.plain.instruction
        return instruction is not None and instruction.mnemonic == "OP_DEPTH_CONV"

    def weight_bytes(self, atoms: int, depth: int) -> int:
        """Return the bytes of the weights of ``atoms`` output atoms and ``depth`` input atoms, 0
        for all.
        """
        outputs = self.outputs(atoms)
        plain = self.plain
        if plain.second != "alike":
            return atoms * self.second_bytes
        if not plain.weight_bytes or not plain.record_bytes:
            return outputs * plain.weight_bytes
        if self.depthwise:
            return outputs * prod(self.kernel)
        found = self._product_bytes.get((outputs, depth))
        if found is None:
            found = product_bytes(self.product(outputs, depth * self.atom), self.machine)
            self._product_bytes[outputs, depth] = found
        return found

    @cached_property
    def _product_bytes(self) -> dict[tuple[int, int], int]:
        """Bytes of weights by output channels and input atoms, as far as computed."""
        return {}

    def weights(
        self, constants: ChannelConstants, part: tuple[Span, Span | None]
    ) -> NDArray[np.generic]:
        """Return the weights of a span of output atoms and of input atoms, in the order of their
        use.
        """
        weights = self.cut(constants, part).view(np.uint8)
        if not self.plain.record_bytes:
            return weights.reshape(-1)
        outputs = self.outputs_in(part[0]).size
        if self.depthwise:
            return block_weights(weights, depthwise_places(outputs, prod(self.kernel), self.atom))
        product = self.product(outputs, 0 if part[1] is None else weights.shape[1])
        return product_blocks(product, self.machine, weights.reshape(product.weights))

    def parallel_channels(self, nest: LoopNest, arch: Arch) -> int:
        """Return the atoms of output channels of ``nest`` that the array computes in parallel."""
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
        output = tile.output
        source = tile.input
        nest = plain.nest
        made = Box(self.channels(output.channels, nest.channels), output.rows, output.columns)
        read = Box(self.channels(source.channels, nest.input_channels), source.rows, source.columns)
        registers = operator.tile_registers(
            plain, Tile(made, read, tile.pad_top, tile.first, tile.last)
        )
        instruction = plain.instruction
        if instruction is not None and instruction.mnemonic == "OP_LUT" and made.channels.size == 1:
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

    operator: type[Operator]
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
        """Return the registers that a tile's shape sets, without addresses and planes."""
        return self.channels.tile_registers(tile)

    @cached_property
    def channels(self) -> PlainChannels:
        """Unit in which the loop nest counts channels."""
        return self.packing or PlainChannels(plain=self)

    def tile_dims(self, channels: int, rows: int) -> tuple[Dim, ...]:
        """Return the dimensions of a copy in a tile of ``channels`` channels and ``rows`` rows."""
        first, second, *inner = self.dims
        return (first._replace(size=channels), second._replace(size=rows), *inner)

    @property
    def flat(self) -> bool:
        """True if the layer is element-wise without channels, so that tiles are lengths."""
        return self.operator.traits.flat and not self.nest.grouped

    def parallel_channels(self, arch: Arch) -> int:
        """Return the output channels computed in parallel.

        Channel tiles are multiples of it if possible.
        """
        one = self.single or self.operator.traits.along_elements
        return 1 if one else self.channels.parallel_channels(self.nest, arch)

    def parallel_inputs(self, arch: Arch) -> int:
        """Return the input channels summed in parallel.

        Cuts of them are multiples of it if possible.
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
        """Return the bytes of the packed constants of ``channels`` output channels: records,
        padding, weights.

        Weights are those of ``depth`` input channels, 0 for all.
        """
        return self.channels.record_bytes(channels) + self.channels.weight_bytes(channels, depth)

    def table_bytes(self, channels: int) -> int:
        return {
            "none": 0,
            "one": TABLE_BYTES,
            "each": TABLE_BYTES * self.channels.outputs(channels),
        }[self.tables]

    def repeat(self, index: int) -> Repeat:
        """Return the broadcast of operand number ``index``."""
        return self.repeats[index] if self.repeats else NO_REPEAT

    def input_tiles(self, index: int, parts: int, bands: int) -> int:
        """Return the number of different tiles of an operand for ``parts`` channel tiles and
        ``bands`` bands.
        """
        repeat = self.repeat(index)
        return (parts if self.nest.grouped and not repeat.channels else 1) * (
            1 if repeat.rows else bands
        )

    def input_tile_bytes(self, channels: int, rows: int, index: int = 0, depth: int = 0) -> int:
        """Return the bytes of the largest input box of a tile of ``channels`` output channels and
        ``rows`` rows.

        The tile has ``depth`` input channels; 0 means all that its output channels read.
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
        """Return the bytes of the int32 sums of a tile."""
        return 4 * self.channels.atom * channels * rows * self.nest.columns

    def weight_transfer(self, channels: Span) -> RowTransfer:
        """Return the part of a second operand, in place of weights, for these output channels."""
        if self.second == "rows":
            return RowTransfer(
                channels.start * self.weight_bytes, channels.size * self.weight_bytes
            )
        depth = Span(0, self.nest.input_channels)
        return matrix_transfer(
            Box(channels, depth, Span(0, 1)), self.nest.channels, self.input_bytes
        )

    def input_box(self, tile: Tile, index: int = 0) -> Box:
        """Return the box that a tile reads of operand number ``index``."""
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
        """Return the tile's output box as a transfer to the dense result; ``plane`` as in
        :func:`plane_transfer`.
        """
        nest = self.nest
        return self._transfer(
            tile.output, nest.channels, nest.rows, nest.columns, self.output_bytes, plane
        )

    def transfers(
        self, tile: Tile, operand: int | None, plane: int = 0, *, whole: bool = False
    ) -> tuple[RowTransfer, ...]:
        """Return the transfers that load the tile's part of an operand, or store its result if
        ``operand`` is None.

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator(Reading):
    """Operator family.

    An instance is one operation: layer ``name`` of account ``kind``, made from ``onnx_nodes``.

    A family declares: ``family``, its name; ``forms``, the ways models write it; ``requirements``,
    rules on graph and node alone. If all hold, ``parse`` makes the record that ``constraints``
    (rules that may depend on the target) and ``operations`` use. ``instructions``: the target must
    have all of them. ``arity``: minimum and maximum number of operands of its nodes.
    ``inner_types``: canonical types of nodes without an ONNX operator. Families of external
    packages are subclasses like the project's own.
    """

    family: ClassVar[str] = ""
    inner_types: ClassVar[tuple[str, ...]] = ()
    requirements: ClassVar[tuple[Requirement, ...]] = ()
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    instructions: ClassVar[tuple[str, ...]] = ()
    arity: ClassVar[tuple[int, int]] = (1, MANY)
    traits: ClassVar[Traits] = Traits()
    kinds: ClassVar[Kinds] = {}
    """Kinds of all attributes of its canonical nodes."""
    numbers: ClassVar[frozenset[str]] = NUMBERS
    """Registers and fields that cycle formulas do not read and that estimates do not get."""

    name: str
    kind: str
    inputs: tuple[Operand, ...]
    output: Operand
    onnx_nodes: tuple[str, ...] = ()
    tables: NDArray[np.int8] | None = None
    """Look-up tables applied to the results: shape (1, 256) or (output channels, 256); None: no
    look-up.
    """
    constant_operands: Mapping[str, NDArray[np.int8]] = field(default_factory=dict)
    """Constant operands by tensor name, in the accelerator's int8 domain."""
    offsets: tuple[int, ...] = ()
    """First output element of each input, if the operation only places its inputs unchanged."""

    @property
    def slices(self) -> tuple[tuple[Operand, Operand], ...]:
        """Pairs of each input and the equal slice of the output, if the operation only places its
        inputs.

        Such an operation needs no instruction if buffers can be shared. Other operations have no
        pairs.
        """
        pairs = zip(self.inputs, self.offsets, strict=False)
        return tuple((source, self.output.part(source, offset)) for source, offset in pairs)

    # From a canonical node to operations.
    # ---------------------------------------------------------------------------

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return the shape assumption of the requirements that the graph violates, or None.

        It may be malformed.
        """
        return None

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Any:
        """Return the record of a node that meets every requirement."""
        raise NotImplementedError(f"{cls.__name__} does not say how its nodes are read")

    @classmethod
    def operations(cls, record: Any, target: Target) -> tuple[Operator, ...]:
        """Return the operations of a record that meets every constraint.

        By default the record itself, as a tuple.
        """
        return record if isinstance(record, tuple) else (record,)

    @classmethod
    def definition(cls, graph: Graph, node: Node) -> Definition | None:
        """Return a definition of the instruction's result if ONNX Runtime computes the node in
        float with other bits.

        Return None otherwise.
        """
        return None

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """Return how several machines share a node that meets every requirement, along channels or
        rows.

        If they cannot, return the reason in a few words, which is the default.
        """
        return (
            "its channels are not independent"
            if along == "channels"
            else "its rows depend on all rows"
        )

    def rows_read(self) -> NDArray[np.bool_] | None:
        """Return a mask of the rows that each plane of the only input reads; None if all
        elements are read.
        """
        loops = self.loops
        dims = loops.dims
        if not dims or not self.inputs:
            return loops.nest.rows_read
        read = np.zeros(self.inputs[0].elements, np.bool_)
        read[Piece(-Piece(0, 0, dims).lowest, 0, dims).positions()[0]] = True
        return None if read.all() else read

    # Layouts in banked memory.
    # -------------------------------------------------------------------------------------

    @property
    def elementwise(self) -> bool:
        """True if the operation is element-wise, so that operands and result share one layout of
        any kind.
        """
        return self.traits.flat and not self.loops.nest.grouped

    @property
    def omits_padding(self) -> bool:
        """True if the result has no padding after a last channel that does not fill an atom."""
        return self.traits.dense_result and self.output.elements % self.output.layout.atom > 0

    @property
    def takes_any_layout(self) -> bool:
        """True if operands may have any layout, as in element-wise operators and movements."""
        return self.traits.moves or self.elementwise

    def layouts(self, atom: int) -> Layouts | Finding:
        """Return the layouts that operands and result need in banked memory, or why there are none.

        Not called for operations that take any layout. By default operands are channels of
        positions, or matrices, as in the loop nest. ``atom``: bytes per atom.
        """
        loops = self.loops
        nest = self.loops.nest
        if loops.second != "alike" or loops.dims or loops.single:
            return finding(
                "operands of {mnemonic} are not worked out on words", mnemonic=self.mnemonic
            )
        source = Layout(
            nest.input_channels, nest.input_rows * nest.input_columns, atom, nest.matrix
        )
        result = Layout(nest.channels, nest.rows * nest.columns, atom, nest.matrix)
        return (*[source] * len(self.inputs), result)

    def on_channels(self) -> Operator:
        """Return an equivalent operation on operands in :meth:`layouts`; by default itself."""
        return self

    # From an operation to commands.
    # ---------------------------------------------------------------------------------

    @property
    def mnemonic(self) -> str | None:
        """Instruction that computes the operation; None if there is nothing to compute."""
        return self.traits.mnemonic or (self.instructions[0] if self.instructions else None)

    @property
    def loops(self) -> Loops:
        """Loop nest and tiling of operands; by default one channel with one row per element."""
        elements = self.output.elements
        return Loops(LoopNest(1, elements, 1, 1, elements, 1))

    def settings(self, arch: Arch) -> Settings:
        """Return the registers and fields that are the same for all tiles."""
        return Settings({}, {})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the registers that a tile's shape sets, without addresses and planes."""
        return {"EX_LENGTH": tile.output.elements}

    def commands(
        self, geometry: Geometry, tile: Tile, registers: Registers, whole: Whole
    ) -> tuple[CommandPart, ...]:
        """Return the commands of a tile; ``registers`` has the registers of layer and tile, with
        planes.
        """
        return (CommandPart(registers, {}),)

    def constants(self) -> ChannelConstants | None:
        """Return the channel records and weights, or None."""
        return None

    def finer(self) -> tuple[Operator, ...]:
        """Return equivalent operations with smaller tiles, to fit in memory.

        Empty if there are none.
        """
        return ()
