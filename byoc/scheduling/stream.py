"""Streaming: a layer's tiles become loads, computations and stores on tile buffers and resident tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc.lowering import Lowered, Place
from byoc.operators.layer import Layer
from byoc.operators.nest import Span, Tile, Transfer, make_tile
from byoc.operators.tiling import Buffers, Tiling, buffers_of, counts, tiles
from byoc.scheduling.constants import ConstantPool
from byoc.scheduling.steps import Operands, Pointer, Source, Step, compute_steps, load, source_of, store
from isa.arch import Arch


class TileSteps(NamedTuple):
    """The steps of one tile: what it brings in, computes and takes out."""

    loads: tuple[Step, ...]
    computes: tuple[Step, ...]
    stores: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Memory:
    """Where things are: buffers in system memory by address, constants, scratchpad buffers (name, bytes) as they arise.

    ``residents``: buffers that live in the scratchpad as wholes. ``stored``: those of them whose contents must
    also reach system memory. ``apart``: numbers of the scratchpad buffers that commands read beside four other
    operands: look-up tables, and sums that they add to; ``windows``: of those that several loads fill together.
    """

    arch: Arch
    lowered: Lowered
    dram: Mapping[str, int]
    constants: ConstantPool
    scratch: list[tuple[str, int]] = field(default_factory=list)
    residents: dict[str, Pointer] = field(default_factory=dict)
    apart: set[int] = field(default_factory=set)
    stored: frozenset[str] = frozenset()
    windows: set[int] = field(default_factory=set)

    def address(self, place: Place) -> int:
        """Where a value that is loaded begins in system memory."""
        data = self.lowered.constants.get(place.buffer)
        first = self.dram[place.buffer] if data is None else self.constants.tensor(place.buffer, data)
        return first + place.offset

    def reserve(self, name: str, nbytes: int) -> Pointer:
        """A new scratchpad buffer."""
        self.scratch.append((name, nbytes))
        return Pointer(len(self.scratch) - 1)


class TileBuffers:
    """A round of tile buffers for one operand: knows which tile each holds."""

    def __init__(self, memory: Memory, name: str, count: int, nbytes: int) -> None:
        self._pointers = [memory.reserve(f"{name} {number}", nbytes) for number in range(count)]
        self._held: list[Hashable] = [None] * count
        self._next = 0

    def get(self, key: Hashable) -> tuple[Pointer, bool]:
        """The buffer for tile ``key``, and whether it must be filled."""
        if key in self._held:
            return self._pointers[self._held.index(key)], False
        number = self._next
        self._next = (number + 1) % len(self._pointers)
        self._held[number] = key
        return self._pointers[number], True

    def take(self) -> Pointer:
        """The next buffer, for a new result."""
        number = self._next
        self._next = (number + 1) % len(self._pointers)
        return self._pointers[number]


def stream_layer(
    layer: Layer, tiling: Tiling, memory: Memory, cut: Sequence[Tile] | None = None, rider: Layer | None = None
) -> list[TileSteps]:
    """The steps of all tiles of a layer, in order; ``cut`` are the tiles of ``tiling`` where they are known.

    ``rider``: an element-wise layer that is computed on each at once.
    """
    stream = _LayerStream(layer, tiling, memory) if rider is None else _RiddenStream(layer, tiling, memory, rider)
    return [stream.tile_steps(tile, number) for number, tile in enumerate(cut or tiles(layer.geometry, tiling))]


class _LayerStream:
    """Buffers of one layer while its tiles are made."""

    def __init__(self, layer: Layer, tiling: Tiling, memory: Memory) -> None:
        self._layer, self._memory = layer, memory
        self._pack: Callable[[Span, Span | None], int] = memory.constants.packer(layer)
        self._pack_tables: Callable[[Span], int] = memory.constants.table_packer(layer)
        operation, lowered = layer.operation, memory.lowered
        self._inputs = [lowered.place(operand) for operand in operation.inputs]
        self._output = lowered.place(operation.output)
        self._make_buffers(tiling, buffers_of(layer.geometry, tiling, memory.arch.alignment))

    def _make_buffers(self, tiling: Tiling, buffers: Buffers) -> None:
        slots, geometry, memory, name = tiling.slots, self._layer.geometry, self._memory, self._layer.name
        self._input_buffers = [
            None if place.buffer in memory.residents else self._make_input(tiling, index, buffers)
            for index, place in enumerate(self._inputs[: geometry.inputs])
        ]
        apart = self._inputs[geometry.inputs :]
        self._second = apart[0] if apart else None
        self._constant_buffers = None
        if geometry.has_constants and (self._second is None or self._second.buffer not in memory.residents):
            nbytes = geometry.constant_bytes(tiling.channels, tiling.depth)
            self._constant_buffers = TileBuffers(
                memory, f"{name} constants", min(slots.constants, buffers.constant_tiles), nbytes
            )
        self._table_buffers = None
        if geometry.tables != "none":
            count = min(slots.constants, buffers.table_tiles)
            self._table_buffers = TileBuffers(memory, f"{name} tables", count, geometry.table_bytes(tiling.channels))
            memory.apart.update(range(len(memory.scratch) - count, len(memory.scratch)))
        self._output_buffers = None
        if self._output.buffer not in memory.residents and not geometry.in_place:
            nbytes = geometry.output_tile_bytes(tiling.channels, tiling.rows)
            self._output_buffers = TileBuffers(
                memory, f"{name} output", min(slots.output, buffers.output_tiles), nbytes
            )
        self._sums = None
        if tiling.depth:
            self._sums = memory.reserve(f"{name} sums", geometry.sums_bytes(tiling.channels, tiling.rows))
            memory.apart.add(len(memory.scratch) - 1)

    def _make_input(self, tiling: Tiling, index: int, buffers: Buffers) -> TileBuffers:
        geometry = self._layer.geometry
        nbytes = geometry.input_tile_bytes(tiling.channels, tiling.rows, index, tiling.depth)
        count = min(tiling.slots.input, buffers.input_tiles[index])
        return TileBuffers(self._memory, f"{self._layer.name} input", count, nbytes)

    def tile_steps(self, tile: Tile, number: int) -> TileSteps:
        """The steps of one tile; tiles must be asked for in order."""
        source = source_of(self._layer, number)
        loads: list[Step] = []
        constants = self._load_constants(tile, source, loads)
        tables = self._load_tables(tile, source, loads) if tile.last else None
        inputs = tuple(self._load_input(index, tile, source, loads) for index in range(len(self._input_buffers)))
        whole = (
            any(buffers is None for buffers in self._input_buffers[:1]),
            self._output.buffer in self._memory.residents,
        )
        if tile.last:
            output, stores = self._place_output(tile, inputs, source)
            planes = self._input_plane(tile), self._output_plane(tile)
        else:
            assert self._sums is not None
            output, stores, planes = self._sums, (), (self._input_plane(tile), 0)
        operands = Operands(inputs, constants, output, *planes, tables, *whole, self._sums)
        computes = compute_steps(self._layer, tile, operands, source)
        return TileSteps(tuple(loads), computes, stores)

    def _load_constants(self, tile: Tile, source: Source, loads: list[Step]) -> Pointer | None:
        channels, geometry, second = tile.output.channels, self._layer.geometry, self._second
        if self._constant_buffers is None:
            if second is None:
                return None
            offset = second.offset + geometry.weight_transfer(channels).offset
            return self._memory.residents[second.buffer].moved(offset)
        pointer, empty = self._constant_buffers.get((channels, tile.depth))
        if empty and second is not None:
            address = self._memory.dram[second.buffer] + second.offset
            loads.append(load(address, pointer, geometry.weight_transfer(channels), source))
        elif empty:
            transfer = Transfer(0, geometry.constant_bytes(channels.size, tile.depth.size if tile.depth else 0))
            loads.append(load(self._pack(channels, tile.depth), pointer, transfer, source))
        return pointer

    def _load_tables(self, tile: Tile, source: Source, loads: list[Step]) -> Pointer | None:
        if self._table_buffers is None:
            return None
        geometry = self._layer.geometry
        channels = tile.output.channels if geometry.tables == "each" else Span(0, 1)
        pointer, empty = self._table_buffers.get(channels)
        if empty:
            transfer = Transfer(0, geometry.table_bytes(channels.size))
            loads.append(load(self._pack_tables(channels), pointer, transfer, source))
        return pointer

    def _load_input(self, index: int, tile: Tile, source: Source, loads: list[Step]) -> Pointer:
        place, buffers, geometry = self._inputs[index], self._input_buffers[index], self._layer.geometry
        transfers = self._layer.operation.transfers(geometry, tile, index)
        if buffers is None:
            return self._memory.residents[place.buffer].moved(place.offset + transfers[0].offset)
        pointer, empty = buffers.get(geometry.input_box(tile, index))
        if empty:
            address = self._memory.address(place)
            loads += [load(address, pointer, transfer, source) for transfer in transfers]
        return pointer

    def _place_output(
        self, tile: Tile, inputs: tuple[Pointer, ...], source: Source
    ) -> tuple[Pointer, tuple[Step, ...]]:
        place, memory = self._output, self._memory
        resident = place.buffer in memory.residents
        transfers = self._layer.operation.transfers(
            self._layer.geometry, tile, None, self._output_plane(tile), whole=resident
        )
        if resident:
            pointer = memory.residents[place.buffer].moved(place.offset + transfers[0].offset)
        else:
            pointer = inputs[0] if self._output_buffers is None else self._output_buffers.take()
        address = memory.dram.get(place.buffer, 0) + place.offset
        needed = not resident or place.buffer in memory.stored
        return pointer, tuple(store(address, pointer, transfer, source) for transfer in transfers if needed)

    def _input_plane(self, tile: Tile) -> int:
        """Bytes between input channels in the scratchpad, 0 where the tile lies dense there."""
        nest = self._layer.nest
        if any(buffers is not None for buffers in self._input_buffers[:1]) or tile.input.rows.size == nest.input_rows:
            return 0
        return nest.input_rows * nest.input_columns * self._layer.geometry.input_bytes

    def _output_plane(self, tile: Tile) -> int:
        nest = self._layer.nest
        if self._output.buffer not in self._memory.residents or tile.output.rows.size == nest.rows:
            return 0
        return nest.rows * nest.columns * self._layer.geometry.output_bytes


class _RiddenStream(_LayerStream):
    """A layer on whose tiles another is computed, which takes their place and leaves in their stead."""

    def __init__(self, layer: Layer, tiling: Tiling, memory: Memory, rider: Layer) -> None:
        super().__init__(layer, tiling, memory)
        self._rider = rider
        self._places = [memory.lowered.place(operand) for operand in rider.operation.inputs]
        self._target = memory.lowered.place(rider.operation.output)
        count = min(tiling.slots.output, math.prod(counts(layer.geometry, tiling)))
        nbytes = layer.geometry.output_tile_bytes(tiling.channels, tiling.rows)
        self._beside = {
            place: TileBuffers(memory, f"{rider.name} input", count, nbytes)
            for place in self._places
            if place != self._output
        }

    def tile_steps(self, tile: Tile, number: int) -> TileSteps:
        """The steps of one tile of both layers."""
        loads, computes, stores = super().tile_steps(tile, number)
        if not tile.last:
            return TileSteps(loads, computes, stores)
        memory, source = self._memory, source_of(self._rider, number)
        transfer = self._layer.geometry.output_transfer(tile)
        made = stores[0].pointers["ST_SRAM_ADDRESS"].moved(-transfer.sram_offset)
        operands = {self._output: made}
        for place, buffers in self._beside.items():
            operands[place] = buffers.take()
            loads = (*loads, load(memory.address(place), operands[place], transfer, source))
        whole = make_tile(self._rider.nest, Span(0, 1), Span(0, tile.output.elements))
        inputs = tuple(operands[place] for place in self._places)
        computes = (*computes, *compute_steps(self._rider, whole, Operands(inputs, None, made), source))
        return TileSteps(loads, computes, (store(memory.address(self._target), made, transfer, source),))
