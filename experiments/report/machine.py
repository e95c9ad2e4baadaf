"""Entry of a run report about a described machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from experiments.report.parts import LARGEST_COUNT, Part, Text, Word

ABSENT = {
    "": ("arch", "timing", "bus", "memory_mode", "schedule", "kinds", "ex_cycles", "compile"),
    "totals": (
        "utilization", "lower_bound_cycles", "roofline_cycles", "dram_read_bytes",
        "dram_write_bytes", "flash_read_bytes", "sram_peak_bytes", "instructions",
    ),
    "layers": (
        "utilization", "dram_read_bytes", "dram_write_bytes", "tiles", "stalls", "group",
        "estimate", "energy_pj",
    ),
}  # fmt: skip
"""Fields of a report that a described machine may lack, by the part of the report."""


class DescribedMachine(Part):
    """Name, kind and parameters of a described machine.

    ``validated`` is whether the machine agrees with published figures to which nothing was fitted.
    """

    name: Word
    kind: Literal["closed form", "event-driven"]
    summary: Text
    validated: bool
    clock_hz: int = Field(ge=1, le=LARGEST_COUNT)
    parameters: Mapping[Word, int | float | Word | None]

    @property
    def label(self) -> str:
        """Name and kind, and whether the description is not validated."""
        return f"{self.name} ({self.kind}{'' if self.validated else ', not validated'})"

    def message(self) -> str:
        """Return one line with summary and kind."""
        return f"{self.summary}; {self.kind}{'' if self.validated else ', not validated'}"


def drop_absent(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a report without the fields that its machine lacks."""
    if content.get("machine") is None:
        return {key: value for key, value in content.items() if key != "machine"}
    content = _drop(content, ABSENT[""])
    content["totals"] = _drop(content["totals"], ABSENT["totals"])
    content["layers"] = [_drop(layer, ABSENT["layers"]) for layer in content["layers"]]
    return content


def _drop(part: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return a part of a report without the fields of ``names`` that are None or empty."""
    return {
        key: value for key, value in part.items() if key not in names or value not in (None, {})
    }
