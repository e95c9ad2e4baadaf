"""Text, tables and data rows of a run: layers, causes of cycles, totals, check and accuracy.

Data rows contain plain numbers, under the same names everywhere.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich.text import Text

from dla_sim.engine.breakdown import PARTS
from dla_sim.presets import SRAM_MODES
from experiments.cost.estimate import COMMAND_WORD_BYTES, MICROJOULE, cost_lines
from experiments.figure import describe_figure, figures_of, format_figure, values_of
from experiments.report.checks import HardwareCheck, OutputsCheck
from experiments.report.fidelity import batch_line, calibration_line, fidelity_line
from experiments.report.machine import ABSENT
from experiments.report.schema import (
    Bus,
    Compilation,
    EndToEnd,
    Fallback,
    Figures,
    HostLayer,
    Layer,
    LayerGroup,
    PlacementEntry,
    PortEntry,
    RunReport,
)
from experiments.report.sensitivity import sensitivity_tables
from experiments.report.terminal import LiteralTable, Printed, ReportTable, line, plain_table
from isa.arch import memory_of

Row = dict[str, Any]
LAYER_FIGURES = figures_of(Layer)
HOST_FIGURES = ("cycles", "macs")
"""Figures that nodes on the CPU have, too."""
LAYER_COLUMNS = (
    "layer",
    "on",
    "region",
    "kind",
    *(figure.name for figure in LAYER_FIGURES),
    *PARTS,
)
"""Keys of the rows of :func:`layer_rows`, in their order."""


def layer_rows(report: RunReport) -> list[Row]:
    """Return a row per layer in network order.

    A region's layers come at the position of its first node.

    Cycles of nodes on the CPU are estimates. ``utilization`` is a fraction, the parts of ``cycles``
    (``dla_sim.engine.breakdown.PARTS``) are cycles, ``energy_pj`` is an estimate. Unknown values
    are None.
    """
    columns = list_layer_columns(report)
    return [
        _host_record(one, columns) if isinstance(one, HostLayer) else _layer_record(one, columns)
        for one in list_in_order(report)
    ]


def list_layer_columns(report: RunReport) -> tuple[str, ...]:
    """Return the keys of the rows of :func:`layer_rows`; a described machine has its own parts."""
    if report.machine is None:
        return LAYER_COLUMNS
    known = {figure.name for figure in LAYER_FIGURES} - {*ABSENT["layers"]}
    known |= {"utilization"} if report.totals.utilization is not None else set()
    parts = dict.fromkeys(part for layer in report.layers for part in layer.breakdown)
    names = (name for name in LAYER_COLUMNS if name not in PARTS)
    figures = {figure.name for figure in LAYER_FIGURES}
    return (*(name for name in names if name not in figures or name in known), *parts)


def figure_rows(figures: Figures) -> list[Row]:
    """Return a data row for each layer in ``figures``, with the keys of :func:`layer_rows`."""
    return [_layer_record(layer) for layer in figures.layers]


def placement_rows(placement: Sequence[PlacementEntry]) -> list[Row]:
    """Return a row per node: where it runs and, on the CPU, the reason."""
    return [entry.model_dump() for entry in placement]


def list_in_order(report: RunReport) -> Iterator[Layer | HostLayer]:
    """Yield the accelerator's layers and the CPU's nodes in network order."""
    host = {layer.node: layer for layer in report.host.layers}
    seen: set[int] = set()
    for entry in report.placement:
        if entry.on == "cpu" and entry.node in host:
            yield host[entry.node]
        elif entry.region is not None and entry.region not in seen:
            seen.add(entry.region)
            yield from (layer for layer in report.layers if layer.region == entry.region)


def _layer_record(layer: Layer, columns: Sequence[str] = LAYER_COLUMNS) -> Row:
    said = {"layer": layer.name, "on": "dla", "region": layer.region, "kind": layer.kind}
    known = (
        said
        | {figure.name: getattr(layer, figure.name) for figure in LAYER_FIGURES}
        | dict(layer.breakdown)
    )
    return {name: known.get(name) for name in columns}


def _host_record(layer: HostLayer, columns: Sequence[str]) -> Row:
    known = {
        "layer": layer.node, "on": "cpu", "kind": layer.op_type, "cycles": layer.estimated_cycles,
        "macs": layer.macs,
    }  # fmt: skip
    return {name: known.get(name) for name in columns}


HEADINGS = {part: part if part in ("compute", "scratchpad") else f"wait {part}" for part in PARTS}
"""Column headings of the parts of a layer's cycles."""
_TOLD = {
    "cycles", "macs", "utilization", "lower_bound_cycles", "roofline_cycles", "dram_read_bytes",
    "dram_write_bytes",
    "flash_read_bytes", "sram_peak_bytes", "instructions",
}  # fmt: skip
"""Figures of the whole run that have lines of their own."""
_FURTHER = [
    figure for figure in LAYER_FIGURES if figure.name not in {*_TOLD, "tiles", "group", "energy_pj"}
]
"""Figures of layers that have no column of their own."""
MOST_GROUPS = 6
"""Maximum number of groups of layers that are named one by one."""


