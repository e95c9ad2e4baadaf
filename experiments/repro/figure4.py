"""Figure 4 of Sponner et al.

(2021): runs its configurations, writes a table and an image, and evaluates the claims.

The image has one column per scenario, the published schedule in the upper row and this compiler's
below. Bars are EX cycles stacked by CONV, DEPTH and REQUANT; a mark above each bar is the whole run
with its DMA.
"""

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.report.charts.model import KINDS as STYLES
from experiments.repro import Claim, claim_lines
from experiments.repro.claims import (
    KINDS,
    MEMORIES,
    SCENARIOS,
    Bar,
    ClaimBars,
    Scenario,
    bars_of,
    evaluate,
)
from experiments.sweep.session import SweepSession
from experiments.sweep.spec import load_spec
from isa.files import write_atomically
from isa.progress import Progress, silent

PUBLISHED: Mapping[Scenario, str] = {
    "none": "figure 4a",
    "emulated": "figure 4c",
    "native": "figure 4e",
}
"""Panels of the paper, as its text refers to them (docs/validation.md)."""
ROWS: Mapping[str, str] = {
    "seed": "published schedule (seed)",
    "default": "this compiler (default)",
}
MILLION = 1e6
GAP = 0.7
NEAR = 0.09
"""Distance, as a share of the tallest run, below which a bar's text would cover its mark."""
_DPI = 110


