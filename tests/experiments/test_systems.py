"""Systems of accelerators: cycles of ``dla run``, bits of single runs, bad files, equal bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise, product
from pathlib import Path
from typing import ClassVar

import pytest

from byoc.compiled import CompiledNetwork
from byoc.package.package import Package
from dla_sim.engine.workload import Workload
from dla_sim.systems import simulate, work
from dla_sim.systems.choices import RATE_STEPS, _list_by_quality, co_optimise, highest_rate
from dla_sim.systems.machines import Machines, Running
from dla_sim.systems.simulate import Interval
from dla_sim.systems.spec import System, TaskVariant, parse_system
from dla_sim.systems.work import Preemptible
from dla_sim.timing import Timing
from experiments.cli.main import main
from experiments.running.inference import run
from experiments.systems import plans as planning
from experiments.systems.plans import PlanMaker
from experiments.systems.report import SystemReport, report_json
from experiments.systems.running import run_system
from isa.arch import Arch
from isa.errors import InputError
from tests.dla_sim.tick.system import TickSystem, Turn
from tests.experiments.trace_reader import read_trace
from tests.rotation import rotate

ONE = """
[[accelerator]]
name = "npu"
settings = { sram_bytes = "4KiB" }
[[task]]
name = "digits"
model = "digits-cnn"
period = "1ms"
"""


@pytest.fixture(scope="module")
def compilations() -> dict[tuple[str, Arch, Timing], CompiledNetwork]:
    return {}


@pytest.fixture
def compiled_once(
    monkeypatch: pytest.MonkeyPatch, compilations: dict[tuple[str, Arch, Timing], CompiledNetwork]
) -> None:
    """Tests of one network under many policies compile it once, as the systems of a sweep do."""
    make = planning.compile_network

    def compiled(package: Package, arch: Arch, *, timing: Timing) -> CompiledNetwork:
        key = package.digest, arch, timing
        if key not in compilations:
            compilations[key] = make(package, arch, timing=timing)
        return compilations[key]

    monkeypatch.setattr(planning, "compile_network", compiled)


def system_of(text: str, run: str = "") -> System:
    return parse_system(f"{text}\n[run]\n{run}")


def test_one_accelerator_and_one_task_take_the_cycles_of_dla_run() -> None:
    report = run_system(system_of(ONE, 'until = "5ms"'))
    alone = run("digits-cnn", settings={"sram_bytes": 4096}).report
    assert alone.end_to_end is not None
    (task,) = report.tasks
    assert (task.ended, task.alone) == (5, alone.end_to_end.cycles)
    assert task.response is not None
    assert (task.response.mean, task.response.worst, task.slowdown) == (task.alone, task.alone, 1.0)
    assert task.causes["dla"] == 5 * alone.totals.cycles
    assert report.units[0].busy == 5 * alone.totals.cycles
    assert report.units[0].compute == 5 * sum(alone.ex_cycles.values())


TWO = """
[memory]
ports = "private"
grants = 2
[[accelerator]]
name = "npu"
count = 2
settings = { sram_bytes = "4KiB" }
[cpu]
cores = 2
[[task]]
name = "a"
model = "digits-cnn"
period = "1ms"
[[task]]
name = "b"
model = "digits-cnn"
period = "1ms"
"""


@pytest.mark.parametrize(("count", "flash"), [(2, 0), (3, 0), (4, 0), (2, 1)])
def test_accelerators_with_ports_and_bandwidth_of_their_own_do_not_meet(
    count: int, flash: int
) -> None:
    """On one port, or with less than their bandwidth, they do.

    Every port has a flash of its own, too.
    """
    several = TWO.replace("count = 2", f"count = {count}").replace("cores = 2", f"cores = {count}")
    several = several.replace("[memory]", f"[memory]\nflash_bytes = {flash}")
    for name in "cd"[: count - 2]:
        several += f'[[task]]\nname = "{name}"\nmodel = "digits-cnn"\nperiod = "1ms"\n'
    one = run_system(system_of(f"[memory]\nflash_bytes = {flash}\n{ONE}", 'until = "3ms"'))
    own = run_system(system_of(several.replace("grants = 2", f"grants = {count}"), 'until = "3ms"'))
    assert [task.response for task in own.tasks] == [one.tasks[0].response] * count
    shared = run_system(
        system_of(several.replace("private", "shared").replace("grants = 2", ""), 'until = "3ms"')
    )
    fewer = run_system(
        system_of(several.replace("grants = 2", f"grants = {count - 1}"), 'until = "3ms"')
    )
    assert all(task.causes["memory"] > 0 for task in shared.tasks)
    assert sum(task.causes["memory"] for task in fewer.tasks) > 0
    assert own.memory.slots == shared.memory.slots == fewer.memory.slots == count * one.memory.slots


BUSY = """
[[accelerator]]
name = "npu"
settings = { sram_bytes = "16KiB" }
[[task]]
name = "slow"
model = "resnet-8"
period = 250_000
deadline = 250_000
priority = 1
[[task]]
name = "quick"
model = "digits-cnn"
period = 40_000
jitter = 9_000
deadline = 20_000
priority = 2
"""


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize(
    "policy", rotate(["priority", "round-robin", "edf", "least-laxity", "jit", "migration"], 3)
)
def test_programs_that_give_way_at_tiles_have_the_bits_of_running_alone(policy: str) -> None:
    conditions = f'policy = "{policy}"\npreempt = "tile"\nquantum = 9_000\nuntil = 1_000_000'
    report = run_system(system_of(BUSY, conditions), check=True)
    assert report.check is not None
    assert report.check.mismatches == 0
    assert sum(task.preemptions for task in report.tasks) >= (1 if policy == "least-laxity" else 6)
    assert report.check.ways >= (1 if policy == "least-laxity" else 4)
    for task in report.tasks:
        assert task.response is not None
        assert sum(task.causes.values()) == round(task.response.mean * task.ended)


KINDS = """
[[accelerator]]
name = "npu"
settings = { sram_bytes = "16KiB" }
[[accelerator]]
name = "small"
settings = { sram_bytes = "4KiB", "pe.oc" = 8 }
[[task]]
name = "slow"
model = "resnet-8"
period = 100_000
deadline = 400_000
on = ["npu", "small"]
[[task]]
name = "quick"
model = "digits-cnn"
period = 10_000
jitter = 9_000
deadline = 9_000
on = ["npu", "small"]
"""


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize("policy", rotate(["jit", "migration"], 2))
def test_tasks_that_move_between_accelerators_have_the_bits_of_running_alone(policy: str) -> None:
    system = system_of(KINDS, f'policy = "{policy}"\npreempt = "tile"\nuntil = 400_000')
    intervals: list[Interval] = []
    report = run_system(system, check=True, watch=intervals.append)
    assert report.check is not None
    assert (report.check.mismatches, report.check.ways > 0) == (0, True)
    kinds = {(one.unit, one.task) for one in intervals if not one.unit.startswith("cpu")}
    assert kinds == set(product(("npu", "small") if policy != "jit" else ("npu",), (0, 1)))


def test_a_scratchpad_that_is_not_saved_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        work, "_live_ranges", lambda operands, stops, size: dict.fromkeys(stops, ())
    )
    report = run_system(
        system_of(BUSY, 'policy = "priority"\npreempt = "tile"\nuntil = 300_000'), check=True
    )
    assert report.check is not None
    assert report.check.mismatches > 0
    assert report.check.first == "slow#0"


def test_what_is_kept_of_pieces_changes_no_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit on stored program pieces changes no cycle.

    Pieces are stored for the next preemption at the same place.
    """
    system = system_of(BUSY, 'policy = "priority"\npreempt = "tile"\nuntil = 400_000')
    all_kept = report_json(run_system(system))
    for most in (0, 1_000):
        monkeypatch.setattr(work, "MOST_KEPT", most)
        plans = PlanMaker().plans(system)
        assert report_json(run_system(system, plans)) == all_kept
        works = {stage.work for plan in plans.values() for stage in plan.stages if stage.work}
        assert all(sum(len(left.resume) for left in one._left.values()) <= most for one in works)


