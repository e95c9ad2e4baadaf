"""Cycles of one program under many Timings, for sweeps over latencies, bandwidths and queue depths.

Decoding, byte ranges, labels and demands are computed once. Each Timing then needs the commands'
costs, a run of the engine and the accounts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import (
    CAUSES,
    explain,
    kind_cycles,
    layer_bank_waits,
    layer_cycles,
)
from dla_sim.engine.times import CommandTimes, compute_times
from dla_sim.engine.workload import UNIT_NAMES, Workload
from dla_sim.prepared import prepare, resize_prepared
from dla_sim.program_batch import ProgramBatch, is_engine_useful
from dla_sim.timing import Timing
from isa.instruction import KINDS
from isa.program import Program

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class ProgramCycles:
    """Cycles of a run under one Timing: total, by kind, EX cycles by kind, and by unit and cause.

    ``kinds`` and the causes of each of ``units`` sum to ``cycles``.
    """

    cycles: int
    kinds: Mapping[str, int]
    ex_cycles: Mapping[str, int]
    units: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, eq=False)
class CycleTable:
    """Cycles of runs under several Timings as int64 arrays, one row a Timing.

    Attributes:
        cycles: total of each run; -1 if the run is missing.
        kinds: (Timings, 2, kinds): all cycles by kind, and those of EX.
        units: (Timings, 3, causes): cycles by unit and cause.
    """

    cycles: Int64
    kinds: Int64
    units: Int64

    @classmethod
    def make_empty(cls, timings: int) -> CycleTable:
        """Return a table in which every run is missing."""
        return cls(
            np.full(timings, -1),
            np.zeros((timings, 2, len(KINDS)), dtype=np.int64),
            np.zeros((timings, len(UNIT_NAMES), len(CAUSES)), dtype=np.int64),
        )

    def take(self, numbers: Sequence[int]) -> CycleTable:
        """Return the table of some Timings."""
        return CycleTable(self.cycles[numbers], self.kinds[numbers], self.units[numbers])

    def put(self, number: int, run: ProgramCycles) -> None:
        """Set a row."""
        self.cycles[number] = run.cycles
        tables = (run.kinds, run.ex_cycles)
        self.kinds[number] = [[table[kind] for kind in KINDS] for table in tables]
        units = run.units.values()
        self.units[number] = [[unit.get(cause, 0) for cause in CAUSES] for unit in units]


class ProgramTiming:
    """A program whose cycles are computed for one Timing after another, on its own Arch.

    The figures that do not depend on Timing equal those of a :class:`dla_sim.device.Trace`:
    ``macs``, ``dram_read_bytes``, ``dram_write_bytes``, ``sram_peak_bytes``, ``sram_moved_bytes``,
    ``instructions``, ``register_writes``.

    Raises:
        InputError: a word is illegal, an address is outside the memories, or a kind is unknown.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._prepared = prepared = prepare(program)
        self.macs = int(prepared.labels.macs.sum())
        self.dram_read_bytes = int(prepared.labels.read.sum())
        self.dram_write_bytes = int(prepared.labels.write.sum())
        self.sram_peak_bytes = prepared.sram_peak_bytes
        self.sram_moved_bytes = (
            prepared.demands.ex_bytes + self.dram_read_bytes + self.dram_write_bytes
        )
        self.instructions = len(program.commands)
        self.register_writes = len(program.words) - self.instructions
        # shared with programs for other scratchpad sizes
        self._batch = ProgramBatch(prepared)
        self._last: tuple[Timing, ProgramCycles] | None = None

    def is_for(self, program: Program) -> bool:
        """Return True if ``program`` has the same cycles and figures under every Timing."""
        own = self._program
        names = ("arch", "tensors", "provenance", "dram_bytes", "command_address")
        places = [
            [(one.address, one.data.size) for one in each.segments] for each in (own, program)
        ]
        return (
            np.array_equal(own.words, program.words)
            and places[0] == places[1]
            and all(getattr(own, name) == getattr(program, name) for name in names)
        )

    def resize(self, program: Program) -> ProgramTiming | None:
        """Return the timing of ``program`` if only the machine's scratchpad differs, or None.

        The number and size of the banks may differ. The program must have the same words. Expensive
        results are shared. Raises InputError like the class.
        """
        sizes = {"sram_bytes": program.arch.sram_bytes, "sram_banks": program.arch.sram_banks}
        same = (
            program.words is self._program.words and program.provenance is self._program.provenance
        )
        if not same or self._program.arch.model_copy(update=sizes) != program.arch:
            return None
        found = copy(self)
        found._program = program
        found._prepared = resize_prepared(self._prepared, program)
        if found._prepared is not self._prepared:
            found._last = None
            found._batch = ProgramBatch(found._prepared)
        return found

    def run(self, timing: Timing) -> ProgramCycles:
        """Return the cycles of a run under ``timing``.

        They equal those of ``Device(program.arch, timing).run``. Raises DeadlockError and
        HazardError (both InputErrors) if the program's tokens are wrong.
        """
        if self._last is None or self._last[0] != timing:
            prepared = self._prepared
            workload, times = self._times(timing)
            kinds, ex_cycles = kind_cycles(prepared.labels, prepared.demands, times)
            self._last = (
                timing,
                ProgramCycles(times.total, kinds, ex_cycles, explain(workload, times).units),
            )
        return self._last[1]

    def run_together(self, timings: Sequence[Timing]) -> CycleTable:
        """Return the cycles of a run under each Timing as far as one compiled call computes them.

        The other Timings, and all without the extra ``fast`` or if they are few, need :meth:`run`.
        """
        found = CycleTable.make_empty(len(timings))
        if not is_engine_useful(len(timings)) or self._prepared.footprints.self_collision:
            return found
        groups: dict[int, list[int]] = {}
        word_bytes = self._prepared.demands.word_bytes
        for number, timing in enumerate(timings):
            if not timing.has_rows_or_refresh and timing.can_move_words(word_bytes):
                groups.setdefault(timing.word_cycles(word_bytes), []).append(number)
        for word_cycles, numbers in groups.items():
            some = [timings[number] for number in numbers]
            columns = self._batch.run(word_cycles, some)
            found.cycles[numbers], found.kinds[numbers], found.units[numbers] = columns
        return found

    def layers(self, timing: Timing) -> dict[str, int]:
        """Return the cycles of a run under ``timing`` by layer; they sum to the run's total.

        Raise as :meth:`run`.
        """
        _, times = self._times(timing)
        return layer_cycles(self._prepared.labels, self._prepared.demands, times)

    def bank_waits(self, timing: Timing) -> dict[str, int]:
        """Return the cycles by layer in which EX waits for banks and ports of the scratchpad.

        Raises as :meth:`run` does.
        """
        workload, times = self._times(timing)
        return layer_bank_waits(self._prepared.labels, explain(workload, times))

    def _times(self, timing: Timing) -> tuple[Workload, CommandTimes]:
        workload = Workload(self._prepared.demands, timing)
        times = compute_times(workload)
        self._prepared.footprints.check(times)
        return workload, times
