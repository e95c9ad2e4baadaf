"""Execution of a program with every command observed: reads, writes, cycles and exceptions.

Everything runs twice and independently: values by the reference semantics and by the device's
kernels, cycles by the event engine and by the engine without events. All four are observed, so that
a change of any one of them shows.
"""

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
from experiments.debug.commit_log import checksums
from experiments.golden.case import CommandRecord, GoldenCycles, GoldenRecord
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
    """Observed reads and writes of a run's commands, indexed by command.

    They are checksums of reads and writes, and the bytes written. Entries are None for commands
    that did not execute.
    """

    reads: tuple[str | None, ...]
    writes: tuple[str | None, ...]
    contents: tuple[bytes | None, ...]
    outputs: Mapping[str, bytes]
    stopped: str | None


def tensors(program: Program, inputs: Inputs) -> dict[str, NDArray[np.generic]]:
    """Convert the recorded bytes of a program's inputs to tensors by name.

    Raise InputError if the number of bytes is wrong.
    """
    arrays = {}
    for tensor in program.inputs:
        raw = np.frombuffer(inputs.get(tensor.name, b""), np.uint8)
        if raw.size != tensor.nbytes:
            raise InputError(
                f"input '{tensor.name}' has {raw.size} bytes, its tensor {tensor.nbytes}"
            )
        arrays[tensor.name] = raw.view(tensor.dtype).reshape(tensor.shape)
    return arrays


def run_timing(program: Program, timing: Timing, engine: Engine) -> Trace:
    """Simulate the timing of a program with ``engine`` and return the trace.

    Raise InputError if the machine rejects the program.
    """
    return Device(program.arch, timing, engine=engine).run(program, {}, timing_only=True).trace


def watch(program: Program, inputs: Inputs, order: Sequence[int], way: Way) -> Effects:
    """Execute the commands of ``program`` in the completion ``order`` and observe each."""
    watcher = Watcher(program, inputs, way)
    for number in order:
        if not watcher.step(number):
            break
    return watcher.effects()


class Watcher:
    """Machine that executes one command at a time and records its effects."""

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
        sram = scratchpad(program.arch, highest_byte(self.operands, "sram"))
        self.machine = Machine(program.arch, sram, memory.data)
        self._execute: Callable[[Command, Machine], None] = (
            (lambda command, machine: command.instruction.semantics(command, machine))
            if way == "reference"
            else Kernels(program.arch).run
        )
        self._reads: list[str | None] = [None] * len(self.commands)
        self._writes: list[str | None] = [None] * len(self.commands)
        self._contents: list[bytes | None] = [None] * len(self.commands)
        self._stopped: str | None = None

    def step(self, number: int) -> bool:
        """Execute the command ``number``; return False if any exception stopped the machine."""
        command = self.commands[number]
        operands = self.operands[number]
        self._reads[number] = checksums(operands.reads, self.machine)
        try:
            self._execute(command, self.machine)
        # any exception of an instruction is an observation and stops the machine
        except Exception as error:
            self._stopped = f"{type(error).__name__} at word {command.index}"
            return False
        self._writes[number] = checksums(operands.writes, self.machine)
        self._contents[number] = read_touched(operands.writes, self.machine)
        return True

    def effects(self) -> Effects:
        """Return the memory effects so far; outputs only if nothing stopped the machine."""
        outputs = (
            {}
            if self._stopped
            else {t.name: self._memory.take(t).tobytes() for t in self.program.outputs}
        )
        return Effects(
            tuple(self._reads), tuple(self._writes), tuple(self._contents), outputs, self._stopped
        )


def read_touched(accesses: Iterable[Access], machine: Machine) -> bytes:
    """Return the current bytes of the memory accesses ``accesses``, concatenated.

    A row that repeats is included as often as it repeats.
    """
    return b"".join(machine.read(access).tobytes() for access in accesses)


def completion_order(trace: Trace) -> list[int]:
    """Return the indices of a trace's commands in the order of completion.

    Ties are broken by unit, as in the device.
    """
    return list(times.completion_order(trace.workload, trace.times))


def cycles_of(trace: Trace) -> GoldenCycles:
    """Return the cycles of a run, by cause and by kind."""
    return GoldenCycles(
        trace.cycles,
        {name: present(causes) for name, causes in trace.units.items()},
        present(trace.kinds),
    )


def present(table: Mapping[str, int]) -> dict[str, int]:
    """Return the entries of a table whose value is not 0."""
    return {name: value for name, value in table.items() if value}


def totals_of(trace: Trace) -> dict[str, int]:
    """Return totals of a run: multiply-accumulates, memory traffic, instructions."""
    return {
        "macs": trace.macs,
        "dram_read_bytes": trace.dram_read_bytes,
        "dram_write_bytes": trace.dram_write_bytes,
        "command_words": trace.command_words,
        "instructions": trace.instructions,
        "sram_peak_bytes": trace.sram_peak_bytes,
    }


def command_rows(trace: Trace, effects: Effects, contents: bool) -> tuple[CommandRecord, ...]:
    """Return one record per executed command, in stream order."""
    starts = trace.times.start.tolist()
    ends = trace.times.end.tolist()
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
    """Return the type and the word indices of an error, to record why a program was rejected.

    It contains the type of the error and the words that the error names. The message is left out
    because it may be reworded at any time.
    """
    words = ", ".join(map(str, error.words)) if isinstance(error, InputError) else ""
    return f"{type(error).__name__} at {words}" if words else type(error).__name__


def complaint(error: Exception) -> str:
    """Return an exception as one line for a report."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def observe(program: Program, inputs: Inputs, timing: Timing, contents: bool) -> GoldenRecord:
    """Run a program and return its golden record.

    Values follow the reference semantics, cycles the event engine.
    """
    try:
        trace = run_timing(program, timing, simulate)
    except InputError as error:
        return GoldenRecord(refused=refusal(error))
    effects = watch(program, inputs, completion_order(trace), "reference")
    rows = command_rows(trace, effects, contents)
    return GoldenRecord(
        None, effects.stopped, rows, effects.outputs, cycles_of(trace), totals_of(trace)
    )
