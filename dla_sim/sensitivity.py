"""Sensitivity of a program's cycles to every parameter of its Timing and to every command.

One pass of the engine on lines (:mod:`dla_sim.engine.lines`) gives the change of the total for each
unit of each parameter and of each command, and a range in which it is exact. Runs at the ends of
these ranges extend them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from dla_sim.engine.bus import NEVER
from dla_sim.engine.dram import open_dram
from dla_sim.engine.lines import Line, Validity
from dla_sim.engine.times import run_units
from dla_sim.engine.workload import Demands, Int64, Workload
from dla_sim.timing import Timing
from isa.errors import InputError

LINEAR = (
    "dram_latency", "flash_latency", "dma_setup", "dma_drain", "ex_fill", "ex_drain", "sync_cycles",
)  # fmt: skip
"""Parameters that add to the cycles of commands."""
DOUBLED = ("bus_bytes", "burst_bytes", "dram_rate", "dram_row_bytes", "flash_bytes",
           "flash_burst_bytes", "flash_rate")  # fmt: skip
"""Parameters that change by a factor of 2; most of them are powers of two."""
UNLIMITED = ("sram_read_bytes", "sram_write_bytes")
"""Parameters whose value 0 is no limit, so that it has no neighbours."""
MAX_RUNS = 16
"""Most runs that extend one range."""
MAX_SHIFT = 1 << 20
"""Most cycles by which a command is assumed to end later."""
_BLOCK = 512
"""Commands of one pass, so that their slopes need little memory."""


@dataclass(frozen=True)
class CycleChange:
    """Change of a program's total if a parameter or a command changes in one direction.

    Attributes:
        cycles: change of the total for each step.
        steps: number of steps of which each changes the total by ``cycles``.
        final: True if the next step changes the total by another number of cycles, or if there is
            no next step; False if the range may be larger.
    """

    cycles: int
    steps: int
    final: bool


@dataclass(frozen=True)
class ParameterSensitivity:
    """Changes of the total with one parameter of the Timing.

    Attributes:
        name: key of the Timing.
        value: its value.
        up: change for each step to larger values; None if there is no larger value that runs.
        down: the same to smaller values.
    """

    name: str
    value: Any
    up: CycleChange | None
    down: CycleChange | None


@dataclass(frozen=True)
class CommandSensitivity:
    """Changes of the total if a command ends later or earlier, by cycles.

    ``earlier`` is None if nothing after the data phase of the command can be shorter.
    """

    later: CycleChange | None
    earlier: CycleChange | None


@dataclass(frozen=True)
class _Piece:
    """Total of a run, and its slope in the steps ``low`` to ``high`` that take equal decisions."""

    total: int
    slope: int = 0
    low: int = 0
    high: int = 0

    def reach(self, sign: int) -> int:
        return self.high if sign > 0 else -self.low


@dataclass(frozen=True, eq=False)
class _Slopes:
    """Change of the phases of all commands, and of the fetch's latency, with one parameter."""

    lead: Int64
    tail: Int64
    latency: int


@dataclass(frozen=True, eq=False)
class _LineWorkload(Workload):
    """Workload whose phases and latency of the command fetch are lines."""

    lines: Mapping[str, Any]
    latency: int

    @cached_property
    def phases(self) -> dict[str, Int64]:
        return dict(self.lines)

    @cached_property
    def fetch_latency(self) -> int:
        return self.latency


def find_sensitivity(programs: Sequence[Demands], timing: Timing) -> Iterator[ParameterSensitivity]:
    """Yield the changes of the total of some programs with each parameter of their Timing.

    There is at least one program; they run one after another. ``clock_hz`` changes no cycles, and
    parameters of options that the machine lacks do nothing; they are omitted.
    """
    values = timing.model_dump()
    linear = [key for key in LINEAR if key in values]
    slopes = [{key: _find_slopes(one, timing, key) for key in linear} for one in programs]
    pieces = [
        _run_lines(one, timing, own, range(0)) for one, own in zip(programs, slopes, strict=True)
    ]
    bases = dict(zip(linear, map(_join, zip(*pieces, strict=True)), strict=True))
    total = sum(_find_total(Workload(one, timing)) for one in programs)
    for key in values:
        if key == "clock_hz" or (key in UNLIMITED and not values[key]):
            continue
        run = partial(_run_at, programs, timing, key, slopes if key in bases else None)
        up, down = (_follow(run, bases.get(key) or _Piece(total), sign) for sign in (1, -1))
        yield ParameterSensitivity(key, values[key], up, down)


