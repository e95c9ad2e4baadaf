"""Accounts: estimated cycles of a layer under a tiling, and of a group in bands, computation against bytes moved.

They rank tilings and groups and promise nothing. What a layer leaves to those before
and after it is priced, for each is looked at alone; the clock (:mod:`byoc.estimate.commands`) knows all of a region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc.estimate.bus import DEFAULT_BUS, Bus, transfer_cycles
from byoc.estimate.commands import Compute, constant_slots, input_slots, output_slots
from byoc.estimate.constants import EXPOSED, FIRST_OVERHEAD, HIDDEN, TILE_OVERHEAD, TILE_SHARE, TRAFFIC
from byoc.operators.layer import Buffers, Resident, Tiling, buffers_of, loads_constants, streams
from byoc.operators.operator import Geometry
from isa.arch import Arch
from isa.instruction import ceil_div


class Shape(NamedTuple):
    """What a tile shape costs in any order and with any slots: counts, tile buffers, slots of the bus.

    ``chunks`` tiles of ``depth`` input channels add up to one result; depth 0: all at once. Slots are those of the
    first tile, and, ``_all``, of all different ones together; ``last_slots`` those of the last result. Those of inputs
    are one a streamed operand.
    """

    channels: int
    rows: int
    depth: int
    parts: int
    bands: int
    chunks: int
    buffers: Buffers
    input_slots: tuple[int, ...]
    input_all: tuple[int, ...]
    constant_slots: int
    constant_all: int
    table_slots: int
    output_all: int
    last_slots: int
    compute: int

    @property
    def tiles(self) -> int:
        """All tiles."""
        return self.parts * self.bands * self.chunks


class _Cut(NamedTuple):
    """The different pieces of a layer's channels, rows and input channels in a tile shape, each (size, how many)."""

    channels: tuple[tuple[int, int], ...]
    rows: tuple[tuple[int, int], ...]
    depth: tuple[tuple[int, int], ...]


class _Moved(NamedTuple):
    """Cycles of a layer's transfers: LD's and ST's, each command after another, and the bus's slots for both.

    ``first`` are the loads that a first tile waits for, ``last`` the last store. ``apart``: what computing cannot
    overlap with, for an operand has too few buffers.
    """

    loading: int
    storing: int
    slots: int
    first: int
    last: int
    apart: int


