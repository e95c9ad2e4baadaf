"""Debugging options of ``dla simulate``: breakpoints, machine state, dumps and commit logs.

``--break [REGION/]WORD|LAYER[:after]`` and ``--until CYCLE`` stop the run and show the state of the
machine. ``--dump-sram FIRST..END[:FILE]`` shows bytes of the scratchpad. The commit log can be
compared with another one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from dla_sim.device import Device
from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES
from dla_sim.inspection import MachineState, Playback, QueuedCommand, UnitState, state_at
from dla_sim.presets import Preset
from experiments.debug import commit_log
from experiments.report.figures import RegionRun
from experiments.report.timeline import timeline_trace
from experiments.running.given import Wishes
from experiments.running.simulate import SimulatedRegion
from isa.access import Access
from isa.assembler import command_text
from isa.errors import InputError
from isa.files import write_atomically

_WORD = re.compile(r"(?:(\d+)/)?(0x[0-9a-fA-F]+|\d+)")
_SHOWN = 6


@dataclass(frozen=True)
class Stop:
    """Debugging stop: the region and the cycle at which its run stops.

    ``command`` is the number of the command that ``--break`` selected.
    """

    run: int
    cycle: int
    command: int | None


def find_stop(runs: Sequence[RegionRun], break_at: str | None, until: int | None) -> Stop | None:
    """Return where ``--break`` or ``--until`` stops the run, or None without either.

    Raise InputError for both options at once and for a place that does not exist.
    """
    if break_at is not None and until is not None:
        raise InputError(f"--break {break_at} and --until {until}: choose one of them")
    if until is not None:
        return _stop_at_cycle(runs, until)
    return None if break_at is None else _stop_at_command(runs, break_at)


def _stop_at_cycle(runs: Sequence[RegionRun], until: int) -> Stop:
    """Return the debugging stop at a cycle, counted over regions that run one after another."""
    offset = 0
    for number, run in enumerate(runs):
        last = number == len(runs) - 1
        if until < offset + run.trace.cycles or (last and until == offset + run.trace.cycles):
            return Stop(number, until - offset, None)
        offset += run.trace.cycles
    raise InputError(
        f"--until {until}: the run ends at cycle {offset}; choose a cycle from 0 to {offset}"
    )


def _stop_at_command(runs: Sequence[RegionRun], text: str) -> Stop:
    place, _, side = text.rpartition(":")
    after = side == "after" and bool(place)
    place = place if after else text
    word = _WORD.fullmatch(place)
    if word is None:
        return _stop_at_layer(runs, place, after)
    if word[1] is None and len(runs) > 1:
        regions = " or ".join(f"{run.region}/{word[2]}" for run in runs[:_SHOWN])
        raise InputError(
            f"--break {text}: the network has {len(runs)} regions, a program each; write {regions}"
        )
    found = [
        number for number, run in enumerate(runs) if word[1] is None or run.region == int(word[1])
    ]
    if not found:
        raise InputError(
            f"--break {text}: there is no region {word[1]}; regions are 0 to {len(runs) - 1}"
        )
    return _stop_at_word(runs[found[0]], found[0], int(word[2], 0), after, text)


def _stop_at_word(run: RegionRun, number: int, word: int, after: bool, text: str) -> Stop:
    trace = run.trace
    count = len(run.program.words)
    if word >= count:
        raise InputError(
            f"--break {text}: the program has the words 0 to {count - 1}; 'dla disasm' shows them"
        )
    following = next((n for n, command in enumerate(trace.commands) if command.index >= word), None)
    operation = trace.commands[following].index if following is not None else count - 1
    if operation != word:
        raise InputError(
            f"--break {text}: word {word} is a SET; the next operation is word {operation}"
        )
    if following is None:  # OP_END, which no unit executes
        return Stop(number, trace.cycles - (not after), None)
    times = trace.times.end if after else trace.times.start
    return Stop(number, int(times[following]), following)


def _stop_at_layer(runs: Sequence[RegionRun], layer: str, after: bool) -> Stop:
    """Return the debugging stop at the first command of a layer to start.

    With ``after``, the stop is at the last command of the layer to complete.
    """
    for number, run in enumerate(runs):
        times = run.trace.times
        members = [
            n
            for n, source in enumerate(run.trace.sources)
            if source is not None and source.layer == layer
        ]
        if members:
            command = (
                max(members, key=times.end.__getitem__)
                if after
                else min(members, key=times.start.__getitem__)
            )
            return Stop(number, int((times.end if after else times.start)[command]), command)
    known = list(dict.fromkeys(name for run in runs for name in run.trace.labels.layers if name))
    shown = get_close_matches(layer, known, _SHOWN) or known[:_SHOWN]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    raise InputError(
        f"--break {layer}: no layer has this name; layers are {', '.join(shown) or 'none'}{more}"
    )


def state_lines(run: RegionRun, stop: Stop) -> Iterator[str]:
    """Yield text lines on the state of the machine at a debugging stop.

    For a command, also its operands and register snapshot.
    """
    state = state_at(run.trace.workload, run.trace.times, stop.cycle)
    yield f"region {run.region} at cycle {stop.cycle:,} of {run.trace.cycles:,}"
    for unit in state.units:
        yield (
            f"  {unit.name}  {unit.done} of {unit.commands} commands done; "
            f"{_describe_unit(run, unit)}"
        )
        for waiting in unit.waiting:
            yield f"      in queue: {_name(run, waiting.command)}, {_reason(run, waiting)}"
    yield f"  tokens  {', '.join(_counters(state))}"
    yield f"  command processor  {_processor(run, state)}"
    if stop.command is not None:
        yield from _command_lines(run, stop.command)


def _name(run: RegionRun, number: int) -> str:
    command = run.trace.commands[number]
    source = run.trace.sources[number]
    layer = f" (layer '{source.layer}', tile {source.tile})" if source is not None else ""
    return f"word {command.index} {command_text(command)}{layer}"


def _word(run: RegionRun, number: int) -> int:
    return run.trace.commands[number].index


def _describe_unit(run: RegionRun, unit: UnitState) -> str:
    if unit.executing is None:
        return "idle" if unit.done < unit.commands else "drained"
    times = run.trace.times
    cycles = f"cycles {times.start[unit.executing]:,} to {times.end[unit.executing]:,}"
    return f"executes {_name(run, unit.executing)}, {cycles}"


def _reason(run: RegionRun, waiting: QueuedCommand) -> str:
    if waiting.behind is not None:
        return f"behind word {_word(run, waiting.behind)}"
    end = run.trace.times.end
    tokens = []
    for counter, pusher in waiting.missing:
        giver = UNIT_NAMES[TOKEN_QUEUES[counter][0]]
        tokens.append(
            f"a token from {giver}, which word {_word(run, pusher)} pushes at {end[pusher]:,}"
        )
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
    reason = (
        f"the queue of {state.blocked} is full"
        if state.blocked
        else "the words before it come first"
    )
    return f"next {_name(run, state.next)}, in its queue from {arrival:,} on: {reason}"


def _command_lines(run: RegionRun, number: int) -> Iterator[str]:
    command = run.trace.commands[number]
    times = run.trace.times
    yield (
        f"{_name(run, number)}: in its queue from {times.arrival[number]:,}, executes in cycles "
        + (f"{times.start[number]:,} to {times.end[number]:,}")
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


_RANGE = re.compile(r"(0x[0-9a-fA-F]+|\d+)\.\.(0x[0-9a-fA-F]+|\d+)(?::(.+))?")
_BYTES_A_LINE = 16


@dataclass(frozen=True)
class SramRange:
    """Bytes [first, end) of the scratchpad and the file to write them to; None prints them."""

    first: int
    end: int
    file: Path | None


def parse_range(text: str, sram_bytes: int) -> SramRange:
    """Parse a half-open address range: ``0x100..0x200`` or ``256..512:FILE``.

    Raise InputError for other text.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InputError(
            f"--dump-sram {text}: write it as FIRST..END or FIRST..END:FILE, for "
            "example 0x100..0x200"
        )
    first = int(match[1], 0)
    end = int(match[2], 0)
    if not first < end <= sram_bytes:
        raise InputError(
            f"--dump-sram {text}: the scratchpad has the bytes 0x0 to {sram_bytes:#x}; "
            f"FIRST must lie below END, and END not beyond"
        )
    return SramRange(first, end, Path(match[3]) if match[3] else None)


