"""Gates of machines that were synthesised: ``measured-gates.csv``, which ``python -m benchmarks.rtl_area`` writes."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from isa.arch import Arch

MEASURED = Path(__file__).parent / "measured-gates.csv"

Key = tuple[int, int, int, int, str]


class Measured(BaseModel):
    """A machine, and what Yosys made of it: data path and control without memories (``dla_sim.rtl.synthesis``).

    ``machine``: a preset, and how the machine differs from it. ``gates`` are gate equivalents, the flip-flops of
    ``registers`` among them; ``levels`` those of ``deepest``, the component with the longest path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: str
    ic: int
    oc: int
    ow: int
    lanes: int
    numerics: str
    gates: int
    registers: int
    memory_bits: int
    levels: int
    deepest: str
    yosys: str

    @property
    def key(self) -> Key:
        """What a machine must have in common with it to have its gates: the sizes that gates grow with."""
        return self.ic, self.oc, self.ow, self.lanes, self.numerics


def read_measured(path: Path = MEASURED) -> list[Measured]:
    """The rows of a table, in its order."""
    with open(path, encoding="utf-8", newline="") as file:
        return [Measured.model_validate(row) for row in csv.DictReader(file)]


@cache
def _by_key() -> Mapping[Key, Measured]:
    return {row.key: row for row in read_measured()}


def measured(arch: Arch) -> Measured | None:
    """The committed measurement of a machine with this array, these lanes and numerics; None where there is none."""
    return _by_key().get((arch.pe.ic, arch.pe.oc, arch.pe.ow, arch.lanes, arch.numerics))
