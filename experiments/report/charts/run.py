"""The charts of one run.

The roofline is after Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (2009): a
machine of N processing elements whose bus moves B bytes a cycle does at most min(N, B x) multiply-accumulates a cycle
at x of them a byte.
"""

from __future__ import annotations

from experiments.report.charts.model import Bars, Chart, Mark, Roofline, Series, Span, Spans, Steps
from experiments.report.charts.style import BLUE, CAUSES, KINDS, PARTS, PLACES, READ, SKY, UNKNOWN, WRITTEN, Style
from experiments.report.schema import Layer, RunReport, Segment

PART_NAMES = {part: part if part in ("compute", "scratchpad") else f"wait: {part}" for part in PARTS}
"""How charts name the parts of a layer's cycles."""
_CYCLES_NOTE = (
    "compute: the array or the post-processing is at work. wait: the array is idle for weights, input data, room that "
    "a store must free, the bus that others use, or commands (issue). The layers add up to the run's total."
)

NOTE = (
    "Both axes are logarithmic. Layers without DRAM traffic stand at the right edge, those without MACs in the lower "
    "left corner. A layer can lie above the slanted roof: what is fetched while an earlier layer computes costs the "
    "later one no cycles."
)
_WHOLE_NOTE = (
    "Parts run one after another. The accelerator's cycles are simulated; the CPU's are an estimate, as is the time in "
    "which tensors pass between the two."
)
NO_TRAFFIC = "no DRAM traffic: at the right edge"
NO_MACS = "no MACs: in the lower left corner"


def run_charts(report: RunReport) -> tuple[Chart, ...]:
    """All charts of a run in the order of reading; a chart that has nothing to show is left out."""
    whole = whole_run(report)
    first: list[Chart] = [whole] if whole is not None else []
    if not report.layers:
        return tuple(first)
    charts: list[Chart] = [layer_cycles(report), layer_utilization(report), roofline(report), layer_traffic(report)]
    filling = occupancy_chart(report)
    return (*first, *charts, *([filling] if filling else []), unit_causes(report))


def whole_run(report: RunReport) -> Spans | None:
    """Accelerator, CPU and transfers one after another; None where nothing takes time, and for older reports."""
    found = report.end_to_end
    if found is None or not found.cycles:
        return None
    spans: list[Span] = []
    begin = 0
    for segment in found.segments:
        spans.append(Span(list(PLACES).index(segment.on), begin, segment.cycles, _segment_label(segment)))
        begin += segment.cycles
    shares = {"dla": found.dla_cycles, "cpu": found.cpu_cycles, "transfer": found.transfer_cycles}
    rows = tuple((f"{name} {found.share(shares[place]):.1%}", style) for place, (name, style) in PLACES.items())
    return Spans("end-to-end", "The whole run, end to end", rows, tuple(spans), found.cycles, _WHOLE_NOTE)


def _segment_label(segment: Segment) -> str:
    if segment.on == "transfer":
        return f"tensors of region {segment.region}"
    nodes = f"{segment.nodes} node{'s' * (segment.nodes != 1)}"
    return nodes if segment.region is None else f"region {segment.region}, {nodes}"


def layer_cycles(report: RunReport) -> Bars:
    """Cycles of each layer by what they went into; all in one where an old report does not say."""
    names = tuple(layer.name for layer in report.layers)
    title, axis = "Cycles per layer, by what they went into", "cycles"
    if any(layer.breakdown for layer in report.layers):
        values = {part: tuple(layer.breakdown.get(part, 0) for layer in report.layers) for part in PARTS}
        series = [Series(PART_NAMES[part], found, PARTS[part]) for part, found in values.items() if any(found)]
    else:
        title = "Cycles per layer"
        series = [Series("cycles", tuple(layer.cycles for layer in report.layers), Style(BLUE))]
    return Bars("layer-cycles", title, axis, "cycles", names, tuple(series), note=_CYCLES_NOTE)


def layer_utilization(report: RunReport) -> Bars:
    """Share of the array's multiply-accumulates that each layer used, by kind."""
    return Bars(
        "layer-utilization",
        "Utilisation of the processing elements per layer",
        "utilisation (% of MACs the array could do in the layer's cycles)",
        "%",
        tuple(layer.name for layer in report.layers),
        by_kind(report.layers, [100 * layer.utilization for layer in report.layers]),
        limit=100.0,
        note="Padded taps count as MACs; layers without MACs have no bar.",
    )


