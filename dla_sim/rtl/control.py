"""Control: what brings commands to the units and lets them begin, without the units (docs/machine.md, 3, 4 and 6)."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Signal

from dla_sim.rtl.arbiter import Arbiter
from dla_sim.rtl.fetch import Fetch
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.processor import Processor
from dla_sim.rtl.queues import CommandQueue
from dla_sim.rtl.tokens import TokenCounter
from dla_sim.rtl.units import UnitControl
from isa.instruction import NEXT, PREVIOUS, Unit

REQUESTERS = (Unit.LD, Unit.ST)
"""Of the bus, in the order of their turns, behind the fetch."""


class Control(Elaboratable):
    """Fetch, processor, queues, token counters and bus arbiter. It keeps the units, which are outside, by ``units``.

    ``wants`` and ``granted``: the slot of this cycle, of the units on the bus.
    ``halt``: nothing starts, is over or is executed any more. ``active``: in this cycle the clock of the domain
    ``control`` must tick, in which everything is but the arbiter.
    """

    def __init__(self, limits: Limits, configuration: Configuration) -> None:
        self.halt = Signal()
        self.active = Signal()
        self.wants, self.granted = (
            {unit: Signal(name=f"{unit.name.lower()}_{what}") for unit in REQUESTERS} for what in ("wants", "granted")
        )
        self.arbiter = Arbiter(1 + len(REQUESTERS))
        self.fetch = Fetch(limits, configuration)
        self.processor = Processor(limits)
        self.queues = {unit: CommandQueue(limits, configuration, unit, self.processor.registers) for unit in Unit}
        self.units = {unit: UnitControl(configuration, unit, queue.head) for unit, queue in self.queues.items()}

    def elaborate(self, platform: object) -> Module:
        """The hardware."""
        m = Module()
        m.submodules.fetch, m.submodules.processor, m.submodules.arbiter = self.fetch, self.processor, self.arbiter
        for unit in Unit:
            name = unit.name.lower()
            m.submodules[f"{name}_queue"], m.submodules[f"{name}_control"] = self.queues[unit], self.units[unit]
        processor = self.processor
        active = [self.fetch.active, processor.executes, processor.undefined]
        active += [unit.active for unit in self.units.values()]
        m.d.comb += self.active.eq(Cat(*active).any())
        self._issue(m)
        self._units(m)
        self._tokens(m)
        return m

    def _issue(self, m: Module) -> None:
        """From the fetch to the queues."""
        fetch, processor, queues = self.fetch, self.processor, self.queues.values()
        m.d.comb += [
            self.arbiter.wants.eq(Cat(fetch.wants_slot, *self.wants.values())),
            Cat(fetch.granted, *self.granted.values()).eq(self.arbiter.granted),
            fetch.number.eq(processor.number),
            fetch.executes.eq(processor.executes),
            processor.word.eq(fetch.word),
            processor.ready.eq(fetch.ready),
            processor.room.eq(Cat(queue.room for queue in queues)),
            processor.empty.eq(~Cat(queue.valid for queue in queues).any()),
            processor.halt.eq(self.halt),
        ]
        for queue, push in zip(queues, processor.push, strict=True):
            m.d.comb += [queue.push.eq(push), queue.word.eq(fetch.word)]

    def _units(self, m: Module) -> None:
        """Each with its queue."""
        for unit, queue in zip(self.units.values(), self.queues.values(), strict=True):
            m.d.comb += [unit.valid.eq(queue.valid), unit.halt.eq(self.halt), queue.pop.eq(unit.over)]

    def _tokens(self, m: Module) -> None:
        """A counter for each pair of neighbours and direction."""
        for sides, side, other in ((NEXT, 1, 0), (PREVIOUS, 0, 1)):
            for giver, taker in sides.items():
                counter = TokenCounter()
                m.submodules[f"tokens_{giver.name.lower()}_{taker.name.lower()}"] = counter
                m.d.comb += [
                    counter.push.eq(self.units[giver].push[side]),
                    counter.pop.eq(self.units[taker].pop[other]),
                    self.units[taker].there[other].eq(counter.there),
                ]
