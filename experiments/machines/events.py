"""Event-driven time of a described machine: start and end of every task of a task graph.

Takes tasks in program order, the units that execute them and the shared memory port. One issuer
sends the tasks to the queues of their units. A unit executes its tasks in order, each after the
tasks that it needs. Descriptions of machines (`description.py`) use it for operations with tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dla_sim.engine.bus import NEVER, BusArbiter
from experiments.machines.description import UnitTask
from isa.errors import InputError


@dataclass(frozen=True)
class SharedPort:
    """Memory port that the units of an event-driven machine share.

    Attributes:
        width: bytes that the port transfers in one cycle.
        latency: cycles from the request of a task until it competes for the port.
        round_robin: units in transfer share the port cycle by cycle; otherwise one transfer
            completes before the next begins, in the order of their requests.
    """

    width: int
    latency: int = 0
    round_robin: bool = True

    def __post_init__(self) -> None:
        _check_number("SharedPort: width", self.width, 1)
        _check_number("SharedPort: latency", self.latency, 0)


@dataclass(frozen=True)
class UnitAccount:
    """Cycles of one unit; busy and waiting cycles add up to the total of the run.

    Attributes:
        busy: cycles of its tasks, including their cycles on the memory port.
        waiting: waiting cycles by cause: ``issue`` (no task in the queue), ``port`` (another unit
            transfers), ``finished`` (no task left), or the name of the unit whose task is needed.
    """

    busy: int
    waiting: Mapping[str, int]


@dataclass(frozen=True)
class TaskTimes:
    """Start and end of each task in cycles (half-open intervals) and the accounts of the units.

    ``critical_path`` has the tasks that determine the total, in order. Each starts at the end of
    the previous one, or later if the issuer sends it later.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    total: int
    units: Mapping[str, UnitAccount]
    critical_path: tuple[int, ...]


def simulate_tasks(
    tasks: Sequence[UnitTask],
    units: Mapping[str, int],
    port: SharedPort,
    issue_cycles: int = 0,
) -> TaskTimes:
    """Return when each task starts and ends. The work is proportional to the number of tasks.

    Args:
        tasks: tasks in the order in which the issuer sends them.
        units: depth of the task queue of each unit, the executing task included.
        port: memory port of the machine.
        issue_cycles: cycles between two tasks that the issuer sends.

    Raises:
        InputError: the depth of a queue or ``issue_cycles`` is no integer or too small, a task
            names an unknown unit, or needs a task that does not come before it.
    """
    _check_number("issue_cycles", issue_cycles, 0)
    _check(tasks, units)
    run = _TaskRun(tasks, units, port, issue_cycles)
    run.settle()
    while run.finish_transfer():
        run.settle()
    total = max(run.ends, default=0)
    accounts = {name: run.account(number, total) for number, name in enumerate(units)}
    path = run.find_critical_path()
    return TaskTimes(tuple(run.starts), tuple(run.ends), total, accounts, path)


def _check_number(name: str, value: int, least: int) -> None:
    """Raise InputError if a number of the machine is no integer of ``least`` or more."""
    if not isinstance(value, int) or value < least:
        raise InputError(f"{name} is {value}; use an integer of {least} or more")


def _check(tasks: Sequence[UnitTask], units: Mapping[str, int]) -> None:
    """Raise InputError for a bad queue, unit or need; the evaluator checks cycles and bytes."""
    for name, depth in units.items():
        _check_number(f"queue depth of unit {name}", depth, 1)
    for number, task in enumerate(tasks):
        where = f"{task.layer}: task {number} of unit {task.unit}"
        if task.unit not in units:
            raise InputError(f"{where}: no such unit; the machine has {', '.join(units)}")
        for needed in task.needs:
            if not 0 <= needed < number:
                raise InputError(
                    f"{where}: needs task {needed}, which is not an earlier task; "
                    f"list each task after those that it needs"
                )


