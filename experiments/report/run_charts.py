"""The charts of one run.

The roofline follows Williams, Waterman and Patterson, "Roofline: an insightful visual performance
model" (2009). A machine with N processing elements and a bus of B bytes per cycle does at most
min(N, B x) multiply-accumulates per cycle, if it does x of them per byte of traffic.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise

from experiments.figure import BYTES, format_figure, measure
from experiments.report.charts.model import (
    BLUE,
    CAUSES,
    KINDS,
    PARTS,
    PLACES,
    READ,
    SKY,
    UNKNOWN,
    WRITTEN,
    BarChart,
    Chart,
    Gantt,
    Mark,
    MemoryChart,
    Roofline,
    Series,
    StepChart,
    Style,
    UnitActivity,
)
from experiments.report.schema import Layer, RunReport, RunSegment

PART_NAMES = {
    part: part if part in ("compute", "scratchpad") else f"wait: {part}" for part in PARTS
}
"""Names of the parts of a layer's cycles in charts."""


def list_parts(report: RunReport) -> dict[str, tuple[str, Style]]:
    """Return names and styles of the parts of layers' cycles; a described machine has its own."""
    if report.machine is None:
        return {part: (PART_NAMES[part], style) for part, style in PARTS.items()}
    found = dict.fromkeys(part for layer in report.layers for part in layer.breakdown)
    return {part: (part, style) for part, style in zip(found, cycle(PARTS.values()), strict=False)}


def list_causes(report: RunReport) -> dict[str, Style]:
    """Return styles of the causes of units' cycles; a described machine has its own."""
    if report.machine is None:
        return CAUSES
    found = dict.fromkeys(cause for unit in report.units.values() for cause in unit)
    return dict(zip(found, cycle(CAUSES.values()), strict=False))


_CYCLES_NOTE = (
    "compute: the array or the post-processing is at work. wait: the array is idle for weights, "
    "input data, room that "
    "a store must free, the bus that others use, or commands (issue). The layers add up to the "
    "run's total."
)

NOTE = (
    "Both axes are logarithmic. Layers without DRAM traffic stand at the right edge, those without "
    "MACs in the lower "
    "left corner. A layer can lie above the slanted roof: what is fetched while an earlier layer "
    "computes costs the "
    "later one no cycles."
)
NO_TRAFFIC = "no DRAM traffic: at the right edge"
NO_MACS = "no MACs: in the lower left corner"


def run_charts(report: RunReport) -> tuple[Chart, ...]:
    """Return all charts of a run in reading order; charts that would be empty are omitted."""
    whole = whole_run(report)
    first: list[Chart] = [whole] if whole is not None else []
    if not report.layers:
        return tuple(first)
    if report.machine is not None:
        known = report.totals.utilization is not None
        used = (layer_utilization(report),) if known else ()
        return (*first, layer_cycles(report), *used, *([unit_causes(report)] * bool(report.units)))
    charts = (
        layer_cycles(report),
        layer_utilization(report),
        roofline(report),
        layer_traffic(report),
    )
    drawn = units_chart(report), occupancy_chart(report), memory_chart(report)
    over_time = (found for found in drawn if found is not None)
    return (*first, *charts, *over_time, unit_causes(report))


def whole_run(report: RunReport) -> Gantt | None:
    """Return a chart of when accelerator, CPU and transfers work during an inference.

    Returns None if nothing takes time.
    """
    found = report.end_to_end
    if not found.cycles:
        return None
    groups = tuple(
        (f"{PLACES[place][0]} {found.share(cycles):.1%}", PLACES[place][1])
        for place, cycles in found.shares.items()
    )
    rows = tuple(
        (name, tuple(_list_segments(found.segments, place, number)))
        for number, (place, (name, _)) in enumerate(zip(found.shares, groups, strict=True))
    )
    note = _describe_origin(report)
    return Gantt("end-to-end", "The whole run, end to end", groups, rows, found.cycles, note)


