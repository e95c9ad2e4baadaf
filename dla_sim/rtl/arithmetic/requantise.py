"""Lane of post-processing: converts accumulators to int8."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed, floats
from dla_sim.rtl.arithmetic.integers import clamp_signed, wire
from dla_sim.rtl.building import stage

STAGES = 3
"""Pipeline stages of the lane."""
RECORD_SHIFT = 32
"""Bits of a channel record's shift, which may be half of a float64 factor.

A register's shift has 8.
"""
REDUCED_BITS = 37
"""Bits of a sum of 2^20 int8 values minus a 16-bit zero point each."""


class Requantise(wiring.Component):
    """Requantiser: clip(rint(float32(accumulator) · scale) + zero_point, low, high).

    The rule is isa.numerics.requantise. With ``fixed`` numerics ``scale`` is an integer multiplier
    used with ``shift`` (requantise_fixed). A 32-bit ``shift`` above 30 and ``scale`` are the halves
    of a float64 factor (requantise_once); an 8-bit ``shift`` is always a shift. ``bits`` is the
    accumulator's width, which must be 32 if float64 factors are possible.

    ``accumulator``, ``scale`` and ``shift`` are new every cycle; ``scale`` is finite.
    ``zero_point``, ``low`` and ``high`` are constant during a command and used after the last
    stage. The three stages convert to a float (or shift left), multiply, and round. Approximate
    operators: float32 60 with one multiplier; fixed 30 with one; fixed with float64 70 with three.
    """

    def __init__(
        self, *, fixed: bool, pipelined: bool, bits: int = 32, shift_bits: int = RECORD_SHIFT
    ) -> None:
        self.fixed = fixed
        self.pipelined = pipelined
        self.shift_bits = shift_bits
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
        m = Module()
        scaled = self._build_fixed(m) if self.fixed else self._float(m)
        m.d.comb += self.result.eq(
            clamp_signed(m, wire(m, scaled + self.zero_point), self.low, self.high)
        )
        return m

    def _float(self, m: Module) -> Value:
        value = floats.stage_number(
            m, floats.from_integer(m, self.accumulator), pipelined=self.pipelined
        )
        scale = floats.finite(m, stage(m, self.scale, pipelined=self.pipelined))
        product = floats.stage_number(m, floats.product(m, value, scale), pipelined=self.pipelined)
        nearest = floats.to_integer(m, floats.round_number(m, product, tiny=False))
        return stage(m, nearest, pipelined=self.pipelined)

    def _build_fixed(self, m: Module) -> Value:
        """Scale by multiplier and shift and by a float64 factor, then select one result.

        Both scalings run in parallel.
        """
        multiplier = self.scale.as_signed()
        shift = self.shift
        halves = self.shift_bits == RECORD_SHIFT
        parts = fixed.places(m, shift)
        twice = fixed.scale_value(m, self.accumulator, multiplier, parts, pipelined=self.pipelined)
        if halves:
            factor = Cat(self.scale, shift)
            once = fixed.multiply_once(m, self.accumulator, factor, pipelined=self.pipelined)
            choice: Value = shift > fixed.LARGEST_SHIFT
            for _ in range(2):
                choice = stage(m, choice, pipelined=self.pipelined, name="is_once")
            twice = wire(m, Mux(choice, once, twice))
        return stage(m, twice, pipelined=self.pipelined)
