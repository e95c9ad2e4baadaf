"""Integers in logic: functions that add combinational gates to a module."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike


def wire(m: Module, value: ValueLike, name: str | None = None) -> Signal:
    """``value`` as a signal: an expression that is used twice is there once."""
    source = Value.cast(value)
    held = Signal(source.shape(), name=name, src_loc_at=1)
    m.d.comb += held.eq(source)
    return held


def ones(bits: int) -> Const:
    """So many bits that are 1."""
    return Const((1 << bits) - 1, bits)


def magnitude(m: Module, value: Value) -> Signal:
    """|value| of a signed ``value``, unsigned, as many bits."""
    held = Signal(len(value), name="magnitude")
    m.d.comb += held.eq(Mux(value[-1], -value, value))
    return held


def leading(m: Module, value: Value) -> tuple[Value, Value]:
    """``value``, unsigned, moved up until its first bit is 1, and by how many places; of 0 the count is arbitrary.

    A tree with a step for each bit of the count.
    """
    width, taken = len(value), []
    for step in (1 << power for power in reversed(range((width - 1).bit_length()))):
        empty = wire(m, value < (1 << (width - step)), "empty")
        value = wire(m, Mux(empty, Cat(Const(0, step), value[: width - step]), value), "moved")
        taken.append(empty)
    return value, Cat(*reversed(taken))


def at_most(m: Module, value: Value, largest: int) -> Signal:
    """The smaller of ``value``, 0 or more, and ``largest``, in as many bits as that has."""
    held = Signal(largest.bit_length(), name="at_most")
    m.d.comb += held.eq(Mux(value > largest, largest, value))
    return held


def moved_down(m: Module, value: Value, places: Value) -> Value:
    """Unsigned ``value`` / 2^places, its last bit 1 where any bit was lost: so it stays on its side of every tie."""
    width = len(value)
    places = at_most(m, places, width)
    lost = value & (ones(width) >> (width - places)[: width.bit_length()])
    return wire(m, (value >> places) | (lost != 0), "moved")


def clamped(m: Module, value: Value, low: Value, high: Value) -> Signal:
    """A signed ``value`` held within the int8 ``low`` and ``high``."""
    held = Signal(low.shape(), name="clamped")
    m.d.comb += held.eq(Mux(value < low, low, Mux(value > high, high, value)))
    return held


@dataclass(frozen=True, eq=False)
class PartialRoot:
    """A square root on the way: what is left of the radicand, what is left of its first part, and the root so far."""

    radicand: Value
    rest: Value
    root: Value


def root_of(radicand: Value) -> PartialRoot:
    """The beginning of the root of ``radicand``, which has an even number of bits."""
    return PartialRoot(radicand, Const(0, 1), Const(0, 1))


def root_rows(m: Module, x: PartialRoot, rows: int) -> PartialRoot:
    """So many more bits of the root, from the first to the last: half as many as the radicand has."""
    for _ in range(rows):
        rest = Cat(x.radicand[-2:], x.rest)
        trial = Cat(Const(1, 2), x.root)
        fits = wire(m, rest >= trial, "fits")
        left = Signal(len(trial), name="rest")  # below twice the root, and a bit more
        m.d.comb += left.eq(Mux(fits, rest - trial, rest))
        x = PartialRoot(x.radicand[:-2], left, wire(m, Cat(fits, x.root), "root"))
    return x
