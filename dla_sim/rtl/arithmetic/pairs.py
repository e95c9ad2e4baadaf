"""Sums, differences, products and quotients of two int8 values, each with a quantisation of its own."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Value, signed, unsigned

from dla_sim.rtl.arithmetic import fixed as integers_only
from dla_sim.rtl.arithmetic import floats
from dla_sim.rtl.arithmetic.integers import at_most, magnitude, wire
from dla_sim.rtl.arithmetic.lane import Lane, as_float, as_scaling

OPERANDS = {"a": signed(8), "b": signed(8)}
ZEROS = ("input_zero", "operand_zero", "zero_point")
LIMITS = ("low", "high")
SCALES = ("scale_a", "scale_b", "scale_y")
LEFT_SHIFT, SQUARED_SHIFT = 20, 7
"""Places that fixed numerics move operands up: sums and quotients, squared differences."""
SQUARE_ROOT = 46340
"""The largest integer whose square is below 2^31."""


def _moved_up(value: Value, places: int) -> Value:
    return Cat(Const(0, places), value).as_signed()


class _Pair(Lane):
    """A lane of two operands."""

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
        m = Module()
        self.limited(m, self._fixed(m) if self.fixed else self._float(m))
        return m

    def _fixed(self, m: Module) -> Value:
        raise NotImplementedError

    def _float(self, m: Module) -> Value:
        raise NotImplementedError

    def _centred(self, m: Module) -> tuple[Value, Value]:
        """Both operands less their zero points."""
        return wire(m, self.a - self.input_zero), wire(m, self.b - self.operand_zero)

    def _reals(self, m: Module) -> tuple[floats.Float, floats.Float]:
        """Both as real numbers; two stages."""
        found = []
        for value, scale in zip(self._centred(m), (self.scale_a, self.scale_b), strict=True):
            number = self.held_number(m, floats.from_integer(m, value))
            found.append(self.held_number(m, floats.multiply(m, number, as_float(scale))))
        return found[0], found[1]

    def _steps(self, m: Module, real: floats.Float) -> Value:
        """A normalised number in steps of the result, rounded; two stages."""
        quotient = floats.quotient(m, real, as_float(self.scale_y))
        quotient = self.held_number(m, quotient)
        return self.held(m, floats.to_integer(m, floats.rounded(m, quotient, tiny=False)))

    def _scaled(self, m: Module, value: Value, scale: Value) -> Value:
        """By a multiplier and a shift; two stages."""
        multiplier, places = as_scaling(scale)
        return integers_only.scaled(m, value, multiplier, places, pipelined=self.pipelined, steady=True)

    def _scaled_pair(self, m: Module, shift: int) -> tuple[Value, Value]:
        """Both operands, moved up by ``shift`` places, in a common unit; two stages."""
        a, b = (_moved_up(value, shift) for value in self._centred(m))
        return self._scaled(m, a, self.scale_a), self._scaled(m, b, self.scale_b)


class Addition(_Pair):
    """``result`` = ``a`` + ``b`` (isa.numerics.add, add_fixed).

    Float32: two fused multiply-adds, in the end less offset: 4 stages, 170 operators, two of them multiply. Fixed: 6
    stages, 60 operators, three of them multiply.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        constants = (*ZEROS, *LIMITS, *SCALES) if fixed else ("offset", *LIMITS, *SCALES)
        super().__init__(OPERANDS, constants, fixed=fixed, pipelined=pipelined, stages=6 if fixed else 4)

    def _float(self, m: Module) -> Value:
        a, b = (wire(m, value + self.offset) for value in (self.a, self.b))
        ratio_a, ratio_b, constant = (as_float(scale) for scale in (self.scale_a, self.scale_b, self.scale_y))
        inner = self.held_number(m, floats.fused(m, b, ratio_b, constant))
        addend = self.held_number(m, floats.rounded(m, inner))
        a = self.held(m, a, 2)
        outer = self.held_number(m, floats.fused(m, a, ratio_a, addend))
        return self.held(m, floats.to_integer(m, floats.rounded(m, outer, tiny=False))) - self.offset

    def _fixed(self, m: Module) -> Value:
        a, b = self._scaled_pair(m, LEFT_SHIFT)
        return self.held(m, self._scaled(m, self.held(m, a + b), self.scale_y)) + self.zero_point


