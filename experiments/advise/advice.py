"""Advice: the limiter of a network on a machine, and machine changes that save cycles.

The changes are measured and ranked by the cycles they save.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from byoc.options import CompileOptions
from byoc.package.package import Package
from dla_sim.presets import Preset, setting_texts
from experiments.advise.bench import AdvicePoint, Bench
from experiments.advise.changes import (
    Change,
    apply_change,
    combine_changes,
    list_changes,
    list_first_changes,
    list_option_changes,
)
from experiments.advise.described import MachineAdvice, advise_machine
from experiments.advise.request import AdviseKeywords, AdviseRequest
from experiments.cost.estimate import SQUARE_MILLIMETRE, area
from experiments.cost.table import DEFAULT_TABLE, CostTable, load_table
from experiments.report.limits import Limit, most_expensive, whole
from experiments.report.shown import Presentation, Shown
from experiments.report.terminal import Printed, line, plain_table
from experiments.running.declared import command_of
from experiments.running.described import settle_machine
from experiments.running.door import door
from experiments.running.given import Compiling, RunRequest
from experiments.running.inference import hardware_of
from experiments.running.network import Network, load
from experiments.tune.request import TuneRequest
from experiments.tune.tuning import tune_network
from experiments.version import compiler_version
from isa.errors import InputError
from isa.progress import Progress, report_each

WORTH = 0.005
"""Least share of the cycles that a listed change saves."""
MOST_OF_GAIN = 0.8
"""Share of the best gain of a kind that a smaller change of this kind must bring."""
TUNED_SCHEDULES = 24
"""Number of schedules that the advised tuning measures."""
SAME = 0.001
"""Share of the cycles by which a machine that counts as equally fast may be slower."""


FIRST = 2
"""Number of changes with which a run ends."""


@dataclass(frozen=True)
class Advised:
    """A change, the figures measured with it, and the command that repeats it.

    ``smaller`` is the cheapest change of the same kind that brings most of the gain; None if this
    is the change itself.
    """

    change: Change
    point: AdvicePoint
    command: str
    smaller: Advised | None = None


@dataclass(frozen=True)
class Advice(Shown):
    """Result of ``dla advise``: limiters, faster machines and cheaper machines of equal speed.

    ``faster``: the best change of each kind, largest saving first. ``cheaper``: machines of equal
    speed, least area first. ``target``: the change of least area that meets ``target_ms``; None if
    none meets it, or without a target. ``tried``: number of changes measured.
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
        return self, Presentation(
            _lines,
            tables=_tables,
            records=_records,
            json=lambda found: dumps(content(found), indent=1) + "\n",
        )


def advise_requested(wanted: AdviseRequest) -> Advice | MachineAdvice:
    """Measure the limiter of a network on a machine, and the changes that make it faster.

    The network is compiled and timed for each change of one key, of the array or of one option of
    the compiler, and with the best of a few schedules. Area and energy are estimates from the cost
    table. With ``target_ms`` or ``target_ips``, scratchpads, arrays and buses are also combined,
    and the change of least area that meets the target is returned. For a described machine, each
    numeric parameter is doubled and halved. Raises InputError for bad input.
    """
    wanted, machine = settle_machine(wanted)
    if machine is not None:
        return advise_machine(wanted, machine)
    target_ms = _find_target_ms(wanted)
    hardware = hardware_of(wanted)
    network = load(wanted, wanted.stage)
    table = load_table(wanted.cost or DEFAULT_TABLE)
    bench = Bench(network.package, wanted.options, table)
    now = bench.point(hardware)
    found = bench.figures(hardware)
    changes = (*list_changes(hardware), *list_option_changes(wanted.options))
    points = [
        *_measure_changes(bench, hardware, changes, wanted, wanted.stage),
        *_measure_freed(table, hardware, wanted),
        *_measure_tuned(bench, hardware, network, wanted),
    ]
    target = None
    more = 0
    if target_ms is not None:
        meeting = [one for one in points if one.point.milliseconds <= target_ms]
        target, more = _find_cheapest(bench, hardware, table, wanted, target_ms, meeting)
    return Advice(
        model=network.name,
        now=now,
        everything=whole(found),
        layers=most_expensive(found),
        faster=tuple(_faster(points, now.both)),
        cheaper=tuple(_cheaper(points, now)),
        tried=1 + len(points) + more,
        target_ms=target_ms,
        target=target,
    )


def measure_first_changes(
    wanted: Compiling, package: Package, cycles: int, stage: Progress
) -> list[tuple[float, str]]:
    """Return gain and command of the best of a few changes of a run, at most :data:`FIRST`.

    ``cycles`` are the run's cycles on accelerator and CPU together.
    """
    hardware = hardware_of(wanted)
    bench = Bench(package, wanted.options, load_table())
    changes = list_first_changes(hardware, wanted.options)
    points = list(_measure_changes(bench, hardware, changes, wanted, stage))
    return [(1 - one.point.both / cycles, one.command) for one in _faster(points, cycles)[:FIRST]]


