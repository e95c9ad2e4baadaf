"""Systems from their files to their results: the workflows behind ``dla system``, ``dla split`` and Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dla_sim.systems.spec import IN_MEMORY, Specification, System, checked, document, specified, with_conditions
from experiments.running.door import door
from experiments.running.network import load
from experiments.systems.plans import Planner, make_plans
from experiments.systems.request import SplitKeywords, SplitRequest
from experiments.systems.result import SystemResult
from experiments.systems.run import Watch, highest_rate, policy_of, run_system
from experiments.systems.split_report import SplitReport, split_network
from experiments.systems.sweep import SystemSweep, checked_axes, number_or_text, run_sweep, with_values
from isa.errors import InputError
from isa.progress import Progress, silent


def system(
    spec: Specification,
    *,
    policy: str | None = None,
    preempt: str | None = None,
    quantum: int | str | None = None,
    until: int | str | None = None,
    search_rate: bool = False,
    check: bool = False,
    watch: Watch | None = None,
    progress: Progress = silent,
) -> SystemResult:
    """Run several networks on several accelerators (docs/systems.md), as ``dla system`` does.

    ``spec`` is a TOML file or the same keys in a dict, whose paths start from the working folder. ``policy``,
    ``preempt``, ``quantum`` and ``until`` replace what its table ``run`` says: times in cycles, or texts with a unit.
    ``search_rate`` looks for the highest rate without a miss, too. With ``check`` programs that gave way are run on
    data, in pieces, and their bits compared with those of running whole. ``watch`` is called with every interval of a
    unit, ``progress`` with what goes on. Equal arguments give equal reports.

    Jobs that miss their deadlines are results like others. Raises InputError for bad input.
    """
    chosen = _given(policy, preempt, quantum, until)
    wanted = with_conditions(specified(spec), chosen)
    policy_of(wanted)  # before networks are compiled
    words = _words("dla.system", wanted.source, chosen)
    plans = make_plans(wanted, progress=progress)
    report = run_system(wanted, plans, watch=watch, check=check, progress=progress, command=shlex.join(words))
    return SystemResult(report, highest_rate(wanted, plans, progress) if search_rate else None)


def sweep_system(
    spec: str | Path | Mapping[str, Any],
    axes: Mapping[str, Any],
    *,
    policy: str | None = None,
    preempt: str | None = None,
    quantum: int | str | None = None,
    until: int | str | None = None,
    search_rate: bool = False,
    progress: Progress = silent,
) -> SystemSweep:
    """Run a system with all combinations of values in the place of those written, as ``dla system --sweep`` does.

    ``axes`` has a list of values by dotted key, entries by their names: ``{"run.policy": ["fcfs", "edf"],
    "accelerator.npu.count": range(1, 5)}``. ``spec`` and the other arguments are as for :func:`system`; each point has
    the figures of its system run alone. What points share is compiled once.

    Jobs that miss their deadlines, and networks that fit no accelerator, are results. Raises InputError for bad input.
    """
    chosen, given = _given(policy, preempt, quantum, until), document(spec)
    for key in chosen:
        if f"run.{key}" in axes:
            raise InputError(f"{given.source}: run.{key} is an axis of the sweep, and {key} is given; leave out one")
    words = _words("dla.sweep_system", given.source, chosen)
    ordered = checked_axes(axes, given)
    words += [word for key, values in ordered.items() for word in ("--sweep", f"{key}={','.join(map(str, values))}")]
    words += ["--highest-rate"] if search_rate else []
    values = {f"run.{key}": number_or_text(str(value)) for key, value in chosen.items()}
    return run_sweep(
        with_values(given, values), ordered, Planner(progress=progress),
        search_rate=search_rate, progress=progress, command=shlex.join(words),
    )  # fmt: skip


def split_requested(wanted: SplitRequest) -> SplitReport:
    """Run one network on all accelerators of a system, as ``dla split MODEL FILE --by WAY`` does.

    ``way`` is ``batch``, ``channels``, ``rows`` or ``pipeline``; ``images`` inferences (8) are timed by ``batch`` and
    ``pipeline``. ``system`` is a TOML file or the same keys in a dict; it need not have tasks. The other arguments are
    as for :func:`dla.run`; the inputs are those of one inference.

    Bits that differ are reported in ``check``, not raised. Raises InputError for bad input.
    """
    system = wanted.system
    accelerators = system if isinstance(system, System) else checked(document(system), idle=True)
    network = load(wanted, wanted.progress)
    return split_network(network, accelerators, wanted)


split = door("split", SplitKeywords, SplitRequest, split_requested)


def _given(
    policy: str | None, preempt: str | None, quantum: int | str | None, until: int | str | None
) -> dict[str, int | str]:
    """What replaces keys of the table ``run``, by key."""
    given = {"policy": policy, "preempt": preempt, "quantum": quantum, "until": until}
    return {key: value for key, value in given.items() if value is not None}


def _words(function: str, source: str, chosen: Mapping[str, int | str]) -> list[str]:
    """The command that does the same, or of what is in no file the function."""
    words = [function] if source == IN_MEMORY else ["dla", "system", source]
    return words + [word for key, value in chosen.items() for word in (f"--{key}", str(value))]
