"""Simulation of a system: jobs are released, wait, run, are preempted, resume and end.

Every cycle has one cause.

Events are releases, ends, and questions whether a program may continue at a preemption point.
Within a cycle, ends are handled first (by machine, then by core), then releases (by task), then
questions (by machine). Then free units take jobs (accelerators before cores).
"""

from __future__ import annotations

import heapq
import itertools
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dla_sim.engine.bus import NEVER, PORTS
from dla_sim.systems.machines import MachineEvent, Machines, Running, SharedMemory
from dla_sim.systems.policies import Policy
from dla_sim.systems.spec import CPU, System, SystemTask, core_name
from dla_sim.systems.work import JobStage, Plan, Plans, ProgramWork, Remainder
from isa import memory
from isa.progress import Progress, silent

CAUSES = ("dla", "cpu", "transfer", "wait_dla", "wait_cpu", "memory", "preempted", "saving")
"""Causes of a job's response time.

``dla``, ``cpu``, ``transfer``: cycles of its stages alone. ``wait_dla``, ``wait_cpu``: waiting for
an accelerator or a core. ``memory``: delay by other accelerators on the memory. ``preempted``:
extra cycles of stages that were preempted. ``saving``: saving the scratchpad.
"""


TRAFFIC_BINS = 200
"""Number of equal parts of the run in which the memory's traffic is counted."""


class Job:
    """Job of a task: the work that one release of the task starts."""

    __slots__ = (
        "cuts", "deadline", "index", "left", "number", "plan", "ran", "release", "since", "spent",
        "stage", "task",
        "turn", "until", "variant",
    )  # fmt: skip

    def __init__(self, index: int, task: SystemTask, number: int, release: int) -> None:
        self.index = index
        self.task = task
        self.number = number
        self.release = release
        self.deadline = None if task.deadline is None else release + task.deadline
        self.variant = 0
        self.plan: Plan | None = None
        self.stage = 0
        self.ran = 0  # cycles of the current stage so far
        self.left: Remainder | None = None  # remainder of its program after preemption
        self.cuts: tuple[int, ...] = ()  # commands before which its program was preempted
        self.since = release  # cycle in which it began to wait or to run
        self.turn = 0
        self.until = 0  # cycle in which its stage on a core ends
        self.spent = dict.fromkeys(CAUSES, 0)

    @property
    def current(self) -> JobStage:
        """Stage of its work that a job waits for or runs."""
        assert self.plan is not None
        return self.plan.stages[self.stage]

    @property
    def wants(self) -> str:
        """Kind of unit that a job's current stage runs on."""
        assert self.plan is not None
        return self.plan.kind if self.current.on == "dla" else CPU

    @property
    def fresh(self) -> bool:
        """True if no part of a job has run."""
        return not self.stage and not self.ran

    def estimate_remaining(self, now: int) -> int:
        """Return how many more cycles a job needs alone; an estimate while a stage runs."""
        assert self.plan is not None
        return max(0, self.current.cycles - self.ran) + self.plan.behind[self.stage]

    @property
    def name(self) -> str:
        """Name of a job: the name of its task and its number."""
        return f"{self.task.name}#{self.number}"


@dataclass
class TaskRecord:
    """Results of a task's jobs: response times of ended jobs, in order, and their cycles by cause.

    ``late`` jobs ended after their deadline; ``overdue`` ones were unfinished when it passed.
    """

    responses: array[int] = field(default_factory=lambda: array("q"))
    released: int = 0
    skipped: int = 0
    late: int = 0
    overdue: int = 0
    spent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    preemptions: int = 0


@dataclass(frozen=True)
class Interval:
    """Interval [start, end) of cycles in which a unit does one activity.

    The unit ran job ``number`` of the task with index ``task`` or, with ``saving``, saved the
    scratchpad of that job.

    ``saving`` True: the unit saved the scratchpad of the job.
    """

    unit: str
    start: int
    end: int
    task: int
    number: int
    saving: bool = False


