"""Advice: the limiter of a network on a machine, and machine changes that save cycles.

The changes are measured and ranked by the cycles they save.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from json import dumps
from typing import Any

from dla_sim.presets import Preset, setting_texts
from experiments.advise.bench import AdvicePoint, Bench
from experiments.advise.changes import Change, apply_change, combine_changes, list_changes
from experiments.advise.request import AdviseKeywords, AdviseRequest
from experiments.cost.table import DEFAULT_TABLE, load_table
from experiments.report.limits import Limit, most_expensive, whole
from experiments.report.shown import Presentation, Shown
from experiments.report.terminal import Printed, line, plain_table
from experiments.running.declared import command_of
from experiments.running.door import door
from experiments.running.given import Compiling, RunRequest
from experiments.running.inference import hardware_of
from experiments.running.network import load
from isa.errors import InputError
from isa.progress import report_each

WORTH = 0.005
"""Least share of the cycles that a listed change saves.

The change is compared with the machine and with smaller changes of its kind.
"""
SAME = 0.001
"""Share of the cycles by which a machine that counts as equally fast may be slower."""


@dataclass(frozen=True)
class Advised:
    """A machine change, the figures measured with it, and the command that repeats it."""

    change: Change
    point: AdvicePoint
    command: str


@dataclass(frozen=True)
class Advice(Shown):
    """Result of ``dla advise``: limiters, faster machines and cheaper machines of equal speed.

    ``faster``: changes, largest saving first. ``cheaper``: machines of equal speed, least area
    first. ``target``: the machine of least area that meets ``target_ms``; None if no machine meets
    it, or without a target. ``tried``: number of machines measured.
    """

    model: str
    now: AdvicePoint
    everything: Limit
    layers: tuple[Limit, ...]
    faster: tuple[Advised, ...]
    cheaper: tuple[Advised, ...]
    tried: int
    target_ms: float | None = None
    target: Advised | None = None

    @property
    def presented(self) -> tuple[Any, Presentation]:
        """The advice as text, tables, CSV records and JSON."""
        return self, Presentation(_lines, tables=_tables, records=_records, json=_json)


def advise_requested(wanted: AdviseRequest) -> Advice:
    """Measure the limiter of a network on a machine, and the changes that make it faster.

    The network is compiled and timed for each change of one key or of the array. Area and energy
    are estimates from the cost table. With ``target_ms``, scratchpads, arrays and buses are also
    combined, and the machine of least area that meets the target is returned. Raises InputError for
    bad input.
    """
    if wanted.target_ms is not None and not 0 < wanted.target_ms < float("inf"):
        raise InputError(f"--target-ms {wanted.target_ms:g}: give a time above 0, in milliseconds")
    hardware = hardware_of(wanted)
    network = load(wanted, wanted.stage)
    bench = Bench(network.package, wanted.options, load_table(wanted.cost or DEFAULT_TABLE))
    now = bench.point(hardware)
    found = bench.figures(hardware)
    points = list(_measure_changes(bench, hardware, list_changes(hardware), wanted))
    target = None
    more = 0
    if wanted.target_ms is not None:
        machines = list(_measure_changes(bench, hardware, combine_changes(hardware), wanted))
        meeting = [one for one in machines if one.point.milliseconds <= wanted.target_ms]
        target = min(meeting, key=_price, default=None)
        more = len(machines)
    return Advice(
        model=network.name,
        now=now,
        everything=whole(found),
        layers=most_expensive(found),
        faster=tuple(_faster(points, now)),
        cheaper=tuple(_cheaper(points, now)),
        tried=1 + len(points) + more,
        target_ms=wanted.target_ms,
        target=target,
    )


advise = door("advise", AdviseKeywords, AdviseRequest, advise_requested)


def _measure_changes(
    bench: Bench, hardware: Preset, tried: Iterable[Change], wanted: AdviseRequest
) -> Iterator[Advised]:
    for change in report_each(list(tried), "measuring changes", wanted.stage):
        machine = apply_change(hardware, change)
        if machine is None:
            continue
        try:
            point = bench.point(machine)
        except InputError:  # the network cannot be compiled for this machine
            continue
        yield Advised(change, point, _command(wanted, change))


def _command(wanted: AdviseRequest, change: Change) -> str:
    """Return the ``dla run`` command that runs the request's network on the changed machine."""
    given: dict[str, Any] = {one.name: getattr(wanted, one.name) for one in fields(Compiling)}
    run = RunRequest(**given | {"settings": (*setting_texts(wanted.settings), *change.settings)})
    return command_of("run", run)


