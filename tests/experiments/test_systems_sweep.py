"""Sweeps of systems: each point is its system run alone, in a fixed order.

Answers from data; refusals of one line.
"""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import dla
from dla_sim.systems.spec import parse_system
from experiments.sweep.results import load_sweep
from experiments.sweep.store import Store
from experiments.systems import plans, points
from experiments.systems.points import figures
from experiments.systems.running import run_system
from experiments.systems.sweep import sweep_json
from tests.experiments.command_line import dla as command
from tests.experiments.sweeping import statuses

FILE = """
[memory]
bus_bytes = BUS
[[accelerator]]
name = "npu"
settings = { sram_bytes = SRAM }
count = COUNT
[cpu]
speed = SPEED
[run]
policy = POLICY
preempt = "tile"
until = 30_000
[[task]]
name = "often"
model = "digits-cnn"
period = "4us"
deadline = DEADLINE
[[task]]
name = "seldom"
variants = [{ model = "digits-cnn", quality = 2.0 }, { model = "digits-cnn", quality = 1.0 }]
period = 9_000
jitter = 500
deadline = 9_000
"""
AXES: dict[str, list[int | float | str]] = {
    "accelerator.npu.count": [2, 1],
    "run.policy": ["edf", "co-optimised"],
    "memory.bus_bytes": [8, 4],
    "task.often.deadline": ["3.5us", 5000],
    "accelerator.npu.settings.sram_bytes": ["4KiB"],
    "cpu.speed": [1, 2.5],
}
WORDS = ("COUNT", "POLICY", "BUS", "DEADLINE", "SRAM", "SPEED")
"""What stands for the axes in the file, in their order."""


def _edited(values: tuple[Any, ...]) -> str:
    text = FILE
    for word, value in zip(WORDS, values, strict=True):
        text = text.replace(f"= {word}", f"= {json.dumps(value)}")
    return text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder with the system in a file.

    The file has values that no axis has.
    """
    (tmp_path / "busy.toml").write_text(
        _edited((3, "fcfs", 16, "1ms", "8KiB", 1.5)), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_point_is_the_run_of_the_edited_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the cycle, in the order of the axes, the last fastest.

    And a network is compiled once a machine and bus.
    """
    compiled: list[object] = []

    def counted(package: Any, arch: Any, **options: Any) -> Any:
        compiled.append(arch)
        return dla.compile(package, arch, **options)

    monkeypatch.setattr(plans, "compile_network", counted)
    found = dla.sweep_system("busy.toml", AXES)
    assert len(compiled) == 2  # one for each width of the bus
    every = list(product(*AXES.values()))
    assert len(found.rows) == len(every) == 32
    for row, values in zip(found.rows, every, strict=True):
        assert tuple(row[key] for key in AXES) == values
    for row, values in list(zip(found.rows, every, strict=True))[::5]:
        alone = figures(run_system(parse_system(_edited(values))), ["seldom"])
        assert {
            key: value for key, value in row.items() if key not in AXES and value is not None
        } == alone
    assert sweep_json(found) == sweep_json(dla.sweep_system(Path("busy.toml"), AXES))
    assert {row["missed"] > 0 for row in found.rows} == {True, False}


TWO: dict[str, Any] = {
    "cpu": {"cores": 1},
    "run": {"until": 100},
    "task": [
        {"name": "a", "cpu": 10, "period": 20, "deadline": 10},
        {"name": "b", "cpu": 10, "period": 20, "deadline": 19},
    ],
}
"""Both are there at 0, 20, ... 80.

On one core b ends after 20 of its 19 cycles; alone each takes 10 of its 10.
"""


def test_how_much_is_enough() -> None:
    """A core is enough if it is twice as fast, for then b has ended after 10.

    More than that is never needed.
    """
    found = dla.sweep_system(
        TWO, {"cpu.cores": (3, 2, 1), "cpu.speed": [1, 2], "run.policy": "fcfs"}
    )
    assert [row["missed"] for row in found.rows] == [0, 0, 0, 0, 5, 0]
    assert [row["worst.b"] for row in found.rows] == [10, 5, 10, 5, 20, 10]
    assert [row["ms.b"] for row in found.rows] == [row["worst.b"] / 1e6 for row in found.rows]
    assert found.without_a_miss == (0, 1, 2, 3, 5)
    assert list(found.lowest) == ["cpu.cores", "cpu.speed"]
    assert [(one.at["cpu.speed"], one.value) for one in found.lowest["cpu.cores"]] == [
        (1, 2),
        (2, 1),
    ]
    assert list(found.answer)[:2] == [
        "5 of 6 points have 0 misses",
        "lowest cpu.cores with 0 misses: 2 with cpu.speed = 1; 1 with cpu.speed = 2",
    ]
    assert str(found).startswith("system: 6 points\n5 of 6")
    assert list(found.rows[0]) == [
        "cpu.cores", "cpu.speed", "run.policy", "missed", "ended", "missed.a", "missed.b",
        "worst.a", "worst.b", "ms.a", "ms.b",
        "use.cpu0", "use.cpu1", "use.cpu2", "memory.use", "memory.peak",
    ]  # fmt: skip
    assert [row["use.cpu2"] for row in found.rows] == [0.0, 0.0, None, None, None, None]
    table = found.table
    assert (str(table["missed"].dtype), str(table["use.cpu0"].dtype), len(table)) == (
        "Int64",
        "float64",
        6,
    )


