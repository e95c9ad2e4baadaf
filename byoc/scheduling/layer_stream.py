"""The steps of one layer, tile by tile: loads, commands and stores."""

import math
from collections.abc import Callable, Sequence

from byoc.operators.layer import Buffers, OperatorLayer, Tiling, buffers_of, counts, tiles
from byoc.operators.nest import RowTransfer, Span, Tile, make_tile
from byoc.scheduling.stream import (
    CommandStep,
    Memory,
    OperandAddresses,
    Pointer,
    StepSource,
    TileBuffers,
    TileSteps,
    compute_steps,
    load,
    source_of,
    store,
)


def stream_layer(
    layer: OperatorLayer,
    tiling: Tiling,
    memory: Memory,
    cut: Sequence[Tile] | None = None,
    rider: OperatorLayer | None = None,
) -> list[TileSteps]:
    """Return the steps of all tiles of a layer, in order.

    Args:
        layer: the layer.
        tiling: its tiling.
        memory: addresses, and the scratchpad buffers, which are added to.
        cut: the tiles of ``tiling``, if they are known.
        rider: an element-wise layer that is computed on each tile at once.
    """
    stream = (
        LayerStream(layer, tiling, memory)
        if rider is None
        else FusedLayerStream(layer, tiling, memory, rider)
    )
    return [
        stream.tile_steps(tile, number)
        for number, tile in enumerate(cut or tiles(layer.geometry, tiling))
    ]


