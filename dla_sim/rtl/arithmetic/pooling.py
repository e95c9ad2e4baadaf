"""Lanes of average pooling, and of interpolation between the four neighbours of a coordinate."""

from dataclasses import replace

from amaranth.hdl import (
    Cat,
    Const,
    Elaboratable,
    Module,
    Mux,
    Shape,
    Signal,
    Value,
    signed,
    unsigned,
)
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed as integers_only
from dla_sim.rtl.arithmetic import floats
from dla_sim.rtl.arithmetic.integers import limit_value, magnitude, normalise_leading, wire
from dla_sim.rtl.arithmetic.lane import FRACTION_BITS, Lane, split_scaling, to_float
from dla_sim.rtl.building import stage

COUNT = unsigned(22)
"""Shape of a window's tap count: at most 2,047 · 2,047."""


def sum_shape(*, fixed: bool) -> Shape:
    """Return the signal shape of an average's terms and sums.

    With ``fixed`` numerics they are 40-bit integers, otherwise the bits of a float32.
    """
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
            a = floats.unpack(m, self.total)
            b = floats.unpack(m, self.term)
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
        number = self.delay_number(m, floats.from_integer(m, centred))
        m.d.comb += self.result.eq(
            self.delay_value(m, floats.pack(m, floats.multiply(m, number, to_float(self.scale_a))))
        )
        return m


class AverageResult(Lane):
    """Lane of the average of ``count`` taps with sum ``total``.

    The rules are isa.numerics.average_taps and average_fixed.

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
        total = self.delay_number(m, floats.normalise_number(m, floats.unpack(m, self.total)))
        count = self.delay_number(
            m, floats.from_integer(m, Cat(self.count, Const(0, 1)).as_signed())
        )
        mean = floats.round_number(m, self.delay_number(m, floats.quotient(m, total, count)))
        mean = self.delay_number(m, floats.normalise_number(m, mean))
        steps = floats.round_number(
            m, self.delay_number(m, floats.quotient(m, mean, to_float(self.scale_y)))
        )
        moved = self.delay_number(m, floats.total(m, steps, to_float(self.zero_number)))
        return (
            self.delay_value(m, floats.to_integer(m, floats.round_number(m, moved))) - self.offset
        )

    def _build_fixed(self, m: Module) -> Value:
        """Build the logic that averages pooling taps with integer-only numerics.

        If input and result share a quantisation, the stored values are averaged, without fraction
        bits and zero point.
        """
        stored = self.total + self.count * self.input_zero
        moved_up = Cat(Const(0, FRACTION_BITS), self.total).as_signed()
        dividend = self.delay_value(m, wire(m, Mux(self.kept, stored, moved_up)))
        count = self.delay_value(m, self.count)
        size = wire(m, (magnitude(m, dividend) + (count >> 1)) // count)
        mean = Signal(signed(39))
        m.d.comb += mean.eq(Mux(dividend[-1], -size[:38], size[:38]))
        mean = self.delay_value(m, mean)
        multiplier, places = split_scaling(self.scale_down)
        scaled = integers_only.scale_value(
            m, mean, multiplier, places, pipelined=self.pipelined, steady=True
        )
        plain = self.delay_value(m, mean[:32].as_signed(), 2)
        return self.delay_value(m, wire(m, Mux(self.kept, plain, scaled + self.zero_point)))


def mean_multiplier(
    m: Module, multiplier: Value, shift: Value, count: Value
) -> tuple[Value, Value]:
    """Return multiplier and shift of the mean over a plane of ``count`` elements.

    The rule is isa.numerics.mean_multiplier. It needs a divider and is evaluated once per command.
    """
    width = len(count)
    _, zeros = normalise_leading(m, count)
    room = wire(m, 31 + shift)
    first = wire(m, (width - 1 - zeros)[: width.bit_length()])
    places = limit_value(
        m, Mux(room < first, Mux(room < 0, 0, room[: width.bit_length()]), first), width
    )
    quotient = wire(m, (multiplier << places) // count)
    return quotient[:32], wire(m, shift - places)


WEIGHT_BITS = 10
"""Fraction bits of an interpolation weight with fixed numerics."""
SIZE_BITS = 16
HALF = 0x3F000000
"""Float32 bits of 0.5."""


def weight_shape(*, fixed: bool) -> Shape:
    """Return the signal shape of interpolation weights: an integer or float32 bits.

    Weights are integers from 0 to 2^10, or the bits of a float32.
    """
    return unsigned(WEIGHT_BITS + 1) if fixed else unsigned(32)


class Neighbours(wiring.Component):
    """Lane that finds the neighbours of a coordinate along one axis, and their weights.

    ``below`` and ``above`` are the elements around ``coordinate`` - ``first`` among ``size``
    elements; ``of_below`` and ``of_above`` are their weights. ``coordinate`` holds the bits of a
    finite float32 (isa.numerics.pooling.neighbours). 5 stages; 260 operators, fixed 290. The
    elements are available ``early``, after 2 stages, so that they can be read meanwhile.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        self.fixed = fixed
        self.pipelined = pipelined
        self.latency = 5 if pipelined else 0
        self.early = {"below": 3, "above": 3} if pipelined else {}
        weight = weight_shape(fixed=fixed)
        inputs = {"coordinate": In(32), "first": In(SIZE_BITS), "size": In(SIZE_BITS)}
        outputs = {
            "below": Out(SIZE_BITS),
            "above": Out(SIZE_BITS),
            "of_below": Out(weight),
            "of_above": Out(weight),
        }
        super().__init__(inputs | outputs)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        first = floats.negate(floats.from_integer(m, _positive(self.first)))
        moved = floats.stage_number(
            m, floats.total(m, floats.finite(m, self.coordinate), first), pipelined=self.pipelined
        )
        last = self._delay_value(m, (self.size - 1)[:SIZE_BITS])
        inside = self._delay_value(
            m, self._clamp_coordinate(m, floats.round_number(m, moved), last)
        )
        last = self._delay_value(m, last)
        place = floats.finite(m, inside)
        below = wire(m, (place.significand >> (-place.exponent)[:8])[:SIZE_BITS])
        above = wire(m, Mux(below == last, last, (below + 1)[:SIZE_BITS]))
        m.d.comb += [self.below.eq(below), self.above.eq(above)]
        ends = [floats.negate(floats.from_integer(m, _positive(end))) for end in (above, below)]
        ends = [floats.stage_number(m, end, pipelined=self.pipelined) for end in ends]
        place = floats.stage_number(m, place, pipelined=self.pipelined)
        distances = [floats.total(m, place, end) for end in ends]
        distances = [
            floats.stage_number(m, distance, pipelined=self.pipelined) for distance in distances
        ]
        only = self._delay_value(m, self._delay_value(m, below == above))
        weights = [
            self._weight(m, floats.round_number(m, distance), only) for distance in distances
        ]
        if self.fixed:
            weights[0] = (1 << WEIGHT_BITS) - weights[1]
        ports = (self.of_below, self.of_above)
        m.d.comb += [
            port.eq(self._delay_value(m, weight))
            for port, weight in zip(ports, weights, strict=True)
        ]
        return m

    def _delay_value(self, m: Module, value: Value) -> Value:
        return stage(m, value, pipelined=self.pipelined, name="held")

    def _clamp_coordinate(self, m: Module, x: floats.Float, last: Value) -> Value:
        """Return the bits of the coordinate, clamped to 0 and ``last``."""
        bits = floats.pack(m, x)
        limit = floats.pack(m, floats.from_integer(m, _positive(last)))
        return wire(m, Mux(x.negative, 0, Mux(bits > limit, limit, bits)))

    def _weight(self, m: Module, distance: floats.Float, only: Value) -> Value:
        """Return the interpolation weight for the distance of a coordinate to its neighbour.

        It is one half if both neighbours are the same element.
        """
        if not self.fixed:
            return wire(m, Mux(only, HALF, floats.pack(m, replace(distance, negative=Const(0, 1)))))
        scaled = replace(distance, negative=Const(0, 1), exponent=distance.exponent + WEIGHT_BITS)
        return wire(
            m, Mux(only, 1 << (WEIGHT_BITS - 1), floats.to_integer(m, scaled)[: WEIGHT_BITS + 1])
        )


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
            fixed=fixed, pipelined=pipelined, stages=2 if fixed else 4,
            result=sum_shape(fixed=fixed),
        )  # fmt: skip

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.d.comb += self.result.eq(self._build_fixed(m) if self.fixed else self._float(m))
        return m

    def _float(self, m: Module) -> Value:
        value = self.delay_number(m, floats.from_integer(m, wire(m, self.value - self.input_zero)))
        weights = (
            floats.normalise_number(m, floats.finite(m, bits))
            for bits in (self.row_weight, self.column_weight)
        )
        row, column = (self.delay_number(m, weight) for weight in weights)
        real = floats.normalise_number(m, floats.multiply(m, value, to_float(self.scale_a)))
        weight = floats.normalise_number(m, floats.multiply(m, row, column))
        product = floats.product(m, self.delay_number(m, real), self.delay_number(m, weight))
        return self.delay_value(
            m, floats.pack(m, floats.round_number(m, self.delay_number(m, product)))
        )

    def _build_fixed(self, m: Module) -> Value:
        weight = self.delay_value(m, self.row_weight * self.column_weight)
        value = self.delay_value(m, self.value - Mux(self.kept, 0, self.input_zero))
        return self.delay_value(m, value * weight)


