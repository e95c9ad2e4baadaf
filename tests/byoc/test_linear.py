"""Import takes work in proportion to the network: lines of ours that are executed, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from benchmarks.importing import CHAINS, chain
from byoc.importing import import_model

FIRST, MORE = 8, 24


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """How many lines of the compiler are executed, iterations of loops on one line included, in a list of one."""
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
    first, second = lines[1] - lines[0], lines[2] - lines[1]
    assert second <= 1.05 * first, f"{MORE} more take {first} lines, and {MORE} more {second}"
