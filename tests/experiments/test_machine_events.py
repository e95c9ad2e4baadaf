"""Times of task graphs, against an independent SimPy model of issuer, queues, units and port."""

import random
from collections.abc import Generator
from typing import Any

import pytest
import simpy

from experiments.machines.description import UnitTask
from experiments.machines.events import SharedPort, TaskTimes, simulate_tasks
from isa.errors import InputError

UNITS = {"load": 2, "compute": 3, "store": 1}


class _Model:
    """SimPy model: one process for the issuer, for each unit and for the port.

    The port serves cycle by cycle, half a cycle after the units act, so that all requests of a
    cycle compete for it.
    """

    def __init__(
        self, tasks: list[UnitTask], units: dict[str, int], port: SharedPort, issue: int
    ) -> None:
        self.env: Any = simpy.Environment()
        self.tasks = tasks
        self.port = port
        self.units = list(units)
        self.done = [self.env.event() for _ in tasks]
        self.start = [0] * len(tasks)
        self.end = [0] * len(tasks)
        self.queues: dict[str, Any] = {name: simpy.Store(self.env) for name in units}
        self.room: dict[str, Any] = {
            name: simpy.Container(self.env, depth, depth) for name, depth in units.items()
        }
        self.transfers: list[list[Any]] = []
        self.env.process(self.issuer(issue))
        for name in units:
            self.env.process(self.unit(name))
        self.env.process(self.arbiter())
        self.env.run(self.env.all_of(self.done))

    def issuer(self, issue: int) -> Generator[Any, Any, None]:
        for number, task in enumerate(self.tasks):
            if number and issue:
                yield self.env.timeout(issue)
            yield self.room[task.unit].get(1)
            yield self.queues[task.unit].put(number)

    def unit(self, name: str) -> Generator[Any, Any, None]:
        while True:
            number = yield self.queues[name].get()
            task = self.tasks[number]
            for need in task.needs:
                yield self.done[need]
            self.start[number] = int(self.env.now)
            yield self.env.timeout(task.cycles)
            slots = task.port_cycles
            if slots is None:
                slots = -(-task.bytes // self.port.width)
            if slots:
                yield self.env.timeout(self.port.latency)
                ready = self.env.event()
                self.transfers.append([self.units.index(name), slots, ready, self.env.now])
                yield ready
            self.end[number] = int(self.env.now)
            self.done[number].succeed()
            yield self.room[name].put(1)

    def arbiter(self) -> Generator[Any, Any, None]:
        count = len(self.units)
        last = count - 1
        current = None
        yield self.env.timeout(0.5)
        while True:
            chosen = None
            if self.transfers:
                if self.port.round_robin:
                    last_served = last
                    chosen = min(self.transfers, key=lambda one: (one[0] - last_served - 1) % count)
                    last = chosen[0]
                else:
                    first = min(self.transfers, key=lambda one: (one[3], one[0]))
                    current = current or first
                    chosen = current
                chosen[1] -= 1
            yield self.env.timeout(0.5)
            if chosen and not chosen[1]:
                self.transfers.remove(chosen)
                current = None
                chosen[2].succeed()
            yield self.env.timeout(0.5)


def _draw_tasks(rng: random.Random, count: int) -> list[UnitTask]:
    tasks = []
    for number in range(count):
        needs = tuple(rng.sample(range(number), min(number, rng.choice((0, 0, 1, 1, 2)))))
        size = rng.choice((0, 0, 1, 5, 16, 40))
        slots = rng.choice((None, None, rng.randrange(12)))
        unit = rng.choice(list(UNITS))
        tasks.append(UnitTask(unit, rng.randrange(9), size, needs, "layer", port_cycles=slots))
    return tasks


@pytest.mark.parametrize("round_robin", [True, False])
def test_times_equal_those_of_an_independent_model(round_robin: bool) -> None:
    """200 random task graphs: start, end and total are equal, and the accounts add up."""
    rng = random.Random(48)
    for _ in range(200):
        tasks = _draw_tasks(rng, rng.randrange(1, 40))
        port = SharedPort(rng.choice((1, 4, 8)), rng.randrange(4), round_robin)
        issue = rng.randrange(3)
        times = simulate_tasks(tasks, UNITS, port, issue)
        model = _Model(tasks, UNITS, port, issue)
        assert times.start == tuple(model.start)
        assert times.end == tuple(model.end)
        for account in times.units.values():
            assert account.busy + sum(account.waiting.values()) == times.total
        _check_critical_path(times, issue)


def _check_critical_path(times: TaskTimes, issue: int) -> None:
    """The path begins at 0 and ends with the run; gaps exist only if the issuer takes cycles."""
    path = times.critical_path
    assert times.end[path[-1]] == times.total
    ends = (0, *(times.end[number] for number in path))
    gaps = [times.start[number] - end for number, end in zip(path, ends, strict=False)]
    assert min(gaps) >= 0
    assert issue or not any(gaps)


def test_two_transfers_share_the_port() -> None:
    """Two transfers of 4 cycles take turns: 7 and 8 cycles with round robin, 4 and 8 without."""
    tasks = [UnitTask("load", 0, 32), UnitTask("store", 0, 32)]
    shared = simulate_tasks(tasks, UNITS, SharedPort(8))
    assert shared.end == (7, 8)
    assert shared.units["load"].waiting == {"port": 3, "finished": 1}
    assert simulate_tasks(tasks, UNITS, SharedPort(8, round_robin=False)).end == (4, 8)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            UnitTask("load", 1, needs=(1,), layer="conv1"),
            "conv1: task 1 of unit load: needs task 1",
        ),
        (UnitTask("load", 1, needs=(2,)), "needs task 2, which is not an earlier task"),
        (UnitTask("vector", 1), "no such unit; the machine has load, compute, store"),
    ],
)
def test_bad_tasks_give_one_line(task: UnitTask, words: str) -> None:
    """An unknown unit, and a task that needs itself or a later one."""
    tasks = [UnitTask("load", 1), task, UnitTask("store", 1)]
    with pytest.raises(InputError) as error:
        simulate_tasks(tasks, UNITS, SharedPort(8))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("depth", "issue", "words"),
    [
        (2.5, 0, "queue depth of unit load is 2.5; use an integer of 1 or more"),
        (0, 0, "queue depth of unit load is 0; use an integer of 1 or more"),
        (1, 1.5, "issue_cycles is 1.5; use an integer of 0 or more"),
        (1, -5, "issue_cycles is -5; use an integer of 0 or more"),
    ],
)
def test_bad_numbers_of_a_machine_give_one_line(depth: Any, issue: Any, words: str) -> None:
    with pytest.raises(InputError) as error:
        simulate_tasks([UnitTask("load", 1)], {"load": depth}, SharedPort(8), issue)
    assert str(error.value) == words
