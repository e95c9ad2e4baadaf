"""HTML page of one run: charts, table of all figures, placement with reasons, configuration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from dla_sim.engine.accounts import CAUSES
from dla_sim.engine.breakdown import PARTS
from dla_sim.presets import list_settings
from experiments.cost.estimate import MICROJOULE
from experiments.figure import SHARE
from experiments.glossary import explain
from experiments.report.charts.interactive import MARGIN_PIXELS, figure, round_value
from experiments.report.charts.model import Chart
from experiments.report.html import (
    CHOOSER,
    Html,
    Section,
    chart_place,
    fold_block,
    join_parts,
    page,
    pairs,
    paragraph,
    table,
    table_place,
)
from experiments.report.limits import most_expensive
from experiments.report.run_charts import PART_NAMES, run_charts
from experiments.report.run_graph import network_graph
from experiments.report.schema import UNITS, EndToEnd, Layer, RunReport
from experiments.report.screen import limit_line, time_line
from experiments.report.tables import (
    LAYER_COLUMNS,
    LAYER_FIGURES,
    end_to_end_line,
    fallback_cells,
    layer_rows,
    list_in_order,
    machine_line,
    total_lines,
)
from isa.arch import flat

_WHOLE = ("end-to-end",)
_LAYERS = ("layer-cycles", "layer-utilization", "roofline", "layer-traffic")
_TABLE_NOTE = "Cycles on the CPU are estimates. A click on a layer shows it in every chart."
_GRAPH_NOTE = (
    "Each box is a node with the cycles of its layer; the bar below shows their parts. Boxes with "
    "dashed edges run on the CPU; boxes on one ground are fused in bands. A click on a box shows "
    "all figures of its layer. Drag or scroll to move; Ctrl and the wheel zoom. Keys: arrows, "
    "Enter, +, -, and 0 for the whole graph."
)
_ADVICE_NOTE = (
    "dla advise, with the arguments of this run, measures many more changes of the machine and the "
    "compiler, and what they cost."
)
_HEADINGS = {
    "layer": ("layer", "text"),
    "on": ("on", "text"),
    "region": ("region", ""),
    "kind": ("kind", "text"),
    **{
        figure.name: (figure.head, "share" if figure.unit == SHARE else figure.unit)
        for figure in LAYER_FIGURES
    },
    "energy_pj": ("energy, estimated", "µJ"),
    **{part: (PART_NAMES[part], "cycles") for part in PARTS},
}
"""Headings and units of ``experiments.report.tables.LAYER_COLUMNS``.

