"""In which order the elements of rows are read: passes over groups of as many rows as there are lanes.

OP_REDUCE goes over all elements once. OP_SOFTMAX and OP_NORM go over the elements of a group twice, and between that
over its rows: the sums in order, a row a lane and an element a step; or a root a step. A whole group has as many
elements as lanes times those of a row, so that no lane idles but in the last step of the last group, and all groups
together take the steps of docs/isa.md. Where elements are: numbers of three digits, one a lane, that all move on by the
number of lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from amaranth.hdl import Const, Module, Mux, Signal, Value

DIGIT_BITS = 33
"""Of a digit and its overflow."""


@dataclass(frozen=True, eq=False)
class Place:
    """An element: digits from the innermost, the last of which never wraps, and the number of its row in the group."""

    inner: Value
    middle: Value
    outer: Value
    row: Value

    def values(self) -> tuple[Value, ...]:
        """All of it."""
        return self.inner, self.middle, self.outer, self.row


@dataclass(frozen=True, eq=False)
class Radix:
    """Sizes of the two inner digits. A row is over when the innermost wraps or, with ``deep``, the one above it."""

    inner: Value
    middle: Value
    deep: Value


ZERO = Place(Const(0, 1), Const(0, 1), Const(0, 1), Const(0, 1))


def held(domain: str, name: str, row_bits: int) -> tuple[Place, list[Signal]]:
    """A register for places, as a place and as signals, and nothing that drives it."""
    widths = (DIGIT_BITS - 1, DIGIT_BITS - 1, DIGIT_BITS, row_bits)
    names = ("inner", "middle", "outer", "row")
    signals = [
        Signal(width, name=f"{name}_{digit}", reset_less=domain != "sync")
        for width, digit in zip(widths, names, strict=True)
    ]
    return Place(*signals), signals


def add(m: Module, radix: Radix, a: Place, b: Place, name: str) -> Place:
    """The sum of two places, of each digit of which one at most has been wrapped, and of their rows."""
    inner, over = _digit(m, a.inner + b.inner, radix.inner, f"{name}_inner")
    middle, beyond = _digit(m, a.middle + b.middle + over, radix.middle, f"{name}_middle")
    row = a.row + b.row + Mux(radix.deep, beyond, over)
    return Place(inner, middle, a.outer + b.outer + beyond, row)


def _digit(m: Module, total: Value, size: Value, name: str) -> tuple[Signal, Signal]:
    """(what remains, what is carried) of a digit below twice its size."""
    rest, carry = Signal(DIGIT_BITS, name=name), Signal(name=f"{name}_carry")
    difference = Signal(DIGIT_BITS + 2, name=f"{name}_less")
    m.d.comb += [
        difference.eq(total - size),
        carry.eq(~difference[-1]),
        rest.eq(Mux(carry, difference, total)),
    ]
    return rest, carry


def small_places(m: Module, radix: Radix, count: int) -> list[Place]:
    """The places of elements 0 to ``count``, from place 0: each is the one before, and one more."""
    bits = count.bit_length()
    places = [ZERO]
    for number in range(count):
        before, signals = places[-1], [Signal(bits, name=f"element_{number + 1}_{digit}") for digit in range(4)]
        inner, middle, outer, row = signals
        over = before.inner + 1 == radix.inner
        beyond = over & (before.middle + 1 == radix.middle)
        m.d.comb += [
            inner.eq(Mux(over, 0, before.inner + 1)),
            middle.eq(Mux(beyond, 0, before.middle + over)),
            outer.eq(before.outer + beyond),
            row.eq(before.row + Mux(radix.deep, beyond, over)),
        ]
        places.append(Place(*signals))
    return places


def chosen(m: Module, places: list[Place], number: Value, name: str) -> Place:
    """The place of that number, in signals: all lanes move on by it. Of a constant number without any logic."""
    if isinstance(number, Const):
        return places[int(number.value)]
    digits: list[Value] = [Const(0, 1)] * 4
    for index, place in enumerate(places):
        digits = [old | Mux(number == index, digit, 0) for old, digit in zip(digits, place.values(), strict=True)]
    signals = [Signal(digit.shape(), name=f"{name}_{position}") for position, digit in enumerate(digits)]
    m.d.comb += [signal.eq(digit) for signal, digit in zip(signals, digits, strict=True)]
    return Place(*signals)


class Pass(IntEnum):
    """What a step does."""

    FIRST = 0
    BETWEEN = 1
    LAST = 2


@dataclass(frozen=True, eq=False)
class Task:
    """A command: ``radix`` of its elements and ``outer`` groups of them; which instruction; whether it has elements."""

    radix: Radix
    outer: Value
    reduce: Value
    norm: Value
    elements: Value


@dataclass(frozen=True, eq=False)
class Step:
    """A step: its pass, whether it is the pass's first or last one, the first row of its group as the two outer digits,
    and the number of the step between the passes.
    """

    kind: Signal
    opens: Signal
    closes: Signal
    middle: Signal
    outer: Signal
    number: Signal


def sequence(m: Module, task: Task, lanes: Value, width: Place, advance: Value, last: Signal, row_bits: int) -> Step:
    """The step of this cycle, and registers of ``sync`` that go on with ``advance``. Drives ``last``.

    ``width``: the place that is as many elements on as there are lanes.
    """
    kind, opens, closes = Signal(2), Signal(init=1), Signal()
    base_middle, base_outer = Signal(DIGIT_BITS - 1), Signal(DIGIT_BITS)
    number, now = Signal(32), Signal(2)
    place, registers = held("sync", "leader", row_bits)
    m.d.comb += now.eq(Mux(task.norm & ~task.elements, Pass.BETWEEN, kind))
    base = Place(
        *(
            Mux(opens, value, held_)
            for value, held_ in zip((0, base_middle, base_outer, 0), place.values(), strict=True)
        )
    )
    following = add(m, task.radix, base, width, "leader_next")
    ends, group_ends = Signal(), Signal()
    m.d.comb += [
        ends.eq(following.outer >= task.outer),
        group_ends.eq(ends | (~task.reduce & (following.row >= lanes))),
    ]
    between = Mux(
        task.norm,
        ((number + 1 == lanes) & task.elements) | (base_outer + number + 1 == task.outer),
        number + 1 == task.radix.inner,
    )
    m.d.comb += [
        closes.eq(Mux(now == Pass.BETWEEN, between, group_ends)),
        last.eq(Mux(now == Pass.BETWEEN, between & ~task.elements, ends & ((now == Pass.LAST) | task.reduce))),
    ]
    with m.If(advance):
        _go_on(m, (now, closes, last), (kind, opens, number), registers, following)
        with m.If(closes & (now == Pass.LAST)):
            m.d.sync += [base_middle.eq(following.middle), base_outer.eq(following.outer)]
        with m.If(last):
            m.d.sync += [base_middle.eq(0), base_outer.eq(0)]
    return Step(now, opens, closes, base_middle, base_outer, number)


def _go_on(
    m: Module,
    flags: tuple[Value, Value, Value],
    state: tuple[Signal, Signal, Signal],
    registers: Sequence[Signal],
    following: Place,
) -> None:
    """The next step of the pass, or the first one of the next pass, or all as it was in the beginning."""
    now, closes, last = flags
    kind, opens, number = state
    m.d.sync += [register.eq(value) for register, value in zip(registers, following.values(), strict=True)]
    m.d.sync += [opens.eq(closes), number.eq(Mux(closes, 0, number + 1))]
    with m.If(last):
        m.d.sync += kind.eq(Pass.FIRST)
    with m.Elif(closes):
        m.d.sync += kind.eq(Mux(now == Pass.LAST, Pass.FIRST, now + 1))
