"""Advice for a described machine: the cycles with each parameter doubled and halved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from json import dumps
from typing import Any

from byoc.package.interface import connect
from dla_sim.presets import setting_texts
from experiments.advise.request import AdviseRequest
from experiments.machines.description import MachineDescription
from experiments.machines.evaluate import Evaluation, Evaluator
from experiments.machines.parameters import apply_parameters
from experiments.report.shown import Presentation, Shown
from experiments.report.terminal import Printed, line, plain_table
from experiments.running.declared import command_of
from experiments.running.given import AnyMachine, RunRequest
from experiments.running.network import load
from isa.errors import InputError


@dataclass(frozen=True)
class ParameterChange:
    """Change of one parameter, with the cycles that it gives and the command that repeats it.

    ``cycles`` are cycles of the machine, ``host_cycles`` estimated cycles of the CPU. ``saves`` is
    the share of their sum that the change saves; it is negative if the change costs cycles.
    """

    setting: str
    cycles: int
    host_cycles: int
    saves: float
    command: str


@dataclass(frozen=True)
class MachineAdvice(Shown):
    """Result of ``dla advise`` for a described machine.

    ``changes`` has the largest saving first. The clock is not changed, because cycles do not
    depend on it.
    """

    model: str
    machine: str
    cycles: int
    host_cycles: int
    changes: tuple[ParameterChange, ...]

    @property
    def presented(self) -> tuple[Any, Presentation]:
        """The advice as text, a table, CSV records and JSON."""
        return self, Presentation(
            _lines,
            tables=_tables,
            records=lambda found: [vars(one) for one in found.changes],
            json=lambda found: dumps(found.content(), indent=1) + "\n",
        )

    def content(self) -> dict[str, Any]:
        """Return the advice as plain data."""
        return {
            "schema": "dla-machine-advice/1",
            **vars(self),
            "changes": [vars(one) for one in self.changes],
        }

    @property
    def commands(self) -> list[str]:
        """Commands that repeat the changes that save cycles, largest saving first."""
        return [one.command for one in self.changes if one.saves > 0]


def advise_machine(wanted: AdviseRequest, machine: MachineDescription) -> MachineAdvice:
    """Compute the cycles of a network on a machine with each parameter doubled and halved.

    Fitted parameters are no design choices, and stay. Values outside the limits of a parameter are
    left out.
    """
    for option, value in (("--target-ms", wanted.target_ms), ("--target-ips", wanted.target_ips)):
        if value is not None:
            raise InputError(
                f"{option} needs areas, which machine {machine.name} does not have; leave it out"
            )
    network = load(wanted, wanted.stage)
    interface = connect(network.package, wanted.options)
    evaluator = Evaluator(interface.graph, interface.annotations, machine)
    now = evaluator.evaluate(apply_parameters(machine, wanted.settings))
    total = now.cycles + now.host_cycles
    found = []
    for setting in _list_settings(now):
        changed = replace(wanted, settings=(*_keep(wanted, setting), setting))
        try:
            one = evaluator.evaluate(apply_parameters(machine, changed.settings))
        except InputError:
            continue
        saves = 1 - (one.cycles + one.host_cycles) / total if total else 0.0
        command = _command(changed)
        found.append(ParameterChange(setting, one.cycles, one.host_cycles, saves, command))
    ranked = sorted(found, key=lambda change: (-change.saves, change.setting))
    return MachineAdvice(network.name, machine.name, now.cycles, now.host_cycles, tuple(ranked))


def _list_settings(now: Evaluation) -> Iterator[str]:
    """Yield settings that double and halve each parameter except the clock and fitted ones."""
    left_out = (now.machine.clock, *now.machine.fitted)
    for key, value in now.parameters:
        if key in left_out or not value or isinstance(value, bool):
            continue
        yield f"{key}={2 * value}"
        yield f"{key}={value // 2 if isinstance(value, int) else value / 2}"


def _keep(wanted: AnyMachine, setting: str) -> list[str]:
    """Return the request's settings without the parameter that ``setting`` changes."""
    key = setting.partition("=")[0]
    return [one for one in setting_texts(wanted.settings) if one.partition("=")[0].strip() != key]


def _command(wanted: AdviseRequest) -> str:
    """Return the ``dla run`` command of a request."""
    known = RunRequest.__dataclass_fields__
    given = {name: value for name, value in vars(wanted).items() if name in known}
    return command_of("run", RunRequest(**{**given, "cost": None}))


def _lines(found: MachineAdvice) -> Iterator[str]:
    best = [one for one in found.changes if one.saves > 0]
    yield (
        f"{found.model} on {found.machine}: {found.cycles:,} cycles, and ~{found.host_cycles:,} "
        f"on the CPU"
    )
    yield f"{len(best)} of {len(found.changes)} changes of one parameter save cycles"


def _tables(found: MachineAdvice) -> Iterator[Printed]:
    first, last = _lines(found)
    yield line(first, style="bold")
    yield plain_table(
        ("parameter", "left"),
        ("cycles", "right"),
        ("on the CPU", "right"),
        ("saves", "right"),
        rows=[
            (one.setting, f"{one.cycles:,}", f"~{one.host_cycles:,}", f"{one.saves:+.1%}")
            for one in found.changes
        ],
    )
    yield line(last)