``text`` is no unit; ``share`` is from 0 to 1.
"""
_Column = tuple[str, str, list[Any]]


def run_page(report: RunReport) -> str:
    """Return the HTML page of a run report; equal reports give equal text."""
    charts = run_charts(report)
    drawn = {chart.identity: chart for chart in charts}
    whole = (
        []
        if report.end_to_end is None
        else [paragraph(f"End to end {end_to_end_line(report.end_to_end)}.")]
    )
    timeline = [_place(drawn[name]) for name in _WHOLE if name in drawn]
    told = [("time", time_line(report)), ("limit", limit_line(report)), *total_lines(report)]
    summary = join_parts(paragraph(machine_line(report)), *whole, *timeline, pairs(told, explain))
    sections = [Section("summary", "Summary", summary)]
    if report.layers:
        sections.append(Section("advice", "What limits it and what would help", _advice(report)))
    graph = network_graph(report)
    if graph is not None:
        place = join_parts(paragraph(_GRAPH_NOTE), table_place("network-graph"))
        sections.append(Section("network", "Network", place))
    if report.layers:
        places = (_place(drawn[name]) for name in _LAYERS)
        sections.append(Section("layers", "Layers", join_parts(CHOOSER, *places)))
        sections.append(
            Section(
                "table",
                "All figures of every layer",
                join_parts(paragraph(_TABLE_NOTE), table_place("layer-table")),
            )
        )
        others = (_place(chart) for name, chart in drawn.items() if name not in (*_LAYERS, *_WHOLE))
        sections.append(
            Section("machine", "Machine over the run", join_parts(*others, _causes(report)))
        )
    sections.append(Section("placement", "Placement", _placement(report)))
    sections.append(Section("configuration", "Command and configuration", _configuration(report)))
    data = _data(report, charts) | {"graph": graph}
    scripts = ["gantt.js", "memory.js", "graph.js", "layers.js"]
    return page(f"{report.model}: run report", sections, data, scripts)


def _advice(report: RunReport) -> Html:
    """Return the limiters of the most expensive layers, and the changes measured after the run."""
    rows = [
        (one.name, f"{one.cycles:,}", f"{one.cycles / report.totals.cycles:.1%}", one.sentence)
        for one in most_expensive(report)
    ]
    parts = [table(("layer", "cycles", "share", "limit"), rows, (1, 2))]
    if report.advice:
        changes = [(f"{change.saves:.1%}", change.command) for change in report.advice]
        parts.append(table(("fewer cycles", "command"), changes, (0,)))
    return join_parts(*parts, paragraph(_ADVICE_NOTE))


def _place(chart: Chart) -> Html:
    return chart_place(chart.identity, chart.title, chart.note)


def _data(report: RunReport, charts: tuple[Chart, ...]) -> dict[str, Any]:
    return {
        "figures": [figure(chart) for chart in charts],
        "layers": [{"name": layer.name, "kind": layer.kind} for layer in report.layers],
        "table": _layer_table(report),
        "weights": [layer.cycles for layer in report.layers],
        "weight": "cycles",
        "order": "network",
        "margin": MARGIN_PIXELS,
    }


def _layer_table(report: RunReport) -> dict[str, Any]:
    """Return the table of every figure of every layer and CPU node.

    ``layers`` holds the layer's number for each row; -1 for a node on the CPU.
    """
    number = {id(layer): place for place, layer in enumerate(report.layers)}
    columns = [
        (heading, unit, cells)
        for heading, unit, cells in _columns(report)
        if _has_content(unit, cells)
    ]
    return {
        "columns": [
            {"heading": heading, "unit": unit, "note": explain(heading)}
            for heading, unit, _ in columns
        ],
        "rows": list(zip(*(cells for _, _, cells in columns), strict=True)),
        "layers": [number.get(id(one), -1) for one in list_in_order(report)],
    }


def _has_content(unit: str, cells: list[Any]) -> bool:
    """Return whether a table column has content.

    The value 0 counts as content only in columns without a unit, such as region.
    """
    return any(cells) or (unit == "" and any(cell is not None for cell in cells))


def _columns(report: RunReport) -> Iterator[_Column]:
    """Yield heading, unit and cells of each column of the table of layers.

    The columns are the values of layers, shares, waits of the units, and ONNX nodes.
    """
    rows = layer_rows(report)
    for name in LAYER_COLUMNS:
        heading, unit = _HEADINGS[name]
        cells = [row[name] for row in rows]
        if unit == "µJ":
            cells = [None if cell is None else cell / MICROJOULE for cell in cells]
        yield heading, unit, [round_value(one) if isinstance(one, float) else one for one in cells]
        if name == "cycles":
            whole = report.totals.cycles if report.end_to_end is None else report.end_to_end.cycles
            yield "share of the run", "share", [_share(row["cycles"], whole) for row in rows]
    for part in PARTS:
        yield (
            f"{PART_NAMES[part]}, share",
            "share",
            [_share(row[part], row["cycles"]) for row in rows],
        )
    layers = [one if isinstance(one, Layer) else None for one in list_in_order(report)]
    for unit, cause in product(UNITS, CAUSES):
        waits = [
            None if layer is None else layer.stalls.get(unit, {}).get(cause) for layer in layers
        ]
        yield f"{unit} waited: {cause}", "cycles", waits
    yield (
        "ONNX nodes",
        "text",
        ["" if layer is None else ", ".join(layer.onnx_nodes) for layer in layers],
    )


def _share(part: int | None, whole: int) -> float | None:
    return round_value(part / whole) if part is not None and whole else None


def _causes(report: RunReport) -> Html:
    """Return a table of the causes of every unit's cycles, in cycles and in per cent."""
    units = report.units
    causes = [cause for cause in CAUSES if any(found.get(cause) for found in units.values())]
    total = report.totals.cycles
    rows = [
        (
            cause,
            *(
                text
                for found in units.values()
                for text in (f"{found.get(cause, 0):,}", f"{found.get(cause, 0) / total:.1%}")
            ),
        )
        for cause in causes
    ]
    headings = (
        "cause",
        *(heading for unit in units for heading in (f"{unit} (cycles)", f"{unit} (%)")),
    )
    return table(headings, rows, range(1, len(headings)))


def _placement(report: RunReport) -> Html:
    """Return HTML with the nodes on the CPU and their reasons, then a table of all nodes."""
    entries = report.placement
    fallbacks = [entry for entry in entries if entry.on == "cpu"]
    estimates = {layer.node: layer.estimated_cycles for layer in report.host.layers}
    said = [
        paragraph(
            f"{len(entries) - len(fallbacks)} of {len(entries)} nodes run on the accelerator."
        )
    ]
    if report.end_to_end is not None and fallbacks:
        said.append(_sums(report.end_to_end))
    if fallbacks:
        rows = [
            (
                entry.node,
                entry.op_type,
                entry.reason or "",
                f"~{estimates[entry.node]:,}" if entry.node in estimates else "",
            )
            for entry in fallbacks
        ]
        said.append(
            table(("node on the CPU", "operator", "reason", "cycles (estimate)"), rows, [3])
        )
    all_rows = [
        (
            entry.node,
            entry.op_type,
            entry.on,
            "" if entry.region is None else entry.region,
            entry.reason or "",
        )
        for entry in entries
    ]
    whole = table(("node", "operator", "on", "region", "reason"), all_rows, [3])
    return join_parts(*said, fold_block(f"All {len(entries)} nodes", whole))


def _sums(found: EndToEnd) -> Html:
    """Return a table of the nodes on the CPU by operator and reason, most expensive first."""
    shares = ("share of time", "with conversions")
    headings = (
        "operator on the CPU",
        "nodes",
        "MACs",
        "cycles (estimate)",
        *shares,
        "reason (first node)",
    )
    return table(
        headings, (fallback_cells(found, item) for item in found.fallbacks), [1, 2, 3, 4, 5]
    )


def _configuration(report: RunReport) -> Html:
    rows: list[tuple[str, object]] = [
        ("command", report.command),
        ("version", report.version),
        ("model", report.model),
        ("schedule", report.schedule),
        ("seed", report.seed),
    ]
    rows += [(f"hash of {name}", value) for name, value in report.hashes.items()]
    machine = flat({"arch": report.arch, "timing": report.timing})
    notes = {f"{one.table}.{one.key}": f"{one.meaning} ({one.unit})" for one in list_settings()}
    settings = pairs(machine.items(), lambda key: notes.get(key, ""))
    return join_parts(pairs(rows), fold_block("The whole machine", settings))
