"""Estimated cycles of one layer under a tiling, and of a group of layers computed in bands.

The estimates compare compute cycles with bus slots. They rank tilings and groups and are not
bounds. Each layer is estimated alone: fixed prices represent its effect on the layers before and
after it. The command clock (:mod:`byoc.estimate.commands`) estimates whole regions.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc.estimate.bus import DEFAULT_BUS, MemoryBus
from byoc.estimate.commands import Compute, constant_slots, input_slots, output_slots
from byoc.estimate.constants import (
    EXPOSED,
    FIRST_OVERHEAD,
    HIDDEN,
    TILE_OVERHEAD,
    TILE_SHARE,
    TRAFFIC,
)
from byoc.operators.geometry import Geometry
from byoc.operators.layer import (
    Buffers,
    Resident,
    Tiling,
    buffers_of,
    has_loaded_constants,
    streams,
)
from isa.arch import Arch
from isa.instruction import ceil_div


class TileCost(NamedTuple):
    """Costs of a tile shape that depend neither on loop order nor on buffer counts.

    ``depth`` is the number of input channels per tile, 0 for all of them; the sums of ``chunks``
    tiles form one result. ``input_slots``, ``constant_slots`` and ``table_slots`` are the bus slots
    of the first tile, and fields that end in ``_all`` those of all different tiles together.
    ``last_slots`` are the slots of the last store. ``input_slots`` and ``input_all`` have one entry
    per streamed operand. ``compute`` is the cycles of all tiles.
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
        """Number of tiles of a layer with this tile shape."""
        return self.parts * self.bands * self.chunks


class _Cut(NamedTuple):
    """Pieces that a tile shape cuts a layer into, by dimension, as (size, count) pairs."""

    channels: tuple[tuple[int, int], ...]
    rows: tuple[tuple[int, int], ...]
    depth: tuple[tuple[int, int], ...]


class _Moved(NamedTuple):
    """Transfer cycles of LD and of ST for one layer, and the bus slots of both.

    ``first`` is the cycles of the loads that the first tile waits for, ``last`` of the last store.
    ``apart`` is the cycles of transfers that cannot overlap with computation because an operand or
    a result has too few buffers.
    """

    loading: int
    storing: int
    slots: int
    first: int
    last: int
    apart: int


