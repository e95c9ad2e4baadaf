"""All cases that a recording makes, in order of level."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from experiments.golden.case import Case
from experiments.golden.catalogue import level0, level1, level2, level10, networks

Make = Callable[[], Iterator[Case]]
CATALOGUE: Mapping[str, tuple[Make, ...]] = {
    "L0": (level0.cases,),
    "L1": (level1.instructions, level1.streams),
    "L2": (level2.values, level2.shapes, level2.large, level2.refusals),
    "L10": (level10.cases,),
    "networks": (networks.cases,),
}


def catalogue(levels: Collection[str] = ()) -> Iterator[Case]:
    """The cases of ``levels``, of all levels when none is given; made one after another."""
    for level, sources in CATALOGUE.items():
        if level in levels or not levels:
            for source in sources:
                yield from source()
