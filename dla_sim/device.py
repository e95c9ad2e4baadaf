"""The device: executes programs on data and counts their cycles.

It first computes all times, once per program because they do not depend on data, and then executes
the commands in that order. The result of a run is a :class:`Trace`: when every command ran, and the
cause of every cycle.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import Accounts, Causes, Labels, LayerAccount, account, explain
from dla_sim.engine.breakdown import break_down
from dla_sim.engine.times import CommandTimes, completion_order, compute_times
from dla_sim.engine.workload import Workload
from dla_sim.kernels.compiled import load_compiled
from dla_sim.kernels.dispatch import Kernels, Step, carry_out
from dla_sim.prepared import (
    PreparedProgram,
    SystemMemory,
    check_inputs,
    prepare,
    scratchpad,
    split_batch,
)
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Command, Machine
from isa.program import Execution, Program, Provenance
from isa.progress import Progress, report_each, silent


@dataclass(frozen=True, eq=False)
class Trace:
    """Record of one run of a program on the simulated device.

    ``times`` holds the arrival, start and end of each command, ``causes.commands`` its cycles by
    cause.
    """

    prepared: PreparedProgram
    workload: Workload
    times: CommandTimes
    causes: Causes

    @property
    def commands(self) -> tuple[Command, ...]:
        """Commands of the program in stream order, without ``OP_END``."""
        return self.prepared.commands

    @property
    def sources(self) -> tuple[Provenance | None, ...]:
        """Provenance of each command, or None."""
        return self.prepared.sources

    @property
    def labels(self) -> Labels:
        """Kind, layer, work and traffic of each command."""
        return self.prepared.labels

    @property
    def sram_peak_bytes(self) -> int:
        """One past the highest scratchpad byte that any command touches."""
        return self.prepared.sram_peak_bytes

    @property
    def cycles(self) -> int:
        return self.times.total

    @property
    def units(self) -> Mapping[str, Mapping[str, int]]:
        """Cycles by cause for the units LD, EX and ST; each unit's cycles sum to ``cycles``."""
        return self.causes.units

    @cached_property
    def accounts(self) -> Accounts:
        """Cycles by kind and by layer."""
        return account(self.labels, self.causes, self.times)

    @property
    def kinds(self) -> Mapping[str, int]:
        """Cycles of the run by kind, summing to ``cycles``."""
        return self.accounts.kinds

    @property
    def ex_cycles(self) -> Mapping[str, int]:
        """Cycles in which EX executes, by kind."""
        return self.accounts.ex_cycles

    @property
    def layers(self) -> tuple[LayerAccount, ...]:
        """Account of each layer, in order of first appearance; the cycles sum to ``cycles``."""
        return self.accounts.layers

    @cached_property
    def breakdown(self) -> tuple[Mapping[str, int], ...]:
        """Cycles by part of the breakdown (``dla_sim.engine.breakdown.PARTS``) for each layer.

        The parts of a layer sum to its ``cycles``; otherwise AssertionError is raised.
        """
        parts = break_down(self.workload, self.labels, self.times, self.causes)
        if [sum(part.values()) for part in parts] != [layer.cycles for layer in self.layers]:
            raise AssertionError("the parts of a layer's cycles do not add up to its cycles")
        return parts

    @property
    def command_words(self) -> int:
        """Words of the command stream, including SETs and ``OP_END``."""
        return self.workload.word_count

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all commands, including padded taps."""
        return int(self.labels.macs.sum())

    @property
    def dram_read_bytes(self) -> int:
        """Bytes that LD read from system memory, repeated rows included.

        Command fetch is not counted.
        """
        return int(self.labels.read.sum())

    @property
    def flash_read_bytes(self) -> int:
        """Bytes that LD read from the flash, part of ``dram_read_bytes``; 0 without a flash."""
        return int((self.labels.read * self.workload.columns["flash"]).sum())

    @property
    def dram_write_bytes(self) -> int:
        """Bytes that ST wrote to system memory."""
        return int(self.labels.write.sum())

    @property
    def sram_moved_bytes(self) -> int:
        """Scratchpad bytes that EX, LD and ST read and wrote.

        EX counts each operand and result once.
        """
        return self.workload.demands.ex_bytes + self.dram_read_bytes + self.dram_write_bytes

    @property
    def register_writes(self) -> int:
        """Configuration registers written, which are the SETs of the command stream."""
        return self.command_words - self.instructions

    @property
    def fetch_bytes(self) -> int:
        """Bytes of command words that the command fetch read."""
        return 8 * self.command_words

    @property
    def instructions(self) -> int:
        """Operations executed, including ``OP_END``; ``command_words`` also counts the SETs."""
        return len(self.commands) + 1


Engine = Callable[[Workload], CommandTimes]
"""Function that computes when the commands of a workload start and end.

