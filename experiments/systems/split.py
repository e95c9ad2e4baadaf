"""``dla split``: run one network on several accelerators of a system.

Its programs are timed on the shared memory and run on data; the result is checked, measured and
presented.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from byoc.compiled import CompiledNetwork
from byoc.compiler import compile as compile_network
from byoc.estimate.bus import bus_of
from byoc.graph import Value
from byoc.host.runtime import Runtime, from_device, to_device
from byoc.operators.onnx_view import BOUNDARIES
from byoc.options import CompileOptions
from byoc.splitting.methods import split_by_channels, split_by_pipeline, split_by_rows
from byoc.splitting.pieces import (
    WAYS,
    RefusedError,
    SplitAccelerator,
    SplitProgram,
    SplitStep,
    Splitter,
)
from dla_sim.device import Device
from dla_sim.presets import Preset
from dla_sim.systems.jobs import Account, ProgramJob, account, jobs_of_images, simulate
from dla_sim.systems.spec import System
from dla_sim.systems.work import ProgramWork
from experiments.report.assemble import end_to_end, host_estimate
from experiments.report.checks import Check
from experiments.report.parts import Count, Part, Text
from experiments.report.shown import Presentation, Shown
from experiments.report.terminal import Column, Printed, ReportTable, line
from experiments.running.check import check_values
from experiments.running.declared import command_of
from experiments.running.network import Network, network_batch
from experiments.systems.request import SplitRequest
from isa.errors import InputError, suggest_name
from isa.program import Execution, Program

Tensors = dict[str, NDArray[Any]]
MOST_IMAGES = 10_000


class SplitPart(Part):
    """Nodes of a region that run together.

    ``cycles`` has, by accelerator, the cycles of each program alone. ``whole`` is the reason if the
    nodes are not shared. ``once``, for shared nodes, is the cycles of one program between whole
    tensors on the first accelerator alone. If the slowest of ``cycles`` is not below it, sharing
    loses time.
    """

    region: Text
    nodes: list[Text]
    accelerators: list[Text]
    cycles: list[Count]
    once: Count | None
    whole: Text | None

    @property
    def loses(self) -> bool:
        """True if one program would run the nodes at least as fast as the pieces do."""
        return self.once is not None and max(self.cycles) >= self.once


class SplitRegion(Part):
    """Region of a split network, with the account of the region's own speed-up."""

    name: Text
    account: Account


class SplitCheck(Part):
    """Check of a split against the whole programs and against the oracle.

    ``mismatches`` counts the output elements of regions that differ from the whole programs;
    ``oracle`` is the check of an ordinary run.
    """

    elements: Count
    mismatches: Count
    oracle: Check


class SplitReport(Shown, Part):
    """Report of one network on several accelerators.

    Cycles are accelerator cycles unless stated otherwise.

    ``alone``: cycles of one inference on the first accelerator. ``images``: number of inferences in
    ``account``. ``latency``: cycles of the first of them alone in the system. ``end_to_end``:
    estimated cycles of one inference with transfers and the CPU parts in ``cpu``, which no split
    changes. ``macs``: multiply-accumulates of an inference, and those that the split's programs
    compute. ``slots``: memory slots of ``images`` inferences, alone and split. ``account`` is the
    sum over ``regions``, which are split one after the other.
    """

    schema_: Literal["dla-split/1"] = Field(default="dla-split/1", alias="schema")
    command: Text
    model: Text
    system: Text
    split: Text
    images: Count
    alone: Count
    latency: Count
    end_to_end: Count
    end_to_end_alone: Count
    cpu: list[Text]
    macs: tuple[Count, Count]
    slots: tuple[Count, Count]
    speed_up: float
    parts: list[SplitPart]
    regions: list[SplitRegion]
    account: Account
    check: SplitCheck

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self, SPLIT

    @property
    def mismatches(self) -> int:
        """Number of elements that differ from the whole programs' or from the oracle's."""
        return self.check.mismatches + self.check.oracle.mismatches