def _find_target_ms(wanted: AdviseRequest) -> float | None:
    """Return the target time in milliseconds, or None without a target."""
    if wanted.target_ms is not None and not 0 < wanted.target_ms < float("inf"):
        raise InputError(f"--target-ms {wanted.target_ms:g}: give a time above 0, in milliseconds")
    if wanted.target_ips is None:
        return wanted.target_ms
    if not 0 < wanted.target_ips < float("inf"):
        raise InputError(
            f"--target-ips {wanted.target_ips:g}: give a number of inferences a second above 0"
        )
    if wanted.target_ms is not None:
        raise InputError("--target-ms and --target-ips are both given; give one of them")
    return 1000 / wanted.target_ips


advise = door("advise", AdviseKeywords, AdviseRequest, advise_requested)


def _measure_changes(
    bench: Bench, hardware: Preset, tried: Iterable[Change], wanted: Compiling, stage: Progress
) -> Iterator[Advised]:
    for change in report_each(list(tried), "measuring changes", stage):
        machine = apply_change(hardware, change)
        if machine is None:
            continue
        try:
            options = wanted.options.replace_fields(dict(change.options))
            point = bench.point(machine, options)
        except InputError:  # the network cannot be compiled so
            continue
        yield Advised(change, point, _command(wanted, change, options))


def _measure_freed(table: CostTable, hardware: Preset, wanted: AdviseRequest) -> Iterator[Advised]:
    """Yield the figures without the option ``--cpu``, if it is given."""
    if wanted.cpu:
        freed = replace(wanted, cpu=())
        bench = Bench(load(freed, wanted.stage).package, wanted.options, table)
        change = Change("cpu", frees_cpu=True)
        yield Advised(change, bench.point(hardware), _command(freed, change, wanted.options))


def _measure_tuned(
    bench: Bench, hardware: Preset, network: Network, wanted: AdviseRequest
) -> Iterator[Advised]:
    """Yield the figures with the best schedule of a short tuning, if the network can be tuned."""
    given = {one.name: getattr(wanted, one.name) for one in fields(Compiling)}
    tuning = TuneRequest(**given, measurements=TUNED_SCHEDULES, learn=False)
    text = f"{command_of('tune', tuning)} {network.package.digest} {compiler_version()}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    place = Path("runs") / f"{network.name}-advice-{digest}.jsonl"
    wanted.stage(f"tuning {network.name}")
    with TemporaryDirectory() as folder:
        try:
            tuned = tune_network(network, hardware, wanted.options, Path(folder) / "log", tuning)
        except InputError:  # the options fix the schedule, or nothing runs on the accelerator
            return
        best = tuned.best_options
    options = replace(best, chosen=replace(best.chosen, words=("--tuned", str(place))))
    change = Change("tune", measurements=TUNED_SCHEDULES)
    commands = command_of("tune", replace(tuning, log=place)), _command(wanted, change, options)
    yield Advised(change, bench.point(hardware, options), " && ".join(commands))


def _command(wanted: Compiling, change: Change, options: CompileOptions) -> str:
    """Return the ``dla run`` command that runs the request's network with a change."""
    given: dict[str, Any] = {one.name: getattr(wanted, one.name) for one in fields(Compiling)}
    changed = {setting.partition("=")[0] for setting in change.settings}
    kept = (one for one in setting_texts(wanted.settings) if one.partition("=")[0] not in changed)
    given |= {"settings": (*kept, *change.settings), "options": options}
    if any(setting.startswith("isa=") for setting in change.settings):
        given["isa"] = None
    return command_of("run", RunRequest(**given))


def _find_cheapest(
    bench: Bench,
    hardware: Preset,
    table: CostTable,
    wanted: AdviseRequest,
    target_ms: float,
    meeting: Sequence[Advised],
) -> tuple[Advised | None, int]:
    """Return the change of least area that meets the target, and the number of machines measured.

    ``meeting``: single changes that meet the target. Combinations are measured in the order of
    their areas, until the next one is larger than a change that meets it.
    """
    meeting = list(meeting)
    priced = [
        (area(table, machine.arch).total / SQUARE_MILLIMETRE, change)
        for change in combine_changes(hardware)
        if (machine := apply_change(hardware, change)) is not None
    ]
    tried = 0
    for size, found in groupby(sorted(priced, key=lambda one: one[0]), key=lambda one: one[0]):
        if any(one.point.square_millimetres < size for one in meeting):
            break
        changes = [change for _, change in found]
        points = list(_measure_changes(bench, hardware, changes, wanted, wanted.stage))
        tried += len(points)
        meeting += [one for one in points if one.point.milliseconds <= target_ms]
    return min(meeting, key=_price, default=None), tried