def by_kind(layers: tuple[Layer, ...], values: list[float]) -> tuple[Series, ...]:
    """``values``, one a layer, as a series a kind with zeros for the layers of other kinds."""
    kinds = dict.fromkeys(layer.kind for layer in layers)
    return tuple(
        Series(
            kind,
            tuple(value if layer.kind == kind else 0 for layer, value in zip(layers, values, strict=True)),
            KINDS.get(kind, UNKNOWN),
        )
        for kind in sorted(kinds, key=lambda kind: list(KINDS).index(kind) if kind in KINDS else len(KINDS))
        if any(value for layer, value in zip(layers, values, strict=True) if layer.kind == kind)
    )


def layer_traffic(report: RunReport) -> Bars:
    """Bytes that each layer read from and wrote to system memory."""
    read = Series("read", tuple(layer.dram_read_bytes / 1024 for layer in report.layers), READ)
    written = Series("written", tuple(layer.dram_write_bytes / 1024 for layer in report.layers), WRITTEN)
    names = tuple(layer.name for layer in report.layers)
    return Bars("layer-traffic", "DRAM traffic per layer", "DRAM traffic (KiB)", "KiB", names, (read, written))


def occupancy_chart(report: RunReport) -> Steps | None:
    """Live bytes of the scratchpad over the run; None for reports of versions that did not record them."""
    found = report.occupancy
    if found is None:
        return None
    peak = Series("most in the interval", tuple(value / 1024 for value in found.peak_bytes), Style(SKY))
    mean = Series("average of the interval", tuple(value / 1024 for value in found.mean_bytes), Style(BLUE))
    limits = (
        ("size of the scratchpad", report.arch["sram_bytes"] / 1024),
        ("highest address used", report.totals.sram_peak_bytes / 1024),
    )
    title = "SRAM occupancy over time: bytes written and still to be read"
    note = (
        f"Each step is an interval of {found.cycles_per_point:,} cycles. Bytes that nobody reads again are not "
        "counted, so the highest address used can lie above."
    )
    return Steps("sram-occupancy", title, found.cycles_per_point, report.totals.cycles, (peak, mean), limits, note)


def unit_causes(report: RunReport) -> Bars:
    """Where every cycle of every unit went."""
    units = tuple(report.units)
    values = {cause: tuple(report.units[unit].get(cause, 0) for unit in units) for cause in CAUSES}
    series = tuple(Series(cause, found, CAUSES[cause]) for cause, found in values.items() if any(found))
    labels = tuple(f"{unit}" for unit in units)
    return Bars("unit-causes", "Cycles of the units by cause", "cycles", "cycles", labels, series, layers=False)


def roofline(report: RunReport) -> Roofline:
    """Every layer is on it: those without traffic at the right edge, those without MACs in the lower left corner."""
    pe = report.arch["pe"]
    bus = float(report.timing["bus_bytes"]) if report.bus is None else report.bus.sustained_bytes
    elements = float(pe["ic"] * pe["oc"] * pe["ow"])
    intensities = [found for layer in report.layers if (found := intensity(layer))]
    rates = [layer.macs / layer.cycles for layer in report.layers if layer.macs and layer.cycles]
    ridge = elements / bus
    left = min([ridge / 4, *intensities]) / 2
    right = max([ridge * 4, *intensities]) * 4
    bottom = min([elements / 16, *rates]) / 2
    kinds = sorted({layer.kind for layer in report.layers}, key=lambda kind: (kind not in KINDS, kind))
    marks = tuple(
        (
            kind,
            KINDS.get(kind, UNKNOWN),
            tuple(
                _mark(number, layer, (left, bottom), right)
                for number, layer in enumerate(report.layers)
                if layer.kind == kind
            ),
        )
        for kind in kinds
    )
    return Roofline("roofline", "Roofline", marks, elements, bus, (left, bottom), right, NOTE)


def intensity(layer: Layer) -> float | None:
    """Multiply-accumulates a byte of DRAM traffic; None where that has no place on a logarithmic axis."""
    moved = layer.dram_read_bytes + layer.dram_write_bytes
    return layer.macs / moved if layer.macs and moved else None


def _mark(number: int, layer: Layer, corner: tuple[float, float], right: float) -> Mark:
    left, bottom = corner
    if not layer.macs or not layer.cycles:
        return Mark(number, layer.name, left, bottom, NO_MACS)
    rate, found = layer.macs / layer.cycles, intensity(layer)
    return Mark(number, layer.name, right, rate, NO_TRAFFIC) if found is None else Mark(number, layer.name, found, rate)
