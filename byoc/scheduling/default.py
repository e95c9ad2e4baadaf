"""The default schedule: fused, resident where it pays, double-buffered and pipelined across layers.

What looks best on paper may not pack: the plan is then made again with less of the scratchpad given to residents. With
none, every layer's buffers fit by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from byoc.choices import NOTHING, Choices
from byoc.operators.layer import Layer
from byoc.scheduling.chosen import choice_of
from byoc.scheduling.pipelining import pipelined
from byoc.scheduling.pool import SearchPool
from byoc.scheduling.residency import LayerPlan, plan_layers
from byoc.scheduling.schedule import Scheduled
from byoc.scheduling.stream import Memory, TileSteps, stream_layer
from byoc.tiling.search import TileSearch
from byoc.tiling.tiling import sizes, tiles
from isa.errors import InputError

_RESIDENT_SHARES = (100, 95, 90, 80, 65, 50, 0)


def schedule_default(
    layers: Sequence[Layer],
    fresh: Callable[[], Memory],
    pool: SearchPool[Any],
    subject: Hashable = None,
    choices: Choices = NOTHING,
) -> Scheduled:
    """The schedule of a region's layers, as ``choices`` say. ``fresh`` makes an empty memory for each attempt.

    ``pool`` knows tilings, and what it has kept of ``subject`` (equal ones have equal layers) may serve again.
    """
    memory = fresh()
    arch = memory.arch
    searches = pool.searches(layers, arch)
    for share in _RESIDENT_SHARES if choices.residents is None else _RESIDENT_SHARES[:1]:
        chosen = plan_layers(layers, searches, memory.lowered, arch, arch.sram_bytes * share // 100, choices)
        first = share == _RESIDENT_SHARES[0]
        kept = pool.schedule(subject, chosen, arch) if first and subject is not None else None
        if kept is not None:
            return kept
        memory = fresh()
        streamed, cycles = _stream(layers, chosen, searches, memory)
        found = pipelined(streamed, cycles, memory.scratch, arch)
        if found is not None:
            scheduled = Scheduled(
                found.steps, memory, found.requests, found.addresses, choices=_as_choices(layers, chosen)
            )
            if first and subject is not None and found.free:
                pool.keep(subject, chosen, arch, scheduled)
            return scheduled
    if choices:
        raise InputError(
            f"{choices.source}: tiles and residents find no place in {arch.sram_bytes} bytes of SRAM together; "
            "choose smaller tiles or fewer residents"
        )
    raise InputError(f"the region finds no place in {arch.sram_bytes} bytes of SRAM; give it more memory")


def _as_choices(layers: Sequence[Layer], chosen: LayerPlan) -> Choices:
    """A plan as the choices that leave nothing of it open."""
    tilings = tuple(choice_of(layer.name, tiling) for layer, tiling in zip(layers, chosen.tilings, strict=True))
    return Choices(tilings, chosen.residents)


def _stream(
    layers: Sequence[Layer], chosen: LayerPlan, searches: Sequence[TileSearch], memory: Memory
) -> tuple[list[TileSteps], list[int]]:
    """The tiles of all layers with the estimated cycles of their computation."""
    nbytes = {buffer.name: buffer.nbytes for buffer in memory.lowered.buffers}
    for name in chosen.residents:
        memory.residents[name] = memory.reserve(name, nbytes[name])
    steps: list[TileSteps] = []
    cycles: list[int] = []
    for layer, tiling, search in zip(layers, chosen.tilings, searches, strict=True):
        steps += stream_layer(layer, tiling, memory)
        cycles += [search.cost.tile_cycles(*sizes(tile)) for tile in tiles(layer.geometry, tiling)]
    return steps, cycles
