"""Programs of a split network on several accelerators: their spans, and an account of the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dla_sim.engine.bus import NEVER
from dla_sim.systems.machines import Machines, SharedMemory
from dla_sim.systems.simulate import memory_ports
from dla_sim.systems.spec import System
from dla_sim.systems.work import ProgramWork


@dataclass(frozen=True, eq=False)
class ProgramJob:
    """A program on an accelerator that waits for the jobs ``after``, given by index.

    ``alone`` True: while it runs, no other accelerator can work.
    """

    accelerator: int
    work: ProgramWork
    after: tuple[int, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class Account:
    """Account of the time of all accelerators, in cycles.

    The parts sum to ``accelerators`` * ``cycles``.

    ``once``: cycles of the whole network on the first accelerator. ``again``: extra cycles of all
    programs, each alone, for halos, inputs that all read, and pipeline fill and drain; negative if
    shares fit into the scratchpad but the whole does not. ``memory``: extra cycles due to other
    accelerators on the memory. ``waiting``: cycles at barriers and between stages. ``unshared``:
    idle cycles of the others while one runs nodes that are not shared.
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
        """Speed-up of all accelerators together over the first accelerator alone."""
        return self.once / self.cycles

    def __add__(self, other: Account) -> Account:
        return Account(
            self.accelerators, self.cycles + other.cycles, self.once + other.once,
            self.again + other.again,
            self.memory + other.memory, self.waiting + other.waiting,
            self.unshared + other.unshared,
        )  # fmt: skip


Spans = list[tuple[int, int]]


def simulate(jobs: Sequence[ProgramJob], system: System) -> tuple[Spans, int]:
    """Return each job's start and end, and the number of memory slots used.

    Jobs run in their order on each accelerator, and after the jobs for which they wait.
    """
    count = len(system.accelerators)
    memory = SharedMemory(memory_ports(system), system.grants)
    machines = Machines(count, memory)
    queues = [
        [n for n, job in enumerate(jobs) if job.accelerator == number][::-1]
        for number in range(count)
    ]
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
        begun = {
            machine: one.start for machine, one in enumerate(machines.running) if one is not None
        }
        for happening in machines.advance(NEVER):
            machine = happening.running.machine
            now = happening.time
            spans[running.pop(machine)] = begun[machine], now
    return [spans[number] for number in range(len(jobs))], memory.served


def account(jobs: Sequence[ProgramJob], spans: Spans, once: int, accelerators: int) -> Account:
    """Return how the accelerators spend their time while they run the jobs.

    ``once`` is the cycles of the same work on the first accelerator alone.
    """
    cycles = max(end for _, end in spans)
    alone = sum(job.work.alone for job in jobs)
    busy = sum(end - start for start, end in spans)
    unshared = sum(
        (accelerators - 1) * (e - s) for job, (s, e) in zip(jobs, spans, strict=True) if job.alone
    )
    return Account(
        accelerators=accelerators, cycles=cycles, once=once, again=alone - once,
        memory=busy - alone,
        waiting=accelerators * cycles - busy - unshared, unshared=unshared,
    )  # fmt: skip


def jobs_of_images(works: Sequence[ProgramWork], images: int) -> list[ProgramJob]:
    """Return the jobs of a batch of images, one for each image.

    Each image goes to the accelerator that would end it first if all ran alone.
    """
    ends = [0] * len(works)
    jobs = []
    for _ in range(images):
        chosen = min(range(len(works)), key=lambda number: ends[number] + works[number].alone)
        ends[chosen] += works[chosen].alone
        jobs.append(ProgramJob(chosen, works[chosen]))
    return jobs
