"""Many Timings of one program in one call of a compiled engine.

The result equals :class:`dla_sim.program_timing.ProgramTiming` for each Timing. Timings that the
compiled engine does not cover have no result: memories with rows or refresh, programs that stop or
collide, and machines that cannot exist.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from dla_sim.engine.accounts import DMA, ISSUE, count_fixed_causes
from dla_sim.engine.bus import NEVER
from dla_sim.engine.recurrence import FIXED_CAUSES, SETTINGS, TOUCHED, WORD, compile_recurrence
from dla_sim.engine.recurrence_arrays import (
    WINDOW,
    BatchResult,
    ProgramArrays,
    make_result,
    make_state,
)
from dla_sim.engine.workload import (
    Int64,
    chunk_slots,
    command_columns,
    list_bank_loads,
    serve_transfers,
)
from dla_sim.memory import TimingColumns
from dla_sim.prepared import PreparedProgram
from dla_sim.timing import MemoryTiming, Timing
from isa.errors import MissingExtraError

LEAST_TIMINGS = 256
"""Fewest Timings for which loading numba pays, unless it is loaded already."""
_BLOCK = 1 << 17
"""Most commands times Timings of one call, so that the arrays stay in the processor's cache."""


def is_engine_useful(timings: int) -> bool:
    """Return True if numba is loaded, or if loading it saves time for this number of Timings."""
    if timings < LEAST_TIMINGS and not compile_recurrence.cache_info().currsize:
        return False
    try:
        compile_recurrence()
    except MissingExtraError:
        return False
    return True


