"""Schedules by hand, and results of scheduling theory.

CPU cores come first: their times are plain numbers, and preemption is free. Then one accelerator,
where it is not.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import pytest

from dla_sim.systems.choices import co_optimise
from dla_sim.systems.policies import make_policy
from dla_sim.systems.simulate import Interval, SystemRecord, SystemSimulation
from dla_sim.systems.spec import CPU, Preemption, System, TaskVariant, parse_system
from dla_sim.systems.work import JobStage, Plan, Plans, ProgramWork
from experiments.systems.plans import PlanMaker
from tests.dla_sim.cases import Case, Step, build_program

Tasks = list[dict[str, object]]


def _run(
    tasks: Tasks, policy: str, preemption: str, until: int, quantum: int = 0, cores: int = 1
) -> tuple[SystemRecord, list[Interval]]:
    lines = [f"[cpu]\ncores = {cores}"]
    for task in tasks:
        lines.append("[[task]]")
        lines += [f"{key} = {value!r}".replace("'", '"') for key, value in task.items()]
    system = parse_system("\n".join(lines))
    intervals: list[Interval] = []
    simulation = SystemSimulation(
        system,
        PlanMaker().plans(system),
        make_policy(policy, preemption, quantum),
        until,
        watch=intervals.append,
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
    ("priority", "tile", 0, [("a#0", 0, 10), ("b#0", 10, 20), ("c#0", 20, 30), ("b#0", 30, 40),
                             ("a#0", 40, 60)]),
    # b's deadline 40 is before c's 80 and a's 100
    ("edf", "tile", 0, [("a#0", 0, 10), ("b#0", 10, 30), ("c#0", 30, 40), ("a#0", 40, 60)]),
    ("edf", "none", 0, [("a#0", 0, 30), ("b#0", 30, 50), ("c#0", 50, 60)]),
    # at 30 b can wait 40 - 30 - 20 = -10 cycles, c 80 - 30 - 10 = 40
    ("least-laxity", "none", 0, [("a#0", 0, 30), ("b#0", 30, 50), ("c#0", 50, 60)]),
    # quantum 15: a until 15, b until 30, then c (there since 20) ends at 40 before a (back in the
    # queue at 15)? No: a went back at 15, before c came at 20: a 30 to 45, c 45 to 55, b, back
    # since 30, 55 to 60
    ("round-robin", "tile", 15, [("a#0", 0, 15), ("b#0", 15, 30), ("a#0", 30, 45), ("c#0", 45, 55),
                                 ("b#0", 55, 60)]),
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
    """Both come at 0, 100, ... for 60 cycles: one waits 60 of them.

    The first takes turns with the second.

    a first (first in the file): 60 of 80 and 120 of 80: lateness 0.75 / 2 and 1.5 / 2. So at 100
    (on the core until 120) b is more urgent: 120 to 180, then a until 240; and so on, each in turn
    the later one.
    """
    tasks: Tasks = [{"name": name, "cpu": 60, "period": 200, "deadline": 80} for name in "ab"]
    _, intervals = _run(tasks, "jit", "none", 800)
    assert ["ab"[one.task] for one in intervals] == list("abbaabba")


def test_rate_monotonic_at_its_bound() -> None:
    """Two tasks with the utilisation of Liu and Layland's bound meet their deadlines.

    The bound (1973) is 2(sqrt(2) - 1) = 0.828 in the worst proportion.

    C1 = T2 - T1 and C2 = 2 T1 - T2: with periods 1000 and 1414 those are 414 and 586: 0.828. One
    more cycle of either and the second misses. Shorter periods have the higher priority.
    """

    def tasks(first: int, second: int) -> Tasks:
        return [
            {"name": "a", "cpu": first, "period": 1000, "deadline": 1000, "priority": 2},
            {"name": "b", "cpu": second, "period": 1414, "deadline": 1414, "priority": 1},
        ]

    until = lcm(1000, 1414)
    assert [task.late for task in _run(tasks(414, 586), "priority", "tile", until)[0].tasks] == [
        0,
        0,
    ]
    assert _run(tasks(415, 586), "priority", "tile", until)[0].tasks[1].late > 0
    assert _run(tasks(414, 587), "priority", "tile", until)[0].tasks[1].late > 0


def test_earliest_deadline_first_holds_all_deadlines_at_full_utilisation() -> None:
    """Liu and Layland (1973), theorem 7: 25/50 + 35/70 = 1.

    With one cycle more somebody misses; so does rate monotonic at 1."""
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
    """A join waits for all predecessors and reads their newest results.

    a ends at 10, 60, 110, ...; b ends at 30 (behind a), 130, ...: c follows b each time, and a's
    second result is the newer. One core: a 0-10, b 10-30, c 30-35, a 50-60, a 100-110, b 110-130, c
    130-135.
    """
    tasks: Tasks = [
        {"name": "a", "cpu": 10, "period": 50},
        {"name": "b", "cpu": 20, "period": 100},
        {"name": "c", "cpu": 5, "after": ["a", "b"], "deadline": 5},
    ]
    record, intervals = _run(tasks, "fcfs", "none", 149)
    assert [span for span in _spans(intervals) if span[0].startswith("c")] == [
        ("c#0", 30, 35),
        ("c#1", 130, 135),
    ]
    assert record.tasks[2].late == 0


def test_two_cores_take_two_jobs() -> None:
    record, intervals = _run(THREE, "fcfs", "none", 900, cores=2)
    assert [(one.unit, *span) for one, span in zip(intervals, _spans(intervals), strict=True)] == [
        ("cpu0", "a#0", 0, 30), ("cpu1", "b#0", 10, 30), ("cpu0", "c#0", 30, 40),
    ]  # fmt: skip
    assert record.busy == {"cpu0": 40, "cpu1": 20}


def test_what_is_under_way_at_the_end_counts_as_missed_only_if_its_deadline_has_passed() -> None:
    record, _ = _run(THREE, "fcfs", "none", 45)
    assert [
        (task.released, len(task.responses), task.late + task.overdue) for task in record.tasks
    ] == [
        (1, 1, 0),
        (1, 0, 1),
        (1, 0, 0),
    ]
    assert (record.unfinished, record.cycles) == (2, 45)


# One accelerator.
# --------------------------------------------------------------------------------------------------
#
# A network of n layers is n commands of EX, in place on 576 bytes: 9 cycles each on 64 lanes.
# Nothing is filled, drained or set up, a queue has one entry, and a slot moves 64 bytes without
# latency: a chunk of 8 words, or a line.
#
# Alone, from cycle s on: the words (a SET, n commands, OP_END: one chunk) are there at s+1. The SET
# executes at s+1, the first command's word at s+2, so that it starts at s+3. The next word waits
# for room in the queue until the command has ended, at s+12, and its command starts at s+13: 10
# cycles a layer. The last layer ends at s+2 + 10n, OP_END executes then: free at s+3 + 10n.
#
# Asked: before layer k once the word of layer k-1 has been executed, which is when that layer
# starts: s+3 + 10(k-1). If it gives way, OP_END follows when that layer has ended: free at s+3 +
# 10k.
#
# Saving 576 bytes from f on: three SETs at f+1 to f+3, OP_DMA_WRITE at f+4, which starts at f+5, 9
# slots, until f+14; OP_END executes then: free at f+15.
#
# Going on from r on: three SETs, OP_DMA_READ at r+4, from r+5 until r+14. Its queue has room then:
# OP_SYNC of LD executes at r+14 and runs from r+15 until r+16; that of EX executes at r+15 and
# starts when it arrives at r+16, as the token does, until r+17; that of ST executes at r+16, from
# r+17 until r+18. SETs of the three registers that LD used and of EX_LENGTH execute at r+17 to
# r+20, the next layer's word at r+21, so that it starts at r+22 (and not at r+3): free at r+22 +
# 10m with m layers left, asked at r+22, r+32, ...

ACCELERATOR = """
[memory]
bus_bytes = 64
burst_bytes = 64
dram_latency = 0
outstanding_bursts = 1
[[accelerator]]
name = "npu"
[accelerator.settings]
isa = "v4"
queue_depth = 1
fetch_bytes = 64
dma_setup = 0
dma_drain = 0
ex_fill = 0
ex_drain = 0
[[task]]
name = "a"
model = "4"
period = 1000
deadline = 200
priority = 1
[[task]]
name = "b"
model = "2"
period = 1000
offset = 10
deadline = 65
priority = 2
[[task]]
name = "c"
model = "1"
period = 1000
offset = 20
deadline = 50
priority = 3
on = "npu"
"""
"""a is there at 0 with 4 layers, until 200; b at 10 with 2, until 75; c at 20 with 1, until 70.

