"""Default schedule: fusion, double buffering, pipelined layers and resident tensors.

Residents are chosen where they save cycles. If memory planning fails, the plan is made again with
fewer bytes for residents. Without residents, every layer's buffers fit by construction.

Compilations can share a pool of tile searches, and of programs for machines that differ only in
scratchpad size (:mod:`byoc.scheduling.search_pool`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from byoc.estimate.account import least_cycles
from byoc.estimate.constants import (
    BETTER,
    CLOSE,
    ENOUGH,
    FEW_LAYERS,
    FEW_TILES,
    FEWER_SHARES,
    GAIN,
    GROUP_FACTORS,
    LARGEST_FREE,
    MOST_LAYERS_NARROWER,
    MOST_NEAR,
    MOST_OTHERS,
    MOST_TILES,
    NEAR,
    QUEUE_DEPTH,
    RESIDENT_SHARES,
    SIZES,
    UNUSED_SHARE,
    UNUSED_TILES,
)
from byoc.operators.layer import OperatorLayer
from byoc.options import NOTHING, Choices
from byoc.scheduling.banding import stream_group
from byoc.scheduling.layer_stream import stream_layer
from byoc.scheduling.memplan import peak_bytes
from byoc.scheduling.pipelining import TIGHT, Spread, pipeline_tiles
from byoc.scheduling.region_context import LayerPlan, PlanStream, RegionContext
from byoc.scheduling.rehearsal import Rehearsed
from byoc.scheduling.residency import pins_of, plan_layers, to_choices
from byoc.scheduling.retention import retain_constants
from byoc.scheduling.search_pool import SearchPool
from byoc.scheduling.stream import Memory, Scheduled, TileSteps
from byoc.scheduling.unlimited import UnlimitedPlan, plan_unlimited
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
        return _finish_plan(context, best, fresh).finish(context.layers)
    trials = _Trials(best, context, fresh, choices, free=best.free and first)
    trials.improve()
    if context.faster is not None and not trials.best.is_within(CLOSE):
        trials.try_faster(pool, context.faster)
    found = trials.best.finish(context.layers)
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
    ``free``: the scratchpad size limited nothing. ``retains``: repeated constants are loaded once.
    """

    plan: LayerPlan
    scheduled: Scheduled
    rehearsed: Rehearsed
    compute: int
    least: int
    tiles: int
    free: bool
    retains: bool = False

    @property
    def cycles(self) -> int:
        return self.rehearsed.cycles

    def finish(self, layers: Sequence[OperatorLayer]) -> Scheduled:
        """Return the schedule with its choices and estimated cycles, of all layers and of each."""
        choices, cycles = to_choices(layers, self.plan), self.rehearsed.layers()
        return replace(self.scheduled, choices=choices, cycles=self.cycles, layers=cycles)

    @property
    def rating(self) -> _Rating:
        return _Rating(self.cycles, self.tiles, self.free)

    def is_within(self, share: float) -> bool:
        """Return whether a candidate takes at most ``share`` times its lower bound of cycles."""
        return self.cycles <= share * self.least


def _finish_plan(
    context: RegionContext, best: _Candidate, fresh: Callable[[], Memory]
) -> _Candidate:
    """Return a plan's schedule with buffers placed to take the fewest cycles.

    Streams of few tiles are also made with loads that wait in LD's queue and with buffers that do
    not take the bytes of one just used; in banked memory, also with buffers that share bytes.
    Longer streams of repeated layers in banked memory are also made with buffers that take no bytes
    used in the tiles before, and with banks of their own if half of the scratchpad is empty. The
    result is ``free`` if the scratchpad size limited none of them.
    """
    few = best.tiles <= FEW_TILES
    repeats = not few and context.shares_constants and context.loads.word_slots > 0
    taken = peak_bytes(best.scheduled.requests, best.scheduled.addresses)
    size = best.scheduled.memory.arch.sram_bytes
    empty = 2 * taken <= size
    placed: list[_Candidate | None] = []
    if (few or (repeats and taken <= UNUSED_SHARE * size)) and not best.is_within(ENOUGH):
        plan = best.plan
        streams = _list_streams(context, plan, fresh())
        stream = next(stream for retains, stream in streams if retains == best.retains)
        spread = Spread(UNUSED_TILES, int(empty), empty) if repeats else Spread(1, 1)
        placed.append(_place_plan(context, plan, stream, spread))
        if few:
            placed.append(_place_apart(context, plan, stream, QUEUE_DEPTH))
        if few and context.loads.word_slots:
            placed.append(_place_plan(context, plan, stream))
            placed.append(_place_apart(context, plan, stream, 1))
    free = not repeats and all(one is not None and one.free for one in placed)
    best = min([best, *(one for one in placed if one is not None)], key=lambda one: one.cycles)
    return best._replace(free=free)


