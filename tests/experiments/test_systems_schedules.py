"""Schedules by hand, and what scheduling theory says, on systems of CPU cores alone: their times are plain numbers."""

from __future__ import annotations

from math import lcm

import pytest

from experiments.systems.policies import make_policy
from experiments.systems.simulate import Interval, Record, Simulation
from experiments.systems.spec import parse_system
from experiments.systems.work import make_plans

Tasks = list[dict[str, object]]


def _run(
    tasks: Tasks, policy: str, preemption: str, until: int, quantum: int = 0, cores: int = 1
) -> tuple[Record, list[Interval]]:
    lines = [f"[cpu]\ncores = {cores}"]
    for task in tasks:
        lines.append("[[task]]")
        lines += [f"{key} = {value!r}".replace("'", '"') for key, value in task.items()]
    system = parse_system("\n".join(lines))
    intervals: list[Interval] = []
    simulation = Simulation(
        system, make_plans(system), make_policy(policy, preemption, quantum), until, watch=intervals.append
    )
    return simulation.run(), sorted(intervals, key=lambda one: (one.start, one.unit))


def _spans(intervals: list[Interval]) -> list[tuple[str, int, int]]:
    return [(f"{'abcd'[one.task]}#{one.number}", one.start, one.end) for one in intervals]


THREE: Tasks = [
    {"name": "a", "cpu": 30, "period": 1000, "deadline": 100, "priority": 1},
    {"name": "b", "cpu": 20, "period": 1000, "offset": 10, "deadline": 30, "priority": 2},
    {"name": "c", "cpu": 10, "period": 1000, "offset": 20, "deadline": 60, "priority": 3},
]
"""a is there at 0 for 30 cycles, until 100; b at 10 for 20, until 40; c at 20 for 10, until 80."""

BY_HAND = [
    ("fcfs", "none", 0, [("a#0", 0, 30), ("b#0", 30, 50), ("c#0", 50, 60)]),
    ("priority", "none", 0, [("a#0", 0, 30), ("c#0", 30, 40), ("b#0", 40, 60)]),
    # b takes the core from a at 10, c from b at 20; then b has 10 left, a 20
    ("priority", "tile", 0, [("a#0", 0, 10), ("b#0", 10, 20), ("c#0", 20, 30), ("b#0", 30, 40), ("a#0", 40, 60)]),
    # b's deadline 40 is before c's 80 and a's 100
    ("edf", "tile", 0, [("a#0", 0, 10), ("b#0", 10, 30), ("c#0", 30, 40), ("a#0", 40, 60)]),
    ("edf", "none", 0, [("a#0", 0, 30), ("b#0", 30, 50), ("c#0", 50, 60)]),
    # at 30 b can wait 40 - 30 - 20 = -10 cycles, c 80 - 30 - 10 = 40
    ("least-laxity", "none", 0, [("a#0", 0, 30), ("b#0", 30, 50), ("c#0", 50, 60)]),
    # quantum 15: a until 15, b until 30, then c (there since 20) ends at 40 before a (back in the queue at 15)? No: a
    # went back at 15, before c came at 20: a 30 to 45, c 45 to 55, b, back since 30, 55 to 60
    ("round-robin", "tile", 15, [("a#0", 0, 15), ("b#0", 15, 30), ("a#0", 30, 45), ("c#0", 45, 55), ("b#0", 55, 60)]),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "preemption", "quantum", "expected"), BY_HAND)
def test_three_tasks_on_one_core(
    policy: str, preemption: str, quantum: int, expected: list[tuple[str, int, int]]
) -> None:
    record, intervals = _run(THREE, policy, preemption, 900, quantum)
    assert _spans(intervals) == expected
    assert [list(task.responses) for task in record.tasks] == [
        [max(end for what, _, end in expected if what == f"{name}#0") - offset]
        for name, offset in (("a", 0), ("b", 10), ("c", 20))
    ]


