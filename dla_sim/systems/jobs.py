"""Programs on the accelerators of a system behind one another: when each runs, and where the time of all goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dla_sim.engine.bus import NEVER
from dla_sim.systems.machines import Machines, SharedMemory
from dla_sim.systems.simulate import memory_ports
from dla_sim.systems.spec import System
from dla_sim.systems.work import ProgramWork


@dataclass(frozen=True, eq=False)
class Job:
    """A program on an accelerator, behind jobs of these numbers; ``alone``: while it runs, nothing else can."""

    accelerator: int
    work: ProgramWork
    after: tuple[int, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class Account:
    """Where the time of ``accelerators`` goes, in cycles, over all of them: together ``accelerators`` * ``cycles``.

    ``once``: what the whole network takes on the first one; ``again``: what all programs, each alone, take more: halos,
    inputs that all read, filling and draining; below zero where shares fit the scratchpad and the whole does not.
    ``memory``: what they take more because others were on the memory; ``waiting``: for others at barriers and stages;
    ``unshared``: while nodes that are not shared ran on one.
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


def jobs_of_images(works: Sequence[ProgramWork], images: int) -> list[Job]:
    """Each image to the accelerator on which it would end first if all ran alone; of equals the first."""
    ends = [0] * len(works)
    jobs = []
    for _ in range(images):
        chosen = min(range(len(works)), key=lambda number: ends[number] + works[number].alone)
        ends[chosen] += works[chosen].alone
        jobs.append(Job(chosen, works[chosen]))
    return jobs
