"""From accumulators to int8: the lane of post-processing."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed, floats
from dla_sim.rtl.arithmetic.integers import clamped, wire
from dla_sim.rtl.building import stage

STAGES = 3
"""Of the lane, with pipeline registers."""
RECORD_SHIFT = 32
"""Bits of the shift of a channel record, which may be the upper half of a float64 factor; a register's has 8."""
REDUCED_BITS = 37
"""Of a sum of 2^20 int8 values less a zero point of 16 bits each."""


class Requantise(wiring.Component):
    """``result`` = clip(rint(float32(accumulator) · scale) + zero_point, low, high) (isa.numerics.requantise).

    With ``fixed`` numerics ``scale`` is a multiplier that goes with ``shift`` (requantise_fixed). A ``shift`` of 32
    bits above 30 and ``scale`` are the halves of a float64 (requantise_once); one of 8 bits is always a shift.
    ``bits`` are those of the accumulator, 32 where there may be a float64.

    A new ``accumulator``, ``scale`` and ``shift`` every cycle; ``zero_point``, ``low`` and ``high`` belong to a command
    and are read behind the last of three stages: to a number (shifted to the left); the product; rounded. ``scale``
    is a finite number. Operators, roughly: 60; fixed 30, with float64 70; one, one and three of them multiply.
    """

    def __init__(self, *, fixed: bool, pipelined: bool, bits: int = 32, shift_bits: int = RECORD_SHIFT) -> None:
        self.fixed, self.pipelined, self.shift_bits = fixed, pipelined, shift_bits
        self.latency = STAGES if pipelined else 0
        ports = {
            "accumulator": In(signed(bits)),
            "scale": In(32),
            "zero_point": In(signed(16)),
            "low": In(signed(8)),
            "high": In(signed(8)),
            "result": Out(signed(8)),
        }
        super().__init__(ports | ({"shift": In(signed(shift_bits))} if fixed else {}))

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
        m = Module()
        scaled = self._fixed(m) if self.fixed else self._float(m)
        m.d.comb += self.result.eq(clamped(m, wire(m, scaled + self.zero_point), self.low, self.high))
        return m

    def _float(self, m: Module) -> Value:
        value = floats.staged(m, floats.from_integer(m, self.accumulator), pipelined=self.pipelined)
        scale = floats.finite(m, stage(m, self.scale, pipelined=self.pipelined))
        product = floats.staged(m, floats.product(m, value, scale), pipelined=self.pipelined)
        nearest = floats.to_integer(m, floats.rounded(m, product, tiny=False))
        return stage(m, nearest, pipelined=self.pipelined)

    def _fixed(self, m: Module) -> Value:
        """By multiplier and shift, or by what they are the halves of: both side by side, then one of them."""
        multiplier, shift, halves = self.scale.as_signed(), self.shift, self.shift_bits == RECORD_SHIFT
        parts = fixed.places(m, shift)
        twice = fixed.scaled(m, self.accumulator, multiplier, parts, pipelined=self.pipelined)
        if halves:
            factor = Cat(self.scale, shift)
            once = fixed.multiply_once(m, self.accumulator, factor, pipelined=self.pipelined)
            choice: Value = shift > fixed.LARGEST_SHIFT
            for _ in range(2):
                choice = stage(m, choice, pipelined=self.pipelined, name="is_once")
            twice = wire(m, Mux(choice, once, twice))
        return stage(m, twice, pipelined=self.pipelined)
