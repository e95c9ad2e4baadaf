"""Fronts and hypervolumes against areas counted by hand and square by square."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.explore.exploration import count_needed, hypervolume
from experiments.sweep.results import Pair, front

REFERENCE = (10.0, 10.0)
PAIRS = st.lists(
    st.tuples(st.integers(0, 12).map(float), st.integers(0, 12).map(float)), max_size=12
)


@pytest.mark.parametrize(
    ("pairs", "area"),
    [
        ([], 0),
        ([(10, 0)], 0),  # not better than the reference in the first
        ([(0, 10)], 0),
        ([(11, 11)], 0),
        ([(4, 6)], 6 * 4),
        ([(4, 6), (4, 6)], 24),
        ([(4, 6), (5, 7)], 24),  # beaten, adds nothing
        ([(2, 8), (6, 3)], 8 * 2 + 4 * 5),  # below the first's 8 the second adds 10 - 6 by 8 - 3
        ([(6, 3), (2, 8)], 36),
        ([(2, 8), (6, 3), (6, 9)], 36),
        ([(1, 9), (2, 8), (3, 7)], 9 + 8 + 7),
        ([(0, 0)], 100),
        ([(-5, 5)], 15 * 5),
        ([(4, 6), (11, 1), (1, 11)], 24),
    ],
)
def test_areas_counted_by_hand(pairs: list[Pair], area: float) -> None:
    assert hypervolume(pairs, REFERENCE) == area


@given(PAIRS)
def test_the_area_is_that_of_the_squares_covered(pairs: list[Pair]) -> None:
    covered = sum(
        any(x <= column and y <= row for x, y in pairs) for column in range(10) for row in range(10)
    )
    assert hypervolume(pairs, REFERENCE) == covered


@given(PAIRS)
def test_the_front_has_what_none_beats(pairs: list[Pair]) -> None:
    def beaten(pair: Pair) -> bool:
        return any(other != pair and other[0] <= pair[0] and other[1] <= pair[1] for other in pairs)

    places = front(pairs)
    assert {pairs[place] for place in places} == {pair for pair in pairs if not beaten(pair)}
    assert len({pairs[place] for place in places}) == len(places)
    assert all(pairs.index(pairs[place]) == place for place in places)
    assert [pairs[place] for place in places] == sorted(pairs[place] for place in places)
    assert hypervolume([pairs[place] for place in places], REFERENCE) == hypervolume(
        pairs, REFERENCE
    )


def test_how_many_it_takes() -> None:
    pairs: list[Pair | None] = [None, (4.0, 6.0), (5.0, 7.0), (2.0, 8.0), (6.0, 3.0), None]
    areas = [0, 24, 24, 24 + 2 * 2, 24 + 2 * 2 + 4 * 3, 40]
    for count, area in enumerate(areas, 1):
        assert hypervolume((pair for pair in pairs[:count] if pair is not None), REFERENCE) == area
    assert [count_needed(pairs, REFERENCE, goal) for goal in (0, 1, 24, 25, 28, 28.5, 40, 41)] == [
        1,
        2,
        2,
        4,
        4,
        5,
        5,
        None,
    ]


@given(PAIRS, st.integers(1, 100))
def test_how_many_it_takes_is_the_first_that_suffices(pairs: list[Pair], goal: int) -> None:
    counts = [
        count for count in range(1, len(pairs) + 1) if hypervolume(pairs[:count], REFERENCE) >= goal
    ]
    assert count_needed(list(pairs), REFERENCE, goal) == (counts[0] if counts else None)
