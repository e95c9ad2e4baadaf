"""The device behind its register map (docs/device.md): a processor writes registers and waits.

:class:`MappedDevice` has the registers of ``isa.device`` and reaches memory through a
:class:`DeviceBus`. The simulator executes a run, or another function with the same results, such as
the RTL's executable (``experiments.rtl.device``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.device import Device
from dla_sim.engine.times import DeadlockError
from dla_sim.kernels.dispatch import CommandOverflowError
from dla_sim.prepared import HazardError
from isa import memory
from isa.access import Access, Range
from isa.device import (
    COUNTED_CAUSES,
    COUNTED_UNITS,
    DEVICE_REGISTERS,
    IDENTITY,
    MAP_VERSION,
    WINDOW_ALIGNMENT,
    WINDOWS,
    FaultReason,
    hash_arch,
    number_isa,
)
from isa.errors import InputError
from isa.instruction import Command, Operands
from isa.program import Program, Segment, Tensor

ADDRESSES = 1 << 32
"""Number of bus addresses and of program addresses."""
BUSY, DONE, FAULT = (1 << position for _, position, _ in DEVICE_REGISTERS["STATUS"].bits)
RUN, RESET = (1 << position for _, position, _ in DEVICE_REGISTERS["CONTROL"].bits)
_READABLE = {one.offset: name for name, one in DEVICE_REGISTERS.items() if "r" in one.access}
_WRITABLE = {one.offset: name for name, one in DEVICE_REGISTERS.items() if "w" in one.access}
_CACHED_PROGRAMS = 16
MAX_COMMAND_MACS = 1 << 34
"""Multiply-accumulates of one command that the model executes; more are the fault LIMIT."""
MAX_COMMAND_BYTES = 1 << 24
"""Bytes of one command's operands, beside eight times the scratchpad, that the model executes."""


@dataclass(frozen=True)
class DeviceBus:
    """Memory that the device reaches.

    ``read(address, count)`` returns bytes, ``write(address, data)`` stores them. ``ranges`` are the
    half-open ranges of bus addresses with memory; a window must be inside one of them.
    """

    read: Callable[[int, int], bytes]
    write: Callable[[int, bytes], object]
    ranges: tuple[Range, ...]


def make_bus(data: bytearray | memoryview, base: int = 0) -> DeviceBus:
    """Return a bus whose only memory is ``data``, from bus address ``base``."""
    view = memoryview(data).cast("B")

    def read(address: int, count: int) -> bytes:
        return bytes(view[address - base : address - base + count])

    def write(address: int, content: bytes) -> None:
        view[address - base : address - base + len(content)] = content

    return DeviceBus(read, write, ((base, base + len(view)),))


@dataclass(frozen=True)
class MappedRun:
    """Results of a run: output tensors by name, cycles, and cycles by unit and cause."""

    outputs: Mapping[str, NDArray[Any]]
    cycles: int
    units: Mapping[str, Mapping[str, int]]


Execute = Callable[[Program, Mapping[str, NDArray[Any]]], MappedRun]
"""Function that runs a checked program on input tensors, such as :func:`make_simulation`.

Raises the exceptions of :meth:`dla_sim.device.Device.run`.
"""


def make_simulation(device: Device) -> Execute:
    """Return the function that runs programs on the simulator."""

    def execute(program: Program, inputs: Mapping[str, NDArray[Any]]) -> MappedRun:
        execution = device.run(program, inputs)
        return MappedRun(execution.outputs, execution.trace.cycles, execution.trace.units)

    return execute


class DeviceFaultError(Exception):
    """End of a run by a fault, with the values of the three fault registers."""

    def __init__(self, reason: FaultReason, word: int = 0, address: int = 0) -> None:
        super().__init__(reason.meaning)
        self.reason = reason
        self.word = word
        self.address = address


@dataclass(frozen=True)
class AddressWindow:
    """Bytes that the device reaches at bus address ``base`` and program address ``start``."""

    name: str
    base: int
    start: int
    nbytes: int

    @property
    def end(self) -> int:
        """One past the last program address."""
        return self.start + self.nbytes

    @property
    def is_writable(self) -> bool:
        """True if commands may write to the window."""
        return self.name in ("ACTIVATION", "STATE")


