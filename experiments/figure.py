"""Figures of run reports and sweeps: declaration, computation and display.

A figure is declared once, as an annotation of a field of a pydantic record:
``cycles: Annotated[int, Figure("cycles", "cycles", "less", added("cycles"))]``. Reports, tables,
pages, comparisons, sweep columns, constraints, objectives and CSV headers read the declaration with
:func:`figures_of`. Sizes are displayed in powers of 1,024, all other numbers in powers of 1,000.
Pages do the same in ``charts/words.js``; a test checks that both agree.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dla_sim.timing import Timing
from isa.arch import Arch

SHARE = "0 to 1"
"""Unit of fractions."""


class FigureMachine(NamedTuple):
    """Architecture and timing that figures are computed with."""

    arch: Arch
    timing: Timing


Parts = Sequence[Any]
"""The regions of a run or of a sweep point in execution order, or a single layer.

Their counts are attributes.
"""


@dataclass(frozen=True)
class Figure:
    """Declaration of one figure: its name, its unit, its display and its computation.

    Attributes: words: name shown to people. unit: unit of the value; empty if it has none. better:
        whether "less" or "more" of it makes a machine better; empty if neither does. of: computes
        the value from a machine and its :data:`Parts`; None if the code that fills the record
        supplies it. heading: heading of a table column; ``words`` if empty. goal: name of the
        figure as an objective of a search; derived from ``name`` if empty. shown: unit in which
        objectives show the value, and the factor that converts from ``unit``. estimate: True if the
        value is an estimate. name: key of the figure; the name of the record's field if empty.
        kind: int or float, from the annotation of the field.
    """

    words: str
    unit: str = ""
    better: Literal["less", "more", ""] = ""
    of: Callable[[FigureMachine, Parts], Any] | None = None
    heading: str = ""
    goal: str = ""
    shown: tuple[str, float] | None = None
    estimate: bool = False
    name: str = ""
    kind: type = int

    @property
    def head(self) -> str:
        """Heading of the figure's table column."""
        return self.heading or self.words


class Counts:
    """Counts of a region or run that figures are computed from, read as attributes.

    A count is a value given by name, or an attribute of the first of ``sources`` that has it.
    """

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
    """Return the figures that the fields of a report record declare, in field order."""
    return tuple(
        found
        for name, field in record.model_fields.items()
        if (found := _find_declared(name, field)) is not None
    )


def _find_declared(name: str, field: FieldInfo) -> Figure | None:
    for item in field.metadata:
        if isinstance(item, Figure):
            return replace(
                item, name=item.name or name, kind=float if _is_float(field.annotation) else int
            )
    return None


def _is_float(annotation: Any) -> bool:
    return annotation is float or any(_is_float(part) for part in get_args(annotation))


def all_figures(record: type[BaseModel]) -> Iterator[Figure]:
    for name, field in record.model_fields.items():
        found = _find_declared(name, field)
        if found is not None:
            yield found
            continue
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from all_figures(kind)


def values_of(record: BaseModel) -> Iterator[tuple[Figure, Any]]:
    for name, field in type(record).model_fields.items():
        found = _find_declared(name, field)
        value = getattr(record, name)
        if found is not None:
            yield found, value
        elif isinstance(value, BaseModel):
            yield from values_of(value)


def measure_figures(
    record: type[BaseModel], machine: FigureMachine, parts: Parts
) -> dict[str, Any]:
    """Compute a record's declared figures from the counts in ``parts`` and return them by name.

    Other figures are omitted.
    """
    return {
        found.name: found.of(machine, parts) for found in figures_of(record) if found.of is not None
    }


def sum_tables(tables: Sequence[Mapping[str, int]], names: Sequence[str] = ()) -> dict[str, int]:
    """Add tables of cycles entry by entry and return the total by name.

    ``names`` come first and are 0 if no table has them.
    """
    total = dict.fromkeys(names, 0)
    for table in tables:
        for name, cycles in table.items():
            total[name] = total.get(name, 0) + cycles
    return total


# Figures of several parts: parts run one after another, so counts add up and peaks take the
# maximum. ------------------


