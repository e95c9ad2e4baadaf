"""Running a program while watching every command: what it reads and writes, when, and what stops it.

Everything runs twice, independently: values by the reference semantics and by the device's kernels, cycles by the event
engine and by the one without events. All four are observed, so that a change of any of them shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dla_sim.device import Device, Engine, Trace
from dla_sim.engine import times
from dla_sim.engine.simulation import simulate
from dla_sim.engine.times import compute_times
from dla_sim.kernels.dispatch import Kernels
from dla_sim.prepared import SystemMemory, highest_byte, scratchpad
from dla_sim.timing import Timing
from experiments.debug.commit_log import access_bytes, checksums
from experiments.golden.case import CommandRecord, Cycles, Record
from isa.access import Access
from isa.assembler import command_text
from isa.errors import InputError
from isa.instruction import Command, Machine, Operands
from isa.program import Program

Way = Literal["reference", "kernels"]
Inputs = Mapping[str, bytes]
ENGINES: Mapping[str, Engine] = {"cycles": simulate, "recurrence": compute_times}


@dataclass(frozen=True, eq=False)
class Effects:
    """What commands did to the memories, by number: sums of what they read and wrote, and the bytes they wrote.

    None where a command never executed.
    """

    reads: tuple[str | None, ...]
    writes: tuple[str | None, ...]
    contents: tuple[bytes | None, ...]
    outputs: Mapping[str, bytes]
    stopped: str | None


def tensors(program: Program, inputs: Inputs) -> dict[str, NDArray[np.generic]]:
    """The input tensors of ``program`` from their bytes; raises InputError for bytes that do not make one."""
    arrays = {}
    for tensor in program.inputs:
        raw = np.frombuffer(inputs.get(tensor.name, b""), np.uint8)
        if raw.size != tensor.nbytes:
            raise InputError(f"input '{tensor.name}' has {raw.size} bytes, its tensor {tensor.nbytes}")
        arrays[tensor.name] = raw.view(tensor.dtype).reshape(tensor.shape)
    return arrays


def run_timing(program: Program, timing: Timing, engine: Engine) -> Trace:
    """The trace of a run by ``engine``; raises InputError for what the machine refuses."""
    return Device(program.arch, timing, engine=engine).run(program, {}, timing_only=True).trace


def watch(program: Program, inputs: Inputs, order: Sequence[int], way: Way) -> Effects:
    """Execute the commands of ``program`` in the given ``order`` of completion, observing each."""
    watcher = Watcher(program, inputs, way)
    for number in order:
        if not watcher.step(number):
            break
    return watcher.effects()


class Watcher:
    """A machine that executes one command after another and remembers what each did."""

    def __init__(self, program: Program, inputs: Inputs, way: Way) -> None:
        self.program = program
        self.commands = program.commands[:-1]
        self.operands: tuple[Operands, ...] = tuple(
            command.instruction.operands(command, program.arch) for command in self.commands
        )
        memory = SystemMemory(program, self.operands)
        arrays = tensors(program, inputs)
        for tensor in program.inputs:
            memory.put(tensor, arrays[tensor.name])
        self._memory = memory
        sram = scratchpad(program.arch, highest_byte(self.operands, "sram"), 0)
        self.machine = Machine(program.arch, sram, memory.data)
        self._execute: Callable[[Command, Machine], None] = _semantics if way == "reference" else _kernels(program)
        self._reads: list[str | None] = [None] * len(self.commands)
        self._writes: list[str | None] = [None] * len(self.commands)
        self._contents: list[bytes | None] = [None] * len(self.commands)
        self._stopped: str | None = None

    def step(self, number: int) -> bool:
        """Execute command ``number``; False when it stopped the machine, with whatever exception that was."""
        command, operands = self.commands[number], self.operands[number]
        self._reads[number] = checksums(operands.reads, self.machine)
        try:
            self._execute(command, self.machine)
        except Exception as error:  # whatever an instruction raises is an observation, and the machine stands still
            self._stopped = f"{type(error).__name__} at word {command.index}"
            return False
        self._writes[number] = checksums(operands.writes, self.machine)
        self._contents[number] = touched(operands.writes, self.machine)
        return True

    def effects(self) -> Effects:
        """What was observed so far; the outputs only if nothing stopped the machine."""
        outputs = {} if self._stopped else {t.name: self._memory.take(t).tobytes() for t in self.program.outputs}
        return Effects(tuple(self._reads), tuple(self._writes), tuple(self._contents), outputs, self._stopped)


def touched(accesses: Iterable[Access], machine: Machine) -> bytes:
    """The present bytes of ``accesses``, one after another; a row that repeats is there as often as it repeats."""
    return b"".join(access_bytes(access, machine) for access in accesses)


def _semantics(command: Command, machine: Machine) -> None:
    command.instruction.semantics(command, machine)


def _kernels(program: Program) -> Callable[[Command, Machine], None]:
    return Kernels(program.arch).run


def completion_order(trace: Trace) -> list[int]:
    """Numbers of the commands by completion; ties by unit, as the device has it."""
    return list(times.completion_order(trace.workload, trace.times))


def cycles_of(trace: Trace) -> Cycles:
    """The cycles of a run, by cause and by kind."""
    return Cycles(trace.cycles, {name: present(causes) for name, causes in trace.units.items()}, present(trace.kinds))


def present(table: Mapping[str, int]) -> dict[str, int]:
    """Without what is 0."""
    return {name: value for name, value in table.items() if value}


def totals_of(trace: Trace) -> dict[str, int]:
    """Work and traffic of a run."""
    return {
        "macs": trace.macs,
        "dram_read_bytes": trace.dram_read_bytes,
        "dram_write_bytes": trace.dram_write_bytes,
        "command_words": trace.command_words,
        "instructions": trace.instructions,
        "sram_peak_bytes": trace.sram_peak_bytes,
    }


def command_rows(trace: Trace, effects: Effects, contents: bool) -> tuple[CommandRecord, ...]:
    """One record a command, in stream order."""
    starts, ends = trace.times.start.tolist(), trace.times.end.tolist()
    rows = []
    for number, command in enumerate(trace.commands):
        content = effects.contents[number]
        rows.append(
            CommandRecord(
                command.index,
                command_text(command),
                starts[number],
                ends[number],
                effects.reads[number],
                effects.writes[number],
                0 if content is None else len(content),
                content if contents else None,
            )
        )
    return tuple(rows)


def refusal(error: Exception) -> str:
    """How a record names the reason for which a machine does not run a program: the kind of error and the words.

    The message is for people and may be put better any time.
    """
    words = ", ".join(map(str, error.words)) if isinstance(error, InputError) else ""
    return f"{type(error).__name__} at {words}" if words else type(error).__name__


def complaint(error: Exception) -> str:
    """An exception in one line, for a report."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def observe(program: Program, inputs: Inputs, timing: Timing, contents: bool) -> Record:
    """The record of a run: values by the reference semantics, cycles by the event engine."""
    try:
        trace = run_timing(program, timing, simulate)
    except InputError as error:
        return Record(refused=refusal(error))
    effects = watch(program, inputs, completion_order(trace), "reference")
    rows = command_rows(trace, effects, contents)
    return Record(None, effects.stopped, rows, effects.outputs, cycles_of(trace), totals_of(trace))
