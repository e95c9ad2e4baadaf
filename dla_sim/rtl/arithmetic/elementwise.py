"""Lanes of element-wise instructions on int8 values and int32 words."""

from dataclasses import replace
from enum import IntEnum

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed as integers_only
from dla_sim.rtl.arithmetic import floats
from dla_sim.rtl.arithmetic.integers import limit_value, magnitude, wire
from dla_sim.rtl.arithmetic.lane import Lane, split_scaling, to_float
from dla_sim.rtl.building import stage


class Choice(wiring.Component):
    """Lane that selects between ``a`` and ``b``.

    ``result`` is ``a`` with ``first``, otherwise the larger operand with ``maximum``, otherwise the
    smaller one. The lane is combinational; ``maximum`` and ``first`` are constant during a command.
    """

    latency = 0

    def __init__(self) -> None:
        byte = signed(8)
        super().__init__(
            {"a": In(byte), "b": In(byte), "first": In(1), "maximum": In(1), "result": Out(byte)}
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.d.comb += self.result.eq(
            Mux(self.first, self.a, extreme(m, self.a, self.b, self.maximum))
        )
        return m


FLOOR = 0
NEAREST_EVEN = 1
HALF_AWAY = 2
"""Rounding modes of a right shift: codes of the field ``rounding`` of OP_E32_SHIFT."""


class AddShift(wiring.Component):
    """Lane of int32 addition and shift (isa.numerics.add_int32, shift_int32).

    ``result`` is ``a`` + ``b``. With ``shifts`` it is ``a`` · 2^``amount``, or with ``right`` too
    ``a`` / 2^``amount`` rounded by ``rounding``. ``overflow`` is 1 if the result is outside int32.
    All inputs except ``a`` and ``b`` are constant during a command. One stage, 15 operators.
    """

    def __init__(self, *, pipelined: bool) -> None:
        self.pipelined = pipelined
        self.latency = int(pipelined)
        inputs = {
            "a": signed(32),
            "b": signed(32),
            "shifts": 1,
            "right": 1,
            "amount": 5,
            "rounding": 2,
        }
        outputs = {"result": Out(signed(32)), "overflow": Out(1)}
        super().__init__({name: In(shape) for name, shape in inputs.items()} | outputs)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        moved = Signal(signed(63))
        m.d.comb += moved.eq(self.a << self.amount)
        left_or_right = Mux(self.right, self._right(m), moved)
        found = wire(m, Mux(self.shifts, left_or_right, self.a + self.b))
        overflow = found[31:] != found[31].replicate(len(found) - 31)
        m.d.comb += [
            self.result.eq(stage(m, found[:32].as_signed(), pipelined=self.pipelined)),
            self.overflow.eq(stage(m, overflow, pipelined=self.pipelined)),
        ]
        return m

    def _right(self, m: Module) -> Value:
        """Return ``a`` shifted right, rounded to nearest or down as the command selects.

        Half a unit is added, minus the last bit if a tie rounds down. The value is doubled first,
        so that half a unit is an integer.
        """
        unit = (Const(1, 1) << self.amount)[:32]
        odd = (self.a >> self.amount)[0]
        tie_up = Mux(self.rounding == NEAREST_EVEN, odd, ~self.a[-1])
        added = wire(m, Mux(self.rounding == FLOOR, 0, unit - ~tie_up))
        return (((self.a << 1) + added) >> (self.amount + 1)[:6]).as_signed()


class UnaryFunction(IntEnum):
    """Unary functions of an element-wise lane; SAME only changes the quantisation."""

    SAME = 0
    RELU = 1
    LEAKY_RELU = 2
    ABSOLUTE = 3


class Unary(Lane):
    """Lane of a unary function g between two quantisations (isa.numerics.unary, unary_fixed).

    ``function`` (a `UnaryFunction`) is constant during a command, like the lane's constants.

    Float32: (value - zero point) · scale_a, then g, then division by scale_y; five stages, 155
    operators including one divider and two multipliers. Fixed: g of (value - zero point), scaled by
    scale_a, or by scale_b if leaky ReLU is below the zero point; four stages, 40 operators.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        scales = ("scale_a", "scale_b") if fixed else ("scale_a", "scale_b", "scale_y")
        super().__init__(
            {"value": signed(8), "function": unsigned(2)},
            ("input_zero", "zero_point", "low", "high", *scales),
            fixed=fixed, pipelined=pipelined, stages=4 if fixed else 5,
        )  # fmt: skip

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        centred = wire(m, self.value - self.input_zero)
        scaled = self._integer(m, centred) if self.fixed else self._real(m, centred)
        self.clamp_result(m, self.delay_value(m, scaled) + self.zero_point)
        return m

    def _real(self, m: Module, centred: Value) -> Value:
        value = self.delay_number(m, floats.from_integer(m, centred))
        real = floats.normalise_number(m, floats.multiply(m, value, to_float(self.scale_a)))
        real = self.delay_number(m, real)
        sloped = floats.normalise_number(m, floats.multiply(m, real, to_float(self.scale_b)))
        result = self.delay_number(m, self._apply_slopes(m, real, sloped))
        quotient = self.delay_number(m, floats.quotient(m, result, to_float(self.scale_y)))
        return floats.to_integer(m, floats.round_number(m, quotient, tiny=False))

    def _apply_slopes(self, m: Module, real: floats.Float, sloped: floats.Float) -> floats.Float:
        leaky = wire(m, real.negative & (self.function == UnaryFunction.LEAKY_RELU))
        none = wire(m, real.negative & (self.function == UnaryFunction.RELU))
        chosen = floats.choose_number(m, leaky, sloped, real)
        return replace(
            chosen,
            negative=wire(m, chosen.negative & (self.function != UnaryFunction.ABSOLUTE)),
            significand=wire(m, Mux(none, 0, chosen.significand)),
            infinite=wire(m, chosen.infinite & ~none),
        )

    def _integer(self, m: Module, centred: Value) -> Value:
        """Apply the unary function and the output scale to an integer without zero point.

        The sign of a negative leaky ReLU slope is applied after rounding.
        """
        below = wire(m, centred < 0)
        sloped = wire(m, below & (self.function == UnaryFunction.LEAKY_RELU))
        value = Mux(self.function == UnaryFunction.ABSOLUTE, magnitude(m, centred), centred)
        value = Mux(below & (self.function == UnaryFunction.RELU), 0, value)
        above, shift = split_scaling(self.scale_a)
        slope, slope_shift = split_scaling(self.scale_b)
        multiplier = Mux(sloped, magnitude(m, slope).as_signed(), above)
        negative = wire(m, sloped & slope[-1])
        left = Mux(sloped, slope_shift.left, shift.left)
        right = Mux(sloped, slope_shift.right, shift.right)
        names = ("value", "multiplier", "negative", "left", "right")
        value, multiplier, negative, left, right = (
            stage(m, part, pipelined=self.pipelined, name=name)
            for name, part in zip(
                names, (wire(m, value), multiplier, negative, left, right), strict=True
            )
        )
        places = integers_only.Places(left, right)
        result = integers_only.scale_value(m, value, multiplier, places, pipelined=self.pipelined)
        return Mux(self.delay_value(m, negative, 2), -result, result)


OPERANDS = {"a": signed(8), "b": signed(8)}
ZEROS = ("input_zero", "operand_zero", "zero_point")
LIMITS = ("low", "high")
SCALES = ("scale_a", "scale_b", "scale_y")
LEFT_SHIFT = 20
SQUARED_SHIFT = 7
"""Left shifts of the operands with fixed numerics: for sums and quotients, for squared
differences.
"""
SQUARE_ROOT = 46340
"""Largest integer whose square is below 2^31."""


def _shift_up(value: Value, places: int) -> Value:
    return Cat(Const(0, places), value).as_signed()


class _Pair(Lane):
    def _subtract_zero_points(self, m: Module) -> tuple[Value, Value]:
        """Return both operands minus their zero points."""
        return wire(m, self.a - self.input_zero), wire(m, self.b - self.operand_zero)

    def _reals(self, m: Module) -> tuple[floats.Float, floats.Float]:
        """Return both operands, dequantised to float32, after two pipeline stages."""
        found = []
        for value, scale in zip(
            self._subtract_zero_points(m), (self.scale_a, self.scale_b), strict=True
        ):
            number = self.delay_number(m, floats.from_integer(m, value))
            found.append(self.delay_number(m, floats.multiply(m, number, to_float(scale))))
        return found[0], found[1]

    def _steps(self, m: Module, real: floats.Float) -> Value:
        """Return a float divided by the output scale and rounded, after two pipeline stages."""
        quotient = floats.quotient(m, real, to_float(self.scale_y))
        quotient = self.delay_number(m, quotient)
        return self.delay_value(
            m, floats.to_integer(m, floats.round_number(m, quotient, tiny=False))
        )

    def _scale_value(self, m: Module, value: Value, scale: Value) -> Value:
        """Return ``value`` scaled by a multiplier and a shift, after two pipeline stages."""
        multiplier, places = split_scaling(scale)
        return integers_only.scale_value(
            m, value, multiplier, places, pipelined=self.pipelined, steady=True
        )

    def _scale_pair(self, m: Module, shift: int) -> tuple[Value, Value]:
        """Return both operands scaled to a common unit, after two pipeline stages.

        The scaling follows a shift to the left by ``shift``.
        """
        a, b = (_shift_up(value, shift) for value in self._subtract_zero_points(m))
        return self._scale_value(m, a, self.scale_a), self._scale_value(m, b, self.scale_b)


class Addition(_Pair):
    """Lane of ``result`` = ``a`` + ``b`` (isa.numerics.add, add_fixed).

    Float32: two fused multiply-adds, then minus offset; 4 stages, 170 operators including two
    multipliers. Fixed: 6 stages, 60 operators including three multipliers.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        constants = (*ZEROS, *LIMITS, *SCALES) if fixed else ("offset", *LIMITS, *SCALES)
        super().__init__(
            OPERANDS, constants, fixed=fixed, pipelined=pipelined, stages=6 if fixed else 4
        )

    def _float(self, m: Module) -> Value:
        a, b = (wire(m, value + self.offset) for value in (self.a, self.b))
        ratio_a, ratio_b, constant = (
            to_float(scale) for scale in (self.scale_a, self.scale_b, self.scale_y)
        )
        inner = self.delay_number(m, floats.multiply_add(m, b, ratio_b, constant))
        addend = self.delay_number(m, floats.round_number(m, inner))
        a = self.delay_value(m, a, 2)
        outer = self.delay_number(m, floats.multiply_add(m, a, ratio_a, addend))
        return (
            self.delay_value(m, floats.to_integer(m, floats.round_number(m, outer, tiny=False)))
            - self.offset
        )

    def _build_fixed(self, m: Module) -> Value:
        a, b = self._scale_pair(m, LEFT_SHIFT)
        return (
            self.delay_value(m, self._scale_value(m, self.delay_value(m, a + b), self.scale_y))
            + self.zero_point
        )


class Subtraction(_Pair):
    """Lane of the difference ``result`` = ``a`` - ``b``, or of its square with ``squared``.

    ``squared`` is constant during a command. The rules are isa.numerics.subtract, add_fixed with
    ``subtract`` and squared_difference_fixed. Float32: 6 stages, 255 operators including a divider
    and three multipliers. Fixed: 6 stages, 70 operators including four multipliers.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        operands = OPERANDS | {"squared": unsigned(1)}
        super().__init__(
            operands, (*ZEROS, *LIMITS, *SCALES), fixed=fixed, pipelined=pipelined, stages=6
        )

    def _float(self, m: Module) -> Value:
        a, b = self._reals(m)
        difference = floats.normalise_number(m, floats.add(m, a, floats.negate(b)))
        difference = self.delay_number(m, difference)
        square = floats.normalise_number(m, floats.multiply(m, difference, difference))
        chosen = self.delay_number(m, floats.choose_number(m, self.squared, square, difference))
        return self._steps(m, chosen) + self.zero_point

    def _build_fixed(self, m: Module) -> Value:
        """Build the logic that subtracts two operands with integer-only numerics.

        Operands of a squared difference are shifted left by fewer places.
        """
        a, b = (
            wire(
                m,
                Mux(
                    self.squared,
                    *(_shift_up(value, places) for places in (SQUARED_SHIFT, LEFT_SHIFT)),
                ),
            )
            for value in self._subtract_zero_points(m)
        )
        difference = wire(
            m, self._scale_value(m, a, self.scale_a) - self._scale_value(m, b, self.scale_b)
        )
        root = limit_value(m, magnitude(m, difference), SQUARE_ROOT + 1)
        square = wire(m, root * root)
        limited = Mux(square[-1], integers_only.INT32_HIGH, square)
        value = self.delay_value(m, wire(m, Mux(self.squared, limited, difference)))
        return self.delay_value(m, self._scale_value(m, value, self.scale_y)) + self.zero_point


class Multiplication(_Pair):
    """Lane of ``result`` = ``a`` · ``b`` (isa.numerics.multiply, multiply_fixed).

    Float32: the integer product times scale_a, plus the zero point, minus offset; 5 stages, 125
    operators including two multipliers. Fixed: 4 stages, 25 operators including two multipliers.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        zeros = ZEROS if fixed else ("input_zero", "operand_zero", "zero_number", "offset")
        super().__init__(
            OPERANDS,
            (*zeros, *LIMITS, "scale_a"),
            fixed=fixed,
            pipelined=pipelined,
            stages=4 if fixed else 5,
        )

    def _product(self, m: Module) -> Value:
        a, b = self._subtract_zero_points(m)
        return self.delay_value(m, a * b)

    def _float(self, m: Module) -> Value:
        number = self.delay_number(m, floats.from_integer(m, self._product(m)))
        scaled = self.delay_number(m, floats.multiply(m, number, to_float(self.scale_a)))
        total = self.delay_number(m, floats.total(m, scaled, to_float(self.zero_number)))
        return (
            self.delay_value(m, floats.to_integer(m, floats.round_number(m, total))) - self.offset
        )

    def _build_fixed(self, m: Module) -> Value:
        return (
            self.delay_value(m, self._scale_value(m, self._product(m), self.scale_a))
            + self.zero_point
        )


class Division(_Pair):
    """Lane of ``result`` = ``a`` / ``b`` (isa.numerics.divide, divide_fixed).

    Division by 0 gives the limit with the sign of ``a``. Float32: 6 stages, 205 operators including
    two dividers and two multipliers. Fixed: 5 stages, 40 operators including a divider.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        scales = ("scale_a",) if fixed else SCALES
        constants = (*ZEROS, *LIMITS, *scales)
        super().__init__(
            OPERANDS, constants, fixed=fixed, pipelined=pipelined, stages=5 if fixed else 6
        )

    def _float(self, m: Module) -> Value:
        a, b = (floats.normalise_number(m, real) for real in self._reals(m))
        ratio = self.delay_number(m, floats.quotient(m, a, b))
        real = self.delay_number(m, floats.normalise_number(m, floats.round_number(m, ratio)))
        return self._steps(m, real) + self.zero_point

    def _build_fixed(self, m: Module) -> Value:
        """Build the logic that divides two operands with integer-only numerics.

        Flags for a zero divisor and a positive dividend accompany the quotient.
        """
        a, b = (self.delay_value(m, value) for value in self._subtract_zero_points(m))
        divisor = magnitude(m, b)
        rounded = Cat(Const(0, LEFT_SHIFT + 1), magnitude(m, a)) + divisor
        size = wire(m, (rounded // Cat(Const(0, 1), divisor))[: LEFT_SHIFT + 17])
        quotient = self.delay_value(m, wire(m, Mux(a[-1] ^ b[-1], -size, size)))
        by_zero, positive = (
            self.delay_value(m, flag, 4) for flag in (wire(m, b == 0), wire(m, a > 0))
        )
        scaled = self.delay_value(m, self._scale_value(m, quotient, self.scale_a)) + self.zero_point
        return Mux(by_zero, Mux(positive, self.high, self.low), scaled)


def extreme(m: Module, a: Value, b: Value, maximum: Value) -> Value:
    """Return the larger of two values with ``maximum``, otherwise the smaller.

    Both values have one quantisation.
    """
    return wire(m, Mux((a < b) ^ maximum, a, b))
