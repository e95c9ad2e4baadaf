"""The bus (docs/machine.md, section 6): one slot a cycle to one requester, round robin."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out


class Arbiter(Component):
    """Grants the slot of this cycle to the first of those that want it, after the one that was served last.

    ``wants`` and ``granted`` have a bit a requester, in cyclic order. At most one bit is granted, one if any wants;
    combinational. Before the first grant it is as if the last requester had been served.
    """

    def __init__(self, requesters: int) -> None:
        super().__init__({"wants": In(requesters), "granted": Out(requesters)})

    def elaborate(self, platform: object) -> Module:
        """The hardware."""
        m = Module()
        count = len(self.wants)
        served = Signal(range(count), init=count - 1)
        with m.Switch(served):
            for last in range(count):
                with m.Case(last):
                    self._grant_first(m, [(last + distance) % count for distance in range(1, count + 1)])
        for number in range(count):
            with m.If(self.granted[number]):
                m.d.sync += served.eq(number)
        return m

    def _grant_first(self, m: Module, order: list[int]) -> None:
        for place, number in enumerate(order):
            with m.If(self.wants[number]) if place == 0 else m.Elif(self.wants[number]):
                m.d.comb += self.granted.eq(1 << number)
