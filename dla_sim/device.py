"""Device: executes programs on data and counts their cycles. Time comes first; data follows the order it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.breakdown import roles
from dla_sim.engine.causes import explain
from dla_sim.engine.recurrence import compute_times
from dla_sim.engine.times import CommandTimes, completion_order
from dla_sim.engine.workload import Workload
from dla_sim.kernels.compiled import load_compiled
from dla_sim.kernels.dispatch import Kernel, Kernels, carry_out
from dla_sim.memory import SystemMemory, check_inputs, scratchpad
from dla_sim.prepared import Prepared, prepare
from dla_sim.timing import Timing
from dla_sim.trace import Trace
from isa.arch import Arch, flat
from isa.errors import InputError
from isa.instruction import Machine
from isa.program import Execution, Program
from isa.progress import Progress, followed, silent

Engine = Callable[[Workload], CommandTimes]
"""Finds when the commands of a workload start and end; there are two, equal to the cycle:
``dla_sim.engine.recurrence.compute_times``, the default, and ``dla_sim.engine.simulation.simulate`` on SimPy."""


@dataclass(frozen=True, eq=False)
class LoadedProgram:
    """A program on a device. It holds no results: every run simulates time and data anew.

    ``effects[i]`` executes command i on the memories: its kernel, or its semantics.
    """

    prepared: Prepared
    workload: Workload
    roles: NDArray[np.int64]
    effects: tuple[Kernel, ...]
    memory: SystemMemory


class Device:
    """A machine with an :class:`Arch` and a :class:`Timing`; an ``isa.program.Executor``. Not for several threads.

    ``engine`` finds the times. The scratchpad's bytes are ``sram_reset`` at the start of every run (0; tests choose
    others to find programs that read what they never wrote). With ``compiled`` some kernels are those that numba
    compiles: the same bits in less time, worth half a second of loading from about a hundred inferences on; InputError
    without the extra ``fast``.
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
        self._engine = engine
        self._kernels = Kernels(self.arch, load_compiled() if compiled else None)
        self._sram_reset = sram_reset
        self._progress = progress
        self._loaded: WeakKeyDictionary[Program, LoadedProgram] = WeakKeyDictionary()

    def load(self, program: Program) -> LoadedProgram:
        """Prepare ``program`` for running, once; :meth:`run` does it when needed.

        Raises InputError when the program is for another Arch, its words are not legal, or a command leaves the
        memories.
        """
        if program not in self._loaded:
            check_arch(program, self.arch)
            self._loaded[program] = self._load(program)
        return self._loaded[program]

    def run(
        self, program: Program, inputs: Mapping[str, NDArray[Any]], *, timing_only: bool = False
    ) -> Execution[Trace]:
        """Run ``program`` from a drained machine: output tensors by name (copies) and the trace.

        ``inputs`` maps every input tensor's name to an array of its exact dtype and shape. With ``timing_only`` inputs
        are not looked at, no data is touched and there are no outputs; the trace is the same. Raises InputError as
        :meth:`load` does and for inputs that do not fit, DeadlockError and HazardError (both InputErrors) for a program
        whose tokens are wrong, InputError or OverflowError for a command that cannot be executed.
        """
        loaded = self.load(program)
        if not timing_only:
            check_inputs(program.inputs, inputs)
        times = self._engine(loaded.workload)
        causes = explain(loaded.workload, times)
        loaded.prepared.footprints.check(times)
        outputs = {} if timing_only else self._execute(loaded, program, inputs, times)
        return Execution(outputs, Trace(loaded.prepared, loaded.workload, loaded.roles, times, causes))

    def _load(self, program: Program) -> LoadedProgram:
        prepared = prepare(program)
        commands, operands = prepared.commands, prepared.operands
        return LoadedProgram(
            prepared,
            Workload(prepared.demands, self.timing),
            roles(program, commands, operands),
            tuple(self._kernels.kernel_for(command.instruction.mnemonic) for command in commands),
            SystemMemory(program, operands),
        )

    def _execute(
        self, loaded: LoadedProgram, program: Program, inputs: Mapping[str, NDArray[Any]], times: CommandTimes
    ) -> dict[str, NDArray[Any]]:
        """Carry out the effects in order of completion.

        That is the same as reading at the start and writing at completion, for the check of hazards has passed: nobody
        writes what a command accesses while it executes. Ties are broken by unit; by the same check they cannot matter.
        """
        memory = loaded.memory
        memory.reset()
        for tensor in program.inputs:
            memory.put(tensor, inputs[tensor.name])
        prepared, effects = loaded.prepared, loaded.effects
        sram = scratchpad(self.arch, prepared.sram_peak_bytes, self._sram_reset)
        machine, commands = Machine(self.arch, sram, memory.data), prepared.commands
        order = completion_order(loaded.workload, times)
        for number in followed(order, f"simulating {program.name}", self._progress):
            carry_out(effects[number], commands[number], machine)
        return {tensor.name: memory.take(tensor) for tensor in program.outputs}


def check_arch(program: Program, arch: Arch) -> None:
    """Raises InputError, with both hashes and the first key that differs, when ``program`` is for another Arch."""
    if program.arch == arch:
        return
    wanted, present = flat(program.arch.model_dump()), flat(arch.model_dump())
    key = next(key for key in wanted if wanted[key] != present[key])
    raise InputError(
        f"program '{program.name}' is for another machine: its Arch {program.arch.digest()} has {key} = {wanted[key]}, "
        f"the device's {arch.digest()} has {present[key]}; compile the program for this device"
    )
