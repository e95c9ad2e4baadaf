"""Search the tiling of a layer with the lowest estimated cost."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from operator import itemgetter
from typing import NamedTuple

from byoc.estimate.account import LayerCost, TileCost
from byoc.estimate.bus import DEFAULT_BUS, MemoryBus
from byoc.estimate.constants import (
    BESIDE,
    FINER,
    GOOD,
    REMEMBERED_TILINGS,
    THRIFT,
)
from byoc.operators.geometry import Geometry
from byoc.operators.layer import (
    BufferSlots,
    Resident,
    Tiling,
    order_of,
    sizes,
    tile_count,
    tiles,
)
from byoc.operators.nest import Tile
from byoc.options import ORDERS, LayerChoice
from byoc.scheduling.tiling import (
    Answers,
    Budget,
    _channel_tiles,
    _input_chunks,
    _narrow_tiles,
    _row_bands,
    channel_tiles,
    is_dense,
    may_cut_depth,
    may_cut_rows,
    row_bands,
)
from isa.arch import Arch
from isa.instruction import ceil_div

_SLOTS = (BufferSlots(2, 2, 2), BufferSlots(1, 1, 2), BufferSlots(1, 1, 1), BufferSlots(1, 2, 2))
"""Numbers of buffers tried near a tiling.