def _describe_origin(report: RunReport) -> str:
    """Return a note about the origin of the cycles of accelerator, CPU and transfers."""
    formulas = report.machine is not None and report.machine.kind == "closed form"
    source = "come from formulas" if formulas else "are simulated"
    if report.end_to_end.transfer_cycles is not None:
        estimated = "the CPU's and those of transfers between the two are estimates"
    else:
        estimated = "the CPU's are an estimate, and transfers between the two are not counted"
    return f"Parts run one after another. The accelerator's cycles {source}; {estimated}."


def _segment_label(segment: RunSegment) -> str:
    if segment.on == "transfer":
        return f"tensors of region {segment.region}"
    nodes = f"{segment.nodes} node{'s' * (segment.nodes != 1)}"
    return nodes if segment.region is None else f"region {segment.region}, {nodes}"


def layer_cycles(report: RunReport) -> BarChart:
    """Return a bar chart of each layer's cycles, divided by cause."""
    names = tuple(layer.name for layer in report.layers)
    values = {
        named: tuple(layer.breakdown.get(part, 0) for layer in report.layers)
        for part, named in list_parts(report).items()
    }
    series = [Series(name, found, style) for (name, style), found in values.items() if any(found)]
    return BarChart(
        "layer-cycles",
        "Cycles of each layer by cause",
        "cycles",
        "cycles",
        names,
        tuple(series),
        note=_CYCLES_NOTE if report.machine is None else "",
        parts=len(series) > 1,
    )


def layer_utilization(report: RunReport) -> BarChart:
    """Return a chart of each layer's utilisation of the array, coloured by kind."""
    return BarChart(
        "layer-utilization",
        "Utilisation of the processing elements per layer",
        "utilisation (% of MACs the array could do in the layer's cycles)",
        "%",
        tuple(layer.name for layer in report.layers),
        split_by_kind(report.layers, [100 * (layer.utilization or 0) for layer in report.layers]),
        limit=100.0,
        note="Padded taps count as MACs; layers without MACs have no bar.",
    )


def split_by_kind(layers: tuple[Layer, ...], values: list[float]) -> tuple[Series, ...]:
    """Split ``values``, one per layer, into one series per kind of layer.

    A series has zeros for layers of other kinds.
    """
    kinds = dict.fromkeys(layer.kind for layer in layers)
    return tuple(
        Series(
            kind,
            tuple(
                value if layer.kind == kind else 0
                for layer, value in zip(layers, values, strict=True)
            ),
            KINDS.get(kind, UNKNOWN),
        )
        for kind in sorted(
            kinds, key=lambda kind: list(KINDS).index(kind) if kind in KINDS else len(KINDS)
        )
        if any(value for layer, value in zip(layers, values, strict=True) if layer.kind == kind)
    )


def layer_traffic(report: RunReport) -> BarChart:
    """Return a chart of the bytes that each layer read from and wrote to system memory."""
    read, written = (
        [getattr(layer, f"dram_{way}_bytes") for layer in report.layers]
        for way in ("read", "write")
    )
    size, unit = measure([*read, *written])
    series = (
        Series("read", tuple(value / size for value in read), READ),
        Series("written", tuple(value / size for value in written), WRITTEN),
    )
    names = tuple(layer.name for layer in report.layers)
    return BarChart(
        "layer-traffic", "DRAM traffic per layer", f"DRAM traffic ({unit})", unit, names, series
    )


