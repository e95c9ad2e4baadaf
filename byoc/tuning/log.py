"""Tuning log: one JSON object a line for each measurement, appended at once.

A search can resume from it. The first line describes the network and the settings. Every further
line is a schedule and its cycles. The log contains no times of day, so the same search writes the
same bytes. An interrupted search leaves at most one incomplete last line. Readers ignore it, and a
resumed search removes it.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from byoc.options import Choices, CompileOptions, from_json, to_json
from byoc.tuning.subject import Measurement
from isa.errors import InputError
from isa.reading import json_of, read_bytes

MAXIMUM_BYTES = 1 << 28
_REMEDY = "give a file that 'dla tune' wrote"

Count = Annotated[int, Field(ge=0)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def text(self) -> str:
        return (
            json.dumps(self.model_dump(by_alias=True), separators=(",", ":"), ensure_ascii=False)
            + "\n"
        )


class LoggedSite(_Line):
    """A layer of the tuned network: its class, and the sizes that tilings divide."""

    layer: str
    kind: str
    channels: Annotated[int, Field(ge=1)]
    rows: Annotated[int, Field(ge=1)]
    inputs: Annotated[int, Field(ge=1)]


class TuningHeader(_Line):
    """Tuned network: digests of package, machine, Timing and compiler, and the compiler's options.

    ``search`` has the settings that decide which schedules are tried.
    """

    schema_: Literal["dla-tune/1"] = Field(alias="schema")
    network: str
    package: str
    machine: str
    timing: str
    compiler: str
    options: str
    search: dict[str, int | bool | list[str]]
    layers: list[LoggedSite]


class _Measured(_Line):
    measurement: int
    cycles: Annotated[int, Field(ge=1)] | None
    sites: list[Count]
    schedule: dict[str, Any]


Line = TypeVar("Line", bound=_Line)


@dataclass(frozen=True)
class MeasuredSchedule:
    """A schedule and its measured cycles."""

    choices: Choices
    measurement: Measurement

    def text(self, number: int) -> str:
        """Return the log line of measurement ``number``, counted from 1."""
        cycles = self.measurement.cycles
        sites = list(self.measurement.sites)
        return _Measured(
            measurement=number, cycles=cycles, sites=sites, schedule=to_json(self.choices)
        ).text()


@dataclass(frozen=True)
class TuningLog:
    """Content of a tuning log."""

    path: Path
    header: TuningHeader
    records: tuple[MeasuredSchedule, ...]

    @property
    def best(self) -> MeasuredSchedule:
        """First of the log's schedules with the fewest cycles.

        Raise InputError if there is none.
        """
        placed = [record for record in self.records if record.measurement.cycles is not None]
        if not placed:
            raise InputError(
                f"{self.path}: nothing was measured yet; let 'dla tune' finish a measurement"
            )
        return min(placed, key=lambda record: record.measurement.cycles or 0)


def read_log(path: Path) -> TuningLog:
    """Read a tuning log and ignore an incomplete last line.

    Raises InputError naming the line for other errors.
    """
    header, *lines = _whole_lines(path) or [b""]
    if not header:
        raise InputError(f"{path}: it has not one whole line; {_REMEDY}")
    read = _parse_line(TuningHeader, header, f"{path}, line 1")
    records = tuple(_record(line, number, read, path) for number, line in enumerate(lines, start=1))
    return TuningLog(path, read, records)


def mend(path: Path) -> None:
    """Remove an incomplete last line from a tuning log."""
    whole = sum(len(line) + 1 for line in _whole_lines(path))
    if whole < path.stat().st_size:
        with path.open("r+b") as file:
            file.truncate(whole)


def load_tuned(path: Path, options: CompileOptions, compiler: str) -> Choices:
    """Return the best schedule of a tuning log.

    Raises InputError if its options or compiler digest differ.
    """
    log = read_log(path)
    header = log.header
    given = " ".join(options.words)
    source = f"--tuned {path}"
    if header.options != given:
        raise InputError(
            f"{source}: tuned with the options '{header.options}', these are "
            f"'{given}'; give the same"
        )
    if header.compiler != compiler:
        raise InputError(
            f"{source}: tuned by compiler {header.compiler}, this is {compiler}; "
            "run dla tune again, or import the log with --from"
        )
    words = ("--tuned", str(path))
    return replace(log.best.choices, package=header.package, machine=header.machine, words=words)


def difference(logged: TuningHeader, wanted: TuningHeader) -> str | None:
    """Return a message with the first difference between two tuning logs' headers.

    It contains both values. Returns None if they are equal.
    """
    old, new = (
        header.model_dump(exclude={"search"}) | header.search for header in (logged, wanted)
    )
    for name, value in new.items():
        if old.get(name) != value:
            return (
                "it is of other layers"
                if name == "layers"
                else f"{name} was {old.get(name)!r} and is {value!r}"
            )
    return None


def _whole_lines(path: Path) -> list[bytes]:
    return read_bytes(path, MAXIMUM_BYTES, "a tuning log", _REMEDY).split(b"\n")[:-1]


def _parse_line(kind: type[Line], line: bytes, source: str) -> Line:
    value = json_of(line, source, "a line of a tuning log", _REMEDY)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise InputError(f"{source}: {place}: {problem['msg']}; {_REMEDY}") from error


def _record(line: bytes, number: int, header: TuningHeader, path: Path) -> MeasuredSchedule:
    source = f"{path}, line {number + 1}"
    found = _parse_line(_Measured, line, source)
    choices = from_json(found.schedule, source)
    names = [choice.layer for choice in choices.layers]
    whole = all(value is not None for choice in choices.layers for value in vars(choice).values())
    open_ = not whole or choices.residents is None or choices.groups is None
    if open_ or names != [site.layer for site in header.layers]:
        raise InputError(
            f"{source}: its schedule is not of all layers in line 1; remove this line "
            "and all that follow"
        )
    if found.measurement != number or len(found.sites) != (
        0 if found.cycles is None else len(names)
    ):
        raise InputError(
            f"{source}: not measurement {number}; remove this line and all that follow"
        )
    return MeasuredSchedule(choices, Measurement(found.cycles, tuple(found.sites)))
