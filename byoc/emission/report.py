"""The account of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc.emission.steps import Step


@dataclass(frozen=True)
class CompileReport:
    """Account of one compilation: command words before and after elision, peak SRAM, tiles a layer."""

    words_before_elision: int
    words: int
    sram_peak_bytes: int
    tiles: Mapping[str, int]


def tiles_by_layer(steps: tuple[Step, ...]) -> dict[str, int]:
    """How many tiles every layer of a schedule has."""
    found: dict[str, int] = {}
    for step in steps:
        source = step.source
        found[source.layer] = max(found.get(source.layer, 0), source.tile + 1)
    return found
