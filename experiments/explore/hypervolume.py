"""Fronts and hypervolumes of two objectives, exact. Less is better in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

Pair = tuple[float, float]


def front(pairs: Sequence[Pair]) -> list[int]:
    """The places of the pairs that no other beats, by the first objective; of equal pairs the first.

    One pair beats another when it is not worse in either objective and better in one.
    """
    ranked = sorted(range(len(pairs)), key=lambda place: (*pairs[place], place))
    found: list[int] = []
    for place in ranked:
        if not found or pairs[place][1] < pairs[found[-1]][1]:
            found.append(place)
    return found


def hypervolume(pairs: Iterable[Pair], reference: Pair) -> float:
    """The area between ``reference`` and the pairs: of all that some pair is at least as good as, up to ``reference``.

    Pairs that are not better than the reference in both objectives add nothing.
    """
    inside = sorted({pair for pair in pairs if pair[0] < reference[0] and pair[1] < reference[1]})
    heights = accumulate((pair[1] for pair in inside), min, initial=reference[1])
    area = 0.0
    for (across, up), height in zip(inside, heights, strict=False):
        area += (reference[0] - across) * max(height - up, 0.0)
    return area


def needed(pairs: Sequence[Pair | None], reference: Pair, goal: float) -> int | None:
    """How many of ``pairs``, in order, it takes to reach the hypervolume ``goal``; None if all do not.

    None in ``pairs`` stands for a point that counts and has no objectives. The result is at least 1.
    """
    if hypervolume((pair for pair in pairs if pair is not None), reference) < goal:
        return None
    low, high = 1, len(pairs)
    while low < high:
        middle = (low + high) // 2
        if hypervolume((pair for pair in pairs[:middle] if pair is not None), reference) >= goal:
            high = middle
        else:
            low = middle + 1
    return low
