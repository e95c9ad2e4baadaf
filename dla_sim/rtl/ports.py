"""What passes between the parts of the hardware: commands, causes, operand streams, ports on scratchpad and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from amaranth.hdl import ClockSignal, Const, Module, Signal, Value, signed, unsigned

from isa.instruction import Instruction, Unit
from isa.registers import Field, Register
from isa.variants import Variant

ADDRESS_BITS = 32
WORD_BITS = 64


class Cause(IntEnum):
    """Codes of the causes of docs/machine.md section 7, one of which every cycle of every unit has.

    ``IDLE``: with an empty queue; whether commands are still to come, nobody in the machine knows.
    """

    IDLE = 0
    BUSY = 1
    DRAM = 2
    FLASH = 3
    BUS = 4
    SRAM = 5
    TOKEN_LD = 6
    TOKEN_EX = 7
    TOKEN_ST = 8


@dataclass(frozen=True, eq=False)
class Stream:
    """An operand, or the result, of a command as the scratchpad's banks see it (docs/machine.md, section 5).

    ``valid``: it has bytes. ``first`` and ``last`` byte of its hull; ``nbytes`` of it altogether.
    """

    valid: Value
    first: Value
    last: Value
    nbytes: Value
    write: bool = False


Serves = Mapping[str, tuple[str, ...]]
"""What passes a port, by the register with its address: of which instructions; of all that have the register: ()."""


class ReadPort:
    """``lanes`` independent reads of ``width`` bytes a cycle, little-endian, from any byte address.

    ``domain`` None: the data of a cycle's addresses are there in the same cycle; else they are registered by that
    clock. ``data`` of a lane that is not ``enable`` d is anything. Its owner drives ``clock`` (:func:`drive_clocks`).
    ``serves`` is for tables alone.
    """

    def __init__(self, name: str, lanes: int, width: int, domain: str | None, serves: Serves | None = None) -> None:
        self.name, self.lanes, self.width, self.domain = name, lanes, width, domain
        self.serves: Serves = serves or {}
        self.clock = Signal(name=f"{name}_clk")
        self.enable = Signal(lanes, name=f"{name}_enable")
        self.address = [Signal(ADDRESS_BITS, name=f"{name}_address_{lane}") for lane in range(lanes)]
        self.data = [Signal(8 * width, name=f"{name}_data_{lane}") for lane in range(lanes)]


class WritePort:
    """``lanes`` independent writes a cycle at any byte address; of two at one address the later lane's remains.

    ``enable`` has ``width`` bits a lane, one a byte. Written at the edge of ``domain`` that ends the cycle. Its owner
    drives ``clock`` (:func:`drive_clocks`). ``serves`` is for tables alone.
    """

    def __init__(self, name: str, lanes: int, width: int, domain: str, serves: Serves | None = None) -> None:
        self.name, self.lanes, self.width, self.domain = name, lanes, width, domain
        self.serves: Serves = serves or {}
        self.clock = Signal(name=f"{name}_clk")
        self.enable = [Signal(width, name=f"{name}_enable_{lane}") for lane in range(lanes)]
        self.address = [Signal(ADDRESS_BITS, name=f"{name}_address_{lane}") for lane in range(lanes)]
        self.data = [Signal(8 * width, name=f"{name}_data_{lane}") for lane in range(lanes)]


def drive_clocks(m: Module, ports: Iterable[ReadPort | WritePort]) -> None:
    """Clock ``ports`` by their domains, which ``m`` declares or knows: the scratchpad is elsewhere."""
    m.d.comb += [port.clock.eq(ClockSignal(port.domain)) for port in ports if port.domain is not None]


class MemoryPort:
    """The one port to system memory: a beat of ``count`` bytes a cycle, all of them in one word of the memory.

    ``read_data`` answers in the same cycle: the latency has been waited for by then. Byte 0 is the lowest.
    """

    def __init__(self, bus_bytes: int) -> None:
        self.valid = Signal(name="memory_valid")
        self.write = Signal(name="memory_write")
        self.address = Signal(ADDRESS_BITS, name="memory_address")
        self.count = Signal(range(bus_bytes + 1), name="memory_count")
        self.write_data = Signal(8 * bus_bytes, name="memory_write_data")
        self.read_data = Signal(8 * bus_bytes, name="memory_read_data")

    @property
    def outputs(self) -> tuple[Signal, ...]:
        """What the machine drives."""
        return self.valid, self.write, self.address, self.count, self.write_data


class Lookup:
    """The address decoder outside: whether a byte of system memory is a constant, which a flash would hold."""

    def __init__(self, unit: str) -> None:
        self.address = Signal(ADDRESS_BITS, name=f"lookup_{unit.lower()}_address")
        self.constant = Signal(name=f"lookup_{unit.lower()}_constant")


class Probe:
    """What the outside sees of a unit: pulses in the first and the last cycle of a command, and every cycle's cause."""

    def __init__(self, unit: str) -> None:
        self.start = Signal(name=f"probe_{unit.lower()}_start")
        self.done = Signal(name=f"probe_{unit.lower()}_done")
        self.cause = Signal(4, name=f"probe_{unit.lower()}_cause")

    @property
    def outputs(self) -> tuple[Signal, ...]:
        """What the machine drives."""
        return self.start, self.done, self.cause


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
        return self.registers[name]

    def instruction(self, mnemonic: str) -> Instruction:
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
