"""Tags of bytes, stored as runs or single bytes, read like an array with one tag per byte."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from isa.dataflow import Steps
from isa.sanitizer.tags import TaggedBytes, all_tags

NBYTES = 96
KIND = np.dtype(np.int32)


def places(begin: int, nbytes: int, dims: Steps) -> NDArray[np.int64]:
    """The bytes of an access, in address-generation order."""
    found = np.arange(begin, begin + nbytes)
    for count, stride in reversed(dims):
        found = (np.arange(count)[:, np.newaxis] * stride + found).reshape(-1)
    return found


def drawn_access(rng: random.Random, unit: int) -> tuple[int, int, Steps]:
    """An access inside the memory, strided in half of the cases; strides may be negative or 0."""
    while True:
        dims = tuple(
            (rng.randint(1, 3), unit * rng.randint(-4, 6)) for _ in range(rng.choice((0, 0, 1, 2)))
        )
        access = unit * rng.randrange(NBYTES // unit), unit * rng.randint(1, 8), dims
        if 0 <= places(*access).min() <= places(*access).max() < NBYTES:
            return access


@pytest.mark.parametrize("seed", range(200))
def test_reads_return_what_was_written_last(seed: int) -> None:
    rng = random.Random(seed)
    unit = rng.choice((1, 4))
    first = rng.choice((None, 1000))
    memory = TaggedBytes(NBYTES, unit, KIND, first)
    single = (
        np.zeros(NBYTES // unit, KIND)
        if first is None
        else first + np.arange(NBYTES // unit, dtype=KIND)
    )
    for _ in range(30):
        access = drawn_access(rng, unit)
        at = places(
            access[0] // unit, access[1] // unit, tuple((n, step // unit) for n, step in access[2])
        )
        read = all_tags(memory.read(*access), at.size, KIND)
        assert read.tolist() == single[at].tolist()
        action = rng.choice(("tags", "run", "run", "fill", "copy"))
        # a command that writes a byte twice has no defined result
        if len(set(at.tolist())) < at.size:
            continue
        if action == "fill":
            memory.fill(*access, 7)
            single[at] = 7
        elif action == "copy":
            other = drawn_access(rng, unit)
            if places(*other).size == at.size * unit:
                source = places(
                    other[0] // unit,
                    other[1] // unit,
                    tuple((n, step // unit) for n, step in other[2]),
                )
                memory.write(*access, memory.read(*other))
                single[at] = single[source].copy()
        else:
            begin = rng.randrange(2000, 3000)
            tags = (
                np.arange(begin, begin + at.size, dtype=KIND)
                if action == "run"
                else rng_tags(rng, at.size)
            )
            memory.write(*access, begin if action == "run" else tags)
            single[at] = tags


def rng_tags(rng: random.Random, count: int) -> NDArray[np.int32]:
    """Tags without order."""
    return np.array([rng.randrange(10, 100) for _ in range(count)], KIND)


def test_runs_that_continue_are_one_run() -> None:
    """Constants that two loads bring are read as one operand without a tag per byte."""
    memory = TaggedBytes(64, 16, KIND)
    memory.write(0, 32, (), 500)
    memory.write(32, 16, (), 502)
    assert memory.read(0, 48) == 500
    assert memory.read(16, 32) == 501
    memory.write(16, 16, (), 900)
    assert memory.read(32, 16) == 502
    assert all_tags(memory.read(0, 64), 4, KIND).tolist() == [500, 900, 502, 0]
