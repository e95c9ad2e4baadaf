"""Bands: turns a group's layers into steps, band after band of rows.

Rows are stored in windows. A window of w rows stores row r of plane c at (c * w + r) rows after its
start. If at most w consecutive rows are live at a time, no two rows share bytes, and no row is ever
moved. A window of all rows is the whole tensor; a window of one band's rows is dense in every band.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from byoc.estimate.account import LayerCost
from byoc.estimate.commands import Compute, copy_cycles
from byoc.operators.layer import OperatorLayer
from byoc.operators.nest import Box, RowTransfer, Span, make_tile, plane_transfer, split
from byoc.operators.pieces import Dim
from byoc.scheduling.bands import Band, bands_of, window_rows
from byoc.scheduling.groups import (
    BandedGroup,
    FusionGraph,
    Member,
    is_needed_after,
    members_of,
    window_bytes,
)
from byoc.scheduling.stream import (
    CommandStep,
    Memory,
    OperandAddresses,
    Pointer,
    StepSource,
    TileBuffers,
    TileSteps,
    compute_steps,
    copy_planes,
    load,
    source_of,
    store,
)
from isa.ops.movement import OP_PERMUTE
from isa.plugins import variant


class BufferWindow(NamedTuple):
    """Scratchpad window on rows of a buffer, with row 0 of plane ``first`` at ``pointer``.

    Planes are ``rows`` rows apart.
    """

    pointer: Pointer
    first: int
    rows: int
    row_bytes: int

    def point_to_row(self, plane: int, row: int) -> Pointer:
        """Return a scratchpad pointer to a row of a plane."""
        return self.pointer.move_by(((plane - self.first) * self.rows + row) * self.row_bytes)

    def plane(self, rows: int) -> int:
        """Return the distance in bytes between planes, for commands on ``rows`` rows.

        The distance is 0 if planes are dense.
        """
        return 0 if self.rows == rows else self.rows * self.row_bytes


class Timed(NamedTuple):
    """Steps of one tile, with the estimated compute cycles of the tile."""

    steps: TileSteps
    cycles: int


def stream_group(
    group: BandedGroup,
    layers: Sequence[OperatorLayer],
    graph: FusionGraph,
    costs: Sequence[LayerCost],
    memory: Memory,
) -> list[Timed]:
    """Return the steps of all bands of a group; ``layers`` and ``costs`` cover the whole region."""
    stream = _GroupStream(group, layers, graph, costs, memory)
    return [timed for band in stream.bands for timed in stream.band_steps(band)]


class _GroupStream:
    """Builder of the steps of one layer group, band by band."""

    def __init__(
        self,
        group: BandedGroup,
        layers: Sequence[OperatorLayer],
        graph: FusionGraph,
        costs: Sequence[LayerCost],
        memory: Memory,
    ) -> None:
        self._group = group
        self._graph = graph
        self._memory = memory
        self._members = members_of(graph, group.first, group.last)
        self.bands = bands_of(group, layers, graph)
        self._layers = [
            _LayerBands(
                layers[group.first + position],
                group,
                position,
                costs[group.first + position].compute,
                memory,
            )
            for position in range(len(self._members))
        ]
        self._made: dict[str, list[int]] = {}
        for position, member in enumerate(self._members):
            self._made.setdefault(member.writes.buffer, []).append(position)
        self._sources = {
            name: span for name, span in self._slices().items() if not self._is_read_inside(name)
        }
        self._kept = {name: self._window(name) for name in self._list_fixed()}
        self._rounds: dict[str, TileBuffers] = {}
        self._loaded = dict.fromkeys(self._sources, 0)

    def _is_read_inside(self, name: str) -> bool:
        """Return True if the group computes a buffer that it reads."""
        return any(
            self._members[maker].reader <= self._group.last for maker in self._made.get(name, ())
        )

    def _slices(self) -> dict[str, Span]:
        """Return the range of planes that layers of the group read, by buffer name."""
        found: dict[str, Span] = {}
        for member in self._members:
            for piece in member.reads:
                before = found.get(piece.buffer, Span(piece.first, piece.first + piece.planes))
                stop = max(before.stop, piece.first + piece.planes)
                found[piece.buffer] = Span(min(before.start, piece.first), stop)
        return found

    def _list_fixed(self) -> Iterator[str]:
        """Yield the names of buffers that keep one scratchpad window for all bands.

        They are the residents and the kept buffers of the group.
        """
        for name in dict.fromkeys((*self._slices(), *self._made)):
            if name in self._memory.residents or name in self._group.kept:
                yield name

    def _window(self, name: str) -> BufferWindow:
        planes = self._graph.planes[name]
        if name in self._memory.residents:
            return BufferWindow(self._memory.residents[name], 0, planes.rows, planes.row_bytes)
        span = self._sources.get(name, Span(0, planes.count))
        rows = window_rows(self.bands, name, () if name in self._sources else self._made[name])
        nbytes = window_bytes(span.size, rows, planes.rows, planes.row_bytes)
        pointer = self._memory.reserve(f"{name} rows", nbytes)
        self._memory.windows.add(pointer.buffer)
        return BufferWindow(pointer, span.start, rows, planes.row_bytes)

    def band_steps(self, band: Band) -> Iterator[Timed]:
        """Yield the steps of one band, layer by layer.

        The first reader of a buffer loads it with its first tile.
        """
        windows = dict(self._kept)
        fresh = set(self._sources)
        for position, rows in enumerate(band.rows):
            if rows is None:
                continue
            member = self._members[position]
            loads = list[CommandStep]()
            source = self._layers[position].source
            for name in dict.fromkeys(piece.buffer for piece in member.reads):
                if name in fresh:
                    fresh.remove(name)
                    loads += self._load(name, band, windows, source)
            target = member.writes.buffer
            if self._is_read_inside(target) and target not in windows:
                windows[target] = self._dense(target, band)
            yield from self._list_computed(position, rows, windows, tuple(loads))

    def _dense(self, name: str, band: Band) -> BufferWindow:
        """Reserve scratchpad memory for the rows of a buffer that one band computes."""
        planes = self._graph.planes[name]
        wanted = band.wanted[name]
        pointer = self._memory.reserve(
            f"{name} band", planes.count * wanted.size * planes.row_bytes
        )
        return BufferWindow(
            pointer.move_by(-wanted.start * planes.row_bytes), 0, wanted.size, planes.row_bytes
        )

    def _load(
        self, name: str, band: Band, windows: dict[str, BufferWindow], source: StepSource
    ) -> Iterator[CommandStep]:
        """Yield the load of the rows that a band reads and that are not in the scratchpad.

        A kept buffer also gets the rows before them that later bands read.
        """
        memory = self._memory
        planes = self._graph.planes[name]
        span = self._sources[name]
        if name in memory.residents:
            return
        rows = wanted = band.wanted[name]
        if name in self._group.kept:
            rows = Span(max(band.lowest[name], self._loaded[name]), wanted.stop)
            self._loaded[name] = max(self._loaded[name], wanted.stop)
        else:
            pointer = self._operand(name).move_by(-wanted.start * planes.row_bytes)
            windows[name] = BufferWindow(pointer, span.start, wanted.size, planes.row_bytes)
        if rows.size <= 0:
            return
        window = windows[name]
        box = Box(span, rows, Span(0, planes.row_bytes))
        transfer = plane_transfer(box, planes.rows, planes.row_bytes, 1, window.plane(rows.size))
        yield load(
            memory.dram[name],
            window.point_to_row(span.start, rows.start),
            transfer,
            source,
            memory.bus,
        )

    def _operand(self, name: str) -> Pointer:
        """Return a scratchpad buffer for the rows of an operand that one band reads."""
        rounds = self._rounds.get(name)
        if rounds is None or self._group.smallest:
            planes = self._graph.planes[name]
            most = max(band.wanted[name].size for band in self.bands if name in band.wanted)
            nbytes = self._sources[name].size * most * planes.row_bytes
            rounds = self._rounds[name] = TileBuffers(
                self._memory, f"{name} band", self._group.slots, nbytes
            )
        return rounds.take()

    def _list_computed(
        self,
        position: int,
        rows: Span,
        windows: Mapping[str, BufferWindow],
        loads: tuple[CommandStep, ...],
    ) -> Iterator[Timed]:
        """Yield a layer's tiles in one band, with stores of rows needed outside the group."""
        member = self._members[position]
        layer = self._layers[position]
        piece = member.writes
        planes = self._graph.planes[member.writes.buffer]
        sources = [windows[read.buffer] for read in member.reads]
        outside = self._is_stored(piece.buffer)
        layer.begin()
        for channels in layer.parts():
            own = Span(piece.first, piece.first + piece.planes)
            if not member.undivided:
                own = Span(piece.first + channels.start, piece.first + channels.stop)
            target = windows.get(piece.buffer) if self._is_near(piece.buffer) else None
            if target is None:
                most = max(
                    span.size for band in self.bands if (span := band.rows[position]) is not None
                )
                pointer = layer.result(own.size, most, planes.row_bytes)
                target = BufferWindow(
                    pointer.move_by(-rows.start * planes.row_bytes),
                    own.start,
                    rows.size,
                    planes.row_bytes,
                )
            more, computes, cycles = layer.tile(member, channels, rows, sources, target)
            stores: tuple[CommandStep, ...] = ()
            if outside:
                box = Box(own, rows, Span(0, planes.row_bytes))
                transfer = plane_transfer(
                    box, planes.rows, planes.row_bytes, 1, target.plane(rows.size)
                )
                address = self._memory.dram[piece.buffer]
                pointer = target.point_to_row(own.start, rows.start)
                stores = (store(address, pointer, transfer, layer.source, self._memory.bus),)
            layer.number += 1
            yield Timed(TileSteps((*loads, *more), computes, stores), cycles)
            loads = ()

    def _is_near(self, name: str) -> bool:
        """Return True if a buffer is resident, or computed by the group in a window."""
        return name in self._memory.residents or self._is_read_inside(name)

    def _is_stored(self, name: str) -> bool:
        """Return True if the group's rows of a buffer are stored to system memory."""
        if name in self._memory.residents:
            return name in self._memory.stored
        planes = self._graph.planes[name]
        return not self._is_read_inside(name) or is_needed_after(planes, self._group.last)


