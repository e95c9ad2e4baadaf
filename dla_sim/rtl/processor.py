"""The command processor: one word a cycle, the register file, the decoder (docs/machine.md, section 4)."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.parameters import Limits
from dla_sim.rtl.ports import WORD_BITS, bits_of, register_signal
from isa.encoding import SET_LAYOUT
from isa.instruction import OPCODE, Instruction, Unit

_SET = {item.name: item for item in SET_LAYOUT}


class Decoder(Component):
    """What a command word asks for; combinational. A word of another opcode asks for nothing.

    ``is_set``, ``is_end``, and ``unit``: one bit a unit, in the order of ``Unit``, 1 where it is for the unit's queue.
    """

    def __init__(self, limits: Limits) -> None:
        units = len(Unit)
        super().__init__({"word": In(WORD_BITS), "is_set": Out(1), "is_end": Out(1), "unit": Out(units)})
        self._instructions = limits.variant.instructions

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.Switch(bits_of(self.word, OPCODE)):
            with m.Case(_SET["opcode"].constant):
                m.d.comb += self.is_set.eq(1)
            for unit in Unit:
                with m.Case(*(item.opcode for item in self._instructions if item.unit is unit)):
                    m.d.comb += self.unit.eq(1 << unit.value)
            for item in self._instructions:
                if item.unit is None:
                    with m.Case(item.opcode):
                        self._unitless(m, item)
        return m

    def _unitless(self, m: Module, item: Instruction) -> None:
        """An instruction whose word names the unit; without such a field it is the one that ends the program."""
        names = [field for field in item.fields if field.name == "unit"]
        if names:
            m.d.comb += self.unit.eq(Const(1, len(Unit)) << bits_of(self.word, names[0]))
        else:
            m.d.comb += self.is_end.eq(1)


class Processor(Component):
    """Executes the word at hand in this cycle if it is there and what it needs is free.

    ``word`` is valid with ``ready``; ``executes``: the next one is at hand in the next cycle, it is word ``number``.
    ``push``: one bit a unit, the word goes into its queue, which has ``room``. ``empty``: no queue has a command, and
    so no unit. ``halt``: nothing is executed. ``interrupt``: ``OP_END`` has been executed, in a cycle before this one.
    ``undefined``: the word at hand is no instruction's, and is never executed; ``fault`` from the next cycle on.
    ``registers`` by name. In the domain ``control``.
    """

    def __init__(self, limits: Limits) -> None:
        units = len(Unit)
        super().__init__({
            "word": In(WORD_BITS), "ready": In(1), "room": In(units), "empty": In(1), "halt": In(1),
            "number": Out(32), "executes": Out(1), "push": Out(units), "interrupt": Out(1),
            "undefined": Out(1), "fault": Out(1),
        })  # fmt: skip
        self._decoder = Decoder(limits)
        self._declared = limits.variant.register_file.registers
        self.registers: dict[str, Value] = {item.name: register_signal(item) for item in self._declared}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.decoder = decoder = self._decoder
        m.d.comb += decoder.word.eq(self.word)
        possible = self.ready & ~self.interrupt & ~self.halt
        ends = decoder.is_end & self.empty
        m.d.comb += [
            self.push.eq(Mux(possible, decoder.unit & self.room, 0)),
            self.executes.eq(self.push.any() | possible & (decoder.is_set | ends)),
            self.undefined.eq(possible & ~(decoder.is_set | decoder.is_end | decoder.unit.any())),
        ]
        with m.If(self.undefined):
            m.d.control += self.fault.eq(1)
        with m.If(possible & ends):
            m.d.control += self.interrupt.eq(1)
        with m.If(self.executes):
            m.d.control += self.number.eq(self.number + 1)
        self._register_file(m, possible & decoder.is_set)
        return m

    def _register_file(self, m: Module, sets: Value) -> None:
        index, value = bits_of(self.word, _SET["register"]), bits_of(self.word, _SET["value"])
        for item in self._declared:
            with m.If(sets & (index == item.index)):
                m.d.control += self.registers[item.name].eq(value)
