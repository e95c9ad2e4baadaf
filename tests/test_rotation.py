"""Rotated cases are each in the quick set at one turn, and in no test twice."""

from __future__ import annotations

from itertools import chain

from tests.rotation import rotate


def test_each_case_is_quick_at_one_turn() -> None:
    cases = list("abcdefghijk")
    quick = []
    for turn in range(70, 74):
        rotated = rotate(cases, 4, turn)
        assert [value for param in rotated for value in param.values] == cases
        quick.append([param.values[0] for param in rotated if not param.marks])
    assert sorted(chain(*quick)) == cases
    assert {len(chosen) for chosen in quick} == {2, 3}
