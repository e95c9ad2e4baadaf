"""Float32 in logic: functions that add combinational gates to a module, rounded half to even.

A number is a :class:`Float` with separate fields, so that chains of operations need not pack and
unpack. `unpack`, `from_integer` and the operations return numbers in *stored* form, like float32 in
memory: subnormal numbers and 0 have exponent -149 and a first bit of 0. `normalise_number` shifts
the first bit up for the operations that require it.

A simulator executes each operation of up to 64 bits as one instruction, so there are few wide
operations and none above 64 bits. Each operation on two operands consists of an exact part
(`product`, `quotient`, `total`, `multiply_add`), which may be followed by a pipeline register, and
`round_number`. Approximate operators: from_integer 25, multiply 30, add 65, fused 70, quotient 35
plus a divider, to_integer 10, normalised 20, unpack and pack 6.
"""

from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import or_
from typing import TypeVar

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from dla_sim.rtl.arithmetic.integers import (
    limit_value,
    magnitude,
    normalise_leading,
    ones,
    shift_down,
    wire,
)
from dla_sim.rtl.building import stage

MANTISSA = 24
FIRST = 23
"""Bits of a significand, and the index of its first bit."""
LOWEST = -149
HIGHEST = 104
"""Smallest and largest exponent of a stored number's last place."""
WIDEST = 40
"""Width up to which `from_integer` rounds an integer directly."""
INTEGER_BITS = 25
"""Width of the integers that `to_integer` returns."""
NEVER = Const(0, 1)
"""Constant flag of an impossible case, such as an infinite scale."""


@dataclass(frozen=True, eq=False)
class Float:
    """A float32: (-1)^negative · significand · 2^exponent, an infinity of that sign, or NaN.

    ``significand`` has 24 bits, ``exponent`` is signed; both are arbitrary if a flag is 1.
    """

    negative: Value
    exponent: Value
    significand: Value
    infinite: Value
    nan: Value

    @property
    def is_zero(self) -> Value:
        """1 for +0 and -0."""
        return (self.significand == 0) & ~self.infinite & ~self.nan


Number = TypeVar("Number", "Float", "Exact")


def stage_number(m: Module, x: Number, *, pipelined: bool) -> Number:
    """Return a float delayed by one pipeline register; constant fields need no register."""
    parts = ((field.name, getattr(x, field.name)) for field in fields(x))
    held = (
        part if isinstance(part, Const) else stage(m, part, pipelined=pipelined, name=name)
        for name, part in parts
    )
    return type(x)(*held)


def _either(m: Module, *flags: Value) -> Value:
    """Return the OR of one-bit flags; constant flags cost no gate."""
    possible = [flag for flag in flags if not isinstance(flag, Const)]
    return wire(m, reduce(or_, possible)) if possible else NEVER


def _both(a: Value, b: Value) -> Value:
    return NEVER if isinstance(a, Const) or isinstance(b, Const) else a & b


def choose_number(m: Module, condition: Value, a: Float, b: Float) -> Float:
    """Return the float ``a`` if ``condition`` is 1, otherwise the float ``b``."""
    names = [field.name for field in fields(a)]
    return Float(
        *(wire(m, Mux(condition, getattr(a, name), getattr(b, name)), name) for name in names)
    )


def unpack(m: Module, bits: Value) -> Float:
    """Return the number with the float32 bits ``bits``."""
    field = bits[FIRST:31]
    fraction = bits[:FIRST]
    normal = wire(m, field != 0)
    special = wire(m, field == 255)
    exponent = wire(m, Mux(normal, field, Const(1)) - 150)
    nan = wire(m, special & (fraction != 0))
    return Float(bits[31], exponent, Cat(fraction, normal), wire(m, special & ~nan), nan)


def finite(m: Module, bits: Value) -> Float:
    """Unpack ``bits`` that are known to be a finite number, such as a scale."""
    return replace(unpack(m, bits), infinite=NEVER, nan=NEVER)


def pack(m: Module, x: Float) -> Value:
    """Return the float32 bits of ``x``, a number in stored form; NaN becomes 0x7FC00000."""
    field = Signal(8, name="field")
    m.d.comb += field.eq(Mux(x.significand[FIRST], x.exponent + 150, 0))
    special = Cat(Const(0, 22), x.nan, Const(255, 8), x.negative & ~x.nan)
    return wire(m, Mux(x.infinite | x.nan, special, Cat(x.significand[:FIRST], field, x.negative)))


def normalise_number(m: Module, x: Float) -> Float:
    """Return ``x`` with a significand that starts with a 1 (except 0).

    `product` and `quotient` need this.
    """
    significand, places = normalise_leading(m, x.significand)
    return replace(x, significand=significand, exponent=wire(m, x.exponent - places))


def negate(x: Float) -> Float:
    return replace(x, negative=~x.negative)


def from_integer(m: Module, value: Value) -> Float:
    """Return a signed ``value`` of any width, rounded to float32 and normalised."""
    size = magnitude(m, value)
    room = max(MANTISSA - len(size), 0)
    moved, places = normalise_leading(m, Cat(Const(0, room), size))
    spare = max(len(moved) - WIDEST, 0)
    if spare:  # one bit is enough for the bits that only decide a tie
        moved = wire(m, Cat(moved[: spare + 1] != 0, moved[spare + 1 :]), "moved")
    drop = len(moved) - MANTISSA
    rounded = Signal(MANTISSA + 1)
    m.d.comb += rounded.eq((moved + moved[drop] + ones(drop - 1)) >> drop if drop else moved)
    exponent = Signal(signed(8))
    m.d.comb += exponent.eq(
        Mux(moved[-1], spare + drop - room + rounded[MANTISSA] - places, LOWEST)
    )
    significand = Cat(rounded[:FIRST], rounded[FIRST] | rounded[MANTISSA])
    return Float(value[-1], exponent, significand, NEVER, NEVER)