class TimedPrograms:
    """Programs of a split, each timed once on the accelerator for which it was compiled."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._works: dict[Program, ProgramWork] = {}
        self.accelerators = tuple(
            SplitAccelerator(
                one.name, machine.arch, bus_of(machine.timing), partial(self._alone, machine)
            )
            for one in system.accelerators
            for machine in (one.hardware,)
        )

    def _alone(self, hardware: Preset, program: Program) -> int:
        work = self._works[program] = ProgramWork(program, hardware)
        return work.alone

    def get_work(self, piece: SplitProgram) -> ProgramWork:
        return self._works[piece.program]

    def jobs_of_steps(self, steps: Sequence[SplitStep]) -> list[ProgramJob]:
        """Return a split network's jobs; each step waits for all jobs of the previous step."""
        jobs: list[ProgramJob] = []
        before: tuple[int, ...] = ()
        for step in steps:
            first = len(jobs)
            jobs += [
                ProgramJob(piece.accelerator, self.get_work(piece), before, step.whole is not None)
                for piece in step.pieces
            ]
            before = tuple(range(first, len(jobs)))
        return jobs

    def jobs_of_stages(self, steps: Sequence[SplitStep], images: int) -> list[ProgramJob]:
        """Return the jobs of a pipeline, whose images follow each other.

        Each image has its own tensors between stages.
        """
        pieces = [step.pieces[0] for step in steps]
        return [
            ProgramJob(
                piece.accelerator,
                self.get_work(piece),
                (image * len(pieces) + number - 1,) if number else (),
            )
            for image in range(images)
            for number, piece in enumerate(pieces)
        ]


class SplitExecutor:
    """Executor that runs a region's program both in pieces and whole, and compares them.

    It counts the elements that differ. It has the interface of the host runtime, so the CPU parts
    and the check are those of an ordinary run.
    """

    def __init__(
        self, compiled: CompiledNetwork, steps: Mapping[int, Sequence[Sequence[SplitStep]]]
    ) -> None:
        """Create the executor; ``steps`` has, by region, all ways to run it in pieces."""
        self._values = compiled.graph.values
        self._steps = {compiled.programs[index].name: ways for index, ways in steps.items()}
        self.mismatches = 0
        self.elements = 0

    def run(self, program: Program, inputs: Mapping[str, NDArray[Any]]) -> Execution[None]:
        """Run a program whole and in pieces, and return the outputs of the pieces.

        With several ways to split, the outputs are those of the last way.

        Compare every way with the whole program.

        Only elements are compared, for the padding of atoms may have any value.
        """
        stored = Device(program.arch).run(program, inputs).outputs
        whole = {
            name: from_device(array, self._values[name], program.arch)
            for name, array in stored.items()
        }
        memory: Tensors = {}
        for steps in self._steps[program.name]:
            memory = {
                name: from_device(array, self._values[name], program.arch)
                for name, array in inputs.items()
            }
            for step in steps:
                for piece in step.pieces:
                    run_piece(piece, memory, self._values)
            self.elements += sum(array.size for array in whole.values())
            self.mismatches += sum(
                int(np.count_nonzero(memory[name] != whole[name])) for name in whole
            )
        found = {
            one.name: to_device(memory[one.name], one, program.arch) for one in program.outputs
        }
        return Execution(found, None)


def run_piece(piece: SplitProgram, memory: Tensors, values: Mapping[str, Value]) -> None:
    """Run a piece's program on tensors in memory and store its results there.

    The program reads its windows of the tensors and writes its output windows.
    """
    program = piece.program
    feeds = {}
    for tensor in program.inputs:
        window = piece.reads[tensor.name]
        feeds[tensor.name] = to_device(
            memory[window.tensor][_index(window.axis, window.span)], tensor, program.arch
        )
    for name, array in Device(program.arch).run(program, feeds).outputs.items():
        window = piece.writes[name]
        value = piece.values[name]
        made = from_device(array, value, program.arch)
        if window.span is None:
            memory[window.tensor] = made
            continue
        whole = values[window.tensor]
        memory.setdefault(window.tensor, np.zeros(whole.shape, whole.dtype))[
            _index(window.axis, window.span)
        ] = made


