"""Tokens, and when a command starts (docs/machine.md, sections 3 and 5)."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

COUNTER_BITS = 32
"""The document does not bound the counters; no program is long enough for more bits."""


class TokenCounter(Component):
    """Tokens that one unit has for another. Pushed in a command's last cycle, they are there in the next one.

    In the domain ``control``.
    """

    def __init__(self) -> None:
        super().__init__({"push": In(1), "pop": In(1), "there": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """The hardware."""
        m = Module()
        count = Signal(COUNTER_BITS)
        m.d.comb += self.there.eq(count.any())
        with m.If(self.push & ~self.pop):
            m.d.control += count.eq(count + 1)
        with m.Elif(self.pop & ~self.push):
            m.d.control += count.eq(count - 1)
        return m
