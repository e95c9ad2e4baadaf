"""A split network, run: its programs on the memory that all share, on data, and why it is not N times as fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.compiler import CompiledNetwork
from byoc.graph import Value
from byoc.host.runtime import from_device, to_device
from dla_sim.device import Device
from dla_sim.engine.bus import NEVER
from dla_sim.systems.machines import Machines
from dla_sim.systems.memory import SharedMemory
from experiments.systems.simulate import memory_ports
from experiments.systems.spec import System
from experiments.systems.split import Piece, Step
from experiments.systems.work import Piecework
from isa.program import Execution, Program

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Job:
    """A program on an accelerator, behind jobs of these numbers; ``alone``: while it runs, nothing else can."""

    accelerator: int
    work: Piecework
    after: tuple[int, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class Account:
    """Where the time of ``accelerators`` goes, in cycles, over all of them: together ``accelerators`` * ``cycles``.

    ``once``: what the whole network takes on the first one; ``again``: what all programs, each alone, take more: halos,
    inputs that all read, filling and draining; ``memory``: what they take more because others were on the memory;
    ``waiting``: for others at barriers and stages; ``unshared``: while nodes that are not shared ran on one.
    """

    accelerators: int
    cycles: int
    once: int
    again: int
    memory: int
    waiting: int
    unshared: int

    def __post_init__(self) -> None:
        parts = self.once + self.again + self.memory + self.waiting + self.unshared
        assert parts == self.accelerators * self.cycles, (parts, self)

    @property
    def speed_up(self) -> float:
        """Against the first accelerator alone."""
        return self.once / self.cycles

    def __add__(self, other: Account) -> Account:
        return Account(
            self.accelerators, self.cycles + other.cycles, self.once + other.once, self.again + other.again,
            self.memory + other.memory, self.waiting + other.waiting, self.unshared + other.unshared,
        )  # fmt: skip


Spans = list[tuple[int, int]]


def simulate(jobs: Sequence[Job], system: System) -> tuple[Spans, int]:
    """When each job starts and ends, and the slots of the memory: in order on its accelerator, and behind others."""
    count = len(system.accelerators)
    memory = SharedMemory(memory_ports(system), system.grants)
    machines = Machines(count, memory)
    queues = [[n for n, job in enumerate(jobs) if job.accelerator == number][::-1] for number in range(count)]
    running: dict[int, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    now = 0
    while True:
        for machine, queue in enumerate(queues):
            if queue and machine not in running and spans.keys() >= {*jobs[queue[-1]].after}:
                running[machine] = queue.pop()
                machines.start(machine, jobs[running[machine]].work.workload, now)
        if not running:
            break
        begun = {machine: one.start for machine, one in enumerate(machines.running) if one is not None}
        for happening in machines.advance(NEVER):
            machine, now = happening.running.machine, happening.time
            spans[running.pop(machine)] = begun[machine], now
    return [spans[number] for number in range(len(jobs))], memory.served


def account(jobs: Sequence[Job], spans: Spans, once: int, accelerators: int) -> Account:
    """Where the time went; ``once``: cycles of the same work on the first accelerator alone."""
    cycles = max(end for _, end in spans)
    alone = sum(job.work.alone for job in jobs)
    busy = sum(end - start for start, end in spans)
    unshared = sum((accelerators - 1) * (e - s) for job, (s, e) in zip(jobs, spans, strict=True) if job.alone)
    return Account(
        accelerators=accelerators, cycles=cycles, once=once, again=alone - once, memory=busy - alone,
        waiting=accelerators * cycles - busy - unshared, unshared=unshared,
    )  # fmt: skip


def jobs_of_steps(steps: Sequence[Step]) -> list[Job]:
    """Every step behind all of the one before."""
    jobs: list[Job] = []
    before: tuple[int, ...] = ()
    for step in steps:
        first = len(jobs)
        jobs += [Job(piece.accelerator, piece.work, before, step.whole is not None) for piece in step.pieces]
        before = tuple(range(first, len(jobs)))
    return jobs


def jobs_of_stages(steps: Sequence[Step], images: int) -> list[Job]:
    """Images one behind the other through stages; each image has tensors of its own between them."""
    stages = len(steps)
    return [
        Job(step.pieces[0].accelerator, step.pieces[0].work, (image * stages + number - 1,) if number else ())
        for image in range(images)
        for number, step in enumerate(steps)
    ]


def jobs_of_images(works: Sequence[Piecework], images: int) -> list[Job]:
    """Each image to the accelerator on which it would end first if all ran alone; of equals the first."""
    ends = [0] * len(works)
    jobs = []
    for _ in range(images):
        chosen = min(range(len(works)), key=lambda number: ends[number] + works[number].alone)
        ends[chosen] += works[chosen].alone
        jobs.append(Job(chosen, works[chosen]))
    return jobs


# Data. --------------------------------------------------------------------------------------------------------------


class SplitExecutor:
    """Runs a region's program in its pieces instead, and as a whole as well: ``mismatches`` are elements that differ.

    An executor as the host runtime wants it, so that the CPU parts and the check of a run are the ordinary ones.
    """

    def __init__(self, compiled: CompiledNetwork, steps: Mapping[int, Sequence[Sequence[Step]]]) -> None:
        """``steps``: by region, all the ways in which it runs on data."""
        self._values = compiled.graph.values
        self._steps = {compiled.programs[index].name: ways for index, ways in steps.items()}
        self.mismatches = 0
        self.elements = 0

    def run(self, program: Program, inputs: Mapping[str, NDArray[Any]]) -> Execution[None]:
        """What the pieces make, of the last way; every way is compared with the whole program."""
        whole = Device(program.arch).run(program, inputs).outputs
        found: Tensors = {}
        for steps in self._steps[program.name]:
            memory = {name: from_device(array, self._values[name]) for name, array in inputs.items()}
            for step in steps:
                for piece in step.pieces:
                    run_piece(piece, memory, self._values)
            found = {one.name: to_device(memory[one.name], one) for one in program.outputs}
            self.elements += sum(array.size for array in found.values())
            self.mismatches += sum(int(np.count_nonzero(found[name] != whole[name])) for name in found)
        return Execution(found, None)


def run_piece(piece: Piece, memory: Tensors, values: Mapping[str, Value]) -> None:
    """Run a program on what it reads of the tensors in memory, and put what it makes in its place."""
    program = piece.work.program
    feeds = {}
    for tensor in program.inputs:
        window = piece.reads[tensor.name]
        feeds[tensor.name] = to_device(memory[window.tensor][_index(window.axis, window.span)], tensor)
    for name, array in Device(program.arch).run(program, feeds).outputs.items():
        window, value = piece.writes[name], piece.values[name]
        made = from_device(array, value)
        if window.span is None:
            memory[window.tensor] = made
            continue
        whole = values[window.tensor]
        memory.setdefault(window.tensor, np.zeros(whole.shape, whole.dtype))[_index(window.axis, window.span)] = made


def _index(axis: int, span: tuple[int, int] | None) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(None) if span is None else slice(*span),)
