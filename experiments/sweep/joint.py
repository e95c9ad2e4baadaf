"""Joint result of a sweep: one row a machine over all its networks, and the best machine.

A machine meets the sweep's limits if every network runs on it and meets its limits. The figures of
the networks come from the rows of the results file.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from byoc.options import CompileOptions
from dla_sim.presets import spell_setting
from experiments.cost.estimate import add_costs
from experiments.cost.table import DEFAULT_TABLE, CostTable, area_note, load_table
from experiments.figure import format_figure
from experiments.report.html import Section, join_parts, listing, paragraph, table
from experiments.report.shown import Presentation, Shown
from experiments.report.terminal import Printed, command_lines, line, plain_table, wrap_text
from experiments.running.declared import command_of
from experiments.running.given import RunRequest
from experiments.sweep.constraints import NAMES, RESULTS, parse_constraint
from experiments.sweep.grid import Batch, Grid, Keys
from experiments.sweep.presentation import sweep_charts, sweep_page
from experiments.sweep.results import (
    AREA,
    LIMITS,
    UNKNOWN_BECAUSE,
    UNMET,
    Objectives,
    Sweep,
    flat_row,
    front,
    is_met,
)
from experiments.sweep.spec import JointGoal, Spec, parse_spec, place_file
from experiments.sweep.store import Store, canonical
from experiments.sweep.units import UNITS, add_units
from experiments.version import compiler_version
from isa.arch import PeArray, flat
from isa.errors import InputError
from isa.installation import NAME

MOST_ROWS = 10
"""Most machines of the printed table."""


@dataclass(frozen=True)
class NetworkFigures:
    """Figures of one network on one machine, and the limits that they miss.

    ``values`` has the figures ``UNITS``; each is None if the network did not run. ``weight`` is the
    number of inferences in a round of all networks. ``ran`` is False if there is no results row.
    """

    weight: float
    values: Mapping[str, float | None]
    host_cycles: int
    missed: tuple[str, ...]
    ran: bool = True


@dataclass(frozen=True)
class JointMachine:
    """A machine of a joint sweep, with the figures of every network on it.

    ``settings`` are the keys that differ from the preset, ``shown`` the values of the sweep's axes.
    """

    preset: str
    options: CompileOptions
    settings: Mapping[str, Any]
    shown: Mapping[str, Any]
    networks: dict[str, NetworkFigures] = field(default_factory=dict)

    @property
    def missed(self) -> tuple[str, ...]:
        """Limits that the machine misses, each with its network."""
        return tuple(text for one in self.networks.values() for text in one.missed)

    @property
    def description(self) -> str:
        """Values of the sweep's axes as text."""
        return " ".join(f"{key}={spell_setting(key, value)}" for key, value in self.shown.items())

    def total(self, name: str) -> float | None:
        """Return a figure over all networks, or None if a network has no value.

        Times and energies are those of a round, in which each network runs as often as its weight.
        """
        if name == "ips":
            time = self.total("ms")
            return 1e3 / time if time else None
        values = [(one.weight, one.values[name]) for one in self.networks.values()]
        known = [(weight, value) for weight, value in values if value is not None]
        if len(known) < len(values):
            return None
        return known[0][1] if name == "mm2" else sum(weight * value for weight, value in known)


