"""Sums and shifts of int32 values, which may not leave int32."""

from __future__ import annotations

from amaranth.hdl import Const, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.building import stage

FLOOR, NEAREST_EVEN, HALF_AWAY = 0, 1, 2
"""Of a shift to the right: codes of the field ``rounding`` of OP_E32_SHIFT."""


class Wide(wiring.Component):
    """``result`` = ``a`` + ``b``, or with ``shifts`` ``a`` · 2^``amount``, to the ``right`` rounded by ``rounding``.

    ``overflow`` is 1 where the result is outside int32 (isa.numerics.add_int32, shift_int32). All but ``a`` and ``b``
    belong to a command. One stage, 15 operators.
    """

    def __init__(self, *, pipelined: bool) -> None:
        self.pipelined, self.latency = pipelined, int(pipelined)
        inputs = {"a": signed(32), "b": signed(32), "shifts": 1, "right": 1, "amount": 5, "rounding": 2}
        outputs = {"result": Out(signed(32)), "overflow": Out(1)}
        super().__init__({name: In(shape) for name, shape in inputs.items()} | outputs)

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
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
        """Half a unit is added, less the least bit where a tie goes down: twice the value has a place for it."""
        unit = (Const(1, 1) << self.amount)[:32]
        odd = (self.a >> self.amount)[0]
        tie_up = Mux(self.rounding == NEAREST_EVEN, odd, ~self.a[-1])
        added = wire(m, Mux(self.rounding == FLOOR, 0, unit - ~tie_up))
        return (((self.a << 1) + added) >> (self.amount + 1)[:6]).as_signed()