class _LayerBands:
    """Tiles, constants and result buffers of one layer of a group.

    ``number`` counts its tiles so far.
    """

    def __init__(
        self,
        layer: OperatorLayer,
        group: BandedGroup,
        position: int,
        compute: Compute,
        memory: Memory,
    ) -> None:
        self._layer = layer
        self._compute = compute
        self._memory = memory
        self._channels = group.channels[position]
        self._held = group.held[position]
        self._slots = group.slots
        self._pack, self._pack_tables = (
            memory.constants.packer(layer),
            memory.constants.table_packer(layer),
        )
        self._constants: TileBuffers | None = None
        self._tables: TileBuffers | None = None
        self._results: TileBuffers | None = None
        self.number = 0

    @property
    def source(self) -> StepSource:
        """Source of the steps of the next tile."""
        return source_of(self._layer, self.number)

    def parts(self) -> tuple[Span, ...]:
        """Return the range of output channels of each tile in a band."""
        return split(self._layer.nest.channels, self._channels)

    def begin(self) -> None:
        """Prepare for a band: constants that are not kept get new buffers and are loaded again."""
        geometry = self._layer.geometry
        name = self._layer.name
        count = len(self.parts())
        slots = count if self._held else min(2, count)
        if geometry.has_constants and (self._constants is None or not self._held):
            nbytes = geometry.constant_bytes(self._channels)
            self._constants = TileBuffers(self._memory, f"{name} constants", slots, nbytes)
        if geometry.tables != "none" and (self._tables is None or not self._held):
            slots = slots if geometry.tables == "each" else 1
            self._tables = TileBuffers(
                self._memory, f"{name} tables", slots, geometry.table_bytes(self._channels)
            )
            self._memory.apart.update(
                range(len(self._memory.scratch) - slots, len(self._memory.scratch))
            )

    def result(self, planes: int, rows: int, row_bytes: int) -> Pointer:
        """Return a scratchpad buffer for results of a tile that are stored to system memory.

        The first tile must be the largest.
        """
        if self._results is None:
            self._results = TileBuffers(
                self._memory, f"{self._layer.name} output", self._slots, planes * rows * row_bytes
            )
        return self._results.take()

    def tile(
        self,
        member: Member,
        channels: Span,
        rows: Span,
        sources: Sequence[BufferWindow],
        target: BufferWindow,
    ) -> tuple[list[CommandStep], tuple[CommandStep, ...], int]:
        """Return the loads of constants, the commands and the estimated cycles of a tile.

        The tile has the channels ``channels`` in the band ``rows``.
        """
        loads: list[CommandStep] = []
        constants = self._load_constants(channels, loads)
        tables = self._load_tables(channels, loads)
        layer = self._layer
        source = self.source
        if member.moves is not None:
            return loads, *self._copy_band(member, rows, sources[0], target)
        if member.gathers:
            return loads, *self._gather_band(member, rows, sources, target)
        if not member.flat:
            tile = make_tile(layer.nest, channels, rows)
            read = tile.input
            piece = member.reads[0]
            operand = sources[0].point_to_row(piece.first + read.channels.start, read.rows.start)
            result = target.point_to_row(member.writes.first + channels.start, rows.start)
            planes = sources[0].plane(read.rows.size), target.plane(rows.size)
            operands = OperandAddresses((operand,), constants, result, *planes, tables)
            computed = self._compute.tile(channels.size, rows.size)
            return loads, compute_steps(layer, tile, operands, source), computed
        places = [
            (window, piece.first) for window, piece in zip(sources, member.reads, strict=True)
        ]
        places.append((target, member.writes.first))
        steps, computed = self._element_wise(places, member.writes.planes, rows, constants, tables)
        return loads, tuple(steps), computed

    def _element_wise(
        self,
        places: list[tuple[BufferWindow, int]],
        planes: int,
        rows: Span,
        constants: Pointer | None,
        tables: Pointer | None,
    ) -> tuple[list[CommandStep], int]:
        """Return commands of an element-wise layer on ``planes`` planes, and their cycles.

        ``places`` has the window and first plane of each operand and, last, of the result. Bands
        that are not dense in their windows are copied. On a machine without the copy instruction,
        each plane has its own command.
        """
        apart = [bool(window.plane(rows.size)) for window, _ in places]
        copying = OP_PERMUTE.mnemonic in variant(self._memory.arch.isa).mnemonics
        if any(apart) and not copying:
            found: list[CommandStep] = []
            for plane in range(planes):
                pointers = [
                    window.point_to_row(first + plane, rows.start) for window, first in places
                ]
                steps, cycles = self._flat(
                    pointers, rows.size * places[0][0].row_bytes, constants, tables, ()
                )
                found += steps
            return found, planes * cycles
        row_bytes = places[0][0].row_bytes
        run = rows.size * row_bytes
        length = planes * run
        pointers = []
        before = list[CommandStep]()
        after = list[CommandStep]()
        for number, (window, first) in enumerate(places):
            there = window.point_to_row(first, rows.start)
            pointers.append(
                self._memory.reserve(f"{self._layer.name} rows", length) if apart[number] else there
            )
            if apart[number] and number < len(places) - 1:
                dims = (Dim(planes, window.plane(rows.size), run),)
                before.append(copy_planes(there, pointers[-1], run, dims, self.source))
            elif apart[number]:
                dims = (Dim(planes, run, window.plane(rows.size)),)
                after.append(copy_planes(pointers[-1], there, run, dims, self.source))
        box = Box(Span(0, planes), rows, Span(0, row_bytes))
        height = self._layer.operation.output.nbytes // (planes * row_bytes)
        parts = (plane_transfer(box, height, row_bytes, 1),) * len(places)
        steps, cycles = self._flat(pointers, length, constants, tables, parts)
        copied = sum(apart) * copy_cycles(planes, run, self._memory.arch)
        return [*before, *steps, *after], cycles + copied

    def _copy_band(
        self, member: Member, rows: Span, operand: BufferWindow, target: BufferWindow
    ) -> tuple[tuple[CommandStep, ...], int]:
        """Return the copy of a band of planes, and its cycles."""
        run = rows.size * target.row_bytes
        here = operand.rows * operand.row_bytes
        there = target.rows * target.row_bytes
        dims = [Dim(dim.size, dim.source * here, dim.target * there) for dim in member.moves or ()]
        pointers = (
            operand.point_to_row(member.reads[0].first, rows.start),
            target.point_to_row(member.writes.first, rows.start),
        )
        cycles = copy_cycles(member.writes.planes, run, self._memory.arch)
        return (copy_planes(*pointers, run, dims, self.source),), cycles

    def _gather_band(
        self, member: Member, rows: Span, sources: Sequence[BufferWindow], target: BufferWindow
    ) -> tuple[tuple[CommandStep, ...], int]:
        """Return the commands that gather the bytes of a band, and their cycles."""
        inputs = (
            window.point_to_row(piece.first, rows.start)
            for window, piece in zip(sources, member.reads, strict=True)
        )
        planes = tuple(window.rows * window.row_bytes for window in (*sources, target))
        result = target.point_to_row(member.writes.first, rows.start)
        tile = make_tile(self._layer.nest, Span(0, self._layer.nest.channels), rows)
        operands = OperandAddresses(tuple(inputs), None, result, planes=planes)
        return compute_steps(self._layer, tile, operands, self.source), self._compute.tile(
            self._layer.nest.channels, rows.size
        )

    def _flat(
        self,
        pointers: Sequence[Pointer],
        length: int,
        constants: Pointer | None,
        tables: Pointer | None,
        transfers: tuple[RowTransfer, ...],
    ) -> tuple[tuple[CommandStep, ...], int]:
        """Return the command for ``length`` bytes of a layer's result, and its cycles.

        ``transfers`` are the transfers of the operands and the result.
        """
        *inputs, result = pointers
        rows = length // self._layer.nest.columns
        tile = make_tile(self._layer.nest, Span(0, 1), Span(0, rows))
        operands = OperandAddresses(tuple(inputs), constants, result, tables=tables)
        return compute_steps(
            self._layer, tile, operands, self.source, transfers
        ), self._compute.tile(1, rows)

    def _load_constants(self, channels: Span, loads: list[CommandStep]) -> Pointer | None:
        if self._constants is None:
            return None
        pointer, empty = self._constants.get(channels)
        if empty:
            transfer = RowTransfer(0, self._layer.geometry.constant_bytes(channels.size))
            loads.append(
                load(
                    self._pack(channels, None),
                    pointer,
                    transfer,
                    self.source,
                    self._memory.bus.constants,
                )
            )
        return pointer

    def _load_tables(self, channels: Span, loads: list[CommandStep]) -> Pointer | None:
        if self._tables is None:
            return None
        chosen = channels if self._layer.geometry.tables == "each" else Span(0, 1)
        pointer, empty = self._tables.get(chosen)
        if empty:
            transfer = RowTransfer(0, self._layer.geometry.table_bytes(chosen.size))
            loads.append(
                load(
                    self._pack_tables(chosen),
                    pointer,
                    transfer,
                    self.source,
                    self._memory.bus.constants,
                )
            )
        return pointer