def _index(axis: int, span: tuple[int, int] | None) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(None) if span is None else slice(*span),)


@dataclass(frozen=True, eq=False)
class _Timed:
    account: Account
    alone: int
    latency: int
    slots: tuple[int, int]


def split_network(network: Network, system: System, wanted: SplitRequest) -> SplitReport:
    """Split a network over the accelerators of a system, run one inference, and time it.

    ``images`` inferences are timed if they share the accelerators (``batch``, ``pipeline``), else
    one. Raises InputError for an unsuitable system or split, and for a network without a part that
    runs on an accelerator.
    """
    way = wanted.by
    options = wanted.options
    progress = wanted.progress
    images = 8 if wanted.images is None else wanted.images
    _check_possible(system, way, images, options)
    first = system.accelerators[0]
    progress(f"compiling {network.name}")
    compiled = compile_network(
        network.package, first.hardware.arch, options, timing=first.hardware.timing
    )
    if not compiled.programs:
        raise InputError(
            f"{network.name}: nothing of it runs on an accelerator; there is nothing to split"
        )
    images = images if way in ("batch", "pipeline") else 1
    if images > 1 and network.package.graph.state:
        raise InputError(
            f"{network.name}: each step needs the state of the step before, so that --by {way} "
            f"cannot run {images} at once; give --images 1, or another --by"
        )
    progress(f"splitting {network.name} by {way}")
    programs = TimedPrograms(system)
    steps = {
        region.index: _split(compiled, region.index, programs, way)
        for region in compiled.partition.regions
    }
    progress("running on data")
    ways = {
        index: [[step] for step in found] if way == "batch" else [found]
        for index, found in steps.items()
    }
    executor = SplitExecutor(compiled, ways)
    feeds, *others = network_batch(network, wanted.inputs, wanted.seed, options).feeds
    if others:
        raise InputError(
            f"{network.name}: {len(others) + 1} inputs are given; a split is checked on those of "
            "one inference"
        )
    oracle = check_values(compiled, feeds, Runtime(compiled, executor).run(feeds))
    progress("timing")
    timed = {
        index: _make_timed(compiled, index, found, programs, way, images)
        for index, found in steps.items()
    }
    check = SplitCheck(elements=executor.elements, mismatches=executor.mismatches, oracle=oracle)
    about = {
        "command": command_of("split", wanted),
        "model": network.name,
        "split": way,
        "images": images,
    }
    return _report(compiled, system, steps, timed, check=check, **about)


def _report(
    compiled: CompiledNetwork,
    system: System,
    steps: Mapping[int, Sequence[SplitStep]],
    timed: Mapping[int, _Timed],
    **about: Any,
) -> SplitReport:
    """Return the report of a network whose regions were split and timed.

    ``steps`` and ``timed`` are by region; ``about`` has further fields of the report.
    """
    regions = list(timed.values())
    total = sum((one.account for one in regions[1:]), start=regions[0].account)
    memory = system.accelerators[0].hardware.timing.main
    estimate = host_estimate(compiled.partition)
    whole, split = (
        end_to_end(
            compiled, estimate, {index: getattr(one, key) for index, one in timed.items()}, memory
        ).cycles
        for key in ("alone", "latency")
    )
    names = {region.index: region.name for region in compiled.partition.regions}
    parts = [part for found in steps.values() for part in found]
    macs = sum(node.macs for region in compiled.partition.regions for node in region.nodes)
    done = (
        sum(piece.macs for part in parts for piece in part.pieces)
        if about["split"] != "batch"
        else macs
    )
    return SplitReport(
        **about,
        system=system.name,
        alone=sum(one.alone for one in regions),
        latency=sum(one.latency for one in regions),
        end_to_end=split,
        end_to_end_alone=whole,
        cpu=[layer.node for layer in estimate.layers if layer.op_type not in BOUNDARIES],
        macs=(macs, done),
        slots=(sum(one.slots[0] for one in regions), sum(one.slots[1] for one in regions)),
        speed_up=total.speed_up,
        parts=[
            _part(part, names[index], system) for index, found in steps.items() for part in found
        ],
        regions=[
            SplitRegion(name=names[index], account=one.account) for index, one in timed.items()
        ],
        account=total,
    )