def make_sum(name: str) -> Callable[[FigureMachine, Parts], int]:
    return lambda machine, parts: sum(getattr(part, name) for part in parts)


def largest(name: str) -> Callable[[FigureMachine, Parts], int]:
    return lambda machine, parts: max((getattr(part, name) for part in parts), default=0)


def utilization(machine: FigureMachine, parts: Parts) -> float:
    """Return the utilisation of the multiply-accumulate array, from 0 to 1.

    The share is 0 if no cycles passed. Cycles may be arrays of Python numbers.
    """
    cycles, macs = (sum(getattr(part, name) for part in parts) for name in ("cycles", "macs"))
    try:
        share: float = macs / (cycles * machine.arch.pe.count)
    except ZeroDivisionError:
        return 0.0
    return share


def compute_lower_bound(machine: FigureMachine, parts: Parts) -> int:
    """Return a lower bound on the cycles of any schedule, the sum of one bound per part.

    The bound of a part is the larger of two: all multiply-accumulates on a fully busy array, or
    inputs, outputs and constants moved once at the width of the bus.
    """
    elements = machine.arch.pe.count
    return sum(
        machine.timing.lower_bound(part.macs, elements, part.once_bytes, part.apart)
        for part in parts
    )


def roofline(machine: FigureMachine, parts: Parts) -> int | None:
    """Return a lower bound on the cycles of any schedule, tiling and mapping.

    The result is None if a part's demand is unknown. The demand of a part is known from its
    compilation. Each part counts with at least its :func:`compute_lower_bound`.
    """
    if any(part.demand is None for part in parts):
        return None
    return sum(max(_least(machine, part), compute_lower_bound(machine, [part])) for part in parts)


def _least(machine: FigureMachine, part: Any) -> int:
    needs = part.demand
    return machine.timing.least_cycles(needs.compute_cycles, needs.commands, needs.apart)


# Display of figures.

BYTES = "bytes"
"""Unit of figures that are sizes."""
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LETTERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def size_text(nbytes: float, exact: bool = False) -> str:
    """Return a size such as ``1.25 MiB`` with four significant digits.

    With ``exact``, a size that two decimals cannot express exactly is given in bytes.
    """
    for size, name in _SIZES:
        if abs(nbytes) >= size:
            share = nbytes / size
            if not exact:
                return f"{_significant(share, 4)} {name}"
            if round(share, 2) == share:
                return f"{share:,.2f}".rstrip("0").rstrip(".") + f" {name}"
    return (
        f"{nbytes:,.4g} bytes"
        if isinstance(nbytes, float) and not nbytes.is_integer()
        else f"{int(nbytes):,} bytes"
    )


def measure(sizes: Iterable[float]) -> tuple[int, str]:
    """Return the byte unit for an axis that shows ``sizes``, as (number of bytes, name).

    It is the largest unit of which the largest size has at least two.
    """
    largest = max(map(abs, sizes), default=0)
    return next(((size, name) for size, name in _SIZES if largest >= 2 * size), (1, BYTES))


def brief(value: float, unit: str = "") -> str:
    """Format a value as short text.

    Bytes become a size. Other values have three significant digits and a letter for the power of
    1,000.
    """
    if unit == BYTES:
        return size_text(value)
    for size, letter in _LETTERS:
        if abs(value) >= size and abs(value) >= 1e4:
            return f"{_significant(value / size, 3)}{letter}"
    return f"{int(value):,}" if float(value).is_integer() else _significant(value, 3)


def format_figure(value: Any, unit: str = "", exact: bool = True) -> str:
    """Return a value as text for display.

    Whole numbers have separators, others have four significant digits. None becomes an empty text.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if unit == BYTES:
        return size_text(value, exact)
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.4g}"


def describe_figure(figure: Figure, value: Any) -> str:
    text = format_figure(value, figure.unit)
    return text if figure.unit in ("", BYTES, SHARE) else f"{text} {figure.unit}"


def _significant(value: float, digits: int) -> str:
    """Round to ``digits`` significant digits and never use an exponent."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"
