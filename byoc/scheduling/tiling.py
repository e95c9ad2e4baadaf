"""How an operation is cut into tiles: what fits, what it costs, which cut is best.

The space has every legal size of tile, loop order and useful number of buffers, from coarse to fine, in one order; the
search looks at few of them, chosen by what the scratchpad holds and the estimated cycles. An answer that asks of a
budget only whether it holds so many bytes is the answer for all budgets between those that it held and those that it
did not: what is searched again and again, for budgets that differ, is so searched once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import product
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from byoc.estimate.account import LayerCost, Shape
from byoc.estimate.bus import DEFAULT_BUS, Bus
from byoc.estimate.constants import (
    BESIDE,
    CUTS,
    FEWER,
    FINER,
    FLAT_BAND,
    FULL,
    FULL_CHOICE,
    GOOD,
    MOST_OUTPUTS,
    REMEMBERED_TILINGS,
    ROW_CUTS,
    THRIFT,
)
from byoc.operators.layer import (
    Resident,
    Slots,
    Tiling,
    chunk_count,
    counts,
    loads_constants,
    order_of,
    sizes,
    streamed,
    streams,
    tile_count,
    tiles,
    working_set,
)
from byoc.operators.nest import Tile, allowed_channels
from byoc.operators.operator import Geometry
from byoc.options import ORDERS, LayerChoice
from isa.arch import Arch
from isa.instruction import ceil_div
from isa.ops.convolution import MAPPING

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")


class Budget:
    """So many bytes. Every answer so far is the same for ``least`` bytes and more, but for fewer than ``most``."""

    __slots__ = ("_nbytes", "least", "most")

    def __init__(self, nbytes: int) -> None:
        self._nbytes, self.least, self.most = nbytes, -math.inf, math.inf

    def holds(self, nbytes: int) -> bool:
        if nbytes <= self._nbytes:
            if nbytes > self.least:
                self.least = nbytes
            return True
        if nbytes < self.most:
            self.most = nbytes
        return False

    def left(self, taken: int) -> int:
        """The bytes beside so many others: who uses them says by :meth:`narrow` for which all would be alike."""
        return self._nbytes - taken

    def all(self) -> int:
        """All of the bytes: the answer is for exactly so many."""
        self.narrow(self._nbytes, self._nbytes + 1)
        return self._nbytes

    def narrow(self, least: float, most: float) -> None:
        """An answer was for ``least`` bytes and more, but for fewer than ``most``."""
        self.least, self.most = max(self.least, least), min(self.most, most)


class Room:
    """What others leave of a budget."""

    __slots__ = ("_budget", "_taken")

    def __init__(self, budget: Budget, taken: int) -> None:
        self._budget, self._taken = budget, taken

    def holds(self, nbytes: int) -> bool:
        return self._budget.holds(nbytes + self._taken)


class Answers(Generic[Question, Answer]):
    """Answers to questions, each with the budgets for which it is the answer."""

    def __init__(self) -> None:
        self._known: dict[Question, list[tuple[float, float, Answer]]] = {}

    def find(self, question: Question, budget: int, ask: Callable[[Budget], Answer]) -> Answer:
        """What ``ask`` says of a budget; it is asked where no answer to this question is known for so many bytes."""
        return self._find(question, budget, ask)[2]

    def within(self, question: Question, budget: Budget, taken: int, ask: Callable[[Budget], Answer]) -> Answer:
        """The same of what a larger budget leaves beside ``taken`` bytes, as part of an answer about that."""
        least, most, answer = self._find(question, budget.left(taken), ask)
        budget.narrow(least + taken, most + taken)
        return answer

    def _find(self, question: Question, budget: int, ask: Callable[[Budget], Answer]) -> tuple[float, float, Answer]:
        known = self._known.setdefault(question, [])
        for found in known:
            if found[0] <= budget < found[1]:
                return found
        asked = Budget(budget)
        answer = ask(asked)
        known.append((asked.least, asked.most, answer))
        return known[-1]


def tilings(geometry: Geometry, arch: Arch, resident: Resident, budget: int) -> Iterator[Tiling]:
    """Every legal tiling whose tile buffers take at most ``budget`` bytes: the complete space, shape by shape.

    Thousands for a small layer, more than anybody tries for a large one: take :func:`shapes`, draw some, and ask
    :func:`buffered` for those.
    """
    for shape in shapes(geometry, resident):
        yield from buffered(geometry, arch, resident, budget, shape)


def smallest_tiling(geometry: Geometry, arch: Arch) -> Tiling:
    """The smallest working set there is with everything streamed.

    One output channel and one output row where rows can be cut, of one input channel where that and its sums are less.
    """
    channels, resident = allowed_channels(geometry.nest, 1), streamed(geometry)
    whole = Tiling(channels, 1 if may_cut_rows(geometry, channels) else geometry.nest.rows)
    cuts = geometry.nest.input_channels > 1 and may_cut_depth(geometry, resident)
    tilings = (whole, whole._replace(depth=1)) if cuts else (whole,)
    return min(tilings, key=lambda tiling: working_set(geometry, tiling, resident, arch.granule))


def shapes(geometry: Geometry, resident: Resident) -> Iterator[Tiling]:
    """Every legal tile shape, as the tiling with one buffer each: by depth, then by channels, then by rows."""
    for depth, channels in product(depths(geometry, resident), channel_tiles(geometry, resident)):
        for rows in row_bands(geometry, channels):
            yield Tiling(channels, rows, depth=depth)


def buffered(geometry: Geometry, arch: Arch, resident: Resident, budget: int, shape: Tiling) -> Iterator[Tiling]:
    """The tilings of one shape that fit: either loop order where there are two, and all useful numbers of buffers."""
    if working_set(geometry, shape, resident, arch.granule) > budget:
        return
    parts, bands = counts(geometry, shape)
    operands, chunks = streams(geometry, resident), chunk_count(geometry, shape)
    different = max((geometry.input_tiles(index, parts, bands) for index in operands), default=0) * chunks
    constants = parts * chunks if loads_constants(geometry, resident) or geometry.tables == "each" else 0
    outputs = 0 if resident.output or geometry.in_place else min(parts * bands, MOST_OUTPUTS)
    orders = (False, True) if parts > 1 and bands > 1 else (False,)
    for inputs, kept in product(useful(different, chunks), useful(constants, chunks)):
        for output in useful(outputs):
            tiling = shape._replace(slots=Slots(inputs, kept, output))
            if working_set(geometry, tiling, resident, arch.granule) > budget:
                break
            yield from (tiling._replace(channels_outer=outer) for outer in orders)


def useful(different: int, chunks: int = 1) -> tuple[int, ...]:
    """Numbers of buffers worth trying for ``different`` tiles, of which ``chunks`` come again and again; from 1 up.

    Up to :data:`FULL_CHOICE` all of them; of more powers of two, and what keeps every tile.
    """
    powers = (1 << exponent for exponent in range(different.bit_length()))
    return tuple(sorted({1, *(n for n in (*range(FULL_CHOICE + 1), *powers, chunks, different) if 1 < n <= different)}))


def channel_tiles(geometry: Geometry, resident: Resident) -> tuple[int, ...]:
    """Every legal channel tile, from large to small."""
    nest = geometry.nest
    return tuple(
        size
        for size in range(nest.channels, 0, -1)
        if allowed_channels(nest, size) == size and lies_dense(geometry, size, resident)
    )


def row_bands(geometry: Geometry, channels: int) -> tuple[int, ...]:
    """Every legal band of so many channels, from high to low; those of flat layers in steps of :data:`FLAT_BAND`."""
    rows = geometry.nest.rows
    if not may_cut_rows(geometry, channels):
        return (rows,)
    if is_flat(geometry):
        return (rows, *range((rows - 1) // FLAT_BAND * FLAT_BAND, 0, -FLAT_BAND))
    return tuple(range(rows, 0, -1))


def depths(geometry: Geometry, resident: Resident) -> tuple[int, ...]:
    """Every legal number of input channels a tile, 0, all at once, first, then from many to few."""
    inputs = geometry.nest.input_channels
    return (0, *(range(inputs - 1, 0, -1) if may_cut_depth(geometry, resident) else ()))


def is_flat(geometry: Geometry) -> bool:
    """Whether rows are single elements, or atoms of them."""
    nest = geometry.nest
    return geometry.channels.plain.flat or (not nest.matrix and nest.columns == nest.channels == 1)


def may_cut_rows(geometry: Geometry, channels: int, resident: Resident | None = None) -> bool:
    """Whether bands of rows are possible. Where channels cannot lie apart: of one channel, or of a matrix.

    Atoms of a band lie apart in a ``resident`` tensor.
    """
    nest, traits = geometry.nest, geometry.operator.traits
    apart = geometry.channels.apart and not (geometry.planes or traits.flat or nest.grouped)
    if apart and resident is not None and (resident.output or any(resident.inputs[: geometry.inputs])):
        return False
    return nest.splits_rows and not (traits.whole_planes and channels > 1 and not nest.matrix)


def may_cut_depth(geometry: Geometry, resident: Resident) -> bool:
    """Whether several commands can add up sums. Some columns of a matrix that lies there as a whole are not dense."""
    nest = geometry.nest
    return geometry.splits_depth and not (nest.matrix and nest.rows > 1 and any(resident.inputs))


def lies_dense(geometry: Geometry, channels: int, resident: Resident) -> bool:
    """Whether operands and result lie as the instruction wants: columns of a resident matrix do not lie dense."""
    nest = geometry.nest
    if channels == nest.channels:
        return True
    if geometry.second == "columns" and any(resident.inputs[geometry.inputs :]) and nest.input_channels > 1:
        return False
    reads_columns = nest.grouped and any(resident.inputs)
    return not (nest.matrix and nest.rows > 1 and (resident.output or reads_columns))


_SLOTS = (Slots(2, 2, 2), Slots(1, 1, 2), Slots(1, 1, 1), Slots(1, 2, 2))
"""Buffers that are tried near a tiling: what has one may be loaded ahead into any room that there is."""


class Choice(NamedTuple):
    """A tiling with its estimated cycles."""

    tiling: Tiling
    cycles: float


class TileSearch:
    """Finds tilings of one layer by their ``cost``; remembers its answers, for the planner asks again and again."""

    def __init__(self, geometry: Geometry, arch: Arch, bus: Bus = DEFAULT_BUS) -> None:
        self._geometry = geometry
        self._arch = arch
        self.cost = LayerCost(geometry, arch, bus)
        self.channels = tuple(_channel_tiles(geometry, arch))
        self._narrow = tuple(_narrow_tiles(geometry, arch))
        self.sizes = tuple(dict.fromkeys((*self.channels, *self._narrow)))
        self._rows = tuple(_row_bands(geometry))
        self._chunks = tuple(_input_chunks(geometry, arch))
        self._sizes = self._by_count((0,)), self._by_count(self._chunks)
        self._cuts: dict[Tiling, tuple[tuple[Tile, ...], tuple[int, ...]]] = {}
        self._best = Answers[Resident, Choice | None]()
        self._thriftiest = Answers[tuple[Choice, Resident], Tiling]()

    def best(self, resident: Resident, budget: int) -> Choice | None:
        """The cheapest tiling whose tile buffers take at most ``budget`` bytes, or None."""
        if budget <= 0:
            return None
        return self._best.find(resident, budget, lambda asked: self._search(resident, asked))

    def cut(self, tiling: Tiling) -> tuple[tuple[Tile, ...], tuple[int, ...]]:
        """The tiles of a tiling in order of execution, with the cycles that each computes."""
        key = tiling._replace(slots=Slots())
        found = self._cuts.get(key)
        if found is None:
            if len(self._cuts) == REMEMBERED_TILINGS:
                self._cuts.clear()
            made = tiles(self._geometry, tiling)
            found = self._cuts[key] = made, tuple([self.cost.compute.tile(*sizes(tile)) for tile in made])
        return found

    def best_beside(self, resident: Resident, budget: Budget, taken: int) -> Choice | None:
        """The same of what ``budget`` leaves beside ``taken`` bytes."""
        if not budget.holds(taken + 1):
            return None
        return self._best.within(resident, budget, taken, lambda asked: self._search(resident, asked))

    def thriftiest_beside(self, choice: Choice, resident: Resident, budget: Budget, taken: int) -> Tiling:
        """``choice``, the best for that, or the double-buffered tiling in the fewest bytes that takes as long.

        What a layer leaves of the scratchpad lets loads of later layers run ahead.
        """
        question = choice, resident
        return self._thriftiest.within(question, budget, taken, lambda asked: self._thrifty(choice, resident, asked))

    def _thrifty(self, choice: Choice, resident: Resident, budget: Budget) -> Tiling:
        tiling, limit, cost = choice.tiling, THRIFT * choice.cycles, self.cost
        least = cost.working_set(tiling, resident)
        for count, tile in self._sizes[0]:
            if cost.floor(resident) + cost.overhead(count, resident.follows) > limit:
                break
            dense = lies_dense(self._geometry, tile.channels, resident)
            for rows in self._bands(tile.channels, resident) if dense else ():
                if not budget.holds(cost.working_set(tile._replace(rows=rows), resident)):
                    continue
                shape = cost.shape(tile.channels, rows)
                if cost.least(shape, resident) > limit:
                    break
                for outer in (False, True) if shape.parts > 1 and shape.bands > 1 else (False,):
                    other = Tiling(tile.channels, rows, outer, Slots(2, 2, 2))
                    nbytes = cost.working_set(other, resident)
                    if nbytes < least and cost.estimate(other, resident) <= limit:
                        least, tiling = nbytes, other
        return tiling

    def near(self, tiling: Tiling, resident: Resident, budget: int) -> Iterator[Tiling]:
        """Tilings that fit whose tiles differ in one respect from those of ``tiling``, with few buffers or two each."""
        geometry = self._geometry
        widths = _beside(tiling.channels, channel_tiles(geometry, resident))
        heights = _beside(tiling.rows, row_bands(geometry, tiling.channels))
        sizes = (
            (tiling.channels, tiling.rows),
            *((w, tiling.rows) for w in widths),
            *((tiling.channels, h) for h in heights),
        )
        for channels, rows in dict.fromkeys(sizes):
            if rows < geometry.nest.rows and not may_cut_rows(geometry, channels, resident):
                continue
            shape = self.cost.shape(channels, rows, tiling.depth)
            orders = (False, True) if shape.parts > 1 and shape.bands > 1 else (False,)
            for slots, outer in product(dict.fromkeys((tiling.slots, *_SLOTS)), orders):
                other = Tiling(channels, rows, outer, slots, tiling.depth)
                if self.cost.working_set(other, resident) <= budget:
                    yield other

    def computed(self, tiling: Tiling) -> int:
        return self.cost.shape_of(tiling).compute

    def pinned(self, pin: LayerChoice, resident: Resident, budget: int) -> Choice | None:
        """The cheapest tiling that is as ``pin`` says and whose tile buffers take at most ``budget`` bytes, or None."""
        best: Choice | None = None
        for shape in self._pinned_shapes(pin, resident):
            for tiling in self._pinned_buffers(pin, shape, resident, budget):
                cycles = self.cost.estimate(tiling, resident)
                if best is None or cycles < best.cycles:
                    best = Choice(tiling, cycles)
        return best

    def _pinned_shapes(self, pin: LayerChoice, resident: Resident) -> Iterator[Shape]:
        """Tile shapes with the sizes of ``pin``; of what that leaves open, those that the search knows."""
        nest, cuts = self._geometry.nest, may_cut_depth(self._geometry, resident)
        depths = [depth for depth in ((0, *self._chunks) if pin.depth is None else (pin.depth,)) if cuts or not depth]
        widths = (*self.channels, *self._narrow) if pin.channels is None else (pin.channels,)
        for depth, channels in product(depths, [size for size in widths if lies_dense(self._geometry, size, resident)]):
            bands = self._bands(channels, resident) if pin.rows is None else (pin.rows,)
            for rows in bands:
                if rows == nest.rows or may_cut_rows(self._geometry, channels, resident):
                    yield self.cost.shape(channels, rows, depth)

    def _pinned_buffers(self, pin: LayerChoice, shape: Shape, resident: Resident, budget: int) -> Iterator[Tiling]:
        """Tilings of a shape that fit, in the order and with the buffers of ``pin``; what that leaves open, in all.

        Where channels or rows are not cut there is one order, whatever was chosen.
        """
        orders = ORDERS if pin.order is None else (pin.order,)
        if shape.parts == 1 or shape.bands == 1:
            orders = ORDERS[:1]
        if pin.slots is None:
            found = self._fitting(shape, resident, Budget(budget))
            yield from (tiling for tiling in found if order_of(tiling) in orders)
            return
        for order in orders:
            tiling = Tiling(shape.channels, shape.rows, order == "channels", Slots(*pin.slots), shape.depth)
            if self.cost.working_set(tiling, resident) <= budget:
                yield tiling

    def _search(self, resident: Resident, budget: Budget) -> Choice | None:
        """The best of the tilings with all input channels; where that is not good, also of those with some.

        Among them are fewer output channels than the array takes in parallel.
        """
        floor, best = self.cost.floor(resident), None
        for known in self._sizes:
            for count, tile in known:
                if best is not None and floor + self.cost.overhead(count, resident.follows) >= best.cycles:
                    break  # the others have more tiles
                if lies_dense(self._geometry, tile.channels, resident):
                    best = self._best_rows(tile, resident, budget, floor, best)
            if not may_cut_depth(self._geometry, resident) or (best is not None and best.cycles <= GOOD * floor):
                break
        return best

    def _by_count(self, depths: Iterable[int]) -> list[tuple[int, Tiling]]:
        """Tiles of all rows, each with how many they are, fewest first."""
        channels, rows = (*self.channels, *self._narrow), self._geometry.nest.rows
        found = [Tiling(size, rows, depth=depth) for depth, size in product(depths, channels)]
        return sorted(((tile_count(self._geometry, tile), tile) for tile in found), key=itemgetter(0))

    def _best_rows(
        self, tile: Tiling, resident: Resident, budget: Budget, floor: float, best: Choice | None
    ) -> Choice | None:
        """The better of ``best`` and all tilings of these channels and input channels, coarsest bands first.

        ``floor``: what the layer takes at least, in one tile.
        """
        tried = 0
        for rows in self._bands(tile.channels, resident):
            smallest = tile._replace(rows=rows)
            if tried > FINER:
                break
            if (
                best is not None
                and floor + self.cost.overhead(tile_count(self._geometry, smallest), resident.follows) >= best.cycles
            ):
                break
            if not budget.holds(self.cost.working_set(smallest, resident)):
                continue  # most do not fit: the cycles of those are not asked for
            tried += 1
            shape = self.cost.shape(tile.channels, rows, tile.depth)
            if best is not None and self.cost.least(shape, resident) >= best.cycles:
                break  # finer bands have more tiles and take as long
            for tiling in self._fitting(shape, resident, budget):
                cycles = self.cost.estimate(tiling, resident)
                if best is None or cycles < best.cycles:
                    best = Choice(tiling, cycles)
        return best

    def _bands(self, channels: int, resident: Resident) -> tuple[int, ...]:
        """Bands of so many channels that are tried."""
        return self._rows if may_cut_rows(self._geometry, channels, resident) else (self._geometry.nest.rows,)

    def _fitting(self, shape: Shape, resident: Resident, budget: Budget) -> Iterator[Tiling]:
        """Tilings of a shape that fit, in every loop order, less those that have fewer slots than another of them."""
        for outer in (False, True) if shape.parts > 1 and shape.bands > 1 else (False,):
            whole = shape.chunks if outer else shape.parts * shape.chunks
            constants = (*((whole,) if whole > 2 and shape.bands > 1 else ()), 2, 1)
            kept = shape.bands * shape.chunks if outer else shape.chunks
            useful = kept > 2 and shape.parts > 1 and not self._geometry.nest.grouped
            inputs = (*((kept,) if useful else ()), 2, 1)
            most = 0  # buffers of inputs beside which two of outputs have fitted
            for constant in constants:
                for number, outputs in product([number for number in inputs if number > most], (2, 1)):
                    slots = Slots(number, constant, outputs)
                    tiling = Tiling(shape.channels, shape.rows, outer, slots, shape.depth)
                    if budget.holds(self.cost.working_set(tiling, resident)):
                        yield tiling
                        if outputs == 2:
                            most = number
                            break


def _beside(size: int, legal: Sequence[int]) -> Iterator[int]:
    """Yield the sizes of ``legal`` next to ``size``, and those an eighth or a quarter away from it.

    Also yield the sizes that make one tile more, one fewer, twice as many, or half as many. ``legal`` is sorted from
    large to small. It need not contain ``size``: a narrow channel tile has other row bands than the default one.
    """
    count = ceil_div(legal[0], size)
    yield from [other for other in legal if other > size][-1:]
    yield from [other for other in legal if other < size][:1]
    for many in (count - 1, count + 1, count // 2, count * 2):
        if many and ceil_div(legal[0], many) in legal:
            yield ceil_div(legal[0], many)
    for share in BESIDE:
        yield min(legal, key=lambda other: abs(other - share * size))


def _channel_tiles(geometry: Geometry, arch: Arch) -> Iterator[int]:
    """Channel tiles from large to small, multiples of what the processing elements take in parallel.

    Those of a single row also in threes: such layers wait for their weights, and have no bands to fill the scratchpad.
    """
    nest, parallel = geometry.nest, geometry.parallel_channels(arch)
    seen = set()
    for cuts in CUTS if nest.rows > 1 else ROW_CUTS:
        size = ceil_div(ceil_div(nest.channels, cuts), parallel) * parallel
        size = allowed_channels(nest, size)
        if size not in seen:
            seen.add(size)
            yield size


def _narrow_tiles(geometry: Geometry, arch: Arch) -> Iterator[int]:
    """Channel tiles that fill a half, a quarter and so on of the processing elements, down to the smallest there is."""
    parallel = geometry.parallel_channels(arch)
    halved = (allowed_channels(geometry.nest, parallel >> halves) for halves in range(1, parallel.bit_length()))
    yield from dict.fromkeys((*halved, allowed_channels(geometry.nest, 1)))


def _input_chunks(geometry: Geometry, arch: Arch) -> Iterator[int]:
    """Input channels a tile, from many to few: multiples of what the processing elements take in parallel, and one.

    Where taps of a kernel lie side by side, between those also numbers that leave few lanes idle.
    """
    if not geometry.splits_depth:
        return
    inputs, parallel = geometry.nest.input_channels, geometry.parallel_inputs(arch)
    seen = {inputs}
    for cuts in CUTS[1:]:
        size = min(ceil_div(ceil_div(inputs, cuts), parallel) * parallel, inputs)
        if size not in seen:
            seen.add(size)
            yield size
    for size in () if geometry.channels.apart else _full_chunks(geometry, parallel):
        if size < inputs and size not in seen:
            seen.add(size)
            yield size
    if 1 not in seen:
        yield 1


def _full_chunks(geometry: Geometry, lanes: int) -> Iterator[int]:
    """Numbers of input channels below ``lanes``, ever so much fewer, whose taps fill lanes almost."""
    taps, last = geometry.weight_bytes // geometry.nest.input_channels, lanes
    if taps == 1 or not dict(geometry.fields).get(MAPPING.name, 0) & 1:
        return
    for size in range(lanes - 1, 0, -1):
        if size <= FEWER * last and size * taps >= FULL * ceil_div(size * taps, lanes) * lanes:
            last = size
            yield size


def _row_bands(geometry: Geometry) -> Iterator[int]:
    """Row bands from high to low; those of element-wise operations are multiples of 64 elements."""
    nest = geometry.nest
    if not nest.splits_rows:
        yield nest.rows
        return
    flat = is_flat(geometry)
    seen = set()
    for cuts in CUTS:
        rows = ceil_div(nest.rows, cuts)
        rows = min(nest.rows, ceil_div(rows, FLAT_BAND) * FLAT_BAND) if flat else rows
        if rows not in seen:
            seen.add(rows)
            yield rows
    if 1 not in seen:
        yield 1
