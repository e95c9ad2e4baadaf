"""The larger or the smaller of two bytes."""

from __future__ import annotations

from amaranth.hdl import Elaboratable, Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic.pairs import extreme


class Choice(wiring.Component):
    """``result``: the smaller of ``a`` and ``b``, with ``maximum`` the larger, with ``first`` just ``a``.

    Combinational. ``maximum`` and ``first`` belong to a command.
    """

    latency = 0

    def __init__(self) -> None:
        byte = signed(8)
        super().__init__({"a": In(byte), "b": In(byte), "first": In(1), "maximum": In(1), "result": Out(byte)})

    def elaborate(self, platform: object) -> Elaboratable:
        """The lane's logic."""
        m = Module()
        m.d.comb += self.result.eq(Mux(self.first, self.a, extreme(m, self.a, self.b, self.maximum)))
        return m
