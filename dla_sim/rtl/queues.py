"""The queue of a unit: command words, each with a snapshot of the unit's registers (docs/machine.md, section 4)."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Array, Module, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.commands import CommandView, register_signal, unit_registers
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import WORD_BITS
from isa.instruction import Unit


class CommandQueue(Component):
    """Up to ``queue_depth`` commands of a unit, the executing one included, which is ``head``.

    ``push``: take ``word`` and the registers as they are in this cycle; only with ``room``. ``pop``: the head is over;
    it may come in the same cycle. ``valid``: there is a head. What is pushed in cycle t is in the queue from t + 1 on.

    The head is a set of registers, so that the units need no multiplexer to read it, and the others stand behind it in
    a chain whose newest is always first, so that it needs none to be written. All in the domain ``control``.
    """

    def __init__(
        self, limits: Limits, configuration: Configuration, unit: Unit, registers: Mapping[str, Value]
    ) -> None:
        super().__init__({"push": In(1), "pop": In(1), "word": In(WORD_BITS), "room": Out(1), "valid": Out(1)})
        self._depth, self._configured_depth = limits.queue_depth, configuration.queue_depth
        self.head = CommandView(limits.variant, unit, f"{unit.name.lower()}_")
        declared = unit_registers(limits.variant, unit)
        self._sources: list[Value] = [self.word, *(registers[item.name] for item in declared)]
        self._entry = [self.head.word, *(self.head.registers[item.name] for item in declared)]
        self._chain = [
            [Signal(WORD_BITS), *(register_signal(item, f"waiting_{place}_") for item in declared)]
            for place in range(self._depth - 1)
        ]

    def elaborate(self, platform: object) -> Module:
        """The hardware."""
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
                m.d.control += [older.eq(newer) for newer, older in zip([source, *column], column, strict=False)]
            with m.If((level > 1) & self.pop):
                m.d.control += entry.eq(Array(column)[level - 2] if column else source)
            with m.Elif(self.push & ((level == 0) | self.pop)):
                m.d.control += entry.eq(source)
        return m
