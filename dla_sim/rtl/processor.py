"""Command processor: one word per cycle, register file and decoder (docs/machine.md, section 4)."""

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.parameters import Limits
from dla_sim.rtl.ports import WORD_BITS, bits_of, register_signal
from isa.encoding import SET_LAYOUT
from isa.instruction import OPCODE, Instruction, Unit

_SET = {item.name: item for item in SET_LAYOUT}


class Decoder(Component):
    """Combinational decoder of a command word.

    - ``word``: command word to decode; an unknown opcode sets no output.
    - ``is_set``: the word writes a register.
    - ``is_end``: the word ends the program.
    - ``unit``: one bit for each unit, in the order of ``Unit``: the word goes to the queue of that
      unit.
    """

    def __init__(self, limits: Limits) -> None:
        units = len(Unit)
        super().__init__(
            {"word": In(WORD_BITS), "is_set": Out(1), "is_end": Out(1), "unit": Out(units)}
        )
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
        """Decode an instruction that does not belong to a fixed unit.

        A field names the unit, or the word ends the program.
        """
        names = [field for field in item.fields if field.name == "unit"]
        if names:
            m.d.comb += self.unit.eq(Const(1, len(Unit)) << bits_of(self.word, names[0]))
        else:
            m.d.comb += self.is_end.eq(1)


class Processor(Component):
    """Command processor: executes the current word if it is available and its target is free.

    The command processor is in the clock domain ``control``. Its attribute ``registers`` contains
    the register values by name.

    - ``word``: current command word, valid while ``ready`` is 1.
    - ``ready``: the current word has arrived.
    - ``number``: index of the current word.
    - ``executes``: the current word is executed; the next word follows in the next cycle.
    - ``push``: one bit for each unit: put the current word into the queue of that unit.
    - ``room``: one bit for each unit: the queue of that unit has a free entry, as ``push``
      requires.
    - ``empty``: all queues are empty, so all units are idle.
    - ``halt``: no word is executed.
    - ``interrupt``: ``OP_END`` was executed in an earlier cycle.
    - ``undefined``: the current word is no instruction and is never executed.
    - ``fault``: 1 from the cycle after ``undefined`` on.
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
        self.registers: dict[str, Value] = {
            item.name: register_signal(item) for item in self._declared
        }

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
        index = bits_of(self.word, _SET["register"])
        value = bits_of(self.word, _SET["value"])
        for item in self._declared:
            with m.If(sets & (index == item.index)):
                m.d.control += self.registers[item.name].eq(value)
