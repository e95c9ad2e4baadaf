"""One sweep, from a specification to a results file: the workflow behind ``dla sweep`` and its Python API."""

from __future__ import annotations

from pathlib import Path

from experiments.sweep.driver import Report, Tally, silent
from experiments.sweep.session import Session
from experiments.sweep.spec import Spec
from experiments.sweep.stages import Stage, quiet


def run_sweep(
    spec: Spec,
    output: Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: bool = False,
    command: str = "dla sweep",
    stage: Stage = quiet,
    report: Report = silent,
) -> Tally:
    """Give every point of ``spec`` a row in the results file ``output``; points that have one are not run again.

    Arguments as for :class:`experiments.sweep.session.Session`; ``retry_failed`` forgets rows that failed first,
    ``report`` is called whenever rows have been written. Raises InputError as a session does.
    """
    with Session(spec, output, workers=workers, scheduler=scheduler, command=command, stage=stage) as session:
        if retry_failed:
            session.store.forget("failed")
        stage(f"running {session.grid.points} points")
        return session.run(session.grid.batches(), report)
