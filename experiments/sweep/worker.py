"""Work of a worker process: compile networks without data and time every point.

A network is compiled once for each machine and bus. A :class:`WorkerJob` contains only plain
values, so any executor can send it; caches in workers only save time. Regions are sent without
weights, because a compilation without data does not need them. A :class:`RegionCompiler` caches
what compilations of similar machines share.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from pydantic import ValidationError

from byoc.compiled import Demand, Region
from byoc.compiler import compile_regions, pause_collector
from byoc.emission.region import Compiled, values_of
from byoc.estimate.bus import DEFAULT_BUS, MemoryBus, bus_of
from byoc.graph import Value
from byoc.options import CompileOptions
from byoc.scheduling.search_pool import SearchPool, sizeless
from dla_sim.engine.accounts import CAUSES, causes_of
from dla_sim.program_timing import CycleTable, Int64, ProgramTiming
from dla_sim.timing import MemoryTiming, Timing
from experiments.figure import Counts, FigureMachine, measure_figures
from experiments.report.schema import UNITS, PointFigures
from experiments.sweep.store import canonical
from experiments.version import compiler_version
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import KINDS
from isa.program import Program

Blank = tuple[tuple[Region, ...], dict[str, Value]]


def blank_regions(regions: Iterable[Region], values: Mapping[str, Value]) -> bytes:
    """Pickle regions and their values without the contents of arrays.

    A broadcast of its first number replaces every array. Only this project's workers read these
    bytes back. They are never read from a file, because unpickling is unsafe.
    """
    bare = tuple(replace(region, nodes=()) for region in regions)
    known = {name: value for region in bare for name, value in values_of(region, values).items()}
    stream = io.BytesIO()
    _Blanking(stream, protocol=pickle.HIGHEST_PROTOCOL).dump((bare, known))
    return stream.getvalue()


def read_blank(data: bytes) -> Blank:
    """Return the regions and values that :func:`blank_regions` packed."""
    found: Blank = pickle.loads(data)
    return found


class _Blanking(pickle.Pickler):
    def reducer_override(self, item: Any) -> Any:
        if type(item) is np.ndarray:
            # a scale of all channels goes into a register
            first = item.flat[0] if item.size else item.dtype.type(0)
            return np.broadcast_to, (first, item.shape)
        return NotImplemented


@dataclass(frozen=True)
class CompiledProgram:
    """A program whose constants are all 0 and take no memory.

    ``compulsory_bytes`` counts the bytes of inputs, outputs and constants that must move at least
    once. ``demand`` is a lower bound on the work and traffic of any program for the region.
    """

    program: Program
    compulsory_bytes: int
    demand: Demand


class RegionCompiler:
    """Compiler of a partition's regions.

    It shares work between machines that differ only in scratchpad size.
    """

    def __init__(self, regions: bytes, bus: MemoryBus = DEFAULT_BUS) -> None:
        self._regions, self._values = read_blank(regions)
        self._pool = SearchPool[Compiled](bus)
        self._timings: dict[int, ProgramTiming] = {}

    def compile(self, arch: Arch, options: CompileOptions) -> tuple[CompiledProgram, ...]:
        """Compile the partition's regions for ``arch``, without data."""
        made = compile_regions(
            self._regions, self._values, arch, options, data=False, searches=self._pool
        )
        return tuple(
            CompiledProgram(program, report.compulsory_bytes, report.demand)
            for program, report in made
        )

    def prepare_timings(self, programs: tuple[CompiledProgram, ...]) -> tuple[ProgramTiming, ...]:
        """Prepare compiled programs for timing.

        Reuses the analysis of the previous programs where possible.
        """
        return tuple(
            self._prepare_timing(number, item.program) for number, item in enumerate(programs)
        )

    def _prepare_timing(self, number: int, program: Program) -> ProgramTiming:
        last = self._timings.get(number)
        if last is not None and last.is_for(program):  # another task has sent it again
            return last
        found = last.resize(program) if last is not None else None
        self._timings[number] = found = found or ProgramTiming(program)
        return found


@lru_cache(maxsize=4)
def compiler_for(regions: bytes, machine: Arch, bus: MemoryBus = DEFAULT_BUS) -> RegionCompiler:
    """Return the compiler for these regions, this machine and this bus.

    The scratchpad of the machine may have any size. The last four compilers are cached.
    """
    return RegionCompiler(regions, bus)


Programs = Mapping[MemoryBus, tuple[CompiledProgram, ...]]
"""The compiled regions of one Arch, by the bus for which they were compiled."""


