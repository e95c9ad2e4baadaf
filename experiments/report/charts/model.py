"""Charts as data: what is on them, and how things on them are told apart, whoever draws them: plotly or matplotlib.

Colours that colour-blind people can tell apart, those of Okabe and Ito, "Color Universal Design" (2008); patterns or
markers, which print in grey keeps; labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT = "#999999", "#DDDDDD"

Pattern = Literal["", "/", "\\", "x", "-", "|", "+", "."]
Marker = Literal["circle", "square", "diamond", "triangle-up", "x", "star", "pentagon", "cross", "triangle-down"]

LONGEST_LABEL = 34


@dataclass(frozen=True)
class Style:
    """Colour of bars, lines and markers; pattern of bars, in the letters that plotly and matplotlib share; markers."""

    color: str
    pattern: Pattern = ""
    marker: Marker = "circle"

    @property
    def text(self) -> str:
        """The colour of a text on it that can be read: the one of black and white with more contrast."""
        return "#FFFFFF" if self.color in (BLACK, BLUE) else BLACK


PARTS: dict[str, Style] = {
    "compute": Style(BLUE),
    "scratchpad": Style(PURPLE, "."),
    "weights": Style(ORANGE, "/"),
    "input": Style(SKY, "\\"),
    "bus": Style(VERMILION, "x"),
    "store": Style(GREEN, "-"),
    "issue": Style(GREY, "|"),
}
"""What a layer's cycles went into."""

KINDS: dict[str, Style] = {
    "CONV": Style(BLUE, "", "circle"),
    "DEPTH": Style(ORANGE, "/", "square"),
    "REQUANT": Style(GREEN, "-", "diamond"),
    "MATMUL": Style(VERMILION, "x", "triangle-up"),
    "POOL": Style(SKY, "\\", "x"),
    "ELTWISE": Style(PURPLE, ".", "star"),
    "ACT": Style(YELLOW, "+", "pentagon"),
    "DMA": Style(GREY, "|", "cross"),
    "ISSUE": Style(BLACK, "", "triangle-down"),
}
"""What a layer does."""

CAUSES: dict[str, Style] = {
    "busy": Style(BLUE),
    "token_LD": Style(ORANGE, "/"),
    "token_EX": Style(SKY, "\\"),
    "token_ST": Style(GREEN, "-"),
    "bus": Style(VERMILION, "x"),
    "dram": Style(PURPLE, "."),
    "flash": Style(BLACK, "+"),
    "sram": Style(YELLOW, "+"),
    "queue_empty": Style(GREY, "|"),
    "drained": Style(LIGHT),
}
"""Why a cycle of a unit went by. There is a pattern for eight: LD and ST alone wait for the flash, EX for the SRAM."""

PLACES: dict[str, tuple[str, Style]] = {
    "dla": ("accelerator", Style(BLUE)),
    "cpu": ("CPU", Style(VERMILION, "x")),
    "transfer": ("transfers", Style(GREY, "|")),
}
"""Where a stretch of a run takes place."""

READ, WRITTEN = Style(SKY, "\\"), Style(VERMILION, "x")
FIRST, SECOND = Style(GREY, "", "circle"), Style(BLUE, "/", "square")
FASTER, SLOWER = Style(GREEN, "-"), Style(VERMILION, "x")

UNKNOWN = Style(BLACK, "", "cross")
"""For a name that a newer version may write."""


def shortened(label: str, longest: int = LONGEST_LABEL) -> str:
    """``label`` with its middle left out where it is too long for an axis; both ends tell layers apart."""
    if len(label) <= longest:
        return label
    front = (longest - 1) // 2
    return f"{label[:front]}…{label[-(longest - 1 - front) :]}"


CYCLES = "cycles"
"""The unit of numbers of any size; those of others are made short by the choice of the unit."""


@dataclass(frozen=True)
class Series:
    """Values of one name, one for each row of the chart."""

    name: str
    values: tuple[float, ...]
    style: Style


