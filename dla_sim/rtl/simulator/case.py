"""A case for the hardware: a program on inputs under a Timing, and what the simulator says that it must do.

Times are those of the engine, bytes those of the device's kernels; both are held to the specification elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.device import Device
from dla_sim.engine.workload import UNIT_NAMES
from dla_sim.inspection import Playback
from dla_sim.timing import Timing
from dla_sim.trace import Trace
from isa.access import Access
from isa.errors import InputError
from isa.instruction import Command, Machine
from isa.program import Program

Bytes = NDArray[np.uint8]
Run = tuple[int, Bytes]
"""Bytes from an address on."""
COUNTED = ("queue_empty", "busy", "dram", "flash", "bus", "sram", "token_LD", "token_EX", "token_ST", "drained")
"""The causes in the order in which the hardware numbers them: ``queue_empty`` stands for the idle cycles of
``ports.Cause.IDLE`` before a unit's last command, ``drained`` for those behind it."""


@dataclass(frozen=True, eq=False)
class Write:
    """What a command wrote: the bytes of ``access``, row by row."""

    access: Access
    content: Bytes


@dataclass(frozen=True, eq=False)
class Expectation:
    """What must happen. ``writes`` by command; empty for those that never execute.

    ``stopper``: the command whose overflow stops the machine. ``until``: the cycle in which a command starts whose
    values no instruction defines, so that nothing is expected from there on. None where there is none.
    """

    trace: Trace
    writes: tuple[tuple[Write, ...], ...]
    outputs: Mapping[str, NDArray[Any]]
    stopper: int | None = None
    until: int | None = None

    @property
    def causes(self) -> NDArray[np.int64]:
        """(units, causes in the order of :data:`COUNTED`): cycles."""
        units = self.trace.units
        return np.array([[units[unit].get(cause, 0) for cause in COUNTED] for unit in UNIT_NAMES], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Before:
    """Bytes that lie over all others at reset: from an address on, in the scratchpad and in system memory."""

    sram: tuple[Run, ...] = ()
    dram: tuple[Run, ...] = ()

    def lay(self, machine: Machine) -> None:
        """Put them into the memories of ``machine``, as far as those reach."""
        for memory, runs in ((machine.sram, self.sram), (machine.dram, self.dram)):
            for address, content in runs:
                reached = memory[address : address + content.size]
                reached[:] = content[: reached.size]


NOTHING = Before()


@dataclass(frozen=True, eq=False)
class Case:
    """A program on ``inputs``, arrays by tensor, under ``timing``.

    ``before`` are further bytes in the memories at reset, over zeros, the program's images and inputs.
    Where nothing is ``expected``, only outputs and total come back.
    """

    name: str
    program: Program
    inputs: Mapping[str, NDArray[Any]]
    timing: Timing
    expected: Expectation | None = None
    before: Before = NOTHING


def expect(
    program: Program, inputs: Mapping[str, NDArray[Any]], timing: Timing, before: Before = NOTHING
) -> Expectation:
    """What the simulator does with ``program``, command by command.

    Raises InputError for what it refuses: illegal words, addresses outside the memories, hazards, deadlocks.
    """
    device = Device(program.arch, timing)
    trace = device.run(program, inputs, timing_only=True).trace
    playback = Playback(device, program, inputs, trace)
    before.lay(playback.machine)
    writes: list[tuple[Write, ...]] = [()] * len(trace.commands)
    while (number := playback.following(trace.cycles)) is not None:
        try:
            playback.step()
        except OverflowError:
            return Expectation(trace, tuple(writes), {}, stopper=number)
        except (InputError, IndexError, FloatingPointError):
            return Expectation(trace, tuple(writes), {}, until=int(trace.times.start[number]))
        writes[number] = _written(trace.commands[number], playback.machine)
    dram = playback.machine.dram
    outputs = {
        tensor.name: dram[tensor.address :][: tensor.nbytes].copy().view(tensor.dtype).reshape(tensor.shape)
        for tensor in program.outputs
    }
    return Expectation(trace, tuple(writes), outputs)


def _written(command: Command, machine: Machine) -> tuple[Write, ...]:
    operands = command.instruction.operands(command, machine.arch)
    return tuple(Write(access, content_of(access, machine)) for access in operands.writes if access.total)


def content_of(access: Access, machine: Machine) -> Bytes:
    """A copy of the present bytes of ``access``, row by row; there must be some."""
    memory = machine.sram if access.space == "sram" else machine.dram
    shape = (*(count for count, _ in access.dims), access.nbytes)
    strides = (*(stride for _, stride in access.dims), 1)
    return np.ndarray(shape, np.uint8, memory, access.address, strides).flatten()


def layers_of(program: Program) -> tuple[str, ...]:
    """The layers of a program in order of first appearance: their numbers are places in it."""
    return tuple(dict.fromkeys(source.layer for source in program.sources if source is not None))