class LayerCost:
    """Estimates for one layer; remembers tile shapes. ``compute``: what its tiles compute."""

    def __init__(self, geometry: Geometry, arch: Arch, bus: Bus = DEFAULT_BUS) -> None:
        self.bus, self.geometry, self.compute = bus, geometry, Compute(geometry, arch)
        self._arch = arch
        self._shapes: dict[tuple[int, int, int], Shape] = {}
        self._buffers: dict[tuple[int, int, int], Buffers] = {}
        self._moves: dict[Resident, tuple[tuple[int, ...], bool]] = {}
        self._share = 0.0

    def shape(self, channels: int, rows: int, depth: int = 0) -> Shape:
        """The account of one tile shape."""
        key = channels, rows, depth
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = self._make_shape(channels, rows, depth)
        return found

    def shape_of(self, tiling: Tiling) -> Shape:
        """The account of a tiling's tile shape."""
        return self.shape(tiling.channels, tiling.rows, tiling.depth)

    def working_set(self, tiling: Tiling, resident: Resident) -> int:
        """:func:`byoc.operators.layer.working_set` of a tiling."""
        return self._buffers_of(tiling).taken(tiling.slots, resident, constants=self._moved_by(resident)[1])

    def used(self, tiling: Tiling, resident: Resident) -> Tiling:
        """The tiling with the slots that have buffers: what is streamed of two that are equal then is the same."""
        buffers, constants = self._buffers_of(tiling), self._moved_by(resident)[1]
        return tiling._replace(slots=buffers.used(tiling.slots, resident, constants=constants))

    def _buffers_of(self, tiling: Tiling) -> Buffers:
        """The tile buffers of a tiling: most do not fit, and of those nothing else is asked."""
        key = tiling.channels, tiling.rows, tiling.depth
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = buffers_of(self.geometry, tiling, self._arch.granule)
        return found

    def estimate(self, tiling: Tiling, resident: Resident) -> float:
        """Estimated cycles of a tiling, the overhead of tiles included."""
        shape = self.shape_of(tiling)
        moved = self._moved(shape, tiling, resident)
        edge, slots = moved.first + moved.last, moved.slots
        # The last load is followed by its tile's computation, the first store preceded by one: other layers' work.
        one = 0 if resident.follows else shape.compute // shape.tiles
        busy = max(
            shape.compute + moved.apart,
            moved.loading - moved.first + one,
            moved.storing - moved.last + one,
            slots - edge + one,
        )
        cycles = busy + edge - self._hidden(shape, resident)
        return priced(cycles, slots) + self.overhead(shape.tiles, resident.follows)

    def least(self, shape: Shape, resident: Resident) -> float:
        """What no tiling of this shape is below, nor any of the same channels and fewer rows: all is loaded once."""
        operands, constants = self._moved_by(resident)
        slots = shape.constant_all if constants else 0
        for index in operands:
            slots += shape.input_all[index]
        if not resident.output:
            slots += shape.output_all * (1 + resident.beside)
        edge = transfer_cycles(0, len(operands) + (not resident.output) + resident.beside)
        busy = max(shape.compute + edge, slots - self._hidden(shape, resident))
        return priced(busy, slots) + self.overhead(shape.tiles, resident.follows)

    def floor(self, resident: Resident) -> float:
        """What the layer takes at least, in one tile."""
        nest = self.geometry.nest
        return self.least(self.shape(nest.channels, nest.rows), resident)

    def floor_in_bands(self) -> int:
        """What the layer takes at least in a group, which has two bands or more."""
        nest = self.geometry.nest
        return self.compute.tile(nest.channels, nest.rows) + 2 * TILE_OVERHEAD

    def _hidden(self, shape: Shape, resident: Resident) -> float:
        """What earlier layers hide of loading the first constants."""
        if not (resident.follows and self._moved_by(resident)[1]):
            return 0.0
        return HIDDEN * min(transfer_cycles(shape.constant_slots), shape.compute)

    def overhead(self, tiles: int, follows: bool = True) -> float:
        """What so many tiles cost beside their work; ``follows`` as in :class:`Resident`."""
        if not self._share:  # the layer in one tile says how long it is
            nest = self.geometry.nest
            whole = self.shape(nest.channels, nest.rows)
            moved = whole.constant_all + sum(whole.input_all) + whole.output_all
            self._share = max(whole.compute, moved) / TILE_SHARE
        return ((TILE_OVERHEAD if follows else FIRST_OVERHEAD) + self._share) * tiles

    def _moved(self, shape: Shape, tiling: Tiling, resident: Resident) -> _Moved:
        """The account of all transfers."""
        parts, bands, chunks, slots = shape.parts, shape.bands, shape.chunks, tiling.slots
        operands, constants = self._moved_by(resident)
        kept = slots.constants >= (chunks if tiling.channels_outer else parts * chunks)
        again = 1 if kept else bands
        loaded: list[tuple[int, int, int, int]] = []  # the first load, all, how many they are, buffers
        for index in operands:
            often = self._input_loads(shape, tiling, index)
            total = shape.input_all[index] * often // shape.buffers.input_tiles[index]
            loaded.append((shape.input_slots[index], total, often, slots.input))
        if constants:
            total = shape.constant_all * again
            loaded.append((shape.constant_slots, total, parts * chunks * again, slots.constants))
        if shape.buffers.tables:
            often = parts * again if self.geometry.tables == "each" else 1
            loaded.append((shape.table_slots, shape.table_slots * often, often, slots.constants))
        results = parts * bands
        loaded += [(shape.output_all // results, shape.output_all, results, slots.output)] * resident.beside
        moved = loading = first = alone = 0
        for one, total, often, buffers in loaded:
            moved += total
            loading += transfer_cycles(total, often)
            first += transfer_cycles(one)
            if buffers == 1:
                alone += transfer_cycles(total - one, often - 1)
        if resident.output:
            return _Moved(loading, 0, moved, first, 0, alone)
        storing, last = transfer_cycles(shape.output_all, results), transfer_cycles(shape.last_slots)
        apart = 0
        if self.geometry.in_place:
            alone += storing - last if slots.input == 1 else 0
        elif slots.output == 1:
            # Only the last of several chunks needs the buffer of the result.
            apart = max(storing - last - shape.compute * (chunks - 1) // chunks, 0)
        return _Moved(loading, storing, moved + shape.output_all, first, last, max(alone, apart))

    def _moved_by(self, resident: Resident) -> tuple[tuple[int, ...], bool]:
        """Numbers of the operands that are streamed, and whether constants are loaded: asked for every candidate."""
        found = self._moves.get(resident)
        if found is None:
            found = self._moves[resident] = streams(self.geometry, resident), loads_constants(self.geometry, resident)
        return found

    def _input_loads(self, shape: Shape, tiling: Tiling, index: int) -> int:
        """How often a tile of an operand is loaded."""
        parts, bands, chunks, different = shape.parts, shape.bands, shape.chunks, shape.buffers.input_tiles[index]
        if self.geometry.nest.grouped or self.geometry.repeats:
            outer = parts if tiling.channels_outer else bands
            return different if different in (1, outer) or different <= tiling.slots.input else parts * bands
        kept = tiling.slots.input >= (bands * chunks if tiling.channels_outer else chunks)
        return bands * chunks * (1 if kept else parts)

    def traffic(self, tiling: Tiling, resident: Resident) -> int:
        """Slots of all that is loaded and stored."""
        return self._moved(self.shape_of(tiling), tiling, resident).slots

    def waits(self, tiling: Tiling, resident: Resident) -> int:
        """Cycles that moving the bytes takes longer than the computation; below 0: those in which the bus idles."""
        shape = self.shape_of(tiling)
        moved = self._moved(shape, tiling, resident)
        return max(moved.slots, moved.loading) - shape.compute

    def _make_shape(self, channels: int, rows: int, depth: int) -> Shape:
        geometry, nest = self.geometry, self.geometry.nest
        parts, bands, inputs = ceil_div(nest.channels, channels), ceil_div(nest.rows, rows), range(geometry.inputs)
        whole, loaded = channels == nest.channels, geometry.has_constants
        cut = _Cut(pieces(nest.channels, channels), pieces(nest.rows, rows), _chunks(nest.input_channels, depth))
        return Shape(
            channels=channels,
            rows=rows,
            depth=depth,
            parts=parts,
            bands=bands,
            chunks=ceil_div(nest.input_channels, depth) if depth else 1,
            buffers=self._buffers_of(Tiling(channels, rows, depth=depth)),
            input_slots=tuple([input_slots(self.bus, geometry, channels, rows, index, depth) for index in inputs]),
            input_all=tuple([self._input_all(cut, index) for index in inputs]),
            constant_slots=constant_slots(self.bus, geometry, channels, depth, whole) if loaded else 0,
            constant_all=self._constants_all(cut, whole) if loaded else 0,
            table_slots=self.bus.dense_slots(geometry.table_bytes(channels)),
            output_all=self._output_all(cut),
            last_slots=output_slots(self.bus, geometry, (nest.channels - 1) % channels + 1, (nest.rows - 1) % rows + 1),
            compute=self._computed(cut),
        )

    def _constants_all(self, cut: _Cut, whole: bool) -> int:
        """Slots of all constants."""
        found = [
            many * frequent * constant_slots(self.bus, self.geometry, size, deep, whole)
            for size, many in cut.channels
            for deep, frequent in cut.depth
        ]
        return sum(found)

    def _output_all(self, cut: _Cut) -> int:
        """Slots of all results."""
        found = [
            many * often * output_slots(self.bus, self.geometry, size, height)
            for size, many in cut.channels
            for height, often in cut.rows
        ]
        return sum(found)

    def _input_all(self, cut: _Cut, index: int) -> int:
        """Slots of all different tiles of an operand."""
        geometry, repeat = self.geometry, self.geometry.repeat(index)
        parted = geometry.nest.grouped and not repeat.channels
        found = [
            many * often * frequent * input_slots(self.bus, geometry, size, height, index, deep)
            for size, many in (cut.channels if parted else ((cut.channels[0][0], 1),))
            for height, often in (((cut.rows[0][0], 1),) if repeat.rows else cut.rows)
            for deep, frequent in cut.depth
        ]
        return sum(found)

    def _computed(self, cut: _Cut) -> int:
        """Cycles of all tiles together."""
        found = [
            many * often * frequent * self.compute.tile(size, height, deep)
            for size, many in cut.channels
            for height, often in cut.rows
            for deep, frequent in cut.depth
        ]
        return sum(found)


def pieces(size: int, step: int) -> tuple[tuple[int, int], ...]:
    """The different pieces of ``size`` cut in steps, each (size, how many)."""
    whole, rest = divmod(size, step)
    return ((step, whole), (rest, 1)) if rest else ((step, whole),)


def _chunks(inputs: int, depth: int) -> tuple[tuple[int, int], ...]:
    """The different pieces of the input channels, 0 where they are not cut."""
    return pieces(inputs, depth) if depth else ((0, 1),)


def priced(cycles: float, slots: int) -> float:
    """Cycles, and what so many slots of the bus cost even where nobody waits for them."""
    return cycles + TRAFFIC * slots


def least_cycles(costs: Sequence[LayerCost], compute: int, nbytes: int) -> int:
    """What layers take at least in which EX computes for so long, in a scratchpad of ``nbytes`` bytes.

    When the layers before one are done, that holds the constants of all from there on, or the bus still has to bring
    what it cannot hold.
    """
    least, done, needed = compute, compute, 0
    for cost in reversed(costs):
        geometry, nest = cost.geometry, cost.geometry.nest
        done -= cost.shape(nest.channels, nest.rows).compute
        needed += geometry.constant_bytes(nest.channels) if geometry.has_constants else 0
        least = max(least, done + cost.bus.cycles_of(needed - nbytes))
    return least


# Groups. -------------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class GroupFloor:
    """What layers take at least in ``bands`` bands, in whatever room there is and whatever others come in front.

    ``least``: so far, but for what the group reads. ``computed``: cycles of all; ``stored``: slots of results;
    ``constants``: cycles of the bus for those.
    """

    bus: Bus
    bands: int
    least: float = 0.0
    computed: int = 0
    stored: int = 0
    constants: int = 0

    def store(self, slots: int) -> None:
        """What leaves the scratchpad in every band."""
        self.stored += self.bands * slots
        self.least = priced(self.least, self.bands * slots)

    def compute(self, cycles: int, overhead: float, nbytes: int) -> None:
        """A layer, with constants of so many bytes.

        Those are held, and the first layer waits for all, or come again in every band: the cheaper of both.
        """
        constants, price = self.bus.cycles_of(nbytes), TRAFFIC + min(EXPOSED, TRAFFIC * (self.bands - 1))
        self.computed += cycles
        self.constants += constants
        self.least += cycles + overhead + price * constants

    def reading(self, slots: int) -> float:
        """What the group takes at least that reads, and keeps for others, so much in all bands."""
        waits = slots + self.stored + self.constants - self.computed
        return priced(self.least, slots) + max(0, waits)


class Carried(NamedTuple):
    """What a buffer takes that layers of a group read: bytes all the time, and ``near`` at layers first to last.

    The rest as in :class:`GroupAccount`; ``apart``: element-wise layers to which its bands do not lie densely.
    """

    kept: bool
    fixed: int = 0
    near: tuple[int, int, int] | None = None
    traffic: int = 0
    loads: int = 0
    stores: int = 0
    edge: int = 0
    apart: tuple[int, ...] = ()
    alone: tuple[int, int, int] | None = None


@dataclass(eq=False, slots=True)
class GroupAccount:
    """What a group takes: bytes all the time and at each layer, slots of the bus, cycles of loads and stores with what
    they wait, of those that nothing hides (``edge``), and of the first constants.

    ``apart``: of how many operands and results of an element-wise layer the bands do not lie densely. ``alone``: loads
    that layers first to last of the group cannot hide, with their cycles.
    """

    near: list[int]
    kept: list[str] = field(default_factory=list)
    apart: dict[int, int] = field(default_factory=dict)
    fixed: int = 0
    traffic: int = 0
    loads: int = 0
    stores: int = 0
    edge: int = 0
    constants: int = 0
    alone: list[tuple[int, int, int]] = field(default_factory=list)

    def load(self, slots: int, transfers: int) -> None:
        """So many transfers that take the bus for so many slots together."""
        self.traffic += slots
        self.loads += transfer_cycles(slots, transfers)

    def store(self, slots: int, transfers: int) -> None:
        """The same of what goes to system memory."""
        self.traffic += slots
        self.stores += transfer_cycles(slots, transfers)

    def enter(self, name: str, moves: Carried, first: int) -> None:
        """What a buffer takes, in a group from layer ``first`` on."""
        kept, _, near, _, _, _, _, apart, alone = moves
        if kept:
            self.kept.append(name)
        for index in apart:
            self.apart[index] = self.apart.get(index, 0) + 1
        if near is not None:
            maker, reader, nbytes = near
            for at in range(maker - first, reader - first + 1):
                self.near[at] += nbytes
        if alone is not None:
            reader, last, cycles = alone
            self.alone.append((reader - first, last - first, cycles))
        self.fixed += moves.fixed
        self.traffic += moves.traffic
        self.loads += moves.loads
        self.stores += moves.stores
        self.edge += moves.edge

    def cycles(self, compute: Sequence[int], overhead: float) -> float:
        """Estimated cycles of all, where every layer computes so long."""
        alone = [cycles + sum(compute[reader : last + 1]) for reader, last, cycles in self.alone]
        busy = max(sum(compute), self.loads, self.stores, self.traffic, *alone)
        return priced(busy + self.edge + EXPOSED * self.constants, self.traffic) + overhead
