"""Float32 in logic: functions that add combinational gates to a module, each rounded to nearest, ties to even.

A number is a :class:`Float`: its fields apart, so that chains of operations need not pack and unpack. Numbers come from
`unpack`, `from_integer` and the operations; all are in *stored* form, as float32 stores them: subnormal numbers and 0
have the exponent -149 and a first bit of 0. `normalised` moves the first bit up for the operations that ask for it.

A simulator executes each operation of 64 bits or fewer as an instruction, so there are few wide ones, none above 64
bits. Each operation with two operands is what is exact (`product`, `quotient`, `total`, `fused`), which may be staged,
and then `rounded`. Operators, roughly: from_integer 25, multiply 30, add 65, a fused one 70, a quotient 35 and a
divider, to_integer 10, normalised 20, unpack and pack 6.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import or_
from typing import TypeVar

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from dla_sim.rtl.arithmetic.integers import at_most, leading, magnitude, moved_down, ones, wire
from dla_sim.rtl.building import stage

MANTISSA, FIRST = 24, 23
"""Bits of a significand, and the place of its first one."""
LOWEST, HIGHEST = -149, 104
"""Exponents of the last place of stored numbers."""
WIDEST = 40
"""Bits of an integer that are rounded as they are."""
INTEGER_BITS = 25
"""Of the integers that `to_integer` gives."""
NEVER = Const(0, 1)
"""A flag of what cannot be, as infinities among scales."""


@dataclass(frozen=True, eq=False)
class Float:
    """(-1)^negative · significand · 2^exponent, or an infinity of that sign, or no number at all.

    ``significand`` has 24 bits, ``exponent`` is signed; where a flag is 1 both are arbitrary.
    """

    negative: Value
    exponent: Value
    significand: Value
    infinite: Value
    nan: Value

    @property
    def is_zero(self) -> Value:
        """1 of +0 and -0."""
        return (self.significand == 0) & ~self.infinite & ~self.nan


Number = TypeVar("Number", "Float", "Exact")


def staged(m: Module, x: Number, *, pipelined: bool) -> Number:
    """The number behind a pipeline register; what is constant needs none."""
    parts = ((field.name, getattr(x, field.name)) for field in fields(x))
    held = (part if isinstance(part, Const) else stage(m, part, pipelined=pipelined, name=name) for name, part in parts)
    return type(x)(*held)


def _either(m: Module, *flags: Value) -> Value:
    """1 where any of the flags is; flags that never are cost nothing."""
    possible = [flag for flag in flags if not isinstance(flag, Const)]
    return wire(m, reduce(or_, possible)) if possible else NEVER


def _both(a: Value, b: Value) -> Value:
    return NEVER if isinstance(a, Const) or isinstance(b, Const) else a & b


def chosen(m: Module, condition: Value, a: Float, b: Float) -> Float:
    """``a`` where ``condition`` is 1, else ``b``."""
    names = [field.name for field in fields(a)]
    return Float(*(wire(m, Mux(condition, getattr(a, name), getattr(b, name)), name) for name in names))


def unpack(m: Module, bits: Value) -> Float:
    """The number whose float32 bits are ``bits``."""
    field, fraction = bits[FIRST:31], bits[:FIRST]
    normal, special = wire(m, field != 0), wire(m, field == 255)
    exponent = wire(m, Mux(normal, field, Const(1)) - 150)
    nan = wire(m, special & (fraction != 0))
    return Float(bits[31], exponent, Cat(fraction, normal), wire(m, special & ~nan), nan)


def finite(m: Module, bits: Value) -> Float:
    """As `unpack`, of bits that are known to be a finite number, as scales are."""
    return replace(unpack(m, bits), infinite=NEVER, nan=NEVER)


def pack(m: Module, x: Float) -> Value:
    """The float32 bits of ``x``, which is in stored form; what is no number is 0x7FC00000."""
    field = Signal(8, name="field")
    m.d.comb += field.eq(Mux(x.significand[FIRST], x.exponent + 150, 0))
    special = Cat(Const(0, 22), x.nan, Const(255, 8), x.negative & ~x.nan)
    return wire(m, Mux(x.infinite | x.nan, special, Cat(x.significand[:FIRST], field, x.negative)))


def normalised(m: Module, x: Float) -> Float:
    """``x`` with the first bit of its significand 1, unless it is 0: the form that `multiply` and `divide` read."""
    significand, places = leading(m, x.significand)
    return replace(x, significand=significand, exponent=wire(m, x.exponent - places))


def negated(x: Float) -> Float:
    """-x."""
    return replace(x, negative=~x.negative)


def from_integer(m: Module, value: Value) -> Float:
    """A signed ``value`` of any width, rounded to float32; normalised too."""
    size = magnitude(m, value)
    room = max(MANTISSA - len(size), 0)
    moved, places = leading(m, Cat(Const(0, room), size))
    spare = max(len(moved) - WIDEST, 0)
    if spare:  # of what decides a tie alone, one bit will do
        moved = wire(m, Cat(moved[: spare + 1] != 0, moved[spare + 1 :]), "moved")
    drop = len(moved) - MANTISSA
    rounded = Signal(MANTISSA + 1)
    m.d.comb += rounded.eq((moved + moved[drop] + ones(drop - 1)) >> drop if drop else moved)
    exponent = Signal(signed(8))
    m.d.comb += exponent.eq(Mux(moved[-1], spare + drop - room + rounded[MANTISSA] - places, LOWEST))
    significand = Cat(rounded[:FIRST], rounded[FIRST] | rounded[MANTISSA])
    return Float(value[-1], exponent, significand, NEVER, NEVER)


@dataclass(frozen=True, eq=False)
class Exact:
    """What is to be rounded: ``size`` · 2^exponent, whose first bit has the place ``drop`` + 23, unless it is 0.

    The last bit of ``size`` may stand for what lies below it (`moved_down`).
    """

    negative: Value
    exponent: Value
    size: Value
    drop: Value
    infinite: Value
    nan: Value


def rounded(m: Module, exact: Exact, *, tiny: bool = True) -> Float:
    """The nearest float32.

    ``tiny`` False where only `to_integer` follows, to which subnormal numbers are 0: they may keep too many places.
    """
    width = len(exact.size)
    drop: Value = wire(m, exact.drop, "drop")
    if tiny:  # the last place of a subnormal number is that of 2^-149
        below = wire(m, LOWEST - exact.exponent, "below")
        drop = at_most(m, Mux(below > drop, below, drop), width + 1)
    half = wire(m, ones(width) >> (width + 1 - drop)[: (width + 1).bit_length()], "half")
    kept = Signal(MANTISSA + 1, name="kept")
    m.d.comb += kept.eq((exact.size + half + (exact.size >> drop)[0]) >> drop)
    significand = wire(m, Cat(kept[:FIRST], kept[FIRST] | kept[MANTISSA]), "significand")
    exponent = Signal(signed(10), name="exponent")
    m.d.comb += exponent.eq(Mux(significand == 0, LOWEST, exact.exponent + drop + kept[MANTISSA]))
    infinite = _either(m, exact.infinite, exponent > HIGHEST)
    if not isinstance(exact.nan, Const):
        infinite = wire(m, infinite & ~exact.nan, "infinite")
    return Float(exact.negative, exponent, significand, infinite, exact.nan)


def product(m: Module, a: Float, b: Float) -> Exact:
    """a · b of normalised numbers; where subnormal results do not count, b may be a stored number."""
    size = wire(m, a.significand * b.significand)
    infinite = _either(m, a.infinite, b.infinite)
    return Exact(
        negative=wire(m, a.negative ^ b.negative),
        exponent=wire(m, a.exponent + b.exponent),
        size=size,
        drop=Mux(size[-1], MANTISSA, FIRST),
        infinite=infinite,
        nan=_either(m, a.nan, b.nan, _both(infinite, a.is_zero | b.is_zero)),
    )


def quotient(m: Module, a: Float, b: Float) -> Exact:
    """a / b of normalised numbers."""
    places = MANTISSA + 2
    dividend = wire(m, Cat(Const(0, places), a.significand))
    whole = Signal(places + 1)
    m.d.comb += whole.eq(dividend // b.significand)
    size: Value = wire(m, Cat(whole * b.significand != dividend, whole))
    if not isinstance(b.infinite, Const):
        size = wire(m, Mux(b.infinite, 0, size))
    by_zero = b.significand == 0
    nan = _either(m, a.nan, b.nan, _both(a.infinite, b.infinite), a.is_zero & b.is_zero)
    return Exact(
        negative=wire(m, a.negative ^ b.negative),
        exponent=wire(m, a.exponent - b.exponent - (places + 1)),
        size=size,
        drop=Mux(whole[-1], places + 2 - MANTISSA, places + 1 - MANTISSA),
        infinite=_either(m, a.infinite, by_zero if isinstance(b.infinite, Const) else by_zero & ~b.infinite),
        nan=nan,
    )


def total(m: Module, a: Float, b: Float) -> Exact:
    """a + b of stored numbers."""
    guard = 3
    a_size, b_size = (Cat(x.significand, (x.exponent - LOWEST)[:8]) for x in (a, b))
    swap = wire(m, a_size < b_size)
    high, low = wire(m, Mux(swap, b.significand, a.significand)), wire(m, Mux(swap, a.significand, b.significand))
    exponent = wire(m, Mux(swap, b.exponent, a.exponent))
    apart = (exponent - Mux(swap, a.exponent, b.exponent))[:8]
    aligned = moved_down(m, Cat(Const(0, guard), low), apart)
    wide = Cat(Const(0, guard), high)
    differ = wire(m, a.negative ^ b.negative)
    size = Signal(MANTISSA + guard + 1)
    m.d.comb += size.eq(Mux(differ, wide - aligned, wide + aligned))
    moved, places = leading(m, size)
    infinite = _either(m, a.infinite, b.infinite)
    ordered = Mux(swap, b.negative, a.negative) & ~(differ & (size == 0))
    return Exact(
        negative=wire(m, Mux(infinite, Mux(a.infinite, a.negative, b.negative), ordered)),
        exponent=wire(m, exponent - guard - places),
        size=moved,
        drop=Const(guard + 1, 3),
        infinite=infinite,
        nan=_either(m, a.nan, b.nan, _both(_both(a.infinite, b.infinite), differ)),
    )


def fused(m: Module, value: Value, factor: Float, addend: Float) -> Exact:
    """value · factor + addend, to be rounded once, of a signed ``value`` of 10 bits or fewer and stored numbers.

    Product and addend are added exactly, but where one begins more than 13 places below the last place of the other:
    there what it has below them decides only on which side of a tie the sum lies.
    """
    scaled = wire(m, magnitude(m, value) * factor.significand)
    above = len(scaled) - MANTISSA + 2
    """Places that the addend may lie above the product while the product is the one that stands still."""
    none = wire(m, value == 0)
    apart = wire(m, addend.exponent - Mux(none, LOWEST, factor.exponent))
    higher = wire(m, apart > above)
    room = MANTISSA - 1
    p = moved_down(m, Cat(Const(0, room), scaled), Mux(higher, (apart - above)[:9], 0))
    c = moved_down(m, Cat(Const(0, room + above), addend.significand), Mux(higher, 0, (above - apart)[:9]))
    p_negative = wire(m, value[-1] ^ factor.negative)
    differ = wire(m, p_negative ^ addend.negative)
    rest = wire(m, c - p)
    size = Signal(max(len(p), len(c)) + 1)
    m.d.comb += size.eq(Mux(differ, Mux(rest[-1], -rest, rest), p + c))
    moved, places = leading(m, size)
    negative = Mux(differ & rest[-1], p_negative, addend.negative & ~(differ & (size == 0)))
    infinite = _either(m, factor.infinite, addend.infinite)
    return Exact(
        negative=wire(m, Mux(infinite, Mux(factor.infinite, p_negative, addend.negative), negative)),
        exponent=wire(m, Mux(higher, addend.exponent - above, Mux(none, LOWEST, factor.exponent)) - room - places),
        size=moved,
        drop=Const(len(size) - MANTISSA, 6),
        infinite=infinite,
        nan=_either(m, factor.nan, addend.nan, _both(factor.infinite, none | (addend.infinite & differ))),
    )


def to_integer(m: Module, x: Float) -> Value:
    """The nearest integer, ties to even: signed, INTEGER_BITS bits, held within ±2^23; -2^23 of what is no number."""
    beyond = x.infinite | x.nan | (x.exponent >= 0)
    drop = at_most(m, (-x.exponent)[:9], MANTISSA + 1)
    half = ones(MANTISSA) >> (MANTISSA + 1 - drop)[:5]
    size = wire(m, Mux(beyond, 1 << FIRST, (x.significand + half + (x.significand >> drop)[0]) >> drop))
    held = Signal(signed(INTEGER_BITS), name="integer")
    m.d.comb += held.eq(Mux(x.negative | x.nan, -size, size))
    return held


def multiply(m: Module, a: Float, b: Float, *, tiny: bool = True) -> Float:
    """`product`, `rounded`."""
    return rounded(m, product(m, a, b), tiny=tiny)


def add(m: Module, a: Float, b: Float) -> Float:
    """`total`, `rounded`."""
    return rounded(m, total(m, a, b))
