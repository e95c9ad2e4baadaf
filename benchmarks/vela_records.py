"""CSV records of the comparison with Vela: our points and Vela's estimates."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple, TypeVar

DEDICATED = "dedicated"
SHARED = "shared"
"""Memory modes of Vela: tensors live in system memory, or in the scratchpad."""


class Place(NamedTuple):
    """Network on a machine: array of input by output channels, KiB of scratchpad."""

    network: str
    array: str
    kib: int


@dataclass(frozen=True)
class Point:
    """Simulated cycles, roofline and moved bytes of one network on one machine.

    ``overlapped`` is cycles as Vela counts: every layer the larger of its computation and its bytes
    on the bus.
    """

    cycles: int
    overlapped: int
    roofline: int
    moved_bytes: int


class Setting(NamedTuple):
    """Settings of one Vela run: network, accelerator, scratchpad and memory mode.

    The mode says whether tensors live in the scratchpad or in system memory.
    """

    network: str
    accelerator: str
    kib: int
    mode: str


@dataclass(frozen=True)
class Estimate:
    """Vela's estimate for one network: cycles, scratchpad use, moved bytes and weight sizes.

    ``map_bytes`` are moved bytes of feature maps, ``constant_bytes`` those of constants,
    ``stored_bytes`` constants as stored; weights are before and after compression.
    """

    sram_bytes: int
    cycles: int
    map_bytes: int
    constant_bytes: int
    stored_bytes: int
    weights: int
    encoded_weights: int

    @property
    def moved_bytes(self) -> int:
        """Bytes of feature maps and constants that cross the bus."""
        return self.map_bytes + self.constant_bytes

    @property
    def unpacked_bytes(self) -> int:
        """Bytes that would cross the bus if Vela did not compress weights.

        Constants are moved as often, and are as much larger.

        They are moved once at least, though Vela's account leaves out a softmax's table of 1,024
        bytes.
        """
        plain = self.stored_bytes - self.encoded_weights + self.weights
        return self.map_bytes + round(max(self.constant_bytes / self.stored_bytes, 1.0) * plain)


Points = dict[Place, Point]
Estimates = dict[Setting, Estimate]
Key = TypeVar("Key", Place, Setting)
Row = TypeVar("Row", Point, Estimate)


def read_record(path: Path, key: type[Key], row: type[Row]) -> dict[Key, Row]:
    """Read the rows of a CSV record by key, in the order of the file."""
    with path.open(newline="") as file:
        return {
            key(*(int(cells[name]) if name == "kib" else cells[name] for name in key._fields)): row(
                **{field.name: int(cells[field.name]) for field in fields(row)}
            )
            for cells in csv.DictReader(file)
        }


def write_record(path: Path, rows: Mapping[Key, Row]) -> None:
    """Write rows to a CSV record, sorted by key."""
    first, row = next(iter(rows.items()))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*first._fields, *asdict(row)))
        writer.writerows((*key, *asdict(rows[key]).values()) for key in sorted(rows))
