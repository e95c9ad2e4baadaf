"""Control: fetch, queues, token counters and command start, without the units.

It implements docs/machine.md, sections 3 to 7. Each unit has a command queue and a controller; each
ordered pair of neighbouring units has a token counter.
"""

from collections.abc import Mapping

from amaranth.hdl import Array, Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.bus import Arbiter
from dla_sim.rtl.fetch import Fetch
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import (
    WORD_BITS,
    Cause,
    CommandView,
    bits_of,
    register_signal,
    unit_registers,
)
from dla_sim.rtl.processor import Processor
from isa.instruction import NEXT, PREVIOUS, TOKENS, Unit

COUNTER_BITS = 32
"""Bits of a token counter.

Docs/machine.md sets no bound, and no program is long enough for more.
"""


class TokenCounter(Component):
    """Counter of the tokens that one unit has given to another unit.

    A token that a command pushes in its last cycle can be popped in the next cycle. The token
    counter is in the clock domain ``control``.

    - ``push``: a token is added at the end of this cycle.
    - ``pop``: a token is removed at the end of this cycle.
    - ``there``: the counter contains a token.
    """

    def __init__(self) -> None:
        super().__init__({"push": In(1), "pop": In(1), "there": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(COUNTER_BITS)
        m.d.comb += self.there.eq(count.any())
        with m.If(self.push & ~self.pop):
            m.d.control += count.eq(count + 1)
        with m.Elif(self.pop & ~self.push):
            m.d.control += count.eq(count - 1)
        return m


class CommandQueue(Component):
    """Queue of the commands of one unit.

    A command queue stores up to ``queue_depth`` commands, including the executing command
    (``head``). It is in the clock domain ``control``. The head has its own registers, so that the
    unit reads it without a multiplexer. The waiting commands form a shift chain with the newest
    command first, so that a write needs no multiplexer either.

    - ``push``: store ``word`` and the registers of this cycle as a command; allowed only while
      ``room`` is 1.
    - ``pop``: remove the head; allowed in the same cycle as ``push``.
    - ``word``: command word to store.
    - ``room``: the queue has a free entry.
    - ``valid``: the queue has a head; a command pushed in cycle t is in the queue from t + 1 on.
    """

    def __init__(
        self,
        limits: Limits,
        configuration: Configuration,
        unit: Unit,
        registers: Mapping[str, Value],
    ) -> None:
        super().__init__(
            {"push": In(1), "pop": In(1), "word": In(WORD_BITS), "room": Out(1), "valid": Out(1)}
        )
        self._depth = limits.queue_depth
        self._configured_depth = configuration.queue_depth
        self.head = CommandView(limits.variant, unit, f"{unit.name.lower()}_")
        declared = unit_registers(limits.variant, unit)
        self._sources: list[Value] = [self.word, *(registers[item.name] for item in declared)]
        self._entry = [self.head.word, *(self.head.registers[item.name] for item in declared)]
        self._chain = [
            [Signal(WORD_BITS), *(register_signal(item, f"waiting_{place}_") for item in declared)]
            for place in range(self._depth - 1)
        ]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        level = Signal(range(self._depth + 1))
        m.d.comb += [self.valid.eq(level != 0), self.room.eq(level < self._configured_depth)]
        with m.If(self.push & ~self.pop):
            m.d.control += level.eq(level + 1)
        with m.Elif(self.pop & ~self.push):
            m.d.control += level.eq(level - 1)
        for number, (entry, source) in enumerate(zip(self._entry, self._sources, strict=True)):
            column = [place[number] for place in self._chain]
            with m.If(self.push):
                m.d.control += [
                    older.eq(newer) for newer, older in zip([source, *column], column, strict=False)
                ]
            with m.If((level > 1) & self.pop):
                m.d.control += entry.eq(Array(column)[level - 2] if column else source)
            with m.Elif(self.push & ((level == 0) | self.pop)):
                m.d.control += entry.eq(source)
        return m


SYNC = "OP_SYNC"
_TOKENS = {item.name: item for item in TOKENS}
_MISSING = {Unit.LD: Cause.TOKEN_LD, Unit.EX: Cause.TOKEN_EX, Unit.ST: Cause.TOKEN_ST}


class UnitControl(Component):
    """Unit controller, which starts the commands of a queue and executes ``OP_SYNC``.

    A unit controller starts the command at the head of the queue when the tokens that the command
    pops are available. The controller is in the clock domain ``control``, whose clock must tick
    while ``active`` is 1.

    A command whose last cycle is t lets other commands start in cycle t + 1. In the words of
    docs/machine.md, section 3, the command completes at t + 1, and all completions of a cycle
    precede all starts.

    - ``valid``: the queue has a head, which is ``command``.
    - ``over``: remove the head from the queue; 1 in the command's last cycle.
    - ``there``: a token is available; bit 0: from the previous unit, bit 1: from the next unit.
    - ``pop``: take a token; bits as in ``there``.
    - ``push``: give a token; bits as in ``there``.
    - ``start``: the unit starts a command other than ``OP_SYNC``.
    - ``done``: this cycle is the last cycle of that command.
    - ``cause``: cause of this cycle while the unit executes that command.
    - ``halt``: no command starts or completes.
    - ``starts``: a command starts in this cycle, also an ``OP_SYNC``.
    - ``accounted``: cause of this cycle.
    - ``active``: the clock of ``control`` must tick.
    """

    def __init__(self, configuration: Configuration, unit: Unit, command: CommandView) -> None:
        super().__init__({
            "valid": In(1), "over": Out(1), "there": In(2), "pop": Out(2), "push": Out(2),
            "halt": In(1),
            "start": Out(1), "done": In(1), "cause": In(4), "starts": Out(1), "accounted": Out(4),
            "active": Out(1),
        })  # fmt: skip
        self._configuration = configuration
        self._unit = unit
        self._command = command

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command = self._command
        busy = Signal()
        executing = Signal()
        sync_over = Signal()
        is_sync = command.is_(SYNC)
        pops = self._flags("pop")
        pushes = self._flags("push")
        m.d.comb += [
            self.starts.eq(self.valid & ~busy & ~self.halt & ((pops & ~self.there) == 0)),
            self.start.eq(self.starts & ~is_sync),
            executing.eq(self.starts | busy),
            self.over.eq(executing & ~self.halt & Mux(is_sync, sync_over, self.done)),
            self.pop.eq(Mux(self.starts, pops, 0)),
            self.push.eq(Mux(self.over, pushes, 0)),
        ]
        m.d.comb += self.active.eq(self.starts | self.over | (executing & is_sync))
        m.d.control += busy.eq(executing & ~self.over)
        self._time_sync(m, executing & is_sync, sync_over)
        self._account(m, executing, is_sync)
        return m

    def _flags(self, what: str) -> Value:
        """Return the command word's token flags of the previous and of the next unit."""
        return Cat(
            bits_of(self._command.word, _TOKENS[f"{what}_{side}"]) for side in ("previous", "next")
        )

    def _time_sync(self, m: Module, syncs: Value, over: Signal) -> None:
        """Count the cycles of an ``OP_SYNC`` command and drive ``over`` in the last one.

        ``syncs`` is 1 during the whole command.
        """
        passed = Signal(self._configuration.sync_cycles.shape())  # unlike a strap, it has a reset
        m.d.comb += over.eq(passed + 1 == self._configuration.sync_cycles)
        with m.If(syncs):
            m.d.control += passed.eq(Mux(over, 0, passed + 1))

    def _account(self, m: Module, executing: Value, is_sync: Value) -> None:
        """Drive ``accounted``, the cause under which the unit's current cycle is counted.

        If the tokens of both neighbours are missing, the cause names the previous one.
        """
        waits_for_previous = self._flags("pop")[0] & ~self.there[0]
        with m.If(executing):
            m.d.comb += self.accounted.eq(Mux(is_sync, Cause.BUSY, self.cause))
        with m.Elif(self.valid):
            previous, following = (
                _MISSING[side[self._unit]] if self._unit in side else Cause.IDLE
                for side in (PREVIOUS, NEXT)
            )
            m.d.comb += self.accounted.eq(Mux(waits_for_previous, previous, following))


REQUESTERS = (Unit.LD, Unit.ST)
"""Units on the bus in the order of their turns, which follow the command fetch."""


class Control(Elaboratable):
    """Control of the machine: fetch, command processor, queues, token counters and bus arbiter.

    The component ``Control`` drives the units LD, EX and ST, which are outside it; ``units`` are
    their controllers. All its parts except the arbiter are in the clock domain ``control``, whose
    clock must tick while ``active`` is 1.

    - ``wants[LD]``, ``wants[ST]``: the unit requests the bus slot of this cycle.
    - ``granted[LD]``, ``granted[ST]``: the unit gets the bus slot of this cycle.
    - ``halt``: no command starts or completes, and no command word is executed.
    - ``active``: the clock of ``control`` must tick.
    """

    def __init__(self, limits: Limits, configuration: Configuration) -> None:
        self.halt = Signal()
        self.active = Signal()
        self.wants, self.granted = (
            {unit: Signal(name=f"{unit.name.lower()}_{what}") for unit in REQUESTERS}
            for what in ("wants", "granted")
        )
        self.arbiter = Arbiter(1 + len(REQUESTERS))
        self.fetch = Fetch(limits, configuration)
        self.processor = Processor(limits)
        self.queues = {
            unit: CommandQueue(limits, configuration, unit, self.processor.registers)
            for unit in Unit
        }
        self.units = {
            unit: UnitControl(configuration, unit, queue.head)
            for unit, queue in self.queues.items()
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fetch = self.fetch
        m.submodules.processor = self.processor
        m.submodules.arbiter = self.arbiter
        for unit in Unit:
            name = unit.name.lower()
            m.submodules[f"{name}_queue"] = self.queues[unit]
            m.submodules[f"{name}_control"] = self.units[unit]
        processor = self.processor
        active = [self.fetch.active, processor.executes, processor.undefined]
        active += [unit.active for unit in self.units.values()]
        m.d.comb += self.active.eq(Cat(*active).any())
        self._issue(m)
        self._units(m)
        self._tokens(m)
        return m

    def _issue(self, m: Module) -> None:
        """Connect the fetch, the bus requests, the processor and the queues."""
        fetch = self.fetch
        processor = self.processor
        queues = self.queues.values()
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
        for unit, queue in zip(self.units.values(), self.queues.values(), strict=True):
            m.d.comb += [
                unit.valid.eq(queue.valid),
                unit.halt.eq(self.halt),
                queue.pop.eq(unit.over),
            ]

    def _tokens(self, m: Module) -> None:
        """Add a token counter for each ordered pair of neighbouring units."""
        for sides, side, other in ((NEXT, 1, 0), (PREVIOUS, 0, 1)):
            for giver, taker in sides.items():
                counter = TokenCounter()
                m.submodules[f"tokens_{giver.name.lower()}_{taker.name.lower()}"] = counter
                m.d.comb += [
                    counter.push.eq(self.units[giver].push[side]),
                    counter.pop.eq(self.units[taker].pop[other]),
                    self.units[taker].there[other].eq(counter.there),
                ]
