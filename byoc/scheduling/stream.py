"""Streaming: turns a layer's tiles into loads, computations and stores.

The steps use tile buffers and resident tensors.

A step is a command before scratchpad planning: it names scratchpad operands by buffer and offset.
Constants are packed so that one transfer loads a whole tile's channel records and weights. Operands
that are constant tensors keep their layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.estimate.bus import MemoryBus
from byoc.estimate.constants import PIECE_ALIGNMENT
from byoc.operators.layer import OperatorLayer, align
from byoc.operators.nest import RowTransfer, Span, Tile
from byoc.operators.pieces import Dim
from byoc.operators.records import ChannelConstants, Whole
from byoc.options import NOTHING, Choices
from byoc.scheduling.lowering import Lowered, TensorStart
from byoc.scheduling.memplan import Request
from isa.arch import Arch
from isa.instruction import Instruction, Unit
from isa.ops.dma import OP_DMA_READ, OP_DMA_WRITE, Side, side_registers
from isa.ops.lookup import EX_TABLE_ADDRESS, LOOK_UP
from isa.ops.movement import DIMENSIONS, OP_PERMUTE
from isa.ops.requant import ChannelScales, pack_records
from isa.ops.windows import ACCUMULATE, EX_PARTIAL_ADDRESS, REQUANTISE

_Part = tuple[Span, Span | None]
"""Output channels, and the input channels that they read; None: all."""


class ConstantPool:
    """Packed constants of one program, in order of use.

    They begin at byte ``address`` of system memory. Values are read only when the image is made;
    most schedules that are tried need none. Without ``data``, constants get addresses but no
    values: the image is all zeros and takes no memory.
    """

    def __init__(self, address: int, arch: Arch, *, data: bool = True) -> None:
        self.address = address
        self.nbytes = 0
        self._arch = arch
        self.has_data = data
        self._pieces: list[tuple[int, Callable[[], NDArray[np.generic]]]] = []
        self._tensors: dict[str, int] = {}
        self._shared: dict[Hashable, dict[_Part, int]] = {}

    def packer(self, layer: OperatorLayer) -> Callable[[Span, Span | None], int]:
        """Return a function that packs a layer's constants for a span of channels.

        The function returns the address of the constants. Each span is packed once. The function's
        second argument is the span of input channels, None for all.
        """
        constants = layer.constants
        shared = None if constants is None else constants.shared
        packed: dict[_Part, int] = {} if shared is None else self._shared.setdefault(shared, {})
        records = cache(partial(_records, constants, self._arch))

        def pack(channels: Span, depth: Span | None) -> int:
            part = channels, depth
            if part not in packed:
                packed[part] = self._append(layer, part, records)
            return packed[part]

        return pack

    def table_packer(self, layer: OperatorLayer) -> Callable[[Span], int]:
        """Return a function that packs a layer's look-up tables for a span of channels.

        Each span is packed once.
        The function returns the address of the tables.
        """
        tables = layer.operation.tables
        geometry = layer.geometry
        packed: dict[Span, int] = {}

        def pack(channels: Span) -> int:
            if channels not in packed:
                start = self._begin(geometry.table_bytes(channels.size))
                if tables is not None and self.has_data:
                    own = geometry.channels.outputs_in(channels)
                    self._pieces.append((start, partial(tables.__getitem__, slice(*own))))
                packed[channels] = self.address + start
            return packed[channels]

        return pack

    def tensor(self, name: str, data: NDArray[np.int8]) -> int:
        """Return the address of a constant operand, packed once in the layout of ``data``."""
        if name not in self._tensors:
            start = self._begin(data.size)
            if self.has_data:
                self._pieces.append((start, lambda: data))
            self._tensors[name] = self.address + start
        return self._tensors[name]

    def _begin(self, nbytes: int) -> int:
        """Reserve ``nbytes`` bytes in the constant pool and return their offset."""
        start = align(self.nbytes, PIECE_ALIGNMENT)
        self.nbytes = start + nbytes
        return start

    def _append(
        self, layer: OperatorLayer, which: _Part, records: Callable[[], NDArray[np.uint8]]
    ) -> int:
        geometry = layer.geometry
        constants = layer.constants
        channels, depth = which
        start = self._begin(geometry.constant_bytes(channels.size, depth.size if depth else 0))
        if constants is not None and self.has_data:
            held = geometry.channels
            own = held.outputs_in(channels)
            width = held.plain.record_bytes
            self._pieces.append((start, lambda: records()[own.start * width : own.stop * width]))
            if constants.weights is not None:
                at = start + geometry.weights_offset(channels.size)
                self._pieces.append((at, partial(held.weights, constants, which)))
        return self.address + start

    def image(self) -> NDArray[np.uint8]:
        """Return the contents of the constant pool, with zeros in the gaps."""
        if not self.has_data:
            return np.broadcast_to(np.uint8(0), (self.nbytes,))
        data = np.zeros(self.nbytes, dtype=np.uint8)
        for start, make in self._pieces:
            content = np.ascontiguousarray(make()).reshape(-1).view(np.uint8)
            data[start : start + content.size] = content
        return data


def _records(constants: ChannelConstants | None, arch: Arch) -> NDArray[np.uint8]:
    """Pack a layer's channel records, each with a scale even if one serves all channels.

    The result is empty if the layer has no records.
    """
    if constants is None or constants.bias is None or constants.scale is None:
        return np.zeros(0, np.uint8)
    bias = constants.bias.astype(np.int32)
    scale = constants.scale
    rounded, exact = (
        np.ascontiguousarray(np.broadcast_to(one, bias.shape))
        for one in (scale.rounded, scale.exact)
    )
    return np.frombuffer(
        pack_records(bias, ChannelScales(rounded, exact, scale.once), arch), np.uint8
    )


class Pointer(NamedTuple):
    """Byte ``offset`` of scratchpad buffer number ``buffer``."""

    buffer: int
    offset: int = 0

    def move_by(self, offset: int) -> Pointer:
        """Return a scratchpad pointer ``offset`` bytes after this one."""
        return Pointer(self.buffer, self.offset + offset)


class StepSource(NamedTuple):
    """Layer, operation and tile that a command step belongs to, for program provenance."""

    layer: str
    kind: str
    operation: str
    tile: int
    onnx_nodes: tuple[str, ...]


class ComputedTile(NamedTuple):
    """Tile that a command computes.

    ``transfers``: the parts of all operands and, last, of the result. If empty, they follow from
    the tile.
    """

    layer: OperatorLayer
    tile: Tile
    transfers: tuple[RowTransfer, ...] = ()


class CommandStep(NamedTuple):
    """Command whose scratchpad addresses are not planned yet.

    ``registers`` have known values, ``pointers`` are registers that are set after planning.
    ``slots``: estimated bus slots of a transfer. ``computed``: the tile that a layer's command
    computes.
    """

    instruction: Instruction
    unit: Unit
    registers: Mapping[str, int]
    pointers: Mapping[str, Pointer]
    source: StepSource
    fields: Mapping[str, int] = MappingProxyType({})
    slots: int = 0
    computed: ComputedTile | None = None


def source_of(layer: OperatorLayer, tile: int) -> StepSource:
    """Return the provenance of the steps of tile number ``tile`` of a layer."""
    operation = layer.operation
    return StepSource(operation.name, operation.kind, layer.mnemonic, tile, operation.onnx_nodes)


def load(
    address: int, pointer: Pointer, transfer: RowTransfer, source: StepSource, bus: MemoryBus
) -> CommandStep:
    """Return a step that loads part of the tensor at ``address`` to scratchpad ``pointer``.

    ``address`` is a byte address in system memory.
    """
    return _make_transfer_step(
        OP_DMA_READ, Unit.LD, _LOADING, address, pointer, transfer, source, bus
    )


def store(
    address: int, pointer: Pointer, transfer: RowTransfer, source: StepSource, bus: MemoryBus
) -> CommandStep:
    """Return a step that stores from scratchpad ``pointer`` to the tensor at ``address``.

    ``address`` is a byte address in system memory.
    """
    return _make_transfer_step(
        OP_DMA_WRITE, Unit.ST, _STORING, address, pointer, transfer, source, bus
    )


def copy_planes(
    source: Pointer, target: Pointer, nbytes: int, dims: Sequence[Dim], origin: StepSource
) -> CommandStep:
    """Return a step in which EX copies runs of ``nbytes`` bytes.

    ``dims`` has at most three dimensions with byte strides.
    """
    registers = {}
    loops = (Dim(nbytes, 1, 1), *reversed(dims), *[Dim(1, 0, 0)] * len(DIMENSIONS))
    for number, loop in zip(DIMENSIONS, loops, strict=False):
        registers[f"EX_COUNT_{number}"] = loop.size
        registers[f"EX_INPUT_STRIDE_{number}"] = loop.source
        registers[f"EX_OUTPUT_STRIDE_{number}"] = loop.target
    pointers = {"EX_INPUT_ADDRESS": source, "EX_OUTPUT_ADDRESS": target}
    return CommandStep(OP_PERMUTE, Unit.EX, registers, pointers, origin, {"fill": 0})


_LOADING, _STORING = (
    tuple(side_registers(unit, space) for space in ("dram", "sram")) for unit in (Unit.LD, Unit.ST)
)
"""Registers of both sides of a transfer: system memory, scratchpad."""


def _make_transfer_step(
    instruction: Instruction,
    unit: Unit,
    sides: Sequence[Side],
    address: int,
    pointer: Pointer,
    transfer: RowTransfer,
    source: StepSource,
    bus: MemoryBus,
) -> CommandStep:
    registers = _dma(sides, address, transfer)
    pointers = {sides[1][0]: pointer.move_by(transfer.sram_offset)}
    return CommandStep(
        instruction, unit, registers, pointers, source, slots=bus.transfer_slots(registers, unit)
    )


def _dma(sides: Sequence[Side], address: int, transfer: RowTransfer) -> dict[str, int]:
    (start, nbytes, far), (_, _, near) = sides
    registers = {start: address + transfer.offset, nbytes: transfer.nbytes} | {
        count: 1 for count, _ in reversed(far)
    }
    loops = zip(reversed(far), reversed(near), strict=True)
    for axis, ((count, stride), (_, beside)) in zip(transfer.dims, loops, strict=False):
        # The stride of a single row has no effect and keeps its value.
        registers[count] = axis.size
        registers[stride] = axis.tensor
        registers[beside] = axis.buffer
    return registers


def count_moved(step: CommandStep) -> int:
    """Return how many bytes a step of LD or ST moves."""
    _, nbytes, loops = (_LOADING if step.unit is Unit.LD else _STORING)[0]
    return step.registers[nbytes] * math.prod(step.registers[count] for count, _ in loops)


def list_used_buffers(steps: Iterable[CommandStep]) -> Iterator[int]:
    for step in steps:
        for pointer in step.pointers.values():
            yield pointer.buffer


_UNFINISHED = {REQUANTISE.name: 0, LOOK_UP.name: 0}
"""Fields of a command whose sums a later command completes."""


class OperandAddresses(NamedTuple):
    """Scratchpad addresses of a tile's operands.

    ``input_plane`` and ``output_plane`` are bytes from one channel to the next, 0 if channels are
    dense. ``input_whole`` and ``output_whole``: the first operand or the result is a resident
    tensor. ``near``: the same for each operand. ``planes``: bytes from plane to plane of each
    operand, then of the result. ``sums``: int32 sums that tiles of some input channels accumulate.
    """

    inputs: tuple[Pointer, ...]
    constants: Pointer | None
    output: Pointer
    input_plane: int = 0
    output_plane: int = 0
    tables: Pointer | None = None
    input_whole: bool = False
    output_whole: bool = False
    sums: Pointer | None = None
    near: tuple[bool, ...] = ()
    planes: tuple[int, ...] = ()


def _accumulation_fields(tile: Tile) -> dict[str, int]:
    """Return the fields of a command that computes partial sums of a tile."""
    return {ACCUMULATE.name: int(not tile.first), **({} if tile.last else _UNFINISHED)}


def compute_steps(
    layer: OperatorLayer,
    tile: Tile,
    operands: OperandAddresses,
    source: StepSource,
    transfers: tuple[RowTransfer, ...] = (),
) -> tuple[CommandStep, ...]:
    """Return the commands that compute a tile; empty for a copy.

    ``transfers`` is as in :class:`ComputedTile`.
    """
    geometry = layer.geometry
    computed = ComputedTile(layer, tile, transfers)
    if geometry.instruction is None:
        return ()
    registers = {**layer.registers, **geometry.tile_registers(tile)}
    pointers = {"EX_INPUT_ADDRESS": operands.inputs[0]} if operands.inputs else {}
    pointers["EX_OUTPUT_ADDRESS"] = operands.output
    if len(operands.inputs) > 1 and not geometry.operator.traits.gathers:
        pointers["EX_OPERAND_ADDRESS"] = operands.inputs[1]
    if operands.constants is not None and geometry.record_bytes:
        pointers["EX_CHANNEL_ADDRESS"] = operands.constants
    if operands.constants is not None and geometry.weight_bytes:
        weights = operands.constants.move_by(geometry.weights_offset(tile.output.channels.size))
        pointers["EX_OPERAND_ADDRESS"] = weights
    fields = layer.fields
    if operands.sums is not None:
        fields = {**fields, **_accumulation_fields(tile)}
        if not tile.first:
            pointers[EX_PARTIAL_ADDRESS.name] = operands.sums
    if operands.tables is not None:
        pointers[EX_TABLE_ADDRESS.name] = operands.tables
    if geometry.planes:
        registers["EX_INPUT_PLANE"] = operands.input_plane
        registers["EX_OUTPUT_PLANE"] = operands.output_plane
    elif (
        geometry.operator.traits.whole_planes
        and not geometry.nest.matrix
        and tile.output.channels.size > 1
    ):
        assert operands.input_plane == operands.output_plane == 0, (
            f"'{layer.name}' finds no channels that lie apart"
        )
    steps = []
    whole = Whole(operands.input_whole, operands.output_whole, operands.near, operands.planes)
    for part in layer.operation.commands(geometry, tile, registers, whole):
        if geometry.operator.traits.gathers:
            pointers["EX_INPUT_ADDRESS"] = operands.inputs[part.operand]
        moved = {name: pointers[name].move_by(offset) for name, offset in part.moved.items()}
        # moved pointers are written first, so that programs keep their bytes
        there = {**moved, **pointers, **moved}
        own = {**fields, **part.fields} if part.fields else fields
        steps.append(
            CommandStep(
                geometry.instruction, Unit.EX, part.registers, there, source, own, computed=computed
            )
        )
    return tuple(steps)


class TileSteps(NamedTuple):
    """Steps of one tile: loads, computations, stores."""

    loads: tuple[CommandStep, ...]
    computes: tuple[CommandStep, ...]
    stores: tuple[CommandStep, ...]


def lifetimes(tiles: Iterable[Iterable[Iterable[CommandStep]]]) -> dict[int, tuple[int, int]]:
    """Return the first and the last tile that uses each scratchpad buffer."""
    found: dict[int, tuple[int, int]] = {}
    for number, tile in enumerate(tiles):
        for step in chain.from_iterable(tile):
            for buffer, _ in step.pointers.values():
                found[buffer] = found.get(buffer, (number,))[0], number
    return found


@dataclass(frozen=True, eq=False)
class Memory:
    """Addresses of buffers and constants in system memory, and scratchpad buffers so far.

    ``scratch``: name and bytes of each scratchpad buffer. ``residents``: buffers that are whole in
    the scratchpad. ``stored``: residents that are also stored to system memory. ``apart``: numbers
    of the scratchpad buffers that commands read together with four other operands: look-up tables,
    and sums that they add to. ``windows``: numbers of buffers that several loads fill.
    """

    arch: Arch
    bus: MemoryBus
    lowered: Lowered
    dram: Mapping[str, int]
    constants: ConstantPool
    scratch: list[tuple[str, int]] = field(default_factory=list)
    residents: dict[str, Pointer] = field(default_factory=dict)
    apart: set[int] = field(default_factory=set)
    stored: frozenset[str] = frozenset()
    windows: set[int] = field(default_factory=set)

    @property
    def shared(self) -> frozenset[int]:
        """Numbers of the buffers that commands use in part: residents and windows."""
        return frozenset(self.windows).union(one.buffer for one in self.residents.values())

    def address(self, place: TensorStart) -> int:
        """Return the system memory address of a tensor that is loaded."""
        data = self.lowered.constants.get(place.buffer)
        first = (
            self.dram[place.buffer] if data is None else self.constants.tensor(place.buffer, data)
        )
        return first + place.offset

    def reserve(self, name: str, nbytes: int) -> Pointer:
        """Add a scratchpad buffer and return a pointer to it."""
        self.scratch.append((name, nbytes))
        return Pointer(len(self.scratch) - 1)


AT_ONCE: Mapping[int, int] = MappingProxyType({})
"""No store waits for a load."""


@dataclass(frozen=True, eq=False)
class Scheduled:
    """Schedule of a region: steps in stream order, with the scratchpad plan.

    ``memory`` holds the constants that the steps load. ``choices``: the complete choices, which
    reproduce the same steps; empty for the published schedule. ``cycles``: an estimate; ``layers``:
    the estimate by layer name. The published schedule has no estimates. ``store_waits``: the loads
    that stores wait for, by position in the stream.
    """

    steps: tuple[CommandStep, ...]
    memory: Memory
    requests: tuple[Request, ...]
    addresses: tuple[int, ...]
    choices: Choices = NOTHING
    cycles: int = 0
    layers: Mapping[str, int] = field(default_factory=dict)
    store_waits: Mapping[int, int] = field(default_factory=dict)


class TileBuffers:
    """Ring of tile buffers for one operand, which records the tile in each."""

    def __init__(self, memory: Memory, name: str, count: int, nbytes: int) -> None:
        self._pointers = [memory.reserve(f"{name} {number}", nbytes) for number in range(count)]
        self._held: list[Hashable] = [None] * count
        self._next = 0

    def get(self, key: Hashable) -> tuple[Pointer, bool]:
        """Return the buffer for tile ``key``, and whether it must be filled."""
        if key in self._held:
            return self._pointers[self._held.index(key)], False
        number = self._next
        self._next = (number + 1) % len(self._pointers)
        self._held[number] = key
        return self._pointers[number], True

    def take(self) -> Pointer:
        """Return the next scratchpad buffer of the ring, for a new result."""
        number = self._next
        self._next = (number + 1) % len(self._pointers)
        return self._pointers[number]
