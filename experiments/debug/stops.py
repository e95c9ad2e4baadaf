"""Where a run is to stop for inspection, and the state of the machine there.

Places are ``--break [REGION/]WORD|LAYER[:after]`` and ``--until CYCLE``. The state is said in words: what each unit
does and waits for, tokens, and the command of a breakpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES
from dla_sim.inspection import MachineState, UnitState, Waiting, state_at
from experiments.report.figures import RegionRun
from isa.access import Access
from isa.assembler import command_text
from isa.errors import InputError

_WORD = re.compile(r"(?:(\d+)/)?(0x[0-9a-fA-F]+|\d+)")
_SHOWN = 6


@dataclass(frozen=True)
class Stop:
    """A cycle of one of the runs; ``command`` is the number of the command it was asked for with, if it was."""

    run: int
    cycle: int
    command: int | None


def find_stop(runs: Sequence[RegionRun], break_at: str | None, until: int | None) -> Stop | None:
    """Where to stop, or None. Raises InputError for both at once and for places that the runs do not have."""
    if break_at is not None and until is not None:
        raise InputError(f"--break {break_at} and --until {until}: choose one of them")
    if until is not None:
        return _at_cycle(runs, until)
    return None if break_at is None else _at_command(runs, break_at)


def _at_cycle(runs: Sequence[RegionRun], until: int) -> Stop:
    """Regions run one after another, and so do their cycles."""
    offset = 0
    for number, run in enumerate(runs):
        last = number == len(runs) - 1
        if until < offset + run.trace.cycles or (last and until == offset + run.trace.cycles):
            return Stop(number, until - offset, None)
        offset += run.trace.cycles
    raise InputError(f"--until {until}: the run ends at cycle {offset}; choose a cycle from 0 to {offset}")


def _at_command(runs: Sequence[RegionRun], text: str) -> Stop:
    place, _, side = text.rpartition(":")
    after = side == "after" and bool(place)
    place = place if after else text
    word = _WORD.fullmatch(place)
    if word is None:
        return _at_layer(runs, place, after)
    if word[1] is None and len(runs) > 1:
        regions = " or ".join(f"{run.region}/{word[2]}" for run in runs[:_SHOWN])
        raise InputError(f"--break {text}: the network has {len(runs)} regions, a program each; write {regions}")
    found = [number for number, run in enumerate(runs) if word[1] is None or run.region == int(word[1])]
    if not found:
        raise InputError(f"--break {text}: there is no region {word[1]}; regions are 0 to {len(runs) - 1}")
    return _at_word(runs[found[0]], found[0], int(word[2], 0), after, text)


def _at_word(run: RegionRun, number: int, word: int, after: bool, text: str) -> Stop:
    trace, count = run.trace, len(run.program.words)
    if word >= count:
        raise InputError(f"--break {text}: the program has the words 0 to {count - 1}; 'dla disasm' shows them")
    following = next((n for n, command in enumerate(trace.commands) if command.index >= word), None)
    operation = trace.commands[following].index if following is not None else count - 1
    if operation != word:
        raise InputError(f"--break {text}: word {word} is a SET; the next operation is word {operation}")
    if following is None:  # OP_END, which no unit executes
        return Stop(number, trace.cycles - (not after), None)
    times = trace.times.end if after else trace.times.start
    return Stop(number, int(times[following]), following)


def _at_layer(runs: Sequence[RegionRun], layer: str, after: bool) -> Stop:
    """The first command of a layer to start, or its last to complete."""
    for number, run in enumerate(runs):
        schedule = run.trace.times
        members = [n for n, source in enumerate(run.trace.sources) if source is not None and source.layer == layer]
        if members:
            command = (
                max(members, key=schedule.end.__getitem__) if after else min(members, key=schedule.start.__getitem__)
            )
            return Stop(number, int((schedule.end if after else schedule.start)[command]), command)
    known = list(dict.fromkeys(name for run in runs for name in run.trace.labels.layers if name))
    shown = get_close_matches(layer, known, _SHOWN) or known[:_SHOWN]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    raise InputError(f"--break {layer}: no layer has this name; layers are {', '.join(shown) or 'none'}{more}")


def state_lines(run: RegionRun, stop: Stop) -> Iterator[str]:
    """The machine at the stop, then the command that was asked for: operands and register snapshot."""
    state = state_at(run.trace.workload, run.trace.times, stop.cycle)
    yield f"region {run.region} at cycle {stop.cycle:,} of {run.trace.cycles:,}"
    for unit in state.units:
        yield f"  {unit.name}  {unit.done} of {unit.commands} commands done; {_doing(run, unit)}"
        for waiting in unit.waiting:
            yield f"      in queue: {_name(run, waiting.command)}, {_reason(run, waiting)}"
    yield f"  tokens  {', '.join(_counters(state))}"
    yield f"  command processor  {_processor(run, state)}"
    if stop.command is not None:
        yield from _command_lines(run, stop.command)


def _name(run: RegionRun, number: int) -> str:
    command, source = run.trace.commands[number], run.trace.sources[number]
    layer = f" (layer '{source.layer}', tile {source.tile})" if source is not None else ""
    return f"word {command.index} {command_text(command)}{layer}"


def _word(run: RegionRun, number: int) -> int:
    return run.trace.commands[number].index


def _doing(run: RegionRun, unit: UnitState) -> str:
    if unit.executing is None:
        return "idle" if unit.done < unit.commands else "drained"
    schedule = run.trace.times
    cycles = f"cycles {schedule.start[unit.executing]:,} to {schedule.end[unit.executing]:,}"
    return f"executes {_name(run, unit.executing)}, {cycles}"


def _reason(run: RegionRun, waiting: Waiting) -> str:
    if waiting.behind is not None:
        return f"behind word {_word(run, waiting.behind)}"
    end = run.trace.times.end
    tokens = []
    for counter, pusher in waiting.missing:
        giver = UNIT_NAMES[TOKEN_QUEUES[counter][0]]
        tokens.append(f"a token from {giver}, which word {_word(run, pusher)} pushes at {end[pusher]:,}")
    return f"waits for {' and for '.join(tokens)}"


def _counters(state: MachineState) -> Iterator[str]:
    for (pusher, popper), count in zip(TOKEN_QUEUES, state.tokens, strict=True):
        yield f"{UNIT_NAMES[pusher]} to {UNIT_NAMES[popper]}: {count}"


def _processor(run: RegionRun, state: MachineState) -> str:
    if state.cycle == run.trace.cycles:
        return "has executed OP_END"
    if state.next is None:
        return "has put every command in its queue; OP_END waits until all units are drained"
    arrival = int(run.trace.times.arrival[state.next])
    if arrival == state.cycle + 1:
        return f"executes {_name(run, state.next)} in this cycle"
    reason = f"the queue of {state.blocked} is full" if state.blocked else "the words before it come first"
    return f"next {_name(run, state.next)}, in its queue from {arrival:,} on: {reason}"


def _command_lines(run: RegionRun, number: int) -> Iterator[str]:
    command, schedule = run.trace.commands[number], run.trace.times
    yield f"{_name(run, number)}: in its queue from {schedule.arrival[number]:,}, executes in cycles " + (
        f"{schedule.start[number]:,} to {schedule.end[number]:,}"
    )
    operands = command.instruction.operands(command, run.program.arch)
    for verb, accesses in (("reads", operands.reads), ("writes", operands.writes)):
        yield from (f"  {verb:<6} {_range(access)}" for access in accesses)
    file = run.program.variant.register_file
    for name, value in command.registers.items():
        yield f"  {name:<22} {file.by_name[name].format(value)}"


def _range(access: Access) -> str:
    memory = "scratchpad" if access.space == "sram" else "system memory"
    rows = access.total // access.nbytes if access.nbytes else 0
    shape = f", {rows} rows of {access.nbytes}" if rows > 1 else ""
    return f"{memory} {access.address:#x}..{access.end:#x} ({access.total} bytes{shape})"