def hex_lines(first: int, data: bytes) -> Iterator[str]:
    """Yield the lines of a hexadecimal dump, each an address and up to 16 bytes.

    Lines that repeat the previous one become one ``*``.
    """
    before = b""
    repeated = False
    position = 0
    while position < len(data):
        address = first + position
        row = data[position : position + _BYTES_A_LINE - address % _BYTES_A_LINE]
        last = position + len(row) == len(data)
        if row == before and not last:
            if not repeated:
                yield "*"
            repeated = True
        else:
            yield f"{address:08x}  {' '.join(f'{byte:02x}' for byte in row)}"
            repeated = False
        before = row
        position = position + len(row)


@dataclass(frozen=True)
class Findings:
    """Result of debugging: lines to print, an early stop, and the first difference of the logs."""

    lines: tuple[str, ...] = ()
    stopped: bool = False
    difference: str | None = None


def debug(
    file: Path, hardware: Preset, regions: Sequence[SimulatedRegion], wishes: Wishes
) -> Findings:
    """Write the requested debugging files of a simulation and return the lines to print.

    Raise InputError if the run cannot meet a request.

    The scratchpad is shown at the stop or, without a stop, at the end of the last region.
    """
    if not regions:
        raise InputError(
            f"{file}: no node runs on the DLA, so there is nothing to look at; 'dla "
            "partition' says why"
        )
    ranges = [parse_range(text, hardware.arch.sram_bytes) for text in wishes.dump_sram]
    stop = find_stop(regions, wishes.break_at, wishes.until)
    expected = commit_log.read(wishes.against) if wishes.against is not None else None
    lines: list[str] = []
    if wishes.trace is not None:
        write_atomically(wishes.trace, timeline_trace(regions))
        lines.append(
            f"{wishes.trace}: timeline of {sum(region.trace.cycles for region in regions):,} cycles"
        )
    if stop is not None:
        lines += state_lines(regions[stop.run], stop)
    difference = None
    if wishes.log is not None or expected is not None or ranges:
        log: list[str] = []
        try:
            playback = _play(Device(hardware.arch, hardware.timing), regions, stop, log)
        except OverflowError as error:
            raise InputError(f"{file}: the program stopped: {error}") from error
        finally:
            lines += _save_log(log, wishes.log)
        lines += _dump(playback, ranges)
        difference = _compare(log, expected, wishes.against, whole=stop is None)
    return Findings(tuple(lines), stop is not None, difference)


