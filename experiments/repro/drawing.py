"""Figure 4 of Sponner et al. (2021) as a picture: a column a scenario, the published schedule above, the default below.

Bars are EX cycles stacked by CONV, DEPTH and REQUANT; a mark above each is the whole run with its DMA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import groupby
from typing import TYPE_CHECKING

from experiments.report.charts.style import KINDS as STYLES
from experiments.repro.claims import KINDS, MEMORIES, SCENARIOS, Bar, Bars, Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUBLISHED: Mapping[Scenario, str] = {"none": "figure 4a", "emulated": "figure 4c", "native": "figure 4e"}
"""Panels of the paper, as its text refers to them (docs/figure4.md)."""
ROWS: Mapping[str, str] = {"seed": "published schedule (seed)", "default": "this compiler (default)"}
MILLION = 1e6
GAP = 0.7
NEAR = 0.09
"""Share of the tallest run within which a bar's mark would be covered by the bar's text."""
_DPI = 110


def draw(bars: Mapping[str, Bars]) -> bytes:
    """The picture as PNG; ``bars`` by schedule. Equal bars give equal bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    schedules = [schedule for schedule in ROWS if schedule in bars]
    widths = [max(len(bars[schedule].panel(scenario)) for schedule in schedules) for scenario in SCENARIOS]
    figure = Figure(figsize=(15, 4.4 * len(schedules) + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(
        len(schedules), len(SCENARIOS), squeeze=False, sharey="col", gridspec_kw={"width_ratios": widths}
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
    figure.suptitle("MobileNetV1 1.0/224: EX cycles by subgraph type (Sponner et al. 2021, figure 4)")
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    return stream.getvalue()


def _panel(axes: Axes, bars: Sequence[Bar]) -> None:
    places = _places(bars)
    _stack(axes, bars, places)
    ran = [(place, bar) for place, bar in zip(places, bars, strict=True) if bar.total is not None]
    axes.scatter(
        [place for place, _ in ran], [(bar.total or 0) / MILLION for _, bar in ran], marker="_", s=190, linewidths=2,
        color="black", label="whole run, DMA included", zorder=3,
    )  # fmt: skip
    _value_bars(axes, bars, places)
    _name_bars(axes, bars, places)


def _stack(axes: Axes, bars: Sequence[Bar], places: Sequence[float]) -> None:
    floor = [0.0] * len(bars)
    for kind in KINDS:
        heights = [bar.ex.get(kind, 0) / MILLION for bar in bars]
        style = STYLES[kind]
        thin = kind == "REQUANT"  # some hundredths of the others: its edge shows where it is
        axes.bar(
            places, heights, 0.78, bottom=floor, color=style.color, hatch="" if thin else style.pattern * 2,
            edgecolor=style.color if thin else "white", linewidth=1.2 if thin and any(heights) else 0,
            label=f"{kind} (EX cycles)",
        )  # fmt: skip
        floor = [low + height for low, height in zip(floor, heights, strict=True)]


def _value_bars(axes: Axes, bars: Sequence[Bar], places: Sequence[float]) -> None:
    """The height of every bar above it, or above its mark where that is so near that the text would cover it."""
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
    """Positions with a gap wherever the memory changes."""
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
            MEMORIES[memory], ((inside[0] + inside[-1]) / 2, 0), (0, -34), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="top", fontsize=9.5, fontweight="bold",
        )  # fmt: skip
    axes.set_xlabel("SRAM, processing elements, input- (I) or output-parallel (O)", labelpad=26, fontsize=9)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#DDDDDD")
    axes.margins(y=0.08)
    axes.spines[["top", "right"]].set_visible(False)