class MappedDevice:
    """The registers of a device; not thread-safe.

    Args:
        device: machine whose programs run; it checks every program.
        bus: memory with words, constants, activations and state.
        execute: function that runs a checked program; by default the simulator.
        deferred: a run stays busy until :meth:`finish`; by default it ends within the write to
            CONTROL.
    """

    def __init__(
        self,
        device: Device,
        bus: DeviceBus,
        *,
        execute: Execute | None = None,
        deferred: bool = False,
    ) -> None:
        self._device = device
        self._bus = bus
        self._execute = execute or make_simulation(device)
        self._deferred = deferred
        self._load = lru_cache(_CACHED_PROGRAMS)(self._prepare)
        self._values: dict[str, int] = {}
        self._reset()

    @property
    def interrupt(self) -> bool:
        """Level of the interrupt line."""
        return bool(self._values["INTERRUPT"] & self._values["INTERRUPT_ENABLE"])

    @property
    def is_busy(self) -> bool:
        return bool(self._values["STATUS"] & BUSY)

    def read32(self, offset: int) -> int:
        """Return the register at ``offset``; 0 if no readable register is there."""
        return self._values[_READABLE[offset]] if offset in _READABLE else 0

    def write32(self, offset: int, value: int) -> None:
        """Write the register at ``offset``; the write has no effect if it cannot be written.

        While a run is busy, only CONTROL and the two interrupt registers can be written.
        """
        name = _WRITABLE.get(offset)
        if name is None:
            return
        if name == "CONTROL":
            self._control(value)
        elif name == "INTERRUPT":
            self._values[name] &= ~value
        elif name == "INTERRUPT_ENABLE":
            self._values[name] = value & 1
        elif not self.is_busy:
            self._values[name] = value % ADDRESSES

    def finish(self) -> None:
        """Complete the run if the device is busy: results, counters, status and interrupt."""
        if not self.is_busy:
            return
        values = self._values
        try:
            run = self._run()
        except DeviceFaultError as fault:
            values["STATUS"] = FAULT
            values["FAULT_REASON"] = fault.reason.value
            values["FAULT_WORD"] = fault.word
            values["FAULT_ADDRESS"] = fault.address
        else:
            values["STATUS"] = DONE
            self._set_counter("CYCLES", run.cycles)
            for unit in COUNTED_UNITS:
                for cause in COUNTED_CAUSES:
                    self._set_counter(f"{unit}_{cause}".upper(), run.units[unit].get(cause, 0))
        values["INTERRUPT"] = 1

    def _reset(self) -> None:
        """Set all registers to their reset values."""
        self._values = dict.fromkeys(DEVICE_REGISTERS, 0)
        arch = self._device.arch
        self._values |= {"ID": IDENTITY, "MAP_VERSION": MAP_VERSION, "ISA": number_isa(arch)}
        self._values |= {f"ARCH_HASH{n}": word for n, word in enumerate(hash_arch(arch))}

    def _control(self, value: int) -> None:
        if value & RESET:
            self._reset()
        elif value & RUN and not self.is_busy:
            cleared = (name for name, one in DEVICE_REGISTERS.items() if one.offset >= 0x070)
            self._values |= {**dict.fromkeys(cleared, 0), "STATUS": BUSY}
            if not self._deferred:
                self.finish()

    def _set_counter(self, name: str, value: int) -> None:
        self._values[f"{name}_LOW"] = value % ADDRESSES
        self._values[f"{name}_HIGH"] = value // ADDRESSES

    def _run(self) -> MappedRun:
        """Run the program in the registers; raise DeviceFaultError if it cannot complete.

        Memory is written only if the run completes.
        """
        windows = self._read_windows()
        words, constants = (self._read(windows, name) for name in ("COMMAND", "CONSTANT"))
        program = self._load(words, constants, tuple(windows))
        inputs = {
            tensor.name: np.frombuffer(self._read(windows, tensor.name), np.int8)
            for tensor in program.inputs
        }
        with np.errstate(all="ignore"), _raise_faults(FaultReason.OPERAND, FaultReason.LIMIT):
            run = self._execute(program, inputs)
        for window in windows:
            if window.name in run.outputs:
                self._bus.write(window.base, run.outputs[window.name].tobytes())
        return run

    def _read_windows(self) -> list[AddressWindow]:
        """Return the windows that are not empty; raise DeviceFaultError for a bad register."""
        values = self._values
        if any(values[f"PROGRAM_HASH{n}"] != values[f"ARCH_HASH{n}"] for n in range(4)):
            raise DeviceFaultError(FaultReason.HASH)
        sizes = {"COMMAND_BYTES": 8 * values["COMMAND_WORDS"]} | values
        windows = [
            AddressWindow(
                name, values[f"{name}_BASE"], values[f"{name}_START"], sizes[f"{name}_BYTES"]
            )
            for name in WINDOWS
            if sizes[f"{name}_BYTES"]
        ]
        for window in windows:
            bus_end = window.base + window.nbytes
            if (window.base - window.start) % WINDOW_ALIGNMENT:
                raise DeviceFaultError(FaultReason.ALIGNMENT, address=window.base)
            if max(window.end, bus_end) > ADDRESSES or not any(
                low <= window.base and bus_end <= high for low, high in self._bus.ranges
            ):
                raise DeviceFaultError(FaultReason.MEMORY, address=window.base)
        for one, other in combinations(windows, 2):
            near = one.base < other.base + other.nbytes and other.base < one.base + one.nbytes
            if near or (one.start < other.end and other.start < one.end):
                raise DeviceFaultError(FaultReason.OVERLAP, address=other.base)
        return windows

    def _read(self, windows: Sequence[AddressWindow], name: str) -> bytes:
        """Return the bytes of the window ``name``; none if it is empty."""
        found = (self._bus.read(one.base, one.nbytes) for one in windows if one.name == name)
        return next(found, b"")

    def _prepare(
        self, words: bytes, constants: bytes, windows: tuple[AddressWindow, ...]
    ) -> Program:
        """Return the program in the windows, checked; raise DeviceFaultError if it cannot run."""
        arch = self._device.arch
        starts = {window.name: window.start for window in windows}
        tensors = [
            Tensor(one.name, role, "int8", (one.nbytes,), one.start)
            for one in windows
            if one.is_writable
            for role in ("input", "output")
        ]
        image = np.frombuffer(constants, np.uint8)
        program = Program(
            name="device",
            arch=arch,
            words=np.frombuffer(words, "<u8").astype(np.uint64),
            tensors=tuple(tensors),
            segments=(Segment(starts["CONSTANT"], image),) if constants else (),
            provenance=(),
            dram_bytes=max((window.end for window in windows), default=0),
            command_address=starts.get("COMMAND", 0),
        )
        with _raise_faults(FaultReason.WORD, FaultReason.WORD):
            commands = program.commands[:-1]
        for command in commands:
            with _raise_faults(FaultReason.OPERAND, FaultReason.OPERAND, command.index):
                operands = command.instruction.operands(command, arch)
            self._check_operands(command, operands, windows)
        with _raise_faults(FaultReason.OPERAND, FaultReason.LIMIT):
            memory.require(program.dram_bytes, "the device's system memory")
            _ = self._device.load(program).trace  # raises if the program cannot complete
        return program

    def _check_operands(
        self, command: Command, operands: Operands, windows: Sequence[AddressWindow]
    ) -> None:
        """Raise DeviceFaultError if an operand is outside its memory, or a command is too large."""
        for access, written in _list_accesses(operands):
            if access.space == "sram":
                inside = access.end <= self._device.arch.sram_bytes
            else:
                inside = any(
                    window.start <= access.address
                    and access.end <= window.end
                    and (window.is_writable or not written)
                    for window in windows
                )
            if not inside:
                raise DeviceFaultError(
                    FaultReason.ADDRESS, command.index, access.address % ADDRESSES
                )
        touched = sum(access.total for access, _ in _list_accesses(operands))
        most = MAX_COMMAND_BYTES + 8 * self._device.arch.sram_bytes
        if touched > most or command.instruction.macs(command) > MAX_COMMAND_MACS:
            raise DeviceFaultError(FaultReason.LIMIT, command.index)


def _list_accesses(operands: Operands) -> Iterator[tuple[Access, bool]]:
    """Yield the accesses of a command that touch bytes, and whether each is a write."""
    for accesses, written in ((operands.reads, False), (operands.writes, True)):
        for access in accesses:
            if access.total:
                yield access, written


@contextmanager
def _raise_faults(reason: FaultReason, wordless: FaultReason, word: int = 0) -> Iterator[None]:
    """Turn the simulator's exceptions within the block into DeviceFaultError.

    An InputError becomes ``reason``, or ``wordless`` if it names no word; then the fault has
    ``word``.
    """
    try:
        yield
    except CommandOverflowError as error:
        raise DeviceFaultError(FaultReason.OVERFLOW, error.word) from error
    except InputError as error:
        kinds = {DeadlockError: FaultReason.DEADLOCK, HazardError: FaultReason.HAZARD}
        found = kinds.get(type(error), reason if error.words else wordless)
        raise DeviceFaultError(found, error.words[0] if error.words else word) from error
    except (IndexError, FloatingPointError) as error:
        raise DeviceFaultError(FaultReason.OPERAND, word) from error
