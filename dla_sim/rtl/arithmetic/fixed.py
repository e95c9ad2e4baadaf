"""Scaling with integers only, in logic: LiteRT's multiplier and shift, and its product in float64 rounded once.

`isa.numerics.requantising` has the rules and their sources. Operators, roughly: `shifted_left` 8, `high_multiply` 4,
`shifted_right` 6, `scaled` so 18, `multiply_once` 40.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from dla_sim.rtl.arithmetic.integers import at_most, leading, magnitude, wire
from dla_sim.rtl.building import stage

LARGEST_SHIFT = 30
"""A larger shift is none, but the upper half of a float64 factor (isa.numerics.LARGEST_SHIFT)."""
INT32_LOW, INT32_HIGH = Const(-(1 << 31), signed(32)), Const((1 << 31) - 1, signed(32))
ALL_OUT = 33
"""A shift to the right by so many places makes 0 of every int32, and of its rounding."""
FRACTION = 61
"""The product of `multiply_once` with so many places of fraction is below 1/2 by more than its rounding."""
ONCE_LIMIT = 1 << 18


@dataclass(frozen=True, eq=False)
class Places:
    """A shift taken apart: places to the left (5 bits), then places to the right (6 bits)."""

    left: Value
    right: Value


def places(m: Module, shift: Value) -> Places:
    """Those of a signed ``shift``, at most LARGEST_SHIFT. Once, outside the lanes, where they share a shift."""
    to_right = wire(m, shift < 0)
    left = wire(m, Mux(to_right, 0, shift[:5]))
    return Places(left, at_most(m, Mux(to_right, -shift, 0), ALL_OUT))


def shifted_left(m: Module, value: Value, left: Value) -> Signal:
    """int32: a signed ``value`` of any width, times 2^left (0 to 30), held at the ends of int32."""
    wide = Signal(signed(max(len(value), 32)), name="wide")
    m.d.comb += wide.eq(value)
    rest = wire(m, wide >> (31 - left)[:5], "rest")
    held = Signal(signed(32), name="shifted")
    end = Mux(value[-1], INT32_LOW, INT32_HIGH)
    m.d.comb += held.eq(Mux((rest == 0) | (rest == -1), (wide[:32] << left)[:32], end))
    return held


def high_multiply(m: Module, value: Value, multiplier: Value) -> Signal:
    """int32: value · multiplier / 2^31 of int32 values, rounded, ties upwards; (-2^31)² gives 2^31 - 1."""
    product = wire(m, value * multiplier, "product")
    high = wire(m, product[31:].as_signed() + product[30], "high")
    held = Signal(signed(32), name="half_product")
    m.d.comb += held.eq(high - (~high[32] & high[31]))
    return held


def shifted_right(m: Module, value: Value, right: Value) -> Signal:
    """int32: an int32 / 2^right (0 to ALL_OUT), rounded, ties away from zero."""
    held = Signal(signed(32), name="rounded")
    unit = (Const(1, 1) << right)[: ALL_OUT + 1]  # half of it is added, to twice the value so that it may be odd
    m.d.comb += held.eq((Cat(Const(0, 1), value).as_signed() + unit - value[-1]) >> (right + 1)[:6])
    return held


def scaled(
    m: Module, value: Value, multiplier: Value, shift: Places, *, pipelined: bool, steady: bool = False
) -> Signal:
    """int32: a signed ``value`` times multiplier · 2^(shift - 31), rounded twice (multiply_by_quantised_multiplier).

    Two stages. ``steady``: multiplier and shift are those of a command, and need no registers.
    """
    kept = pipelined and not steady
    moved = stage(m, shifted_left(m, value, shift.left), pipelined=pipelined)
    multiplier, right = stage(m, multiplier, pipelined=kept), stage(m, shift.right, pipelined=kept)
    high = stage(m, high_multiply(m, moved, multiplier), pipelined=pipelined)
    return shifted_right(m, high, stage(m, right, pipelined=kept))


def multiply_once(m: Module, value: Value, factor: Value, *, pipelined: bool) -> Signal:
    """Signed, 20 bits: an int32 times the float64 ``factor`` of 64 bits, rounded to float64, then to an integer, ties
    away from zero; held within ±2^18. Two stages.

    The value is moved up until its first bit is 1, so the product of significands has 84 or 85 bits. Rounding it to 53
    bits matters only where it ends up at a tie of the second rounding, so adding half of the 53rd bit's place is all
    there is to the first; of the last 26 bits of the product nothing is read but their carry.
    """
    size, moved_up = leading(m, magnitude(m, value))
    # the product is that of size and significand / 2^26: so many of its places are fraction
    fraction = wire(m, 1075 - 26 + moved_up - factor[52:63])
    sign = Mux(value == 0, 0, Cat(factor[63] ^ value[-1], factor[63] ^ ~value[-1]))
    size, drop, sign, factor = (
        stage(m, part, pipelined=pipelined, name=name)
        for name, part in (
            ("size", size),
            ("drop", at_most(m, Mux(fraction < 0, 0, fraction), FRACTION)),
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
