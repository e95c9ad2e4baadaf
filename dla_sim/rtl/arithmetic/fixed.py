"""Integer-only scaling: LiteRT's multiplier and shift, and its once-rounded float64 product.

`isa.numerics.requantising` gives the rules and their sources. Approximate operators: `shift_left`
8, `high_multiply` 4, `shift_right` 6, hence `scale_value` 18; `multiply_once` 40.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from dla_sim.rtl.arithmetic.integers import limit_value, magnitude, normalise_leading, wire
from dla_sim.rtl.building import stage

LARGEST_SHIFT = 30
"""Largest shift.

A larger value is the upper half of a float64 factor (isa.numerics.LARGEST_SHIFT).
"""
INT32_LOW, INT32_HIGH = Const(-(1 << 31), signed(32)), Const((1 << 31) - 1, signed(32))
ALL_OUT = 33
"""Right shift that turns every int32, with rounding, into 0."""
FRACTION = 61
"""Fraction bits beyond which the product of `multiply_once` rounds to 0 in any case."""
ONCE_LIMIT = 1 << 18


@dataclass(frozen=True, eq=False)
class Places:
    """Shift amount, split into bits to the left (5-bit count) and to the right (6-bit count)."""

    left: Value
    right: Value


def places(m: Module, shift: Value) -> Places:
    """Split a signed shift amount into a left and a right shift.

    ``shift`` is at most LARGEST_SHIFT. Lanes that share a shift also share the result, which is
    computed once outside them.
    """
    to_right = wire(m, shift < 0)
    left = wire(m, Mux(to_right, 0, shift[:5]))
    return Places(left, limit_value(m, Mux(to_right, -shift, 0), ALL_OUT))


def shift_left(m: Module, value: Value, left: Value) -> Signal:
    """Return a signed ``value`` of any width times 2^left (0 to 30), saturated to int32."""
    wide = Signal(signed(max(len(value), 32)), name="wide")
    m.d.comb += wide.eq(value)
    rest = wire(m, wide >> (31 - left)[:5], "rest")
    held = Signal(signed(32), name="shifted")
    end = Mux(value[-1], INT32_LOW, INT32_HIGH)
    m.d.comb += held.eq(Mux((rest == 0) | (rest == -1), (wide[:32] << left)[:32], end))
    return held


def high_multiply(m: Module, value: Value, multiplier: Value) -> Signal:
    """Return value · multiplier / 2^31 of int32 values, rounded half up.

    (-2^31)² gives 2^31 - 1.
    """
    product = wire(m, value * multiplier, "product")
    high = wire(m, product[31:].as_signed() + product[30], "high")
    held = Signal(signed(32), name="half_product")
    m.d.comb += held.eq(high - (~high[32] & high[31]))
    return held


def shift_right(m: Module, value: Value, right: Value) -> Signal:
    """Return an int32 divided by 2^right (0 to ALL_OUT), rounded half away from zero."""
    held = Signal(signed(32), name="rounded")
    # adding half of the unit to the doubled value keeps odd units exact
    unit = (Const(1, 1) << right)[: ALL_OUT + 1]
    m.d.comb += held.eq((Cat(Const(0, 1), value).as_signed() + unit - value[-1]) >> (right + 1)[:6])
    return held


def scale_value(
    m: Module,
    value: Value,
    multiplier: Value,
    shift: Places,
    *,
    pipelined: bool,
    steady: bool = False,
) -> Signal:
    """Return ``value`` · multiplier · 2^(shift - 31) as int32, rounded twice.

    The rule is multiply_by_quantised_multiplier of isa.numerics. Two stages. With ``steady`` the
    multiplier and shift are constant during a command and need no registers.
    """
    kept = pipelined and not steady
    moved = stage(m, shift_left(m, value, shift.left), pipelined=pipelined)
    multiplier = stage(m, multiplier, pipelined=kept)
    right = stage(m, shift.right, pipelined=kept)
    high = stage(m, high_multiply(m, moved, multiplier), pipelined=pipelined)
    return shift_right(m, high, stage(m, right, pipelined=kept))


def multiply_once(m: Module, value: Value, factor: Value, *, pipelined: bool) -> Signal:
    """Return an int32 times a float64 ``factor``, rounded to a 20-bit signed integer.

    The product is first rounded to float64. Ties of the second rounding go away from zero; the
    result saturates at ±2^18. Two stages.

    The value is shifted left until its first bit is 1, so the product of significands has 84 or 85
    bits. Rounding to 53 bits only matters if it produces a tie of the second rounding. It is
    therefore enough to add half of the 53rd bit's weight. Of the last 26 bits of the product only
    the carry is used.
    """
    size, moved_up = normalise_leading(m, magnitude(m, value))
    # number of fraction bits of the product of size and significand / 2^26
    fraction = wire(m, 1075 - 26 + moved_up - factor[52:63])
    sign = Mux(value == 0, 0, Cat(factor[63] ^ value[-1], factor[63] ^ ~value[-1]))
    size, drop, sign, factor = (
        stage(m, part, pipelined=pipelined, name=name)
        for name, part in (
            ("size", size),
            ("drop", limit_value(m, Mux(fraction < 0, 0, fraction), FRACTION)),
            ("sign", sign),
            ("significand", factor[:52]),
        )
    )
    product = Signal(59, name="product")
    m.d.comb += product.eq(size * Cat(factor[26:52], Const(1, 1)) + (size * factor[:26])[26:])
    product, drop, sign = (stage(m, part, pipelined=pipelined) for part in (product, drop, sign))
    half = ((Const(1, 1) << drop) >> 1)[:FRACTION]
    whole = wire(m, (product + Mux(product[-1], 32, 16) + half) >> drop)
    limited = wire(m, Mux((drop < 40) | (whole > ONCE_LIMIT), ONCE_LIMIT, whole[:19]))
    held = Signal(signed(20), name="once")
    m.d.comb += held.eq(Mux(sign[0], -limited, Mux(sign[1], limited, 0)))
    return held