def _play(
    device: Device, regions: Sequence[SimulatedRegion], stop: Stop | None, log: list[str]
) -> Playback:
    """Execute all effects of commands up to a debugging stop, and return the last playback.

    Each effect appends a line to ``log``.
    """
    last = stop.run if stop is not None else len(regions) - 1
    for number, region in enumerate(regions[: last + 1]):
        until = stop.cycle if stop is not None and number == last else region.trace.cycles
        playback = Playback(device, region.imaged, region.inputs, region.trace)
        log += commit_log.header(region.region, region.program)
        for line in commit_log.lines(playback, region.program, region.trace, until):
            log.append(line)  # one by one, so that the log is kept if a command stops on overflow
    return playback


def _save_log(log: Sequence[str], file: Path | None) -> Iterator[str]:
    if file is not None:
        write_atomically(file, "\n".join(log) + "\n")
        yield f"{file}: {sum(not line.startswith('#') for line in log):,} commands"


def _dump(playback: Playback, ranges: Sequence[SramRange]) -> Iterator[str]:
    for wanted in ranges:
        data = playback.sram(wanted.first, wanted.end)
        if wanted.file is None:
            yield f"scratchpad {wanted.first:#x}..{wanted.end:#x}"
            yield from hex_lines(wanted.first, data)
        else:
            write_atomically(wanted.file, data)
            yield f"{wanted.file}: {len(data):,} bytes of the scratchpad from {wanted.first:#x} on"


def _compare(
    log: Sequence[str], expected: str | None, against: Path | None, *, whole: bool
) -> str | None:
    """Compare a commit log with an expected one and return the first difference as text.

    The log of a run that stopped on request may be shorter.
    """
    found = commit_log.first_difference("\n".join(log), expected) if expected is not None else None
    if found is None or not (found.found or whole):
        return None
    return found.message(str(against))
