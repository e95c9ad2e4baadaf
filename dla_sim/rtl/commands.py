"""A command as a unit sees it: its word and the snapshot of its registers, by the names that the ISA declares."""

from __future__ import annotations

from amaranth.hdl import Const, Signal, Value, signed, unsigned

from dla_sim.rtl.ports import WORD_BITS
from isa.fields import Field
from isa.instruction import Instruction, Unit
from isa.registers import Register
from isa.variants import Variant


def unit_registers(variant: Variant, unit: Unit) -> tuple[Register, ...]:
    """The registers that commands of ``unit`` can read, by index."""
    prefix = f"{unit.name}_"
    registers = sorted(variant.register_file.registers, key=lambda register: register.index)
    return tuple(register for register in registers if register.name.startswith(prefix))


def register_signal(register: Register, prefix: str = "") -> Signal:
    """A signal as wide as ``register``, two's complement where it is signed, with its reset value."""
    shape = signed(register.width) if register.form == "signed" else unsigned(register.width)
    return Signal(shape, init=register.reset, name=f"{prefix}{register.name.lower()}")


def bits_of(word: Value, item: Field) -> Value:
    """The bits of a command word that are a field of it, two's complement where that is signed."""
    bits = word[item.low : item.low + item.width]
    return bits.as_signed() if item.signed else bits


class CommandView:
    """The command at the head of a unit's queue. Signals: ``word`` and one a register of the unit.

    Valid from the cycle of its start to its last one.
    """

    def __init__(self, variant: Variant, unit: Unit, prefix: str = "") -> None:
        self.variant, self.unit = variant, unit
        self.word = Signal(WORD_BITS, name=f"{prefix}word")
        self.registers = {item.name: register_signal(item, prefix) for item in unit_registers(variant, unit)}

    def register(self, name: str) -> Value:
        """The register's value."""
        return self.registers[name]

    def instruction(self, mnemonic: str) -> Instruction:
        """The declaration."""
        found, _ = self.variant.by_mnemonic[mnemonic]
        return found

    def is_(self, *mnemonics: str) -> Value:
        """1 where it is one of these instructions; those that the variant lacks it never is."""
        opcode = self.word[56:64]
        known = [name for name in mnemonics if name in self.variant.by_mnemonic]
        return opcode.matches(*(self.instruction(name).opcode for name in known)) if known else Const(0, 1)

    def field(self, mnemonic: str, name: str) -> Value:
        """The bits of a field of the word, as the layout of ``mnemonic`` has it; a constant 0 where it has none."""
        for item in self.instruction(mnemonic).layout:
            if item.name == name:
                return bits_of(self.word, item)
        return Const(0, 1)