def find_command_sensitivity(demands: Demands, timing: Timing) -> Iterator[CommandSensitivity]:
    """Yield the changes of a program's total with the end of each command.

    A command for which two decisions tie takes a run of the whole program for each direction.
    """
    count = len(demands.unit)
    blocks = (range(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))
    pieces = [piece for block in blocks for piece in _run_lines(demands, timing, {}, block)]

    def change(number: int, piece: _Piece, sign: int) -> CycleChange | None:
        if piece.reach(sign):
            return CycleChange(sign * piece.slope, piece.reach(sign), False)
        return _follow(partial(_shift_end, demands, timing, number), piece, sign, 1)

    for number, piece in enumerate(pieces):
        yield CommandSensitivity(change(number, piece, 1), change(number, piece, -1))


def _follow(
    run: Callable[[int], _Piece | None], base: _Piece, sign: int, runs: int = MAX_RUNS
) -> CycleChange | None:
    """Return the change for each step in a direction; None if the first step cannot run."""
    piece: _Piece | None = base
    cycles = None
    until = 0
    for _ in range(runs):
        assert piece is not None
        edge = until + piece.reach(sign)
        if edge > until and cycles in (None, sign * piece.slope):
            cycles = sign * piece.slope
            until = edge
        piece = run(sign * (until + 1))
        change = None if piece is None else piece.total - base.total
        if cycles is None:
            cycles = change
        if cycles is None:
            return None
        if change != cycles * (until + 1):
            return CycleChange(cycles, until, True)
        until += 1
    assert cycles is not None
    return CycleChange(cycles, until, False)


def name_step(key: str) -> str:
    """Return a step of a parameter as text, such as ``+1``."""
    return "x2" if key in DOUBLED else "+8" if key == "fetch_bytes" else "+1"


def step_value(key: str, value: Any, steps: int) -> Any:
    """Return the value of a parameter after ``steps`` steps, which may be negative.

    A step adds 1, or 8 to ``fetch_bytes``; it doubles the parameters of :data:`DOUBLED`.
    """
    if key not in DOUBLED:
        return value + steps * (8 if key == "fetch_bytes" else 1)
    changed = Fraction(str(value)) * Fraction(2) ** steps
    return changed.numerator if changed.denominator == 1 else str(changed)


def _run_at(
    programs: Sequence[Demands],
    timing: Timing,
    key: str,
    slopes: Sequence[Mapping[str, _Slopes]] | None,
    steps: int,
) -> _Piece | None:
    """Return the run after ``steps`` steps of a parameter; None if it cannot run."""
    value = step_value(key, getattr(timing, key), steps)
    try:
        changed = Timing(**{**timing.model_dump(), key: value})
        if slopes is not None:
            pairs = zip(programs, slopes, strict=True)
            return _join(
                _run_lines(one, changed, {key: own[key]}, range(0))[0] for one, own in pairs
            )
        total = sum(_find_total(Workload(one, changed)) for one in programs)
    except (ValidationError, InputError):
        return None
    return _Piece(total) if total < NEVER else None


def _join(pieces: Iterable[_Piece]) -> _Piece:
    """Return the piece of runs one after another."""
    some = list(pieces)
    return _Piece(
        sum(one.total for one in some),
        sum(one.slope for one in some),
        max(one.low for one in some),
        min(one.high for one in some),
    )


def _shift_end(demands: Demands, timing: Timing, number: int, cycles: int) -> _Piece | None:
    """Return the run in which a command ends later by ``cycles``; None if it cannot."""
    workload = Workload(demands, timing)
    if cycles < -_find_most_earlier(workload, number):
        return None
    workload.phases["tail"][number] += cycles
    return _Piece(_find_total(workload))


