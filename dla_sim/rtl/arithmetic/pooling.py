"""Lanes of average pooling, and of interpolation between the four neighbours of a coordinate."""

from __future__ import annotations

from dataclasses import replace

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed as integers_only
from dla_sim.rtl.arithmetic import floats
from dla_sim.rtl.arithmetic.integers import at_most, leading, magnitude, wire
from dla_sim.rtl.arithmetic.lane import FRACTION_BITS, Lane, as_float, as_scaling
from dla_sim.rtl.building import stage

COUNT = unsigned(22)
"""Shape of a window's tap count: at most 2,047 · 2,047."""


def sum_shape(*, fixed: bool) -> Shape:
    """Return the shape of terms and running sums: an integer, or the bits of a float32."""
    return signed(40) if fixed else unsigned(32)


class RunningSum(wiring.Component):
    """Combinational adder of ``total`` and ``term``; the user stores the total, which starts at 0.

    Float32: 85 operators.
    """

    latency = 0

    def __init__(self, *, fixed: bool) -> None:
        self.fixed = fixed
        shape = sum_shape(fixed=fixed)
        super().__init__({"total": In(shape), "term": In(shape), "result": Out(shape)})

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        if self.fixed:
            m.d.comb += self.result.eq(self.total + self.term)
        else:
            a, b = floats.unpack(m, self.total), floats.unpack(m, self.term)
            m.d.comb += self.result.eq(floats.pack(m, floats.add(m, a, b)))
        return m


