"""Bars: the configurations of figure 4 of Sponner et al. (2021) with their cycles, from the rows of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Scenario = Literal["none", "emulated", "native"]
Side = Literal["I", "O"]

SCENARIOS: dict[Scenario, str] = {
    "none": "no depthwise (on the CPU)",
    "emulated": "depthwise emulated on OP_CONV",
    "native": "native OP_DEPTH_CONV",
}
"""The three scenarios of the paper's section 5, in its order, with what we call them."""
KINDS = ("CONV", "DEPTH", "REQUANT")
"""The subgraph types that the published bars are stacked of."""
KIB, MIB = 1 << 10, 1 << 20
MEMORIES = {256 * KIB: "256 KiB", 512 * KIB: "512 KiB", MIB: "1 MiB", 256 * MIB: "256 MiB"}


@dataclass(frozen=True)
class Bar:
    """One configuration under one schedule. ``side``: input- or output-parallel, I or O.

    ``ex`` are the cycles in which EX executes, by kind; ``total`` is the whole run, DMA and waiting included. Both are
    empty where the configuration is not possible, and ``message`` says why.
    """

    scenario: Scenario
    schedule: str
    sram_bytes: int
    pes: int
    side: Side
    ex: Mapping[str, int] = field(default_factory=dict)
    total: int | None = None
    message: str | None = None

    @property
    def ran(self) -> bool:
        """Whether the configuration is possible."""
        return self.total is not None

    @property
    def height(self) -> int:
        """EX cycles of CONV, DEPTH and REQUANT together: the height of the published bar."""
        return sum(self.ex.get(kind, 0) for kind in KINDS)

    @property
    def other(self) -> int:
        """EX cycles of what the paper leaves to the CPU and this compiler accelerates: pooling, classifier."""
        return sum(self.ex.values()) - self.height

    @property
    def label(self) -> str:
        """The published label: memory, processing elements, side."""
        return f"{MEMORIES.get(self.sram_bytes, f'{self.sram_bytes} B')} {self.pes} {self.side}"


class Bars:
    """The bars of one schedule. Raises ValueError when two bars have the same place."""

    def __init__(self, bars: Iterable[Bar]) -> None:
        self._bars: dict[tuple[Scenario, int, int, Side], Bar] = {}
        for bar in bars:
            place = (bar.scenario, bar.sram_bytes, bar.pes, bar.side)
            if place in self._bars:
                raise ValueError(f"two bars {bar.label} in scenario {bar.scenario}")
            self._bars[place] = bar

    def __iter__(self) -> Iterator[Bar]:
        return iter(self._bars.values())

    def at(self, scenario: Scenario, sram_bytes: int, pes: int, side: Side) -> Bar:
        """The bar with these properties; raises KeyError where there is none."""
        return self._bars[scenario, sram_bytes, pes, side]

    def panel(self, scenario: Scenario) -> list[Bar]:
        """The bars that the figure shows of one scenario, in its order: by memory, processing elements, side."""
        shown = [bar for bar in self if bar.scenario == scenario and bar.sram_bytes >= 512 * KIB]
        return sorted(shown, key=lambda bar: (bar.sram_bytes, bar.pes, bar.side))


def bars_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Bars]:
    """The bars of every schedule, by its name, from rows as ``experiments.sweep.frame.flat_rows`` has them."""
    found: dict[str, list[Bar]] = {}
    for row in rows:
        found.setdefault(row["schedule"], []).append(_bar(row))
    return {schedule: Bars(bars) for schedule, bars in found.items()}


def _bar(row: Mapping[str, Any]) -> Bar:
    prefix = "ex_cycles."
    scenario: Scenario = "native" if row["isa"] != "v1" else "emulated" if row["emulate_depthwise"] else "none"
    return Bar(
        scenario=scenario,
        schedule=row["schedule"],
        sram_bytes=row["sram_bytes"],
        pes=row["pe.count"],
        side="O" if row["pe.oc"] > row["pe.ic"] else "I",
        ex={name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix) and value},
        total=row["cycles"],
        message=row["message"],
    )
