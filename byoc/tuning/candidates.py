"""Tilings to try at a site: drawn from the space of all that are legal, or one step away from one that is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from byoc.operators.operator import Geometry
from byoc.operators.tiling import Resident, Tiling
from byoc.tiling import buffered, channel_tiles, depths, row_bands
from isa.arch import Arch
from isa.instruction import ceil_div

TRIES = 24
"""Shapes that are drawn before a site is given up: most of what is drawn does not fit a small scratchpad."""
FRESH, REBUFFERED = 0.35, 0.3
"""Shares of new draws, and of steps that change buffers and order alone; the others change one size."""


class Drawing:
    """Draws tilings of one geometry beside what is resident, within ``budget`` bytes."""

    def __init__(self, geometry: Geometry, arch: Arch, resident: Resident, budget: int) -> None:
        self._geometry, self._arch, self._resident, self._budget = geometry, arch, resident, budget
        self._channels, self._depths = _sizes(geometry, arch, resident)
        self._known: dict[tuple[int, int, int], tuple[Tiling, ...]] = {}

    def fresh(self, random: np.random.Generator) -> Tiling | None:
        """Any tiling: few tiles are as likely as many. None where nothing that was drawn fits."""
        for _ in range(TRIES):
            channels = _pick(random, self._channels)
            shape = Tiling(channels, _pick(random, self._rows(channels)), depth=_pick(random, self._depths))
            found = self._buffered(random, shape)
            if found is not None:
                return found
        return None

    def near(self, random: np.random.Generator, known: Tiling) -> Tiling | None:
        """A tiling that differs from ``known``, mostly in one thing; None where nothing that was drawn fits."""
        for _ in range(TRIES):
            kind = random.random()
            if kind < FRESH:
                return self.fresh(random)
            shape = known if kind < FRESH + REBUFFERED else self._stepped(random, known)
            found = self._buffered(random, shape)
            if found is not None and found != known:
                return found
        return None

    def _stepped(self, random: np.random.Generator, known: Tiling) -> Tiling:
        """``known`` with one of its sizes a little larger or smaller."""
        axis = ("channels", "rows", "depth")[int(random.integers(3))]
        if axis == "rows":
            return known._replace(rows=beside(random, self._rows(known.channels), known.rows))
        if axis == "depth":
            return known._replace(depth=beside(random, self._depths, known.depth))
        channels = beside(random, self._channels, known.channels)
        rows = self._rows(channels)
        return known._replace(channels=channels, rows=known.rows if len(rows) > 1 else rows[0])

    def _buffered(self, random: np.random.Generator, shape: Tiling) -> Tiling | None:
        """One of the ways to order and buffer a shape, None where none fits."""
        key = shape.channels, shape.rows, shape.depth
        found = self._known.get(key)
        if found is None:
            plain = Tiling(*key[:2], depth=shape.depth)
            found = self._known[key] = tuple(buffered(self._geometry, self._arch, self._resident, self._budget, plain))
        return found[int(random.integers(len(found)))] if found else None

    def _rows(self, channels: int) -> tuple[int, ...]:
        return _bands(self._geometry, channels)


@lru_cache(maxsize=1024)
def _sizes(geometry: Geometry, arch: Arch, resident: Resident) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Channel tiles and depths to draw from, from coarse to fine."""
    nest, parallel = geometry.nest, geometry.operator.parallel_channels(geometry, arch)
    channels = even_sizes(channel_tiles(geometry, resident), nest.channels, parallel)
    cuts = depths(geometry, resident)
    return channels, (0, *even_sizes(cuts[1:], nest.input_channels, arch.pe.ic))


@lru_cache(maxsize=4096)
def _bands(geometry: Geometry, channels: int) -> tuple[int, ...]:
    return even_sizes(row_bands(geometry, channels), geometry.nest.rows)


def even_sizes(sizes: Sequence[int], whole: int, parallel: int = 0) -> tuple[int, ...]:
    """The most even cut into each number of pieces, and cuts into what the array takes in parallel."""
    smallest: dict[int, int] = {}
    for size in sizes:
        count = ceil_div(whole, size)
        smallest[count] = min(size, smallest.get(count, size))
    fitting = {size for size in sizes if parallel and size % parallel == 0}
    return tuple(sorted({*smallest.values(), *fitting}, reverse=True))


def _pick(random: np.random.Generator, sizes: Sequence[int]) -> int:
    """One of some sizes; the first ones, which are coarse, more often."""
    return sizes[int(len(sizes) * random.random() ** 2)]


def beside(random: np.random.Generator, sizes: Sequence[int], known: int) -> int:
    """A size up to three places from ``known``, or from the first that is not larger."""
    place = next((number for number, size in enumerate(sizes) if size <= known), len(sizes) - 1)
    step = int(random.integers(1, 4)) * (1 if random.random() < 0.5 else -1)
    return sizes[min(max(place + step, 0), len(sizes) - 1)]
