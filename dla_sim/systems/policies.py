"""Who runs next: scheduling policies, each a small class (docs/systems.md, section 5).

A policy ranks jobs; whenever a unit is free, the most urgent of the jobs that wait for it gets it. Ties go by release,
then by the order of the tasks, then by the number of the job. Preemptive policies are asked at the boundaries between
layers or tiles whether the running job gives way; on the CPU a job gives way at any time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar, Protocol

from dla_sim.systems.spec import Preemption, Task
from isa.errors import InputError, meant


class Waiting(Protocol):
    """What a policy sees of a job. Times in cycles; ``remaining`` is what it still takes alone, an estimate."""

    @property
    def index(self) -> int:
        """The task, counted."""

    @property
    def task(self) -> Task: ...
    @property
    def number(self) -> int:
        """Counted within the task."""

    @property
    def release(self) -> int: ...
    @property
    def deadline(self) -> int | None: ...
    @property
    def turn(self) -> int:
        """How many jobs had been put into queues before it was put into its own the last time."""

    def remaining(self, now: int) -> int: ...


NO_DEADLINE = 1 << 62


class Policy:
    """First come, first served: the base of the others."""

    migrates: ClassVar[bool] = False
    """Jobs leave their home where they are predicted to end earlier elsewhere, until they have begun."""
    title: ClassVar[str] = "first come, first served"

    def __init__(self, preemption: Preemption = "none", quantum: int = 0) -> None:
        self.preemption: Preemption = preemption
        self.quantum = quantum

    def urgency(self, job: Waiting, now: int) -> float:
        """The lower, the more urgent."""
        return job.release

    def among_its_own(self, job: Waiting) -> int:
        """The lower, the earlier it goes on among the jobs of its task: in the order of their release."""
        return job.number

    def preempts(self, running: Waiting, best: Waiting, now: int, begun: int) -> bool:
        """Whether ``best`` of those that wait takes the unit on which ``running`` has been since ``begun``."""
        return self.preemption != "none" and self.urgency(best, now) < self.urgency(running, now)

    def ended(self, job: Waiting, now: int) -> None:
        """A job has ended."""


class FixedPriority(Policy):
    """The job whose task has the highest priority."""

    title = "fixed priority"

    def urgency(self, job: Waiting, now: int) -> float:
        return -job.task.priority


class RoundRobin(Policy):
    """Time sharing: a job that has had its quantum goes to the end of the queue."""

    title = "time sharing"

    def among_its_own(self, job: Waiting) -> int:
        return job.turn

    def urgency(self, job: Waiting, now: int) -> float:
        return job.turn

    def preempts(self, running: Waiting, best: Waiting, now: int, begun: int) -> bool:
        return self.preemption != "none" and now - begun >= self.quantum


class EarliestDeadline(Policy):
    """The job whose deadline comes first; those without one last."""

    title = "earliest deadline first"

    def urgency(self, job: Waiting, now: int) -> float:
        return NO_DEADLINE if job.deadline is None else job.deadline


class LeastLaxity(Policy):
    """The job that can wait the shortest time: until its deadline, less what it still takes alone."""

    title = "least laxity"

    def urgency(self, job: Waiting, now: int) -> float:
        return NO_DEADLINE if job.deadline is None else job.deadline - now - job.remaining(now)


class JustInTime(Policy):
    """Priorities follow observed lateness: that of the task's last jobs, and of this one so far.

    Lateness is response time over deadline; a task's is the mean of its last job's and its lateness before, so that old
    jobs count less and less. A job without a deadline is never late. After section 2.5 of Li et al. (2022).
    """

    title = "just-in-time priorities"

    def __init__(self, preemption: Preemption = "none", quantum: int = 0) -> None:
        super().__init__(preemption, quantum)
        self._lateness: defaultdict[int, float] = defaultdict(float)

    def urgency(self, job: Waiting, now: int) -> float:
        if job.task.deadline is None:
            return 0.0
        return -self._lateness[job.index] - (now - job.release) / job.task.deadline

    def ended(self, job: Waiting, now: int) -> None:
        if job.task.deadline is not None:
            late = (now - job.release) / job.task.deadline
            self._lateness[job.index] = (self._lateness[job.index] + late) / 2


class Migration(JustInTime):
    """Just-in-time priorities, and jobs that leave their home for where they are predicted to end first."""

    migrates = True
    title = "just-in-time priorities with migration"


CO_OPTIMISED = "co-optimised"
"""Migration, and for each task the variant of its network that is chosen together with all others."""
POLICIES: dict[str, Callable[[Preemption, int], Policy]] = {
    "fcfs": Policy,
    "priority": FixedPriority,
    "round-robin": RoundRobin,
    "edf": EarliestDeadline,
    "least-laxity": LeastLaxity,
    "jit": JustInTime,
    "migration": Migration,
    CO_OPTIMISED: Migration,
}
"""By the names that commands and files know."""


def make_policy(name: str, preemption: Preemption, quantum: int) -> Policy:
    """The policy of that name, new: policies learn. Raises InputError for an unknown one."""
    if name not in POLICIES:
        raise InputError(f"unknown policy '{name}'; {meant(name, POLICIES)}choose one of {', '.join(POLICIES)}")
    return POLICIES[name](preemption, quantum)
