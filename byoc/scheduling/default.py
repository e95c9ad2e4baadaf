"""Default schedule: fusion, double buffering, pipelined layers and resident tensors.

Residents are chosen where they save cycles. If memory planning fails, the plan is made again with
fewer bytes for residents. Without residents, every layer's buffers fit by construction.

Compilations can share a pool of tile searches, and of programs for machines that differ only in
scratchpad size. Every entry has all its dependencies as key, so a compilation gives the same result
with and without a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from byoc.estimate.account import least_cycles
from byoc.estimate.bus import DEFAULT_BUS, MemoryBus
from byoc.estimate.commands import Compute
from byoc.estimate.constants import (
    BETTER,
    CLOSE,
    ENOUGH,
    FEW_LAYERS,
    FEW_TILES,
    FEWER_SHARES,
    LARGEST_FREE,
    MOST_NEAR,
    MOST_OTHERS,
    MOST_TILES,
    NEAR,
    QUEUE_DEPTH,
    REMEMBERED_PLANS,
    RESIDENT_SHARES,
    SIZES,
)
from byoc.operators.geometry import Geometry
from byoc.operators.layer import OperatorLayer
from byoc.operators.nest import Tile
from byoc.options import NOTHING, Choices
from byoc.scheduling.banding import stream_group
from byoc.scheduling.layer_stream import stream_layer
from byoc.scheduling.lowering import Lowered
from byoc.scheduling.memplan import peak_bytes
from byoc.scheduling.pipelining import TIGHT, Spread, pipeline_tiles
from byoc.scheduling.rehearsal import Rehearsed
from byoc.scheduling.residency import (
    LayerPlan,
    RegionContext,
    choice_of,
    group_choice_of,
    pins_of,
    plan_layers,
)
from byoc.scheduling.stream import Memory, Scheduled, TileSteps
from byoc.scheduling.tile_search import TileSearch
from byoc.scheduling.tiling import Answers, Budget
from isa.arch import Arch
from isa.errors import InputError


def schedule_default(
    context: RegionContext,
    fresh: Callable[[], Memory],
    pool: SearchPool[Any],
    subject: Hashable = None,
    choices: Choices = NOTHING,
) -> Scheduled:
    """Return the default schedule of a region.

    Args:
        context: the region.
        fresh: returns an empty memory for each attempt.
        pool: caches of earlier compilations.
        subject: key of the layers in the pool; equal subjects have equal layers. None: do not reuse
            schedules.
        choices: user choices that the schedule must agree with.
    """
    arch = fresh().arch
    best: _Candidate | None = None
    for share in RESIDENT_SHARES if choices.residents is None else RESIDENT_SHARES[:1]:
        chosen = plan_layers(context, arch, arch.sram_bytes * share // 100, choices)
        first = share == RESIDENT_SHARES[0]
        kept = pool.schedule(subject, chosen, arch) if first and subject is not None else None
        if kept is not None:
            return kept
        best = _candidate(context, chosen, fresh())
        if best is not None:
            break
    if best is None:
        raise _no_place(arch, choices)
    if choices.residents is not None:
        return _finish_schedule(context, best, fresh)
    trials = _Trials(best, context, fresh, choices, free=best.free and first)
    trials.improve()
    found = _finish_schedule(context, trials.best, fresh)
    if trials.free and subject is not None:
        pool.keep(subject, chosen, arch, found)
    return found


class _Rating(NamedTuple):
    """Estimated cycles and number of tiles of a schedule plan that was tried.

    ``free``: the scratchpad size limited nothing.
    """

    cycles: int
    tiles: int
    free: bool


class _Candidate(NamedTuple):
    """Candidate plan with its schedule, rehearsed timing and number of tiles.

    ``compute``: cycles in which EX computes. ``least``: lower bound of the cycles with its tiles.
    ``free``: the scratchpad size limited nothing.
    """

    plan: LayerPlan
    scheduled: Scheduled
    rehearsed: Rehearsed
    compute: int
    least: int
    tiles: int
    free: bool

    @property
    def cycles(self) -> int:
        return self.rehearsed.cycles

    @property
    def rating(self) -> _Rating:
        return _Rating(self.cycles, self.tiles, self.free)

    def is_within(self, share: float) -> bool:
        """Return whether a candidate takes at most ``share`` times its lower bound of cycles."""
        return self.cycles <= share * self.least


def _finish_schedule(
    context: RegionContext, best: _Candidate, fresh: Callable[[], Memory]
) -> Scheduled:
    """Return the schedule of the best plan, with buffers placed to take the fewest cycles.

    In banked memory, streams of few tiles are also made with buffers that share bytes and with
    loads that wait in LD's queue.
    """
    memory = fresh()
    if context.loads.word_slots and best.tiles <= FEW_TILES and not best.is_within(ENOUGH):
        plan = best.plan
        stream = _stream(context, plan, memory)
        placed = (
            _place_plan(context, plan, memory, stream),
            _place_plan(context, plan, memory, stream, Spread(1, 1)),
            _place_apart(context, plan, memory, stream, 1),
            _place_apart(context, plan, memory, stream, QUEUE_DEPTH),
        )
        best = min([best, *(one for one in placed if one is not None)], key=lambda one: one.cycles)
    return replace(best.scheduled, cycles=best.cycles, layers=best.rehearsed.layers())


def _candidate(context: RegionContext, plan: LayerPlan, memory: Memory) -> _Candidate | None:
    """Return a plan as a candidate with its schedule, or None if memory planning fails."""
    stream = _stream(context, plan, memory)
    if context.loads.word_slots and len(stream[0]) <= FEW_TILES:
        return _place_apart(context, plan, memory, stream)
    return _place_plan(context, plan, memory, stream)


def _place_apart(
    context: RegionContext,
    plan: LayerPlan,
    memory: Memory,
    stream: tuple[list[TileSteps], list[int]],
    queued: int = 0,
) -> _Candidate | None:
    """Return the schedule of a plan whose buffers take no bytes of one another, if all fit.

    Commands then never wait for other uses of these bytes, and rarely for banks. Otherwise buffers
    share bytes. The result is None if memory planning fails.
    """
    found = None
    if sum([nbytes for _, nbytes in memory.scratch]) <= memory.arch.sram_bytes:
        spread = Spread(len(stream[0]), queued, alone=True)
        found = _place_plan(context, plan, memory, stream, spread)
    return found or _place_plan(context, plan, memory, stream, Spread(0, queued))


def _place_plan(
    context: RegionContext,
    plan: LayerPlan,
    memory: Memory,
    stream: tuple[list[TileSteps], list[int]],
    spread: Spread = TIGHT,
) -> _Candidate | None:
    """Return the schedule of a plan, or None if memory planning fails.

    ``spread`` is that of :func:`pipeline_tiles`.
    """
    streamed, cycles = stream
    arch = memory.arch
    plans = pipeline_tiles(
        streamed, cycles, memory.scratch, arch, memory.bus, memory.apart, memory.windows, spread
    )
    if not plans:
        return None
    shared = memory.windows.union(pointer.buffer for pointer in memory.residents.values())
    rehearsed = [one.rehearse_stream(shared, context.loads, arch) for one in plans]
    found, best = min(zip(plans, rehearsed, strict=True), key=lambda pair: pair[1].cycles)
    choices = _to_choices(context.layers, plan)
    scheduled = Scheduled(found.steps, memory, found.requests, found.addresses, choices)
    # Estimates of copies in banked memory may exceed the cycles of their commands.
    compute = min(sum(cycles), best.computed)
    # The images of a batch share constants, so the bound uses only the layers of the last image.
    image = context.searches[-len({layer.name for layer in context.layers}) :]
    least = least_cycles([search.cost for search in image], compute, memory.arch.sram_bytes)
    return _Candidate(plan, scheduled, best, compute, least, len(streamed), found.free)


class _Trials:
    """Search that tries alternative plans of a region and keeps the ``best`` so far.

    Of two similarly fast plans, the search keeps the first.

    ``free``: every larger scratchpad must get the same schedule, so nothing may depend on the size
    of this one.
    """

    def __init__(
        self,
        best: _Candidate,
        context: RegionContext,
        fresh: Callable[[], Memory],
        choices: Choices,
        *,
        free: bool,
    ) -> None:
        self.best = best
        self.free = free
        self._context = context
        self._fresh = fresh
        self._choices = choices
        self._tried = {best.plan}
        self._tiles = best.tiles
        self._known: dict[LayerPlan, _Rating | None] = {
            self._drop_unused_buffers(best.plan): best.rating
        }
        self._arch = best.scheduled.memory.arch
        self._images = len(context.layers) // len({layer.name for layer in context.layers})
        # positions of the same layer in several images
        alike: dict[tuple[str, int], list[int]] = {}
        for number, (layer, search) in enumerate(
            zip(context.layers, context.searches, strict=True)
        ):
            alike.setdefault((layer.name, id(search)), []).append(number)
        self._alike = tuple(alike.values())
        self._few = len(context.layers) <= FEW_LAYERS and not best.plan.groups
        self._strict = free
        self._enough = CLOSE if self._few else ENOUGH
        self._taken = peak_bytes(best.scheduled.requests, best.scheduled.addresses)
        most = min(2 * self._taken, self._arch.sram_bytes) if free else self._arch.sram_bytes
        self._sizes = [size for size in SIZES if size < most]

    def improve(self) -> None:
        """Try other plans for the region and keep the best.

        For a region of few layers, the plans made for every smaller scratchpad are tried too.
        """
        self._smaller()
        self._nearby()
        if self._few:
            self._try_smaller_sizes()

    def _smaller(self) -> None:
        """Try plans with fewer resident buffers, and plans made for smaller scratchpads.

        Residents are chosen one by one, and fewer may be better. Smaller tilings leave more bytes
        for prefetches, and ensure that more memory hardly ever costs cycles.
        """
        capacity = self._arch.sram_bytes
        sizes = [
            (size, size)
            for size in SIZES
            if size < capacity and (size <= LARGEST_FREE or not self._strict)
        ]
        fewer = [(capacity, capacity * share // 100) for share in FEWER_SHARES if not self._strict]
        close = [plan for plan in sizes if 2 * plan[0] > capacity]
        for nbytes, share in dict.fromkeys((*close, *fewer, *sizes)):
            if (
                self.best.is_within(self._enough)
                or self._tiles > MOST_TILES * self._images
                or len(self._tried) > MOST_OTHERS
            ):
                break
            try:
                smaller = self._arch.model_copy(update={"sram_bytes": nbytes})
                plan = plan_layers(self._context, smaller, share, self._choices)
            except InputError:  # some layer has no tiling in so few bytes
                break
            self._try(plan)

    def _try_smaller_sizes(self) -> None:
        """Try the plans made for all smaller scratchpad sizes and keep the best.

        For each of them, the tilings near its plan are tried too. A compilation for a smaller
        scratchpad tries the same plans, so more memory finds at least the same schedule. If the
        region's own plan needed no more memory, every size of at least twice its bytes has the same
        plan and is skipped.
        """
        for nbytes in self._sizes:
            own = self.best
            start = None if own.is_within(CLOSE) else self._plan_for_size(nbytes)
            if start is None:
                break
            self.best, self.free, self._tried = start, self.free and start.free, {start.plan}
            self._climb(nbytes)
            if own.cycles <= self.best.cycles:
                self.best = own

    def _plan_for_size(self, nbytes: int) -> _Candidate | None:
        """Return the candidate planned for a scratchpad of ``nbytes`` bytes, or None.

        The result is None if there is no plan, or if the plan has groups or is too slow.
        """
        try:
            smaller = self._arch.model_copy(update={"sram_bytes": nbytes})
            plan = plan_layers(self._context, smaller, nbytes, self._choices)
        except InputError:  # some layer has no tiling in so few bytes
            return None
        near = not plan.groups and self._estimate(plan) <= NEAR * self._estimate(self.best.plan)
        return _candidate(self._context, plan, self._fresh()) if near else None

    def _estimate(self, plan: LayerPlan) -> float:
        """Return the estimated cycles of a plan: the sum over its layers, each alone."""
        rooms = self._context.rooms
        residents = frozenset(plan.residents)
        found = 0.0
        for index, (search, tiling) in enumerate(
            zip(self._context.searches, plan.tilings, strict=True)
        ):
            found += search.cost.estimate(tiling, rooms.find_operands(index, residents))
        return found

    def _nearby(self) -> None:
        """Choose a byte limit, and try tilings that differ little from the best plan's tilings.

        If possible, the tilings use only bytes that a larger scratchpad would use too. For few
        tiles the estimate of a layer is poor: it lacks the first load, the last store and
        prefetches.
        """
        room = 2 * self._taken if self._few else LARGEST_FREE
        self.free = self.free and self._arch.sram_bytes >= room
        self._strict = self._strict and self.free and not self._few
        self._climb(min(room, self._arch.sram_bytes) if self.free else self._arch.sram_bytes)

    def _climb(self, room: int) -> None:
        """Try tilings of ``room`` bytes that differ little from the best plan's, layer by layer.

        The search goes on while the plan improves and tiles are few.
        """
        if self.best.tiles > FEW_TILES:
            return
        pins = pins_of(self._choices, self._context.layers, self._arch)
        before = None
        self._tiles = 0
        while before is not self.best:
            before = self.best
            for alike in (one for one in self._alike if pins[one[0]] is None):
                for plan in tuple(self._list_neighbour_plans(alike, room)):
                    if self.best.is_within(self._enough) or self._tiles > MOST_NEAR:
                        return
                    self._try(plan)

    def _list_neighbour_plans(self, alike: Sequence[int], capacity: int) -> Iterator[LayerPlan]:
        """Yield variants of the best plan with other tilings of the similar layers ``alike``.

        The tilings fit ``capacity`` bytes and have few enough compute cycles.
        """
        index = alike[0]
        best = self.best
        plan = self.best.plan
        if any(group.first <= index <= group.last for group in plan.groups):
            return
        search = self._context.searches[index]
        room = self._context.rooms.find_resident(index, plan.residents, capacity)
        others = best.compute - sum([search.estimate_computed(plan.tilings[one]) for one in alike])
        limit = NEAR * search.cost.estimate(plan.tilings[index], room[0])
        for tiling in search.list_near(plan.tilings[index], *room):
            computed = others + len(alike) * search.estimate_computed(tiling)
            if computed < best.cycles and search.cost.estimate(tiling, room[0]) <= limit:
                tilings = dict(enumerate(plan.tilings)) | dict.fromkeys(alike, tiling)
                yield replace(plan, tilings=tuple(tilings.values()))

    def _try(self, plan: LayerPlan) -> None:
        """Try a plan and keep it if it beats the best by more than the error of estimates."""
        if plan in self._tried:
            return
        self._tried.add(plan)
        other = None
        streamed = self._drop_unused_buffers(plan)
        if streamed not in self._known:
            other = _candidate(self._context, plan, self._fresh())
            self._known[streamed] = None if other is None else other.rating
            self._tiles += 0 if other is None else other.tiles
        rating = self._known[streamed]
        self.free = self.free and rating is not None and rating.free
        if rating is None or (self._strict and not rating.free):
            return
        if rating.cycles < BETTER * self.best.cycles:
            self.best = other or _candidate(self._context, plan, self._fresh()) or self.best

    def _drop_unused_buffers(self, plan: LayerPlan) -> LayerPlan:
        """Return a plan whose tilings have no unused tile buffers.

        Plans that are then equal have the same stream.
        """
        residents = frozenset(plan.residents)
        used = []
        for index, (search, tiling) in enumerate(
            zip(self._context.searches, plan.tilings, strict=True)
        ):
            resident = self._context.rooms.find_operands(index, residents)
            used.append(search.cost.drop_surplus_buffers(tiling, resident))
        return replace(plan, tilings=tuple(used))


def _no_place(arch: Arch, choices: Choices) -> InputError:
    if choices:
        return InputError(
            f"{choices.source}: tiles and residents find no place in {arch.sram_bytes} bytes of "
            "SRAM together; "
            "choose smaller tiles or fewer residents"
        )
    return InputError(
        f"the region finds no place in {arch.sram_bytes} bytes of SRAM; give it more memory"
    )


def _to_choices(layers: Sequence[OperatorLayer], chosen: LayerPlan) -> Choices:
    """Return choices that fix every tiling, resident and group of a plan."""
    tilings = tuple(
        choice_of(layer.name, tiling) for layer, tiling in zip(layers, chosen.tilings, strict=True)
    )
    groups = tuple(
        group_choice_of([layer.name for layer in layers], group) for group in chosen.groups
    )
    return Choices(tilings, chosen.residents, groups)


def _stream(
    context: RegionContext, chosen: LayerPlan, memory: Memory
) -> tuple[list[TileSteps], list[int]]:
    """Return the tiles of all layers, and the estimated compute cycles of each."""
    layers = context.layers
    nbytes = {buffer.name: buffer.nbytes for buffer in memory.lowered.buffers}
    for name in chosen.residents:
        memory.residents[name] = memory.reserve(name, nbytes[name])
    steps: list[TileSteps] = []
    cycles: list[int] = []
    costs = [search.cost for search in context.searches]
    groups = {group.first: group for group in chosen.groups}
    done = 0
    for index, (layer, tiling) in enumerate(zip(layers, chosen.tilings, strict=True)):
        if index < done:
            continue
        group = groups.get(index)
        done = index + 1 if group is None else group.last + 1
        if group is not None and not group.rides:
            for timed in stream_group(group, layers, context.graph, costs, memory):
                steps.append(timed.steps)
                cycles.append(timed.cycles)
            continue
        cut, computed = context.searches[index].cut(tiling)
        steps += stream_layer(
            layer, tiling, memory, cut, None if group is None else layers[group.last]
        )
        if group is not None:
            computed = tuple(
                map(
                    sum, zip(computed, _estimate_fused(costs[group.last].compute, cut), strict=True)
                )
            )
        cycles += computed
    return steps, cycles


def _estimate_fused(compute: Compute, cut: Sequence[Tile]) -> Iterator[int]:
    """Return the estimated cycles of a fused layer on each tile.

    Tiles of partial sums compute none of it.
    """
    return (compute.tile(1, tile.output.elements) if tile.last else 0 for tile in cut)


Compiled = TypeVar("Compiled")
"""Result of emission for a schedule; the pool stores it unread."""
Shared = TypeVar("Shared")
ONE_SIZE = {"sram_bytes": Arch.model_fields["sram_bytes"].default}
"""Update that makes machines equal that differ only in scratchpad size."""


@dataclass(frozen=True, eq=False)
class _Kept:
    """Cached schedule that is valid for every scratchpad of at least ``sram_bytes`` bytes.

    The scratchpad size did not limit it.
    """

    sram_bytes: int
    scheduled: Scheduled


class SearchPool(Generic[Compiled]):
    """Cache of tile searches on machines with one bus, of schedules and of programs.

    The programs are compiled from the schedules. Scratchpad size is an argument of a search, so
    machines that differ only in it share searches. A pool grows with every layer shape and machine;
    drop it when these change.
    """

    def __init__(self, bus: MemoryBus = DEFAULT_BUS) -> None:
        self.bus = bus
        self._known: dict[tuple[Arch, Geometry], TileSearch] = {}
        self._schedules: dict[Hashable, _Kept] = {}
        self._compiled: dict[Scheduled, Compiled | None] = {}
        self._once: dict[Hashable, Any] = {}
        self._contexts = Answers[tuple[Hashable, Arch], RegionContext]()

    def schedule(self, subject: Hashable, plan: Hashable, arch: Arch) -> Scheduled | None:
        """Return a cached schedule of ``subject`` and ``plan`` valid for ``arch``, or None."""
        kept = self._schedules.get((subject, plan, sizeless(arch)))
        return kept.scheduled if kept is not None and kept.sram_bytes <= arch.sram_bytes else None

    def keep(self, subject: Hashable, plan: Hashable, arch: Arch, scheduled: Scheduled) -> None:
        """Cache a schedule that depends on scratchpad size only through its plan."""
        if len(self._schedules) < REMEMBERED_PLANS:
            self._schedules[subject, plan, sizeless(arch)] = _Kept(arch.sram_bytes, scheduled)
            self._compiled[scheduled] = None

    def get_compiled(self, scheduled: Scheduled) -> Compiled | None:
        """Return the program compiled from a cached schedule, for any machine."""
        return self._compiled.get(scheduled)

    def add_compiled(self, scheduled: Scheduled, compiled: Compiled) -> None:
        """Cache the program compiled from a schedule, if the schedule is cached."""
        if scheduled in self._compiled:
            self._compiled[scheduled] = compiled

    def get_or_make(self, key: Hashable, make: Callable[[], Shared]) -> Shared:
        """Return the cached result of ``make``, which must depend only on ``key``."""
        if key not in self._once:
            self._once[key] = make()
        found: Shared = self._once[key]
        return found

    def context(
        self,
        subject: Hashable,
        arch: Arch,
        make: Callable[[Budget], tuple[Lowered, Sequence[OperatorLayer]]],
    ) -> RegionContext:
        """Return the data shared by all plans of a region on a machine.

        ``make`` returns the lowered region and its layers; it must query its budget for every
        dependency on scratchpad size.
        """
        machine = sizeless(arch)

        def make_context(budget: Budget) -> RegionContext:
            lowered, layers = make(budget)
            return RegionContext(layers, self.searches(layers, machine), lowered, machine, self.bus)

        return self._contexts.find((subject, machine), arch.sram_bytes, make_context)

    def searches(self, layers: Sequence[OperatorLayer], arch: Arch) -> list[TileSearch]:
        return [self.search(layer.geometry, arch) for layer in layers]

    def search(self, geometry: Geometry, arch: Arch) -> TileSearch:
        key = sizeless(arch), geometry
        if key not in self._known:
            self._known[key] = TileSearch(geometry, key[0], self.bus)
        return self._known[key]


@lru_cache
def sizeless(arch: Arch) -> Arch:
    """Return the machine with a default scratchpad size, equal for machines that differ only in it.

    The number of banks stays, because strided copies access as many at a time.
    """
    return arch.model_copy(update=ONE_SIZE)
