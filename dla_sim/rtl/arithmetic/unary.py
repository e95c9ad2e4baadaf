"""ReLU, leaky ReLU, absolute value and a change of quantisation, of one int8 value."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

from amaranth.hdl import Elaboratable, Module, Mux, Value, signed, unsigned

from dla_sim.rtl.arithmetic import fixed as integers_only
from dla_sim.rtl.arithmetic import floats
from dla_sim.rtl.arithmetic.integers import magnitude, wire
from dla_sim.rtl.arithmetic.lane import Lane, as_float, as_scaling
from dla_sim.rtl.building import stage


class Function(IntEnum):
    """What `Unary` computes. SAME changes the quantisation alone."""

    SAME = 0
    RELU = 1
    LEAKY_RELU = 2
    ABSOLUTE = 3


class Unary(Lane):
    """``result`` = g(``value``) between two quantisations (isa.numerics.unary, unary_fixed).

    ``function``, a `Function`, belongs to a command as constants do. Float32: value less zero point, times scale_a, g,
    divided by scale_y: five stages, 155 operators with one divider and two multipliers. Fixed: g of value less zero
    point, by scale_a, or by scale_b where leaky ReLU is below the zero point: four stages, 40 operators.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        scales = ("scale_a", "scale_b") if fixed else ("scale_a", "scale_b", "scale_y")
        super().__init__(
            {"value": signed(8), "function": unsigned(2)},
            ("input_zero", "zero_point", "low", "high", *scales),
            fixed=fixed, pipelined=pipelined, stages=4 if fixed else 5,
        )  # fmt: skip

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
        m = Module()
        centred = wire(m, self.value - self.input_zero)
        scaled = self._fixed(m, centred) if self.fixed else self._float(m, centred)
        self.limited(m, self.held(m, scaled) + self.zero_point)
        return m

    def _float(self, m: Module, centred: Value) -> Value:
        value = self.held_number(m, floats.from_integer(m, centred))
        real = floats.normalised(m, floats.multiply(m, value, as_float(self.scale_a)))
        real = self.held_number(m, real)
        sloped = floats.normalised(m, floats.multiply(m, real, as_float(self.scale_b)))
        result = self.held_number(m, self._applied(m, real, sloped))
        quotient = self.held_number(m, floats.quotient(m, result, as_float(self.scale_y)))
        return floats.to_integer(m, floats.rounded(m, quotient, tiny=False))

    def _applied(self, m: Module, real: floats.Float, sloped: floats.Float) -> floats.Float:
        leaky = wire(m, real.negative & (self.function == Function.LEAKY_RELU))
        none = wire(m, real.negative & (self.function == Function.RELU))
        chosen = floats.chosen(m, leaky, sloped, real)
        return replace(
            chosen,
            negative=wire(m, chosen.negative & (self.function != Function.ABSOLUTE)),
            significand=wire(m, Mux(none, 0, chosen.significand)),
            infinite=wire(m, chosen.infinite & ~none),
        )

    def _fixed(self, m: Module, centred: Value) -> Value:
        """A negative multiplier of leaky ReLU takes its sign after rounding."""
        below = wire(m, centred < 0)
        sloped = wire(m, below & (self.function == Function.LEAKY_RELU))
        value = Mux(self.function == Function.ABSOLUTE, magnitude(m, centred), centred)
        value = Mux(below & (self.function == Function.RELU), 0, value)
        (above, shift), (slope, slope_shift) = as_scaling(self.scale_a), as_scaling(self.scale_b)
        multiplier = Mux(sloped, magnitude(m, slope).as_signed(), above)
        negative = wire(m, sloped & slope[-1])
        left, right = Mux(sloped, slope_shift.left, shift.left), Mux(sloped, slope_shift.right, shift.right)
        names = ("value", "multiplier", "negative", "left", "right")
        value, multiplier, negative, left, right = (
            stage(m, part, pipelined=self.pipelined, name=name)
            for name, part in zip(names, (wire(m, value), multiplier, negative, left, right), strict=True)
        )
        places = integers_only.Places(left, right)
        result = integers_only.scaled(m, value, multiplier, places, pipelined=self.pipelined)
        return Mux(self.held(m, negative, 2), -result, result)
