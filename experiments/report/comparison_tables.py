"""Two runs side by side as tables for a terminal: conditions that differ, totals, largest movers, layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from experiments.report.charts.text import change
from experiments.report.comparison import cycles_of
from experiments.report.terminal import plain_table

if TYPE_CHECKING:
    from experiments.report.comparison import Comparison, LayerPair

MOVERS = 10
"""Rows of the table of largest movers."""


def print_comparison(found: Comparison, names: tuple[str, str], console: Console) -> None:
    """Print everything; ``names`` are what the runs are called."""
    for letter, name, run in zip("AB", names, (found.before, found.after), strict=True):
        console.print(f"{letter}: {name}: {run.command}", markup=False)
    tables = [settings_table(found), totals_table(found)]
    movers = found.movers
    if movers:
        tables.append(layers_table(f"largest movers of {len(movers)}", movers[:MOVERS]))
    for table in (*tables, layers_table("layer", found.layers)):
        console.print(table)


def settings_table(found: Comparison) -> Table:
    """Conditions that differ; one line says so where none does."""
    table = plain_table(("what differs", "left"), ("A", "fold"), ("B", "fold"))
    for name, first, second in found.settings or (("nothing but the results", "", ""),):
        table.add_row(name, str(first), str(second))
    return table


def number(value: float, unit: str = "") -> str:
    """A figure as a cell: whole numbers with separators, others with three decimals."""
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
    return f"{text} {unit}".strip()


def totals_rows(found: Comparison) -> Iterable[Sequence[str]]:
    """Name, A, B, difference, change in percent; the cycles by kind after the totals."""
    rows = [*found.totals, *((f"cycles of {kind}", "cycles", one, other) for kind, one, other in found.kinds)]
    for name, unit, before, after in rows:
        share = "" if unit == "%" else change(before, after)
        yield name, number(before, unit), number(after, unit), signed(after - before), share


def signed(value: float) -> str:
    """A difference: with its sign, empty where there is none."""
    if not value:
        return ""
    return f"{value:+,}" if isinstance(value, int) else f"{value:+,.3f}"


def totals_table(found: Comparison) -> Table:
    """Totals of both runs."""
    table = plain_table(("total", "left"), ("A", "right"), ("B", "right"), ("B - A", "right"), ("change", "right"))
    for row in totals_rows(found):
        table.add_row(*row)
    return table


def layer_row(pair: LayerPair) -> Sequence[str]:
    """Name, kinds, cycles of A and B, difference and change, bytes of A and B."""
    found = [pair.before, pair.after]
    kinds = dict.fromkeys(kind for sums in found if sums for kind in sums.kinds)
    cycles = ["-" if sums is None else f"{sums.cycles:,}" for sums in found]
    moved = ["-" if sums is None else f"{sums.dram_bytes:,}" for sums in found]
    both = all(sums is not None for sums in found)
    share = change(cycles_of(pair.before), cycles_of(pair.after)) if both else "only " + "AB"[pair.before is None]
    return pair.name, " + ".join(kinds), *cycles, signed(pair.change), share, *moved


LAYER_HEADINGS = ("kind", "cycles A", "cycles B", "B - A", "change", "DRAM bytes A", "DRAM bytes B")


def layers_table(heading: str, pairs: Iterable[LayerPair]) -> Table:
    """A row a layer."""
    columns = [(name, "left" if name == "kind" else "right") for name in LAYER_HEADINGS]
    table = plain_table((heading, "fold"), *columns)
    for pair in pairs:
        table.add_row(*layer_row(pair))
    return table