@dataclass(frozen=True, repr=False)
class Joint(Shown):
    """Result of a joint sweep: all machines in grid order, and the answer.

    ``manifests`` and ``name`` say how and in which file the rows were made, if they were read from
    a file.
    """

    spec: Spec
    goal: JointGoal
    cost: CostTable
    machines: tuple[JointMachine, ...]
    manifests: tuple[Mapping[str, Any], ...] = ()
    name: str = "joint sweep"

    @cached_property
    def meeting(self) -> tuple[JointMachine, ...]:
        """Machines that run every network and meet all limits."""
        return tuple(one for one in self.machines if not one.missed)

    @property
    def best(self) -> JointMachine | None:
        """The machine that meets all limits and has the best objective; of equals the cheapest."""
        return min(self.meeting, key=self._rank, default=None)

    @property
    def cheapest(self) -> JointMachine | None:
        """The machine of least area that meets all limits; of equals the best."""
        return min(self.meeting, key=lambda one: self._rank(one)[::-1], default=None)

    @property
    def front(self) -> tuple[JointMachine, ...]:
        """Machines that meet all limits and that no other beats in area and objective."""
        return tuple(
            self.meeting[place] for place in front([self._rank(one)[::-1] for one in self.meeting])
        )

    def _rank(self, machine: JointMachine) -> tuple[float, float]:
        """Return the objective, less being better, and the area of a machine."""
        objective = self.goal.objective
        value = machine.total("ms" if objective == "ips" else objective)
        area = machine.total("mm2")
        if value is None or area is None:
            raise InputError(
                f"objective: {objective} of {machine.description or machine.preset} is unknown, "
                f"{UNKNOWN_BECAUSE}; choose another objective, such as ms"
            )
        return value, area

    def commands(self, machine: JointMachine) -> list[str]:
        """Return the ``dla run`` command of every network on a machine."""
        runs = (
            RunRequest(
                **{one.name: getattr(given, one.name) for one in fields(given)},
                preset=place_file(machine.preset, self.spec.folder, (".toml",)),
                settings={k: spell_setting(k, value) for k, value in machine.settings.items()},
                options=machine.options,
            )
            for given in map(self.spec.network, self.spec.networks)
        )
        return [command_of("run", run) for run in runs]

    def command(self, machine: JointMachine) -> str:
        """Return the commands of a machine, joined by ``&&``."""
        return " && ".join(self.commands(machine))

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self, Presentation(
            lambda joint: (*_notes(joint), answer(joint)),
            tables=joint_tables,
            records=_records,
            json=lambda joint: json.dumps(content(joint), indent=1) + "\n",
            charts=lambda joint: sweep_charts(machine_sweep(joint), _objectives(joint)),
            page=joint_page,
        )


def load_joint(path: Path, cost: str | None = None, where: str | None = None) -> Joint | None:
    """Return the joint result in a results file, or None if its sweep is not joint.

    ``cost`` is the name or file of a cost table. ``where`` is one more limit of every network. Of
    several sweeps in the file, the latest counts.
    """
    with Store(path) as store:
        manifest = max(store.manifests(), key=lambda one: int(one.get("serial", 0)), default=None)
        if manifest is None or not tomllib.loads(manifest["specification"]).get("joint"):
            return None
        spec = parse_spec(manifest["specification"], Path(manifest["folder"]), str(path))
        assert spec.goal is not None
        if where is not None:
            limit = parse_constraint(where, RESULTS, "--where")
            limits = {name: (*known, limit) for name, known in spec.goal.limits.items()}
            spec = replace(spec, goal=replace(spec.goal, limits=limits))
        priced = load_table(cost or DEFAULT_TABLE)
        joint = collect_joint(Grid(spec), manifest["packages"], store, priced, manifest["versions"])
    if joint is None or not joint.machines:
        raise InputError(f"{path}: no point has ended yet; run the sweep again to continue it")
    return replace(joint, manifests=(manifest,), name=path.stem)