class LayerStream:
    """Builder of the steps of one layer, tile by tile, with the layer's buffers."""

    def __init__(self, layer: OperatorLayer, tiling: Tiling, memory: Memory) -> None:
        self._layer = layer
        self._memory = memory
        self._pack: Callable[[Span, Span | None], int] = memory.constants.packer(layer)
        self._pack_tables: Callable[[Span], int] = memory.constants.table_packer(layer)
        operation = layer.operation
        lowered = memory.lowered
        self._inputs = [lowered.place(operand) for operand in operation.inputs]
        self._output = lowered.place(operation.output)
        self._make_buffers(tiling, buffers_of(layer.geometry, tiling, memory.arch.granule))

    def _make_buffers(self, tiling: Tiling, buffers: Buffers) -> None:
        slots = tiling.slots
        geometry = self._layer.geometry
        memory = self._memory
        name = self._layer.name
        self._input_buffers = [
            None if place.buffer in memory.residents else self._make_input(tiling, index, buffers)
            for index, place in enumerate(self._inputs[: geometry.inputs])
        ]
        apart = self._inputs[geometry.inputs :]
        self._second = apart[0] if apart else None
        self._constant_buffers = None
        if geometry.has_constants and (
            self._second is None or self._second.buffer not in memory.residents
        ):
            nbytes = geometry.constant_bytes(tiling.channels, tiling.depth)
            self._constant_buffers = TileBuffers(
                memory, f"{name} constants", min(slots.constants, buffers.constant_tiles), nbytes
            )
        self._table_buffers = None
        if geometry.tables != "none":
            count = min(slots.constants, buffers.table_tiles)
            self._table_buffers = TileBuffers(
                memory, f"{name} tables", count, geometry.table_bytes(tiling.channels)
            )
            memory.apart.update(range(len(memory.scratch) - count, len(memory.scratch)))
        self._output_buffers = None
        if self._output.buffer not in memory.residents and not geometry.in_place:
            nbytes = geometry.output_tile_bytes(tiling.channels, tiling.rows)
            self._output_buffers = TileBuffers(
                memory, f"{name} output", min(slots.output, buffers.output_tiles), nbytes
            )
        self._sums = None
        if tiling.depth:
            self._sums = memory.reserve(
                f"{name} sums", geometry.sums_bytes(tiling.channels, tiling.rows)
            )
            memory.apart.add(len(memory.scratch) - 1)

    def _make_input(self, tiling: Tiling, index: int, buffers: Buffers) -> TileBuffers:
        geometry = self._layer.geometry
        nbytes = geometry.input_tile_bytes(tiling.channels, tiling.rows, index, tiling.depth)
        count = min(tiling.slots.input, buffers.input_tiles[index])
        return TileBuffers(self._memory, f"{self._layer.name} input", count, nbytes)

    def tile_steps(self, tile: Tile, number: int) -> TileSteps:
        """Return the steps of one tile; tiles must be requested in order."""
        source = source_of(self._layer, number)
        loads: list[CommandStep] = []
        constants = self._load_constants(tile, source, loads)
        tables = self._load_tables(tile, source, loads) if tile.last else None
        inputs = tuple(
            self._load_input(index, tile, source, loads)
            for index in range(len(self._input_buffers))
        )
        near = tuple(buffers is None for buffers in self._input_buffers)
        whole = (
            any(near[:1]),
            self._output.buffer in self._memory.residents,
        )
        if tile.last:
            output, stores = self._place_output(tile, inputs, source)
            planes = self._input_plane(tile), self._output_plane(tile)
        else:
            assert self._sums is not None
            output = self._sums
            stores = ()
            planes = (self._input_plane(tile), 0)
        operands = OperandAddresses(
            inputs, constants, output, *planes, tables, *whole, self._sums, near
        )
        computes = compute_steps(self._layer, tile, operands, source)
        return TileSteps(tuple(loads), computes, stores)

    def _load_constants(
        self, tile: Tile, source: StepSource, loads: list[CommandStep]
    ) -> Pointer | None:
        channels = tile.output.channels
        geometry = self._layer.geometry
        second = self._second
        if self._constant_buffers is None:
            if second is None:
                return None
            offset = second.offset + geometry.weight_transfer(channels).offset
            return self._memory.residents[second.buffer].move_by(offset)
        pointer, empty = self._constant_buffers.get((channels, tile.depth))
        if empty and second is not None:
            address = self._memory.dram[second.buffer] + second.offset
            loads.append(
                load(address, pointer, geometry.weight_transfer(channels), source, self._memory.bus)
            )
        elif empty:
            transfer = RowTransfer(
                0, geometry.constant_bytes(channels.size, tile.depth.size if tile.depth else 0)
            )
            loads.append(
                load(
                    self._pack(channels, tile.depth),
                    pointer,
                    transfer,
                    source,
                    self._memory.bus.constants,
                )
            )
        return pointer

    def _load_tables(
        self, tile: Tile, source: StepSource, loads: list[CommandStep]
    ) -> Pointer | None:
        if self._table_buffers is None:
            return None
        geometry = self._layer.geometry
        channels = tile.output.channels if geometry.tables == "each" else Span(0, 1)
        pointer, empty = self._table_buffers.get(channels)
        if empty:
            transfer = RowTransfer(0, geometry.table_bytes(channels.size))
            loads.append(
                load(
                    self._pack_tables(channels),
                    pointer,
                    transfer,
                    source,
                    self._memory.bus.constants,
                )
            )
        return pointer

    def _load_input(
        self, index: int, tile: Tile, source: StepSource, loads: list[CommandStep]
    ) -> Pointer:
        place = self._inputs[index]
        buffers = self._input_buffers[index]
        geometry = self._layer.geometry
        transfers = geometry.transfers(tile, index)
        if buffers is None:
            return self._memory.residents[place.buffer].move_by(place.offset + transfers[0].offset)
        pointer, empty = buffers.get(geometry.input_box(tile, index))
        if empty:
            address = self._memory.address(place)
            loads += [
                load(address, pointer, transfer, source, self._memory.bus) for transfer in transfers
            ]
        return pointer

    def _place_output(
        self, tile: Tile, inputs: tuple[Pointer, ...], source: StepSource
    ) -> tuple[Pointer, tuple[CommandStep, ...]]:
        place = self._output
        memory = self._memory
        resident = place.buffer in memory.residents
        transfers = self._layer.geometry.transfers(
            tile, None, self._output_plane(tile), whole=resident
        )
        if resident:
            pointer = memory.residents[place.buffer].move_by(place.offset + transfers[0].offset)
        else:
            pointer = inputs[0] if self._output_buffers is None else self._output_buffers.take()
        address = memory.dram.get(place.buffer, 0) + place.offset
        needed = not resident or place.buffer in memory.stored
        return pointer, tuple(
            store(address, pointer, transfer, source, memory.bus)
            for transfer in transfers
            if needed
        )

    def _input_plane(self, tile: Tile) -> int:
        """Return the distance in bytes between input channels in the scratchpad.

        The distance is 0 if the tile is dense.
        """
        nest = self._layer.nest
        if (
            any(buffers is not None for buffers in self._input_buffers[:1])
            or tile.input.rows.size == nest.input_rows
        ):
            return 0
        return nest.input_rows * nest.input_columns * self._layer.geometry.input_bytes

    def _output_plane(self, tile: Tile) -> int:
        nest = self._layer.nest
        if self._output.buffer not in self._memory.residents or tile.output.rows.size == nest.rows:
            return 0
        return nest.rows * nest.columns * self._layer.geometry.output_bytes


class FusedLayerStream(LayerStream):
    """Layer whose tiles a fused element-wise layer overwrites before they are stored."""

    def __init__(
        self, layer: OperatorLayer, tiling: Tiling, memory: Memory, rider: OperatorLayer
    ) -> None:
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
        loads, computes, stores = super().tile_steps(tile, number)
        if not tile.last:
            return TileSteps(loads, computes, stores)
        memory = self._memory
        source = source_of(self._rider, number)
        transfer = self._layer.geometry.output_transfer(tile)
        made = stores[0].pointers["ST_SRAM_ADDRESS"].move_by(-transfer.sram_offset)
        operands = {self._output: made}
        for place, buffers in self._beside.items():
            operands[place] = buffers.take()
            loads = (
                *loads,
                load(memory.address(place), operands[place], transfer, source, memory.bus),
            )
        whole = make_tile(self._rider.nest, Span(0, 1), Span(0, tile.output.elements))
        inputs = tuple(operands[place] for place in self._places)
        parts = (transfer,) * (len(inputs) + 1)
        computes = (
            *computes,
            *compute_steps(self._rider, whole, OperandAddresses(inputs, None, made), source, parts),
        )
        return TileSteps(
            loads,
            computes,
            (store(memory.address(self._target), made, transfer, source, memory.bus),),
        )