class InterpolationResult(Lane):
    """Lane of an interpolation's result from the ``total`` of four terms.

    The rules are isa.numerics.interpolate and interpolate_fixed.

    3 stages. Float32: 70 operators including a divider. Fixed: 30 operators including a multiplier.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        constants = ("zero_point", "scale_down", "kept") if fixed else ("zero_point", "scale_y")
        total = {"total": sum_shape(fixed=fixed)}
        super().__init__(total, constants, fixed=fixed, pipelined=pipelined, stages=3)

    def _float(self, m: Module) -> Value:
        total = self.delay_number(m, floats.normalise_number(m, floats.unpack(m, self.total)))
        steps = self.delay_number(m, floats.quotient(m, total, to_float(self.scale_y)))
        return (
            self.delay_value(m, floats.to_integer(m, floats.round_number(m, steps, tiny=False)))
            + self.zero_point
        )

    def _build_fixed(self, m: Module) -> Value:
        multiplier, places = split_scaling(self.scale_down)
        scaled = integers_only.scale_value(
            m, self.total, multiplier, places, pipelined=self.pipelined, steady=True
        )
        size = (magnitude(m, self.total) + (1 << (FRACTION_BITS - 1)))[FRACTION_BITS:]
        plain = self.delay_value(m, wire(m, Mux(self.total[-1], -size, size)), 2)
        return self.delay_value(m, wire(m, Mux(self.kept, plain, scaled + self.zero_point)))
