"""Displayable documents of saved results: a run, a system, a sweep, or a comparison of runs.

``dla report`` and ``dla serve`` show the same documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.compare.comparison import ManyRuns, compare
from experiments.compare.presentation import COMPARISON, MANY_RUNS
from experiments.compare.sources import report_snapshot
from experiments.cost.table import DEFAULT_TABLE
from experiments.report.schema import RunReport
from experiments.report.shown import Document, Shown
from experiments.report.store import read_saved, run_report, schema_of
from experiments.running.result import RUN
from experiments.sweep.joint import load_joint
from experiments.sweep.presentation import FRONT
from experiments.sweep.request import OfSweep
from experiments.sweep.results import OTHER_NAMES, is_sweep, load_sweep
from experiments.systems.report import SCHEMA as SYSTEM_SCHEMA
from experiments.systems.report import SystemReport, system_report
from experiments.systems.result import SYSTEM
from experiments.systems.sweep import SCHEMA as SYSTEM_SWEEP_SCHEMA
from isa.errors import InputError


def load_saved(file: Path) -> RunReport | SystemReport:
    """Return the report of a run of a network or a system.

    Raise InputError if the file contains none.
    """
    content = read_saved(file)
    if schema_of(content) == SYSTEM_SWEEP_SCHEMA:
        remedy = "'dla system ... --sweep ... --output FILE' keeps results of which there is one"
        raise InputError(f"{file}: a sweep of a system, of which there is no page; {remedy}")
    if schema_of(content) == SYSTEM_SCHEMA:
        return system_report(content, file)
    return run_report(content, file)


def load_document(file: Path, of_sweep: OfSweep | None = None) -> Document | Shown:
    """Return the document of a saved run, system or sweep; raise InputError if it is none."""
    if is_sweep(file):
        return _load_sweep(file, of_sweep or OfSweep())
    report = load_saved(file)
    return Document(report, RUN if isinstance(report, RunReport) else SYSTEM)


def load_comparison(files: Sequence[Path]) -> Document:
    """Return the comparison of two or more runs; raise InputError if a file contains none."""
    sides = [report_snapshot(_load_run(file), file.stem) for file in files]
    if len(sides) == 2:
        return Document(compare(*sides), COMPARISON)
    return Document(ManyRuns(tuple(sides)), MANY_RUNS)


def _load_run(file: Path) -> RunReport:
    """Return the report of a run of a network; raise InputError if the file contains none."""
    report = load_saved(file)
    if isinstance(report, SystemReport):
        remedy = "'dla system FILE --sweep KEY=VALUE,...' puts systems side by side"
        raise InputError(
            f"{file}: a run of a system, and only runs of networks can be compared; {remedy}"
        )
    return report


def _load_sweep(file: Path, wanted: OfSweep) -> Shown:
    """Load a sweep's results and return them with the Pareto front over two columns.

    Raise InputError for a wrong file or column. The results of a joint sweep are its machines and
    their answer, unless columns are chosen. A cost table adds energy and area.
    """
    if (wanted.x, wanted.y) == (None, None):
        joint = load_joint(file, wanted.cost, wanted.where)
        if joint is not None:
            return joint
    keys = " ".join(filter(None, (wanted.x, wanted.y, wanted.where)))
    priced = any(name in keys for name in ("uJ", "mm2", *list(OTHER_NAMES)[1:]))
    cost = wanted.cost or (DEFAULT_TABLE if priced else None)
    sweep = load_sweep(file, cost, wanted.where)
    return Document((sweep, sweep.objectives(wanted.x, wanted.y)), FRONT)