There are two with identical results: ``dla_sim.engine.times.compute_times``, the default, and
``dla_sim.engine.simulation.simulate`` on SimPy.
"""


@dataclass(frozen=True, eq=False)
class LoadedProgram:
    """A program prepared for a device.

    It holds what does not depend on data, the trace included. Every run computes data again.

    ``kernels`` execute the commands on the memories.
    """

    prepared: PreparedProgram
    workload: Workload
    kernels: Kernels
    memory: SystemMemory
    engine: Engine

    @cached_property
    def trace(self) -> Trace:
        """Trace of every run.

        Raises:
            DeadlockError: the program waits for a token that is never pushed (an InputError).
            HazardError: two executing commands collide because a token is missing (an InputError).
        """
        times = self.engine(self.workload)
        causes = explain(self.workload, times)
        self.prepared.footprints.check(times)
        return Trace(self.prepared, self.workload, times, causes)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Commands in order of completion.

        Executing them one by one in this order equals reading at the start and writing at the end,
        because the check of hazards has passed: no other command writes an operand of an executing
        command. The same check makes the order within a cycle, which is by unit, irrelevant.
        """
        return tuple(completion_order(self.workload, self.trace.times))

    @cached_property
    def machine(self) -> Machine:
        """Memories of all runs, so that kernels can keep views of them."""
        arch = self.kernels.arch
        return Machine(arch, scratchpad(arch, self.prepared.sram_peak_bytes), self.memory.data)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Functions that together apply the effects of all commands in order of completion."""
        commands = [self.prepared.commands[number] for number in self.order]
        if self.kernels.compiled is None:
            return tuple(partial(carry_out, self.kernels.run, command) for command in commands)
        from dla_sim.kernels.steps import prepare_steps

        written = self.memory.written
        return prepare_steps(
            commands, self.kernels, self.prepared.sram_peak_bytes, self.memory.data, written
        )


class Device:
    """A machine with an :class:`Arch` and a :class:`Timing`; an ``isa.program.Executor``.

    Not thread-safe.

    Args:
        arch: the machine as programs see it; by default ``Arch()``.
        timing: constants that affect cycles only; by default ``Timing()``.
        engine: function that computes the times.
        sram_reset: value of every scratchpad byte at the start of a run. Tests use values other
            than 0 to find programs that read bytes they never wrote.
        compiled: use kernels compiled by numba. They return the same bits faster and need half a
            second to load, which pays off from about 10,000 commands on.
        progress: callback with a line of text per step.

    Raises:
        InputError: ``arch`` or ``timing`` is of another type, or ``compiled`` is set and the extra
            ``fast`` is not installed.
    """

    def __init__(
        self,
        arch: Arch | None = None,
        timing: Timing | None = None,
        *,
        engine: Engine = compute_times,
        sram_reset: int = 0,
        compiled: bool = False,
        progress: Progress = silent,
    ) -> None:
        self.arch = arch or Arch()
        self.timing = timing or Timing()
        for name, given, kind in (("arch", self.arch, Arch), ("timing", self.timing, Timing)):
            if not isinstance(given, kind):
                remedy = f"give the {name} of a machine, such as load_hardware().{name}"
                raise InputError(
                    f"Device: {name} is {given!r:.80}, which is no {kind.__name__}; {remedy}"
                )
        self.timing.word_cycles(self.arch.memory.word)
        self._engine = engine
        self._kernels = Kernels(self.arch, load_compiled() if compiled else None)
        self._sram_reset = sram_reset
        self._progress = progress
        self._loaded: WeakKeyDictionary[Program, LoadedProgram] = WeakKeyDictionary()

    def load(self, program: Program) -> LoadedProgram:
        """Prepare ``program`` once; :meth:`run` calls this when needed.

        Raises:
            InputError: the program is for another Arch, a word is illegal, or a command leaves the
                memories.
        """
        if program not in self._loaded:
            check_arch(program, self.arch)
            self._loaded[program] = self._load(program)
        return self._loaded[program]

    def run(
        self, program: Program, inputs: Mapping[str, NDArray[Any]], *, timing_only: bool = False
    ) -> Execution[Trace]:
        """Run ``program`` on an idle machine.

        Return copies of its output tensors by name, and the trace.

        Args:
            program: the program.
            inputs: an array of the exact dtype and shape for every input tensor, by name. If all
                arrays have one more axis, the first, they are a batch of inferences. The outputs
                then have this axis too; the trace is that of each inference.
            timing_only: ignore inputs and compute no data; there are no outputs, and the trace is
                the same.

        Raises:
            InputError: as for :meth:`load`; or inputs do not fit, or a command cannot be executed.
            DeadlockError: the program waits for a token that is never pushed (an InputError).
            HazardError: two executing commands collide because a token is missing (an InputError).
            OverflowError: a result does not fit its type.
        """
        loaded = self.load(program)
        if timing_only:
            return Execution({}, loaded.trace)
        batch = split_batch(program.inputs, inputs)
        for feeds in batch or (inputs,):
            check_inputs(program.inputs, feeds)
        trace = loaded.trace
        if not batch:
            return Execution(self._execute(loaded, program, inputs), trace)
        found = [self._execute(loaded, program, feeds) for feeds in batch]
        return Execution({name: np.stack([one[name] for one in found]) for name in found[0]}, trace)

    def _load(self, program: Program) -> LoadedProgram:
        prepared = prepare(program)
        operands = prepared.operands
        return LoadedProgram(
            prepared,
            Workload(prepared.demands, self.timing),
            self._kernels.copy_for_program(),
            SystemMemory(program, operands),
            self._engine,
        )

    def _execute(
        self, loaded: LoadedProgram, program: Program, inputs: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Apply the effects of commands in order of completion; return the output tensors."""
        memory = loaded.memory
        memory.reset()
        for tensor in program.inputs:
            memory.put(tensor, inputs[tensor.name])
        machine = loaded.machine
        machine.sram.fill(self._sram_reset)
        for step in report_each(loaded.steps, f"simulating {program.name}", self._progress):
            step(machine)
        return {tensor.name: memory.take(tensor) for tensor in program.outputs}


def check_arch(program: Program, arch: Arch) -> None:
    """Raise InputError if ``program`` was compiled for another Arch.

    The message has both hashes and the first key that differs.
    """
    if program.arch.same_machine(arch):
        return
    key, (wanted, present) = next(iter(program.arch.differences(arch).items()))
    raise InputError(
        f"program '{program.name}' is for another machine: its Arch {program.arch.digest()} has "
        f"{key} = {wanted}, "
        f"the device's {arch.digest()} has {present}; compile the program for this device"
    )
