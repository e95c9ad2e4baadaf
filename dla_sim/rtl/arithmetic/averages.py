"""Averages of windows, and running sums: terms, one after the other added up, and what becomes of the sum."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed as integers_only
from dla_sim.rtl.arithmetic import floats
from dla_sim.rtl.arithmetic.integers import at_most, leading, magnitude, wire
from dla_sim.rtl.arithmetic.lane import FRACTION_BITS, Lane, as_float, as_scaling

COUNT = unsigned(22)
"""Of taps of a window: 2,047 · 2,047 at most."""


def sum_shape(*, fixed: bool) -> Shape:
    """Of terms and running sums: an integer, or the bits of a float32."""
    return signed(40) if fixed else unsigned(32)


class RunningSum(wiring.Component):
    """``result`` = ``total`` + ``term``, without registers: whoever sums up keeps the total, which begins with 0.

    Float32: 85 operators.
    """

    latency = 0

    def __init__(self, *, fixed: bool) -> None:
        self.fixed = fixed
        shape = sum_shape(fixed=fixed)
        super().__init__({"total": In(shape), "term": In(shape), "result": Out(shape)})

    def elaborate(self, platform: object) -> Elaboratable:
        """The adder."""
        m = Module()
        if self.fixed:
            m.d.comb += self.result.eq(self.total + self.term)
        else:
            a, b = floats.unpack(m, self.total), floats.unpack(m, self.term)
            m.d.comb += self.result.eq(floats.pack(m, floats.add(m, a, b)))
        return m


class AverageTerm(Lane):
    """``result`` is what a tap adds to the sum: ``value`` less zero point, as a real number, where it is ``valid``.

    Float32: value plus offset less zero point, times scale_a, and 0 of a tap in the padding; 2 stages, 45 operators.
    Fixed: without offset, which a tap in the padding takes off; no stage, 3 operators.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        constants = ("input_zero", "offset") if fixed else ("input_zero", "offset", "scale_a")
        operands = {"value": signed(8), "valid": unsigned(1)}
        super().__init__(
            operands, constants, fixed=fixed, pipelined=pipelined, stages=0 if fixed else 2,
            result=sum_shape(fixed=fixed),
        )  # fmt: skip

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
        m = Module()
        if self.fixed:
            m.d.comb += self.result.eq(Mux(self.valid, self.value - self.input_zero, -self.offset))
            return m
        centred = wire(m, Mux(self.valid, self.value + self.offset - self.input_zero, 0))
        number = self.held_number(m, floats.from_integer(m, centred))
        m.d.comb += self.result.eq(self.held(m, floats.pack(m, floats.multiply(m, number, as_float(self.scale_a)))))
        return m


class AverageResult(Lane):
    """``result`` is the average of ``count`` taps whose sum is ``total`` (isa.numerics.average_taps, average_fixed).

    Float32: total / count / scale_y + zero point, in the end less offset: 6 stages, 200 operators with two dividers.
    Fixed: total / count with 20 bits of fraction, scaled; 5 stages, 35 operators with a divider.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        of_fixed = ("input_zero", "zero_point", "scale_down", "kept")
        constants = of_fixed if fixed else ("scale_y", "zero_number", "offset")
        super().__init__(
            {"total": sum_shape(fixed=fixed), "count": COUNT}, (*constants, "low", "high"),
            fixed=fixed, pipelined=pipelined, stages=5 if fixed else 6,
        )  # fmt: skip

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
        m = Module()
        self.limited(m, self._fixed(m) if self.fixed else self._float(m))
        return m

    def _float(self, m: Module) -> Value:
        total = self.held_number(m, floats.normalised(m, floats.unpack(m, self.total)))
        count = self.held_number(m, floats.from_integer(m, Cat(self.count, Const(0, 1)).as_signed()))
        mean = floats.rounded(m, self.held_number(m, floats.quotient(m, total, count)))
        mean = self.held_number(m, floats.normalised(m, mean))
        steps = floats.rounded(m, self.held_number(m, floats.quotient(m, mean, as_float(self.scale_y))))
        moved = self.held_number(m, floats.total(m, steps, as_float(self.zero_number)))
        return self.held(m, floats.to_integer(m, floats.rounded(m, moved))) - self.offset

    def _fixed(self, m: Module) -> Value:
        """With one quantisation stored values are averaged, without fraction and zero point."""
        stored = self.total + self.count * self.input_zero
        moved_up = Cat(Const(0, FRACTION_BITS), self.total).as_signed()
        dividend = self.held(m, wire(m, Mux(self.kept, stored, moved_up)))
        count = self.held(m, self.count)
        size = wire(m, (magnitude(m, dividend) + (count >> 1)) // count)
        mean = Signal(signed(39))
        m.d.comb += mean.eq(Mux(dividend[-1], -size[:38], size[:38]))
        mean = self.held(m, mean)
        multiplier, places = as_scaling(self.scale_down)
        scaled = integers_only.scaled(m, mean, multiplier, places, pipelined=self.pipelined, steady=True)
        plain = self.held(m, mean[:32].as_signed(), 2)
        return self.held(m, wire(m, Mux(self.kept, plain, scaled + self.zero_point)))


def mean_multiplier(m: Module, multiplier: Value, shift: Value, count: Value) -> tuple[Value, Value]:
    """Multiplier and shift of the mean of a plane of ``count`` elements (isa.numerics.mean_multiplier).

    Once a command; it divides.
    """
    width = len(count)
    _, zeros = leading(m, count)
    room = wire(m, 31 + shift)
    first = wire(m, (width - 1 - zeros)[: width.bit_length()])
    places = at_most(m, Mux(room < first, Mux(room < 0, 0, room[: width.bit_length()]), first), width)
    quotient = wire(m, (multiplier << places) // count)
    return quotient[:32], wire(m, shift - places)
