"""The bus (docs/machine.md, section 6): one slot a cycle to one requester, round robin, and how a row becomes slots."""

from __future__ import annotations

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.ports import ADDRESS_BITS


class Arbiter(Component):
    """Grants the slot of this cycle to the first of those that want it, after the one that was served last.

    ``wants`` and ``granted`` have a bit a requester, in cyclic order. At most one bit is granted, one if any wants;
    combinational. Before the first grant it is as if the last requester had been served.
    """

    def __init__(self, requesters: int) -> None:
        super().__init__({"wants": In(requesters), "granted": Out(requesters)})

    def elaborate(self, platform: object) -> Module:
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


class Slots(Elaboratable):
    """One slot of a row after the other: beats of one aligned word each, then what is held up to the gap of a burst.

    The owner keeps ``address``, the next byte, and ``left``, the bytes not yet moved or, if those are more than a word,
    any number that is; when a slot is granted it sets ``step`` and moves both on by ``count``. Here is only what lies
    within a burst, which is nothing between two rows: the first slot is there as soon as ``address`` and ``left`` are.
    After a row's last beat they mean nothing until the row's last slot is over.

    Of the memory: ``shift`` and ``burst_shift``, the logarithms of its word's and its burst's bytes, and ``gap``.
    Combinational: ``beat`` (this slot is one; else it is held), ``count`` (its bytes; 0 in a held slot), ``closes`` (it
    is the row's last beat), ``last`` (the row's last slot). Clocked by ``domain``.
    """

    def __init__(self, bus_bytes: int, name: str, domain: str = "sync") -> None:
        self.domain = domain
        self.address = Signal(ADDRESS_BITS, name=f"{name}_address")
        self.left = Signal(ADDRESS_BITS, name=f"{name}_left")
        self.shift = Signal(4, name=f"{name}_shift")
        self.burst_shift = Signal(5, name=f"{name}_burst_shift")
        self.gap = Signal(21, name=f"{name}_gap")
        self.step = Signal(name=f"{name}_step")
        self.beat = Signal(name=f"{name}_beat")
        self.count = Signal(range(bus_bytes + 1), name=f"{name}_count")
        self.closes = Signal(name=f"{name}_closes")
        self.last = Signal(name=f"{name}_last")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        used, holding, closed = Signal(22), Signal(), Signal()  # slots of the burst; all its beats are over; the row's
        word, place, count = Signal.like(self.count), Signal.like(self.count), Signal.like(self.count)
        ends, over, row_ends = Signal(), Signal(), Signal()
        block = Signal(range(2 << 16))
        m.d.comb += [
            word.eq(1 << self.shift),
            place.eq(self.address & (word - 1)),
            row_ends.eq(self.left <= word - place),
            count.eq(Mux(row_ends, self.left, word - place)),
            block.eq((1 << self.burst_shift) - 1),
            ends.eq(row_ends | (((self.address + count) & block) == 0)),
            over.eq((holding | ends) & (used + 1 >= self.gap)),
            self.beat.eq(~holding),
            self.count.eq(Mux(holding, 0, count)),
            self.closes.eq(~holding & row_ends),
            self.last.eq(over & (closed | self.closes)),
        ]
        with m.If(self.step):
            m.d[self.domain] += [
                used.eq(Mux(over, 0, used + 1)),
                holding.eq((holding | ends) & ~over),
                closed.eq((closed | self.closes) & ~over),
            ]
        return m
