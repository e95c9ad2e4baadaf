"""What passes between the parts of the hardware: causes, operand streams, ports on the scratchpad and on the memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from amaranth.hdl import ClockSignal, Module, Signal, Value

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
