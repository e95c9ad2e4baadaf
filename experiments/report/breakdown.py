"""The breakdown of the layers' cycles as a table: what each layer computed and what it waited for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table

from dla_sim.engine.roles import PARTS
from experiments.report.terminal import plain_table

if TYPE_CHECKING:
    from experiments.report.schema import Figures, Layer, RunReport

HEADINGS = {part: part if part in ("compute", "scratchpad") else f"wait {part}" for part in PARTS}
"""Column headings of the parts."""


def breakdown_table(report: RunReport | Figures) -> Table | None:
    """One row a layer, parts that never occur left out, a row of totals; None if the report has no breakdown."""
    layers = [layer for layer in report.layers if layer.breakdown]
    totals: Counter[str] = Counter()
    for layer in layers:
        totals.update(layer.breakdown)
    shown = [part for part in PARTS if totals[part]]
    if not shown:
        return None
    table = plain_table(("layer", "fold"), ("cycles", "right"), *((HEADINGS[part], "right") for part in shown))
    for layer in layers:
        table.add_row(layer.name, f"{layer.cycles:,}", *_cells(layer, shown))
    table.add_section()
    cycles = sum(layer.cycles for layer in layers)
    table.add_row("total", f"{cycles:,}", *(f"{totals[part]:,}" for part in shown))
    table.add_row("", "", *(f"{totals[part] / cycles:.1%}" for part in shown))
    return table


def _cells(layer: Layer, shown: list[str]) -> list[str]:
    """Zeros stay empty, so that what a layer waits for catches the eye."""
    return [f"{layer.breakdown[part]:,}" if layer.breakdown[part] else "" for part in shown]
