"""Results of a system: Python equals the command; tables, timeline and HTML report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

import dla
from dla_sim.systems.simulate import CAUSES, Interval
from experiments.report.charts.interactive import figure
from experiments.systems import running
from experiments.systems.charts import system_charts, task_causes
from experiments.systems.report import SAVING, SystemReport, report_json
from experiments.systems.result import deadline_lines, system_page
from experiments.systems.running import Recorder
from tests.experiments.command_line import dla as command

BUSY: dict[str, Any] = {
    "accelerator": [{"name": "npu", "settings": {"sram_bytes": "4KiB"}}],
    "cpu": {"cores": 2},
    "task": [
        {
            "name": "slow",
            "model": "digits-cnn",
            "period": 60_000,
            "offset": 8_000,
            "deadline": 30_000,
            "priority": 1,
        },
        {"name": "quick", "model": "digits-cnn", "period": 9_000, "deadline": 5_000, "priority": 2},
        {"name": "plan", "cpu": 500, "after": ["slow"]},
    ],
    "run": {"policy": "priority", "preempt": "tile", "until": 300_000},
}
TEXT = """
[[accelerator]]
name = "npu"
settings = { sram_bytes = "4KiB" }
[cpu]
cores = 2
[[task]]
name = "slow"
model = "digits-cnn"
period = 60_000
offset = 8_000
deadline = 30_000
priority = 1
[[task]]
name = "quick"
model = "digits-cnn"
period = 9_000
deadline = 5_000
priority = 2
[[task]]
name = "plan"
cpu = 500
after = ["slow"]
[run]
policy = "priority"
preempt = "tile"
until = 300_000
"""


@pytest.fixture(scope="module")
def busy() -> dla.SystemResult:
    return dla.system(BUSY)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the system in a file."""
    (tmp_path / "busy.toml").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_the_command(
    folder: Path, busy: dla.SystemResult, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dla.system("busy.toml", policy="edf", until="200us")
    said = command(
        capsys,
        "system",
        "busy.toml",
        "--policy",
        "edf",
        "--until",
        "200us",
        "--json",
        "a.json",
        "--csv",
        "a.csv",
    )
    assert said.status == (1 if found.missed else 0)
    found.save("b.json")
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    assert json.loads(Path("a.json").read_text(encoding="utf-8"))["schema"] == "dla-system/1"
    assert list(found.tasks.columns) == Path("a.csv").read_text(encoding="utf-8").splitlines()[
        0
    ].split(",")
    of_file = dla.system("busy.toml").report.model_dump()
    assert of_file | {"command": "", "name": ""} == busy.report.model_dump() | {
        "command": "",
        "name": "",
    }


def test_tables_and_what_a_notebook_shows(busy: dla.SystemResult) -> None:
    tasks = busy.tasks
    units = busy.units
    assert list(tasks["name"]) == ["slow", "quick", "plan"]
    assert (tasks["missed"].sum(), tasks["ended"].sum()) == (
        busy.missed,
        sum(one.ended for one in busy.report.tasks),
    )
    spent = tasks[[f"causes.{cause}" for cause in CAUSES]].sum(axis=1)
    assert list(spent) == [
        round(mean * ended)
        for mean, ended in zip(tasks["response.mean"], tasks["ended"], strict=True)
    ]
    assert list(units["name"]) == ["npu", "cpu0", "cpu1"]
    assert repr(busy).startswith("system: 300,000 cycles (0.300 ms), priority, preemption at tiles")
    assert busy._repr_html_().count("<tr>") == 4
    assert busy.plot.timeline().get_title(loc="left") == "Activity of every unit over time"


def test_a_job_that_never_ends_leaves_gaps(folder: Path) -> None:
    (task,) = dla.system(
        {"task": [{"name": "a<b>", "cpu": 100, "period": 1000}]}, until=50
    ).tasks.to_dict("records")
    assert (task["ended"], task["causes.cpu"], str(task["response.p99"])) == (0, 0, "None")
    never = dla.system({"task": [{"name": "a<b>", "cpu": 100, "period": 1000}]}, until=50)
    assert "a&lt;b&gt;" in never._repr_html_()
    with pytest.raises(dla.InputError, match="no job ended"):
        never.plot.responses()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "best"}, "unknown policy 'best'"),
        ({"preempt": "always"}, "run.preempt is 'always'; it is one of none, layer, tile"),
        ({"until": 1.5}, r"until is 1\.5 \(float\); give an integer or a text"),
        ({"quantum": 0}, "run.quantum is 0"),
    ],
)
def test_bad_arguments_are_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(dla.InputError, match=message) as caught:
        dla.system(BUSY, **given)
    assert "\n" not in str(caught.value)


