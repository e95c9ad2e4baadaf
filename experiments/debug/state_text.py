"""The state of the machine in words: what each unit does and waits for, tokens, and the command of a breakpoint."""

from __future__ import annotations

from collections.abc import Iterator

from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES
from dla_sim.inspection import MachineState, UnitState, Waiting, state_at
from experiments.debug.stops import Stop
from experiments.report.figures import RegionRun
from isa.access import Access
from isa.assembler import command_text


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