def test_just_in_time_priorities_follow_lateness() -> None:
    """Both come at 0, 100, ... for 60 cycles: one waits 60 of them. The first takes turns with the second.

    a first (first in the file): 60 of 80 and 120 of 80: lateness 0.75 / 2 and 1.5 / 2. So at 100 (on the core until
    120) b is more urgent: 120 to 180, then a until 240; and so on, each in turn the later one.
    """
    tasks: Tasks = [{"name": name, "cpu": 60, "period": 200, "deadline": 80} for name in "ab"]
    _, intervals = _run(tasks, "jit", "none", 800)
    assert ["ab"[one.task] for one in intervals] == list("abbaabba")


def test_rate_monotonic_at_its_bound() -> None:
    """Liu and Layland (1973): two tasks of utilisation 2(sqrt(2) - 1) = 0.828 in the worst proportion just hold.

    C1 = T2 - T1 and C2 = 2 T1 - T2: with periods 1000 and 1414 those are 414 and 586: 0.828. One more cycle of either
    and the second misses. Shorter periods have the higher priority.
    """

    def tasks(first: int, second: int) -> Tasks:
        return [
            {"name": "a", "cpu": first, "period": 1000, "deadline": 1000, "priority": 2},
            {"name": "b", "cpu": second, "period": 1414, "deadline": 1414, "priority": 1},
        ]

    until = lcm(1000, 1414)
    assert [task.late for task in _run(tasks(414, 586), "priority", "tile", until)[0].tasks] == [0, 0]
    assert _run(tasks(415, 586), "priority", "tile", until)[0].tasks[1].late > 0
    assert _run(tasks(414, 587), "priority", "tile", until)[0].tasks[1].late > 0


def test_earliest_deadline_first_holds_all_deadlines_at_full_utilisation() -> None:
    """Liu and Layland (1973), theorem 7: 25/50 + 35/70 = 1. With one cycle more somebody misses; so does rate
    monotonic at 1."""
    tasks: Tasks = [
        {"name": "a", "cpu": 25, "period": 50, "deadline": 50, "priority": 2},
        {"name": "b", "cpu": 35, "period": 70, "deadline": 70, "priority": 1},
    ]
    until = 350 * 20
    record, _ = _run(tasks, "edf", "tile", until)
    assert [task.late for task in record.tasks] == [0, 0]
    assert record.busy["cpu0"] == until
    assert sum(task.late for task in _run(tasks, "priority", "tile", until)[0].tasks) > 0
    longer: Tasks = [tasks[0], {**tasks[1], "cpu": 36}]
    assert sum(task.late for task in _run(longer, "edf", "tile", until)[0].tasks) > 0


def test_a_join_waits_for_all_and_takes_the_newest() -> None:
    """a ends at 10, 60, 110, ...; b at 30 (behind a), 130, ...: c follows b each time, a's second result is the newer.

    One core: a 0-10, b 10-30, c 30-35, a 50-60, a 100-110, b 110-130, c 130-135.
    """
    tasks: Tasks = [
        {"name": "a", "cpu": 10, "period": 50},
        {"name": "b", "cpu": 20, "period": 100},
        {"name": "c", "cpu": 5, "after": ["a", "b"], "deadline": 5},
    ]
    record, intervals = _run(tasks, "fcfs", "none", 149)
    assert [span for span in _spans(intervals) if span[0].startswith("c")] == [("c#0", 30, 35), ("c#1", 130, 135)]
    assert record.tasks[2].late == 0


def test_two_cores_take_two_jobs() -> None:
    record, intervals = _run(THREE, "fcfs", "none", 900, cores=2)
    assert [(one.unit, *span) for one, span in zip(intervals, _spans(intervals), strict=True)] == [
        ("cpu0", "a#0", 0, 30), ("cpu1", "b#0", 10, 30), ("cpu0", "c#0", 30, 40),
    ]  # fmt: skip
    assert record.busy == {"cpu0": 40, "cpu1": 20}


def test_what_is_under_way_at_the_end_counts_as_missed_only_if_its_deadline_has_passed() -> None:
    record, _ = _run(THREE, "fcfs", "none", 45)
    assert [(task.released, len(task.responses), task.late + task.overdue) for task in record.tasks] == [
        (1, 1, 0),
        (1, 0, 1),
        (1, 0, 0),
    ]
    assert (record.unfinished, record.cycles) == (2, 45)