def _check_possible(system: System, way: str, images: int, options: CompileOptions) -> None:
    if way not in WAYS:
        raise InputError(f"--by {way}: {suggest_name(way, WAYS)}choose one of {', '.join(WAYS)}")
    if len(system.accelerators) < 2:
        raise InputError(
            f"{system.source}: a network is split over two accelerators or more; add "
            "one, or count = 2"
        )
    if not 1 <= images <= MOST_IMAGES:
        raise InputError(f"--images {images}: give 1 to {MOST_IMAGES:,}")
    if options.chosen:
        raise InputError(
            "--pins and --tuned choose the schedule of a whole network; leave them out"
        )
    first = system.accelerators[0]
    for other in system.accelerators[1:]:
        if other.hardware.arch.numerics != first.hardware.arch.numerics:
            raise InputError(
                f"accelerator '{other.name}' has numerics {other.hardware.arch.numerics}, "
                f"'{first.name}' "
                f"{first.hardware.arch.numerics}: they would make other bits; give all the same"
            )


def _split(
    compiled: CompiledNetwork, index: int, programs: TimedPrograms, way: str
) -> list[SplitStep]:
    """Split a region over accelerators and return the steps in which it runs.

    For ``batch``, one step for each kind of accelerator, which runs the whole region.
    """
    region = compiled.partition.regions[index]
    splitter = Splitter(compiled.graph, region, programs.accelerators, compiled.options)
    try:
        if way != "batch":
            return {
                "channels": split_by_channels,
                "rows": split_by_rows,
                "pipeline": split_by_pipeline,
            }[way](splitter)
        kinds = [one.kind for one in programs.system.accelerators]
        pieces = [splitter.whole(region.nodes, kinds.index(kind)) for kind in dict.fromkeys(kinds)]
        return [SplitStep(tuple(node.name for node in region.nodes), (piece,)) for piece in pieces]
    except RefusedError as error:
        raise InputError(f"{region.name} cannot be split by {way}: {error}") from error


def _make_timed(
    compiled: CompiledNetwork,
    index: int,
    steps: Sequence[SplitStep],
    programs: TimedPrograms,
    way: str,
    images: int,
) -> _Timed:
    system = programs.system
    accelerators = programs.system.accelerators
    whole = ProgramWork(compiled.programs[index], accelerators[0].hardware)
    if way == "batch":
        of_kind = {
            accelerators[step.pieces[0].accelerator].kind: programs.get_work(step.pieces[0])
            for step in steps
        }
        works = [of_kind[one.kind] for one in accelerators]
        jobs = jobs_of_images(works, images)
        single = jobs_of_images(works, 1)
    elif way == "pipeline":
        jobs = programs.jobs_of_stages(steps, images)
        single = programs.jobs_of_stages(steps, 1)
    else:
        jobs = single = programs.jobs_of_steps(steps)
    spans, slots = simulate(jobs, system)
    latency = max(end for _, end in simulate(single, system)[0])
    _, slots_alone = simulate([ProgramJob(0, whole)], system)
    found = account(jobs, spans, whole.alone * images, len(accelerators))
    return _Timed(found, whole.alone, latency, (slots_alone * images, slots))


def _part(step: SplitStep, region: str, system: System) -> SplitPart:
    return SplitPart(
        region=region,
        nodes=list(step.nodes),
        accelerators=[system.accelerators[piece.accelerator].name for piece in step.pieces],
        cycles=[piece.cycles for piece in step.pieces],
        once=step.once,
        whole=step.whole,
    )


