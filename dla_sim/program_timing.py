"""Cycles of one program under many Timings, for sweeps over latencies, bandwidths and queue depths.

Decoding, byte ranges, labels and demands are computed once. Each Timing then needs the commands'
costs, a run of the engine and the accounts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from dla_sim.engine.accounts import (
    CAUSES,
    causes_of,
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


@dataclass(frozen=True)
class ProgramCycles:
    """Cycles of a run under one Timing: total, by kind, EX cycles by kind, and by unit and cause.

    ``kinds`` and the causes of each of ``units`` sum to ``cycles``.
    """

    cycles: int
    kinds: Mapping[str, int]
    ex_cycles: Mapping[str, int]
    units: Mapping[str, Mapping[str, int]]


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

    def run_together(self, timings: Sequence[Timing]) -> list[ProgramCycles | None]:
        """Return the cycles of a run under each Timing as far as one compiled call computes them.

        The other Timings, and all without the extra ``fast`` or if they are few, give None and need
        :meth:`run`.
        """
        found: list[ProgramCycles | None] = [None] * len(timings)
        if not is_engine_useful(len(timings)) or self._prepared.footprints.self_collision:
            return found
        groups: dict[int, list[int]] = {}
        word_bytes = self._prepared.demands.word_bytes
        for number, timing in enumerate(timings):
            if not timing.has_rows_or_refresh and timing.can_move_words(word_bytes):
                groups.setdefault(timing.word_cycles(word_bytes), []).append(number)
        for word_cycles, numbers in groups.items():
            some = [timings[number] for number in numbers]
            totals, kinds, causes = self._batch.run(word_cycles, some)
            rows = zip(numbers, some, totals.tolist(), kinds.tolist(), causes.tolist(), strict=True)
            for number, timing, total, by_kind, by_unit in rows:
                if total >= 0:
                    found[number] = _name_cycles(timing, total, by_kind, by_unit)
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


def _name_cycles(
    timing: Timing, total: int, kinds: Sequence[Sequence[int]], units: Sequence[Sequence[int]]
) -> ProgramCycles:
    causes = causes_of(timing)
    by_cause = [dict(zip(CAUSES, unit, strict=True)) for unit in units]
    return ProgramCycles(
        total,
        dict(zip(KINDS, kinds[0], strict=True)),
        dict(zip(KINDS, kinds[1], strict=True)),
        {
            name: {cause: unit[cause] for cause in causes}
            for name, unit in zip(UNIT_NAMES, by_cause, strict=True)
        },
    )
