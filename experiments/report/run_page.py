"""HTML page of one run: charts, network graph, table of all figures, placement and configuration.

The graph has a box for each node, input and output, with its cycles.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from dla_sim.engine.accounts import CAUSES
from dla_sim.presets import list_settings
from experiments.cost.estimate import MICROJOULE
from experiments.figure import SHARE
from experiments.glossary import explain
from experiments.report.charts.interactive import MARGIN_PIXELS, figure, round_value
from experiments.report.charts.model import KINDS, PLACES, UNKNOWN, Chart
from experiments.report.graph import GraphEdge, lay_out
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
from experiments.report.run_charts import list_causes, list_parts, run_charts
from experiments.report.schema import SEPARATE_PART, UNITS, EndToEnd, Layer, RunReport
from experiments.report.screen import limit_line, time_line
from experiments.report.sensitivity import (
    COMMAND_COLUMNS,
    PARAMETER_COLUMNS,
    SENSITIVITY_NOTE,
    SensitivityEntry,
    list_command_rows,
    list_parameter_rows,
)
from experiments.report.tables import (
    LAYER_FIGURES,
    end_to_end_line,
    fallback_cells,
    layer_rows,
    list_in_order,
    list_layer_columns,
    machine_line,
    total_lines,
)
from isa.arch import flat

Box = dict[str, Any]
_Key = tuple[str, int | str]
"""A node by its index in the placement, or an input or output by its name."""


def network_graph(report: RunReport) -> dict[str, Any]:
    """Return boxes and lines of the network's graph with their places."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(_order(report)))}
    edges = [(numbers[_producer(edge)], numbers[_consumer(edge)]) for edge in report.edges]
    places = lay_out(len(numbers), edges)
    boxes = list(_boxes(report, numbers))
    for box, column, lane in zip(boxes, places.columns, places.lanes, strict=True):
        box |= {"column": column, "lane": lane}
    lines = [
        {"from": producer, "to": consumer, "lane": lane, "tip": _describe_tensor(edge)}
        for (producer, consumer), lane, edge in zip(edges, places.routes, report.edges, strict=True)
    ]
    return {"boxes": boxes, "lines": lines}


def _producer(edge: GraphEdge) -> _Key:
    return ("input", edge.tensor) if edge.producer is None else ("node", edge.producer)


def _consumer(edge: GraphEdge) -> _Key:
    return ("output", edge.tensor) if edge.consumer is None else ("node", edge.consumer)


def _order(report: RunReport) -> Iterator[_Key]:
    """Yield what the graph has boxes for: inputs before their first consumers, outputs last."""
    inputs: dict[int, list[_Key]] = {}
    for edge in report.edges:
        if edge.producer is None and edge.consumer is not None:
            inputs.setdefault(edge.consumer, []).append(_producer(edge))
    for number in range(len(report.placement)):
        yield from inputs.get(number, [])
        yield "node", number
    for edge in report.edges:
        yield _producer(edge)
        yield _consumer(edge)


def _boxes(report: RunReport, keys: Iterable[_Key]) -> Iterator[Box]:
    """Yield name, kind, cycles and tooltip of each box.

    ``text`` tells the cycles, ``parts`` has their parts and colours. ``layer`` is the number of
    the node's layer; -1 if none.
    """
    members: dict[tuple[int | None, str], list[int]] = {}
    for number, layer in enumerate(report.layers):
        key = layer.region, layer.name.removesuffix(SEPARATE_PART)
        members.setdefault(key, []).append(number)
    estimates = {layer.node: layer.estimated_cycles for layer in report.host.layers}
    whole = report.end_to_end.cycles
    for what, name in keys:
        if not isinstance(name, int):
            box = Box(name=name, kind=f"{what} of the network", on="", layer=-1, text="", parts=[])
            yield box | {"tip": [], "color": UNKNOWN.color, "group": None}
            continue
        entry = report.placement[name]
        numbers = members.get((entry.region, entry.node), [])
        layers = [report.layers[number] for number in numbers]
        cycles = estimates.get(entry.node, 0) + sum(layer.cycles for layer in layers)
        text = f"{cycles:,} cycles, {cycles / whole:.1%}" if cycles else "no cycles of its own"
        place, style = PLACES[entry.on]
        yield {
            "name": entry.node,
            "kind": f"{entry.op_type}, {place}",
            "on": entry.on,
            "layer": numbers[0] if numbers else -1,
            "text": f"~{text}" if entry.on == "cpu" and cycles else text,
            "parts": _parts(report, layers),
            "tip": [entry.reason] if entry.reason else [],
            "color": KINDS.get(layers[0].kind, UNKNOWN).color if layers else style.color,
            "group": layers[0].group if layers else None,
        }