def report_tables(report: RunReport, summary: bool = False) -> Iterator[Printed]:
    """Yield all tables and lines of the report.

    For a ``summary``, yield only those about the whole run.
    """
    yield line(f"{report.model} on {machine_line(report)}", style="bold")
    whole = report.end_to_end
    yield line(f"end to end {end_to_end_line(whole)}", style="bold")
    if not summary:
        yield layer_table(layer_rows(report))
        breakdown = breakdown_table(report)
        if breakdown is not None:
            yield breakdown
        if report.kinds:
            yield kind_table(report)
        if report.units:
            yield unit_table(report)
        if whole.fallbacks:
            yield fallback_table(whole)
    yield facts_table(total_lines(report))
    if report.sensitivity is not None:
        yield from sensitivity_tables(report.sensitivity)


def end_to_end_line(found: EndToEnd) -> str:
    """Return a line with an inference's cycles and the shares of its three places.

    The places are the accelerator, the CPU and the transfers.
    """
    names = {"dla": "accelerator", "cpu": "CPU", "transfer": "transfers"}
    text = ", ".join(
        f"{names[place]} {found.share(cycles):.1%} ({cycles:,})"
        for place, cycles in found.shares.items()
    )
    missing = "; transfers not counted" * (found.transfer_cycles is None)
    return f"~{found.cycles:,} cycles, estimated: {text}{missing}"


def integer_line(found: EndToEnd) -> str:
    """Return the CPU's share of the time with integer inputs and outputs.

    The option ``--integer-io`` makes the network's inputs and outputs integers.
    """
    rest = found.cpu_cycles - found.interface_cycles
    return (
        f"with --integer-io {found.integer_cpu_share:.1%} of the time ({rest:,} cycles) on the CPU"
    )


def fallback_table(found: EndToEnd) -> ReportTable:
    """Return the nodes on the CPU by operator and reason, most expensive first.

    Their cycles are the most that support for the operator could save. "With conversions" includes
    the quantisation and dequantisation nodes that serve only these nodes.
    """
    table = plain_table(
        ("on the CPU", "left"),
        ("nodes", "right", 3),
        ("MACs", "right", 4),
        ("estimated cycles", "right"),
        ("share of time", "right", 1),
        ("with conversions", "right", 2),
        ("reason (first node)", "fold"),
    )
    for item in found.fallbacks:
        table.add_row(*fallback_cells(found, item))
    return table