Alone: 43, 23, 13.
"""


def _layers(count: int, system: System) -> Plan:
    steps = tuple(
        Step("OP_E_ABS", "EX", {"EX_LENGTH": 576}, layer=f"layer {number}")
        for number in range(count)
    )
    hardware = system.accelerators[0].hardware
    work = ProgramWork(build_program(Case(hardware.arch, {}, steps)), hardware)
    assert work.alone == 3 + 10 * count
    return Plan("npu", (JobStage("dla", work.alone, work),))


def _on_accelerator(system: System) -> Plans:
    """Networks of as many layers as their name says; on the CPU of 30 cycles."""
    return {
        (index, variant, kind): Plan(CPU, (JobStage("cpu", 30),))
        if kind == CPU
        else _layers(int(choice.model), system)
        for index, task in enumerate(system.tasks)
        for variant, choice in enumerate(task.variants)
        for kind in task.on
    }


def _run_on_accelerator(
    system: System, policy: str, preemption: Preemption, quantum: int = 0
) -> tuple[SystemRecord, list[tuple[str, int, int]]]:
    """The spans of a run, a's saving as "a saves"; what is on a core as "c on cpu0"."""
    found: list[Interval] = []
    plans = _on_accelerator(system)
    record = SystemSimulation(
        system, plans, make_policy(policy, preemption, quantum), 900, watch=found.append
    ).run()
    spans = []
    for one in sorted(found, key=lambda one: (one.start, one.unit)):
        where = "" if one.unit == "npu" else f" on {one.unit}"
        spans.append(("abc"[one.task] + (" saves" if one.saving else where), one.start, one.end))
    return record, spans


