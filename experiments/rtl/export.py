"""What hardware is compared with: a program's memories before, after every command and after all, and its cycles.

The program is a case of a corpus, a case of the catalogue, or one of the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.causes import CAUSES
from dla_sim.engine.simulation import simulate
from dla_sim.timing import Timing
from dla_sim.trace import Trace
from experiments.debug.commit_log import access_bytes
from experiments.golden.case import Record, StoredCase
from experiments.golden.catalogue import built_in_case
from experiments.golden.check import require_variant, runnable, timing_of
from experiments.golden.observe import Effects, Watcher, completion_order, run_timing, watch
from experiments.golden.record import own_case, record_case
from experiments.golden.store import choose, open_corpus
from isa.access import Access, row_starts
from isa.errors import InputError
from isa.instruction import Command, Machine, Unit
from isa.program import Program, Provenance

Bytes = NDArray[np.uint8]
Run = tuple[int, bytes]


@dataclass(frozen=True, eq=False)
class Source:
    """What is exported: a program on inputs (bytes of each tensor) under a Timing, and its record if there is one."""

    name: str
    description: str
    program: Program
    inputs: Mapping[str, bytes]
    timing: Timing
    record: Record | None = None


@dataclass(frozen=True, eq=False)
class Moved:
    """An operand at the time of its command: the access, and its rows as (address, bytes) in order."""

    access: Access
    runs: tuple[Run, ...]

    @property
    def content(self) -> bytes:
        """All bytes, row by row."""
        return b"".join(content for _, content in self.runs)


@dataclass(frozen=True, eq=False)
class Operation:
    """One command. Cycles are ``[start, end)``, ``waits`` of them for the scratchpad's ports.

    ``compute_cycles`` are those of the instruction's formula, without fill and drain; 0 for LD, ST and ``OP_SYNC``.
    ``writes`` is what was written, read back after the command; nothing where the command ``stops`` the machine.
    """

    command: Command
    source: Provenance | None
    start: int
    end: int
    compute_cycles: int
    waits: int
    reads: tuple[Moved, ...]
    writes: tuple[Moved, ...]
    stops: bool = False


@dataclass(frozen=True, eq=False)
class Export:
    """A program executed command by command in stream order; memories are dense images from address 0.

    ``operations`` leave out ``OP_END``, and what follows a command that stopped the machine. ``stopped`` is the
    reason for that, else None. ``sram`` images end behind the last byte that the program can touch.
    """

    source: Source
    trace: Trace
    sram_before: Bytes
    dram_before: Bytes
    operations: tuple[Operation, ...]
    sram_after: Bytes
    dram_after: Bytes
    stopped: str | None


def case_source(case: StoredCase) -> Source:
    """The source of a golden case. Raises InputError for one that the machine refuses, or lacks the variant for."""
    require_variant(case)
    if case.record.refused is not None:
        raise InputError(
            f"case {case.name} is a program that the machine refuses ({case.record.refused}); nothing runs, so there "
            "is nothing to export"
        )
    return Source(case.name, case.description, runnable(case), case.inputs, timing_of(case), case.record)


def build_export(source: Source) -> Export:
    """Execute ``source`` with the reference semantics and keep everything.

    Raises InputError when the results depend on the order of execution, so that no expectation holds command by
    command, or differ from the record.
    """
    program = source.program
    trace = run_timing(program, source.timing, simulate)
    timed = watch(program, source.inputs, completion_order(trace), "reference")
    watcher = Watcher(program, source.inputs, "reference")
    before = watcher.machine.sram.copy(), watcher.machine.dram.copy()
    operations = _operations(watcher, trace)
    effects = watcher.effects()
    _check_order(source, effects, timed)
    _check_record(source, trace, timed)
    after = watcher.machine.sram, watcher.machine.dram
    return Export(source, trace, *before, operations, *after, effects.stopped)


def _operations(watcher: Watcher, trace: Trace) -> tuple[Operation, ...]:
    """Every command up to the last, or to the one that stops the machine, executed in stream order."""
    schedule, waits = trace.times, trace.causes.commands[:, CAUSES.index("sram")]
    found = []
    for number, command in enumerate(watcher.commands):
        operands = watcher.operands[number]
        reads = tuple(_moved(access, watcher.machine) for access in operands.reads)
        goes_on = watcher.step(number)
        writes = tuple(_moved(access, watcher.machine) for access in operands.writes) if goes_on else ()
        compute = command.instruction.cycles(command, watcher.program.arch) if command.unit is Unit.EX else 0
        cycles = int(schedule.start[number]), int(schedule.end[number]), compute, int(waits[number])
        found.append(Operation(command, trace.sources[number], *cycles, reads, writes, not goes_on))
        if not goes_on:
            break
    return tuple(found)


def _moved(access: Access, machine: Machine) -> Moved:
    if not access.total:
        return Moved(access, ())
    content, size = access_bytes(access, machine), access.nbytes
    starts = row_starts(access).tolist()
    return Moved(access, tuple((at, content[n * size : (n + 1) * size]) for n, at in enumerate(starts)))


def _check_order(source: Source, in_order: Effects, timed: Effects) -> None:
    """The machine completes commands in another order than they are written; a sound program cannot tell."""
    if in_order.stopped != timed.stopped:
        return  # which of two commands that overflow comes first says nothing about the memories
    for number, (one, other) in enumerate(zip(in_order.writes, timed.writes, strict=True)):
        if one != other and in_order.stopped is None:
            raise InputError(
                f"{source.name}: what the command at word {source.program.commands[number].index} writes depends on "
                "the order of execution; 'dla simulate --sanitize' finds the missing token"
            )


def _check_record(source: Source, trace: Trace, timed: Effects) -> None:
    if source.record is None:
        return
    starts, ends = trace.times.start.tolist(), trace.times.end.tolist()
    for number, row in enumerate(source.record.commands):
        if (row.writes, row.start, row.end) != (timed.writes[number], starts[number], ends[number]):
            raise InputError(
                f"case {source.name} is not as recorded from word {row.word} on; 'dla golden check' shows what has "
                "changed, 'dla golden bless' accepts it"
            )


def corpus_source(folder: Path, name: str) -> Source:
    """The case ``name`` (its level may be left out) of the corpus in ``folder``, as it was recorded there.

    Raises InputError when there is no such case, or several, and for what cannot be read or run.
    """
    corpus = open_corpus(folder)
    names = choose(corpus.entries, (), (name,))
    if len(names) > 1:
        raise InputError(f"{' and '.join(names)} are both called '{name}'; write the level, too")
    return case_source(corpus.case(names[0]))


def catalogue_source(name: str) -> Source:
    """The built-in case ``name``, recorded now. Without its level the first that is called so, networks left out."""
    case = built_in_case(name)
    if case is None:
        raise InputError(
            f"no built-in case is called '{name}' and no file either; 'dla golden list' shows those of a corpus "
            "(--corpus)"
        )
    return case_source(record_case(case))


def program_source(file: Path, tensors: Iterable[str], settings: Iterable[str]) -> Source:
    """The program in ``file`` on ``tensors`` ("NAME=FILE.npy") with ``settings`` of the Timing ("key=value").

    Raises InputError for a file that is no program, and for one that the machine refuses.
    """
    return case_source(record_case(own_case(file, f"own/{file.stem}", tensors, settings)))
