"""Bus arbiter and the division of rows into bus slots (docs/machine.md, section 6)."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.ports import ADDRESS_BITS


class Arbiter(Component):
    """Round-robin arbiter of the bus, which grants the slot of each cycle.

    The bus arbiter grants the slot of a cycle to the next requester after the requester that it
    served last. It grants exactly one requester if any requester wants the slot, otherwise none.
    The first search after reset starts at requester 0. The grant is combinational.

    - ``wants``: one bit for each requester, in cyclic order: the requester wants the slot of this
      cycle.
    - ``granted``: one bit for each requester: the requester gets the slot of this cycle.
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
                    self._grant_first(
                        m, [(last + distance) % count for distance in range(1, count + 1)]
                    )
        for number in range(count):
            with m.If(self.granted[number]):
                m.d.sync += served.eq(number)
        return m

    def _grant_first(self, m: Module, order: list[int]) -> None:
        for place, number in enumerate(order):
            with m.If(self.wants[number]) if place == 0 else m.Elif(self.wants[number]):
                m.d.comb += self.granted.eq(1 << number)


class Slots(Elaboratable):
    """Slots of a row on the bus: one beat per aligned word, then wait slots up to the burst gap.

    The owner of a ``Slots`` component is the fetch, LD or ST. It drives ``address`` and ``left``.
    When a slot is granted, the owner sets ``step`` and advances ``address`` and ``left`` by
    ``count``. After the last beat of a row, the component ignores both signals until the last slot
    of the row is over.

    The outputs follow combinationally from ``address``, ``left`` and the registers. The registers
    describe only the current burst, and are 0 between two rows. The first slot of a row is
    therefore valid in the cycle in which ``address`` and ``left`` are. ``domain`` is the clock
    domain of the registers.

    - ``address``: next byte of the row in system memory.
    - ``left``: bytes of the row that have not moved yet; if more than a word is left, any number
      above a word.
    - ``shift``, ``burst_shift``: base-2 logarithms of the memory's word size and burst size in
      bytes.
    - ``gap``: minimum slots from the start of one burst to the start of the next.
    - ``step``: the slot of this cycle is granted.
    - ``beat``: 1 if this slot is a beat, 0 if it is a wait slot.
    - ``count``: bytes of this beat; 0 in a wait slot.
    - ``closes``: this slot is the last beat of the row.
    - ``last``: this slot is the last slot of the row.
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
        # used: slots of this burst so far; holding: its beats are over; closed: the row's beats are
        # over
        used = Signal(22)
        holding = Signal()
        closed = Signal()
        word = Signal.like(self.count)
        place = Signal.like(self.count)
        count = Signal.like(self.count)
        ends = Signal()
        over = Signal()
        row_ends = Signal()
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
