"""Interfaces between hardware components: commands, causes, operand streams and memory ports."""

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
    """Codes of the causes of docs/machine.md, section 7; every cycle of every unit has one.

    ``IDLE`` means an empty queue. The hardware cannot know whether more commands will come.
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
    """Operand or result of a command as the scratchpad banks see it.

    docs/machine.md, section 5, defines streams.

    Attributes:
        valid: 1 if the operand has bytes.
        first: first byte of the range from its lowest to its highest byte.
        last: last byte of that range.
        nbytes: number of bytes it has.
        write: True for a result.
    """

    valid: Value
    first: Value
    last: Value
    nbytes: Value
    write: bool = False


Serves = Mapping[str, tuple[str, ...]]
"""Instructions that use a port, by the register with the address; () means all that have the
register.
"""


class ReadPort:
    """Scratchpad port with ``lanes`` independent reads of ``width`` bytes per cycle.

    Reads begin at any byte address and are little-endian. With ``domain`` None the data are valid
    in the cycle of their address; otherwise the clock of ``domain`` registers them. The ``data`` of
    a lane without ``enable`` are undefined. The owner drives ``clock`` (:func:`drive_clocks`). Only
    documentation tables use ``serves``.
    """

    def __init__(
        self, name: str, lanes: int, width: int, domain: str | None, serves: Serves | None = None
    ) -> None:
        self.name = name
        self.lanes = lanes
        self.width = width
        self.domain = domain
        self.serves: Serves = serves or {}
        self.clock = Signal(name=f"{name}_clk")
        self.enable = Signal(lanes, name=f"{name}_enable")
        self.address = [
            Signal(ADDRESS_BITS, name=f"{name}_address_{lane}") for lane in range(lanes)
        ]
        self.data = [Signal(8 * width, name=f"{name}_data_{lane}") for lane in range(lanes)]


class WritePort:
    """Scratchpad port with ``lanes`` independent writes per cycle at any byte address.

    The later lane wins at equal addresses.

    ``enable`` has ``width`` bits per lane, one per byte. Data are written at the edge of ``domain``
    that ends the cycle. The owner drives ``clock`` (:func:`drive_clocks`). Only documentation
    tables use ``serves``.
    """

    def __init__(
        self, name: str, lanes: int, width: int, domain: str, serves: Serves | None = None
    ) -> None:
        self.name = name
        self.lanes = lanes
        self.width = width
        self.domain = domain
        self.serves: Serves = serves or {}
        self.clock = Signal(name=f"{name}_clk")
        self.enable = [Signal(width, name=f"{name}_enable_{lane}") for lane in range(lanes)]
        self.address = [
            Signal(ADDRESS_BITS, name=f"{name}_address_{lane}") for lane in range(lanes)
        ]
        self.data = [Signal(8 * width, name=f"{name}_data_{lane}") for lane in range(lanes)]


def drive_clocks(m: Module, ports: Iterable[ReadPort | WritePort]) -> None:
    """Drive the clocks of ``ports`` from their domains in ``m``.

    The scratchpad is in another module.
    """
    m.d.comb += [
        port.clock.eq(ClockSignal(port.domain)) for port in ports if port.domain is not None
    ]


class MemoryPort:
    """The machine's only port to system memory, with one beat per cycle.

    A beat has ``count`` bytes within one memory word. ``read_data`` answers in the same cycle,
    because the latency is over by then. Byte 0 is the lowest.
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
        """Signals of the memory port that the machine drives."""
        return self.valid, self.write, self.address, self.count, self.write_data


class Lookup:
    """Interface to the external address decoder.

    The decoder tells whether a byte of system memory is constant. A flash, if any, stores the
    constants.
    """

    def __init__(self, unit: str) -> None:
        self.address = Signal(ADDRESS_BITS, name=f"lookup_{unit.lower()}_address")
        self.constant = Signal(name=f"lookup_{unit.lower()}_constant")


class Probe:
    """Observable state of a hardware unit: first and last cycle of commands, and causes.

    It pulses in a command's first and last cycle, and has each cycle's cause.
    """

    def __init__(self, unit: str) -> None:
        self.start = Signal(name=f"probe_{unit.lower()}_start")
        self.done = Signal(name=f"probe_{unit.lower()}_done")
        self.cause = Signal(4, name=f"probe_{unit.lower()}_cause")

    @property
    def outputs(self) -> tuple[Signal, ...]:
        """Signals of a unit's probe that the machine drives."""
        return self.start, self.done, self.cause


def unit_registers(variant: Variant, unit: Unit) -> tuple[Register, ...]:
    """Return the registers that commands of ``unit`` can read, by index."""
    prefix = f"{unit.name}_"
    registers = sorted(variant.register_file.registers, key=lambda register: register.index)
    return tuple(register for register in registers if register.name.startswith(prefix))


def register_signal(register: Register, prefix: str = "") -> Signal:
    """Return a signal with the width, signedness and reset value of ``register``."""
    shape = signed(register.width) if register.form == "signed" else unsigned(register.width)
    return Signal(shape, init=register.reset, name=f"{prefix}{register.name.lower()}")


def bits_of(word: Value, item: Field) -> Value:
    """Return a field of a command word as a value; a signed field is two's complement."""
    bits = word[item.low : item.low + item.width]
    return bits.as_signed() if item.signed else bits


class CommandView:
    """Command at the head of a unit's queue.

    It consists of its ``word`` and one signal per register of the unit. The signals are valid from
    the command's first cycle to its last.
    """

    def __init__(self, variant: Variant, unit: Unit, prefix: str = "") -> None:
        self.variant = variant
        self.unit = unit
        self.word = Signal(WORD_BITS, name=f"{prefix}word")
        self.registers = {
            item.name: register_signal(item, prefix) for item in unit_registers(variant, unit)
        }

    def register(self, name: str) -> Value:
        return self.registers[name]

    def instruction(self, mnemonic: str) -> Instruction:
        found, _ = self.variant.by_mnemonic[mnemonic]
        return found

    def is_(self, *mnemonics: str) -> Value:
        """Return 1 if the command is one of the instructions ``mnemonics``.

        The variant may lack some of them.
        """
        opcode = self.word[56:64]
        known = [name for name in mnemonics if name in self.variant.by_mnemonic]
        return (
            opcode.matches(*(self.instruction(name).opcode for name in known))
            if known
            else Const(0, 1)
        )

    def field(self, mnemonic: str, name: str) -> Value:
        """Return a field of the command word in the layout of the instruction ``mnemonic``.

        The result is constant 0 if the layout has no such field.
        """
        for item in self.instruction(mnemonic).layout:
            if item.name == name:
                return bits_of(self.word, item)
        return Const(0, 1)
