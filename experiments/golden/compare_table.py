"""The comparison of two snapshots on a terminal and as a page of HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from experiments.golden.compare import LayerDifference, Pair, SnapshotDifference
from experiments.report.terminal import plain_table

_COLUMNS = ("cycles", "instructions", "dram_read_bytes", "dram_write_bytes")
_HEADINGS = ("cycles", "instructions", "bytes read", "bytes written")
_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;margin:1rem 0;width:100%}
th,td{padding:.3rem .6rem;border-bottom:1px solid #d8dee4;text-align:right;vertical-align:top}
th{position:sticky;top:0;background:#fff}
th:first-child,td:first-child,td.text{text-align:left}
.differ{color:#b42318;font-weight:600}.equal{color:#1a7f37}.more{color:#b42318}.less{color:#1a7f37}
.bar{display:inline-block;height:.7rem;background:#b42318;vertical-align:middle}.bar.less{background:#1a7f37}
small{color:#57606a}
@media (prefers-color-scheme:dark){body,th{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}}
"""


def difference_tables(difference: SnapshotDifference) -> RenderableType:
    """Conditions, layers, totals and movers."""
    parts: list[RenderableType] = [Text(f"A: {difference.titles[0]}"), Text(f"B: {difference.titles[1]}")]
    if difference.conditions:
        table = plain_table(("condition", "left"), ("A", "fold"), ("B", "fold"))
        for key, (before, after) in difference.conditions.items():
            table.add_row(key, before, after)
        parts.append(table)
    parts += [_layer_table(difference), _mover_table(difference)]
    parts += [Text(f"{layer.name}: {layer.remark}", style="red") for layer in difference.differing]
    return Group(*parts)


def _layer_table(difference: SnapshotDifference) -> Table:
    table = plain_table(("layer", "fold"), ("values", "left"), *((name, "right") for name in _HEADINGS))
    for layer in difference.layers:
        table.add_row(layer.name, layer.values, *(change(layer.figures[name]) for name in _COLUMNS))
    table.add_row("total", verdict(difference), *(change(difference.totals[name]) for name in _COLUMNS))
    return table


def _mover_table(difference: SnapshotDifference) -> RenderableType:
    if not difference.movers:
        return Text("no layer's cycles changed")
    table = plain_table(("largest movers", "fold"), ("cycles", "right"))
    for layer in difference.movers:
        table.add_row(layer.name, f"{layer.cycles:+,}")
    return table


def verdict(difference: SnapshotDifference) -> str:
    """The values of all layers in a few words."""
    count = len(difference.differing)
    if count:
        return f"{count} differ"
    known = [layer for layer in difference.layers if layer.values == "equal"]
    return "equal" if len(known) == len(difference.layers) else f"{len(known)} equal"


def change(pair: Pair) -> str:
    """``1,000 → 900 (-10.0 %)``; one number where nothing changed."""
    before, after = pair
    if before is None and after is None:
        return ""
    if before == after:
        return f"{before:,}"
    shown = " → ".join("-" if value is None else f"{value:,}" for value in pair)
    return f"{shown} ({(after - before) / before:+.1%})" if before and after is not None else shown


def difference_html(difference: SnapshotDifference) -> str:
    """One page: summary, movers as bars, all layers. Self-contained, no script."""
    a, b = (escape(title) for title in difference.titles)
    lines = ["<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">']
    lines += ['<meta name="viewport" content="width=device-width, initial-scale=1">']
    lines += [f"<title>{a} and {b}</title><style>{_STYLE}</style></head><body>"]
    lines += [f"<h1>From A to B</h1><p>A: <b>{a}</b><br>B: <b>{b}</b></p>", *_summary(difference)]
    lines += ["<h2>Largest movers</h2>", *_bars(difference), "<h2>Layers</h2><table><thead><tr><th>layer</th>"]
    lines += [f"<th>{name}</th>" for name in ("values", *_HEADINGS)]
    lines += ["</tr></thead><tbody>", *(_html_row(layer) for layer in difference.layers)]
    cells = "".join(_html_change(difference.totals[name]) for name in _COLUMNS)
    lines += [f"<tr><th>total</th><th>{escape(verdict(difference))}</th>{cells}</tr></tbody></table></body></html>"]
    return "\n".join(lines) + "\n"


def _summary(difference: SnapshotDifference) -> Iterator[str]:
    yield f"<p>Values: {escape(verdict(difference))}. Cycles: {escape(change(difference.totals['cycles']))}.</p>"
    if difference.conditions:
        yield "<table><tr><th>condition</th><th>A</th><th>B</th></tr>"
        for key, (before, after) in difference.conditions.items():
            yield f"<tr><td>{escape(key)}</td><td>{escape(before)}</td><td>{escape(after)}</td></tr>"
        yield "</table>"


def _bars(difference: SnapshotDifference) -> Iterator[str]:
    if not difference.movers:
        yield "<p>No layer's cycles changed.</p>"
        return
    largest = abs(difference.movers[0].cycles)
    yield "<table>"
    for layer in difference.movers:
        kind = "more" if layer.cycles > 0 else "less"
        width = max(1, 100 * abs(layer.cycles) // largest)
        bar = f'<span class="bar {kind}" style="width:{width / 4:.2f}rem"></span>'
        name, cells = escape(layer.name), f'<td class="{kind}">{layer.cycles:+,}</td><td class="text">{bar}</td>'
        yield f"<tr><td>{name}</td>{cells}</tr>"
    yield "</table>"


def _html_row(layer: LayerDifference) -> str:
    remark = f"<br><small>{escape(layer.remark)}</small>" if layer.remark else ""
    cells = "".join(_html_change(layer.figures[name]) for name in _COLUMNS)
    name, values = escape(layer.name), escape(layer.values)
    return f'<tr><td>{name}</td><td class="text"><span class="{values}">{values}</span>{remark}</td>{cells}</tr>'


def _html_change(pair: Pair) -> str:
    before, after = pair
    kind = "" if before == after else ' class="more"' if (after or 0) > (before or 0) else ' class="less"'
    return f"<td{kind}>{escape(change(pair))}</td>"