def split_json(report: SplitReport) -> str:
    """Return the report as JSON text; equal reports give equal bytes."""
    return json.dumps(report.model_dump(mode="json"), indent=2) + "\n"


MEANING = {
    "again": "parts take more cycles than the whole program: halos, inputs read by every part, "
    "pipeline fill and drain",
    "memory": "waits for memory that other accelerators use",
    "waiting": "waits for other accelerators",
    "unshared": "nodes that cannot be split ran on one accelerator",
}


def split_tables(report: SplitReport) -> Iterator[Printed]:
    yield line(f"{report.model} on {report.system}, split by {report.split}", style="bold")
    yield _steps_table(report)
    if any(part.loses for part in report.parts):
        yield line(
            "* no slower as one program on the first accelerator: sharing these nodes loses time"
        )
    yield from map(line, _account_lines(report))
    yield line(f"multiply-accumulates: {report.macs[0]:,} once, {report.macs[1]:,} split; "
               f"slots of the memory: {report.slots[0]:,} and {report.slots[1]:,}")  # fmt: skip
    yield line(f"end to end (CPU and transfers estimated, not split): {report.end_to_end_alone:,} "
               "cycles on "
               f"one, {report.end_to_end:,} split")  # fmt: skip
    if report.cpu:
        yield line(f"on the CPU as before: {', '.join(report.cpu)}")
    check = report.check
    yield line(f"check: {check.elements:,} elements, {check.mismatches:,} differ from the whole "
               "programs'; "
               f"{check.oracle.elements:,} against {check.oracle.oracle}, "
               f"{check.oracle.mismatches:,} mismatches")  # fmt: skip


def _steps_table(report: SplitReport) -> ReportTable:
    """Return the table of nodes by region, with the accelerators that share them.

    It marks the nodes that one accelerator would run faster.
    """
    several = len(report.regions) > 1
    columns = [
        Column("nodes", "fold"),
        Column("cycles alone", "fold"),
        Column("as one", "right", 2),
    ]
    columns.append(Column("not shared", "fold", 1))
    table = ReportTable((*[Column("region", "left")] * several, *columns))
    for part in report.parts:
        cycles = ", ".join(
            f"{name} {one:,}" for name, one in zip(part.accelerators, part.cycles, strict=True)
        )
        once = "" if part.once is None else f"{part.once:,}{' *' * part.loses}"
        table.add_row(
            *[part.region] * several, ", ".join(part.nodes), cycles, once, part.whole or ""
        )
    return table


def _account_lines(report: SplitReport) -> Iterator[str]:
    """Yield text lines with the speed-up and the causes that keep it below N.

    N is the number of accelerators. With several regions, each has a line with its own speed-up.
    """
    found = report.account
    what = f"{report.images} images" if report.images > 1 else "an inference"
    yield f"{what}: {_faster(found)}"
    if report.images > 1:
        stream = f"{found.cycles / report.images:,.1f} cycles an image"
        yield f"one image alone: {report.latency:,} cycles; a stream: {stream}"
    if len(report.regions) > 1:
        yield from (f"  {region.name}: {_faster(region.account)}" for region in report.regions)
    parts = {meaning: cycles for key, meaning in MEANING.items() if (cycles := getattr(found, key))}
    if parts:
        lost = found.accelerators - report.speed_up
        yield f"why not {found.accelerators} times: {lost:.2f} less, of which"
        for meaning, cycles in parts.items():
            yield f"  {cycles / found.cycles:+.2f} {cycles:,} cycles: {meaning}"


def _faster(account: Account) -> str:
    return (
        f"{account.once:,} cycles on one, {account.cycles:,} on {account.accelerators}: "
        f"{account.speed_up:.2f} times as fast"
    )


def _lines(report: SplitReport) -> Iterator[str]:
    yield f"{report.model} on {report.system}, split by {report.split}: {_faster(report.account)}"


SPLIT = Presentation(lines=_lines, tables=split_tables, json=split_json)
