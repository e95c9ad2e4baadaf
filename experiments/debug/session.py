"""What a person wants to see of a run, carried out: the options of ``dla simulate`` that debug."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dla_sim.device import Device
from dla_sim.inspection import Playback
from dla_sim.presets import Preset
from experiments.debug import commit_log
from experiments.debug.stops import Stop, find_stop, state_lines
from experiments.report.timeline import timeline_json
from experiments.running.simulate import SimulatedRegion
from isa.errors import InputError
from isa.files import write_atomically

_RANGE = re.compile(r"(0x[0-9a-fA-F]+|\d+)\.\.(0x[0-9a-fA-F]+|\d+)(?::(.+))?")
_BYTES_A_LINE = 16


@dataclass(frozen=True)
class SramRange:
    """The bytes [first, end), and the file they go to; the screen if None."""

    first: int
    end: int
    file: Path | None


def parse_range(text: str, sram_bytes: int) -> SramRange:
    """``0x100..0x200`` or ``256..512``, half-open, with ``:FILE`` or without. Raises InputError for anything else."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InputError(f"--dump-sram {text}: write it as FIRST..END or FIRST..END:FILE, for example 0x100..0x200")
    first, end = int(match[1], 0), int(match[2], 0)
    if not first < end <= sram_bytes:
        raise InputError(
            f"--dump-sram {text}: the scratchpad has the bytes 0x0 to {sram_bytes:#x}; "
            f"FIRST must lie below END, and END not beyond"
        )
    return SramRange(first, end, Path(match[3]) if match[3] else None)


def hex_lines(first: int, data: bytes) -> Iterator[str]:
    """Address and 16 bytes a line, at multiples of 16; of equal lines in a row the first, then one ``*``."""
    before, repeated = b"", False
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
        before, position = row, position + len(row)


@dataclass(frozen=True)
class Wishes:
    """The options of the command line; None where nothing is wanted."""

    trace: Path | None = None
    log: Path | None = None
    against: Path | None = None
    break_at: str | None = None
    until: int | None = None
    dump_sram: Sequence[str] | None = None


@dataclass(frozen=True)
class Findings:
    """What to print, whether the run stopped before its end, and the first difference of the logs in words."""

    lines: tuple[str, ...] = ()
    stopped: bool = False
    difference: str | None = None


def debug(file: Path, hardware: Preset, regions: Sequence[SimulatedRegion], wishes: Wishes) -> Findings:
    """Write the files that are wished for and say the rest; raises InputError for wishes that the run cannot meet.

    The scratchpad is looked at where the run stops, or else at the end of the last region.
    """
    if not regions:
        raise InputError(f"{file}: no node runs on the DLA, so there is nothing to look at; 'dla partition' says why")
    ranges = [parse_range(text, hardware.arch.sram_bytes) for text in wishes.dump_sram or ()]
    stop = find_stop(regions, wishes.break_at, wishes.until)
    expected = commit_log.read(wishes.against) if wishes.against is not None else None
    lines: list[str] = []
    if wishes.trace is not None:
        write_atomically(wishes.trace, timeline_json(regions))
        lines.append(f"{wishes.trace}: timeline of {sum(region.trace.cycles for region in regions):,} cycles")
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


def _play(device: Device, regions: Sequence[SimulatedRegion], stop: Stop | None, log: list[str]) -> Playback:
    """Carry out all effects up to the stop, each with its line in ``log``; the playback of the last region."""
    last = stop.run if stop is not None else len(regions) - 1
    for number, region in enumerate(regions[: last + 1]):
        until = stop.cycle if stop is not None and number == last else region.trace.cycles
        playback = Playback(device, region.imaged, region.inputs, region.trace)
        log += commit_log.header(region.region, region.program)
        for line in commit_log.lines(playback, region.program, region.trace, until):
            log.append(line)  # one by one: what is there remains when a command stops on overflow
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


def _compare(log: Sequence[str], expected: str | None, against: Path | None, *, whole: bool) -> str | None:
    """The first difference in words; the log of a run that stopped on request may be shorter."""
    found = commit_log.first_difference("\n".join(log), expected) if expected is not None else None
    if found is None or not (found.found or whole):
        return None
    return found.message(str(against))
