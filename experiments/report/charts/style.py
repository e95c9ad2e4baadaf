"""How charts tell things apart: colours that colour-blind people can tell apart, patterns or markers, labels.

The colours are those of Okabe and Ito, "Color Universal Design" (2008). Print in grey keeps the patterns and markers.
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