@dataclass
class SystemRecord:
    """Results of the simulation of a system.

    ``busy``: cycles by unit. ``compute``: cycles of each accelerator's EX, in programs that ended.
    ``traffic``: memory slots in each of :data:`TRAFFIC_BINS` equal parts of the run.
    """

    cycles: int
    tasks: list[TaskRecord]
    busy: dict[str, int]
    compute: dict[str, int]
    memory_slots: int
    unfinished: int
    traffic: list[int]

    @property
    def missed(self) -> int:
        """Jobs of all tasks that missed their deadlines."""
        return sum(task.late + task.overdue for task in self.tasks)


TURNS = 4096
"""Turns of the event loop between two progress reports and memory checks."""
JOB_BYTES = 1 << 10
"""Approximate memory of a job that has not ended."""
Ways = dict[tuple[ProgramWork, tuple[int, ...]], str]
"""Distinct ways in which programs ran in pieces (program, preemption points), and the first job
of each.
"""


class SystemSimulation:
    """Simulation of a system under a policy for ``until`` cycles; unfinished work is cut off there.

    ``variants[t]`` is the variant of task t's jobs. ``watch`` is called with every interval of a
    unit. ``ways`` collects the ways in which programs ran in pieces; its size grows with their
    number. Otherwise memory grows only with response times, eight bytes a job, and with waiting
    jobs.
    """

    def __init__(
        self,
        system: System,
        plans: Plans,
        policy: Policy,
        until: int,
        variants: Sequence[int] | None = None,
        watch: Callable[[Interval], None] | None = None,
        ways: Ways | None = None,
    ) -> None:
        self._system = system
        self._plans = plans
        self._policy = policy
        self._until = until
        self._variants = variants or [0] * len(system.tasks)
        self._watch = watch
        self._ways = ways
        count = len(system.accelerators)
        self._memory = SharedMemory(memory_ports(system), system.grants, self._meter)
        self._machines = Machines(count, self._memory)
        self._on: list[Job | None] = [None] * count
        self._saving: list[bool] = [False] * count
        self._cores: list[Job | None] = [None] * system.cores
        kinds = [CPU, *(one.kind for one in system.accelerators)]
        # By kind of unit and task, the waiting jobs in the order in which they run.
        self._queues: dict[str, list[list[Job]]] = {
            kind: [[] for _ in system.tasks] for kind in kinds
        }
        self._turns = 0
        self._now = 0
        self._releases = [
            _releases(task, index, system.seed) for index, task in enumerate(system.tasks)
        ]
        self._next = [
            (next(times), index)
            for index, times in enumerate(self._releases)
            if system.tasks[index].period
        ]
        heapq.heapify(self._next)
        self._followers = {
            task.name: [i for i, other in enumerate(system.tasks) if task.name in other.after]
            for task in system.tasks
        }
        self._fed = [dict.fromkeys(task.after, False) for task in system.tasks]
        self.record = SystemRecord(
            0, [TaskRecord() for _ in system.tasks], dict.fromkeys(system.units, 0),
            {one.name: 0 for one in system.accelerators}, 0, 0, [0] * TRAFFIC_BINS,
        )  # fmt: skip
        self._live: list[set[Job]] = [set() for _ in system.tasks]
        self._load: Counter[str] = Counter()  # cycles alone of all unfinished jobs, by kind

    def run(self, progress: Progress = silent) -> SystemRecord:
        """Simulate all events before cycle ``until``; ``progress`` is called regularly.

        Raises InputError if waiting jobs need more memory than is allowed.
        """
        for turn in itertools.count():
            if turn % TURNS == 0:
                progress(f"simulating {self._system.name}", self._now, self._until)
                waiting = sum(map(len, self._live))
                memory.require(
                    JOB_BYTES * waiting,
                    f"{self._system.source}: {waiting:,} jobs that wait for others",
                )
            self._dispatch()
            release = self._next[0][0] if self._next else NEVER
            limit = min(self._until, release, self._next_core_end())
            happened = self._machines.advance(limit)
            self._now = happened[0].time if happened else limit
            if self._now >= self._until:
                break
            for one in happened:
                if one.ended:
                    self._handle_program_end(one.running)
            self._core_ends()
            self._release()
            for one in happened:
                if not one.ended:
                    self._handle_request(one)
        self._stop()
        return self.record

    def _meter(self, start: int, cycles: int, slots: int) -> None:
        """Add memory slots to the traffic of each time bin, spread evenly over the cycles."""
        end = start + cycles
        while start < end:
            part = min(start * TRAFFIC_BINS // self._until, TRAFFIC_BINS - 1)
            stop = min(end, -(-(part + 1) * self._until // TRAFFIC_BINS))
            share = slots * (stop - start) // (end - start)
            self.record.traffic[part] += share
            slots -= share
            start = stop

    # Releases.

    def _release(self) -> None:
        while self._next and self._next[0][0] <= self._now:
            _, index = heapq.heappop(self._next)
            heapq.heappush(self._next, (next(self._releases[index]), index))
            self._new(index)

    def _new(self, index: int) -> None:
        """Release a job of a task now, or skip it."""
        record = self.record.tasks[index]
        if self._system.tasks[index].skips and self._live[index]:
            record.skipped += 1
            return
        job = Job(index, self._system.tasks[index], record.released, self._now)
        record.released += 1
        job.variant = self._variants[index]
        self._live[index].add(job)
        self._place(job)
        self._enqueue(job)

    def _enqueue(self, job: Job) -> None:
        job.since = self._now
        job.turn = self._turns
        self._turns += 1
        self._wait(job)

    def _wait(self, job: Job) -> None:
        insort(self._queues[job.wants][job.index], job, key=self._policy.rank_within_task)

    # Placement.

    def _place(self, job: Job) -> None:
        """Give a job the plan with which it is predicted to end first.

        A job with a home uses the plan of its home. A job without a home, or under a policy that
        migrates, has several plans. Ties follow the task's ``on``.
        """
        task = job.task
        kinds = task.on if task.home is None or self._policy.migrates else (task.home,)
        plans = [self._plans[job.index, job.variant, kind] for kind in kinds]
        if job.plan is not None:
            self._load[job.plan.kind] -= job.plan.cycles
        job.plan = plans[0] if len(plans) == 1 else min(plans, key=self._predict_end)
        self._load[job.plan.kind] += job.plan.cycles

    def _predict_end(self, plan: Plan) -> float:
        """Return the estimated cycles until a job ends if it follows ``plan``.

        The job runs after all other jobs of its kind.
        """
        units = (
            sum(one.kind == plan.kind for one in self._system.accelerators) or self._system.cores
        )
        return self._load[plan.kind] / units + plan.cycles

    # Dispatch.

    def _dispatch(self) -> None:
        if self._policy.migrates:
            self._reconsider()
        for machine, accelerator in enumerate(self._system.accelerators):
            if self._machines.running[machine] is None:
                best = self._best(accelerator.kind)
                if best is not None:
                    self._start(machine, best)
        for number in range(len(self._cores)):
            if self._cores[number] is None:
                best = self._best(CPU)
                if best is not None:
                    self._take_core(number, best)
        if self._policy.preemption != "none":
            self._swap_cores()

    def _reconsider(self) -> None:
        """Choose a plan again for each job at the head of a queue, unless a part of it has run.

        Each kind of unit has a queue per task.
        """
        heads = [
            queue[0]
            for queues in self._queues.values()
            for queue in queues
            if queue and queue[0].fresh
        ]
        for job in heads:
            self._queues[job.wants][job.index].remove(job)
            self._place(job)
            self._wait(job)

    def _list_waiting(self, kind: str) -> Iterator[Job]:
        """Yield the first job of each task that waits for a unit of a given kind."""
        return (queue[0] for queue in self._queues[kind] if queue)

    def _best(self, kind: str) -> Job | None:
        return min(self._list_waiting(kind), key=self._rank, default=None)

    def _rank(self, job: Job) -> tuple[float, int, int, int]:
        return self._policy.urgency(job, self._now), job.release, job.index, job.number

    # Accelerators.

    def _start(self, machine: int, job: Job) -> None:
        self._queues[job.wants][job.index].remove(job)
        job.spent["wait_dla"] += self._now - job.since
        job.since = self._now
        work = job.current.work
        assert work is not None
        workload = job.left.resume if job.left else work.workload
        stops = job.left.stops if job.left else work.stops(self._policy.preemption).stops
        self._on[machine] = job
        self._machines.start(machine, workload, self._now, stops)

    def _handle_request(self, one: MachineEvent) -> None:
        job = self._on[one.running.machine]
        assert job is not None
        assert job.plan is not None
        best = self._best(job.plan.kind)
        if best is not None and self._policy.can_preempt(job, best, self._now, job.since):
            one.running.give_way()
        else:
            one.running.go_on()

    def _handle_program_end(self, running: Running) -> None:
        machine = running.machine
        name = self._system.accelerators[machine].name
        job = self._on[machine]
        assert job is not None
        took = self._now - running.start
        self._record_use(name, running.start, job, self._saving[machine])
        if self._saving[machine]:
            job.spent["saving"] += took
            self._free(machine, job)
            return
        self.record.compute[name] += running.compute_cycles()
        job.ran += took
        if running.cut is None:
            self._on[machine] = None
            self._handle_stage_end(job)
            return
        self._give_way(machine, job, running.cut)

    def _give_way(self, machine: int, job: Job, cut: int) -> None:
        """Save the live bytes of a program that was preempted before command ``cut``.

        If there are none, the machine is free at once and the job is queued.
        """
        work = job.current.work
        assert work is not None
        stop = cut + (job.left.shift if job.left else 0)
        job.left = work.make_remainder(self._policy.preemption, stop)
        job.cuts = (*job.cuts, stop)
        self.record.tasks[job.index].preemptions += 1
        if job.left.save is None:
            self._free(machine, job)
            return
        self._saving[machine] = True
        self._machines.start(machine, job.left.save, self._now)

    def _free(self, machine: int, job: Job) -> None:
        self._saving[machine] = False
        self._on[machine] = None
        self._enqueue(job)

    # Cores.

    def _take_core(self, number: int, job: Job) -> None:
        self._queues[job.wants][job.index].remove(job)
        job.spent["wait_cpu"] += self._now - job.since
        job.since = self._now
        job.until = self._now + job.current.cycles - job.ran
        self._cores[number] = job

    def _leave_core(self, number: int) -> Job:
        job = self._cores[number]
        assert job is not None
        self._cores[number] = None
        self._record_use(core_name(number), job.since, job)
        job.ran += self._now - job.since
        return job

    def _swap_cores(self) -> None:
        """Preempt the least urgent job on a CPU core while the policy allows it.

        The most urgent waiting job takes its core.
        """
        while best := self._best(CPU):
            on = [
                (self._rank(job), number, job)
                for number, job in enumerate(self._cores)
                if job and job.since < self._now
            ]
            if not on:
                return
            _, last, running = max(on, key=lambda item: item[:2])
            if not self._policy.can_preempt(running, best, self._now, running.since):
                return
            self._enqueue(self._leave_core(last))
            self._take_core(last, best)

    def _next_core_end(self) -> int:
        """Return when the next stage or quantum ends on a CPU core.

        Quanta count only if a job waits for a core.
        """
        jobs = [job for job in self._cores if job is not None]
        first = min((job.until for job in jobs), default=NEVER)
        if (
            self._policy.preemption != "none"
            and self._policy.quantum
            and any(self._list_waiting(CPU))
        ):
            ends = [job.since + self._policy.quantum for job in jobs]
            first = min([first, *(end for end in ends if end > self._now)])
        return first

    def _core_ends(self) -> None:
        for number, job in enumerate(self._cores):
            if job is not None and job.until <= self._now:
                self._leave_core(number)
                self._handle_stage_end(job)

    # Ends.

    def _handle_stage_end(self, job: Job) -> None:
        stage = job.current
        job.spent[stage.on] += stage.cycles
        if stage.on == "dla":  # its extra cycles have one cause
            job.spent["preempted" if job.cuts else "memory"] += job.ran - stage.cycles
            if job.cuts and stage.work is not None and self._ways is not None:
                self._ways.setdefault((stage.work, job.cuts), job.name)
        job.ran = 0
        job.left = None
        job.cuts = ()
        assert job.plan is not None
        if job.stage + 1 < len(job.plan.stages):
            job.stage += 1
            self._enqueue(job)
            return
        self._live[job.index].remove(job)
        self._load[job.plan.kind] -= job.plan.cycles
        record = self.record.tasks[job.index]
        response = self._now - job.release
        assert sum(job.spent.values()) == response, "every cycle of a job has one cause"
        record.responses.append(response)
        record.late += job.deadline is not None and self._now > job.deadline
        for cause, cycles in job.spent.items():
            record.spent[cause] += cycles
        self._policy.note_end(job, self._now)
        for index in self._followers[job.task.name]:
            fed = self._fed[index]
            fed[job.task.name] = True
            if all(fed.values()):
                self._fed[index] = dict.fromkeys(fed, False)
                self._new(index)

    def _record_use(self, unit: str, start: int, job: Job, saving: bool = False) -> None:
        self.record.busy[unit] += self._now - start
        if self._watch is not None:
            self._watch(Interval(unit, start, self._now, job.index, job.number, saving))

    def _stop(self) -> None:
        """Cut off unfinished work at the end of the simulation, and count overdue jobs."""
        record = self.record
        record.cycles = self._now
        record.unfinished = sum(map(len, self._live))
        record.memory_slots = self._memory.served
        for index, jobs in enumerate(self._live):
            record.tasks[index].overdue = sum(
                job.deadline is not None and job.deadline < self._now for job in jobs
            )
        for machine, running in enumerate(self._machines.running):
            busy = self._on[machine]
            if running is not None and busy is not None:
                self._record_use(
                    self._system.accelerators[machine].name,
                    running.start,
                    busy,
                    self._saving[machine],
                )
        for number, on_core in enumerate(self._cores):
            if on_core is not None:
                self._record_use(core_name(number), on_core.since, on_core)


def memory_ports(system: System) -> list[list[int]]:
    """Return the memory requesters (fetch, LD, ST of machines) that share each memory port.

    There is one port for all, or one per accelerator with its parts.
    """
    ports: dict[int, list[int]] = {}
    for machine, accelerator in enumerate(system.accelerators):
        mine = range(machine * len(PORTS), (machine + 1) * len(PORTS))
        ports.setdefault(0 if system.shared_port else accelerator.number, []).extend(mine)
    return list(ports.values())


def _releases(task: SystemTask, index: int, seed: int) -> Iterator[int]:
    """Yield the release times of a periodic or sporadic task in ascending order.

    ``seed`` determines random draws.
    """
    if task.period is None:
        return
    generator = np.random.default_rng([seed, index])
    time = task.offset
    before = 0
    while True:
        before = max(
            before, time + (int(generator.integers(task.jitter + 1)) if task.jitter else 0)
        )
        yield before
        time += task.period
        if task.sporadic is not None:
            time += int(generator.exponential(task.sporadic))