def _faster(points: Sequence[Advised], now: AdvicePoint) -> list[Advised]:
    """Return the machine changes that save enough cycles, largest saving first.

    A change must also save enough compared with every cheaper change of the same kind.
    """
    best: dict[str, int] = {}
    kept = []
    for one in sorted(points, key=_price):
        least = best.get(one.change.what, now.both)
        if least - one.point.both > WORTH * now.both:
            best[one.change.what] = one.point.both
            kept.append(one)
    return sorted(kept, key=lambda one: (one.point.both, *_price(one)))


def _cheaper(points: Sequence[Advised], now: AdvicePoint) -> list[Advised]:
    """Return the smallest machine of equal speed for each kind of change.

    The machine of least area comes first.
    """
    found = [
        one
        for one in points
        if one.point.square_millimetres < now.square_millimetres
        and one.point.both <= now.both * (1 + SAME)
    ]
    least = {one.change.what: one for one in sorted(found, key=_price, reverse=True)}
    return sorted(least.values(), key=_price)


def _price(one: Advised) -> tuple[float, float, tuple[str, ...]]:
    return one.point.square_millimetres, one.point.both, one.change.settings


# Presentation.


def _lines(found: Advice) -> Iterator[str]:
    now = found.now
    yield (
        f"{found.model}: {now.cycles:,} cycles on the accelerator, {now.milliseconds:.4g} ms; "
        f"it {found.everything.sentence}"
    )
    if now.host_cycles:
        yield (
            f"the CPU takes about {now.host_cycles:,} cycles beside it, an estimate; changes are "
            "ranked by both"
        )
    for one in found.faster[:2]:
        yield f"{one.change.words}: {_gain(one.point, now)}"
    if not found.faster:
        yield f"none of {found.tried:,} machines around this one is faster by {WORTH:.1%}"
    if found.target is not None:
        yield (
            f"at most {found.target_ms:g} ms: {found.target.point.square_millimetres:.3f} mm² "
            f"(estimate), {found.target.point.milliseconds:.4g} ms: "
            f"{found.target.change.words or 'this machine'}"
        )
    elif found.target_ms is not None:
        yield (
            f"none of {found.tried:,} machines takes at most {found.target_ms:g} ms; a higher "
            "clock_hz may"
        )


def _gain(point: AdvicePoint, now: AdvicePoint) -> str:
    return f"{point.both / now.both - 1:+.1%}, {point.cycles:,} cycles"


def _tables(found: Advice) -> Iterator[Printed]:
    said = list(_lines(found))
    yield line(said[0], style="bold")
    table = plain_table(("layer", "fold"), ("cycles", "right"), ("why", "left"))
    for limit in found.layers:
        table.add_row(limit.name, f"{limit.cycles:,}", limit.sentence)
    yield table
    for title, rows in (("what would help", found.faster), ("as fast and cheaper", found.cheaper)):
        if rows:
            yield _make_change_table(title, rows, found.now)
    for one in said[1:]:
        yield line(one)


def commands(found: Advice) -> Iterator[str]:
    """Yield the ``dla run`` command of the best advised machine.

    This is the machine that meets the target, or else the first change.
    """
    best = (*((found.target,) if found.target is not None else ()), *found.faster, *found.cheaper)
    if best:
        yield best[0].command


def _make_change_table(title: str, rows: Sequence[Advised], now: AdvicePoint) -> Printed:
    table = plain_table(
        (title, "fold"),
        ("cycles", "right"),
        ("change", "right"),
        ("mm² (est.)", "right"),
        ("µJ (est.)", "right"),
    )
    for one in rows:
        point = one.point
        area = f"{point.square_millimetres:.3f}"
        energy = f"{point.microjoules:,.1f}"
        table.add_row(
            one.change.words, f"{point.cycles:,}", f"{point.both / now.both - 1:+.1%}", area, energy
        )
    return table


def _record(kind: str, one: Advised) -> Mapping[str, Any]:
    return {
        "kind": kind,
        "change": " ".join(one.change.settings),
        **asdict(one.point),
        "command": one.command,
    }


def _records(found: Advice) -> list[Mapping[str, Any]]:
    rows = [_record("faster", one) for one in found.faster] + [
        _record("cheaper", one) for one in found.cheaper
    ]
    return rows + ([] if found.target is None else [_record("target", found.target)])


def content(found: Advice) -> dict[str, Any]:
    limits = [asdict(one) | {"sentence": one.sentence} for one in (found.everything, *found.layers)]
    told = {"model": found.model, "now": asdict(found.now), "limits": limits, "tried": found.tried}
    return told | {"changes": _records(found)}


def _json(found: Advice) -> str:
    return dumps(content(found), indent=1) + "\n"
