"""The page of one run: charts, placement with reasons, and what made it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.report.charts.interactive import MARGIN_PIXELS, figure
from experiments.report.charts.model import Chart
from experiments.report.charts.run import PART_NAMES, run_charts
from experiments.report.html import CHOOSER, Html, Section, chart_place, folded, joined, page, pairs, paragraph, table
from experiments.report.schema import EndToEnd, Layer, RunReport
from experiments.report.tables import end_to_end_line, fallback_cells, machine_line, total_lines
from isa.arch import flat

_WHOLE = ("end-to-end",)
_LAYERS = ("layer-cycles", "layer-utilization", "roofline", "layer-traffic")


def run_page(report: RunReport) -> str:
    """The page as HTML text; equal reports give equal text."""
    charts = run_charts(report)
    drawn = {chart.identity: chart for chart in charts}
    whole = [] if report.end_to_end is None else [paragraph(f"End to end {end_to_end_line(report.end_to_end)}.")]
    timeline = [chart_place(name, drawn[name].note) for name in _WHOLE if name in drawn]
    summary = joined(paragraph(machine_line(report)), *whole, *timeline, pairs(total_lines(report)))
    sections = [Section("summary", "Summary", summary)]
    if report.layers:
        places = (chart_place(name, drawn[name].note) for name in _LAYERS)
        sections.append(Section("layers", "Layers", joined(CHOOSER, *places)))
        others = (chart_place(name, chart.note) for name, chart in drawn.items() if name not in (*_LAYERS, *_WHOLE))
        sections.append(Section("machine", "Machine over the run", joined(*others)))
    sections.append(Section("placement", "Placement", _placement(report)))
    sections.append(Section("configuration", "Command and configuration", _configuration(report)))
    return page(f"{report.model}: run report", sections, _data(report, charts), ["layers.js"])


def _data(report: RunReport, charts: tuple[Chart, ...]) -> dict[str, Any]:
    return {
        "figures": [figure(chart) for chart in charts],
        "layers": [{"name": layer.name, "kind": layer.kind, "facts": dict(_facts(layer))} for layer in report.layers],
        "weights": [layer.cycles for layer in report.layers],
        "weight": "cycles",
        "order": "network",
        "margin": MARGIN_PIXELS,
    }


def _facts(layer: Layer) -> Iterator[tuple[str, str]]:
    """What the page says of a layer when it is clicked."""
    yield "kind", layer.kind
    yield "region", str(layer.region)
    yield "cycles", f"{layer.cycles:,}"
    for part, cycles in layer.breakdown.items():
        if cycles:
            yield f"· {PART_NAMES.get(part, part)}", f"{cycles:,}"
    if layer.macs:
        yield "MACs", f"{layer.macs:,}"
        yield "utilisation", f"{layer.utilization:.1%}"
    yield "DRAM read", f"{layer.dram_read_bytes:,} bytes"
    yield "DRAM written", f"{layer.dram_write_bytes:,} bytes"
    yield "tiles", str(layer.tiles)
    if layer.group is not None:
        yield "in bands with others", f"group {layer.group}"
    yield "ONNX nodes", ", ".join(layer.onnx_nodes)


def _placement(report: RunReport) -> Html:
    """Fallbacks with their reasons first, then every node."""
    entries = report.placement
    fallbacks = [entry for entry in entries if entry.on == "cpu"]
    estimates = {layer.node: layer.estimated_cycles for layer in report.host.layers}
    said = [paragraph(f"{len(entries) - len(fallbacks)} of {len(entries)} nodes run on the accelerator.")]
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
        said.append(table(("node on the CPU", "operator", "reason", "cycles (estimate)"), rows, [3]))
    all_rows = [
        (entry.node, entry.op_type, entry.on, "" if entry.region is None else entry.region, entry.reason or "")
        for entry in entries
    ]
    whole = table(("node", "operator", "on", "region", "reason"), all_rows, [3])
    return joined(*said, folded(f"All {len(entries)} nodes", whole))


def _sums(found: EndToEnd) -> Html:
    """What runs on the CPU by operator and reason, the dearest first."""
    shares = ("of all", "with edges")
    headings = ("operator on the CPU", "nodes", "MACs", "cycles (estimate)", *shares, "reason, of the first")
    return table(headings, (fallback_cells(found, item) for item in found.fallbacks), [1, 2, 3, 4, 5])


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
    return joined(pairs(rows), folded("The whole machine", pairs(machine.items())))
