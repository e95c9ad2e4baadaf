"""Integer arithmetic in logic: functions that add combinational gates to a module."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike


def wire(m: Module, value: ValueLike, name: str | None = None) -> Signal:
    """Return ``value`` as a signal, so that an expression used twice is built once."""
    source = Value.cast(value)
    held = Signal(source.shape(), name=name, src_loc_at=1)
    m.d.comb += held.eq(source)
    return held


def ones(bits: int) -> Const:
    """Return a constant of ``bits`` ones."""
    return Const((1 << bits) - 1, bits)


def magnitude(m: Module, value: Value) -> Signal:
    """Return |value| of a signed ``value`` as an unsigned number of the same width."""
    held = Signal(len(value), name="magnitude")
    m.d.comb += held.eq(Mux(value[-1], -value, value))
    return held


def normalise_leading(m: Module, value: Value) -> tuple[Value, Value]:
    """Return an unsigned ``value`` shifted left until its first bit is 1, and the number of places.

    The number is arbitrary for 0. The logic is a tree with one step per bit of the number.
    """
    width = len(value)
    taken = []
    for step in (1 << power for power in reversed(range((width - 1).bit_length()))):
        empty = wire(m, value < (1 << (width - step)), "empty")
        value = wire(m, Mux(empty, Cat(Const(0, step), value[: width - step]), value), "moved")
        taken.append(empty)
    return value, Cat(*reversed(taken))


def limit_value(m: Module, value: Value, largest: int) -> Signal:
    """Return the smaller of a non-negative ``value`` and ``largest``.

    The result has the width of ``largest``.
    """
    held = Signal(largest.bit_length(), name="at_most")
    m.d.comb += held.eq(Mux(value > largest, largest, value))
    return held


def shift_down(m: Module, value: Value, places: Value) -> Value:
    """Return unsigned ``value`` / 2^places; its last bit is 1 if any bit was lost.

    The sticky last bit keeps the number on its side of every tie.
    """
    width = len(value)
    places = limit_value(m, places, width)
    lost = value & (ones(width) >> (width - places)[: width.bit_length()])
    return wire(m, (value >> places) | (lost != 0), "moved")


def clamp_signed(m: Module, value: Value, low: Value, high: Value) -> Signal:
    """Return a signed ``value`` clamped to the int8 limits ``low`` and ``high``."""
    held = Signal(low.shape(), name="clamped")
    m.d.comb += held.eq(Mux(value < low, low, Mux(value > high, high, value)))
    return held


@dataclass(frozen=True, eq=False)
class PartialRoot:
    """A square root in progress: unused radicand bits, current remainder, and the root so far."""

    radicand: Value
    rest: Value
    root: Value


def root_of(radicand: Value) -> PartialRoot:
    """Return the initial state of the square root of ``radicand``.

    ``radicand`` must have an even number of bits.
    """
    return PartialRoot(radicand, Const(0, 1), Const(0, 1))


def root_rows(m: Module, x: PartialRoot, rows: int) -> PartialRoot:
    """Compute the next ``rows`` bits of a square root, most significant first.

    The root of a radicand of 2n bits has n bits.
    """
    for _ in range(rows):
        rest = Cat(x.radicand[-2:], x.rest)
        trial = Cat(Const(1, 2), x.root)
        fits = wire(m, rest >= trial, "fits")
        left = Signal(len(trial), name="rest")  # the remainder is below twice the root plus one bit
        m.d.comb += left.eq(Mux(fits, rest - trial, rest))
        x = PartialRoot(x.radicand[:-2], left, wire(m, Cat(fits, x.root), "root"))
    return x