def _faster(points: Sequence[Advised], cycles: int) -> list[Advised]:
    """Return the best change of each kind that saves enough cycles, largest saving first."""
    kinds: dict[str, list[Advised]] = {}
    for one in points:
        kinds.setdefault(one.change.what, []).append(one)
    best = []
    for found in kinds.values():
        first = min(found, key=lambda one: (one.point.both, one.point.square_millimetres))
        gain = cycles - first.point.both
        if gain > WORTH * cycles:
            enough = [one for one in found if cycles - one.point.both >= MOST_OF_GAIN * gain]
            # of equal areas, the first one is the smallest change
            least = min(enough, key=lambda one: one.point.square_millimetres)
            best.append(first if least is first else replace(first, smaller=least))
    return sorted(best, key=lambda one: (one.point.both, *_price(one)))


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
    yield (
        f"array and scratchpad of this machine take {now.square_millimetres:.3f} mm², a run takes "
        f"{now.microjoules:,.1f} µJ; costs are differences from that, estimates without bus and CPU"
    )
    for one in found.faster[:2]:
        gain = f"{one.point.both / now.both - 1:+.1%}, {one.point.cycles:,} cycles"
        yield f"{one.change.words}: {gain}"
    if not found.faster:
        yield f"none of {found.tried:,} changes makes it faster by {WORTH:.1%}"
    if found.target is not None:
        yield (
            f"at most {found.target_ms:g} ms: {found.target.point.square_millimetres:.3f} mm² "
            f"(estimate), {found.target.point.milliseconds:.4g} ms: "
            f"{found.target.change.words or 'this machine'}"
        )
    elif found.target_ms is not None:
        yield (
            f"none of {found.tried:,} changes makes it take at most {found.target_ms:g} ms; a "
            "higher clock_hz may"
        )


def _tables(found: Advice) -> Iterator[Printed]:
    said = list(_lines(found))
    yield line(said[0], style="bold")
    limits = ((limit.name, f"{limit.cycles:,}", limit.sentence) for limit in found.layers)
    yield plain_table(("layer", "fold"), ("cycles", "right"), ("why", "left"), rows=limits)
    for title, rows in (("what would help", found.faster), ("as fast and cheaper", found.cheaper)):
        if rows:
            yield _make_change_table(title, rows, found.now)
    for one in said[1:]:
        yield line(one)


def _list_shown(rows: Iterable[Advised]) -> Iterator[Advised]:
    """Yield each change, and after it the smaller one that brings most of its gain."""
    for one in rows:
        yield one
        if one.smaller is not None:
            yield one.smaller


def commands(found: Advice) -> Iterator[str]:
    """Yield the commands that repeat the advised changes, in the order of the tables.

    The machine that meets the target comes last.
    """
    yield from (one.command for one in _list_shown((*found.faster, *found.cheaper)))
    if found.target is not None:
        yield found.target.command


def _make_change_table(title: str, rows: Sequence[Advised], now: AdvicePoint) -> Printed:
    table = plain_table(
        (title, "fold"),
        ("cycles", "right"),
        ("change", "right"),
        ("cost in mm²", "right"),
        ("cost in µJ", "right"),
    )
    for one in _list_shown(rows):
        point = one.point
        words = one.change.words
        if point.host_nodes != now.host_nodes:
            words += f" ({now.host_nodes} to {point.host_nodes} nodes on the CPU)"
        table.add_row(
            words if one in rows else f"  most of it: {words}",
            f"{point.cycles:,}",
            f"{point.both / now.both - 1:+.1%}",
            f"{point.square_millimetres - now.square_millimetres:+.3f}",
            f"{point.microjoules - now.microjoules:+,.1f}",
        )
    return table


def _record(kind: str, one: Advised) -> Mapping[str, Any]:
    return {
        "kind": kind,
        "change": " ".join(one.change.settings) or one.change.words,
        **asdict(one.point),
        "command": one.command,
    }


def _records(found: Advice) -> list[Mapping[str, Any]]:
    rows = []
    for one in found.faster:
        rows.append(_record("faster", one))
        if one.smaller is not None:
            rows.append(_record("smaller", one.smaller))
    rows += [_record("cheaper", one) for one in found.cheaper]
    return rows + ([] if found.target is None else [_record("target", found.target)])


def content(found: Advice) -> dict[str, Any]:
    limits = [
        asdict(one) | {"moved_bytes": one.moved_bytes, "bound": one.bound, "sentence": one.sentence}
        for one in (found.everything, *found.layers)
    ]
    told = {"model": found.model, "now": asdict(found.now), "limits": limits, "tried": found.tried}
    return told | {"changes": _records(found)}
