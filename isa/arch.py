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


class PeArray(BaseModel):
    """The array of processing elements, one int8 multiply-accumulate a cycle each, over three axes.

    Input channels ``ic``, output channels ``oc`` and output columns ``ow`` are processed in parallel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ic: int = Field(default=8, ge=1, le=65536)
    oc: int = Field(default=8, ge=1, le=65536)
    ow: int = Field(default=1, ge=1, le=65536)

    @property
    def count(self) -> int:
        """Number of processing elements N."""
        return self.ic * self.oc * self.ow


class Arch(BaseModel):
    """A machine as the compiler sees it. Sizes are bytes; ``post_lanes`` None means one lane a processing element."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    isa: str = "v2"
    pe: PeArray = PeArray()
    sram_bytes: int = Field(default=512 * 1024, ge=64, le=1 << 32)
    sram_banks: int = Field(default=16, ge=1, le=1024)
    alignment: int = Field(default=8, ge=1, le=4096, description="address granularity of every buffer, bytes")
    row_alignment: int = Field(default=1, ge=1, le=1, description="rows are dense in version 0")
    numerics: Literal["onnxruntime", "fixed"] = "onnxruntime"
    post_lanes: int | None = Field(default=None, ge=1, le=65536)

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
