"""Interpolation between the four neighbours of a coordinate: places and weights, terms of a sum, and its result."""

from __future__ import annotations

from dataclasses import replace

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Shape, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed as integers_only
from dla_sim.rtl.arithmetic import floats
from dla_sim.rtl.arithmetic.averages import sum_shape
from dla_sim.rtl.arithmetic.integers import magnitude, wire
from dla_sim.rtl.arithmetic.lane import FRACTION_BITS, Lane, as_float, as_scaling
from dla_sim.rtl.building import stage

WEIGHT_BITS = 10
"""Fraction bits of a weight with fixed numerics."""
SIZE_BITS = 16
HALF = 0x3F000000
"""The bits of 0.5."""


def weight_shape(*, fixed: bool) -> Shape:
    """Of weights: integers from 0 to 2^10, or the bits of a float32."""
    return unsigned(WEIGHT_BITS + 1) if fixed else unsigned(32)


class Neighbours(wiring.Component):
    """The elements ``below`` and ``above`` a ``coordinate`` less ``first`` among ``size``, and the weights of both.

    ``coordinate`` is the bits of a finite float32 (isa.numerics.pooling.neighbours). 5 stages, 260 operators, fixed
    290; the elements come ``early``, after 2 stages, so that they can be read meanwhile.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        self.fixed, self.pipelined, self.latency = fixed, pipelined, 5 if pipelined else 0
        self.early = {"below": 3, "above": 3} if pipelined else {}
        weight = weight_shape(fixed=fixed)
        inputs = {"coordinate": In(32), "first": In(SIZE_BITS), "size": In(SIZE_BITS)}
        outputs = {"below": Out(SIZE_BITS), "above": Out(SIZE_BITS), "of_below": Out(weight), "of_above": Out(weight)}
        super().__init__(inputs | outputs)

    def elaborate(self, platform: object) -> Elaboratable:
        """The logic."""
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
        """The bits of the coordinate, held within 0 and ``last``."""
        bits, limit = floats.pack(m, x), floats.pack(m, floats.from_integer(m, _positive(last)))
        return wire(m, Mux(x.negative, 0, Mux(bits > limit, limit, bits)))

    def _weight(self, m: Module, distance: floats.Float, only: Value) -> Value:
        """|distance|; a half each where there is only one element."""
        if not self.fixed:
            return wire(m, Mux(only, HALF, floats.pack(m, replace(distance, negative=Const(0, 1)))))
        scaled = replace(distance, negative=Const(0, 1), exponent=distance.exponent + WEIGHT_BITS)
        return wire(m, Mux(only, 1 << (WEIGHT_BITS - 1), floats.to_integer(m, scaled)[: WEIGHT_BITS + 1]))


def _positive(value: Value) -> Value:
    return Cat(value, Const(0, 1)).as_signed()


class InterpolationTerm(Lane):
    """``result`` is what a neighbour adds to the sum: ``value`` less zero point, as a real number, times both weights.

    Float32: 4 stages, 160 operators, three of them multiply. Fixed: stored values where both quantisations are one; 2
    stages, 4 operators.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        weight = weight_shape(fixed=fixed)
        super().__init__(
            {"value": signed(8), "row_weight": weight, "column_weight": weight},
            ("input_zero", "kept") if fixed else ("input_zero", "scale_a"),
            fixed=fixed, pipelined=pipelined, stages=2 if fixed else 4, result=sum_shape(fixed=fixed),
        )  # fmt: skip

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
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
    """``result`` of a ``total`` of four terms (isa.numerics.interpolate, interpolate_fixed).

    3 stages. Float32: 70 operators with a divider. Fixed: 30, one of them multiplies.
    """

    def __init__(self, *, fixed: bool, pipelined: bool) -> None:
        constants = ("zero_point", "scale_down", "kept") if fixed else ("zero_point", "scale_y")
        total = {"total": sum_shape(fixed=fixed)}
        super().__init__(total, constants, fixed=fixed, pipelined=pipelined, stages=3)

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
        m = Module()
        self.limited(m, self._fixed(m) if self.fixed else self._float(m))
        return m

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
