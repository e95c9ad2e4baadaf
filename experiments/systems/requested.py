"""Entry points for systems and splits, from a request to its result.

``dla system``, ``dla split`` and Python use them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dla_sim.systems.choices import highest_rate, policy_of
from dla_sim.systems.spec import (
    System,
    check_system,
    check_work,
    document,
    read_system,
    replace_conditions,
)
from experiments.running.declared import command_of
from experiments.running.door import door
from experiments.running.network import load
from experiments.sweep.session import note_place
from experiments.systems.plans import PlanMaker
from experiments.systems.request import (
    SplitKeywords,
    SplitRequest,
    SystemRequest,
    SystemSweepRequest,
)
from experiments.systems.result import SystemResult
from experiments.systems.running import run_system
from experiments.systems.split import SplitReport, split_network
from experiments.systems.sweep import (
    SystemSweep,
    check_axes,
    number_or_text,
    replace_values,
    run_sweep,
)
from isa.errors import InputError


def system_requested(wanted: SystemRequest) -> SystemResult:
    """Run several networks on several accelerators (docs/systems.md), as ``dla system`` does.

    ``spec`` is a TOML file, or a dict with the same keys whose paths are relative to the working
    folder. ``policy``, ``preempt``, ``quantum`` and ``until`` replace keys of its table ``run``;
    times are cycles or texts with a unit. ``search_rate`` also searches the highest rate without a
    miss. ``check`` also runs preempted programs on data, in pieces, and compares their bits with
    those of whole programs. ``watch`` is called with every interval of a unit, ``progress`` with a
    text for each step. Equal arguments give equal reports.

    Jobs that miss their deadlines are part of the result, not errors. Raises InputError for bad
    input.
    """
    progress = wanted.progress
    described = replace_conditions(read_system(wanted.spec), wanted.chosen)
    policy_of(described)  # fail before networks are compiled
    check_work(described)
    plans = PlanMaker(progress, wanted.cache).plans(described)
    command = command_of("system", wanted)
    report = run_system(
        described, plans, watch=wanted.watch, check=wanted.check, progress=progress, command=command
    )
    return SystemResult(
        report, highest_rate(described, plans, progress) if wanted.search_rate else None
    )


system = door("system", SystemRequest, SystemRequest, system_requested)


def sweep_requested(wanted: SystemSweepRequest) -> SystemSweep:
    """Run a system with all combinations of values of some keys, as ``dla system --sweep`` does.

    ``axes`` maps dotted keys to lists of values, with entries by their names:
    ``{"run.policy": ["fcfs", "edf"], "accelerator.npu.count": range(1, 5)}``. ``spec`` and the
    other arguments are those of :func:`system`. Each point has the figures of its system run alone.
    Each process (this one, or ``workers`` others) compiles shared networks once.

    With ``output``, every point is stored in that results file as soon as it has ended. Points with
    a row there are not run again, and ``dla report`` shows them as a page.

    Jobs that miss their deadlines, and networks that fit no accelerator, are results, not errors.
    Raises InputError for bad input.
    """
    if isinstance(wanted.spec, System):
        raise InputError(
            f"{wanted.spec.source}: give the file or its keys; a system that was read "
            "has none to vary"
        )
    chosen = wanted.chosen
    given = document(wanted.spec)
    for key in chosen:
        if f"run.{key}" in wanted.axes:
            raise InputError(
                f"{given.source}: run.{key} is an axis of the sweep, and {key} is "
                "given; leave out one"
            )
    ordered = check_axes(wanted.axes, given)
    changed = replace_values(
        given, {f"run.{key}": number_or_text(str(value)) for key, value in chosen.items()}
    )
    if wanted.output is not None:
        with note_place(Path(wanted.output)):
            return run_sweep(changed, replace(wanted, axes=ordered))
    with TemporaryDirectory() as folder:
        return run_sweep(
            changed, replace(wanted, axes=ordered, output=Path(folder) / "points.sqlite")
        )


sweep_system = door("sweep_system", SystemSweepRequest, SystemSweepRequest, sweep_requested)


def split_requested(wanted: SplitRequest) -> SplitReport:
    """Run one network on all accelerators of a system, as ``dla split MODEL FILE --by WAY`` does.

    ``by`` is ``batch``, ``channels``, ``rows`` or ``pipeline``; ``images`` inferences (8) are timed
    by ``batch`` and ``pipeline``. ``system`` is a TOML file or a dict with the same keys; it may
    have no tasks. The other arguments are those of :func:`dla.run`; the inputs are those of one
    inference.

    Bits that differ are reported in ``check`` and raise no error. Raises InputError for bad input.
    """
    system = wanted.system
    accelerators = (
        system if isinstance(system, System) else check_system(document(system), idle=True)
    )
    network = load(wanted, wanted.progress)
    return split_network(network, accelerators, wanted)


split = door("split", SplitKeywords, SplitRequest, split_requested)
