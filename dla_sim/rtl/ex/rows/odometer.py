"""Where the elements of rows are: numbers of three digits, one a lane, that all move on by the number of lanes."""

from __future__ import annotations

from dataclasses import dataclass

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
