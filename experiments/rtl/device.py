"""The hardware as a device that runs the regions of a network, each held to the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from dla_sim.presets import Preset
from dla_sim.rtl.simulator.case import Case, expect
from dla_sim.rtl.simulator.executable import Executable
from dla_sim.rtl.simulator.running import difference_text, run_cases
from dla_sim.trace import Trace
from experiments.report.schema import HardwareCheck
from experiments.rtl.hardware import own_executable
from isa.program import Execution, Program
from isa.progress import Progress, silent


class HardwareDevice:
    """An ``isa.program.Executor``: outputs are the hardware's, traces the simulator's, to which every run is compared.

    The hardware is built, or taken from the cache, when the first program runs.
    """

    def __init__(self, hardware: Preset, progress: Progress = silent) -> None:
        self._hardware, self._progress = hardware, progress
        self._programs = self._commands = self._cycles = self._written = self._differences = 0
        self._first: str | None = None

    @cached_property
    def _executable(self) -> Executable:
        self._progress(f"building the hardware of {self._hardware.name}")
        return own_executable(self._hardware.arch, self._hardware.timing)

    def run(self, program: Program, inputs: Mapping[str, NDArray[Any]]) -> Execution[Trace]:
        """One program from reset. Raises InputError as the simulator's device does, and where nothing can be built."""
        timing = self._hardware.timing
        case = Case(program.name, program, inputs, timing, expected := expect(program, inputs, timing))
        executable = self._executable
        self._progress(f"running {program.name} on the hardware")
        (outcome,) = run_cases(executable, [(case, {})])
        self._programs += 1
        self._commands += outcome.commands
        self._cycles += outcome.cycles
        self._written += sum(write.content.size for writes in expected.writes for write in writes)
        self._differences += outcome.count
        if self._first is None and outcome.first is not None:
            self._first = f"{program.name}: {difference_text(case, outcome.first)}"
        return Execution(outcome.outputs, expected.trace)

    @property
    def check(self) -> HardwareCheck:
        """The comparison of all runs so far."""
        return HardwareCheck(
            programs=self._programs,
            commands=self._commands,
            cycles=self._cycles,
            written_bytes=self._written,
            differences=self._differences,
            first=self._first,
        )
