"""Scheduling policies, each a small class (docs/systems.md, section 5).

A policy ranks jobs. A free unit takes the most urgent job that waits for it; ties go by release,
then by task, then by job number. At boundaries between layers or tiles, a preemptive policy decides
whether a waiting job replaces the running one; on the CPU it may do so at any time.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar, Protocol

from dla_sim.systems.spec import Preemption, SystemTask
from isa.errors import InputError, suggest_name


class WaitingJob(Protocol):
    """Job that waits for a unit, as a scheduling policy sees it.

    Times are in cycles; ``remaining`` estimates the cycles it still needs alone.
    """

    @property
    def index(self) -> int:
        """Index of the task that a job belongs to."""

    @property
    def task(self) -> SystemTask: ...
    @property
    def number(self) -> int:
        """Index of a job among the jobs of its task."""

    @property
    def release(self) -> int: ...
    @property
    def deadline(self) -> int | None: ...
    @property
    def turn(self) -> int:
        """Number of a job's last entry into a queue, counted over the entries of all jobs."""

    def estimate_remaining(self, now: int) -> int: ...


NO_DEADLINE = 1 << 62


class Policy:
    """Scheduling policy that runs jobs first come, first served; base class of all policies."""

    migrates: ClassVar[bool] = False
    """True if jobs that have not begun may leave their home for a unit on which they are
    predicted to end earlier.
    """
    title: ClassVar[str] = "first come, first served"

    def __init__(self, preemption: Preemption = "none", quantum: int = 0) -> None:
        self.preemption: Preemption = preemption
        self.quantum = quantum

    def urgency(self, job: WaitingJob, now: int) -> float:
        """Return the urgency of a job; lower is more urgent."""
        return job.release

    def rank_within_task(self, job: WaitingJob) -> int:
        """Return the rank of a job among the jobs of its task, by default its release order.

        Lower runs earlier.
        """
        return job.number

    def can_preempt(self, running: WaitingJob, best: WaitingJob, now: int, begun: int) -> bool:
        """Return True if the waiting job ``best`` may preempt the job ``running`` on its unit.

        ``running`` has had the unit since cycle ``begun``.
        """
        return self.preemption != "none" and self.urgency(best, now) < self.urgency(running, now)

    def note_end(self, job: WaitingJob, now: int) -> None:
        """Update the scheduling policy when a job has ended."""


class FixedPriority(Policy):
    """Fixed priorities: the job whose task has the highest priority runs first."""

    title = "fixed priority"

    def urgency(self, job: WaitingJob, now: int) -> float:
        return -job.task.priority


class RoundRobin(Policy):
    """Time sharing: a job that has used its quantum goes to the end of the queue."""

    title = "time sharing"

    def rank_within_task(self, job: WaitingJob) -> int:
        return job.turn

    def urgency(self, job: WaitingJob, now: int) -> float:
        return job.turn

    def can_preempt(self, running: WaitingJob, best: WaitingJob, now: int, begun: int) -> bool:
        return self.preemption != "none" and now - begun >= self.quantum


class EarliestDeadline(Policy):
    """Policy that runs the job with the earliest deadline; jobs without one come last."""

    title = "earliest deadline first"

    def urgency(self, job: WaitingJob, now: int) -> float:
        return NO_DEADLINE if job.deadline is None else job.deadline


class LeastLaxity(Policy):
    """Policy that prefers the job with the least time to spare before its deadline.

    Laxity is the time to the deadline minus the cycles that the job still needs alone.
    """

    title = "least laxity"

    def urgency(self, job: WaitingJob, now: int) -> float:
        return (
            NO_DEADLINE
            if job.deadline is None
            else job.deadline - now - job.estimate_remaining(now)
        )


class JustInTime(Policy):
    """Policy whose priorities follow observed lateness.

    It uses the lateness of the task's last jobs and of the current job so far. Lateness is response
    time divided by deadline. A task's lateness is the mean of its last job's and its own previous
    value, so that old jobs count less and less. A job without a deadline is never late. Method:
    section 2.5 of Li et al. (2022).
    """

    title = "just-in-time priorities"

    def __init__(self, preemption: Preemption = "none", quantum: int = 0) -> None:
        super().__init__(preemption, quantum)
        self._lateness: defaultdict[int, float] = defaultdict(float)

    def urgency(self, job: WaitingJob, now: int) -> float:
        if job.task.deadline is None:
            return 0.0
        return -self._lateness[job.index] - (now - job.release) / job.task.deadline

    def note_end(self, job: WaitingJob, now: int) -> None:
        if job.task.deadline is not None:
            late = (now - job.release) / job.task.deadline
            self._lateness[job.index] = (self._lateness[job.index] + late) / 2


class Migration(JustInTime):
    """Policy with just-in-time priorities whose jobs may move to another kind of unit.

    Jobs leave their home for the unit that is predicted to end them first.
    """

    migrates = True
    title = "just-in-time priorities with migration"


CO_OPTIMISED = "co-optimised"
"""Policy of migration in which the variants of all tasks' networks are chosen together."""
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
"""Policies by the names that commands and files use."""


def make_policy(name: str, preemption: Preemption, quantum: int) -> Policy:
    """Return a new scheduling policy with a given name.

    Raise InputError for an unknown name.
    """
    if name not in POLICIES:
        raise InputError(
            f"unknown policy '{name}'; {suggest_name(name, POLICIES)}choose one of "
            f"{', '.join(POLICIES)}"
        )
    return POLICIES[name](preemption, quantum)
