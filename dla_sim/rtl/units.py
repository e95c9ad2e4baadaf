"""What LD, EX and ST have in common: when commands start and end, OP_SYNC, accounts (docs/machine.md, 3, 5 and 7)."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.commands import CommandView, bits_of
from dla_sim.rtl.parameters import Configuration
from dla_sim.rtl.ports import Cause
from isa.instruction import NEXT, PREVIOUS, TOKENS, Unit

SYNC = "OP_SYNC"
_TOKENS = {item.name: item for item in TOKENS}
_MISSING = {Unit.LD: Cause.TOKEN_LD, Unit.EX: Cause.TOKEN_EX, Unit.ST: Cause.TOKEN_ST}


class UnitControl(Component):
    """Starts the command at the head of a queue when its tokens are there, and executes ``OP_SYNC`` itself.

    From the queue: ``valid``, and ``command`` (its head); to it ``over``, in the last cycle of a command. Of the tokens
    of the two neighbours: whether one is ``there``, and ``pop`` and ``push``, each with bits for the previous and for
    the next unit. To the unit: ``start``, for what is no ``OP_SYNC``; from it ``done`` and ``cause``. ``halt``: nothing
    starts and nothing is over. ``starts``: a command starts in this cycle; ``accounted``: the cause of this cycle.
    In the domain ``control``, whose clock must tick with ``active``.

    A command that is over in cycle t lets others start in t + 1: all of step 1 of the document comes before step 2.
    """

    def __init__(self, configuration: Configuration, unit: Unit, command: CommandView) -> None:
        super().__init__({
            "valid": In(1), "over": Out(1), "there": In(2), "pop": Out(2), "push": Out(2), "halt": In(1),
            "start": Out(1), "done": In(1), "cause": In(4), "starts": Out(1), "accounted": Out(4), "active": Out(1),
        })  # fmt: skip
        self._configuration, self._unit, self._command = configuration, unit, command

    def elaborate(self, platform: object) -> Module:
        """The hardware."""
        m = Module()
        command = self._command
        busy, executing, sync_over = Signal(), Signal(), Signal()
        is_sync = command.is_(SYNC)
        pops, pushes = self._flags("pop"), self._flags("push")
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
        """The bits of the command's word ``{what}_previous`` and ``{what}_next``."""
        return Cat(bits_of(self._command.word, _TOKENS[f"{what}_{side}"]) for side in ("previous", "next"))

    def _time_sync(self, m: Module, syncs: Value, over: Signal) -> None:
        """``over`` in the last cycle of an ``OP_SYNC``, in which ``syncs`` is 1 from the first one on."""
        passed = Signal(self._configuration.sync_cycles.shape())  # unlike a strap, it has a reset
        m.d.comb += over.eq(passed + 1 == self._configuration.sync_cycles)
        with m.If(syncs):
            m.d.control += passed.eq(Mux(over, 0, passed + 1))

    def _account(self, m: Module, executing: Value, is_sync: Value) -> None:
        """If the tokens of both neighbours are missing, the previous one is named."""
        waits_for_previous = self._flags("pop")[0] & ~self.there[0]
        with m.If(executing):
            m.d.comb += self.accounted.eq(Mux(is_sync, Cause.BUSY, self.cause))
        with m.Elif(self.valid):
            previous, following = (
                _MISSING[side[self._unit]] if self._unit in side else Cause.IDLE for side in (PREVIOUS, NEXT)
            )
            m.d.comb += self.accounted.eq(Mux(waits_for_previous, previous, following))
