"""Import takes work in proportion to the network: lines of ours that are executed, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

from benchmarks.importing import CHAINS, SHAPE, chain
from byoc.checking.stretches import stretches
from byoc.importing import import_model

FIRST = 8
MORE = 24


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Count the executed lines of the compiler in a list of one number.

    Iterations of a loop on one line count too.
    """
    count = [0]

    def local(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        count[0] += event == "line"
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return local if "/byoc/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("kind", CHAINS)
def test_work_grows_with_the_network(kind: str) -> None:
    import_model(chain(kind, 2))  # what is found out once a process
    lines = []
    for length in (FIRST, FIRST + MORE, FIRST + 2 * MORE):
        with counted_lines() as count:
            import_model(chain(kind, length))
        lines.append(count[0])
    first = lines[1] - lines[0]
    second = lines[2] - lines[1]
    assert second <= 1.05 * first, f"{MORE} more take {first} lines, and {MORE} more {second}"


def test_work_of_a_stretch_is_that_of_its_own_nodes() -> None:
    lines = []
    for length in (100, 200, 300):
        names = [f"t{number}" for number in range(length - 1)]
        parts = [names[first : first + 10] for first in range(0, length - 1, 10)]
        with counted_lines() as count:
            found = list(
                stretches(chain("additions", length), parts, {"x": np.ones(SHAPE, np.float32)})
            )
        assert [sorted(part) for part in found[:-1]] == [sorted(part) for part in parts[:-1]]
        assert all(
            (array == 2 + number).all()
            for number, array in enumerate(found[0][name] for name in parts[0])
        )
        lines.append(count[0])
    assert lines[2] - lines[1] <= 1.05 * (lines[1] - lines[0])
