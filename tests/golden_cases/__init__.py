"""Generators of the golden cases of levels 0, 1, 2 and 10, the source of ``cases.zip``.

``python -m tests.golden_cases`` writes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from experiments.golden.case import GoldenCase
from tests.golden_cases import (
    level0,
    level1,
    level1_streams,
    level2,
    level2_large,
    level2_values,
    level10,
    words,
)

Make = Callable[[], Iterator[GoldenCase]]
SOURCES: Mapping[str, tuple[Make, ...]] = {
    "L0": (level0.cases,),
    "L1": (level1.instructions, level1_streams.streams, words.cases),
    "L2": (level2_values.values, level2.shapes, level2_large.large, level2.refusals),
    "L10": (level10.cases,),
}


def made(level: str) -> Iterator[GoldenCase]:
    """The cases of a level, made one after another."""
    for source in SOURCES[level]:
        yield from source()
