"""Timeline of a run: all of its events as Trace Event Format JSON.

Perfetto and chrome://tracing open it (docs/debugging.md). One cycle is one nanosecond of the time
axis: this is real time at 1 GHz, and a count of cycles at any other clock. Regions follow one
another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from math import inf, nextafter
from typing import Any

from dla_sim.device import Trace
from dla_sim.engine.accounts import CAUSES
from dla_sim.engine.bus import PORTS
from dla_sim.engine.times import completion_order
from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES
from dla_sim.inspection import bus_usage, live_bytes, token_pairs
from dla_sim.memory import ExPort, busiest
from experiments.report.figures import RegionRun
from experiments.report.schema import WITHIN
from isa.arch import Arch
from isa.assembler import command_text
from isa.instruction import KINDS

Event = dict[str, Any]

PROCESS = 1
TRACKS = ("program", "command fetch", *UNIT_NAMES)
_THREAD = {name: number for number, name in enumerate(TRACKS, start=2)}
_ORDER = {"M": 0, "X": 1, "s": 2, "f": 3, "C": 4}


def timeline_json(runs: Sequence[RegionRun]) -> str:
    """Return the timeline of ``runs``, one event per line; equal runs give equal text.

    A command takes a few events.
    """
    events = [*_metadata()]
    offset = 0
    flows = 0
    for run in runs:
        found = sorted(
            _region_events(run, offset, flows), key=lambda event: (event["ts"], _ORDER[event["ph"]])
        )
        flows += sum(event["ph"] == "s" for event in found)
        offset += run.trace.cycles
        events += found
    lines = ",\n".join(json.dumps(_make_event(event), separators=(",", ":")) for event in events)
    return f'{{"displayTimeUnit":"ns","traceEvents":[\n{lines}\n]}}\n'


def microseconds(cycle: int) -> float:
    """Return a cycle number divided by 1000, a timeline's time stamp in microseconds.

    Readers that round and readers that truncate get ``cycle``.
    """
    value = cycle / 1000
    return value if int(value * 1000.0) == cycle else nextafter(value, inf)


def _make_event(event: Event) -> Event:
    return event | {key: microseconds(event[key]) for key in ("ts", "dur") if key in event}


def _metadata() -> Iterator[Event]:
    yield {
        "ph": "M",
        "name": "process_name",
        "pid": PROCESS,
        "args": {"name": "DLA, 1 ns = 1 cycle"},
    }
    for order, (name, thread) in enumerate(_THREAD.items()):
        place = {"ph": "M", "pid": PROCESS, "tid": thread}
        yield {**place, "name": "thread_name", "args": {"name": name}}
        yield {**place, "name": "thread_sort_index", "args": {"sort_index": order}}


def _region_events(run: RegionRun, offset: int, flows: int) -> Iterable[Event]:
    """Yield all timeline events of a region whose first cycle is ``offset``.

    Token flows are numbered from ``flows``.
    """
    name = run.program.name
    arguments = {"region": run.region, "arch": run.program.arch.digest()}
    yield _slice("program", name, "program", (offset, offset + run.trace.cycles), arguments)
    yield from _commands(run.trace, run.program.arch, offset)
    yield from _tokens(run.trace, offset, flows)
    yield from _bus(run.trace, offset)
    yield from _scratchpad(run, offset)


def _slice(
    track: str, name: str, category: str, span: tuple[int, int], arguments: dict[str, Any]
) -> Event:
    begin, end = span
    head = {"ph": "X", "name": name, "cat": category, "pid": PROCESS, "tid": _THREAD[track]}
    return {**head, "ts": begin, "dur": end - begin, "args": arguments}


def _commands(trace: Trace, arch: Arch, offset: int) -> Iterator[Event]:
    """Yield a timeline slice for every command, labelled with its layer.

    A command of an unknown layer is labelled with its mnemonic. An EX command that waits for banked
    memory names the bank or port, and how many words of which operands that serves.
    """
    times = (trace.times.arrival, trace.times.start, trace.times.end, trace.labels.kind)
    commands = trace.commands, trace.prepared.operands, trace.sources
    rows = zip(*commands, trace.causes.commands.tolist(), *map(_to_list, times), strict=True)
    for command, operands, source, causes, arrival, start, end, kind in rows:
        by_cause = {name: cycles for name, cycles in zip(CAUSES, causes, strict=True) if cycles}
        arguments: dict[str, Any] = {"word": command.index, "assembly": command_text(command)}
        if source is not None:
            arguments |= {"tile": source.tile, "operation": source.operation}
        arguments |= {
            "kind": KINDS[kind],
            "in queue since": arrival,
            "cycles": {name: cycles for name, cycles in by_cause.items() if name in WITHIN},
            "waited before": {
                name: cycles for name, cycles in by_cause.items() if name not in WITHIN
            },
        }
        served = busiest(command, operands, arch) if "sram" in by_cause else None
        if served is not None:
            waits = (
                {"waits for port": served.by.name}
                if isinstance(served.by, ExPort)
                else {"waits for bank": served.by}
            )
            arguments |= {**waits, "words of it": dict(served.words)}
        name = source.layer if source is not None and source.layer else command.instruction.mnemonic
        yield _slice(
            command.unit.name, name, KINDS[kind], (offset + start, offset + end), arguments
        )


def _to_list(column: Any) -> list[int]:
    values: list[int] = column.tolist()
    return values


def _tokens(trace: Trace, offset: int, flows: int) -> Iterator[Event]:
    """Yield timeline flows from each command that pushes a token to the one that pops it.

    The flow starts in the last cycle of the pushing command. The token arrives one cycle later, but
    then the slice of the command has ended, and viewers would bind the flow to the next slice.
    """
    start = trace.times.start.tolist()
    end = trace.times.end.tolist()
    for number, (counter, pusher, popper) in enumerate(token_pairs(trace.workload), start=flows):
        units = [UNIT_NAMES[unit] for unit in TOKEN_QUEUES[counter]]
        common = {
            "name": f"token {units[0]} to {units[1]}",
            "cat": "token",
            "id": number,
            "pid": PROCESS,
        }
        yield {"ph": "s", **common, "tid": _THREAD[units[0]], "ts": offset + end[pusher] - 1}
        yield {
            "ph": "f",
            "bp": "e",
            **common,
            "tid": _THREAD[units[1]],
            "ts": offset + start[popper],
        }


def _bus(trace: Trace, offset: int) -> Iterator[Event]:
    """Yield timeline events for the chunks of command words and the requesters' bus shares.

    Each chunk is a slice. A share is the percentage of bus slots that a requester gets.
    """
    usage = bus_usage(trace.workload, trace.times)
    for number, (begin, end) in enumerate(usage.chunks):
        yield _slice(
            "command fetch", f"chunk {number}", "ISSUE", (offset + begin, offset + end), {}
        )
    before = 0
    for stretch in usage.stretches:
        if stretch.begin > before:
            yield _counter("bus", offset + before, dict.fromkeys(PORTS, 0.0))
        shares = (
            round(100 * slots / (stretch.end - stretch.begin), 1) for slots in stretch.granted
        )
        yield _counter("bus", offset + stretch.begin, dict(zip(PORTS, shares, strict=True)))
        before = stretch.end
    yield _counter("bus", offset + before, dict.fromkeys(PORTS, 0.0))


def _scratchpad(run: RegionRun, offset: int) -> Iterator[Event]:
    trace = run.trace
    operands = [
        command.instruction.operands(command, run.program.arch) for command in trace.commands
    ]
    order = completion_order(trace.workload, trace.times)
    cycles, counts = live_bytes(operands, order, trace.times)
    yield _counter("SRAM live bytes", offset, {"bytes": 0})
    for cycle, count in zip(cycles.tolist(), counts.tolist(), strict=True):
        yield _counter("SRAM live bytes", offset + cycle, {"bytes": count})


def _counter(name: str, cycle: int, values: dict[str, Any]) -> Event:
    return {"ph": "C", "name": name, "pid": PROCESS, "ts": cycle, "args": values}