def test_bad_dicts_are_one_line() -> None:
    with pytest.raises(dla.InputError, match="<system>: task is a set"):
        dla.system({"task": set()})
    with pytest.raises(dla.InputError, match="<system>: unit 'cpu0' is there twice"):
        dla.system({**BUSY, "accelerator": [{"name": "cpu0"}]})


def test_the_timeline_has_every_cycle_of_every_unit(
    busy: dla.SystemResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = busy.report.timeline
    assert found is not None
    assert found.window == 1
    assert SAVING in found.units["npu"].task
    monkeypatch.setattr(running, "MOST_SPANS", 20)
    few = dla.system(BUSY).report
    assert few.timeline is not None
    assert few.timeline.window > 1
    assert 5 < sum(len(unit.begin) for unit in few.timeline.units.values()) <= 20
    for report in (busy.report, few):
        assert report.timeline is not None
        for unit in report.units:
            assert sum(report.timeline.units[unit.name].active) == unit.busy
    assert few.model_dump(exclude={"timeline"}) == busy.report.model_dump(exclude={"timeline"})


def test_a_span_is_what_begins_in_a_window_and_is_named_by_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A span covers what begins in a window of 4 cycles, named by the task with most cycles.

    [0, 2) and [2, 3) are of task 0 and [3, 7) of task 1; then [8, 9) is of task 2, and [9, 10)
    saves.
    """
    monkeypatch.setattr(running, "MOST_SPANS", 2)
    recorder = Recorder(["npu"])
    for start, end, task in ((0, 2, 0), (2, 3, 0), (3, 7, 1), (8, 9, 2)):
        recorder.hear(Interval("npu", start, end, task, 0))
    recorder.hear(Interval("npu", 9, 10, 2, 0, saving=True))
    found = recorder.timeline()
    unit = found.units["npu"]
    assert (found.window, unit.begin, unit.end, unit.active) == (4, (0, 8), (7, 10), (7, 2))
    assert (unit.intervals, unit.task) == ((3, 2), (1, SAVING))


def test_the_charts_show_the_report(busy: dla.SystemResult) -> None:
    """graph_objects refuses figures with names or values that plotly.js does not have."""
    charts = {chart.identity: chart for chart in system_charts(busy.report)}
    assert list(charts) == [
        "response-times",
        "task-causes",
        "unit-use",
        "memory-traffic",
        "unit-timeline",
    ]
    for chart in charts.values():
        made = figure(chart)
        plotly.graph_objects.Figure(data=made["data"], layout=made["layout"])
    means = [task.response.mean for task in busy.report.tasks if task.response]
    found = zip(*(series.values for series in task_causes(busy.report).series), strict=True)
    assert [sum(parts) for parts in found] == pytest.approx(means)


def test_a_saved_report_as_tables_page_and_pictures(
    folder: Path, busy: dla.SystemResult, capsys: pytest.CaptureFixture[str]
) -> None:
    busy.save("busy.json")
    shown = command(capsys, "system", "busy.toml").out
    said = command(capsys, "report", "busy.json", "--png", "pictures", "--csv", "busy.csv")
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines()[1:].count("") == shown.splitlines()[1:].count("")
    assert said.out.splitlines()[1 : len(shown.splitlines())] == shown.splitlines()[1:]
    page = Path("busy-report/busy.html").read_text(encoding="utf-8")
    assert page == system_page(busy.report)
    assert len(page) < 5e6
    assert sorted(path.stem for path in Path("pictures").iterdir()) == sorted(
        chart.identity for chart in system_charts(busy.report)
    )
    assert Path("busy.csv").read_text(encoding="utf-8").count("\n") == 4
    again = SystemReport.model_validate_json(Path("busy.json").read_text(encoding="utf-8"))
    assert system_page(again) == page


def _changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dla-system/1", "dla-system/2", "not a run report of schema dla-run/1"),
        ('"clock_hz": 1000000000', '"clock_hz": 0', "damaged system report .clock_hz"),
        ('"dla": ', '"dlb": ', "damaged system report .tasks.0: .*causes are dlb"),
        ('"npu": {', '"other": {', "timeline refers to other units"),
        ('"window": 1,', '"window": 0,', "damaged system report .timeline.window"),
    ],
)
def test_damaged_reports_are_one_line(
    old: str,
    new: str,
    message: str,
    folder: Path,
    busy: dla.SystemResult,
    capsys: pytest.CaptureFixture[str],
) -> None:
    busy.save("busy.json")
    text = Path("busy.json").read_text(encoding="utf-8")
    Path("busy.json").write_text(_changed(text, old, new), encoding="utf-8")
    said = command(capsys, "report", "busy.json")
    assert said.status == 2
    assert len(said.err.splitlines()) == 1
    assert re.search(message, said.err)


def test_summaries_are_of_networks(
    folder: Path, busy: dla.SystemResult, capsys: pytest.CaptureFixture[str]
) -> None:
    busy.save("busy.json")
    assert (
        "--summary is for runs of one network"
        in command(capsys, "report", "busy.json", "--summary").err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["report", "busy.json", "busy.json"],
            "busy.json: a run of a system, .*'dla system FILE --sweep",
        ),
        (
            ["sweep", "busy.toml"],
            "busy.toml: it describes a system; 'dla system busy.toml --sweep KEY=VALUE,",
        ),
        (
            ["report", "many.json"],
            "many.json: a sweep of a system, of which there is no page; 'dla system",
        ),
        (
            ["system", "busy.toml", "--policy", "pro"],
            "busy.toml: unknown policy 'pro'; .*co-optimised",
        ),
    ],
)
def test_what_systems_are_not_for_says_what_is(
    words: list[str],
    message: str,
    folder: Path,
    busy: dla.SystemResult,
    capsys: pytest.CaptureFixture[str],
) -> None:
    busy.save("busy.json")
    dla.sweep_system(
        {"task": [{"name": "a", "cpu": 1, "period": 9}]}, {"seed": [1]}, until=20
    ).save("many.json")
    said = command(capsys, *words)
    assert (said.status, len(said.err.splitlines())) == (2, 1)
    assert re.search(message, said.err)


def test_a_deadline_that_no_job_can_meet_is_named() -> None:
    """b is there when a ends, and takes 30 cycles of its 29 at half the speed.

    C takes 14 of its 14.
    """
    tasks = [
        {"name": "a", "cpu": 1, "period": 100, "deadline": 9},
        {"name": "b", "cpu": 15, "after": "a", "deadline": 29},
        {"name": "c", "cpu": 7, "after": "a", "deadline": 14},
    ]
    found = dla.system({"task": tasks, "cpu": {"speed": 0.5, "cores": 3}}, until=1000)
    assert list(deadline_lines(found.report)) == [
        "task 'b': no job can meet its deadline of 29 cycles, because it takes 30",
        "task 'b': its deadline of 29 cycles is before the period of 'a', 100; "
        "deadlines count from the release of a job",
        "task 'c': its deadline of 14 cycles is before the period of 'a', 100; "
        "deadlines count from the release of a job",
    ]
    assert {task.name: task.missed for task in found.report.tasks} == {"a": 0, "b": 10, "c": 0}


def test_the_rarest_predecessor_is_named_where_a_deadline_is_before_its_period() -> None:
    """Behind two, one of them through another; a deadline of just the period is not before it."""
    tasks = [
        {"name": "often", "cpu": 1, "period": 20},
        {"name": "rare", "cpu": 1, "period": 50},
        {"name": "between", "cpu": 1, "after": "rare", "deadline": 50},
        {"name": "last", "cpu": 1, "after": ["often", "between"], "deadline": 49},
    ]
    report = dla.system({"task": tasks}, until=200).report
    named = {
        task.name: task.rarer and (task.rarer.name, task.rarer.period) for task in report.tasks
    }
    assert named == {"often": None, "rare": None, "between": None, "last": ("rare", 50)}
    assert SystemReport.model_validate_json(report_json(report)) == report
