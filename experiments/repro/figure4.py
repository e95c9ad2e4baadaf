"""``dla repro sponner2021-fig4``: runs the figure's configurations, writes table and picture, evaluates the claims."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.repro.claims import KINDS, SCENARIOS, Bar, Bars, Claim, bars_of, evaluate
from experiments.repro.drawing import PUBLISHED, draw
from experiments.running import Progress, silent
from experiments.sweep.session import Session
from experiments.sweep.spec import load_spec
from isa.files import write_atomically

NAME = "sponner2021-fig4"
SPECIFICATION = Path(__file__).with_name(f"{NAME}.toml")
COLUMNS = (
    "schedule", "scenario", "panel", "memory", "sram_bytes", "pes", "side", "status",
    *(f"ex_{kind}" for kind in KINDS), "ex_sum", "ex_other", "total_cycles", "message",
)  # fmt: skip
"""Columns of the table: a row a configuration, cycles, empty where it does not fit."""


@dataclass(frozen=True)
class Reproduction:
    """What came of it: bars and claims by schedule, and the files written."""

    bars: Mapping[str, Bars]
    claims: Mapping[str, tuple[Claim, ...]]
    files: tuple[Path, ...]

    @property
    def holds(self) -> bool:
        """Whether every statement of the paper holds under the published schedule."""
        return all(claim.holds for claim in self.claims["seed"])


def reproduce(folder: Path, *, workers: int | None = None, stage: Progress = silent) -> Reproduction:
    """Run what has no row yet in ``folder``/sponner2021-fig4.sqlite, then write the .csv, .png and .txt beside it.

    Raises InputError where the folder cannot be written.
    """
    bars = run(folder / f"{NAME}.sqlite", workers=workers, stage=stage)
    claims = {schedule: evaluate(found) for schedule, found in bars.items()}
    contents: dict[str, str | bytes] = {"csv": table(bars), "png": draw(bars), "txt": claims_text(claims)}
    files = [folder / f"{NAME}.{ending}" for ending in contents]
    for file, content in zip(files, contents.values(), strict=True):
        write_atomically(file, content)
    return Reproduction(bars, claims, (*files, folder / f"{NAME}.sqlite"))


def run(results: Path, *, workers: int | None = None, stage: Progress = silent) -> dict[str, Bars]:
    """The bars by schedule; those that have a row in ``results`` under this version are not run again."""
    spec = load_spec(SPECIFICATION)
    with Session(spec, results, workers=workers, command=f"dla repro {NAME}", stage=stage) as session:
        axes = session.grid.axes
        stage(f"running {session.grid.points} configurations")
        choices = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        rows = session.evaluate(choices)
    return bars_of(row for row in rows if row is not None)


def table(bars: Mapping[str, Bars]) -> str:
    """The bars as CSV with the columns :data:`COLUMNS`, every configuration that was run among them."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for schedule in sorted(bars, reverse=True):
        order = list(SCENARIOS)
        writer.writerows(
            _row(bar)
            for bar in sorted(bars[schedule], key=lambda b: (order.index(b.scenario), b.sram_bytes, b.pes, b.side))
        )
    return stream.getvalue()


def _row(bar: Bar) -> tuple[object, ...]:
    place = bar.schedule, bar.scenario, PUBLISHED[bar.scenario], bar.label.rsplit(" ", 2)[0], bar.sram_bytes
    machine = (*place, bar.pes, bar.side)
    if not bar.ran:
        return (*machine, "infeasible", *[""] * (len(KINDS) + 3), bar.message)
    return (*machine, "ok", *(bar.ex.get(kind, 0) for kind in KINDS), bar.height, bar.other, bar.total, "")


def claims_text(claims: Mapping[str, tuple[Claim, ...]]) -> str:
    """The claims of every schedule as text, the published one first, with every figure that decides them."""
    lines: list[str] = []
    for schedule in sorted(claims, reverse=True):
        lines += [_heading(schedule, claims[schedule]), ""]
        for claim in claims[schedule]:
            lines.append(f"[{'holds' if claim.holds else 'DOES NOT HOLD'}] {claim.statement}")
            lines.append(f"    decided by: {claim.rule}")
            lines += [f"    {'+' if figure.supports else '-'} {figure.text}" for figure in claim.figures]
            lines.append("")
    return "\n".join(lines)


def _heading(schedule: str, claims: tuple[Claim, ...]) -> str:
    count = sum(claim.holds for claim in claims)
    whose = "the published system's" if schedule == "seed" else "this compiler's; the paper says nothing of it"
    return f"schedule {schedule} ({whose}): {count} of {len(claims)} statements hold"