def _parts(report: RunReport, layers: Sequence[Layer]) -> list[tuple[str, int, str]]:
    """Return the parts of the layers' cycles: name, cycles and colour."""
    parts = Counter[str]()
    for layer in layers:
        parts.update(layer.breakdown)
    known = list_parts(report).items()
    return [(name, parts[part], style.color) for part, (name, style) in known if parts[part]]


def _describe_tensor(edge: GraphEdge) -> str:
    return f"{edge.tensor}: {edge.dtype} [{', '.join(map(str, edge.shape))}]"


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
_DESCRIBED_NOTE = (
    "dla advise, with the arguments of this run, doubles and halves the machine's parameters."
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
}
"""Headings and units of ``experiments.report.tables.LAYER_COLUMNS`` without the parts of cycles.

``text`` is no unit; ``share`` is from 0 to 1.
"""
_Column = tuple[str, str, list[Any]]


def run_page(report: RunReport) -> str:
    """Return the HTML page of a run report; equal reports give equal text."""
    charts = run_charts(report)
    drawn = {chart.identity: chart for chart in charts}
    whole = paragraph(f"End to end {end_to_end_line(report.end_to_end)}.")
    timeline = [_place(drawn[name]) for name in _WHOLE if name in drawn]
    told = [("time", time_line(report)), ("limit", limit_line(report)), *total_lines(report)]
    summary = join_parts(paragraph(machine_line(report)), whole, *timeline, pairs(told, explain))
    sections = [Section("summary", "Summary", summary)]
    if report.layers:
        sections.append(Section("advice", "What limits it and what would help", _advice(report)))
    place = join_parts(paragraph(_GRAPH_NOTE), table_place("network-graph"))
    sections.append(Section("network", "Network", place))
    if report.layers:
        places = (_place(drawn[name]) for name in _LAYERS if name in drawn)
        sections.append(Section("layers", "Layers", join_parts(CHOOSER, *places)))
        sections.append(
            Section(
                "table",
                "All figures of every layer",
                join_parts(paragraph(_TABLE_NOTE), table_place("layer-table")),
            )
        )
        others = (_place(chart) for name, chart in drawn.items() if name not in (*_LAYERS, *_WHOLE))
        if report.units:
            sections.append(
                Section("machine", "Machine over the run", join_parts(*others, _causes(report)))
            )
    if report.sensitivity is not None:
        place = _sensitivity(report.sensitivity)
        sections.append(Section("sensitivity", "Sensitivity of the cycles", place))
    sections.append(Section("placement", "Placement", _placement(report)))
    sections.append(Section("configuration", "Command and configuration", _configuration(report)))
    data = _data(report, charts) | {"graph": network_graph(report)}
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
    note = _ADVICE_NOTE if report.machine is None else _DESCRIBED_NOTE
    return join_parts(*parts, paragraph(note))


def _sensitivity(found: SensitivityEntry) -> Html:
    """Return the changes with each parameter, and with the commands of the largest effect."""
    return join_parts(
        paragraph(SENSITIVITY_NOTE),
        table(PARAMETER_COLUMNS, list_parameter_rows(found), (1, 3, 4, 5, 6)),
        table(COMMAND_COLUMNS, list_command_rows(found), (2, 3, 4, 5, 6)),
    )


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
    parts = list_parts(report)
    for name in list_layer_columns(report):
        heading, unit = (parts[name][0], "cycles") if name in parts else _HEADINGS[name]
        cells = [row[name] for row in rows]
        if unit == "µJ":
            cells = [None if cell is None else cell / MICROJOULE for cell in cells]
        yield heading, unit, [round_value(one) if isinstance(one, float) else one for one in cells]
        if name == "cycles":
            whole = report.end_to_end.cycles
            yield "share of the run", "share", [_share(row["cycles"], whole) for row in rows]
    for part, (heading, _) in parts.items():
        yield f"{heading}, share", "share", [_share(row[part], row["cycles"]) for row in rows]
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
    causes = [
        cause for cause in list_causes(report) if any(found.get(cause) for found in units.values())
    ]
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
    if fallbacks:
        said.append(_sums(report.end_to_end))
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
    rows = [(name, value) for name, value in rows if value is not None]
    rows += [(f"hash of {name}", value) for name, value in report.hashes.items()]
    if report.machine is not None:
        keys = pairs(report.machine.parameters.items())
        return join_parts(pairs(rows), fold_block("Parameters of the machine", keys))
    machine = flat({"arch": report.arch, "timing": report.timing})
    notes = {f"{one.table}.{one.key}": f"{one.meaning} ({one.unit})" for one in list_settings()}
    settings = pairs(machine.items(), lambda key: notes.get(key, ""))
    return join_parts(pairs(rows), fold_block("The whole machine", settings))
