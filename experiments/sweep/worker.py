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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from pydantic import ValidationError

from byoc.compiled import Demand, Region
from byoc.compiler import compile_regions
from byoc.emission.region import Compiled, values_of
from byoc.estimate.bus import DEFAULT_BUS, MemoryBus, bus_of
from byoc.graph import Value
from byoc.options import CompileOptions
from byoc.scheduling.search_pool import SearchPool, sizeless
from dla_sim.program_timing import ProgramCycles, ProgramTiming
from dla_sim.timing import Timing
from experiments.figure import Counts, FigureMachine, measure_figures, sum_tables
from experiments.report.schema import UNITS, PointFigures
from experiments.sweep.store import canonical
from experiments.version import compiler_version
from isa.arch import Arch
from isa.errors import InputError
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
    """Job for one machine: an Arch, and the Timings with which the network is timed.

    ``programs`` are already compiled.
    """

    arch: Arch
    timings: tuple[Mapping[str, Any], ...]
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
        return outcome_of(self)


@dataclass(frozen=True)
class PointOutcome:
    """Outcome of a point: its ``figures`` if it is ok, else None and the reason in ``message``.

    Figures of networks are in the order of ``FIGURE_COLUMNS``. ``infeasible`` is True if something
    does not fit, and False for an error.
    """

    figures: tuple[Any, ...] | None
    message: str | None = None
    infeasible: bool = False


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
                found[row].update(dict.fromkeys(timings, PointOutcome(None, message_of(error))))
            else:
                machines = {
                    column: FigureMachine(arch, timing) for column, timing in timings.items()
                }
                together = [_run_together(item, list(timings.values())) for item in timed]
                found[row].update(
                    {
                        at: _outcome(one, known[bus], timed, runs)
                        for (at, one), *runs in zip(machines.items(), *together, strict=True)
                    }
                )
    outcomes = tuple(tuple(one for _, one in sorted(row.items())) for row in found)
    # Copies: a program caches its decoded commands, which need not be sent.
    kept = {
        bus: tuple(replace(item, program=replace(item.program)) for item in programs)
        for bus, programs in (made[0].items() if job.keep else ())
    }
    return WorkerResult(outcomes, compilations, kept)


Outcomes = dict[int, PointOutcome]
"""Outcomes by index of the Timing."""


def _timings_by_bus(
    machines: Sequence[MachineJob],
) -> tuple[list[Outcomes], dict[MemoryBus, dict[int, dict[int, Timing]]]]:
    """Return the outcomes of invalid Timings, and the valid Timings grouped by bus.

    Outcomes are by machine, Timings by bus and then by machine. Machines with the same bus follow
    each other, because they share searches.
    """
    refused: list[Outcomes] = [{} for _ in machines]
    found: dict[MemoryBus, dict[int, dict[int, Timing]]] = {}
    for row, machine in enumerate(machines):
        for column, values in enumerate(machine.timings):
            try:
                timing = Timing.model_validate(values)
            except ValidationError as error:
                refused[row][column] = PointOutcome(None, machine_problem(error))
            else:
                found.setdefault(bus_of(timing), {}).setdefault(row, {})[column] = timing
    return refused, found


def message_of(error: BaseException) -> str:
    """Return an error as one line; the type is named unless it is an InputError."""
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def _run_together(
    timed: ProgramTiming, timings: Sequence[Timing]
) -> Sequence[ProgramCycles | None]:
    """Return the runs that one compiled call computes, none if it fails (damaged installation)."""
    try:
        return timed.run_together(timings)
    except Exception:  # each point then runs by itself and has its own error
        return [None] * len(timings)


def _outcome(
    machine: FigureMachine,
    programs: Sequence[CompiledProgram],
    timed: Sequence[ProgramTiming],
    known: Sequence[ProgramCycles | None],
) -> PointOutcome:
    """Return the outcome of a point; ``known`` are the runs that are already computed."""
    try:
        runs = [run or item.run(machine.timing) for run, item in zip(known, timed, strict=True)]
        return PointOutcome(_figures(machine, programs, timed, runs))
    except Exception as error:  # any exception belongs in the results row
        return PointOutcome(None, message_of(error))


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
    runs: Sequence[ProgramCycles],
) -> tuple[Any, ...]:
    """Return a network's figures over all regions, in the order of ``FIGURE_COLUMNS``.

    The last three are JSON texts.
    """
    parts = [
        Counts(
            run, item, once_bytes=one.compulsory_bytes, apart=one.demand.apart, demand=one.demand
        )
        for run, item, one in zip(runs, timed, programs, strict=True)
    ]
    return (
        *measure_figures(PointFigures, machine, parts).values(),
        canonical(sum_tables([run.kinds for run in runs])),
        canonical(sum_tables([run.ex_cycles for run in runs])),
        canonical({unit: sum_tables([run.units[unit] for run in runs]) for unit in UNITS}),
    )