An operand with one buffer can be prefetched into any free bytes.
"""


class TilingChoice(NamedTuple):
    """Tiling with its estimated cycles."""

    tiling: Tiling
    cycles: float


class TileSearch:
    """Search for tilings of one layer by estimated ``cost``, with cached results."""

    def __init__(self, geometry: Geometry, arch: Arch, bus: MemoryBus = DEFAULT_BUS) -> None:
        self._geometry = geometry
        self.cost = LayerCost(geometry, arch, bus)
        self.channels = tuple(_channel_tiles(geometry, arch))
        self.sizes = tuple(dict.fromkeys((*self.channels, *_narrow_tiles(geometry, arch))))
        self._rows = tuple(_row_bands(geometry))
        self._chunks = tuple(_input_chunks(geometry, arch))
        self._sizes = self._sort_by_count((0,)), self._sort_by_count(self._chunks)
        self._cuts: dict[Tiling, tuple[tuple[Tile, ...], tuple[int, ...]]] = {}
        self._best = Answers[Resident, TilingChoice | None]()
        self._thriftiest = Answers[tuple[TilingChoice, Resident], Tiling]()

    def best(self, resident: Resident, budget: int) -> TilingChoice | None:
        """Return the cheapest tiling whose tile buffers need at most ``budget`` bytes, or None."""
        if budget <= 0:
            return None
        return self._best.find(resident, budget, lambda asked: self._search(resident, asked))

    def cut(self, tiling: Tiling) -> tuple[tuple[Tile, ...], tuple[int, ...]]:
        """Return the tiles of a tiling in order of execution, and the compute cycles of each."""
        key = tiling._replace(slots=BufferSlots())
        found = self._cuts.get(key)
        if found is None:
            if len(self._cuts) == REMEMBERED_TILINGS:
                self._cuts.clear()
            made = tiles(self._geometry, tiling)
            found = self._cuts[key] = (
                made,
                tuple([self.cost.compute.tile(*sizes(tile)) for tile in made]),
            )
        return found

    def best_beside(self, resident: Resident, budget: Budget, taken: int) -> TilingChoice | None:
        """Return the cheapest tiling that fits in ``budget`` less ``taken`` bytes, or None."""
        if not budget.has_room_for(taken + 1):
            return None
        return self._best.get_answer(
            resident, budget, taken, lambda asked: self._search(resident, asked)
        )

    def thriftiest_beside(
        self, choice: TilingChoice, resident: Resident, budget: Budget, taken: int
    ) -> Tiling:
        """Return the double-buffered tiling that uses the fewest bytes for about equal cycles.

        Its cycles are close to those of ``choice``, the best tiling. Scratchpad bytes that a layer
        leaves free let later layers prefetch.
        """
        question = choice, resident
        return self._thriftiest.get_answer(
            question, budget, taken, lambda asked: self._thrifty(choice, resident, asked)
        )

    def _thrifty(self, choice: TilingChoice, resident: Resident, budget: Budget) -> Tiling:
        tiling = choice.tiling
        limit = THRIFT * choice.cycles
        cost = self.cost
        least = cost.compute_working_set(tiling, resident)
        for count, tile in self._sizes[0]:
            if cost.floor(resident) + cost.overhead(count, resident.follows) > limit:
                break
            dense = is_dense(self._geometry, tile.channels, resident)
            for rows in self._bands(tile.channels, resident) if dense else ():
                if not budget.has_room_for(
                    cost.compute_working_set(tile._replace(rows=rows), resident)
                ):
                    continue
                shape = cost.shape(tile.channels, rows)
                if cost.least(shape, resident) > limit:
                    break
                for outer in (False, True) if shape.parts > 1 and shape.bands > 1 else (False,):
                    other = Tiling(tile.channels, rows, outer, BufferSlots(2, 2, 2))
                    nbytes = cost.compute_working_set(other, resident)
                    if nbytes < least and cost.estimate(other, resident) <= limit:
                        least = nbytes
                        tiling = other
        return tiling

    def list_near(self, tiling: Tiling, resident: Resident, budget: int) -> Iterator[Tiling]:
        """Yield fitting tilings whose tiles differ in one dimension from ``tiling``.

        They have few buffers.
        """
        geometry = self._geometry
        widths = _list_near_sizes(tiling.channels, channel_tiles(geometry, resident))
        heights = _list_near_sizes(tiling.rows, row_bands(geometry, tiling.channels))
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
                if self.cost.compute_working_set(other, resident) <= budget:
                    yield other

    def estimate_computed(self, tiling: Tiling) -> int:
        return self.cost.shape_of(tiling).compute

    def find_pinned(self, pin: LayerChoice, resident: Resident, budget: int) -> TilingChoice | None:
        """Return the cheapest tiling that agrees with ``pin`` and fits, or None.

        The limit is ``budget`` bytes.
        """
        best: TilingChoice | None = None
        for shape in self._list_pinned_shapes(pin, resident):
            for tiling in self._list_pinned_buffers(pin, shape, resident, budget):
                cycles = self.cost.estimate(tiling, resident)
                if best is None or cycles < best.cycles:
                    best = TilingChoice(tiling, cycles)
        return best

    def _list_pinned_shapes(self, pin: LayerChoice, resident: Resident) -> Iterator[TileCost]:
        """Yield the tile shapes that have the sizes fixed by the user's choice ``pin``.

        Open sizes are those that the search tries.
        """
        nest = self._geometry.nest
        cuts = may_cut_depth(self._geometry, resident)
        depths = [
            depth
            for depth in ((0, *self._chunks) if pin.depth is None else (pin.depth,))
            if cuts or not depth
        ]
        widths = self.sizes if pin.channels is None else (pin.channels,)
        for depth, channels in product(
            depths, [size for size in widths if is_dense(self._geometry, size, resident)]
        ):
            bands = self._bands(channels, resident) if pin.rows is None else (pin.rows,)
            for rows in bands:
                if rows == nest.rows or may_cut_rows(self._geometry, channels, resident):
                    yield self.cost.shape(channels, rows, depth)

    def _list_pinned_buffers(
        self, pin: LayerChoice, shape: TileCost, resident: Resident, budget: int
    ) -> Iterator[Tiling]:
        """Yield fitting tilings of a tile shape with the loop order and buffers of ``pin``.

        An order or buffers that ``pin`` leaves open take all values. If channels or rows are not
        cut, only one order exists and ``pin.order`` has no effect.
        """
        orders = ORDERS if pin.order is None else (pin.order,)
        if shape.parts == 1 or shape.bands == 1:
            orders = ORDERS[:1]
        if pin.slots is None:
            found = self._list_fitting(shape, resident, Budget(budget))
            yield from (tiling for tiling in found if order_of(tiling) in orders)
            return
        for order in orders:
            tiling = Tiling(
                shape.channels,
                shape.rows,
                order == "channels",
                BufferSlots(*pin.slots),
                shape.depth,
            )
            if self.cost.compute_working_set(tiling, resident) <= budget:
                yield tiling

    def _search(self, resident: Resident, budget: Budget) -> TilingChoice | None:
        """Return the best tiling of a layer whose tiles have all input channels.

        If that is not good enough, also cut input channels.

        Channel tiles smaller than the parallel width of the array are included.
        """
        floor = self.cost.floor(resident)
        best = None
        for known in self._sizes:
            for count, tile in known:
                if (
                    best is not None
                    and floor + self.cost.overhead(count, resident.follows) >= best.cycles
                ):
                    break  # the others have more tiles
                if is_dense(self._geometry, tile.channels, resident):
                    best = self._best_rows(tile, resident, budget, floor, best)
            if not may_cut_depth(self._geometry, resident) or (
                best is not None and best.cycles <= GOOD * floor
            ):
                break
        return best

    def _sort_by_count(self, depths: Iterable[int]) -> list[tuple[int, Tiling]]:
        """Return tile shapes with all rows as (number of tiles, shape), fewest tiles first."""
        rows = self._geometry.nest.rows
        found = [Tiling(size, rows, depth=depth) for depth, size in product(depths, self.sizes)]
        return sorted(
            ((tile_count(self._geometry, tile), tile) for tile in found), key=itemgetter(0)
        )

    def _best_rows(
        self,
        tile: Tiling,
        resident: Resident,
        budget: Budget,
        floor: float,
        best: TilingChoice | None,
    ) -> TilingChoice | None:
        """Return the best tiling among ``best`` and those with the channels of ``tile``.

        The coarsest bands are tried first. ``floor`` is the lower bound of the layer's cycles.
        """
        tried = 0
        for rows in self._bands(tile.channels, resident):
            smallest = tile._replace(rows=rows)
            if tried > FINER:
                break
            if (
                best is not None
                and floor
                + self.cost.overhead(tile_count(self._geometry, smallest), resident.follows)
                >= best.cycles
            ):
                break
            if not budget.has_room_for(self.cost.compute_working_set(smallest, resident)):
                continue  # most do not fit, so their cycles are not estimated
            tried += 1
            shape = self.cost.shape(tile.channels, rows, tile.depth)
            if best is not None and self.cost.least(shape, resident) >= best.cycles:
                break  # finer bands have more tiles and take as long
            for tiling in self._list_fitting(shape, resident, budget):
                cycles = self.cost.estimate(tiling, resident)
                if best is None or cycles < best.cycles:
                    best = TilingChoice(tiling, cycles)
        return best

    def _bands(self, channels: int, resident: Resident) -> tuple[int, ...]:
        """Return the heights of row bands that are tried for ``channels`` channels."""
        return (
            self._rows
            if may_cut_rows(self._geometry, channels, resident)
            else (self._geometry.nest.rows,)
        )

    def _list_fitting(
        self, shape: TileCost, resident: Resident, budget: Budget
    ) -> Iterator[Tiling]:
        """Yield the tilings of a tile shape that fit the budget, in every loop order.

        A tiling is omitted if one with more buffers dominates it.
        """
        for outer in (False, True) if shape.parts > 1 and shape.bands > 1 else (False,):
            whole = shape.chunks if outer else shape.parts * shape.chunks
            constants = (*((whole,) if whole > 2 and shape.bands > 1 else ()), 2, 1)
            kept = shape.bands * shape.chunks if outer else shape.chunks
            useful = kept > 2 and shape.parts > 1 and not self._geometry.nest.grouped
            inputs = (*((kept,) if useful else ()), 2, 1)
            most = 0  # most input buffers that fit together with two output buffers
            for constant in constants:
                for number, outputs in product(
                    [number for number in inputs if number > most], (2, 1)
                ):
                    slots = BufferSlots(number, constant, outputs)
                    tiling = Tiling(shape.channels, shape.rows, outer, slots, shape.depth)
                    if budget.has_room_for(self.cost.compute_working_set(tiling, resident)):
                        yield tiling
                        if outputs == 2:
                            most = number
                            break


def _list_near_sizes(size: int, legal: Sequence[int]) -> Iterator[int]:
    """Yield the sizes of ``legal`` next to ``size``, and those an eighth or a quarter away from it.

    Also yield the sizes that make one tile more, one fewer, twice as many, or half as many.
    ``legal`` is sorted from large to small. It need not contain ``size``: a narrow channel tile has
    other row bands than the default one.
    """
    count = ceil_div(legal[0], size)
    yield from [other for other in legal if other > size][-1:]
    yield from [other for other in legal if other < size][:1]
    for many in (count - 1, count + 1, count // 2, count * 2):
        if many and ceil_div(legal[0], many) in legal:
            yield ceil_div(legal[0], many)
    for share in BESIDE:
        yield min(legal, key=lambda other: abs(other - share * size))