class AverageTerm(Lane):
    """Lane of one tap's term of an average: (``value`` - zero point) as a real number.

    Float32: (value + offset - zero point) · scale_a, or 0 for a tap in the padding (``valid`` 0); 2
    stages, 45 operators. Fixed: value - zero point, or -offset for a tap in the padding; no stage,
    3 operators.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        constants = ("input_zero", "offset") if fixed else ("input_zero", "offset", "scale_a")
        operands = {"value": signed(8), "valid": unsigned(1)}
        super().__init__(
            operands, constants, fixed=fixed, pipelined=pipelined, stages=0 if fixed else 2,
            result=sum_shape(fixed=fixed),
        )  # fmt: skip

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        if self.fixed:
            m.d.comb += self.result.eq(Mux(self.valid, self.value - self.input_zero, -self.offset))
            return m
        centred = wire(m, Mux(self.valid, self.value + self.offset - self.input_zero, 0))
        number = self.held_number(m, floats.from_integer(m, centred))
        m.d.comb += self.result.eq(self.held(m, floats.pack(m, floats.multiply(m, number, as_float(self.scale_a)))))
        return m


class AverageResult(Lane):
    """Lane of the average of ``count`` taps with sum ``total`` (isa.numerics.average_taps, average_fixed).

    Float32: total / count / scale_y + zero point - offset; 6 stages, 200 operators including two
    dividers. Fixed: total / count with 20 fraction bits, then scaled; 5 stages, 35 operators
    including a divider.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        of_fixed = ("input_zero", "zero_point", "scale_down", "kept")
        constants = of_fixed if fixed else ("scale_y", "zero_number", "offset")
        super().__init__(
            {"total": sum_shape(fixed=fixed), "count": COUNT}, (*constants, "low", "high"),
            fixed=fixed, pipelined=pipelined, stages=5 if fixed else 6,
        )  # fmt: skip

    def _float(self, m: Module) -> Value:
        total = self.held_number(m, floats.normalised(m, floats.unpack(m, self.total)))
        count = self.held_number(m, floats.from_integer(m, Cat(self.count, Const(0, 1)).as_signed()))
        mean = floats.rounded(m, self.held_number(m, floats.quotient(m, total, count)))
        mean = self.held_number(m, floats.normalised(m, mean))
        steps = floats.rounded(m, self.held_number(m, floats.quotient(m, mean, as_float(self.scale_y))))
        moved = self.held_number(m, floats.total(m, steps, as_float(self.zero_number)))
        return self.held(m, floats.to_integer(m, floats.rounded(m, moved))) - self.offset

    def _fixed(self, m: Module) -> Value:
        """Average with fixed numerics.

        If input and result share a quantisation, the stored values are averaged, without fraction
        bits and zero point.
        """
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
    """Return multiplier and shift of the mean over a plane of ``count`` elements.

    The rule is isa.numerics.mean_multiplier. It needs a divider and is evaluated once per command.
    """
    width = len(count)
    _, zeros = leading(m, count)
    room = wire(m, 31 + shift)
    first = wire(m, (width - 1 - zeros)[: width.bit_length()])
    places = at_most(m, Mux(room < first, Mux(room < 0, 0, room[: width.bit_length()]), first), width)
    quotient = wire(m, (multiplier << places) // count)
    return quotient[:32], wire(m, shift - places)


WEIGHT_BITS = 10
"""Fraction bits of an interpolation weight with fixed numerics."""
SIZE_BITS = 16
HALF = 0x3F000000
"""Float32 bits of 0.5."""


def weight_shape(*, fixed: bool) -> Shape:
    """Return the shape of interpolation weights: integers from 0 to 2^10, or the bits of a float32."""
    return unsigned(WEIGHT_BITS + 1) if fixed else unsigned(32)


class Neighbours(wiring.Component):
    """Lane that finds the neighbours of a coordinate along one axis, and their weights.

    ``below`` and ``above`` are the elements around ``coordinate`` - ``first`` among ``size``
    elements; ``of_below`` and ``of_above`` are their weights. ``coordinate`` holds the bits of a
    finite float32 (isa.numerics.pooling.neighbours). 5 stages; 260 operators, fixed 290. The
    elements are available ``early``, after 2 stages, so that they can be read meanwhile.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        self.fixed, self.pipelined, self.latency = fixed, pipelined, 5 if pipelined else 0
        self.early = {"below": 3, "above": 3} if pipelined else {}
        weight = weight_shape(fixed=fixed)
        inputs = {"coordinate": In(32), "first": In(SIZE_BITS), "size": In(SIZE_BITS)}
        outputs = {"below": Out(SIZE_BITS), "above": Out(SIZE_BITS), "of_below": Out(weight), "of_above": Out(weight)}
        super().__init__(inputs | outputs)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        first = floats.negated(floats.from_integer(m, _positive(self.first)))
        moved = floats.staged(m, floats.total(m, floats.finite(m, self.coordinate), first), pipelined=self.pipelined)
        last = self._held(m, (self.size - 1)[:SIZE_BITS])
        inside = self._held(m, self._inside(m, floats.rounded(m, moved), last))
        last = self._held(m, last)
        place = floats.finite(m, inside)
        below = wire(m, (place.significand >> (-place.exponent)[:8])[:SIZE_BITS])
        above = wire(m, Mux(below == last, last, (below + 1)[:SIZE_BITS]))
        m.d.comb += [self.below.eq(below), self.above.eq(above)]
        ends = [floats.negated(floats.from_integer(m, _positive(end))) for end in (above, below)]
        ends = [floats.staged(m, end, pipelined=self.pipelined) for end in ends]
        place = floats.staged(m, place, pipelined=self.pipelined)
        distances = [floats.total(m, place, end) for end in ends]
        distances = [floats.staged(m, distance, pipelined=self.pipelined) for distance in distances]
        only = self._held(m, self._held(m, below == above))
        weights = [self._weight(m, floats.rounded(m, distance), only) for distance in distances]
        if self.fixed:
            weights[0] = (1 << WEIGHT_BITS) - weights[1]
        ports = (self.of_below, self.of_above)
        m.d.comb += [port.eq(self._held(m, weight)) for port, weight in zip(ports, weights, strict=True)]
        return m

    def _held(self, m: Module, value: Value) -> Value:
        return stage(m, value, pipelined=self.pipelined, name="held")

    def _inside(self, m: Module, x: floats.Float, last: Value) -> Value:
        """Return the bits of the coordinate, clamped to 0 and ``last``."""
        bits, limit = floats.pack(m, x), floats.pack(m, floats.from_integer(m, _positive(last)))
        return wire(m, Mux(x.negative, 0, Mux(bits > limit, limit, bits)))

    def _weight(self, m: Module, distance: floats.Float, only: Value) -> Value:
        """Return |distance| as a weight, or one half if both neighbours are the same element."""
        if not self.fixed:
            return wire(m, Mux(only, HALF, floats.pack(m, replace(distance, negative=Const(0, 1)))))
        scaled = replace(distance, negative=Const(0, 1), exponent=distance.exponent + WEIGHT_BITS)
        return wire(m, Mux(only, 1 << (WEIGHT_BITS - 1), floats.to_integer(m, scaled)[: WEIGHT_BITS + 1]))


def _positive(value: Value) -> Value:
    return Cat(value, Const(0, 1)).as_signed()


class InterpolationTerm(Lane):
    """Lane of one neighbour's term: (``value`` - zero point) as a real number times both weights.

    Float32: 4 stages, 160 operators including three multipliers. Fixed: the zero point is not
    subtracted if input and result share a quantisation; 2 stages, 4 operators.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        weight = weight_shape(fixed=fixed)
        super().__init__(
            {"value": signed(8), "row_weight": weight, "column_weight": weight},
            ("input_zero", "kept") if fixed else ("input_zero", "scale_a"),
            fixed=fixed, pipelined=pipelined, stages=2 if fixed else 4, result=sum_shape(fixed=fixed),
        )  # fmt: skip

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.d.comb += self.result.eq(self._fixed(m) if self.fixed else self._float(m))
        return m

    def _float(self, m: Module) -> Value:
        value = self.held_number(m, floats.from_integer(m, wire(m, self.value - self.input_zero)))
        weights = (floats.normalised(m, floats.finite(m, bits)) for bits in (self.row_weight, self.column_weight))
        row, column = (self.held_number(m, weight) for weight in weights)
        real = floats.normalised(m, floats.multiply(m, value, as_float(self.scale_a)))
        weight = floats.normalised(m, floats.multiply(m, row, column))
        product = floats.product(m, self.held_number(m, real), self.held_number(m, weight))
        return self.held(m, floats.pack(m, floats.rounded(m, self.held_number(m, product))))

    def _fixed(self, m: Module) -> Value:
        weight = self.held(m, self.row_weight * self.column_weight)
        value = self.held(m, self.value - Mux(self.kept, 0, self.input_zero))
        return self.held(m, value * weight)


class InterpolationResult(Lane):
    """Lane of the result from the ``total`` of four terms (isa.numerics.interpolate, interpolate_fixed).

    3 stages. Float32: 70 operators including a divider. Fixed: 30 operators including a multiplier.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        constants = ("zero_point", "scale_down", "kept") if fixed else ("zero_point", "scale_y")
        total = {"total": sum_shape(fixed=fixed)}
        super().__init__(total, constants, fixed=fixed, pipelined=pipelined, stages=3)

    def _float(self, m: Module) -> Value:
        total = self.held_number(m, floats.normalised(m, floats.unpack(m, self.total)))
        steps = self.held_number(m, floats.quotient(m, total, as_float(self.scale_y)))
        return self.held(m, floats.to_integer(m, floats.rounded(m, steps, tiny=False))) + self.zero_point

    def _fixed(self, m: Module) -> Value:
        multiplier, places = as_scaling(self.scale_down)
        scaled = integers_only.scaled(m, self.total, multiplier, places, pipelined=self.pipelined, steady=True)
        size = (magnitude(m, self.total) + (1 << (FRACTION_BITS - 1)))[FRACTION_BITS:]
        plain = self.held(m, wire(m, Mux(self.total[-1], -size, size)), 2)
        return self.held(m, wire(m, Mux(self.kept, plain, scaled + self.zero_point)))