def _find_most_earlier(workload: Workload, number: int) -> int:
    """Return the most cycles by which a command can end earlier.

    A data phase keeps its length, and so does a computation that transfers may delay.
    """
    lead, slots, tail = (int(column[number]) for column in workload.phases.values())
    return tail if slots or number in workload.bank_loads else lead + tail - 1


def _find_total(workload: Workload) -> int:
    """Return the cycles of a program; ``NEVER`` or more if it stops early."""
    times = run_units(workload, open_dram(workload, 2 * len(workload) + 2))
    ends = (times.known[members[-1]] for members in workload.demands.by_unit if len(members))
    total: int = max([times.issued, *ends]) + 1
    return total


def _run_lines(
    demands: Demands, timing: Timing, slopes: Mapping[str, _Slopes], commands: range
) -> list[_Piece]:
    """Run a program on lines; return its piece for each of ``slopes`` and of ``commands``."""
    plain = Workload(demands, timing)
    columns = plain.columns
    cycles = columns["lead"] + columns["slots"] + columns["tail"]
    width = len(slopes) + len(commands)
    lead, tail = np.zeros((2, len(plain), width), dtype=np.int64)
    latency = np.zeros(width, dtype=np.int64)
    low, high = (np.full(width, sign * np.inf) for sign in (-1, 1))
    for column, (key, one) in enumerate(slopes.items()):
        lead[:, column], tail[:, column], latency[column] = one.lead, one.tail, one.latency
        low[column], high[column] = _limit(timing, key, cycles, one.lead + one.tail)
    for column, number in enumerate(commands, len(slopes)):
        tail[number, column] = 1
        low[column], high[column] = -_find_most_earlier(plain, number), MAX_SHIFT
    valid = Validity(low, high)
    phases = {
        "lead": _make_lines(plain.phases["lead"], lead, valid),
        "slots": plain.phases["slots"],
        "tail": _make_lines(plain.phases["tail"], tail, valid),
    }
    fetch = Line(plain.fetch_latency, latency, valid)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = _find_total(_LineWorkload(demands, timing, phases, fetch))
    slope = total.slope if isinstance(total, Line) else np.zeros_like(latency)
    rows = (slope.tolist(), np.ceil(valid.low).tolist(), np.floor(valid.high).tolist())
    return [
        _Piece(int(total), one, int(before), int(after))
        for one, before, after in zip(*rows, strict=True)
    ]


def _make_lines(values: Int64, slopes: Int64, valid: Validity) -> NDArray[Any]:
    lines = np.array(values.tolist(), dtype=object)
    for number in np.flatnonzero(slopes.any(axis=1)).tolist():
        lines[number] = Line(lines[number], slopes[number], valid)
    return lines


def _find_slopes(demands: Demands, timing: Timing, key: str) -> _Slopes:
    """Return the change of all phases for each cycle of a parameter."""
    # one cycle is at least 1 in both, so that no command is without phases
    before, after = (Workload(demands, timing.model_copy(update={key: value})) for value in (1, 2))
    lead, tail = (after.phases[name] - before.phases[name] for name in ("lead", "tail"))
    return _Slopes(lead, tail, after.fetch_latency - before.fetch_latency)


def _limit(timing: Timing, key: str, cycles: Int64, slopes: Int64) -> tuple[int, int]:
    """Return the range of changes of a parameter in which the phases of all commands are lines.

    Args:
        timing: the machine.
        key: the parameter.
        cycles: cycles of each command.
        slopes: change of the cycles for each cycle of the parameter.
    """
    some = slopes > 0
    least = ((cycles[some] - 1) // slopes[some]).min(initial=NEVER)
    if not least:
        return 0, 0  # it may be a command without phases, which takes one cycle
    value = getattr(timing, key)
    bounds = {type(one).__name__: one for one in Timing.model_fields[key].metadata}
    low, high = bounds["Ge"].ge - value, bounds["Le"].le - value
    memory = {"dram_latency": timing.main, "flash_latency": timing.flash}.get(key)
    if memory is not None:  # the burst gap stays the same
        above = memory.burst_gap * memory.outstanding - memory.latency - memory.burst_cycles
        low, high = max(low, above + 1 - memory.outstanding), min(high, above)
    return max(low, -int(least)), high
