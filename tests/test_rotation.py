"""Files that start first exist, and each case is in the quick set, or chosen, at one turn."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from tests.conftest import LONGEST
from tests.rotation import choose_cases, rotate, rotate_parts


def test_the_files_that_start_first_exist() -> None:
    folder = Path(__file__).parent
    assert [name for name in LONGEST if not (folder / name).is_file()] == []
    assert len({*LONGEST}) == len(LONGEST)


def test_each_case_is_quick_at_one_turn() -> None:
    cases = list("abcdefghijk")
    quick = []
    for turn in range(70, 74):
        rotated = rotate(cases, 4, turn)
        assert [value for param in rotated for value in param.values] == cases
        quick.append([param.values[0] for param in rotated if not param.marks])
    assert sorted(chain(*quick)) == cases
    assert {len(chosen) for chosen in quick} == {2, 3}


def test_other_cases_are_slow_at_one_turn() -> None:
    for slow in (False, True):
        found = [
            param.values[0]
            for turn in range(70, 74)
            for param in rotate_parts("abcdefghijk", 4, turn)
            if bool(param.marks) is slow
        ]
        assert sorted(found) == list("abcdefghijk")


def test_each_case_is_chosen_at_one_turn() -> None:
    chosen = [choose_cases("abcdefghijk", 3, turn) for turn in range(5, 8)]
    assert sorted(chain(*chosen)) == list("abcdefghijk")
