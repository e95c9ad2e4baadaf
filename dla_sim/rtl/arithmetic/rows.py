"""Lanes and row states of OP_REDUCE, OP_SOFTMAX and OP_NORM.

They are bit-identical to ``isa.numerics.rows``. Between its two passes a row has a state. For
softmax this is the sum of exponentials (or its reciprocal with fixed numerics), for norms the
square root of the variance. All lanes take ``LANE_LATENCY`` stages and all states
``STATE_LATENCY``, so that one pipeline serves the three instructions. Lanes clamp to int8; only
OP_REDUCE has its own limits.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed, floats
from dla_sim.rtl.arithmetic.integers import (
    PartialRoot,
    clamp_signed,
    normalise_leading,
    ones,
    root_of,
    root_rows,
    wire,
)
from dla_sim.rtl.arithmetic.lane import REDUCED_BITS
from dla_sim.rtl.building import stage

LANE_LATENCY = 5
STATE_LATENCY = 3
"""Pipeline stages of lanes and of states."""
SUM_BITS = 40
SQUARE_BITS = 48
DEVIATION_BITS = 42
SPREAD_BITS = 62
"""Bits of a row's sum, its sum of squares, a deviation times count, and the variance times
count².
"""
STATE_BITS = 36
INT8_LOW, INT8_HIGH = Const(-128, signed(8)), Const(127, signed(8))
_RECIPROCAL_BITS = 31
_NEWTON_FIRST = 1515870810
_NEWTON_FACTOR = -1010580540
_NEWTON_ONE = 1 << 29
"""48/17, -32/17 and 1 with 29 fraction bits (docs/isa.md, OP_SOFTMAX)."""
_SUM_SHIFT = 12
_STEP_SHIFT = 19
_NORM_BITS = 16
_GAIN_BITS = 15
_RATIO_BITS = 31


class _Part(wiring.Component):
    """Base class of arithmetic components of row instructions, for one kind of numerics.

    ``registers`` lists the ports that are registers of the command, in lower case and without EX_.
    """

    registers: tuple[str, ...] = ()

    def __init__(
        self, ports: dict[str, Any], latency: int, *, is_fixed: bool, pipelined: bool
    ) -> None:
        self.is_fixed = is_fixed
        self.pipelined = pipelined
        self.latency = latency if pipelined else 0
        super().__init__(ports)

    def _later(self, m: Module, value: Value, stages: int = 1) -> Value:
        for _ in range(stages):
            value = stage(m, value, pipelined=self.pipelined)
        return value

    def _number(self, m: Module, number: floats.Number) -> floats.Number:
        return floats.stage_number(m, number, pipelined=self.pipelined)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        if self.is_fixed:
            self._build_fixed(m)
        else:
            self._float(m)
        return m

    def _float(self, m: Module) -> None:
        raise NotImplementedError

    def _build_fixed(self, m: Module) -> None:
        raise NotImplementedError


class ReduceLane(_Part):
    """Lane of OP_REDUCE, which requantises a row's sum or extreme, ``value``.

    The zero point of every element is already subtracted from ``value``. The rule is
    ``isa.ops.rows.reduce_rows``.
    """

    registers = ("scale_a", "scale_y", "shift_a", "output_zero_point", "clamp_low", "clamp_high")

    def __init__(self, *, is_fixed: bool, pipelined: bool) -> None:
        ports = {
            "value": In(signed(REDUCED_BITS)), "sums": In(1), "scale_a": In(32), "scale_y": In(32),
            "shift_a": In(signed(8)), "output_zero_point": In(signed(16)),
            "clamp_low": In(signed(8)),
            "clamp_high": In(signed(8)), "result": Out(signed(8)),
        }  # fmt: skip
        super().__init__(ports, LANE_LATENCY, is_fixed=is_fixed, pipelined=pipelined)

    def _float(self, m: Module) -> None:
        scale_a, scale_y = (
            floats.normalise_number(m, floats.finite(m, bits))
            for bits in (self.scale_a, self.scale_y)
        )
        value = self._number(m, floats.from_integer(m, self.value))
        product = self._number(m, floats.product(m, value, scale_a))
        real = self._number(m, floats.round_number(m, product))
        sums = self._later(m, floats.to_integer(m, real))
        ratio = self._number(m, floats.quotient(m, floats.normalise_number(m, real), scale_y))
        self._finish(
            m, Mux(self.sums, sums, floats.to_integer(m, floats.round_number(m, ratio, tiny=False)))
        )

    def _build_fixed(self, m: Module) -> None:
        shift = fixed.places(m, self.shift_a)
        multiplier = self.scale_a.as_signed()
        scaled = fixed.scale_value(
            m, self.value, multiplier, shift, pipelined=self.pipelined, steady=True
        )
        self._finish(m, self._later(m, scaled, LANE_LATENCY - 3))

    def _finish(self, m: Module, value: Value) -> None:
        moved = wire(m, self._later(m, wire(m, value)) + self.output_zero_point)
        m.d.comb += self.result.eq(clamp_signed(m, moved, self.clamp_low, self.clamp_high))


class SoftmaxSum(_Part):
    """Combinational adder of a softmax exponential ``entry`` to the sum ``total`` of its row.

    The operands are float32, or integers that lose 12 bits per entry.
    """

    def __init__(self, *, is_fixed: bool, pipelined: bool) -> None:
        ports = {"total": In(32), "entry": In(32), "result": Out(32)}
        super().__init__(ports, 0, is_fixed=is_fixed, pipelined=pipelined)

    def _float(self, m: Module) -> None:
        total, entry = (floats.unpack(m, bits) for bits in (self.total, self.entry))
        m.d.comb += self.result.eq(floats.pack(m, floats.add(m, total, entry)))

    def _build_fixed(self, m: Module) -> None:
        half = 1 << (_SUM_SHIFT - 1)
        m.d.comb += self.result.eq(self.total + ((self.entry + half) >> _SUM_SHIFT))


class SoftmaxRow(_Part):
    """Circuit that prepares the divisor of an OP_SOFTMAX row from the sum of its exponentials.

    The sum is ``total``, the result ``state``. With float32 the state is the total; with fixed
    numerics it is the total's reciprocal and number of bits.
    """

    def __init__(self, *, is_fixed: bool, pipelined: bool) -> None:
        ports = {"total": In(32), "state": Out(STATE_BITS)}
        super().__init__(ports, STATE_LATENCY, is_fixed=is_fixed, pipelined=pipelined)

    def _float(self, m: Module) -> None:
        m.d.comb += self.state.eq(self._later(m, self.total, STATE_LATENCY))

    def _build_fixed(self, m: Module) -> None:
        half, places = normalise_leading(m, self.total[:_RECIPROCAL_BITS])
        bits = wire(m, (_RECIPROCAL_BITS - places)[:5])
        size = wire(m, Cat(half, Const(0, 1)).as_signed())
        first = fixed.high_multiply(m, size, Const(_NEWTON_FACTOR, signed(32)))
        value = Signal(signed(32), name="newton_0")
        m.d.comb += value.eq(_NEWTON_FIRST + first)
        for number in range(1, STATE_LATENCY + 1):
            size, value, bits = (self._later(m, part) for part in (size, value, bits))
            error = Signal(signed(32), name=f"error_{number}")
            better = Signal(signed(32), name=f"newton_{number}")
            m.d.comb += error.eq(_NEWTON_ONE - fixed.high_multiply(m, size, value))
            m.d.comb += better.eq(value + (fixed.high_multiply(m, value, error) << 2))
            value = better
        twice = Cat(Const(0, 1), value)
        reciprocal = Mux(
            twice[_RECIPROCAL_BITS:] != 0, ones(_RECIPROCAL_BITS), twice[:_RECIPROCAL_BITS]
        )
        m.d.comb += self.state.eq(Cat(reciprocal, bits))


class SoftmaxLane(_Part):
    """Lane of OP_SOFTMAX: an ``entry``'s share of its row, in steps of 1 / ``scale_y``."""

    registers = ("scale_y", "output_zero_point")

    def __init__(self, *, is_fixed: bool, pipelined: bool) -> None:
        ports = {
            "entry": In(32), "state": In(STATE_BITS), "scale_y": In(32),
            "output_zero_point": In(signed(16)),
            "result": Out(signed(8)),
        }  # fmt: skip
        super().__init__(ports, LANE_LATENCY, is_fixed=is_fixed, pipelined=pipelined)

    def _float(self, m: Module) -> None:
        factor = floats.normalise_number(m, floats.finite(m, self.scale_y))
        entry = self._number(m, floats.normalise_number(m, floats.finite(m, self.entry)))
        product = self._number(m, floats.product(m, entry, factor))
        steps = self._number(m, floats.normalise_number(m, floats.round_number(m, product)))
        total = floats.normalise_number(m, floats.finite(m, self._later(m, self.state[:32], 3)))
        share = self._number(m, floats.quotient(m, steps, total))
        nearest = self._later(m, floats.to_integer(m, floats.round_number(m, share, tiny=False)))
        _int8(m, self.result, nearest + self.output_zero_point)

    def _build_fixed(self, m: Module) -> None:
        entry = self._later(m, self.entry)
        state = self._later(m, self.state)
        reciprocal = wire(m, Cat(state[:_RECIPROCAL_BITS], Const(0, 1)).as_signed())
        share = self._later(m, fixed.high_multiply(m, entry.as_signed(), reciprocal))
        places = self._later(m, wire(m, state[_RECIPROCAL_BITS:] + _STEP_SHIFT))
        steps = self._later(m, wire(m, share[:31] * self.scale_y[:24]))
        half = wire(m, (Const(1, 1) << (self._later(m, places) - 1)[:6])[:56])
        result = self._later(m, wire(m, (steps + half) >> self._later(m, places)), LANE_LATENCY - 3)
        _int8(m, self.result, result + self.output_zero_point)