def test_sizes_and_times_are_compared_by_what_they_mean() -> None:
    """b holds 20 cycles and not 19; it does every other one of the rates. Seeds have no lowest."""
    axes = {"task.b.deadline": ["1us", "0.02us", 19], "seed": [1, 2], "task.a.priority": [1, 2]}
    found = dla.sweep_system(TWO, axes)
    assert {one.value for one in found.lowest["task.b.deadline"]} == {"0.02us"}
    assert list(found.lowest) == ["task.b.deadline"]


def test_no_point_without_a_miss_and_no_deadline_at_all(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    never = dla.sweep_system(TWO, {"cpu.speed": [0.5, 1]})
    assert list(never.answer) == [
        "0 of 2 points have 0 misses",
        "fewest misses: 5 with cpu.speed = 1",
    ]
    assert [one.value for one in never.lowest["cpu.speed"]] == [None]
    free = {**TWO, "task": [{"name": "a", "cpu": 10, "period": 20}]}
    assert list(dla.sweep_system(free, {"cpu.speed": [0.5, 1]}).answer) == [
        "no task has a deadline that a job could miss"
    ]
    with pytest.raises(dla.InputError, match="needs a task with a deadline"):
        dla.sweep_system(free, {"cpu.speed": [0.5, 1]}, search_rate=True)


def test_the_highest_rate_of_every_point() -> None:
    """The same as of each alone; cores that are twice as fast can do twice as much."""
    axes = {"cpu.speed": [1, 2], "run.until": [400]}
    found = dla.sweep_system({**TWO, "cpu": {"cores": 2}}, axes, search_rate=True)
    alone = dla.system({**TWO, "cpu": {"cores": 2, "speed": 2}}, until=400, search_rate=True)
    assert found.rows[1]["rate"] == alone.highest_rate
    assert found.rows[0]["rate"] < found.rows[1]["rate"]


def test_a_network_that_does_not_fit_is_a_row_that_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``v1`` has no softmax. A run alone is refused."""
    shape = [1, 8]
    node = helper.make_node("Softmax", ["x"], ["y"], "only")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    onnx.save(model, folder / "softmax.onnx")
    system: dict[str, Any] = {
        "accelerator": [{"name": "npu", "settings": {"isa": "v1"}}],
        "task": [{"name": "a", "model": "softmax.onnx", "period": 5000, "deadline": 5000}],
        "run": {"until": 20_000},
    }
    said = "task 'a': nothing of softmax.onnx runs on accelerator 'npu': Softmax "
    with pytest.raises(dla.InputError, match=said) as caught:
        dla.system(system)
    assert "\n" not in str(caught.value)
    found = dla.sweep_system(system, {"accelerator.npu.settings.isa": ["v1", "v4"]})
    assert said in found.rows[0]["problem"]
    assert [row["missed"] for row in found.rows] == [None, 0]
    assert found.rows[1]["problem"] is None
    nowhere = dla.sweep_system(system, {"accelerator.npu.settings.isa": ["v1"]})
    assert list(nowhere.answer) == ["0 of 1 points have 0 misses"]


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--sweep", "accelerator.npu.count=1,2", "--sweep", "task.often.deadline=1us,5us"]
    said = command(
        capsys,
        "system",
        "busy.toml",
        "--until",
        "20us",
        *words,
        "--json",
        "a.json",
        "--csv",
        "a.csv",
    )
    assert (said.status, said.err) == (0, "")
    saved = json.loads(Path("a.json").read_text(encoding="utf-8"))
    assert saved["schema"] == "dla-system-sweep/1"
    rows = list(csv.DictReader(Path("a.csv").read_text(encoding="utf-8").splitlines()))
    assert rows == [
        {key: "" if value is None else str(value) for key, value in row.items()}
        for row in saved["rows"]
    ]
    heading = next(line for line in said.out.splitlines() if "missed" in line).split()
    left_out = next(line for line in said.out.splitlines() if line.startswith("no room for: "))
    assert sorted([*heading, *left_out.removeprefix("no room for: ").split(", ")]) == sorted(
        rows[0]
    )
    assert "lowest accelerator.npu.count with 0 misses: " in said.out
    dla.sweep_system(
        "busy.toml",
        {"accelerator.npu.count": [1, 2], "task.often.deadline": ["1us", "5us"]},
        until="20us",
    ).save("b.json")
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    assert (
        command(
            capsys, "system", "busy.toml", "--sweep", "task.often.deadline=1,2", "--until", "20us"
        ).status
        == 1
    )


KEPT = {
    "accelerator.npu.count": [1, 2],
    "task.often.deadline": ["1us", 1000, "5us"],
    "cpu.speed": [1, 0.5],
}
"""Twelve points, of which four are four others: 1us are 1000 cycles."""


def test_points_are_kept_and_not_run_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By workers as by this process, to the byte.

    And what stands in the file is what nobody has to run.
    """
    once = dla.sweep_system("busy.toml", KEPT)
    kept = dla.sweep_system("busy.toml", KEPT, output="kept.sqlite", workers=2)
    assert sweep_json(kept) == sweep_json(once)
    with Store(folder / "kept.sqlite") as store:
        assert statuses(store) == {"ok": 8}

    def never(*given: object, **more: object) -> None:
        raise AssertionError("it has a row")

    monkeypatch.setattr(points, "run_system", never)
    again = dla.sweep_system("busy.toml", KEPT, output="kept.sqlite")
    assert sweep_json(again) == sweep_json(once)
    new = dla.sweep_system("busy.toml", {"cpu.speed": [1, 2]}, until="20us", output="kept.sqlite")
    assert [row["problem"] for row in new.rows] == ["AssertionError: it has a row"] * 2
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    retried = dla.sweep_system(
        "busy.toml", {"cpu.speed": [1, 2]}, until="20us", output="kept.sqlite"
    )
    assert "problem" not in retried.rows[0]


def test_a_sweep_that_was_killed_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "system",
        "busy.toml",
        "--sweep",
        "accelerator.npu.count=1,2,3,4",
        "--sweep",
        "cpu.speed=1,2,3,4",
    ]
    words += ["--output", "kept.sqlite", "--json", "kept.json"]
    with subprocess.Popen(
        [sys.executable, "-m", "dla", *words], stdout=subprocess.DEVNULL
    ) as process:
        while not (found := _rows(folder / "kept.sqlite")) and process.poll() is None:
            time.sleep(0.005)
        process.kill()
    assert 0 < len(found) < 16
    assert not Path("kept.json").exists()
    command(capsys, *words)
    rows = _rows(folder / "kept.sqlite")
    assert len(rows) == 16
    assert {key: rows[key] for key in found} == found
    assert command(capsys, *words[:6], "--json", "whole.json").status in (0, 1)
    assert (
        json.loads(Path("kept.json").read_text())["rows"]
        == json.loads(Path("whole.json").read_text())["rows"]
    )


