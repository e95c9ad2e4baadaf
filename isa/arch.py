"""Arch: everything about a machine that changes the program compiled for it.

What changes only cycles (latencies, bandwidths, queue depths) is ``dla_sim.timing.Timing``, which the compiler never
reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

CHANNEL_RECORD_BYTES = {"onnxruntime": 8, "fixed": 12}
"""Bytes of one channel record: int32 bias, then float32 scale, or int32 multiplier and int32 shift."""


def about(default: Any, unit: str, words: str, meaning: str, least: int | None = None, most: int | None = None) -> Any:
    """What a key of a machine is: its default, its unit ("" for words), its name in plain words, its meaning, and the
    values it may have.
    """
    return Field(default, ge=least, le=most, title=words, description=meaning, json_schema_extra={"unit": unit})


class PeArray(BaseModel):
    """The array of processing elements, one int8 multiply-accumulate a cycle each, over three axes.

    Input channels ``ic``, output channels ``oc`` and output columns ``ow`` are processed in parallel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ic: int = about(8, "elements", "PEs over input channels", "input channels in parallel", 1, 65536)
    oc: int = about(8, "elements", "PEs over output channels", "output channels in parallel", 1, 65536)
    ow: int = about(1, "elements", "PEs over output columns", "output columns in parallel", 1, 65536)

    @property
    def count(self) -> int:
        """Number of processing elements N."""
        return self.ic * self.oc * self.ow


class Arch(BaseModel):
    """A machine as the compiler sees it. Sizes are bytes; ``post_lanes`` None means one lane a processing element."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    isa: str = about("v2", "", "instruction set", "instruction set (dla isa)")
    pe: PeArray = PeArray()
    sram_bytes: int = about(512 * 1024, "bytes", "SRAM", "the scratchpad", 64, 1 << 32)
    sram_banks: int = about(16, "banks", "SRAM banks", "equal parts of the scratchpad", 1, 1024)
    alignment: int = about(
        8, "bytes", "alignment of buffers", "granularity of every buffer's address, a power of two", 1, 4096
    )
    row_alignment: int = about(1, "bytes", "alignment of rows", "rows are dense in version 0", 1, 1)
    numerics: Literal["onnxruntime", "fixed"] = about(
        "onnxruntime", "", "numerics", "rounding: as ONNX Runtime's operators, or in integers alone (LiteRT)"
    )
    post_lanes: int | None = about(
        None, "elements/cycle", "post-processing lanes",
        "requantised, added or compared; none: one a processing element", 1, 65536,
    )  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> Arch:
        if self.alignment & (self.alignment - 1):
            raise ValueError(f"alignment is {self.alignment}; it must be a power of two")
        if self.sram_bytes % self.sram_banks:
            raise ValueError(f"sram_bytes {self.sram_bytes} is not a multiple of sram_banks {self.sram_banks}")
        return self

    @property
    def lanes(self) -> int:
        """Post-processing lanes: elements requantised, added or compared in one cycle."""
        return self.pe.count if self.post_lanes is None else self.post_lanes

    @property
    def channel_record_bytes(self) -> int:
        """Bytes of one channel record in memory under this machine's numerics."""
        return CHANNEL_RECORD_BYTES[self.numerics]

    def to_json(self) -> str:
        """Canonical JSON text: sorted keys, no spaces."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the canonical JSON: equal exactly for equal machines."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """All that is no table or list itself, by keys as ``--set`` has them, ``pe.ic``; of lists ``layers.0.cycles``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = {str(number): item for number, item in enumerate(value)} if isinstance(value, list) else value
        found |= flat(inner, f"{prefix}{key}.") if isinstance(inner, Mapping) else {f"{prefix}{key}": value}
    return found