WHOLE_BC = [("a", 0, 43), ("b", 43, 66), ("c", 66, 79)]
WHOLE_CB = [("a", 0, 43), ("c", 43, 56), ("b", 56, 79)]
# At 13 a, in its second layer, is asked and gives way to b: free at 23, saved at 38, and two layers
# are left: at 74 it goes on, until 74 + 22 + 20 = 116.
PIECES_CB = [("a", 0, 23), ("a saves", 23, 38), ("c", 38, 51), ("b", 51, 74), ("a", 74, 116)]
PIECES_BC = [("a", 0, 23), ("a saves", 23, 38), ("b", 38, 61), ("c", 61, 74), ("a", 74, 116)]

ON_ACCELERATOR: list[tuple[str, Preemption, int, list[tuple[str, int, int]]]] = [
    ("fcfs", "none", 0, WHOLE_BC),
    # who came first is never less urgent
    ("fcfs", "layer", 0, WHOLE_BC),
    ("priority", "none", 0, WHOLE_CB),
    # b is asked at 54, when only a waits
    ("priority", "layer", 0, PIECES_CB),
    # until 70 is before until 75
    ("edf", "none", 0, WHOLE_CB),
    ("edf", "layer", 0, PIECES_CB),
    # at 43 b can wait 75 - 43 - 23 = 9 cycles, c 70 - 43 - 13 = 14
    ("least-laxity", "none", 0, WHOLE_BC),
    # at 13 a can wait 200 - 13 - 43 = 144, b 75 - 13 - 23 = 39; at 38 b 14, c 19; at 41 b 11, c 16
    ("least-laxity", "layer", 0, PIECES_BC),
    # at 43 b has had 33 of 65, c 23 of 50 cycles
    ("jit", "none", 0, WHOLE_BC),
    # at 13 a has had 13 of 200, b 3 of 65: a goes on. At 23 it is 23 of 200 against 13 of 65: free
    # at 33, saved at 48, one layer left. At 48 b has had 38 of 65, c 28 of 50; at 51 b 41 of 65, c
    # 31 of 50. a until 84 + 22 + 10
    ("jit", "layer", 0, [("a", 0, 33), ("a saves", 33, 48), ("b", 48, 71), ("c", 71, 84),
                         ("a", 84, 116)]),
    # asked at 3 and 13: 10 cycles are over. b is asked at 41, after 3
    ("round-robin", "tile", 10, PIECES_BC),
    # b gives way at 41, free at 38 + 13, and is behind a, which came back at 38. a goes on at 79,
    # with two layers, is asked at 101, free at 111, saved at 126; b until 126 + 22 + 10, then a
    # until 158 + 22 + 10
    ("round-robin", "tile", 2, [
        ("a", 0, 23), ("a saves", 23, 38), ("b", 38, 51), ("b saves", 51, 66), ("c", 66, 79),
        ("a", 79, 111), ("a saves", 111, 126), ("b", 126, 158), ("a", 158, 190),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "preemption", "quantum", "expected"), ON_ACCELERATOR)
def test_three_tasks_on_one_accelerator(
    policy: str, preemption: Preemption, quantum: int, expected: list[tuple[str, int, int]]
) -> None:
    record, spans = _run_on_accelerator(parse_system(ACCELERATOR), policy, preemption, quantum)
    assert spans == expected
    assert [list(task.responses) for task in record.tasks] == [
        [max(end for what, _, end in expected if what == name) - offset]
        for name, offset in (("a", 0), ("b", 10), ("c", 20))
    ]
    for index, alone in enumerate((43, 23, 13)):
        mine = [(what, end - start) for what, start, end in expected if what[0] == "abc"[index]]
        ran, saved = (
            sum(cycles for what, cycles in mine if what.endswith("saves") is saves)
            for saves in (False, True)
        )
        spent = record.tasks[index].spent
        assert (spent["dla"], spent["preempted"], spent["saving"]) == (alone, ran - alone, saved)
        assert spent["wait_dla"] == record.tasks[index].responses[0] - ran - saved


def test_a_task_leaves_its_accelerator_for_a_core_by_hand() -> None:
    """c may run on the CPU, in 30 cycles.

    At 20 a and b take 43 + 23 on the accelerator, as is known before they run: there c would end
    after 79. Its home is the accelerator, so that only a policy that migrates lets it leave."""
    system = parse_system(ACCELERATOR.replace('on = "npu"', 'on = ["npu", "cpu"]'))
    assert _run_on_accelerator(system, "jit", "none")[1] == WHOLE_BC
    found = [("a", 0, 43), ("c on cpu0", 20, 50), ("b", 43, 66)]
    assert _run_on_accelerator(system, "migration", "none")[1] == found


def test_variants_are_chosen_together_by_hand() -> None:
    """b is better with 6 layers, of 63 cycles: from 43 to 106, behind 75.

    With 3, from 43 to 76, it is one cycle late, with 2 it ends at 66. Nobody else can be better: c
    on the CPU has ended at 50."""
    system = parse_system(ACCELERATOR.replace('on = "npu"', 'on = ["npu", "cpu"]'))
    several = replace(
        system.tasks[1], variants=tuple(TaskVariant(str(n), float(n)) for n in (6, 3, 2))
    )
    system = replace(
        system,
        tasks=(system.tasks[0], several, system.tasks[2]),
        conditions=replace(system.conditions, policy="co-optimised", until=900),
    )
    choice = co_optimise(system, _on_accelerator(system))
    assert (choice.variants, choice.missed, choice.tried) == ((0, 2, 0), 0, 3)
