"""Split the nodes of a region into consecutive groups, one for each accelerator."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from math import inf

from byoc.splitting.pieces import RefusedError, SplitProgram, SplitStep, Splitter


def split_by_pipeline(splitter: Splitter) -> list[SplitStep]:
    """Split the nodes into consecutive groups, one per accelerator.

    The cuts minimise the duration of the slowest group, with its program running alone. An
    accelerator gets no nodes if it would only make that group slower.
    """
    nodes = splitter.region.nodes

    @cache
    def group(number: int, start: int, stop: int) -> SplitProgram | None:
        try:
            return splitter.whole(nodes[start:stop], number)
        except RefusedError:
            return None

    def cost(number: int, start: int, stop: int) -> float:
        piece = group(number, start, stop)
        return inf if piece is None else piece.cycles

    cuts = best_cuts(len(splitter.accelerators), len(nodes), cost)
    places = [(number, *ends) for number, ends in enumerate(pairwise(cuts)) if ends[0] < ends[1]]
    pieces = [(start, stop, group(number, start, stop)) for number, start, stop in places]
    return [
        SplitStep(tuple(node.name for node in nodes[start:stop]), (one,))
        for start, stop, one in pieces
        if one
    ]


Cost = Callable[[int, int, int], float]
"""Cost of the parts from ``start`` to ``stop`` (at least one) in group ``number``."""


def best_cuts(count: int, parts: int, cost: Cost) -> list[int]:
    """Cut a sequence into ``count`` groups so that the most expensive group costs least.

    The result is 0, the cuts, ``parts``. Groups may be empty and then cost nothing. The cuts are
    optimal if adding a part never makes a group cheaper, which holds for nearly all programs. The
    search needs only few costs.
    """
    cuts: list[int] | None = [0, *[parts] * count]
    while cuts is not None:
        best = cuts
        dearest = max(
            cost(number, *ends) for number, ends in enumerate(pairwise(best)) if ends[0] < ends[1]
        )
        cuts = _cuts_below(dearest, count, parts, cost)
    return best


def _cuts_below(limit: float, count: int, parts: int, cost: Cost) -> list[int] | None:
    """Return cuts that keep the cost of every group below ``limit``, or None.

    Each group is as long as possible.
    """
    cuts = [0]
    for number in range(count):
        start = cuts[-1]
        stops = range(start + 1, parts + 1)
        cuts.append(start + bisect_left(stops, limit, key=partial(cost, number, start)))
    return cuts if cuts[-1] == parts else None
