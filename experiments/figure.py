"""What a figure is, and how it is written: each is declared once, in the annotation of a field of a record, and asked.

A record is a pydantic model: ``cycles: Annotated[int, Figure("cycles", "cycles", "less", added("cycles"))]``. Reports,
tables, pages, comparisons, columns, constraints and objectives of sweeps and CSV heads follow from :func:`figures_of`.
Sizes are written in powers of 1,024, everything else in powers of 1,000; a test holds pages, which do it in
``charts/words.js``, to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dla_sim.timing import Timing
from isa.arch import Arch

SHARE = "0 to 1"
"""The unit of fractions."""


class Machine(NamedTuple):
    """What figures come out of beside counts."""

    arch: Arch
    timing: Timing


Parts = Sequence[Any]
"""The regions of a run or of a point of a sweep, one after another, or a layer alone: their counts are attributes."""


@dataclass(frozen=True)
class Figure:
    """A figure. ``unit`` is empty where there is none; ``better``: whether a machine with less or with more is.

    ``of``: how it comes out of a machine and of its :data:`Parts`; None where whoever fills the record knows it.
    ``heading`` stands above a column of a table, by default the words. ``goal`` is its name among objectives, by
    default made of ``name``; ``shown`` the unit there, and how many of it one of the figure's is; ``estimate`` that it
    is one. ``name`` and ``kind`` come from the field.
    """

    words: str
    unit: str = ""
    better: Literal["less", "more", ""] = ""
    of: Callable[[Machine, Parts], Any] | None = None
    heading: str = ""
    goal: str = ""
    shown: tuple[str, float] | None = None
    estimate: bool = False
    name: str = ""
    kind: type = int

    @property
    def head(self) -> str:
        """What stands above a column."""
        return self.heading or self.words


class Counts:
    """A part whose counts are attributes of ``sources``, the first that has one, or given by name."""

    def __init__(self, *sources: object, **known: object) -> None:
        self._sources = sources
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        for source in self._sources:
            if hasattr(source, name):
                return getattr(source, name)
        raise AttributeError(f"no count '{name}' is known")


@cache
def figures_of(record: type[BaseModel]) -> tuple[Figure, ...]:
    """The figures that a record's fields declare, in their order."""
    return tuple(found for name, field in record.model_fields.items() if (found := _declared(name, field)) is not None)


def _declared(name: str, field: FieldInfo) -> Figure | None:
    for item in field.metadata:
        if isinstance(item, Figure):
            return replace(item, name=item.name or name, kind=float if _is_float(field.annotation) else int)
    return None


def _is_float(annotation: Any) -> bool:
    return annotation is float or any(_is_float(part) for part in get_args(annotation))


def all_figures(record: type[BaseModel]) -> Iterator[Figure]:
    for name, field in record.model_fields.items():
        found = _declared(name, field)
        if found is not None:
            yield found
            continue
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from all_figures(kind)


def values_of(record: BaseModel) -> Iterator[tuple[Figure, Any]]:
    for name, field in type(record).model_fields.items():
        found, value = _declared(name, field), getattr(record, name)
        if found is not None:
            yield found, value
        elif isinstance(value, BaseModel):
            yield from values_of(value)


def measured(record: type[BaseModel], machine: Machine, parts: Parts) -> dict[str, Any]:
    """The figures of a record by name, as they come out of ``parts``; those that do not are left out."""
    return {found.name: found.of(machine, parts) for found in figures_of(record) if found.of is not None}


def summed(tables: Sequence[Mapping[str, int]], names: Sequence[str] = ()) -> dict[str, int]:
    """Cycles by name of all tables together; ``names`` come first, whether there are any or not."""
    total = dict.fromkeys(names, 0)
    for table in tables:
        for name, cycles in table.items():
            total[name] = total.get(name, 0) + cycles
    return total


# How figures come out of parts: one runs after another, so that counts add and peaks take the largest. ----------------


def added(name: str) -> Callable[[Machine, Parts], int]:
    return lambda machine, parts: sum(getattr(part, name) for part in parts)


def largest(name: str) -> Callable[[Machine, Parts], int]:
    return lambda machine, parts: max((getattr(part, name) for part in parts), default=0)


def utilization(machine: Machine, parts: Parts) -> float:
    """Multiply-accumulates of those that all processing elements could do in the cycles; 0 of no cycles."""
    cycles, macs = (sum(getattr(part, name) for part in parts) for name in ("cycles", "macs"))
    return macs / (cycles * machine.arch.pe.count) if cycles else 0.0


def lower_bound(machine: Machine, parts: Parts) -> int:
    """Cycles that no schedule can beat: every MAC on a busy array, or inputs, outputs and constants once on the bus."""
    elements = machine.arch.pe.count
    return sum(machine.timing.lower_bound(part.macs, elements, part.once_bytes, part.apart) for part in parts)


def roofline(machine: Machine, parts: Parts) -> int | None:
    """Cycles that no schedule, tiling or mapping can beat; None where no compilation has said what it needs.

    Of each part no less than its lower bound.
    """
    if any(part.demand is None for part in parts):
        return None
    return sum(max(_least(machine, part), lower_bound(machine, [part])) for part in parts)


def _least(machine: Machine, part: Any) -> int:
    needs = part.demand
    return machine.timing.least_cycles(needs.compute_cycles, needs.commands, needs.apart)


# How figures are written for people. ----------------------------------------------------------------------------------

BYTES = "bytes"
"""The unit whose figures are sizes."""
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LETTERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def size_text(nbytes: float, exact: bool = False) -> str:
    """``1.25 MiB``: four significant digits; with ``exact`` bytes where two decimals do not say it all."""
    for size, name in _SIZES:
        if abs(nbytes) >= size:
            share = nbytes / size
            if not exact:
                return f"{_significant(share, 4)} {name}"
            if round(share, 2) == share:
                return f"{share:,.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{nbytes:,.4g} bytes" if isinstance(nbytes, float) and not nbytes.is_integer() else f"{int(nbytes):,} bytes"


def measure(sizes: Iterable[float]) -> tuple[int, str]:
    """The bytes and the name of the unit in which numbers on an axis of such sizes are short."""
    largest = max(map(abs, sizes), default=0)
    return next(((size, name) for size, name in _SIZES if largest >= 2 * size), (1, BYTES))


def brief(value: float, unit: str = "") -> str:
    """Few characters: three significant digits and a letter for the size, or a size in bytes."""
    if unit == BYTES:
        return size_text(value)
    for size, letter in _LETTERS:
        if abs(value) >= size and abs(value) >= 1e4:
            return f"{_significant(value / size, 3)}{letter}"
    return f"{int(value):,}" if float(value).is_integer() else _significant(value, 3)


def shown(value: Any, unit: str = "", exact: bool = True) -> str:
    """A value as people read it: whole numbers with separators, four digits of others; None is nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if unit == BYTES:
        return size_text(value, exact)
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.4g}"


def told(figure: Figure, value: Any) -> str:
    text = shown(value, figure.unit)
    return text if figure.unit in ("", BYTES, SHARE) else f"{text} {figure.unit}"


def _significant(value: float, digits: int) -> str:
    """Without an exponent, however large."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"