@dataclass(frozen=True)
class MachineJob:
    """Job for one machine: an Arch, and the Timings with which the network is timed, as JSON texts.

    ``programs`` are already compiled.
    """

    arch: Arch
    timings: tuple[str, ...]
    programs: Programs = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkJob:
    """Machines for one network and one set of compiler options.

    ``keep`` True: the result includes the programs, for further Timings.
    """

    version: str
    regions: bytes
    options: CompileOptions
    machines: tuple[MachineJob, ...]
    keep: bool = False

    def run(self) -> WorkerResult:
        """Compile and time the network of the job, as :func:`outcome_of` does."""
        with pause_collector():
            return outcome_of(self)


@dataclass(frozen=True)
class PointOutcome:
    """Outcome of points: their ``figures`` if they are ok, else None and the reason in ``message``.

    Figures of networks are in the order of ``FIGURE_COLUMNS``. A figure is a list with one value a
    point, or the value of all points. ``infeasible`` is True if something does not fit, and False
    for an error. ``places`` are the points' numbers in the job.
    """

    figures: tuple[Any, ...] | None
    message: str | None = None
    infeasible: bool = False
    places: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class WorkerResult:
    """Result of one job: the outcomes of every machine's Timings, and compilations.

    ``compilations`` is their number. ``programs`` are returned if the job requests them.
    """

    outcomes: tuple[tuple[PointOutcome, ...], ...]
    compilations: int
    programs: Programs = field(default_factory=dict)


class WorkerJob(Protocol):
    """A unit of work for a worker, for any kind of points."""

    def run(self) -> WorkerResult:
        """Run the points of a worker's job and return their outcomes."""


def run_job(job: WorkerJob) -> bytes:
    """Run a worker's job and return its result, compressed.

    Small results fit into a pipe at once, so that a worker does not die in the middle of sending
    one.
    """
    return zlib.compress(pickle.dumps(job.run(), pickle.HIGHEST_PROTOCOL), level=1)


def unpack_result(data: bytes) -> WorkerResult:
    """Return the result that :func:`run_job` packed."""
    found: WorkerResult = pickle.loads(zlib.decompress(data))
    return found


def outcome_of(job: NetworkJob) -> WorkerResult:
    """Compile the network for the machines of a job and time it.

    An error becomes the outcome of its points.

    Raises:
        InputError: this worker has another version of the project than the sender of the job.
    """
    if job.version != compiler_version():
        raise InputError(
            f"a worker has version {compiler_version()} and this sweep {job.version}; install the "
            "same on all machines"
        )
    found, by_bus = _timings_by_bus(job.machines)
    made = [dict(machine.programs) for machine in job.machines]
    compilations = 0
    for bus, rows in by_bus.items():
        for row, timings in rows.items():
            arch = job.machines[row].arch
            known = made[row]
            try:
                compiler = compiler_for(job.regions, sizeless(arch), bus)
                if bus not in known:
                    compilations += 1
                    known[bus] = compiler.compile(arch, job.options)
                timed = compiler.prepare_timings(known[bus])
            except Exception as error:  # any exception belongs in the results row
                found[row].append(PointOutcome(None, message_of(error), places=tuple(timings)))
            else:
                found[row] += _list_outcomes(arch, known[bus], timed, timings)
    outcomes = tuple(tuple(sorted(row, key=lambda one: one.places)) for row in found)
    # Copies: a program caches its decoded commands, which need not be sent.
    kept = {
        bus: tuple(replace(item, program=replace(item.program)) for item in programs)
        for bus, programs in (made[0].items() if job.keep else ())
    }
    return WorkerResult(outcomes, compilations, kept)


def _timings_by_bus(
    machines: Sequence[MachineJob],
) -> tuple[list[list[PointOutcome]], dict[MemoryBus, dict[int, dict[int, Timing]]]]:
    """Return the outcomes of invalid Timings, and the valid Timings grouped by bus.

    Outcomes are by machine, Timings by bus and then by machine. Machines with the same bus follow
    each other, because they share searches.
    """
    refused: list[list[PointOutcome]] = [[] for _ in machines]
    buses: dict[tuple[MemoryTiming, MemoryTiming | None], MemoryBus] = {}
    found: dict[MemoryBus, dict[int, dict[int, Timing]]] = {}
    for row, machine in enumerate(machines):
        for column, text in enumerate(machine.timings):
            try:
                timing = Timing.model_validate_json(text)
            except ValidationError as error:
                refused[row].append(PointOutcome(None, machine_problem(error), places=(column,)))
            else:
                memories = timing.main, timing.flash
                bus = buses[memories] = buses.get(memories) or bus_of(timing)
                found.setdefault(bus, {}).setdefault(row, {})[column] = timing
    return refused, found


