"""A run, shown: in a few lines of text, as a compact table for a notebook, in tables, charts and a page."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from experiments.report.charts.run import PART_NAMES, run_charts
from experiments.report.charts.style import PARTS, escaped
from experiments.report.html_run import run_page
from experiments.report.rows import layer_rows
from experiments.report.schema import Layer, RunReport
from experiments.report.shown import Presentation
from experiments.report.tables import end_to_end_line, machine_line, report_tables, total_lines

_SHOWN = ("cycles", "MACs", "check", "hardware", "warning")
MOST_LAYERS = 12
"""Layers of the table: those with the most cycles."""


def summary_lines(report: RunReport) -> Iterator[str]:
    """The network and the machine, the time, the check, and what is to be looked at."""
    yield f"{report.model} on {machine_line(report)}"
    if report.end_to_end is not None and report.host.nodes:
        yield f"end to end {end_to_end_line(report.end_to_end)}"
    for name, value in total_lines(report):
        if name in _SHOWN:
            yield f"{name}: {value}"


def layers_html(report: RunReport) -> str:
    """The largest layers in the network's order with a bar of what their cycles went into."""
    ranked = sorted(range(len(report.layers)), key=lambda number: (-report.layers[number].cycles, number))
    chosen = [report.layers[number] for number in sorted(ranked[:MOST_LAYERS])]
    most = max((layer.cycles for layer in chosen), default=0)
    rows = "".join(_row(layer, most) for layer in chosen)
    head = "".join(f"<th>{name}</th>" for name in ("layer", "kind", "cycles", "utilisation", "what they went into"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if chosen else ""
    left = len(report.layers) - len(chosen)
    more = f"<p>The {len(chosen)} largest of {len(report.layers)} layers; .layers has all.</p>" if left else ""
    return f"{table}{_legend(chosen)}{more}"


def _row(layer: Layer, most: int) -> str:
    cells = (escaped(layer.name), escaped(layer.kind), f"{layer.cycles:,}", f"{layer.utilization:.1%}")
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in (*cells, _bar(layer, most))) + "</tr>"


def _bar(layer: Layer, most: int) -> str:
    """The layer's cycles, part by part, on a scale on which ``most`` fill the cell."""
    parts = "".join(
        f'<span title="{PART_NAMES[part]}: {cycles:,} cycles" '
        f'style="background:{PARTS[part].color};width:{100 * cycles / most:.2f}%"></span>'
        for part, cycles in layer.breakdown.items()
        if cycles
    )
    return f'<div style="display:flex;width:14em;height:1em">{parts}</div>'


def _legend(layers: list[Layer]) -> str:
    """The colours of the bars."""
    seen = [part for part in PARTS if any(layer.breakdown.get(part) for layer in layers)]
    marks = (f'<span style="color:{PARTS[part].color}">&#9632;</span> {PART_NAMES[part]}' for part in seen)
    return f"<p>{' &nbsp; '.join(marks)}</p>" if seen else ""


RUN = Presentation(
    lines=summary_lines,
    tables=report_tables,
    brief=partial(report_tables, summary=True),
    records=layer_rows,
    charts=run_charts,
    drawn={
        "whole": "end-to-end", "layers": "layer-cycles", "utilization": "layer-utilization", "roofline": "roofline",
        "traffic": "layer-traffic", "timeline": "unit-timeline", "occupancy": "sram-occupancy", "causes": "unit-causes",
    },
    nothing=lambda report: f"{report.model}: no layer runs on the accelerator; there is nothing to draw",
    page=run_page,
    notebook=layers_html,
)  # fmt: skip
"""How a run's report is presented."""