@dataclass(frozen=True, eq=False)
class Exact:
    """Result of float32 arithmetic before rounding: ``size`` · 2^exponent.

    Unless it is 0, its first bit has the index ``drop`` + 23. The last bit of ``size`` may
    represent all lower bits (`shift_down`).
    """

    negative: Value
    exponent: Value
    size: Value
    drop: Value
    infinite: Value
    nan: Value


def round_number(m: Module, exact: Exact, *, tiny: bool = True) -> Float:
    """Round an exact result to the nearest float32.

    With ``tiny`` False subnormal results may keep too many places. Use it only before `to_integer`,
    which turns them into 0.
    """
    width = len(exact.size)
    drop: Value = wire(m, exact.drop, "drop")
    if tiny:  # a subnormal number's last place is 2^-149
        below = wire(m, LOWEST - exact.exponent, "below")
        drop = limit_value(m, Mux(below > drop, below, drop), width + 1)
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
    """Return the unrounded product of two normalised float32 numbers.

    B may be in stored form if subnormal results do not matter.
    """
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
    """Return the quotient of two normalised float32 numbers before its rounding."""
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
        infinite=_either(
            m, a.infinite, by_zero if isinstance(b.infinite, Const) else by_zero & ~b.infinite
        ),
        nan=nan,
    )


def total(m: Module, a: Float, b: Float) -> Exact:
    """Return the sum of two stored float32 numbers before its rounding."""
    guard = 3
    a_size, b_size = (Cat(x.significand, (x.exponent - LOWEST)[:8]) for x in (a, b))
    swap = wire(m, a_size < b_size)
    high = wire(m, Mux(swap, b.significand, a.significand))
    low = wire(m, Mux(swap, a.significand, b.significand))
    exponent = wire(m, Mux(swap, b.exponent, a.exponent))
    apart = (exponent - Mux(swap, a.exponent, b.exponent))[:8]
    aligned = shift_down(m, Cat(Const(0, guard), low), apart)
    wide = Cat(Const(0, guard), high)
    differ = wire(m, a.negative ^ b.negative)
    size = Signal(MANTISSA + guard + 1)
    m.d.comb += size.eq(Mux(differ, wide - aligned, wide + aligned))
    moved, places = normalise_leading(m, size)
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


def multiply_add(m: Module, value: Value, factor: Float, addend: Float) -> Exact:
    """Return value · factor + addend of a fused multiply-add, before its only rounding.

    ``value`` is signed with at most 10 bits; the other operands are stored numbers. Product and
    addend are added exactly, unless one begins more than 13 places below the last place of the
    other. In that case the bits below only decide the side of a tie.
    """
    scaled = wire(m, magnitude(m, value) * factor.significand)
    above = len(scaled) - MANTISSA + 2
    """Distance by which the addend may exceed the product while the product stays unshifted."""
    none = wire(m, value == 0)
    apart = wire(m, addend.exponent - Mux(none, LOWEST, factor.exponent))
    higher = wire(m, apart > above)
    room = MANTISSA - 1
    p = shift_down(m, Cat(Const(0, room), scaled), Mux(higher, (apart - above)[:9], 0))
    c = shift_down(
        m, Cat(Const(0, room + above), addend.significand), Mux(higher, 0, (above - apart)[:9])
    )
    p_negative = wire(m, value[-1] ^ factor.negative)
    differ = wire(m, p_negative ^ addend.negative)
    rest = wire(m, c - p)
    size = Signal(max(len(p), len(c)) + 1)
    m.d.comb += size.eq(Mux(differ, Mux(rest[-1], -rest, rest), p + c))
    moved, places = normalise_leading(m, size)
    negative = Mux(differ & rest[-1], p_negative, addend.negative & ~(differ & (size == 0)))
    infinite = _either(m, factor.infinite, addend.infinite)
    return Exact(
        negative=wire(
            m, Mux(infinite, Mux(factor.infinite, p_negative, addend.negative), negative)
        ),
        exponent=wire(
            m,
            Mux(higher, addend.exponent - above, Mux(none, LOWEST, factor.exponent))
            - room
            - places,
        ),
        size=moved,
        drop=Const(len(size) - MANTISSA, 6),
        infinite=infinite,
        nan=_either(
            m, factor.nan, addend.nan, _both(factor.infinite, none | (addend.infinite & differ))
        ),
    )


def to_integer(m: Module, x: Float) -> Value:
    """Return the nearest integer, ties to even, saturated at ±2^23; NaN gives -2^23.

    The result is signed with INTEGER_BITS bits.
    """
    beyond = x.infinite | x.nan | (x.exponent >= 0)
    drop = limit_value(m, (-x.exponent)[:9], MANTISSA + 1)
    half = ones(MANTISSA) >> (MANTISSA + 1 - drop)[:5]
    size = wire(
        m, Mux(beyond, 1 << FIRST, (x.significand + half + (x.significand >> drop)[0]) >> drop)
    )
    held = Signal(signed(INTEGER_BITS), name="integer")
    m.d.comb += held.eq(Mux(x.negative | x.nan, -size, size))
    return held


def multiply(m: Module, a: Float, b: Float, *, tiny: bool = True) -> Float:
    """Return the product of two float32 numbers, rounded to float32."""
    return round_number(m, product(m, a, b), tiny=tiny)


def add(m: Module, a: Float, b: Float) -> Float:
    """Return the sum of two float32 numbers, rounded to float32."""
    return round_number(m, total(m, a, b))