def draw(bars: Mapping[str, ClaimBars]) -> bytes:
    """Draw figure 4 from the bars of each schedule and return it as a PNG image."""
    schedules = [schedule for schedule in ROWS if schedule in bars]
    widths = [
        max(len(bars[schedule].panel(scenario)) for schedule in schedules) for scenario in SCENARIOS
    ]
    figure = Figure(figsize=(15, 4.4 * len(schedules) + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(
        len(schedules),
        len(SCENARIOS),
        squeeze=False,
        sharey="col",
        gridspec_kw={"width_ratios": widths},
    )
    for row, schedule in enumerate(schedules):
        for column, scenario in enumerate(SCENARIOS):
            _panel(axes[row][column], bars[schedule].panel(scenario))
            axes[row][column].set_title(
                f"{SCENARIOS[scenario]} ({PUBLISHED[scenario]})\n{ROWS[schedule]}", fontsize=10.5
            )
        axes[row][0].set_ylabel("cycles (millions)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(
        "MobileNetV1 1.0/224: EX cycles by subgraph type (Sponner et al. 2021, figure 4)"
    )
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    return stream.getvalue()


def _panel(axes: Axes, bars: Sequence[Bar]) -> None:
    places = _places(bars)
    _stack(axes, bars, places)
    ran = [(place, bar) for place, bar in zip(places, bars, strict=True) if bar.total is not None]
    axes.scatter(
        [place for place, _ in ran], [(bar.total or 0) / MILLION for _, bar in ran], marker="_",
        s=190, linewidths=2,
        color="black", label="whole run, DMA included", zorder=3,
    )  # fmt: skip
    _value_bars(axes, bars, places)
    _name_bars(axes, bars, places)


def _stack(axes: Axes, bars: Sequence[Bar], places: Sequence[float]) -> None:
    floor = [0.0] * len(bars)
    for kind in KINDS:
        heights = [bar.ex.get(kind, 0) / MILLION for bar in bars]
        style = STYLES[kind]
        # REQUANT is a few hundredths of the others: an edge makes it visible
        thin = kind == "REQUANT"
        axes.bar(
            places, heights, 0.78, bottom=floor, color=style.color,
            hatch="" if thin else style.pattern * 2,
            edgecolor=style.color if thin else "white",
            linewidth=1.2 if thin and any(heights) else 0,
            label=f"{kind} (EX cycles)",
        )  # fmt: skip
        floor = [low + height for low, height in zip(floor, heights, strict=True)]


def _value_bars(axes: Axes, bars: Sequence[Bar], places: Sequence[float]) -> None:
    """Write the number of cycles above every bar of the chart.

    If this text would cover the bar's mark, it goes above the mark.
    """
    near = NEAR * max((bar.total or 0 for bar in bars), default=0)
    for place, bar in zip(places, bars, strict=True):
        covered = bar.total is not None and bar.total - bar.height < near
        top = (bar.total or 0 if covered else bar.height) / MILLION
        text = f"{bar.height / MILLION:.1f}" if bar.ran else "does not fit"
        axes.annotate(
            text, (place, top), (0, 3), textcoords="offset points", ha="center", fontsize=7.5,
            rotation=0 if bar.ran else 90,
        )  # fmt: skip


def _places(bars: Sequence[Bar]) -> list[float]:
    """Return the positions of the chart's bars, with a gap between memory sizes."""
    places: list[float] = []
    for index, bar in enumerate(bars):
        gap = 1 + GAP * (bar.sram_bytes != bars[index - 1].sram_bytes) if index else 0
        places.append(places[-1] + gap if places else 0.0)
    return places


def _name_bars(axes: Axes, bars: Sequence[Bar], places: Sequence[float]) -> None:
    axes.set_xticks(places, [f"{bar.pes}\n{bar.side}" for bar in bars], fontsize=8.5)
    axes.tick_params(axis="x", length=0)
    pairs = list(zip(bars, places, strict=True))
    for memory, members in groupby(pairs, key=lambda pair: pair[0].sram_bytes):
        inside = [place for _, place in members]
        axes.annotate(
            MEMORIES[memory], ((inside[0] + inside[-1]) / 2, 0), (0, -34),
            xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="top", fontsize=9.5, fontweight="bold",
        )  # fmt: skip
    axes.set_xlabel(
        "SRAM, processing elements, input- (I) or output-parallel (O)", labelpad=26, fontsize=9
    )
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#DDDDDD")
    axes.margins(y=0.08)
    axes.spines[["top", "right"]].set_visible(False)


NAME = "sponner2021-fig4"
SPECIFICATION = Path(__file__).with_name(f"{NAME}.toml")
COLUMNS = (
    "schedule", "scenario", "panel", "memory", "sram_bytes", "pes", "side", "status",
    *(f"ex_{kind}" for kind in KINDS), "ex_sum", "ex_other", "total_cycles", "message",
)  # fmt: skip
"""Columns of the table, which has one row per configuration.

Cycles are empty if it does not fit.
"""


@dataclass(frozen=True)
class Figure4:
    """Result of reproducing figure 4: bars and claims by schedule, and the files written."""

    bars: Mapping[str, ClaimBars]
    claims: Mapping[str, tuple[Claim, ...]]
    files: tuple[Path, ...]

    @property
    def holds(self) -> bool:
        """True if every statement of the paper holds under the published schedule."""
        return all(claim.holds for claim in self.claims["seed"])


def reproduce(folder: Path, *, workers: int | None = None, stage: Progress = silent) -> Figure4:
    """Run the missing configurations of figure 4, and write its table, image and claims.

    The rows are in ``folder``/sponner2021-fig4.sqlite; .csv, .png and .txt files are next to it.

    Raises InputError if the folder cannot be written.
    """
    bars = run(folder / f"{NAME}.sqlite", workers=workers, stage=stage)
    claims = {schedule: evaluate(found) for schedule, found in bars.items()}
    contents: dict[str, str | bytes] = {
        "csv": table(bars),
        "png": draw(bars),
        "txt": claims_text(claims),
    }
    files = [folder / f"{NAME}.{ending}" for ending in contents]
    for file, content in zip(files, contents.values(), strict=True):
        write_atomically(file, content)
    return Figure4(bars, claims, (*files, folder / f"{NAME}.sqlite"))


def run(
    results: Path, *, workers: int | None = None, stage: Progress = silent
) -> dict[str, ClaimBars]:
    """Run the configurations of figure 4 and return its bars by schedule.

    Configurations with a row in ``results`` of this version are not run again.
    """
    spec = load_spec(SPECIFICATION)
    with SweepSession(
        spec, results, workers=workers, command=f"dla repro {NAME}", stage=stage
    ) as session:
        axes = session.grid.axes
        stage(f"running {session.grid.points} configurations")
        choices = [
            dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
        ]
        rows = session.evaluate(choices)
    return bars_of(row for row in rows if row is not None)


def table(bars: Mapping[str, ClaimBars]) -> str:
    """Return the table of all configurations of figure 4 that were run, as CSV text."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for schedule in sorted(bars, reverse=True):
        order = list(SCENARIOS)
        writer.writerows(
            _row(bar)
            for bar in sorted(
                bars[schedule], key=lambda b: (order.index(b.scenario), b.sram_bytes, b.pes, b.side)
            )
        )
    return stream.getvalue()


def _row(bar: Bar) -> tuple[object, ...]:
    place = bar.schedule, bar.scenario, PUBLISHED[bar.scenario], bar.memory, bar.sram_bytes
    machine = (*place, bar.pes, bar.side)
    if not bar.ran:
        return (*machine, "infeasible", *[""] * (len(KINDS) + 3), bar.message)
    return (
        *machine,
        "ok",
        *(bar.ex.get(kind, 0) for kind in KINDS),
        bar.height,
        bar.other,
        bar.total,
        "",
    )


def claims_text(claims: Mapping[str, tuple[Claim, ...]]) -> str:
    """Return the claims of every schedule as text, with the figures that decide them.

    The published schedule comes first.
    """
    lines: list[str] = []
    for schedule in sorted(claims, reverse=True):
        lines += [_heading(schedule, claims[schedule]), "", *claim_lines(claims[schedule])]
    return "\n".join(lines)


def _heading(schedule: str, claims: tuple[Claim, ...]) -> str:
    count = sum(claim.holds for claim in claims)
    whose = (
        "the published system's"
        if schedule == "seed"
        else "this compiler's; the paper says nothing of it"
    )
    return f"schedule {schedule} ({whose}): {count} of {len(claims)} statements hold"
