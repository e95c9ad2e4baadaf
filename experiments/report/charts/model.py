"""Charts as data, independent of the library that draws them: plotly.js or matplotlib.

Colours are those of Okabe and Ito, "Color Universal Design" (2008), which colour-blind people can
distinguish. Patterns, markers and labels distinguish things in grey prints as well.
"""

from dataclasses import dataclass
from typing import Literal

from experiments.report.memory import MemoryBlock

BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
BROWN = "#9A5B13"
GREY = "#999999"
DARK_GREY = "#666666"
LIGHT = "#DDDDDD"

Pattern = Literal["", "/", "\\", "x", "-", "|", "+", "."]
Marker = Literal[
    "circle", "square", "diamond", "triangle-up", "x", "star", "pentagon", "cross", "triangle-down"
]

LONGEST_LABEL = 34


@dataclass(frozen=True)
class Style:
    """Style of a series: colour, bar pattern and marker.

    The pattern uses the letters that plotly and matplotlib share.
    """

    color: str
    pattern: Pattern = ""
    marker: Marker = "circle"

    @property
    def text(self) -> str:
        """Colour of readable text on this style: black or white, whichever has more contrast."""
        return "#FFFFFF" if self.color in (BLACK, BLUE, BROWN, DARK_GREY) else BLACK


PARTS: dict[str, Style] = {
    "compute": Style(BLUE),
    "scratchpad": Style(PURPLE, "."),
    "weights": Style(ORANGE, "/"),
    "input": Style(SKY, "\\"),
    "bus": Style(VERMILION, "x"),
    "store": Style(GREEN, "-"),
    "issue": Style(GREY, "|"),
}
"""Styles of the parts of a layer's cycles."""

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
"""Styles of the kinds of layers."""

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
"""Styles of the causes of a unit's cycles.

There are only eight patterns. Flash and SRAM share one: only LD and ST wait for the flash, only EX
for the SRAM.
"""

PLACES: dict[str, tuple[str, Style]] = {
    "dla": ("accelerator", Style(BLUE)),
    "cpu": ("CPU", Style(BROWN, "x")),
    "transfer": ("transfers", Style(DARK_GREY, "|")),
}
"""Names and styles of the places where parts of a run take place.

CPU and transfers have colours of their own, because the timeline also shows kinds of layers.
"""

ROLES: dict[str, Style] = {
    "weights": Style(ORANGE, "/"),
    "input": Style(SKY, "\\"),
    "result": Style(GREEN, "-"),
}
"""Styles of the tensors in the scratchpad."""

READ, WRITTEN = Style(SKY, "\\"), Style(VERMILION, "x")
FIRST, SECOND = Style(GREY, "", "circle"), Style(BLUE, "/", "square")
FASTER, SLOWER = Style(GREEN, "-"), Style(VERMILION, "x")

UNKNOWN = Style(BLACK, "", "cross")
"""Style of a name that only a newer version knows."""


def shorten_label(label: str, longest: int = LONGEST_LABEL) -> str:
    """Return ``label`` without its middle if it is too long for an axis.

    Both ends distinguish layers.
    """
    if len(label) <= longest:
        return label
    front = (longest - 1) // 2
    return f"{label[:front]}…{label[-(longest - 1 - front) :]}"


TIME = "time (cycles)"
"""Title of the axis of charts over time."""
CYCLES = "cycles"
"""Unit of numbers of any size.

For other units, the unit itself is chosen so that numbers are short.
"""


@dataclass(frozen=True)
class Series:
    """Named series of a chart, with one value for each row."""

    name: str
    values: tuple[float, ...]
    style: Style


@dataclass(frozen=True)
class BarChart:
    """Bar chart with a row per label.

    The series are stacked along a row or, if ``grouped``, below each other.

    Attributes:
        identity: HTML id, and name of the image file.
        axis: title of the value axis, with its unit.
        unit: text after a value.
        layers: True if the rows are the report's layers, in order.
        limit: end of the value axis if it is fixed.
        note: text that says how to read the chart.
        signed: values can be negative, and are written at the ends of the bars.
        marks: vertical lines by name, such as a limit.
        parts: True if the bars of a row can also be shown in per cent of the row.
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
    marks: tuple[tuple[str, float], ...] = ()
    parts: bool = False


@dataclass(frozen=True)
class Mark:
    """Point of one layer in a roofline chart; ``layer`` is the layer's number.

    ``note`` explains the place of a layer outside the axes.
    """

    layer: int
    label: str
    intensity: float
    rate: float
    note: str = ""


@dataclass(frozen=True)
class Roofline:
    """Roofline chart: MACs per cycle over MACs per byte of DRAM traffic, both logarithmic.

    ``marks`` are grouped by kind. ``macs_per_cycle`` and ``bytes_per_cycle`` are the two roofs of
    the machine. ``corner`` is the lower left corner.
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
class StepChart:
    """Step chart of levels over time.

    ``times`` has the first cycle of each level, and last the end. ``axis`` names the levels,
    ``across`` the time. ``limits`` are horizontal lines by name, ``marks`` vertical lines.
    """

    identity: str
    title: str
    times: tuple[float, ...]
    series: tuple[Series, ...]
    limits: tuple[tuple[str, float], ...]
    unit: str
    note: str
    axis: str = "live bytes"
    across: str = TIME
    marks: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class UnitActivity:
    """Activity of a unit between two points in time, for a Gantt chart.

    Its ``commands`` take ``active`` of these cycles. ``group`` is the index of its style in the
    groups of the chart. ``layer`` is the number of its layer; -1 if none.
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
    """Gantt chart: activities over time, a row per unit.

    ``groups`` are the names and styles of kinds of activities. ``noun`` names what an activity's
    ``commands`` count, if that is neither commands nor nodes.
    """

    identity: str
    title: str
    groups: tuple[tuple[str, Style], ...]
    rows: tuple[tuple[str, tuple[UnitActivity, ...]], ...]
    total: int
    note: str
    noun: str = ""


@dataclass(frozen=True)
class MemoryChart:
    """Memory map over time: a rectangle for each block of bytes, with its label.

    The highest address on the axis is ``top``.
    """

    identity: str
    title: str
    blocks: tuple[tuple[str, MemoryBlock], ...]
    total: int
    top: int
    note: str


Chart = BarChart | Roofline | StepChart | Gantt | MemoryChart
"""Charts that pages and images draw."""


@dataclass(frozen=True)
class Measure:
    """Axis of a chart: title, unit of its numbers, and whether it is logarithmic."""

    title: str
    unit: str
    log: bool


Place = tuple[float, float]


@dataclass(frozen=True)
class Scatter:
    """Scatter chart over two measures, with named groups of points and a Pareto front."""

    identity: str
    title: str
    across: Measure
    up: Measure
    groups: tuple[tuple[str, Style, tuple[Place, ...]], ...]
    front: tuple[Place, ...]


Picture = Chart | Scatter
"""Charts that images draw.

In pages the reader chooses the contents of scatter charts, so pages have the columns and their
scripts draw.
"""