class ProgramBatch:
    """A prepared program as arrays for the compiled engine."""

    def __init__(self, prepared: PreparedProgram) -> None:
        self._prepared = prepared
        self._arrays: dict[int, ProgramArrays] = {}
        self._served: dict[object, Int64] = {}
        self._chunks: dict[tuple[MemoryTiming, int], list[int]] = {}
        self._met = np.zeros((len(prepared.commands), 2 * WINDOW), dtype=np.uint8)
        self._colliding: dict[tuple[int, int], None] = {}

    def run(self, word_cycles: int, timings: Sequence[Timing]) -> tuple[Int64, Int64, Int64]:
        """Return the total, the cycles by kind and the causes by unit under each Timing.

        The third array is (timings, units, causes), the second (timings, 2, kinds): all cycles and
        those of EX. The total is -1 for a Timing that must run by itself. All Timings move a memory
        word in ``word_cycles``.
        """
        step = max(1, _BLOCK // max(1, len(self._prepared.commands)))
        blocks = [
            self._run_block(word_cycles, timings[start : start + step])
            for start in range(0, len(timings), step)
        ]
        totals, computing, causes = (
            np.concatenate([getattr(block, name) for block in blocks])
            for name in ("totals", "kinds", "causes")
        )
        kinds = np.stack([computing, computing], axis=1)
        kinds[:, 0, DMA] += totals[:, 1] - computing.sum(axis=1)
        kinds[:, 0, ISSUE] += totals[:, 0] - totals[:, 1]
        return np.where(kinds.min(axis=(1, 2)) < 0, -1, totals[:, 0]), kinds, causes

    def _run_block(self, word_cycles: int, timings: Sequence[Timing]) -> BatchResult:
        demands = self._prepared.demands
        fields = TimingColumns(timings)
        places = dict[tuple[MemoryTiming, MemoryTiming | None], int]()
        pairs = ((timing.main, timing.flash) for timing in timings)
        which = [places.setdefault(pair, len(places)) for pair in pairs]
        served = np.stack([self._serve(*memory) for memory in places], axis=1)[:, which]
        columns = command_columns(demands, fields, served, word_cycles)
        causes = count_fixed_causes(columns)
        parts = [*(columns[name] for name in ("lead", "slots", "tail")),
                 *(causes[cause] for cause in FIXED_CAUSES)]  # fmt: skip
        constants = [flash or main for main, flash in places]
        fetches = list(zip(which, fields.fetch_bytes[:, 0].tolist(), strict=True))
        slots = {
            (place, nbytes): self._chunk_slots(constants[place], nbytes)
            for place, nbytes in dict.fromkeys(fetches)
        }
        lengths = list(map(len, slots.values()))
        starts = dict(zip(slots, accumulate(lengths, initial=0), strict=False))
        rows = (
            *(getattr(fields, name)[:, 0] for name in SETTINGS),
            fields.fetch_bytes[:, 0] // 8,
            [constants[place].latency for place in which],
            [starts[key] for key in fetches],
            [len(slots[key]) for key in fetches],
        )
        program = self._program_arrays(word_cycles)
        table = np.empty((len(timings), len(parts), len(demands.unit)), dtype=np.int64)
        np.stack(parts, axis=1, out=table)  # of one layout, or numba compiles again
        result = make_result(len(timings), len(self._prepared.commands))
        moved = columns["slots"].max(axis=1, initial=0) * float(program.commands[TOUCHED].max())
        result.totals[moved >= NEVER, 0] = -1  # its products need more than 64 bits
        try:
            compile_recurrence()(
                program,
                np.array(rows, dtype=np.int64).T.copy(),
                np.concatenate(list(slots.values()), dtype=np.int64),
                table,
                make_state(program, max(lengths)),
                self._met,
                result,
            )
            self._reject_collisions(result)
        except BaseException:
            self._met[:] = 0  # the next call records again what this one did not report
            raise
        return result

    def _reject_collisions(self, result: BatchResult) -> None:
        """Set the total of the Timings in which commands collide in memory to -1."""
        changed = np.flatnonzero(result.changed)
        place, distance = np.nonzero(self._met[changed])
        one = changed[place]
        found = self._prepared.footprints.find_collisions(one, one + distance - WINDOW)
        self._colliding.update(dict.fromkeys(found))
        start, end = result.times[:, 1], result.times[:, 2]
        for left, right in self._colliding:
            both = (start[:, left] < end[:, right]) & (start[:, right] < end[:, left])
            result.totals[both, 0] = -1

    def _serve(self, main: MemoryTiming, flash: MemoryTiming | None) -> Int64:
        key = tuple(
            memory and replace(memory, latency=memory.burst_gap, outstanding=0)
            for memory in (main, flash)
        )
        if key not in self._served:
            self._served[key] = serve_transfers(self._prepared.demands, main, flash)
        return self._served[key]

    def _chunk_slots(self, memory: MemoryTiming, fetch_bytes: int) -> list[int]:
        key = memory, fetch_bytes
        if key not in self._chunks:
            self._chunks[key] = chunk_slots(self._prepared.demands, memory, fetch_bytes)
        return self._chunks[key]

    def _program_arrays(self, word_cycles: int) -> ProgramArrays:
        if word_cycles not in self._arrays:
            self._arrays[word_cycles] = _list_arrays(self._prepared, word_cycles)
        return self._arrays[word_cycles]


def _list_arrays(prepared: PreparedProgram, word_cycles: int) -> ProgramArrays:
    demands = prepared.demands
    commands = len(demands.unit)
    loads = list_bank_loads(demands, word_cycles)
    load = np.full(commands, -1, dtype=np.int64)
    load[list(loads)] = range(len(loads))
    banked = [pair for one in loads.values() for pair in one.words]
    low, high, touched = np.zeros((3, commands), dtype=np.int64)
    if loads:
        touched[demands.moving] = demands.touched
        for number in np.flatnonzero(touched).tolist():
            low[number], high[number] = demands.hulls[number][0][:2]
    place = np.zeros(commands, dtype=np.int64)
    for members in demands.by_unit:
        place[members] = range(len(members))
    rows = (demands.unit, demands.word, place, np.concatenate(demands.by_unit), *demands.pushers,
            prepared.labels.kind, load, low, high, touched)  # fmt: skip
    table = np.zeros((len(rows), commands + 1), dtype=np.int64)
    table[:, :commands] = rows
    table[WORD, commands] = demands.word_count - 1
    begins = _find_begins([one.words for one in loads.values()])
    near = prepared.footprints.members
    return ProgramArrays(
        commands=table,
        loads=np.stack([_column([*(one.cycles for one in loads.values()), 0]), begins]),
        banks=_column(number for pair in banked for number in pair).reshape(-1, 2).T.copy(),
        near=np.concatenate(near),
        bounds=np.stack([_find_begins(demands.by_unit), _find_begins(near)]),
    )


def _column(values: Iterable[int]) -> Int64:
    return np.fromiter(values, dtype=np.int64)


def _find_begins(parts: Iterable[Sequence[object] | Int64]) -> Int64:
    """Return where each part begins when the parts follow each other, and the end."""
    return _column(accumulate(map(len, parts), initial=0))