def units_chart(report: RunReport) -> Gantt | None:
    """Return a Gantt chart of the accelerator's units, the CPU and the transfers.

    A region begins where its segment of the whole run begins. Returns None without a timeline.
    """
    found = report.timeline
    if found is None:
        return None
    kinds = tuple(dict.fromkeys(layer.kind for layer in report.layers))
    groups = [(kind, KINDS.get(kind, UNKNOWN)) for kind in kinds]
    rows: list[tuple[str, tuple[UnitActivity, ...]]] = []
    segments = report.end_to_end.segments
    for place in ("cpu", "transfer"):
        name, style = PLACES[place]
        if any(segment.on == place for segment in segments):
            rows.append((name, tuple(_list_segments(segments, place, len(groups)))))
            groups.append((name, style))
    rows += [(unit, tuple(_activities(report, unit, kinds))) for unit in found.units]
    note = (
        "Each span is a command."
        if found.window == 1
        else (
            f"Each span is the commands of a unit that begin in the same {found.window:,} cycles."
        )
    )
    note += " Very short spans are drawn as one; zoom in to see each. Colours are kinds of layers."
    return Gantt(
        "unit-timeline",
        "Activity of every unit over time",
        tuple(groups),
        tuple(rows),
        report.end_to_end.cycles,
        note,
    )


def _list_segments(
    segments: Sequence[RunSegment], place: str, group: int
) -> Iterator[UnitActivity]:
    """Yield the segments of a run that take place on the CPU, the accelerator or between them."""
    begin = 0
    for segment in segments:
        end = begin + segment.cycles
        if segment.on == place and segment.cycles:
            yield UnitActivity(
                begin, end, segment.cycles, segment.nodes, group, _segment_label(segment)
            )
        begin = end


def _activities(report: RunReport, unit: str, kinds: Sequence[str]) -> Iterator[UnitActivity]:
    assert report.timeline is not None
    spans = report.timeline.units[unit]
    delays = _delays(report)
    for begin, end, active, commands, layer in zip(
        spans.begin, spans.end, spans.active, spans.commands, spans.layer, strict=True
    ):
        delay = _delay_at(delays, begin)
        of = report.layers[layer] if layer >= 0 else None
        group = 0 if of is None else kinds.index(of.kind)
        name = "" if of is None else of.name
        yield UnitActivity(begin + delay, end + delay, active, commands, group, name, layer)


def _delays(report: RunReport) -> list[tuple[int, int]]:
    """Return each region's first cycle in the run and its delay in the whole inference.

    The whole inference includes the CPU and transfers, so regions begin later in it.
    """
    at = 0
    begins = dict[int, tuple[int, int]]()
    for segment in report.end_to_end.segments:
        if segment.on == "dla" and segment.region is not None:
            begins[segment.region] = at, segment.cycles
        at += segment.cycles
    delays = []
    before = 0
    for _, (begin, cycles) in sorted(begins.items()):
        delays.append((before, begin - before))
        before += cycles
    return delays or [(0, 0)]


def _delay_at(delays: Sequence[tuple[int, int]], cycle: int) -> int:
    return delays[bisect_right(delays, cycle, key=lambda entry: entry[0]) - 1][1]