@dataclass(frozen=True)
class Bars:
    """A row a label, a bar a row; the series stand beside one another along it, or below each other (``grouped``).

    ``axis`` names the values' axis with its unit. ``identity`` is an HTML id and the name of a picture. ``layers``: the
    rows are the report's layers, in order. ``limit``: the end of the axis where it is fixed. ``unit`` follows a value.
    ``note`` says how to read the chart. ``signed``: bars are as long as the values are large, all from the labels on,
    and the values stand at their ends with their signs. ``parts``: of each row they can be shown in per cent.
    """

    identity: str
    title: str
    axis: str
    unit: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    layers: bool = True
    grouped: bool = False
    limit: float | None = None
    note: str = ""
    signed: bool = False
    parts: bool = False


@dataclass(frozen=True)
class Mark:
    """A point of the roofline: one layer, by its number. ``note`` says where it would be if it had no place on it."""

    layer: int
    label: str
    intensity: float
    rate: float
    note: str = ""


@dataclass(frozen=True)
class Roofline:
    """MACs per cycle over MACs per byte of DRAM traffic, both logarithmic, under the machine's two roofs.

    ``marks``: by kind. ``macs_per_cycle`` and ``bytes_per_cycle`` are the roofs; ``corner`` is the lower left corner.
    """

    identity: str
    title: str
    marks: tuple[tuple[str, Style, tuple[Mark, ...]], ...]
    macs_per_cycle: float
    bytes_per_cycle: float
    corner: tuple[float, float]
    end: float
    note: str


@dataclass(frozen=True)
class Steps:
    """Levels over time in ``unit``, each constant for ``width`` cycles; ``limits``: horizontal lines by name.

    ``axis`` names the levels, ``across`` the time; ``marks``: vertical lines by name.
    """

    identity: str
    title: str
    width: float
    total: int
    series: tuple[Series, ...]
    limits: tuple[tuple[str, float], ...]
    unit: str
    note: str
    axis: str = "live bytes"
    across: str = "time (cycles)"
    marks: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Span:
    """Time on one row, from ``begin`` on for ``cycles``."""

    row: int
    begin: int
    cycles: int
    label: str


@dataclass(frozen=True)
class Spans:
    """What happens when: a row a place, each with its name and style, and the stretches of time on it."""

    identity: str
    title: str
    rows: tuple[tuple[str, Style], ...]
    spans: tuple[Span, ...]
    total: int
    note: str


@dataclass(frozen=True)
class Activity:
    """What somebody does for ``active`` of the cycles from ``begin`` to ``end``: so many ``commands``.

    ``group`` is the place of its style among those of the chart; ``layer`` that of the layer that it is for; -1: none.
    """

    begin: int
    end: int
    active: int
    commands: int
    group: int
    label: str
    layer: int = -1


@dataclass(frozen=True)
class Gantt:
    """What everybody does over time: a row a unit. ``groups``: names and styles of kinds of activities.

    ``noun``: what is counted by ``commands`` of an activity, where that is neither commands nor nodes.
    """

    identity: str
    title: str
    groups: tuple[tuple[str, Style], ...]
    rows: tuple[tuple[str, tuple[Activity, ...]], ...]
    total: int
    note: str
    noun: str = ""


Chart = Bars | Roofline | Steps | Spans | Gantt
"""What pages and pictures draw."""


@dataclass(frozen=True)
class Measure:
    """An axis of numbers: its title, the unit that they are written in, and whether it is logarithmic."""

    title: str
    unit: str
    log: bool


Place = tuple[float, float]


@dataclass(frozen=True)
class Scatter:
    """Points over two measures, by name and style in ``groups``, and the line of those that none beats."""

    identity: str
    title: str
    across: Measure
    up: Measure
    groups: tuple[tuple[str, Style, tuple[Place, ...]], ...]
    front: tuple[Place, ...]


@dataclass(frozen=True)
class Heat:
    """A value for each of ``rows`` and ``columns``, less being better; None where there is none."""

    identity: str
    title: str
    across: str
    up: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Parallel:
    """An axis a column, with its title and ticks, and a line a point: where it stands on each, from 0 to 1.

    ``lines``: the worst first; ``front`` are those that no other beats.
    """

    identity: str
    title: str
    axes: tuple[tuple[str, tuple[tuple[float, str], ...]], ...]
    lines: tuple[tuple[float, ...], ...]
    front: tuple[tuple[float, ...], ...]


Picture = Chart | Scatter | Heat | Parallel
"""What pictures draw; where the reader chooses what is drawn, pages have the columns, and scripts draw."""