def fallback_cells(found: EndToEnd, item: Fallback) -> tuple[str, ...]:
    """Return the cells of one row of the table of nodes on the CPU.

    They are operator, nodes, MACs, cycles, their share, their share with quantisation at the edges,
    and reason.
    """
    shares = (
        found.share(cycles)
        for cycles in (item.estimated_cycles, item.estimated_cycles + item.edge_cycles)
    )
    own, whole = (f"{share:.1%}" for share in shares)
    return (
        item.op_type,
        f"{item.nodes:,}",
        f"{item.macs:,}",
        f"~{item.estimated_cycles:,}",
        own,
        whole if item.edge_cycles else "",
        item.reason,
    )


def machine_line(report: RunReport) -> str:
    """Return one line with a machine's array, memory, bus, instruction set and schedule.

    For a described machine, it has the name and the kind.
    """
    if report.machine is not None:
        return report.machine.label
    pe = report.arch["pe"]
    array = f"{pe['ic']}x{pe['oc']}" + (f"x{pe['ow']}" if pe["ow"] > 1 else "")
    memory = f"{report.arch['sram_bytes'] / 1024:g} KiB SRAM"
    bus = f"{report.timing['bus_bytes']} bytes/cycle"
    slower = [f"memory {report.timing['dram_rate']}"] if report.timing.get("dram_rate") else []
    if report.timing.get("flash_bytes"):
        flash = report.timing.get("flash_rate") or report.timing["flash_bytes"]
        slower.append(f"flash {flash}")
    bus += f" ({', '.join(slower)})" if slower else ""
    isa = report.arch["isa"] + memory_of(report.arch).note
    return f"{array} PEs (ic x oc), {memory}, {bus}, ISA {isa}, schedule {report.schedule}"


def layer_table(rows: Sequence[Row]) -> ReportTable:
    """Return a table of layers and CPU nodes, whose cycles are marked as estimates.

    It has no energy column if no layer has an energy.
    """
    known = {name for row in rows[:1] for name in row}
    if all(row.get("energy_pj") is None for row in rows):
        known -= {"energy_pj"}
    further = [figure for figure in _FURTHER if figure.name in known]
    table = plain_table(
        ("layer", "fold"),
        ("where", "left", 2),
        ("kind", "fold", 1),
        ("cycles", "right"),
        *([("~µJ", "right", 1)] if "energy_pj" in known else []),
        ("MACs", "right", 5),
        *([("util.", "right", 3)] if "utilization" in known or not rows else []),
        *([("DRAM bytes", "right", 4)] if "dram_read_bytes" in known or not rows else []),
        *([("tiles", "right", 6)] if "tiles" in known or not rows else []),
        *((figure.head, "right", 7) for figure in (further if rows else _FURTHER)),
    )
    for row in rows:
        more = (format_figure(row[figure.name], figure.unit) for figure in further)
        table.add_row(*_cells_of(row, known), *more)
    return table


def _cells_of(row: Row, known: Collection[str]) -> Iterator[str]:
    ours = row["on"] == "dla"
    yield row["layer"]
    yield f"dla {row['region']}" if ours else "cpu"
    yield row["kind"]
    yield f"{row['cycles']:,}" if ours else f"~{row['cycles']:,}"
    if "energy_pj" in known:
        yield "" if row["energy_pj"] is None else f"~{row['energy_pj'] / MICROJOULE:,.3f}"
    yield f"{row['macs']:,}"
    if "utilization" in known:
        yield f"{row['utilization']:.1%}" if ours and row["macs"] else ""
    if "dram_read_bytes" in known:
        yield f"{row['dram_read_bytes'] + row['dram_write_bytes']:,}" if ours else ""
    if "tiles" in known:
        yield str(row["tiles"]) if ours else ""


def kind_table(report: RunReport | Figures) -> ReportTable:
    """Return a table of the run's cycles, and of EX's busy cycles, by kind."""
    table = plain_table(("cycles by kind", "left"), ("run", "right"), ("EX busy", "right"))
    for kind, cycles in report.kinds.items():
        if cycles:
            busy = report.ex_cycles[kind]
            table.add_row(kind, f"{cycles:,}", f"{busy:,}" if busy else "")
    return table