PREEMPTED = "[cpu]\ncores = 4\n" + "".join(
    f"""
[[accelerator]]
name = "{name}"
settings = {{ {settings} }}
[[task]]
name = "slow on {name}"
model = "resnet-8"
period = 500_000
deadline = 500_000
on = "{name}"
[[task]]
name = "quick on {name}"
model = "digits-cnn"
period = {period}
jitter = 1_000
deadline = 2_000
priority = 1
on = "{name}"
"""
    for name, settings, period in (
        ("npu", 'sram_bytes = "16KiB"', 5_000),
        ("small", 'sram_bytes = "4KiB"', 4_000),
    )
)


class _Recorded(Machines):
    """Machines that remember what was started on them, in order."""

    started: ClassVar[list[Running]] = []

    def start(
        self, machine: int, workload: Workload, at: int, stops: Sequence[int] = ()
    ) -> Running:
        self.started.append(super().start(machine, workload, at, stops))
        return self.started[-1]


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize("policy", rotate(["priority", "round-robin"], 2))
@pytest.mark.parametrize("ports", ["shared", "private"])
def test_runs_with_programs_that_give_way_take_the_cycles_of_the_tick_model(
    ports: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every program of a run, those that save and go on as well, one step a cycle."""
    conditions = f'policy = "{policy}"\npreempt = "tile"\nquantum = 900\nuntil = 30_000'
    system = system_of(f'[memory]\nports = "{ports}"\n{PREEMPTED}', conditions)
    plans = PlanMaker().plans(system)
    works = [stage.work for plan in plans.values() for stage in plan.stages if stage.work]
    programs = {one.workload: one.program for one in works}
    make_remainder = work.ProgramWork._make_remainder

    def recorded(self: work.ProgramWork, preemptible: Preemptible, stop: int) -> work.Remainder:
        found = make_remainder(self, preemptible, stop)
        piece = preemptible.piece(stop)
        programs[found.resume] = piece.resume
        if found.save:
            programs[found.save] = piece.save
        return found

    monkeypatch.setattr(work.ProgramWork, "_make_remainder", recorded)
    monkeypatch.setattr(simulate, "Machines", _Recorded)
    monkeypatch.setattr(_Recorded, "started", [])
    report = run_system(system, plans)
    assert sum(task.preemptions for task in report.tasks) > 3
    ours = [[one for one in _Recorded.started if one.machine == machine] for machine in range(2)]
    turns = [[Turn(programs[one.workload], one.start, one.cut) for one in mine] for mine in ours]
    timings = [one.hardware.timing for one in system.accelerators]
    ticks = TickSystem(turns, timings, [[0, 1]] if ports == "shared" else [[0], [1]], 1).run(
        report.cycles
    )
    for mine, expected in zip(ours, ticks, strict=True):
        ended = [one for one in mine if one.end is not None and one.end <= report.cycles]
        assert [(one.start, one.end) for one in ended] == [(one.start, one.end) for one in expected]
        for running, right in zip(ended, expected, strict=True):
            assert running.spans() == [
                right.spans[number] for number in range(len(running.spans()))
            ]


def test_two_networks_on_halves_of_one_accelerator() -> None:
    """Each is compiled for half the lanes and half the scratchpad.

    The halves meet on the one port.
    """
    halves = (
        TWO.replace("count = 2", "parts = 2")
        .replace('"4KiB"', '"8KiB"')
        .replace("grants = 2", "grants = 1")
    )
    system = system_of(halves, 'until = "3ms"')
    assert [one.name for one in system.accelerators] == ["npu.0", "npu.1"]
    assert {
        (one.number, one.hardware.arch.pe.oc, one.hardware.arch.sram_bytes)
        for one in system.accelerators
    } == {(0, 8, 4096)}
    report = run_system(system)
    alone = run(
        "digits-cnn", settings={"sram_bytes": 4096, "pe.oc": 8, "sram_banks": 8}
    ).report.totals.cycles
    assert [task.causes["dla"] for task in report.tasks] == [3 * alone] * 2
    assert all(task.causes["memory"] > 0 for task in report.tasks)


def test_equal_systems_give_equal_bytes_and_other_seeds_other_jitter() -> None:
    system = system_of(BUSY, "until = 400_000")
    first, again = (report_json(run_system(system)) for _ in range(2))
    assert first == again
    assert report_json(run_system(replace(system, seed=1))) != first


def test_units_do_one_thing_at_a_time() -> None:
    intervals: list[Interval] = []
    run_system(
        system_of(BUSY, 'policy = "edf"\npreempt = "tile"\nuntil = 300_000'), watch=intervals.append
    )
    for unit in {one.unit for one in intervals}:
        mine = sorted((one.start, one.end) for one in intervals if one.unit == unit)
        assert all(before[1] <= after[0] for before, after in pairwise(mine))


VARIANTS = """
[[accelerator]]
name = "npu"
settings = { sram_bytes = "4KiB" }
[[task]]
name = "digits"
variants = [{ model = "resnet-8", quality = 2.0 }, { model = "digits-cnn", quality = 1.0 }]
period = "100us"
deadline = "100us"
"""


def test_the_variant_of_the_best_quality_that_holds_all_deadlines() -> None:
    system = system_of(VARIANTS, 'policy = "co-optimised"\nuntil = "2ms"')
    plans = PlanMaker().plans(system)
    choice = co_optimise(system, plans)
    assert (choice.variants, choice.missed, choice.tried) == ((1,), 0, 2)
    assert run_system(system, plans).tasks[0].quality == 1.0
    slower = replace(
        system, tasks=tuple(replace(task, period=10**6, deadline=10**6) for task in system.tasks)
    )
    assert co_optimise(slower, plans).variants == (0,)


@pytest.mark.parametrize("seed", range(5))
def test_choices_come_by_quality_one_at_a_time(seed: int) -> None:
    """Choices come one at a time, in the order of sorted quality.

    For twenty tasks with three variants each, the first ones are available at once.
    """
    rng = random.Random(seed)
    base = system_of(VARIANTS)

    def of(tasks: int, most: int) -> System:
        made = [
            replace(base.tasks[0], name=str(number), variants=tuple(
                TaskVariant("digits-cnn", float(rng.randint(1, 3)))
                for _ in range(rng.randint(1, most))
            ))
            for number in range(tasks)
        ]  # fmt: skip
        return replace(base, tasks=tuple(made))

    small = of(4, 3)
    every = product(*(range(len(task.variants)) for task in small.tasks))

    def key(variants: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        pairs = zip(small.tasks, variants, strict=True)
        return -sum(task.variants[variant].quality for task, variant in pairs), variants

    assert list(_list_by_quality(small)) == sorted(every, key=key)
    assert len(list(islice(_list_by_quality(of(20, 3)), 200))) == 200


def test_the_highest_rate() -> None:
    """The highest rate is at least that of jobs that run one after another."""
    system = system_of(
        ONE.replace('period = "1ms"', "period = 10_000\ndeadline = 20_000"), "until = 1_000_000"
    )
    plans = PlanMaker().plans(system)
    alone = run_system(system, plans).tasks[0].alone
    found = highest_rate(system, plans)
    rate = found.rate / RATE_STEPS
    # stages on the CPU and the accelerator overlap between jobs, so that it may be more
    assert rate >= 0.98 * 10_000 / alone
    misses = dict(found.tried)
    assert misses[round(rate * RATE_STEPS)] == 0
    assert max(misses.values()) > 0


BAD = {
    "a cycle": (
        '[[task]]\nname="a"\ncpu=1\nafter="b"\n[[task]]\nname="b"\ncpu=1\nafter="a"',
        "task '.' waits for itself",
    ),
    "unknown predecessor": (
        '[[task]]\nname="a"\ncpu=1\nafter="camra"\n[[task]]\nname="camera"\ncpu=1\nperiod=9',
        "did you mean camera",
    ),
    "no work": ('[[task]]\nname="a"\nperiod=5', "task 'a': nothing to do"),
    "no period": ('[[task]]\nname="a"\ncpu=5', "task 'a': give a period"),
    "twice": ('[[task]]\nname="a"\ncpu=5\nperiod=5\n' * 2, "task 'a' is there twice"),
    "unit": ('[[task]]\nname="a"\ncpu="5 weeks"\nperiod=5', "task 'a': cpu is '5 weeks'"),
    "type": ('[[task]]\nname="a"\ncpu=5.5\nperiod=5', "task 'a': cpu is 5.5"),
    "key": ('[[task]]\nname="a"\ncpu=5\nperiod=5\ndedline=7', "task 'a': unknown key 'dedline'"),
    "zero": ('[[task]]\nname="a"\ncpu=5\nperiod=0', "task 'a': period and deadline are one cycle"),
    "negative": ('[[task]]\nname="a"\ncpu=5\nperiod=-1', "task 'a': period is -1"),
    "model": (ONE.replace("digits-cnn", "nonsense"), "task 'digits': unknown model 'nonsense'"),
    "accelerator": (ONE + 'on = "gpu"', "task 'digits': 'gpu' is no accelerator; .*npu"),
    "no accelerator": ('[[task]]\nname="a"\nmodel="digits-cnn"\nperiod=5',
                       "task 'a': the system has no accelerator"),
    "preset": (ONE.replace('settings', 'preset = "nope"\nsettings'),
               "accelerator.*nope|unknown preset 'nope'"),
    "setting": (ONE.replace("sram_bytes", "sram_byte"),
                "accelerator 'npu': unknown setting 'sram_byte'"),
    "policy": (ONE + '[run]\npolicy = "best"', "unknown policy 'best'"),
    "preempt": (ONE + '[run]\npreempt = "always"', "run.preempt is 'always'"),
    "until": (ONE + "[run]\nuntil = 0", "run.until is 0"),
    "parts": (ONE.replace("settings", "parts = 3\nsettings"),
              "accelerator 'npu': parts is 3, and pe.oc 16"),
    "grants": (ONE + "[memory]\ngrants = 2", "memory.grants is 2"),
    "nothing": ("", "task is missing"),
    "toml": ("[[task", "system"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_systems_are_one_line_that_names_the_thing(name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        run_system(parse_system(text))
    assert "\n" not in str(caught.value)


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("busy.toml").write_text(BUSY, encoding="utf-8")
    words = [
        "system",
        "busy.toml",
        "--policy",
        "edf",
        "--preempt",
        "tile",
        "--until",
        "300us",
        "--check",
    ]
    status = main([*words, "--json", "busy.json", "--csv", "busy.csv", "--trace", "busy.pftrace"])
    shown = capsys.readouterr()
    report = SystemReport.model_validate_json(Path("busy.json").read_text(encoding="utf-8"))
    assert status == (1 if report.missed else 0)
    assert "0 mismatches" in shown.out
    assert Path("busy.csv").read_text(encoding="utf-8").count("\n") == 3
    _check_timeline(report, Path("busy.pftrace").read_bytes())
    assert main(["system", "absent.toml"]) == 2
    assert "absent.toml: no such file" in capsys.readouterr().err


def _check_timeline(report: SystemReport, content: bytes) -> None:
    """Units are tracks with their busy cycles; a flow goes through the intervals of each job."""
    found = read_trace(content)
    assert list(found.tracks.values())[1:] == [
        *(unit.name for unit in report.units),
        "memory slots",
    ]
    for unit in report.units:
        assert sum(one.duration for one in found.of(unit.name)) == unit.busy
    jobs: dict[tuple[str, int], set[int]] = {}
    for one in found.slices:
        job = one.arguments["task"], one.arguments["job"]
        assert one.category == job[0]
        jobs.setdefault(job, set()).update(one.leaving)
    assert len(set().union(*jobs.values())) == len(jobs)
    assert all(len(flows) == 1 for flows in jobs.values())
    slots = [value for _, value in found.counters["memory slots"]]
    assert slots == [100 * share for share in report.memory_shares]


CORES = (
    '[cpu]\ncores = 2\n[[task]]\nname = "a"\ncpu = "5us"\nperiod = "10us"\n[run]\nuntil = "50us"\n'
)


def test_cores_alone_with_private_ports_use_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without accelerators no task has a memory port."""
    file = tmp_path / "cores.toml"
    file.write_text(f'[memory]\nports = "private"\n{CORES}')
    assert main(["system", str(file)]) == 0
    assert "memory: 0 slots of 1 a cycle, 0.0% used" in capsys.readouterr().out


def test_a_task_without_work_has_no_slowdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "idle.toml"
    file.write_text(CORES.replace('cpu = "5us"', "cpu = 0"))
    assert main(["system", str(file)]) == 0
    (task,) = (line for line in capsys.readouterr().out.splitlines() if "CPU work" in line)
    assert task.split()[-2:] == ["0", "-"]