class Subtraction(_Pair):
    """``result`` = ``a`` - ``b``, or its square with ``squared``, which belongs to a command.

    Rules: isa.numerics.subtract, add_fixed to subtract, squared_difference_fixed. Float32: 6 stages, 255 operators with
    a divider and three multipliers. Fixed: 6 stages, 70 operators, four of them multiply.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        operands = OPERANDS | {"squared": unsigned(1)}
        super().__init__(operands, (*ZEROS, *LIMITS, *SCALES), fixed=fixed, pipelined=pipelined, stages=6)

    def _float(self, m: Module) -> Value:
        a, b = self._reals(m)
        difference = floats.normalised(m, floats.add(m, a, floats.negated(b)))
        difference = self.held_number(m, difference)
        square = floats.normalised(m, floats.multiply(m, difference, difference))
        chosen = self.held_number(m, floats.chosen(m, self.squared, square, difference))
        return self._steps(m, chosen) + self.zero_point

    def _fixed(self, m: Module) -> Value:
        """The operands are moved up by fewer places where their difference is squared."""
        a, b = (
            wire(m, Mux(self.squared, *(_moved_up(value, places) for places in (SQUARED_SHIFT, LEFT_SHIFT))))
            for value in self._centred(m)
        )
        difference = wire(m, self._scaled(m, a, self.scale_a) - self._scaled(m, b, self.scale_b))
        root = at_most(m, magnitude(m, difference), SQUARE_ROOT + 1)
        square = wire(m, root * root)
        limited = Mux(square[-1], integers_only.INT32_HIGH, square)
        value = self.held(m, wire(m, Mux(self.squared, limited, difference)))
        return self.held(m, self._scaled(m, value, self.scale_y)) + self.zero_point


class Multiplication(_Pair):
    """``result`` = ``a`` · ``b`` (isa.numerics.multiply, multiply_fixed).

    Float32: the product of integers times scale_a, plus the zero point, in the end less offset: 5 stages, 125
    operators, two of them multiply. Fixed: 4 stages, 25 operators, two of them multiply.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        zeros = ZEROS if fixed else ("input_zero", "operand_zero", "zero_number", "offset")
        super().__init__(
            OPERANDS, (*zeros, *LIMITS, "scale_a"), fixed=fixed, pipelined=pipelined, stages=4 if fixed else 5
        )

    def _product(self, m: Module) -> Value:
        a, b = self._centred(m)
        return self.held(m, a * b)

    def _float(self, m: Module) -> Value:
        number = self.held_number(m, floats.from_integer(m, self._product(m)))
        scaled = self.held_number(m, floats.multiply(m, number, as_float(self.scale_a)))
        total = self.held_number(m, floats.total(m, scaled, as_float(self.zero_number)))
        return self.held(m, floats.to_integer(m, floats.rounded(m, total))) - self.offset

    def _fixed(self, m: Module) -> Value:
        return self.held(m, self._scaled(m, self._product(m), self.scale_a)) + self.zero_point


class Division(_Pair):
    """``result`` = ``a`` / ``b`` (isa.numerics.divide, divide_fixed); by 0 the limit of the sign of ``a``.

    Float32: 6 stages, 205 operators with two dividers and two multipliers. Fixed: 5 stages, 40 operators with a
    divider.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        scales = ("scale_a",) if fixed else SCALES
        constants = (*ZEROS, *LIMITS, *scales)
        super().__init__(OPERANDS, constants, fixed=fixed, pipelined=pipelined, stages=5 if fixed else 6)

    def _float(self, m: Module) -> Value:
        a, b = (floats.normalised(m, real) for real in self._reals(m))
        ratio = self.held_number(m, floats.quotient(m, a, b))
        real = self.held_number(m, floats.normalised(m, floats.rounded(m, ratio)))
        return self._steps(m, real) + self.zero_point

    def _fixed(self, m: Module) -> Value:
        """Beside the quotient goes what a division by 0 gives: of no sign, or one of two."""
        a, b = (self.held(m, value) for value in self._centred(m))
        divisor = magnitude(m, b)
        rounded = Cat(Const(0, LEFT_SHIFT + 1), magnitude(m, a)) + divisor
        size = wire(m, (rounded // Cat(Const(0, 1), divisor))[: LEFT_SHIFT + 17])
        quotient = self.held(m, wire(m, Mux(a[-1] ^ b[-1], -size, size)))
        by_zero, positive = (self.held(m, flag, 4) for flag in (wire(m, b == 0), wire(m, a > 0)))
        scaled = self.held(m, self._scaled(m, quotient, self.scale_a)) + self.zero_point
        return Mux(by_zero, Mux(positive, self.high, self.low), scaled)


def extreme(m: Module, a: Value, b: Value, maximum: Value) -> Value:
    """The larger of two values of one quantisation with ``maximum``, else the smaller."""
    return wire(m, Mux((a < b) ^ maximum, a, b))
