"""Where a run is to stop for inspection: ``--break [REGION/]WORD|LAYER[:after]`` or ``--until CYCLE``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from experiments.report.figures import RegionRun
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