class _TaskRun:
    """One simulation: the times known so far and the transfers in progress."""

    def __init__(
        self,
        tasks: Sequence[UnitTask],
        units: Mapping[str, int],
        port: SharedPort,
        issue_cycles: int,
    ) -> None:
        number_of = {name: number for number, name in enumerate(units)}
        self.names = tuple(units)
        self.tasks = tasks
        self.port = port
        self.depths = tuple(units.values())
        self.issue_cycles = issue_cycles
        self.unit_of = [number_of[task.unit] for task in tasks]
        self.members: list[list[int]] = [[] for _ in units]
        self.position = []
        for number, unit in enumerate(self.unit_of):
            self.position.append(len(self.members[unit]))
            self.members[unit].append(number)
        self.slots = [
            -(-task.bytes // port.width) if task.port_cycles is None else task.port_cycles
            for task in tasks
        ]
        self.arrivals = [NEVER] * len(tasks)
        self.starts = [NEVER] * len(tasks)
        self.ends = [NEVER] * len(tasks)
        self.issued = 0
        # per unit: index in members of the task that starts next, and end of the task before it
        self.next = [0] * len(units)
        self.free = [0] * len(units)
        self.arbiter = BusArbiter(len(units))
        # transfers that wait for their first port cycle: (request, unit), and task by unit
        self.requests: list[tuple[int, int]] = []
        self.transferring = [-1] * len(units)

    def settle(self) -> None:
        """Compute all times that do not depend on the end of a transfer in progress."""
        changed = True
        while changed:
            changed = self._issue()
            for unit in range(len(self.names)):
                changed |= self._execute(unit)

    def _issue(self) -> bool:
        """Send tasks to their queues until a queue is full."""
        before = self.issued
        while self.issued < len(self.tasks):
            number = self.issued
            unit = self.unit_of[number]
            place = self.position[number] - self.depths[unit]
            room = self.ends[self.members[unit][place]] if place >= 0 else 0
            if room == NEVER:
                break
            earliest = self.arrivals[number - 1] + self.issue_cycles if number else 0
            self.arrivals[number] = max(earliest, room)
            self.issued += 1
        return self.issued > before

    def _execute(self, unit: int) -> bool:
        """Start the tasks of a unit until one transfers or needs a task that has not ended."""
        members = self.members[unit]
        changed = False
        while self.next[unit] < len(members) and self.transferring[unit] < 0:
            number = members[self.next[unit]]
            task = self.tasks[number]
            begin = max(
                self.free[unit], self.arrivals[number], *(self.ends[need] for need in task.needs)
            )
            if begin == NEVER:
                break
            changed = True
            self.next[unit] += 1
            self.starts[number] = begin
            if self.slots[number]:
                self.transferring[unit] = number
                self.requests.append((begin + task.cycles + self.port.latency, unit))
                self.requests.sort()
            else:
                self.ends[number] = self.free[unit] = begin + task.cycles
        return changed

    def finish_transfer(self) -> bool:
        """Advance the port until a transfer ends; return False if none is in progress."""
        arbiter = self.arbiter
        requests = self.requests
        while requests or arbiter.waiting:
            if arbiter.waiting:
                shared = self.port.round_robin and requests
                ended = arbiter.grant(requests[0][0] if shared else NEVER)
                if ended >= 0:
                    number = self.transferring[ended]
                    self.ends[number] = self.free[ended] = arbiter.now
                    self.transferring[ended] = -1
                    return True
            time, unit = requests.pop(0)
            arbiter.now = max(arbiter.now, time)
            arbiter.begin(unit, self.slots[self.transferring[unit]])
        return False

    def find_critical_path(self) -> tuple[int, ...]:
        """Return the tasks that determine the end of the run, in order."""
        path = []
        number = max(range(len(self.tasks)), key=self.ends.__getitem__, default=-1)
        while number >= 0:
            path.append(number)
            number = self._find_cause(number)
        return tuple(reversed(path))

    def _find_cause(self, number: int) -> int:
        """Return the earlier task whose end determines the start of a task, or -1."""
        place = self.position[number]
        before = self.members[self.unit_of[number]][place - 1 : place] if place else []
        for cause in (*self.tasks[number].needs, *before):
            if self.ends[cause] == self.starts[number]:
                return cause
        # the issuer sends the task late: find the task whose end made room in a queue
        while number >= 0:
            unit = self.unit_of[number]
            place = self.position[number] - self.depths[unit]
            if place >= 0 and self.ends[self.members[unit][place]] == self.arrivals[number]:
                return self.members[unit][place]
            number -= 1
        return -1

    def account(self, unit: int, total: int) -> UnitAccount:
        """Return where the cycles of a unit go."""
        waiting: dict[str, int] = {}

        def add(cause: str, cycles: int) -> None:
            if cycles:
                waiting[cause] = waiting.get(cause, 0) + cycles

        busy = 0
        free = 0
        for number in self.members[unit]:
            task = self.tasks[number]
            own = task.cycles + self.slots[number]
            own += self.port.latency if self.slots[number] else 0
            arrived = max(free, self.arrivals[number])
            add("issue", arrived - free)
            if self.starts[number] > arrived:
                last = max(task.needs, key=lambda need: self.ends[need])
                add(self.names[self.unit_of[last]], self.starts[number] - arrived)
            add("port", self.ends[number] - self.starts[number] - own)
            busy += own
            free = self.ends[number]
        add("finished", total - free)
        return UnitAccount(busy, waiting)