def _candidate(context: RegionContext, plan: LayerPlan, memory: Memory) -> _Candidate | None:
    """Return a plan as a candidate with its schedule, or None if memory planning fails."""
    found = None
    for retains, stream in _list_streams(context, plan, memory):
        # Without retention, loads are earlier only if the scratchpad has room for all buffers.
        if found is not None and not stream.has_own_bytes:
            break
        if context.loads.word_slots and len(stream.tiles) <= FEW_TILES:
            placed = _place_apart(context, plan, stream)
        else:
            placed = _place_plan(context, plan, stream)
        if placed is not None and (found is None or placed.cycles < found.cycles):
            found = placed._replace(retains=retains)
    return found


def _list_streams(
    context: RegionContext, plan: LayerPlan, memory: Memory
) -> Iterator[tuple[bool, PlanStream]]:
    """Yield the streams of a plan: with repeated constants retained, if there are any, and without.

    The first item tells whether they are retained.
    """
    found = context.streams.get_or_make(plan, lambda: _stream(context, plan, memory))
    found = found._replace(memory=replace(found.memory, arch=memory.arch))
    if context.shares_constants:
        own = replace(found.memory, scratch=list(found.memory.scratch))
        retained = retain_constants(found.tiles, own)
        if retained is not None:
            yield True, PlanStream(retained, found.cycles, own, {})
    yield False, found


def _place_apart(
    context: RegionContext, plan: LayerPlan, stream: PlanStream, queued: int = 0
) -> _Candidate | None:
    """Return the schedule of a plan whose buffers take no bytes of one another, if all fit.

    Commands then never wait for other uses of these bytes, and rarely for banks. Otherwise buffers
    share bytes. The result is None if memory planning fails.
    """
    found = None
    if stream.has_own_bytes:
        spread = Spread(len(stream.tiles), queued, alone=True)
        found = _place_plan(context, plan, stream, spread)
    return found or _place_plan(context, plan, stream, Spread(0, queued))


def _place_plan(
    context: RegionContext, plan: LayerPlan, stream: PlanStream, spread: Spread = TIGHT
) -> _Candidate | None:
    """Return the schedule of a plan, or None if memory planning fails.

    ``spread`` is that of :func:`pipeline_tiles`. If layers share constants in banked memory, plans
    that keep their records and weights in separate banks are tried, too.
    """
    streamed, cycles, memory, _ = stream
    arch = memory.arch
    unlimited = _plan_unlimited(context, stream, spread)
    if unlimited is not None:
        found, best = unlimited.best
        placed = found.steps, memory, found.requests, unlimited.resize(arch)
    else:
        scratchpad = memory.scratch, arch, memory.bus, memory.apart, memory.windows
        plans = pipeline_tiles(streamed, cycles, *scratchpad, spread)
        if context.loads.word_slots and context.shares_constants:
            plans += pipeline_tiles(streamed, cycles, *scratchpad, spread._replace(split=True))
        if not plans:
            return None
        rehearsed = [
            (one, times)
            for one in plans
            for times in one.rehearse_stream(memory.shared, context.loads, arch)
        ]
        found, best = min(rehearsed, key=lambda pair: pair[1].cycles)
        placed = found.steps, memory, found.requests, found.addresses
    scheduled = Scheduled(*placed, store_waits=best.store_waits)
    # Estimates of copies in banked memory may exceed the cycles of their commands.
    compute = min(sum(cycles), best.computed)
    # The images of a batch share constants, so the bound uses only the layers of the last image.
    image = slice(-len({layer.name for layer in context.layers}), None)
    costs = [search.cost for search in context.searches[image]]
    least = least_cycles(costs, context.shared[image], compute, memory.arch.sram_bytes)
    return _Candidate(plan, scheduled, best, compute, least, len(streamed), found.free)


