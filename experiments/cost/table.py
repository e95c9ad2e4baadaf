"""Cost tables: TOML files of energies and areas, each figure with its source and process node (docs/energy.md).

And the gates of machines that were synthesised: ``measured-gates.csv``, which ``python -m benchmarks.rtl_area`` writes.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from isa.arch import Arch
from isa.errors import InputError
from isa.reading import file_fault, read_bytes, toml_of

FOLDER = Path(__file__).parent
DEFAULT_TABLE = "horowitz-45nm"
MAXIMUM_BYTES = 1 << 20

Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Sourced(_Part):
    """What every figure says of itself: the process node and the publication it comes from."""

    node: Text
    source: Text


class Energy(Sourced):
    """Picojoules of one event."""

    picojoules: Amount


class Area(Sourced):
    """Square micrometres of one unit."""

    square_micrometres: Amount


class Size(_Part):
    """Picojoules of a byte of a memory with this many bytes."""

    bytes: int = Field(ge=1, le=1 << 40)
    picojoules: Amount


class Cost(NamedTuple):
    """Picojoules, and a note where they are not a figure of the table as it stands; else None."""

    picojoules: float
    note: str | None


class SramEnergy(Sourced):
    """Picojoules of a byte by the size of a bank; ``between`` says what banks of a size between two entries cost."""

    between: Literal["power-law", "next-larger"]
    sizes: tuple[Size, ...] = Field(min_length=1, max_length=1000)

    @field_validator("sizes", mode="before")
    @classmethod
    def _sequence(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("sizes")
    @classmethod
    def _rising(cls, value: tuple[Size, ...]) -> tuple[Size, ...]:
        if any(later.bytes <= size.bytes for size, later in pairwise(value)):
            raise ValueError("the sizes must rise from one entry to the next")
        return value

    def byte(self, bank_bytes: int) -> Cost:
        """What a byte costs in a bank of ``bank_bytes``; outside the entries the nearest is taken, as the note says."""
        first, last = self.sizes[0], self.sizes[-1]
        if bank_bytes < first.bytes:
            return Cost(first.picojoules, _outside(bank_bytes, first, "smaller", "upper"))
        if bank_bytes > last.bytes:
            return Cost(last.picojoules, _outside(bank_bytes, last, "larger", "lower"))
        above = next(size for size in self.sizes if size.bytes >= bank_bytes)
        if above.bytes == bank_bytes:
            return Cost(above.picojoules, None)
        below = [size for size in self.sizes if size.bytes < bank_bytes][-1]
        if self.between == "next-larger":
            return Cost(above.picojoules, f"SRAM banks of {bank_bytes} bytes cost what the table has for {above.bytes}")
        between = _power_law(below, above, bank_bytes)
        note = f"SRAM banks of {bank_bytes} bytes: {between:.4g} pJ a byte by a power law through the table's"
        return Cost(between, f"{note} {below.bytes} and {above.bytes} bytes")


def _outside(bank_bytes: int, nearest: Size, than: str, bound: str) -> str:
    return (
        f"SRAM banks of {bank_bytes} bytes are {than} than any in the table; they cost what it has for "
        f"{nearest.bytes}: {bound} bound"
    )


def _power_law(below: Size, above: Size, nbytes: int) -> float:
    """Linear in the logarithms; where one of the two is free, linear in the size."""
    if not below.picojoules or not above.picojoules:
        share = (nbytes - below.bytes) / (above.bytes - below.bytes)
        return below.picojoules + share * (above.picojoules - below.picojoules)
    exponent = math.log(above.picojoules / below.picojoules) / math.log(above.bytes / below.bytes)
    return below.picojoules * math.exp(exponent * math.log(nbytes / below.bytes))


class Energies(_Part):
    """One int8 multiply-accumulate; a byte of a scratchpad bank; a byte of system memory; one register write."""

    mac: Energy
    sram: SramEnergy
    dram: Energy
    register_write: Energy


class Areas(_Part):
    """One processing element; one KiB of scratchpad; one gate equivalent, for logic that was synthesised."""

    pe: Area
    sram: Area
    gate: Area | None = None


class CostTable(_Part):
    """A cost table. ``name`` is how it was asked for: a built-in name or the file."""

    name: str
    description: str = Field(max_length=1000)
    energy: Energies
    area: Areas


def table_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_table(name: str = DEFAULT_TABLE) -> CostTable:
    """A built-in table or the TOML file ``name``. Raises InputError in one line that names file and key."""
    path = Path(name) if name.endswith(".toml") or "/" in name else FOLDER / f"{name}.toml"
    if fault := file_fault(path):
        fault = "no such cost table" if path.parent == FOLDER else fault
        raise InputError(f"{name}: {fault}; give a .toml file or one of {', '.join(table_names())}")
    remedy = "docs/energy.md shows a whole table"
    content = toml_of(read_bytes(path, MAXIMUM_BYTES, "a cost table", remedy), name, remedy)
    try:
        return CostTable.model_validate({**content, "name": name})
    except ValidationError as error:
        raise InputError(f"{name}: {_problem(error)}; {remedy}") from error


def _problem(error: ValidationError) -> str:
    """The first thing wrong with a table."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{key} is missing"
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    why = first["ctx"]["error"] if first["type"] == "value_error" else str(first["msg"]).removeprefix("Input ")
    return f"{key} is {first['input']!r}: {why}"


MEASURED = FOLDER / "measured-gates.csv"

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