def collect_joint(
    grid: Grid,
    packages: Mapping[str, str],
    store: Store,
    cost: CostTable,
    versions: Mapping[str, str] | None = None,
    batches: Iterable[Batch] | None = None,
) -> Joint | None:
    """Return the joint result of a sweep from the rows of its points.

    ``packages`` has the digest of every network's package, ``versions`` the version of the project
    that made the rows. ``batches`` are some points of the grid, by default all. Machines without a
    row are left out. The result is None unless the sweep is joint.
    """
    spec = grid.spec
    goal = spec.goal
    if goal is None:
        return None
    version = versions[NAME] if versions else compiler_version()
    sides = {
        f"pe.{side}"
        for side in PeArray.model_fields
        if len({one[side] for one in grid.axes.get("pe", ())}) == 1
    }
    columns = [name for name in grid.varied if name not in {"network", *sides}]
    found: dict[str, JointMachine] = {}
    for batch in grid.batches() if batches is None else batches:
        keys = Keys(batch, packages[batch.network], version)
        for preset, timing in batch:
            values = flat(batch.arch) | timing
            chosen = {"preset": preset, **batch.options.choices, **values}
            before = flat(dict(spec.presets[preset].arch)) | dict(spec.presets[preset].timing)
            changed = {key: value for key, value in values.items() if before.get(key) != value}
            machine = JointMachine(
                preset, batch.options, changed, {name: chosen[name] for name in columns}
            )
            row = store.row(keys.compute_key(canonical(timing)))
            name = canonical({**batch.options.choices, **values})
            found.setdefault(name, machine).networks[batch.network] = _measure(
                batch.network, row and flat_row(row), goal, cost
            )
    ran = (one for one in found.values() if any(each.ran for each in one.networks.values()))
    return Joint(spec, goal, cost, tuple(ran))


def _measure(
    network: str, row: Mapping[str, Any] | None, goal: JointGoal, cost: CostTable
) -> NetworkFigures:
    """Return the figures of a point from its results row; None is a point that has not run."""
    if row is None or row["status"] != "ok":
        failed = (f"{network}: {'not run' if row is None else row['status']}",)
        unknown = dict.fromkeys(UNITS)
        return NetworkFigures(goal.weights[network], unknown, 0, failed, row is not None)
    priced = add_units(next(add_costs([row], cost)))
    values = {**dict.fromkeys(NAMES), **priced, "N": row["pe.count"]}
    missed = tuple(
        f"{network}: {limit.text}"
        for limit in goal.limits[network]
        if not is_met(limit, values, network)
    )
    units = {name: priced[name] for name in UNITS}
    return NetworkFigures(goal.weights[network], units, row["host_estimated_cycles"] or 0, missed)


# Presentation.


def _notes(joint: Joint) -> Iterator[str]:
    """Yield notes on the parts of the machine that the figures include and omit."""
    yield area_note(joint.cost.name)
    host = (joint.best or joint.machines[0]).networks.items()
    cycles = ", ".join(f"{name} {one.host_cycles:,}" for name, one in host if one.host_cycles)
    missing = f"; not included: cycles of the CPU, about {cycles}" if cycles else ""
    yield f"ms: cycles of the accelerator{missing}"


def answer(joint: Joint) -> str:
    """Return the answer in one line: how many machines, the best, the cheapest, the command."""
    run = "" if joint.best is None else f"; run the best: {joint.command(joint.best)}"
    return _verdict(joint) + run


def answer_lines(joint: Joint) -> Iterator[str]:
    """Yield the notes and the answer in lines of at most 80 characters, commands apart."""
    for text in (*_notes(joint), _verdict(joint)):
        yield from wrap_text(text)
    if joint.best is not None:
        yield "run the best:"
        yield from command_lines(joint.commands(joint.best))


def _verdict(joint: Joint) -> str:
    counted = (
        f"{len(joint.meeting):,} of {len(joint.machines):,} machines "
        f"{'meet all limits' if any(joint.goal.limits.values()) else 'run all networks'}"
    )
    if joint.best is None or joint.cheapest is None:
        missed = Counter(text for one in joint.machines for text in one.missed)
        reason, count = missed.most_common(1)[0]
        return f"{counted}; most often missed: {reason} (on {count:,} of them)"
    best, cheapest = (_describe(joint, one) for one in (joint.best, joint.cheapest))
    told = f"best: {best}; cheapest: {'the same' if best == cheapest else cheapest}"
    return f"{counted}; {told}"


def _describe(joint: Joint, machine: JointMachine) -> str:
    figures = ", ".join(
        f"{format_figure(machine.total(name))} {UNITS[name].unit}"
        for name in dict.fromkeys((joint.goal.objective, "mm2"))
    )
    return f"{machine.description or machine.preset} ({figures})"


