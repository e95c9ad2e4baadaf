"""The default schedule: fused, resident where it pays, double-buffered and pipelined across layers.

What looks best on paper may not pack: the plan is then made again with less of the scratchpad given to residents. With
none, every layer's buffers fit by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from byoc.choices import NOTHING, Choices
from byoc.operators.layer import Layer
from byoc.operators.nest import Tile
from byoc.scheduling.banding import stream_group
from byoc.scheduling.chosen import choice_of, group_choice_of
from byoc.scheduling.pipelining import pipelined
from byoc.scheduling.pool import SearchPool
from byoc.scheduling.residency import Ground, LayerPlan, plan_layers
from byoc.scheduling.schedule import Scheduled
from byoc.scheduling.stream import Memory, TileSteps, stream_layer
from byoc.tiling.cost import BUS_BYTES, LayerCost
from isa.arch import Arch
from isa.errors import InputError

_RESIDENT_SHARES = (100, 95, 90, 80, 65, 50, 0)
_FEWER = (90, 80)
"""Per cent of the scratchpad for residents in other plans that are tried."""
SIZES = tuple(1 << power for power in range(40, 12, -1))
"""Bytes of smaller scratchpads for which other plans are made: a larger machine has all that a smaller one has."""
LARGEST_FREE = 1 << 16
"""The largest of them where the first plan wants no more memory."""
MOST_OTHERS = 4
"""Other plans that are ranked."""
ENOUGH = 1.02
"""A schedule that is estimated to take at most so many times what it takes at least is taken."""
BETTER = 0.995
"""What another plan must be estimated to take, times the best one's cycles."""
MOST_TILES = 600
"""Tiles of all plans tried so far, an image, beyond which no other is."""