def message_of(error: BaseException) -> str:
    """Return an error as one line; the type is named unless it is an InputError."""
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def _list_outcomes(
    arch: Arch,
    programs: Sequence[CompiledProgram],
    timed: Sequence[ProgramTiming],
    timings: Mapping[int, Timing],
) -> Iterator[PointOutcome]:
    """Yield the outcomes of a machine's points, by their numbers in the job."""
    places = list(timings)
    tables = [_run_together(item, list(timings.values())) for item in timed]
    missing = {one for table in tables for one in np.flatnonzero(table.cycles < 0).tolist()}
    groups: dict[object, list[int]] = {}
    for number, timing in enumerate(timings.values()):
        try:
            for item, table in zip(timed, tables, strict=True) if number in missing else ():
                table.put(number, item.run(timing))
        except Exception as error:  # any exception belongs in the results row
            yield PointOutcome(None, message_of(error), places=(places[number],))
        else:
            bounds = timing.main, timing.flash, timing.ex_fill, timing.ex_drain
            groups.setdefault(bounds, []).append(number)
    for numbers in groups.values():
        machine = FigureMachine(arch, timings[places[numbers[0]]])
        some = tuple(places[number] for number in numbers)
        try:
            figures = _figures(machine, programs, timed, [table.take(numbers) for table in tables])
            yield PointOutcome(figures, places=some)
        except Exception as error:  # any exception belongs in the results row
            yield PointOutcome(None, message_of(error), places=some)


def _run_together(timed: ProgramTiming, timings: Sequence[Timing]) -> CycleTable:
    """Return the runs that one compiled call computes, none if it fails (damaged installation)."""
    try:
        return timed.run_together(timings)
    except Exception:  # each point then runs by itself and has its own error
        return CycleTable.make_empty(len(timings))


def machine_problem(error: ValidationError) -> str:
    """Return, in one line, why a combination of values is not a valid machine."""
    problem = error.errors(include_url=False)[0]
    return (
        "no such machine: "
        f"{problem['ctx']['error'] if problem['type'] == 'value_error' else problem['msg']}"
    )


def _figures(
    machine: FigureMachine,
    programs: Sequence[CompiledProgram],
    timed: Sequence[ProgramTiming],
    tables: Sequence[CycleTable],
) -> tuple[Any, ...]:
    """Return a network's figures over all regions, in the order of ``FIGURE_COLUMNS``.

    All points have the lower bounds of ``machine``. The last three figures are JSON texts.
    """
    parts = [
        Counts(
            item, cycles=table.cycles.astype(object), once_bytes=one.compulsory_bytes,
            apart=one.demand.apart, demand=one.demand,
        )
        for table, item, one in zip(tables, timed, programs, strict=True)
    ]  # fmt: skip
    kinds = KINDS if parts else ()
    causes = causes_of(machine.timing) if parts else ()
    by_kind: Any = sum(table.kinds for table in tables)
    by_unit: Any = sum(table.units for table in tables)
    each_kind = [{kind: by_kind[:, row, KINDS.index(kind)] for kind in kinds} for row in range(2)]
    each_cause = {
        f"{unit}.{cause}": by_unit[:, row, CAUSES.index(cause)]
        for row, unit in enumerate(UNITS)
        for cause in causes
    }
    figures = (
        *measure_figures(PointFigures, machine, parts).values(),
        *(_format_rows(dict.fromkeys(kinds, "%d"), columns) for columns in each_kind),
        _format_rows({unit: dict.fromkeys(causes, "%d") for unit in UNITS}, each_cause),
    )
    return tuple(map(_merge_equal, figures))


def _format_rows(template: Mapping[str, Any], columns: Mapping[str, Int64]) -> Any:
    """Return the rows of ``columns`` as canonical JSON, the template if there are no columns."""
    text = canonical(template).replace('"%d"', "%d")
    values = [columns[name].tolist() for name in sorted(columns)]
    return [text % row for row in zip(*values, strict=True)] if values else text


def _merge_equal(values: Any) -> Any:
    """Return a figure's values as a list, or the value that all points share."""
    found = values.tolist() if isinstance(values, np.ndarray) else values
    same = isinstance(found, list) and found.count(found[0]) == len(found)
    return found[0] if same else found