class NormRow(_Part):
    """Circuit that computes the divisor of an OP_NORM row: the square root of the row's variance.

    The variance of ``count`` elements is multiplied by the count squared. A row that is not
    ``centred`` has the sum of squares in its place. The root is the bits of a float32, or an
    integer >= 1.
    """

    registers = ("scale_a",)

    def __init__(self, *, is_fixed: bool, pipelined: bool) -> None:
        ports = {
            "total": In(signed(SUM_BITS)), "squares": In(SQUARE_BITS), "count": In(32),
            "centred": In(1),
            "scale_a": In(32), "state": Out(STATE_BITS),
        }  # fmt: skip
        super().__init__(ports, STATE_LATENCY, is_fixed=is_fixed, pipelined=pipelined)

    def _spread(self, m: Module) -> Value:
        spread = Signal(SPREAD_BITS, name="spread")
        # a row has fewer than 2^24 elements, so the spread fits its bits
        total = self.total[:32].as_signed()
        many, one = (
            wire(m, (a * b)[:SPREAD_BITS])
            for a, b in ((self.count[:24], self.squares[:40]), (total, total))
        )
        m.d.comb += spread.eq(Mux(self.centred, many - one, self.squares))
        return self._later(m, spread)

    def _float(self, m: Module) -> None:
        """Compute the square root of a row's variance with float32 numerics.

        The radicand has 52 bits and an even exponent. The root therefore has 26 bits, and the
        remainder gives a sticky bit.
        """
        spread = floats.from_integer(m, Cat(self._spread(m), Const(0, 1)).as_signed())
        exact = self._number(m, floats.total(m, spread, floats.finite(m, self.scale_a)))
        variance = floats.normalise_number(m, floats.round_number(m, exact))
        bits = floats.MANTISSA + 2
        odd = wire(m, variance.exponent[0])
        even = Cat(Const(0, 2 * bits - floats.MANTISSA), variance.significand)
        x = self._compute_root_bits(m, root_of(wire(m, Mux(odd, even[1:], even))), bits // 2)
        x = root_rows(m, x, bits - bits // 2)
        none = Const(0, 1)
        size = wire(m, Cat(x.rest != 0, x.root[:bits]))
        exponent = self._later(
            m, ((variance.exponent + odd) >> 1) - (bits - floats.MANTISSA // 2 + 1)
        )
        rounded = floats.round_number(
            m, floats.Exact(none, exponent, size, Const(3, 2), none, none)
        )
        m.d.comb += self.state.eq(floats.pack(m, rounded))

    def _build_fixed(self, m: Module) -> None:
        variance = (self._spread(m) + self.scale_a)[:SPREAD_BITS]
        third = SPREAD_BITS // 6
        x = self._compute_root_bits(m, root_of(wire(m, variance)), third)
        x = root_rows(m, self._compute_root_bits(m, x, third), SPREAD_BITS // 2 - 2 * third)
        root = x.root[: SPREAD_BITS // 2]
        m.d.comb += self.state.eq(Mux(root == 0, 1, root))

    def _compute_root_bits(self, m: Module, x: PartialRoot, rows: int) -> PartialRoot:
        """Compute ``rows`` more bits of a square root and register the state."""
        x = root_rows(m, x, rows)
        return PartialRoot(*(self._later(m, part) for part in (x.radicand, x.rest, x.root)))


class NormLane(_Part):
    """Lane of OP_NORM, which divides an element's ``deviation`` by the row's divisor, ``state``.

    Gain and bias are applied to the quotient.
    """

    registers = ("output_zero_point",)

    def __init__(self, *, is_fixed: bool, pipelined: bool) -> None:
        ports = {
            "deviation": In(signed(DEVIATION_BITS)), "state": In(STATE_BITS), "gain": In(32),
            "bias": In(32),
            "output_zero_point": In(signed(16)), "result": Out(signed(8)),
        }  # fmt: skip
        super().__init__(ports, LANE_LATENCY, is_fixed=is_fixed, pipelined=pipelined)

    def _float(self, m: Module) -> None:
        value = self._number(m, floats.from_integer(m, self.deviation))
        root = floats.normalise_number(m, floats.finite(m, self._later(m, self.state[:32])))
        ratio = self._number(m, floats.quotient(m, value, root))
        gain = floats.normalise_number(m, floats.finite(m, self._later(m, self.gain, 2)))
        product = self._number(
            m, floats.product(m, floats.normalise_number(m, floats.round_number(m, ratio)), gain)
        )
        bias = floats.finite(m, self._later(m, self.bias, 3))
        total = self._number(m, floats.total(m, floats.round_number(m, product), bias))
        nearest = floats.to_integer(m, floats.round_number(m, total, tiny=False))
        _int8(m, self.result, self._later(m, nearest) + self.output_zero_point)

    def _build_fixed(self, m: Module) -> None:
        """Build the logic that normalises an element with integer-only numerics.

        For negative n, ⌊n / r⌋ is the complement of ⌊~n / r⌋, so a single division of positive
        numbers is enough. The ratio of a deviation to the root is below 2^30.
        """
        dividend = wire(m, Cat(Const(0, _NORM_BITS), self.deviation).as_signed())
        size = wire(m, Mux(dividend[-1], ~dividend, dividend).as_unsigned() // self.state[:32])
        ratio = self._later(m, wire(m, Mux(dividend[-1], ~size, size)[:_RATIO_BITS].as_signed()))
        gain = self._later(m, self.gain).as_signed()
        bias = self._later(m, self.bias, 2).as_signed()
        product = self._later(m, ratio * gain)
        total = wire(m, product + ((bias << _GAIN_BITS) + (1 << (_NORM_BITS + _GAIN_BITS - 1))))
        whole = self._later(m, total[_NORM_BITS + _GAIN_BITS :].as_signed(), LANE_LATENCY - 2)
        _int8(m, self.result, whole + self.output_zero_point)


def _int8(m: Module, result: Signal, value: Value) -> None:
    m.d.comb += result.eq(clamp_signed(m, wire(m, value), INT8_LOW, INT8_HIGH))


PARTS: dict[str, type[_Part]] = {
    part.__name__: part
    for part in (ReduceLane, SoftmaxSum, SoftmaxRow, SoftmaxLane, NormRow, NormLane)
}
"""Components of row instructions by class name."""
