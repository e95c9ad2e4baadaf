"""Timeline of a run: its events as a trace in Perfetto's format (docs/debugging.md).

Regions follow one another. The sums of the slices are the figures of the report.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from dla_sim.device import Trace
from dla_sim.engine.accounts import CAUSES, SRAM
from dla_sim.engine.breakdown import PARTS, attribute_cycles
from dla_sim.engine.bus import PORTS
from dla_sim.engine.times import completion_order
from dla_sim.engine.workload import UNIT_NAMES
from dla_sim.inspection import bus_usage, live_bytes, token_pairs
from dla_sim.memory import ExPort, busiest
from experiments.report.figures import RegionRun
from experiments.report.perfetto_trace import BYTES, PERCENT, PerfettoTrace
from experiments.report.schema import WITHIN
from isa.arch import Arch
from isa.assembler import command_text
from isa.instruction import KINDS, Command, Operands

TRACKS = ("program", "layers", "command fetch", *UNIT_NAMES)
LIVE = "SRAM live bytes"
COUNTERS = {
    **{f"bus {port}": PERCENT for port in PORTS},
    **{f"bank conflicts {unit}": PERCENT for unit in UNIT_NAMES},
    LIVE: BYTES,
}
"""Counter tracks and the unit of each."""


def timeline_trace(runs: Sequence[RegionRun]) -> bytes:
    """Return the timeline of ``runs``; equal runs give equal bytes."""
    trace = PerfettoTrace("DLA, 1 ns = 1 cycle", TRACKS, COUNTERS)
    offset = 0
    flows = 0
    for run in runs:
        arguments = {"region": run.region, "arch": run.program.arch.digest()}
        span = (offset, offset + run.trace.cycles)
        trace.add_slice("program", run.program.name, "program", span, arguments)
        if run.trace.commands:
            _add_layers(trace, run, offset)
        flows += _add_commands(trace, run, offset, flows)
        _add_bus(trace, run.trace, offset)
        _add_scratchpad(trace, run, offset)
        offset += run.trace.cycles
    return trace.serialize()


def _add_layers(trace: PerfettoTrace, run: RegionRun, offset: int) -> None:
    """Add the layers that the cycles of a region count for, and in each the parts of its cycles."""
    ran = run.trace
    found = attribute_cycles(ran.workload, ran.labels, ran.times, ran.causes)
    edges = (offset + found.edges).tolist()
    columns = (found.layer.tolist(), found.kind.tolist(), found.part.tolist())
    rows = list(zip(*columns, edges[:-1], edges[1:], strict=True))
    for layer, spans in groupby(rows, key=lambda row: row[0]):
        members = list(spans)
        span = (members[0][-2], members[-1][-1])
        name = ran.labels.layers[layer] or "no layer"
        trace.add_slice("layers", name, "layer", span, {"region": run.region})
        for (kind, part), pieces in groupby(members, key=lambda row: row[1:3]):
            inner = list(pieces)
            span = (inner[0][-2], inner[-1][-1])
            trace.add_slice("layers", PARTS[part], KINDS[kind], span)


def _add_commands(trace: PerfettoTrace, run: RegionRun, offset: int, flows: int) -> int:
    """Add a slice for every command of a region, and a flow for every token; return their number.

    A flow leaves the command that pushes the token and ends in the one that pops it. Flows are
    numbered from ``flows`` on.
    """
    ran = run.trace
    leaving: list[list[int]] = [[] for _ in ran.commands]
    entering: list[list[int]] = [[] for _ in ran.commands]
    pairs = token_pairs(ran.workload)
    for number, (_, pusher, popper) in enumerate(pairs, start=flows + 1):
        leaving[pusher].append(number)
        entering[popper].append(number)
    columns = (ran.times.start, ran.times.end, ran.labels.kind)
    rows = zip(*(column.tolist() for column in columns), _list_arguments(run), strict=True)
    for number, (start, end, kind, arguments) in enumerate(rows):
        command = ran.commands[number]
        source = ran.sources[number]
        name = source.layer if source is not None and source.layer else command.instruction.mnemonic
        trace.add_slice(
            command.unit.name,
            name,
            KINDS[kind],
            (offset + start, offset + end),
            arguments,
            (leaving[number], entering[number]),
        )
    return len(pairs)


def _list_arguments(run: RegionRun) -> Iterator[dict[str, Any]]:
    """Yield the arguments of the slice of every command."""
    ran = run.trace
    labels = ran.labels
    columns = (ran.causes.commands, ran.times.arrival, labels.macs, labels.read, labels.write)
    commands = (ran.commands, ran.prepared.operands, ran.sources)
    rows = zip(*commands, *(column.tolist() for column in columns), strict=True)
    for command, operands, source, causes, arrival, macs, read, write in rows:
        by_cause = {name: cycles for name, cycles in zip(CAUSES, causes, strict=True) if cycles}
        yield {
            "region": run.region,
            "word": command.index,
            "assembly": command_text(command),
            **({} if source is None else {"tile": source.tile, "operation": source.operation}),
            "queued_since": arrival,
            "cycles": {name: cycles for name, cycles in by_cause.items() if name in WITHIN},
            "waits": {name: cycles for name, cycles in by_cause.items() if name not in WITHIN},
            "macs": macs,
            "read_bytes": read,
            "write_bytes": write,
            **(_name_contention(command, operands, run.program.arch) if "sram" in by_cause else {}),
        }


def _name_contention(command: Command, operands: Operands, arch: Arch) -> dict[str, Any]:
    """Return the bank or port that an EX command waits for, and the words of each operand in it."""
    served = busiest(command, operands, arch)
    if served is None:
        return {}
    place = {"port": served.by.name} if isinstance(served.by, ExPort) else {"bank": served.by}
    return {**place, "words": dict(served.words)}


def _add_bus(trace: PerfettoTrace, ran: Trace, offset: int) -> None:
    """Add the chunks of command words, and the share of bus slots that each requester gets."""
    usage = bus_usage(ran.workload)
    for number, (begin, end) in enumerate(usage.chunks):
        span = (offset + begin, offset + end)
        trace.add_slice("command fetch", f"chunk {number}", "ISSUE", span)
    levels = {port: [(0, 0.0)] for port in PORTS}
    for stretch in usage.stretches:
        for port, slots in zip(PORTS, stretch.granted, strict=True):
            share = 100 * slots / (stretch.end - stretch.begin)
            levels[port] += [(stretch.begin, share), (stretch.end, 0.0)]
    for port, values in levels.items():
        _add_values(trace, f"bus {port}", offset, values)


def _add_scratchpad(trace: PerfettoTrace, run: RegionRun, offset: int) -> None:
    """Add the live bytes, and the share of each unit's cycles that waits for the scratchpad."""
    ran = run.trace
    order = completion_order(ran.workload, ran.times)
    cycles, counts = live_bytes(ran.prepared.operands, order, ran.times)
    live = zip(cycles.tolist(), counts.tolist(), strict=True)
    _add_values(trace, LIVE, offset, [(0, 0), *live])
    begin, end = ran.times.start, ran.times.end
    for unit, members in zip(UNIT_NAMES, ran.causes.by_unit, strict=True):
        share = 100 * ran.causes.commands[members, SRAM] / (end - begin)[members]
        rows = zip(begin[members].tolist(), end[members].tolist(), share.tolist(), strict=True)
        values = [pair for first, last, value in rows for pair in ((first, value), (last, 0.0))]
        _add_values(trace, f"bank conflicts {unit}", offset, [(0, 0.0), *values])


def _add_values(
    trace: PerfettoTrace, name: str, offset: int, values: Sequence[tuple[int, float]]
) -> None:
    """Add the changes of a counter; of several values at one time, the last one holds."""
    last = None
    for cycle, value in sorted(dict(values).items()):
        if value != last:
            trace.add_value(name, offset + cycle, value)
        last = value
