"""Helpers for tests of sweeps: small specifications, and queries of a results file."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path

from experiments.sweep.driver import Report, Tally
from experiments.sweep.session import SweepSession
from experiments.sweep.spec import Spec, parse_spec
from experiments.sweep.store import COLUMNS, Store
from isa.progress import Progress, silent
from tests.experiments.command_line import save_tiny


def written(folder: Path, text: str, name: str = "grid.toml") -> Path:
    """Write a specification file of ``text`` to the folder of the network ``tiny.onnx``."""
    if not (folder / "tiny.onnx").exists():
        save_tiny(folder)
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def spec_of(folder: Path, text: str) -> Spec:
    """The specification of ``text``; its network, if it is ``tiny.onnx``, is there."""
    path = written(folder, text)
    return parse_spec(path.read_text(), folder, "grid.toml")


def run_sweep(
    spec: Spec,
    output: Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: bool = False,
    command: str = "dla sweep",
    stage: Progress = silent,
    report: Report = silent,
) -> Tally:
    """Give every point of ``spec`` a row in the results file ``output``.

    Points with a row are not run again.

    Arguments are those of :class:`experiments.sweep.session.SweepSession`. In addition,
    ``retry_failed`` first removes the rows that failed, and ``report`` is called whenever rows have
    been written. Raises InputError as a session does.
    """
    with SweepSession(
        spec, output, workers=workers, scheduler=scheduler, command=command, stage=stage
    ) as session:
        return session.run_all(retry_failed, stage, report)


def swept(folder: Path, text: str, workers: int = 1) -> dict[str, dict[str, object]]:
    """The rows by key after running a specification."""
    run_sweep(spec_of(folder, text), folder / "results.sqlite", workers=workers)
    return rows_of(folder / "results.sqlite")


def statuses(store: Store) -> Counter[str]:
    """Count the rows of each status."""
    return Counter(map(store.status_of, store.rows()))


def rows_of(path: Path) -> dict[str, dict[str, object]]:
    """The rows of a results file by key."""
    with Store(path) as store:
        return {str(row[0]): dict(zip(COLUMNS, row, strict=True)) for row in store.rows()}