def schedule_default(
    ground: Ground,
    fresh: Callable[[], Memory],
    pool: SearchPool[Any],
    subject: Hashable = None,
    choices: Choices = NOTHING,
) -> Scheduled:
    """The schedule of a region on its ``ground``, as ``choices`` say. ``fresh`` makes an empty memory for each attempt.

    What ``pool`` has kept of ``subject`` (equal ones have equal layers) may serve again.
    """
    arch = fresh().arch
    best: _Candidate | None = None
    for share in _RESIDENT_SHARES if choices.residents is None else _RESIDENT_SHARES[:1]:
        chosen = plan_layers(ground, arch, arch.sram_bytes * share // 100, choices)
        first = share == _RESIDENT_SHARES[0]
        kept = pool.schedule(subject, chosen, arch) if first and subject is not None else None
        if kept is not None:
            return kept
        best = _candidate(ground, chosen, fresh())
        if best is not None:
            break
    if best is None:
        raise _no_place(arch, choices)
    if choices.residents is not None:
        return best.scheduled
    free = best.free and first
    found = _best_of_others(best, chosen, ground, fresh, choices, free=free).scheduled
    if free and subject is not None:
        pool.keep(subject, chosen, arch, found)
    return found


class _Candidate(NamedTuple):
    """A schedule with its estimated cycles, what one with its tiles takes at least, and the number of these.

    ``free``: nothing was held back.
    """

    scheduled: Scheduled
    cycles: int
    least: int
    tiles: int
    free: bool


def _candidate(ground: Ground, chosen: LayerPlan, memory: Memory) -> _Candidate | None:
    """The schedule of a plan; None where that finds no place."""
    streamed, cycles = _stream(ground, chosen, memory)
    found = pipelined(streamed, cycles, memory.scratch, memory.arch, memory.apart, memory.windows)
    if found is None:
        return None
    choices = _as_choices(ground.layers, chosen)
    scheduled = Scheduled(found.steps, memory, found.requests, found.addresses, choices, found.cycles)
    least = _least(ground, memory.arch.sram_bytes, sum(cycles))
    return _Candidate(scheduled, found.cycles, least, len(streamed), found.free)


def _least(ground: Ground, nbytes: int, compute: int) -> int:
    """What a schedule takes at least in which EX computes for so long, in a scratchpad of ``nbytes`` bytes.

    When the layers before one are done, that holds the constants of all from there on, or the bus still has to bring
    what it cannot hold. Constants of the last image of a batch only: those before it have the same.
    """
    least, done, needed = compute, compute, 0
    image = len({layer.name for layer in ground.layers})
    for layer, search in zip(ground.layers[: -image - 1 : -1], ground.searches[: -image - 1 : -1], strict=True):
        geometry, channels = layer.geometry, layer.nest.channels
        done -= search.cost.shape(channels, layer.nest.rows).compute
        needed += geometry.constant_bytes(channels) if geometry.has_constants else 0
        least = max(least, done + (needed - nbytes) // BUS_BYTES)
    return least


def _best_of_others(
    best: _Candidate,
    chosen: LayerPlan,
    ground: Ground,
    fresh: Callable[[], Memory],
    choices: Choices,
    *,
    free: bool,
) -> _Candidate:
    """The best of ``best``, whose plan is ``chosen``, and of other plans; of two that take about as long, the first.

    Residents are chosen one by one, and fewer may serve better; tilings for less leave more room for loads ahead, and
    see to it that a machine is hardly ever slower than one with less memory. ``free``: every larger scratchpad shall
    get the same, so nothing depends on the size of this one.
    """
    tiles, tried = best.tiles, [chosen]
    images = len(ground.layers) // len({layer.name for layer in ground.layers})
    capacity = best.scheduled.memory.arch.sram_bytes
    sizes = [(size, size) for size in SIZES if size < capacity and (size <= LARGEST_FREE or not free)]
    fewer = [(capacity, capacity * share // 100) for share in _FEWER if not free]
    for nbytes, share in (*fewer, *sizes):
        if best.cycles <= ENOUGH * best.least or tiles > MOST_TILES * images or len(tried) > MOST_OTHERS:
            break
        memory = fresh()
        smaller = memory.arch.model_copy(update={"sram_bytes": nbytes})
        try:
            plan = plan_layers(ground, smaller, share, choices)
        except InputError:  # a layer has no tiling that is so small
            break
        if plan in tried:
            continue
        tried.append(plan)
        other = _candidate(ground, plan, memory)
        if other is not None and (other.free or not free):
            tiles += other.tiles
            best = other if other.cycles < BETTER * best.cycles else best
    return best


def _no_place(arch: Arch, choices: Choices) -> InputError:
    if choices:
        return InputError(
            f"{choices.source}: tiles and residents find no place in {arch.sram_bytes} bytes of SRAM together; "
            "choose smaller tiles or fewer residents"
        )
    return InputError(f"the region finds no place in {arch.sram_bytes} bytes of SRAM; give it more memory")


def _as_choices(layers: Sequence[Layer], chosen: LayerPlan) -> Choices:
    """A plan as the choices that leave nothing of it open."""
    tilings = tuple(choice_of(layer.name, tiling) for layer, tiling in zip(layers, chosen.tilings, strict=True))
    groups = tuple(group_choice_of([layer.name for layer in layers], group) for group in chosen.groups)
    return Choices(tilings, chosen.residents, groups)


def _stream(ground: Ground, chosen: LayerPlan, memory: Memory) -> tuple[list[TileSteps], list[int]]:
    """The tiles of all layers with the estimated cycles of their computation."""
    layers = ground.layers
    nbytes = {buffer.name: buffer.nbytes for buffer in memory.lowered.buffers}
    for name in chosen.residents:
        memory.residents[name] = memory.reserve(name, nbytes[name])
    steps: list[TileSteps] = []
    cycles: list[int] = []
    costs = [search.cost for search in ground.searches]
    groups, done = {group.first: group for group in chosen.groups}, 0
    for index, (layer, tiling) in enumerate(zip(layers, chosen.tilings, strict=True)):
        if index < done:
            continue
        group = groups.get(index)
        done = index + 1 if group is None else group.last + 1
        if group is not None and not group.rides:
            for timed in stream_group(group, layers, ground.fabric, costs, memory):
                steps.append(timed.steps)
                cycles.append(timed.cycles)
            continue
        cut, computed = ground.searches[index].cut(tiling)
        steps += stream_layer(layer, tiling, memory, cut, None if group is None else layers[group.last])
        cycles += computed if group is None else map(sum, zip(computed, _riding(costs[group.last], cut), strict=True))
    return steps, cycles


def _riding(cost: LayerCost, cut: Sequence[Tile]) -> Iterator[int]:
    """Estimated cycles of an element-wise layer on each tile of another; sums that others add to are none yet."""
    return (cost.tile_cycles(1, tile.output.elements) if tile.last else 0 for tile in cut)