def _rows(path: Path) -> dict[str, str]:
    """The figures of the points that have a row, by their keys."""
    if not path.exists():
        return {}
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT key, figures FROM points"))
    return {}


def test_kept_points_have_tables_a_page_and_pictures(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dla.sweep_system("busy.toml", KEPT, output="kept.sqlite")
    said = command(capsys, "report", "kept.sqlite", "--csv", "kept.csv", "-o", "page")
    assert (said.status, said.err) == (0, "")
    assert "kept: 8 points: 8 ok" in said.out
    assert "missed deadlines" in said.out
    table = {
        row["key"]: row
        for row in csv.DictReader(Path("kept.csv").read_text(encoding="utf-8").splitlines())
    }
    assert len(table) == 8
    misses = {
        (row["accelerator.npu.count"], row["cpu.speed"], row["missed"]) for row in table.values()
    }
    assert misses == {
        (str(row["accelerator.npu.count"]), str(row["cpu.speed"]), str(row["missed"]))
        for row in found.rows
    }
    page = Path("page/kept.html").read_text(encoding="utf-8")
    assert '"measure":"missed"' in page.replace(": ", ":")
    assert [path.name for path in Path("page").glob("*.png")] == ["pareto-busy.png"]
    for words, message in (
        (["report", "kept.sqlite", "--tables", "--cost", "horowitz-45nm"], "leave out --cost"),
        (["repro", "kept.sqlite"], "a sweep of a system"),
        (
            ["sweep", "grid.toml", "-o", "kept.sqlite"],
            "has results of systems; write those of networks elsewhere",
        ),
    ):
        Path("grid.toml").write_text('networks = "digits-cnn"\n', encoding="utf-8")
        refused = command(capsys, *words)
        assert (refused.status, len(refused.err.splitlines())) == (2, 1)
        assert message in refused.err


REFUSED = {
    "accelerator.npu.cont=1": "unknown axis 'accelerator.npu.cont'; did you mean "
    "accelerator.npu.count",
    "accelerator.gpu.count=1": "unknown axis 'accelerator.gpu.count'; did you mean "
    "accelerator.npu.count",
    "policy=edf": "unknown axis 'policy'; did you mean run.policy",
    "name=a": "unknown axis 'name'",
    "task.seldom.variants=a": "unknown axis 'task.seldom.variants'",
    "run.policy=edf,efd": "unknown policy 'efd'; did you mean edf.* with run.policy = efd",
    "accelerator.npu.count=1,99": "accelerator 'npu': count is 99: .*; with accelerator.npu.count "
    "= 99",
    "accelerator.npu.count=two": "accelerator 'npu': count is 'two': should be a valid integer",
    "accelerator.npu.count=1_": "accelerator 'npu': count is '1_'",
    "cpu.speed=1_.5": "cpu.speed is '1_.5'",
    "accelerator.npu.count=1" + "0" * 4_300: "accelerator 'npu': count is '10",
    "accelerator.npu.settings.sram_bytes=1KiB,2KoB": "accelerator 'npu': .*'KoB' is no unit",
    "task.often.period=5us,5weeks": "task 'often': period is '5weeks'",
    "task.often.model=digits-cn": "task 'often': unknown model 'digits-cn'; did you mean "
    "digits-cnn",
    "task.often.after=seldom": "task 'often': give a period, or tasks to come after",
    "cpu.speed=0": "cpu.speed is 0",
    "cpu.speed=": "axis cpu.speed is .*; give it numbers and texts",
    "cpu.speed": "--sweep cpu.speed: it is not of the form KEY=VALUE",
    "seed=" + ",".join(map(str, range(10_001))): "the sweep has 10,001 points; give values for "
    "10,000 at most",
}


@pytest.mark.parametrize("axis", REFUSED, ids=lambda axis: axis[:40])
def test_bad_axes_are_one_line(axis: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "system", "busy.toml", "--sweep", axis)
    assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert re.search(REFUSED[axis], said.err)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--sweep", "run.policy=edf", "--policy", "fcfs"],
            "run.policy is an axis of the sweep, and policy is given",
        ),
        (["--sweep", "seed=1", "--sweep", "seed=2"], "seed is given twice"),
        (["--sweep", "seed=1", "--check"], "--check is of one run; leave it out with --sweep"),
        (
            ["--sweep", "task.often.model=missing.onnx", "--csv", "busy.toml/a.csv"],
            "busy.toml/a.csv",
        ),
        (["--output", "a.sqlite"], "--output is of a sweep; give --sweep"),
        (["--workers", "2"], "--workers is of a sweep; give --sweep"),
        (["--sweep", "seed=1", "--workers", "0"], "--workers is 0; it must be 1 or more"),
        (["--sweep", "seed=1", "--output", "busy.toml"], "busy.toml"),
        (
            ["--sweep", "seed=1", "--trace", "a.pftrace"],
            "--trace is of one run; leave it out with --sweep",
        ),
    ],
)
def test_what_does_not_go_together(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = command(capsys, "system", "busy.toml", *words)
    assert (said.status, len(said.err.splitlines())) == (2, 1)
    assert message in said.err


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"cpu.speed": [[1]]}, r"axis cpu.speed is \[\[1\]\]; give it numbers and texts"),
        ({"cpu.speed": []}, r"axis cpu.speed is \[\]; give it numbers"),
        ({"cpu.speed": None}, "cpu.speed is a NoneType"),
        ({"cpu.cores": [True]}, "cpu.cores is True: should be a valid integer"),
    ],
)
def test_bad_axes_in_python(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(dla.InputError, match=message):
        dla.sweep_system(TWO, axes)


def test_points_of_a_system_are_kept_by_a_comparison_with_units(folder: Path) -> None:
    """Also by a name with a hyphen, which Python's parser reads as a difference."""
    system = {**TWO, "task": [{**TWO["task"][0], "name": "task-a"}, TWO["task"][1]]}
    found = dla.sweep_system(system, {"cpu.speed": [1, 2, 4]}, output="named.sqlite")
    assert len({row["ms.task-a"] for row in found.rows}) == 3
    limit = sorted(row["ms.task-a"] for row in found.rows)[1]
    where = f"ms.task-a <= {limit} and cpu.speed in [2, 4] and missed < 100"
    kept = load_sweep(folder / "named.sqlite", where=where)
    assert sorted(kept.columns["cpu.speed"]) == [2, 4]
    assert kept.objectives("cpu.speed", "ms.task-a") == ("cpu.speed", "ms.task-a")