def _plan_unlimited(
    context: RegionContext, stream: PlanStream, spread: Spread
) -> UnlimitedPlan | None:
    """Return the plan of a stream in unlimited banks, or None if the machine's are too small.

    It is not used if layers share constants, whose retention depends on the scratchpad size.
    """
    memory = stream.memory
    arch = memory.arch
    bank = arch.sram_bytes // arch.sram_banks
    largest = max([nbytes for _, nbytes in memory.scratch], default=bank)
    if not context.loads.word_slots or context.shares_constants or 2 * largest > bank:
        return None
    if spread not in stream.unlimited:
        stream.unlimited[spread] = plan_unlimited(
            stream.tiles, stream.cycles, memory, context.loads, spread
        )
    found = stream.unlimited[spread]
    most = memory.bus.cycles_of(arch.sram_bytes)
    return found if found is not None and found.is_valid_for(arch, most) else None


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
        self._room = self._arch.sram_bytes
        self._sizes = [size for size in SIZES if size < most]

    def improve(self) -> None:
        """Try other plans for the region and keep the best.

        Plans with more groups and plans made for smaller arrays are tried too. For a region of few
        layers, so are the plans made for every smaller scratchpad.
        """
        self._smaller()
        self._nearby()
        self._finish()
        self._try_starts()
        if self._few:
            self._try_smaller_sizes()

    def try_faster(self, pool: SearchPool[Any], faster: RegionContext) -> None:
        """Try the plan that is chosen for ``faster``, the region on a bus of a faster memory.

        A larger scratchpad may get another plan there.
        """
        self.free = False
        near = schedule_default(
            faster, lambda: replace(self._fresh(), bus=faster.bus), pool, None, self._choices
        )
        capacity = self._arch.sram_bytes
        self._improve_from(
            plan_layers(self._context, self._arch, capacity, near.choices), self._room
        )

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
            if self.best.is_within(CLOSE):
                break
            plan = self._plan_for(self._context, nbytes)
            if plan is None or plan.groups:
                break
            if self._estimate(plan) > NEAR * self._estimate(self.best.plan):
                break
            if not self._improve_from(plan, nbytes):
                break

    def _list_starts(self) -> Iterator[tuple[RegionContext, float]]:
        """Yield contexts and factors of :func:`plan_layers` for other plans."""
        if self._few or self.best.tiles <= FEW_TILES:
            yield from ((self._context, factor) for factor in GROUP_FACTORS)
        if len(self._context.layers) <= MOST_LAYERS_NARROWER:
            yield from ((context, 1.0) for context in self._context.narrower)

    def _try_starts(self) -> None:
        """Try plans with more groups and plans for fewer lanes, so that more lanes cost no cycles.

        For each of them, the tilings near its plan are tried too.
        """
        seen = {self.best.plan}
        for context, factor in self._list_starts():
            if self.best.is_within(self._enough):
                break
            plan = self._plan_for(context, self._room, factor)
            if plan is not None and plan not in seen:
                seen.add(plan)
                self._improve_from(plan, self._room, 1.0 if factor == 1.0 else GAIN)

    def _improve_from(self, plan: LayerPlan, room: int, most: float = 1.0) -> bool:
        """Try a plan and the tilings near it; return False if memory planning fails.

        The result must take less than ``most`` times the cycles of the best plan.
        """
        own = self.best
        start = _candidate(self._context, plan, self._fresh())
        self.free = self.free and start is not None and start.free
        if start is None:
            return False
        self.best, self._tried = start, {plan}
        self._climb(room)
        if own.plan != self.best.plan:
            self._finish()
        if own.plan == self.best.plan or most * own.cycles <= self.best.cycles:
            self.best = own
        return True

    def _finish(self) -> None:
        """Place the buffers of the best plan to take the fewest cycles."""
        self.best = _finish_plan(self._context, self.best, self._fresh)
        self.free = self.free and self.best.free

    def _plan_for(
        self, context: RegionContext, nbytes: int, factor: float = 1.0
    ) -> LayerPlan | None:
        """Return the plan of a region on a machine with ``nbytes`` bytes of scratchpad, or None."""
        try:
            smaller = self._arch.model_copy(update={"sram_bytes": nbytes})
            return plan_layers(context, smaller, nbytes, self._choices, factor)
        except InputError:  # some layer has no tiling in so few bytes
            return None

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
        self._room = min(room, self._arch.sram_bytes) if self.free else self._arch.sram_bytes
        self._climb(self._room)

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


def _stream(context: RegionContext, chosen: LayerPlan, memory: Memory) -> PlanStream:
    """Return the tiles of all layers, and the estimated compute cycles of each.

    ``memory`` gets their buffers.
    """
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
        if group is not None:  # a tile of partial sums computes nothing of the fused layer
            fused = costs[group.last].compute
            computed = tuple(
                own + (fused.tile(1, tile.output.elements) if tile.last else 0)
                for own, tile in zip(computed, cut, strict=True)
            )
        cycles += computed
    return PlanStream(steps, cycles, memory, {})