def unit_table(report: RunReport | Figures) -> ReportTable:
    """Return a table of the cycles of every unit by cause."""
    table = plain_table(("cycles by cause", "left"), *((unit, "right") for unit in report.units))
    for cause in dict.fromkeys(cause for unit in report.units.values() for cause in unit):
        cycles = [unit.get(cause, 0) for unit in report.units.values()]
        if any(cycles):
            table.add_row(cause, *(f"{one:,}" for one in cycles))
    return table


def facts_table(facts: Iterable[tuple[str, str | Text]]) -> LiteralTable:
    """Return names and texts as a table without headings, a row each."""
    table = LiteralTable(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    return table


def _cycle_lines(report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield the lines about cycles, their bounds and the bus."""
    totals = report.totals
    bound = (
        f" ({totals.cycles / totals.lower_bound_cycles:.3f} x the lower bound)"
        if totals.lower_bound_cycles
        else ""
    )
    milliseconds = totals.cycles / report.clock_hz * 1e3
    yield (
        "cycles",
        f"{totals.cycles:,}{bound}, {milliseconds:.4g} ms at {report.clock_hz / 1e6:g} MHz",
    )
    if totals.lower_bound_cycles is not None:
        yield "lower bound", f"{totals.lower_bound_cycles:,} cycles"
    if totals.roofline_cycles:
        ratio = totals.cycles / totals.roofline_cycles
        yield (
            "roofline",
            f"{totals.roofline_cycles:,} cycles with the best mappings of all layers ({ratio:.3f} "
            "x the roofline)",
        )
    if report.bus is not None and report.bus.sustained_bytes < report.bus.width_bytes:
        yield "bus", bus_line(report.bus)


def _check_lines(report: RunReport) -> Iterator[tuple[str, str | Text]]:
    """Yield the lines about checks, the prepared model and its calibration."""
    yield "check", _check_line(report)
    if report.hardware is not None:
        yield "hardware", _hardware_line(report.hardware)
    if report.check.outputs is not None and not report.check.outputs.exact:
        yield "outputs", _outputs_line(report.check.outputs)
    yield "model", fidelity_line(report.fidelity)
    if report.fidelity is not None and report.fidelity.opened:
        yield "batch", batch_line(report.fidelity)
    if report.fidelity is not None and report.fidelity.file is not None:
        yield "file", report.fidelity.file.message()
    if report.fidelity is not None and report.fidelity.laws:
        counted = (f"{name} ({count})" for name, count in report.fidelity.laws.items())
        yield "rewrites", f"applied {', '.join(counted)}"
    if report.fidelity is not None and report.fidelity.calibration is not None:
        yield "calibration", calibration_line(report.fidelity.calibration)
        for line in report.fidelity.calibration.list_trials():
            yield "quantised", line


def total_lines(report: RunReport) -> Iterator[tuple[str, str | Text]]:
    """Yield name and text of every line about the whole run."""
    totals = report.totals
    if report.machine is not None:
        yield "machine", report.machine.message()
    yield from _cycle_lines(report)
    used = "" if totals.utilization is None else f", utilisation {totals.utilization:.1%}"
    yield "MACs", f"{totals.macs:,}{used}"
    if report.compile is not None:
        yield from _program_lines(report, report.compile)
    if report.host.nodes:
        yield (
            "CPU",
            f"{report.host.nodes} nodes, estimated {report.host.estimated_cycles:,} cycles (not in "
            "the total)",
        )
        if report.end_to_end.interface_cycles:
            yield "", integer_line(report.end_to_end)
    for port in report.interface:
        if port.integer or port.reason:
            yield port.role, port_line(port)
    yield from _check_lines(report)
    for suspicion in report.warnings:
        yield "warning", Text(suspicion.message(), style="yellow")
    if report.steps is not None:
        yield "steps", report.steps.message()
    for branch in report.branches:
        yield "branch", branch.message()
    if report.accuracy is not None:
        yield "accuracy", _accuracy_line(report)
    if report.cost is not None:
        yield from cost_lines(report.cost)


def _program_lines(report: RunReport, made: Compilation) -> Iterator[tuple[str, str]]:
    """Yield the lines about memory and programs, which described machines lack."""
    totals = report.totals
    yield from _traffic_lines(report, made)
    yield "SRAM", f"addresses up to {totals.sram_peak_bytes:,} of {report.arch['sram_bytes']:,}"
    for figure, value in values_of(totals):
        if figure.name not in _TOLD and value is not None:
            yield figure.words, describe_figure(figure, value)
    yield (
        "program",
        (
            f"{made.regions} region{'s' * (made.regions != 1)}, {made.words:,} words: "
            f"{totals.instructions:,} instructions, {made.sets:,} register writes "
            f"({made.sets_elided:,} saved)"
        ),
    )
    if made.groups:
        yield "groups", groups_line(made.groups)


def _traffic_lines(report: RunReport, made: Compilation) -> Iterator[tuple[str, str]]:
    """Yield lines with the bytes moved from and to each memory behind the bus."""
    totals = report.totals
    main = "DRAM"
    if report.memory_mode in SRAM_MODES:
        main = "system SRAM"
    read = (totals.dram_read_bytes or 0) - (totals.flash_read_bytes or 0)
    yield main, f"{read:,} bytes read, {totals.dram_write_bytes:,} written"
    if report.timing.get("flash_bytes"):
        words = COMMAND_WORD_BYTES * made.words
        yield (
            "flash",
            f"{totals.flash_read_bytes:,} bytes of constants read, {words:,} of command words",
        )


def groups_line(groups: Sequence[LayerGroup]) -> str:
    """Name the first few groups of layers that are computed together.

    A group is computed in bands of rows or tile by tile.
    """
    layers = sum(len(group.layers) for group in groups)
    named = [f"{one.layers[0]} to {one.layers[-1]} ({_count_turns(one.rows)})" for one in groups]
    more = [f"{len(named) - MOST_GROUPS} more"] if len(named) > MOST_GROUPS else []
    return f"{layers} layers fused in bands: {', '.join([*named[:MOST_GROUPS], *more])}"


def _count_turns(rows: int) -> str:
    return f"{rows} row{'s' * (rows != 1)}" if rows else "tile by tile"


def bus_line(bus: Bus) -> str:
    """Return the bytes per cycle that the bus sustains, and whether memory or bursts limit it."""
    sustained = f"sustains {bus.sustained_bytes:.3g} of {bus.width_bytes} bytes/cycle"
    if bus.outstanding_bursts >= bus.bursts_to_fill:
        return f"{sustained}, the rate of the memory"
    return (
        f"{sustained} with {bus.outstanding_bursts} bursts in flight; {bus.bursts_to_fill} would "
        "fill it"
    )


def port_line(port: PortEntry) -> str:
    """Return the type, shape and quantisation of a network's input or output."""
    text = f"{port.name}: {port.dtype} {list(port.shape)}"
    if port.scale is not None:
        text += f", scale {port.scale:.9g}, zero point {port.zero_point}"
    return f"{text}; {port.reason}" if port.reason else text


def _check_line(report: RunReport) -> Text:
    check = report.check
    if check.regions == 0:
        return Text("no node ran on the accelerator; no values were checked", style="yellow")
    if not check.vouched:
        return Text(check.oracle)
    regions = (
        "" if check.regions is None else f" of {check.regions} region{'s' * (check.regions != 1)}"
    )
    tensors = f"{check.tensors} tensor{'s' * (check.tensors != 1)}"
    compared = f"{check.elements:,} elements of {tensors}{regions} against {check.oracle}"
    if check.mismatches == 0:
        return Text(f"0 mismatches in {compared}", style="green")
    return Text(
        f"{check.mismatches:,} MISMATCHES in {compared}, largest difference {check.max_abs_diff}",
        style="red",
    )


def _hardware_line(found: HardwareCheck) -> Text:
    """Return the number of differences between hardware and simulator, and the figures compared."""
    compared = (
        f"start and end of {found.commands:,} commands, {found.written_bytes:,} bytes that they "
        "wrote, "
        f"{found.cycles:,} cycles by unit and cause"
    )
    if not found.differences:
        return Text(f"0 differences from the simulator: {compared}", style="green")
    first = f"{found.differences:,} DIFFERENCES from the simulator, the first {found.first}"
    return Text(f"{first}; compared: {compared}", style="red")


def _outputs_line(outputs: OutputsCheck) -> str:
    """Describe in one line how a run's outputs differ from outputs of the whole model.

    Float operators on the CPU may cause differences.
    """
    if not outputs.differences:
        return (
            f"all {outputs.elements:,} elements equal the whole model on its runtime; the CPU "
            "computed some of them"
        )
    return (
        f"{outputs.differences:,} of {outputs.elements:,} elements differ from the whole model on "
        "its runtime by "
        f"up to {outputs.max_abs_diff:.3g}: the runtime rounds differently when it runs the CPU "
        "part separately"
    )


def _accuracy_line(report: RunReport) -> str:
    accuracy = report.accuracy
    assert accuracy is not None
    shares = {"float": accuracy.float_, "int8": accuracy.int8, "DLA": accuracy.dla}
    text = ", ".join(f"{name} {share:.2%}" for name, share in shares.items() if share is not None)
    agreement = "int8 and DLA agree on every image"
    if accuracy.dla is None:
        agreement = "the outputs of the run are those of int8"
    if accuracy.differences:
        differ = "DIFFER" if report.check.vouched else "round differently and differ"
        agreement = f"int8 and DLA {differ} on {accuracy.differences} images"
    return f"{text} of {accuracy.images} images; {agreement}"


def name_part(part: str, layer: Layer) -> str:
    """Return the heading of a part of a layer's cycles; the layer of a described machine names it.

    A described machine reports no DRAM traffic.
    """
    return part if layer.dram_read_bytes is None else HEADINGS[part]


def breakdown_table(report: RunReport | Figures) -> ReportTable | None:
    """Return each layer's cycles by part and a row of totals; None if the report has no breakdown.

    Parts that never occur have no column.
    """
    layers = [layer for layer in report.layers if layer.breakdown]
    totals: Counter[str] = Counter()
    for layer in layers:
        totals.update(layer.breakdown)
    shown = [part for part in {**dict.fromkeys(PARTS), **totals} if totals[part]]
    if not shown:
        return None
    ranked = list({**dict.fromkeys(PARTS), **totals})
    table = plain_table(
        ("layer", "fold"),
        ("cycles", "right"),
        *(
            (name_part(part, layers[0]), "right", rank)
            for rank, part in enumerate(ranked, 1)
            if part in shown
        ),
    )
    for layer in layers:
        # Empty cells instead of zeros make the layer's waits easy to see.
        parts = (f"{one:,}" if (one := layer.breakdown.get(part)) else "" for part in shown)
        table.add_row(layer.name, f"{layer.cycles:,}", *parts)
    table.add_section()
    cycles = sum(layer.cycles for layer in layers)
    table.add_row("total", f"{cycles:,}", *(f"{totals[part]:,}" for part in shown))
    table.add_row("", "", *(f"{totals[part] / cycles:.1%}" for part in shown))
    return table


_SUMMED_UP = ("machine", "cycles", "MACs", "check", "batch", "hardware", "warning")


def summary_lines(report: RunReport) -> Iterator[str]:
    """Yield the lines of a run's summary: network, machine, time, check and warnings."""
    yield f"{report.model} on {machine_line(report)}"
    if report.host.nodes:
        yield f"end to end {end_to_end_line(report.end_to_end)}"
    for name, value in total_lines(report):
        if name in _SUMMED_UP:
            yield f"{name}: {value}"
