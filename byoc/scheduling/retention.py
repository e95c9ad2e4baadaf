"""Retention: constants that several layers load stay in the scratchpad between these layers.

The steps of an unrolled recurrent layer share their weights. A retained tile of them is loaded
once, into a buffer of its own that lives from its first to its last use. Tiles that do not fit are
loaded again for every layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from byoc.scheduling.fetches import BufferFetch, RepeatedFetch, list_fetches
from byoc.scheduling.pipelining import rename_buffers
from byoc.scheduling.stream import CommandStep, Memory, TileSteps, lifetimes


def retain_constants(tiles: Sequence[TileSteps], memory: Memory) -> list[TileSteps] | None:
    """Return tiles that load repeated constants once, or None if there are none that fit.

    The constants that save most load cycles for the scratchpad bytes that they take come first.
    ``memory`` gets their buffers. Buffers that are no longer used get 0 bytes.
    """
    fetches = list_fetches(tiles, memory.bus)
    repeated = sorted(_list_repeated(fetches, memory), key=lambda one: -one.gain)
    lives = lifetimes(tiles) if repeated else {}
    taken = np.zeros(len(tiles), np.int64)
    for buffer, (first, last) in lives.items():
        taken[first : last + 1] += memory.scratch[buffer][1]
    used = Counter(fetch.buffer for fetch in fetches)
    names: list[dict[int, int]] = [{} for _ in tiles]
    dropped: set[int] = set()
    for one in repeated:
        if taken[one.span].max() + one.nbytes > memory.arch.sram_bytes:
            continue
        taken[one.span] += one.nbytes
        held = memory.reserve(f"{memory.scratch[one.fetches[0].buffer][0]} held", one.nbytes)
        for fetch in one.fetches:
            for number in range(fetch.tile, fetch.last + 1):
                names[number][fetch.buffer] = held.buffer
            used[fetch.buffer] -= 1
            if not used[fetch.buffer]:
                name, nbytes = memory.scratch[fetch.buffer]
                first, last = lives[fetch.buffer]
                taken[first : last + 1] -= nbytes
                memory.scratch[fetch.buffer] = name, 0
        dropped.update(id(step) for fetch in one.fetches[1:] for step in fetch.steps)
    return (
        [_rename_tile(*pair, dropped) for pair in zip(tiles, names, strict=True)]
        if dropped
        else None
    )


def _list_repeated(fetches: Sequence[BufferFetch], memory: Memory) -> Iterator[RepeatedFetch]:
    """Yield constants that several layers load; skip ``memory.windows`` and ``memory.apart``."""
    later = {id(fetch.again) for fetch in fetches}
    for fetch in fetches:
        if fetch.again is None or id(fetch) in later:
            continue
        chain = [fetch]
        while (following := chain[-1].again) is not None:
            chain.append(following)
        buffers = {one.buffer for one in chain}
        if not buffers & (memory.windows | memory.apart):
            yield RepeatedFetch(tuple(chain), max(memory.scratch[buffer][1] for buffer in buffers))


def _rename_tile(tile: TileSteps, names: dict[int, int], dropped: set[int]) -> TileSteps:
    if not names:
        return tile
    loads = [step for step in tile.loads if id(step) not in dropped]
    parts: tuple[Sequence[CommandStep], ...] = (loads, tile.computes, tile.stores)
    return TileSteps(*(tuple(rename_buffers(part, names)) for part in parts))