def joint_tables(joint: Joint) -> Iterator[Printed]:
    """Yield the table of the best machines, from the cheapest to the best, and the notes."""
    goal = joint.goal.objective
    each = _objectives(joint)[1]
    best = joint.front[-MOST_ROWS:]
    shown = plain_table(
        ("machine", "fold"),
        ("mm²", "right"),
        *((name, "right") for name in joint.spec.networks),
        (f"all ({UNITS[each].unit})", "right"),
        title=f"{len(best)} of {len(joint.front)} machines that no other beats in mm² and {goal}",
    )
    for one in best:
        figures = (found.values[each] for found in one.networks.values())
        row = map(format_figure, (one.total("mm2"), *figures, one.total(each)))
        shown.add_row(one.description, *row)
    if best:
        yield shown
    yield from map(line, answer_lines(joint))


def _records(joint: Joint) -> list[Mapping[str, Any]]:
    return [
        {
            "preset": one.preset,
            **one.shown,
            "meets": not one.missed,
            "missed": "; ".join(one.missed),
            **{name: one.total(name) for name in UNITS},
            **{
                f"{name}.{network}": found.values[name]
                for name in UNITS
                if name != "mm2"
                for network, found in one.networks.items()
            },
            "command": joint.command(one),
        }
        for one in joint.machines
    ]


def _objectives(joint: Joint) -> Objectives:
    """Return the columns of the chart of all machines: the area and the objective, or the time."""
    return AREA, "ms" if joint.goal.objective == AREA else joint.goal.objective


def machine_sweep(joint: Joint) -> Sweep:
    """Return a joint result as the results of a sweep with one point a machine."""
    _, objective = _objectives(joint)
    each = [f"{objective}.{name}" for name in joint.spec.networks]
    names = (*joint.machines[0].shown, *UNITS, *each)
    columns: dict[str, tuple[Any, ...]] = {
        "key": tuple(str(number) for number in range(1, len(joint.machines) + 1)),
        "status": tuple(
            "infeasible" if one.total("ms") is None else "ok" for one in joint.machines
        ),
        **dict.fromkeys(("message", UNMET), tuple("; ".join(one.missed) for one in joint.machines)),
        "network": (" + ".join(joint.spec.networks),) * len(joint.machines),
        LIMITS: tuple("missed" if one.missed else "met" for one in joint.machines),
    }
    rows = _records(joint)
    columns |= {name: tuple(row[name] for row in rows) for name in names}
    chosen = ("network", LIMITS, *joint.machines[0].shown)
    main = "ms" if objective == "ips" else objective
    return Sweep(joint.name, columns, joint.manifests, chosen, main)


def joint_page(joint: Joint) -> str:
    """Return the HTML page of a joint result: the answer, the front, and all machines."""
    machines = machine_sweep(joint)
    run = joint.best and listing("\n".join(command_lines(joint.commands(joint.best))))
    goal = joint.goal
    asked = (
        (name, f"{goal.weights[name]:g}", "; ".join(one.text for one in goal.limits[name]))
        for name in joint.spec.networks
    )
    told = join_parts(
        paragraph(_verdict(joint)),
        run or paragraph(""),
        table(("network", "weight", "limits"), asked, [1]),
        paragraph(f"objective: {goal.objective}"),
        *map(paragraph, _notes(joint)),
    )
    commands = [joint.command(one) for one in joint.machines]
    first = Section("answer", "Answer", told)
    return sweep_page(machines, _objectives(joint), first, commands)


def content(joint: Joint) -> dict[str, Any]:
    """Return the joint result as JSON data: the answer, its notes, and every machine."""
    rows = dict(zip(map(id, joint.machines), _records(joint), strict=True))
    return {
        "answer": answer(joint),
        "notes": list(_notes(joint)),
        "objective": joint.goal.objective,
        "weights": dict(joint.goal.weights),
        "meeting": len(joint.meeting),
        "best": rows.get(id(joint.best)),
        "cheapest": rows.get(id(joint.cheapest)),
        "machines": list(rows.values()),
    }
