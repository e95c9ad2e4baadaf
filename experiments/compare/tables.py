"""A comparison as tables for a terminal: conditions that differ, totals, largest movers, layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from experiments.compare.comparison import COUNTED, FIGURES, MILLISECONDS, MOVERS, OF_RUNS, Comparison, LayerPair, Pair
from experiments.figure import SHARE
from experiments.report.terminal import Printed, ReportTable, line, plain_table

_COLUMNS = {"dram_read_bytes": "bytes read", "dram_write_bytes": "bytes written"}
_COLUMNS = {name: _COLUMNS.get(name, COUNTED[name].words) for name in FIGURES if name not in ("cycles", "macs")}
"""Columns of a layer beside its cycles, by figure."""
_RANKS = {"kind": 2, "cycles B": 1, "instructions": 5, "bytes read": 4, "bytes written": 3}
"""What the table of layers leaves out where there is no room, the highest first."""
_SOLE = {"only in A": "only A", "only in B": "only B"}
NO_CONDITION = ("nothing but the results", "", "")
"""What stands in place of conditions where none differs."""
NO_MOVERS = "no layer's cycles changed"


def comparison_tables(found: Comparison) -> Iterator[Printed]:
    """Everything."""
    for words in side_lines(found):
        yield line(": ".join(words))
    yield _table(("what differs", "left"), ("A", "fold"), ("B", "fold"), rows=condition_rows(found))
    figures = [(name, "right") for name in ("A", "B", "B - A", "change")]
    yield _table(("total", "left"), *figures, rows=totals_rows(found))
    movers = found.movers
    yield _layers_table(found, f"largest movers of {len(movers)}", movers[:MOVERS]) if movers else line(NO_MOVERS)
    yield _layers_table(found, "layer", found.layers)
    for layer in found.differing:
        yield line(f"{layer.name}: {layer.remark}", style="red")


def side_lines(found: Comparison) -> Iterable[Sequence[str]]:
    """Letter, title and, where it is known, command of both sides."""
    for letter, side in (("A", found.a), ("B", found.b)):
        yield (letter, side.title, side.command) if side.command else (letter, side.title)


def condition_rows(found: Comparison) -> Iterable[Sequence[str]]:
    """Conditions that differ; one row says so where none does."""
    return [(name, *pair) for name, pair in found.conditions.items()] or [NO_CONDITION]


def totals_rows(found: Comparison) -> Iterable[Sequence[str]]:
    """Name, A, B, difference, change in percent; the values come first, the cycles by kind last."""
    if found.has_values:
        yield "values", "", found.verdict, "", ""
    rows: list[tuple[str, str, Pair]] = [(*_named(name), pair) for name, pair in found.totals.items()]
    rows += [(f"cycles of {kind}", "cycles", pair) for kind, pair in found.kinds.items()]
    for name, unit, (before, after) in rows:
        if before is not None or after is not None:
            gap, share = "", ""
            if before is not None and after is not None:
                gap, share = signed(after - before), change(before, after) if unit != "%" else ""
            yield name, _number(before, unit), _number(after, unit), gap, share


def _named(name: str) -> tuple[str, str]:
    """A total in words, and its unit."""
    if name == MILLISECONDS:
        return "time", "ms"
    figure = OF_RUNS[name]
    return figure.head, "%" if figure.unit == SHARE else figure.unit


def _number(value: float | None, unit: str) -> str:
    """A figure as a cell: whole numbers with separators, others with three decimals."""
    if value is None:
        return "-"
    return f"{value:,} {unit}".strip() if isinstance(value, int) else f"{value:,.3f} {unit}".strip()


def signed(value: float) -> str:
    """A difference: with its sign, empty where there is none."""
    if not value:
        return ""
    return f"{value:+,}" if isinstance(value, int) else f"{value:+,.3f}"


def change(before: float, after: float) -> str:
    """The change from ``before`` to ``after`` in percent; empty where nothing changes."""
    if not before:
        return "" if not after else "new"
    share = (after - before) / before
    return "" if not share else f"{share:+.1%}".replace("%", " %")


def layer_headings(found: Comparison) -> tuple[str, ...]:
    """Headings of the columns beside the layer's name: words first, then figures; what no side knows is left out."""
    known = [heading for name, heading in _COLUMNS.items() if _known(found, name)]
    return (*_words(found), "cycles A", "cycles B", "B - A", "change", *known)


def _words(found: Comparison) -> tuple[str, ...]:
    kinds = ("kind",) if any(layer.kinds for layer in found.layers) else ()
    return (*kinds, "values") if found.has_values else kinds


def first_figure(found: Comparison) -> int:
    """How many of :func:`layer_headings` are of words."""
    return len(_words(found))


def _known(found: Comparison, name: str) -> bool:
    return any(value is not None for layer in found.layers for value in layer.figures[name])


def layer_row(found: Comparison, layer: LayerPair) -> Sequence[str]:
    """The cells under :func:`layer_headings`."""
    cells = {"kind": " + ".join(layer.kinds), "values": layer.values}
    before, after = layer.figures["cycles"]
    cells |= {"cycles A": _number(before, ""), "cycles B": _number(after, ""), "B - A": signed(layer.change)}
    cells["change"] = _SOLE.get(layer.values) or change(before or 0, after or 0)
    cells |= {heading: _arrow(layer.figures[name]) for name, heading in _COLUMNS.items()}
    return [cells[heading] for heading in layer_headings(found)]


def _arrow(pair: Pair) -> str:
    """``1,000 → 900``; one number where nothing changed, nothing where nothing is known."""
    if pair == (None, None):
        return ""
    return " → ".join(_number(value, "") for value in dict.fromkeys(pair))


def _layers_table(found: Comparison, heading: str, layers: Iterable[LayerPair]) -> ReportTable:
    """A row a layer."""
    headings, words = layer_headings(found), first_figure(found)
    columns = [
        (name, "left" if number < words else "right", _RANKS.get(name, 0)) for number, name in enumerate(headings)
    ]
    return _table((heading, "fold"), *columns, rows=[(layer.name, *layer_row(found, layer)) for layer in layers])


def _table(*columns: tuple[str, str] | tuple[str, str, int], rows: Iterable[Sequence[str]]) -> ReportTable:
    table = plain_table(*columns)
    for row in rows:
        table.add_row(*row)
    return table
