"""A sweep from its specification to its results: the workflow behind ``dla sweep`` and the public Python API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.report.shown import Presentation, Shown
from experiments.running.declared import command_of
from experiments.running.door import door
from experiments.sweep.driver import Tally
from experiments.sweep.frame import load
from experiments.sweep.grid import Grid
from experiments.sweep.request import Sweeping, SweepRequest
from experiments.sweep.results import load_sweep, reasons
from experiments.sweep.session import run_sweep
from experiments.sweep.spec import Spec, load_spec, parse_spec
from isa.toml_text import toml_text

if TYPE_CHECKING:
    import pandas

IN_MEMORY = "<specification>"
"""The source of a specification that is in no file."""


@dataclass(frozen=True, repr=False)
class Swept(Shown):
    """What came of a sweep: its results file, how many points it has, and how it went."""

    path: Path
    points: int
    tally: Tally

    @property
    def table(self) -> pandas.DataFrame:
        """The results file as a DataFrame, a row a point (:func:`load`)."""
        return load(self.path)

    @property
    def failure(self) -> str | None:
        """Where no point is ok: the cause that most points have, in one line. Else None."""
        if self.tally.new["ok"] or self.tally.stored_ok:
            return None
        sweep = load_sweep(self.path)
        status, message, count = reasons(sweep)[0]
        return f"no point is ok; {count} of {sweep.points} {status}: {message}"

    @property
    def summary(self) -> str:
        """How many points there are, how many of them have ended how, in one line."""
        new = ", ".join(f"{count} {status}" for status, count in self.tally.new.items())
        before = f"; {self.tally.stored} had a row before" if self.tally.stored else ""
        machines = f"{self.tally.compilations} machine{'s' * (self.tally.compilations != 1)} compiled"
        return f"{self.points} points: {new}{before}; {machines}"

    @property
    def presented(self) -> tuple[Any, Presentation]:
        """How it went."""
        return self, Presentation(_lines)


def _lines(swept: Swept) -> Iterator[str]:
    """How it went, where the results are, and what failed if everything did."""
    yield from (swept.summary, f"results in {swept.path}")
    yield from filter(None, [swept.failure])


def sweep_requested(wanted: SweepRequest) -> Swept:
    """Give every point of a specification (docs/sweeps.md) a row in a results file, as ``dla sweep`` does.

    ``spec`` is a TOML file or the same keys in a dict, whose paths start from the working folder. ``output`` is by
    default ``runs/SPEC.sqlite``; points that have a row there stay as they are, ``retry_failed`` runs those again that
    failed. ``workers`` processes do the work, one a CPU by default, or the Dask cluster at ``scheduler``. ``stage`` is
    called with what goes on, ``report`` with the tally whenever rows have been written.

    Points that are infeasible or failed are rows like others; ``failure`` of the result tells where all are. Raises
    InputError for bad input.
    """
    checked = specified(wanted)
    place = results_file(checked, wanted.output)
    with going_on_in(place):
        tally = run_sweep(
            checked,
            place,
            workers=wanted.workers,
            scheduler=wanted.scheduler,
            retry_failed=wanted.retry_failed,
            command=command_of("sweep", wanted),
            stage=wanted.stage,
            report=wanted.report,
        )
    return Swept(place, Grid(checked).points, tally)


sweep = door("sweep", SweepRequest, SweepRequest, sweep_requested)


@contextmanager
def going_on_in(place: Path) -> Iterator[None]:
    """Whoever interrupts what is done within is told that what is finished stands in ``place``."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(f"stopped; what is finished stands in {place}, and the same command goes on there")
        raise


def specified(wanted: Sweeping) -> Spec:
    """The specification, read and checked; raises InputError as :func:`load_spec` does."""
    spec = wanted.spec
    if isinstance(spec, Mapping):
        spec = parse_spec(toml_text(spec, IN_MEMORY), Path(), IN_MEMORY)
    elif not isinstance(spec, Spec):
        spec = load_spec(Path(spec))
    return replace(spec, given={**spec.given, "cache": wanted.cache})


def results_file(spec: Spec, output: str | Path | None) -> Path:
    """Where the results go."""
    return Path(output) if output is not None else Path("runs") / f"{Path(spec.source.strip('<>')).stem}.sqlite"