def _occupancy_steps(
    report: RunReport, width: int, values: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield cycle and level of each step of a series that has a value for ``width`` cycles.

    The level is 0 outside of the regions.
    """
    delays = _delays(report)
    total = report.totals.cycles
    cuts = sorted({*range(0, total, width), *(start for start, _ in delays if start < total)})
    end = 0
    for cut, following in pairwise([*cuts, total]):
        delay = _delay_at(delays, cut)
        if end < cut + delay:
            yield end, 0
        yield cut + delay, values[cut // width]
        end = following + delay
    if end < report.end_to_end.cycles:
        yield end, 0


def occupancy_chart(report: RunReport) -> StepChart | None:
    """Return a chart of the scratchpad's live bytes over the run.

    Returns None if no cycle passed.
    """
    found = report.occupancy
    if found is None:
        return None
    sizes = {
        "scratchpad size": report.arch["sram_bytes"],
        "highest used address": report.totals.sram_peak_bytes or 0,
    }
    size, unit = measure(sizes.values())
    width = found.cycles_per_point
    peak, mean = (
        list(_occupancy_steps(report, width, values))
        for values in (found.peak_bytes, found.mean_bytes)
    )
    series = (
        Series("maximum of the interval", tuple(level / size for _, level in peak), Style(SKY)),
        Series("average of the interval", tuple(level / size for _, level in mean), Style(BLUE)),
    )
    limits = tuple(
        (f"{name} ({format_figure(value, BYTES)})", value / size) for name, value in sizes.items()
    )
    note = (
        "Bytes that were written and will be read again. Each step is an interval of "
        f"{width:,} cycles. Bytes that no command reads again are not counted, so the highest "
        "used address can be larger."
    )
    return StepChart(
        "sram-occupancy",
        "SRAM occupancy over time",
        (*(cycle for cycle, _ in peak), report.end_to_end.cycles),
        series,
        limits,
        unit,
        note,
    )


def memory_chart(report: RunReport) -> MemoryChart | None:
    """Return the memory map of the scratchpad over the run; None if it stays empty."""
    found = report.memory
    if found is None:
        return None
    delays = _delays(report)
    blocks = []
    for block in found.blocks:
        delay = _delay_at(delays, block.begin)
        shifted = {"begin": block.begin + delay, "end": block.end + delay}
        name = report.layers[block.layer].name if block.layer >= 0 else "no layer"
        label = f"{name}: {block.role}" + (f", tile {block.tile}" if block.tile else "")
        blocks.append((label, block.model_copy(update=shifted)))
    note = (
        "Each rectangle is a tensor or a tile, from its first write to its last read. It spans "
        "its lowest to its highest address, so rectangles of tensors with gaps can overlap. "
    )
    note += (
        f"These are the {len(blocks):,} largest of {len(blocks) + found.omitted:,} rectangles, "
        f"with {found.share:.1%} of all bytes × cycles."
        if found.omitted
        else "The map is complete."
    )
    return MemoryChart(
        "memory-map",
        "Memory map of the scratchpad over time",
        tuple(blocks),
        report.end_to_end.cycles,
        report.totals.sram_peak_bytes or 0,
        note,
    )


def unit_causes(report: RunReport) -> BarChart:
    """Return a chart of the causes of every unit's cycles, in per cent of the run's cycles."""
    units = tuple(report.units)
    total = report.totals.cycles or 1
    causes = list_causes(report)
    shares = {
        cause: tuple(100 * report.units[unit].get(cause, 0) / total for unit in units)
        for cause in causes
    }
    series = tuple(
        Series(cause, found, causes[cause]) for cause, found in shares.items() if any(found)
    )
    return BarChart(
        "unit-causes",
        "Cycles of the units by cause",
        "% of the run's cycles",
        "%",
        units,
        series,
        layers=False,
        limit=100.0,
    )


def roofline(report: RunReport) -> Roofline:
    """Return the roofline chart with every layer.

    Layers without DRAM traffic are at the right edge, layers without MACs in the lower left corner.
    """
    pe = report.arch["pe"]
    bus = float(report.timing["bus_bytes"]) if report.bus is None else report.bus.sustained_bytes
    elements = float(pe["ic"] * pe["oc"] * pe["ow"])
    intensities = [found for layer in report.layers if (found := intensity(layer))]
    rates = [layer.macs / layer.cycles for layer in report.layers if layer.macs and layer.cycles]
    ridge = elements / bus
    left = min([ridge / 4, *intensities]) / 2
    right = max([ridge * 4, *intensities]) * 4
    bottom = min([elements / 16, *rates]) / 2
    kinds = sorted(
        {layer.kind for layer in report.layers}, key=lambda kind: (kind not in KINDS, kind)
    )
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
    """Return the MACs per byte of DRAM traffic; None if a logarithmic axis cannot show it."""
    moved = (layer.dram_read_bytes or 0) + (layer.dram_write_bytes or 0)
    return layer.macs / moved if layer.macs and moved else None


def _mark(number: int, layer: Layer, corner: tuple[float, float], right: float) -> Mark:
    left, bottom = corner
    if not layer.macs or not layer.cycles:
        return Mark(number, layer.name, left, bottom, NO_MACS)
    rate = layer.macs / layer.cycles
    found = intensity(layer)
    return (
        Mark(number, layer.name, right, rate, NO_TRAFFIC)
        if found is None
        else Mark(number, layer.name, found, rate)
    )