class LayerCost:
    """Estimates of the cycles and bus traffic of one layer, cached by tile shape.

    ``compute`` gives the compute cycles of the layer's tiles.
    """

    def __init__(self, geometry: Geometry, arch: Arch, bus: MemoryBus = DEFAULT_BUS) -> None:
        self.bus = bus
        self.geometry = geometry
        self.compute = Compute(geometry, arch)
        self._arch = arch
        self._shapes: dict[tuple[int, int, int], TileCost] = {}
        self._buffers: dict[tuple[int, int, int], Buffers] = {}
        self._moves: dict[Resident, tuple[tuple[int, ...], bool]] = {}
        self._reduced: dict[tuple[Tiling, Resident], Tiling] = {}
        self._share = 0.0

    def shape(self, channels: int, rows: int, depth: int = 0) -> TileCost:
        """Return the costs of tiles with these numbers of channels, rows and input channels."""
        key = channels, rows, depth
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = self._make_shape(channels, rows, depth)
        return found

    def shape_of(self, tiling: Tiling) -> TileCost:
        """Return the costs of a tiling's tile shape."""
        return self.shape(tiling.channels, tiling.rows, tiling.depth)

    def compute_working_set(self, tiling: Tiling, resident: Resident) -> int:
        """Return the size in bytes of all tile buffers of a tiling, each rounded up."""
        return self._buffers_of(tiling).count_taken(
            tiling.slots, resident, constants=self._find_moved_by(resident)[1]
        )

    def drop_surplus_buffers(self, tiling: Tiling, resident: Resident) -> Tiling:
        """Return a tiling reduced to the tile buffers that it uses.

        Tilings with equal results stream the same commands.
        """
        key = tiling, resident
        if key not in self._reduced:
            buffers = self._buffers_of(tiling)
            constants = self._find_moved_by(resident)[1]
            slots = buffers.limit_slots(tiling.slots, resident, constants=constants)
            self._reduced[key] = tiling._replace(slots=slots)
        return self._reduced[key]

    def _buffers_of(self, tiling: Tiling) -> Buffers:
        """Return the tile buffers of a tiling from the cache, or compute them.

        This cache is separate from that of tile shapes, because most tilings do not fit and need no
        shape.
        """
        key = tiling.channels, tiling.rows, tiling.depth
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = buffers_of(self.geometry, tiling, self._arch.granule)
        return found

    def estimate(self, tiling: Tiling, resident: Resident) -> float:
        """Return the estimated cycles of a tiling, with the overhead of its tiles."""
        shape = self.shape_of(tiling)
        moved = self._compute_moved(shape, tiling, resident)
        edge = moved.first + moved.last
        slots = moved.slots
        # A tile is computed after the last load and before the first store; work of earlier layers
        # can overlap with it.
        one = 0 if resident.follows else shape.compute // shape.tiles
        busy = max(
            shape.compute + moved.apart,
            moved.loading - moved.first + one,
            moved.storing - moved.last + one,
            slots - edge + one,
        )
        cycles = busy + edge - self._compute_hidden(shape, resident)
        return price_cycles(cycles, slots) + self.overhead(shape.tiles, resident.follows)

    def least(self, shape: TileCost, resident: Resident) -> float:
        """Return a lower bound of the cycles of all tilings with this shape.

        The bound also covers tilings with the same channels and fewer rows. It assumes that every
        byte is loaded once.
        """
        operands, constants = self._find_moved_by(resident)
        slots = shape.constant_all if constants else 0
        for index in operands:
            slots += shape.input_all[index]
        if not resident.output:
            slots += shape.output_all * (1 + resident.beside)
        edge = self.bus.transfer_cycles(0, len(operands) + (not resident.output) + resident.beside)
        busy = max(shape.compute + edge, slots - self._compute_hidden(shape, resident))
        return price_cycles(busy, slots) + self.overhead(shape.tiles, resident.follows)

    def floor(self, resident: Resident) -> float:
        """Return a lower bound of the layer's cycles: the bound for a single tile."""
        nest = self.geometry.nest
        return self.least(self.shape(nest.channels, nest.rows), resident)

    def floor_in_bands(self) -> int:
        """Return a lower bound of the layer's cycles in a group, which has at least two bands."""
        nest = self.geometry.nest
        return self.compute.tile(nest.channels, nest.rows) + 2 * TILE_OVERHEAD

    def _compute_hidden(self, shape: TileCost, resident: Resident) -> float:
        """Return how many cycles of a layer's first constant load earlier layers hide."""
        if not (resident.follows and self._find_moved_by(resident)[1]):
            return 0.0
        return HIDDEN * min(self.bus.transfer_cycles(shape.constant_slots), shape.compute)

    def overhead(self, tiles: int, follows: bool = True) -> float:
        """Return the overhead cycles of a layer that has ``tiles`` tiles.

        ``follows`` has the meaning of :class:`Resident`.
        """
        if not self._share:  # the single tile approximates the layer's total cycles
            nest = self.geometry.nest
            whole = self.shape(nest.channels, nest.rows)
            moved = whole.constant_all + sum(whole.input_all) + whole.output_all
            self._share = max(whole.compute, moved) / TILE_SHARE
        return ((TILE_OVERHEAD if follows else FIRST_OVERHEAD) + self._share) * tiles

    def _compute_moved(self, shape: TileCost, tiling: Tiling, resident: Resident) -> _Moved:
        parts = shape.parts
        bands = shape.bands
        chunks = shape.chunks
        slots = tiling.slots
        operands, constants = self._find_moved_by(resident)
        kept = slots.constants >= (chunks if tiling.channels_outer else parts * chunks)
        again = 1 if kept else bands
        # slots of the first load and of all, number of loads, buffers
        loaded: list[tuple[int, int, int, int]] = []
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
        loaded += [
            (shape.output_all // results, shape.output_all, results, slots.output)
        ] * resident.beside
        moved = loading = first = alone = waited = 0
        for one, total, often, buffers in loaded:
            moved += total
            loading += self.bus.transfer_cycles(total, often)
            first += self.bus.transfer_cycles(one)
            if buffers == 1:
                alone += self.bus.transfer_cycles(total - one, often - 1)
                waited += total - one
        if resident.output:
            return _Moved(loading, 0, moved, first, 0, alone)
        storing = self.bus.transfer_cycles(shape.output_all, results)
        last = self.bus.transfer_cycles(shape.last_slots)
        apart = 0
        if self.geometry.in_place:
            alone += storing - last if slots.input == 1 else 0
        elif slots.output == 1:
            # Loads that nothing overlaps share the bus with the stores. Only the last of several
            # chunks writes to the result buffer.
            both = waited + shape.output_all - shape.last_slots if waited else 0
            apart = max(storing - last, both) - shape.compute * (chunks - 1) // chunks
        return _Moved(loading, storing, moved + shape.output_all, first, last, max(alone, apart))

    def _find_moved_by(self, resident: Resident) -> tuple[tuple[int, ...], bool]:
        """Return the indices of streamed operands, and whether a layer loads constants.

        Cached for speed.
        """
        found = self._moves.get(resident)
        if found is None:
            found = self._moves[resident] = (
                streams(self.geometry, resident),
                has_loaded_constants(self.geometry, resident),
            )
        return found

    def _input_loads(self, shape: TileCost, tiling: Tiling, index: int) -> int:
        """Return the number of tile loads of an operand, repeated loads included."""
        parts = shape.parts
        bands = shape.bands
        chunks = shape.chunks
        different = shape.buffers.input_tiles[index]
        if self.geometry.nest.grouped or self.geometry.repeats:
            outer = parts if tiling.channels_outer else bands
            return (
                different
                if different in (1, outer) or different <= tiling.slots.input
                else parts * bands
            )
        kept = tiling.slots.input >= (bands * chunks if tiling.channels_outer else chunks)
        return bands * chunks * (1 if kept else parts)

    def traffic(self, tiling: Tiling, resident: Resident) -> int:
        """Return how many bus slots all loads and stores of a layer take under a tiling."""
        return self._compute_moved(self.shape_of(tiling), tiling, resident).slots

    def compute_waits(self, tiling: Tiling, resident: Resident) -> int:
        """Return by how many cycles a layer's transfers exceed its computation.

        Negative if the bus idles.
        """
        shape = self.shape_of(tiling)
        moved = self._compute_moved(shape, tiling, resident)
        return max(moved.slots, moved.loading) - shape.compute

    def _make_shape(self, channels: int, rows: int, depth: int) -> TileCost:
        geometry = self.geometry
        nest = self.geometry.nest
        parts = ceil_div(nest.channels, channels)
        bands = ceil_div(nest.rows, rows)
        inputs = range(geometry.inputs)
        whole = channels == nest.channels
        loaded = geometry.has_constants
        cut = _Cut(
            pieces(nest.channels, channels),
            pieces(nest.rows, rows),
            _chunks(nest.input_channels, depth),
        )
        return TileCost(
            channels=channels,
            rows=rows,
            depth=depth,
            parts=parts,
            bands=bands,
            chunks=ceil_div(nest.input_channels, depth) if depth else 1,
            buffers=self._buffers_of(Tiling(channels, rows, depth=depth)),
            input_slots=tuple(
                [input_slots(self.bus, geometry, channels, rows, index, depth) for index in inputs]
            ),
            input_all=tuple([self._input_all(cut, index) for index in inputs]),
            constant_slots=constant_slots(self.bus.constants, geometry, channels, depth, whole)
            if loaded
            else 0,
            constant_all=self._constants_all(cut, whole) if loaded else 0,
            table_slots=self.bus.constants.dense_slots(geometry.table_bytes(channels)),
            output_all=self._output_all(cut),
            last_slots=output_slots(
                self.bus, geometry, (nest.channels - 1) % channels + 1, (nest.rows - 1) % rows + 1
            ),
            compute=self._compute_cut(cut),
        )

    def _constants_all(self, cut: _Cut, whole: bool) -> int:
        found = [
            many * frequent * constant_slots(self.bus.constants, self.geometry, size, deep, whole)
            for size, many in cut.channels
            for deep, frequent in cut.depth
        ]
        return sum(found)

    def _output_all(self, cut: _Cut) -> int:
        found = [
            many * often * output_slots(self.bus, self.geometry, size, height)
            for size, many in cut.channels
            for height, often in cut.rows
        ]
        return sum(found)

    def _input_all(self, cut: _Cut, index: int) -> int:
        """Return how many bus slots it takes to load each different tile of an operand once."""
        geometry = self.geometry
        repeat = self.geometry.repeat(index)
        parted = geometry.nest.grouped and not repeat.channels
        found = [
            many * often * frequent * input_slots(self.bus, geometry, size, height, index, deep)
            for size, many in (cut.channels if parted else ((cut.channels[0][0], 1),))
            for height, often in (((cut.rows[0][0], 1),) if repeat.rows else cut.rows)
            for deep, frequent in cut.depth
        ]
        return sum(found)

    def _compute_cut(self, cut: _Cut) -> int:
        found = [
            many * often * frequent * self.compute.tile(size, height, deep)
            for size, many in cut.channels
            for height, often in cut.rows
            for deep, frequent in cut.depth
        ]
        return sum(found)


def pieces(size: int, step: int) -> tuple[tuple[int, int], ...]:
    """Divide a dimension into pieces of ``step`` elements; return (size, count) pairs."""
    whole, rest = divmod(size, step)
    return ((step, whole), (rest, 1)) if rest else ((step, whole),)


def _chunks(inputs: int, depth: int) -> tuple[tuple[int, int], ...]:
    """Return the pieces of the input channels as (size, count) pairs.

    A size of 0 means that they are not cut.
    """
    return pieces(inputs, depth) if depth else ((0, 1),)


def price_cycles(cycles: float, slots: int) -> float:
    """Return ``cycles`` plus a price for each bus slot, also if the transfers are hidden."""
    return cycles + TRAFFIC * slots


def least_cycles(
    costs: Sequence[LayerCost], shared: Sequence[Hashable], compute: int, nbytes: int
) -> int:
    """Return a lower bound of the cycles of layers that compute ``compute`` cycles together.

    Before each layer, the scratchpad of ``nbytes`` bytes holds the constants of all remaining
    layers, or the bus still has to load those that do not fit. Layers with equal keys ``shared``
    have the same constants; None: constants of their own.
    """
    least = compute
    done = compute
    needed = 0
    counted: set[Hashable] = set()
    for cost, key in zip(reversed(costs), reversed(shared), strict=True):
        geometry = cost.geometry
        nest = cost.geometry.nest
        done -= cost.shape(nest.channels, nest.rows).compute
        if geometry.has_constants and (key is None or key not in counted):
            needed += geometry.constant_bytes(nest.channels)
            counted.add(key)
        least = max(least, done + cost.bus.constants.cycles_of(needed - nbytes))
    return least


# Groups.


@dataclass(eq=False, slots=True)
class GroupFloor:
    """Lower bound of the cycles of a group of layers computed in ``bands`` bands.

    The bound is valid for any scratchpad size and for any layers added in front. ``least`` is the
    bound so far, without the group's input loads. ``computed`` is the compute cycles of all layers,
    ``stored`` the bus slots of results, ``constants`` the bus cycles of constants.
    """

    bus: MemoryBus
    bands: int
    least: float = 0.0
    computed: int = 0
    stored: int = 0
    constants: int = 0

    def store(self, slots: int) -> None:
        """Add to the lower bound a store of ``slots`` bus slots in every band."""
        self.stored += self.bands * slots
        self.least = price_cycles(self.least, self.bands * slots)

    def compute(self, cycles: int, overhead: float, nbytes: int) -> None:
        """Add to the lower bound a layer with ``nbytes`` bytes of constants.

        The constants are loaded once, and the first layer waits for all of them, or they are loaded
        again in every band; the bound assumes the cheaper way.
        """
        constants = self.bus.constants.cycles_of(nbytes)
        price = TRAFFIC + min(EXPOSED, TRAFFIC * (self.bands - 1))
        self.computed += cycles
        self.constants += constants
        self.least += cycles + overhead + price * constants

    def add_slots(self, slots: int) -> float:
        """Return the bound after adding ``slots`` bus slots for inputs and stored results."""
        waits = slots + self.stored + self.constants - self.computed
        return price_cycles(self.least, slots) + max(0, waits)


class Carried(NamedTuple):
    """Scratchpad bytes and transfers of one buffer that layers of a group read.

    ``fixed`` bytes are live all the time. ``near`` is (first layer, last layer, bytes live at those
    layers). ``apart`` are the element-wise layers for which the buffer's bands are not dense. The
    other fields are those of :class:`GroupAccount`.
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
    """Scratchpad bytes and transfers of a group.

    ``fixed`` bytes are live all the time, ``near`` at each layer. ``traffic`` is bus slots;
    ``loads`` and ``stores`` are cycles including latency; ``edge`` is the cycles of transfers that
    nothing hides; ``constants`` is the cycles of the first constants. ``apart`` counts, by
    element-wise layer, operands and results whose bands are not dense. ``alone`` has (first layer,
    last layer, cycles) of loads that those layers cannot hide.
    """

    bus: MemoryBus
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
        """Add to the group loads of ``transfers`` transfers that take ``slots`` bus slots."""
        self.traffic += slots
        self.loads += self.bus.transfer_cycles(slots, transfers)

    def store(self, slots: int, transfers: int) -> None:
        """Add to the group stores of ``transfers`` transfers that take ``slots`` bus slots."""
        self.traffic += slots
        self.stores += self.bus.transfer_cycles(slots, transfers)

    def enter(self, name: str, moves: Carried, first: int) -> None:
        """Add the costs of buffer ``name`` in a group that begins with layer ``first``."""
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
        """Return the estimated cycles of the group, given the compute cycles of every layer."""
        alone = [cycles + sum(compute[reader : last + 1]) for reader, last, cycles in self.alone]
        busy = max(sum(compute), self.loads, self.stores, self.traffic, *alone)
        return price_cycles(busy + self.edge + EXPOSED * self.constants, self.traffic) + overhead
