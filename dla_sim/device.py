"""Device: executes programs on data and counts their cycles. Time comes first; data follows the order it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from dla_sim.effects import carry_out, completion_order
from dla_sim.engine.causes import explain
from dla_sim.engine.recurrence import compute_schedule
from dla_sim.engine.schedule import Schedule
from dla_sim.engine.simulation import simulate
from dla_sim.engine.workload import Workload
from dla_sim.kernels import Kernels
from dla_sim.loading import LoadedProgram, load
from dla_sim.memory import check_inputs, scratchpad
from dla_sim.timing import Timing
from dla_sim.trace import Trace
from isa.arch import Arch
from isa.errors import InputError
from isa.executor import Execution
from isa.instruction import Machine
from isa.program import Program

Engine = Callable[[Workload], Schedule]
"""Finds the schedule of a workload; there are two, equal to the cycle: ``dla_sim.engine.simulation.simulate`` on SimPy
and ``dla_sim.engine.recurrence.compute_schedule``, which is faster."""


class Device:
    """A machine with an :class:`Arch` and a :class:`Timing`; an ``isa.executor.Executor``. Not for several threads.

    ``engine`` finds the schedule; by default it is the event engine for runs on data and the recurrence for timing-only
    runs. The scratchpad's bytes are ``sram_reset`` at the start of every run (0; tests choose others to find programs
    that read what they never wrote).
    """

    def __init__(
        self,
        arch: Arch | None = None,
        timing: Timing | None = None,
        *,
        engine: Engine | None = None,
        sram_reset: int = 0,
    ) -> None:
        self.arch = arch or Arch()
        self.timing = timing or Timing()
        self._engine = engine
        self._kernels = Kernels(self.arch)
        self._sram_reset = sram_reset
        self._loaded: WeakKeyDictionary[Program, LoadedProgram] = WeakKeyDictionary()

    def load(self, program: Program) -> LoadedProgram:
        """Prepare ``program`` for running, once; :meth:`run` does it when needed.

        Raises InputError when the program is for another Arch, its words are not legal, or a command leaves the
        memories.
        """
        if program not in self._loaded:
            check_arch(program, self.arch)
            self._loaded[program] = load(program, self.timing, self._kernels)
        return self._loaded[program]

    def run(
        self, program: Program, inputs: Mapping[str, NDArray[Any]], *, timing_only: bool = False
    ) -> Execution[Trace]:
        """Run ``program`` from a drained machine: output tensors by name (copies) and the trace.

        ``inputs`` maps every input tensor's name to an array of its exact dtype and shape. With ``timing_only`` inputs
        are not looked at, no data is touched and there are no outputs; the trace is the same. Raises InputError as
        :meth:`load` does and for inputs that do not fit, DeadlockError and HazardError (both InputErrors) for a program
        whose tokens are wrong; those of :func:`dla_sim.effects.carry_out` for a command that cannot be executed.
        """
        loaded = self.load(program)
        if not timing_only:
            check_inputs(program.inputs, inputs)
        engine = self._engine or (compute_schedule if timing_only else simulate)
        schedule = engine(loaded.workload)
        causes = explain(loaded.workload, schedule)
        loaded.footprints.check(schedule)
        outputs = {} if timing_only else self._execute(loaded, program, inputs, schedule)
        trace = Trace(
            loaded.commands,
            loaded.sources,
            loaded.workload,
            loaded.labels,
            loaded.roles,
            schedule,
            causes,
            loaded.sram_peak_bytes,
        )
        return Execution(outputs, trace)

    def _execute(
        self, loaded: LoadedProgram, program: Program, inputs: Mapping[str, NDArray[Any]], schedule: Schedule
    ) -> dict[str, NDArray[Any]]:
        """Carry out the effects in order of completion.

        That is the same as reading at the start and writing at completion, for the check of hazards has passed: nobody
        writes what a command accesses while it executes. Ties are broken by unit; by the same check they cannot matter.
        """
        memory = loaded.memory
        memory.reset()
        for tensor in program.inputs:
            memory.put(tensor, inputs[tensor.name])
        machine = Machine(self.arch, scratchpad(self.arch, loaded.sram_peak_bytes, self._sram_reset), memory.data)
        commands, effects = loaded.commands, loaded.effects
        for number in completion_order(loaded.workload, schedule):
            carry_out(effects[number], commands[number], machine)
        return {tensor.name: memory.take(tensor) for tensor in program.outputs}


def check_arch(program: Program, arch: Arch) -> None:
    """Raises InputError, with both hashes and the first key that differs, when ``program`` is for another Arch."""
    if program.arch == arch:
        return
    wanted, present = _flat(program.arch), _flat(arch)
    key = next(key for key in wanted if wanted[key] != present[key])
    raise InputError(
        f"program '{program.name}' is for another machine: its Arch {program.arch.digest()} has {key} = {wanted[key]}, "
        f"the device's {arch.digest()} has {present[key]}; compile the program for this device"
    )


def _flat(arch: Arch) -> dict[str, Any]:
    values = arch.model_dump()
    pe = values.pop("pe")
    return {**values, **{f"pe.{name}": value for name, value in pe.items()}}
