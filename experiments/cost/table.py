"""Cost tables: TOML files of energies and areas (docs/energy.md).

Each figure has its source and process node. The module also reads ``measured-gates.csv``, the gates
of synthesised machines, which ``python -m benchmarks.rtl_area`` writes.
"""

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


class _TablePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Sourced(_TablePart):
    """Base class of cost figures: process node and publication that a figure comes from."""

    node: Text
    source: Text


class Energy(Sourced):
    """Energy of one event, in picojoules."""

    picojoules: Amount


class Area(Sourced):
    """Area of one unit, in square micrometres."""

    square_micrometres: Amount


class Size(_TablePart):
    """Energy per byte of a memory with ``bytes`` bytes, in picojoules."""

    bytes: int = Field(ge=1, le=1 << 40)
    picojoules: Amount


class EnergyCost(NamedTuple):
    """Energy in picojoules, with a note if it was derived.

    ``note`` says how it was derived if the table has no entry for it, else it is None.
    """

    picojoules: float
    note: str | None


class SramEnergy(Sourced):
    """Energy per byte of a scratchpad bank, by the size of the bank.

    ``between`` selects the energy of a size between two entries: a power law through both, or the
    next larger entry.
    """

    between: Literal["power-law", "next-larger"]
    sizes: tuple[Size, ...] = Field(min_length=1, max_length=1000)

    @field_validator("sizes", mode="before")
    @classmethod
    def _sequence(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("sizes")
    @classmethod
    def _check_rising(cls, value: tuple[Size, ...]) -> tuple[Size, ...]:
        if any(later.bytes <= size.bytes for size, later in pairwise(value)):
            raise ValueError("the sizes must rise from one entry to the next")
        return value

    def byte(self, bank_bytes: int) -> EnergyCost:
        """Return the energy per byte of a scratchpad bank of ``bank_bytes`` bytes.

        A size outside the table gets the energy of the nearest entry, and a note that says so.
        """
        first = self.sizes[0]
        last = self.sizes[-1]
        if bank_bytes < first.bytes:
            return EnergyCost(
                first.picojoules, _explain_outside(bank_bytes, first, "smaller", "upper")
            )
        if bank_bytes > last.bytes:
            return EnergyCost(
                last.picojoules, _explain_outside(bank_bytes, last, "larger", "lower")
            )
        above = next(size for size in self.sizes if size.bytes >= bank_bytes)
        if above.bytes == bank_bytes:
            return EnergyCost(above.picojoules, None)
        below = [size for size in self.sizes if size.bytes < bank_bytes][-1]
        if self.between == "next-larger":
            return EnergyCost(
                above.picojoules,
                f"SRAM banks of {bank_bytes} bytes cost what the table has for {above.bytes}",
            )
        between = _power_law(below, above, bank_bytes)
        note = (
            f"SRAM banks of {bank_bytes} bytes: {between:.4g} pJ a byte by a power law through the "
            "table's"
        )
        return EnergyCost(between, f"{note} {below.bytes} and {above.bytes} bytes")


def _explain_outside(bank_bytes: int, nearest: Size, than: str, bound: str) -> str:
    return (
        f"SRAM banks of {bank_bytes} bytes are {than} than any in the table; they cost what it "
        f"has for {nearest.bytes}: {bound} bound"
    )


def _power_law(below: Size, above: Size, nbytes: int) -> float:
    """Interpolate the energy per byte between two memory sizes by a power law.

    If one of the two energies is 0, linearly in the size.
    """
    if not below.picojoules or not above.picojoules:
        share = (nbytes - below.bytes) / (above.bytes - below.bytes)
        return below.picojoules + share * (above.picojoules - below.picojoules)
    exponent = math.log(above.picojoules / below.picojoules) / math.log(above.bytes / below.bytes)
    return below.picojoules * math.exp(exponent * math.log(nbytes / below.bytes))


class Energies(_TablePart):
    """Energy costs of a multiply-accumulate, of memory traffic and of a register write.

    They are energies of one int8 multiply-accumulate, one scratchpad byte, one system memory byte
    and one register write.
    """

    mac: Energy
    sram: SramEnergy
    dram: Energy
    register_write: Energy


class Areas(_TablePart):
    """Area costs of a processing element, of scratchpad memory and of a logic gate.

    They are areas of one processing element, one KiB of scratchpad and one gate equivalent.
    """

    pe: Area
    sram: Area
    gate: Area | None = None


class CostTable(_TablePart):
    """Table of energy and area costs.

    ``name`` is the built-in name or the file that was requested.
    """

    name: str
    description: str = Field(max_length=1000)
    energy: Energies
    area: Areas


def area_note(table: str) -> str:
    """Return the parts of a machine that its estimated area includes, and parts that it lacks."""
    return (
        f"mm² (estimate by {table}): processing elements and scratchpad; not included: the bus, "
        "the host CPU, control, requantisation"
    )


def table_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_table(name: str = DEFAULT_TABLE) -> CostTable:
    """Load the built-in cost table ``name`` or the TOML file of that name.

    Raise InputError, which names file and key, if it is invalid.
    """
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
    """Describe the first validation error of a cost table."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{key} is missing"
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    why = (
        first["ctx"]["error"]
        if first["type"] == "value_error"
        else str(first["msg"]).removeprefix("Input ")
    )
    return f"{key} is {first['input']!r}: {why}"


MEASURED = FOLDER / "measured-gates.csv"

Key = tuple[int, int, int, int, str]


class SynthesisedGates(BaseModel):
    """Gates of one synthesised machine by Yosys (``dla_sim.rtl.synthesis``).

    They cover data path and control without memories. ``machine`` is a preset and the differences
    from it. ``gates`` are gate equivalents and include the flip-flops of ``registers``. ``levels``
    is the logic depth of ``deepest``, the component with the longest path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

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
        """Machine properties that determine the number of gates.

        Machines with equal keys have equal gates.
        """
        return self.ic, self.oc, self.ow, self.lanes, self.numerics


def read_measured(path: Path = MEASURED) -> list[SynthesisedGates]:
    """Read the measured gate counts of synthesised machines from a CSV file, in file order."""
    with open(path, encoding="utf-8", newline="") as file:
        return [SynthesisedGates.model_validate(row) for row in csv.DictReader(file)]


@cache
def _index_by_key() -> Mapping[Key, SynthesisedGates]:
    return {row.key: row for row in read_measured()}


def find_measured(arch: Arch) -> SynthesisedGates | None:
    """Return the committed measurement of a machine's logic, or None if there is none.

    Array, lanes and numerics of the machine select the measurement. There is none for a machine
    with banked memory, because no hardware exists for it.
    """
    if not arch.memory.has_rtl:
        return None
    return _index_by_key().get((arch.pe.ic, arch.pe.oc, arch.pe.ow, arch.lanes, arch.numerics))
