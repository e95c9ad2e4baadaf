"""Joint sweeps: one row a machine over all networks, its limits and weights, and the answer."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from experiments.cost.table import FOLDER
from experiments.explore.exploring import explore
from experiments.report.shown import data_frame as pandas_table
from experiments.sweep.constraints import parse_constraint
from experiments.sweep.joint import Joint, answer, load_joint
from experiments.sweep.results import load
from experiments.sweep.session import sweep
from experiments.sweep.spec import parse_spec
from isa.errors import InputError
from tests.experiments.command_line import dla, save_tiny
from tests.experiments.sweeping import written
from tests.experiments.test_html_run import data_of

if TYPE_CHECKING:
    import pandas

NETWORKS = ("digits-cnn", "keyword-spotting", "micro-speech")
QUESTION: dict[str, Any] = {
    "joint": True,
    "networks": list(NETWORKS),
    "constraints": ["mm2 <= 1", "ms <= 5"],
    "limits": {"keyword-spotting": "ms <= 0.2"},
    "weights": {"digits-cnn": 10},
    "arch": {
        "pe": [{"ic": ic, "oc": oc} for ic in (1, 4, 8) for oc in (4, 8, 16)],
        "sram_bytes": ["64 KiB", "2 MiB"],
    },
    "timing": {"dram_latency": [25, 100]},
}
"""Three networks on 36 machines."""
AXES = ["pe.ic", "pe.oc", "sram_bytes", "dram_latency"]
WEIGHTS = {"digits-cnn": 10, "keyword-spotting": 1, "micro-speech": 1}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results file with a row for every point of the question."""
    return tmp_path_factory.mktemp("joint") / "question.sqlite"


def asked(results: Path, **changes: Any) -> Joint:
    found = sweep(QUESTION | changes, output=results, workers=1)
    assert found.joint is not None
    return found.joint


def pivot(results: Path, column: str) -> pandas.DataFrame:
    """A column of the ordinary table, one row a machine and one column a network."""
    table = load(results, cost="horowitz-45nm")
    table["ms"] = table["cycles"] / table["clock_hz"] * 1e3
    table["mm2"] = table["estimated_area_um2"] / 1e6
    table["uJ"] = table["estimated_energy_pj"] / 1e6
    return table.pivot(index=AXES, columns="network", values=column)


def machine_of(joint: Joint, place: tuple[int, ...]) -> Any:
    wanted = dict(zip(AXES, place, strict=True))
    return next(one for one in joint.machines if dict(one.shown) == wanted)


def test_the_answer_is_that_of_a_pivot_over_the_ordinary_table(results: Path) -> None:
    joint = asked(results)
    times = pivot(results, "ms")
    areas = pivot(results, "mm2")[NETWORKS[0]]
    met = (times <= 5).all(axis=1) & (times["keyword-spotting"] <= 0.2) & (areas <= 1)
    total = sum(times[name] * weight for name, weight in WEIGHTS.items())
    assert 0 < met.sum() < len(met) == len(joint.machines) == 36
    assert len(joint.meeting) == met.sum()
    assert joint.best is machine_of(joint, total[met].idxmin())
    assert joint.cheapest is machine_of(
        joint, min(areas[met].index, key=lambda place: (areas[place], total[place]))
    )
    assert joint.best is not joint.cheapest
    assert answer(joint).startswith(f"{met.sum()} of 36 machines meet all limits; best: pe.ic=8 ")
    table = joint.table.set_index(AXES)
    assert table["meets"].eq(met.reindex(table.index)).all()
    for name in NETWORKS:
        assert table[f"ms.{name}"].to_dict() == pytest.approx(times[name].to_dict())
        assert table[f"uJ.{name}"].to_dict() == pytest.approx(pivot(results, "uJ")[name].to_dict())
    assert table["ms"].to_dict() == pytest.approx(total.to_dict())
    assert table["ips"].to_dict() == pytest.approx((1e3 / total).to_dict())
    assert table["mm2"].to_dict() == pytest.approx(areas.to_dict())


def test_the_page_shows_what_a_pivot_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The latest question about the same points counts: here with other limits."""
    results = tmp_path / "again.sqlite"
    asked(results, limits={}, constraints="mm2 <= 1")
    sweep(QUESTION, output=results, workers=1)
    page = tmp_path / "page.html"
    assert dla(capsys, "report", str(results), "-o", str(page)).status == 0
    text = page.read_text()
    joint = load_joint(results)
    assert joint is not None
    assert joint.manifests[0]["serial"] == 1
    data = data_of(text)
    columns = {
        name: [one["distinct"][code] for code in one["codes"]] if "codes" in one else one["values"]
        for name, one in data["columns"].items()
    }
    rows = zip(*columns.values(), strict=True)
    table = pandas_table(dict(zip(columns, row, strict=True)) for row in rows).set_index(AXES)
    times = pivot(results, "ms")
    areas = pivot(results, "mm2")[NETWORKS[0]]
    met = (times <= 5).all(axis=1) & (times["keyword-spotting"] <= 0.2) & (areas <= 1)
    total = sum(times[name] * weight for name, weight in WEIGHTS.items())
    assert (table["limits"] == "met").to_dict() == met.to_dict()
    assert table["ms"].to_dict() == pytest.approx(total.to_dict(), rel=1e-5)
    assert table["mm2"].to_dict() == pytest.approx(areas.to_dict(), rel=1e-5)
    for name in NETWORKS:
        assert table[f"ms.{name}"].to_dict() == pytest.approx(times[name].to_dict(), rel=1e-5)
        assert f"ms.{name}" in data["listed"]
    missed = table["limits_missed"][~met].str.contains("keyword-spotting: ms <= 0.2")
    assert missed.to_dict() == (times["keyword-spotting"][~met] > 0.2).to_dict()
    assert data["runs"] == [joint.command(one) for one in joint.machines]
    assert f"<p>{met.sum()} of 36 machines meet all limits; best: " in text
    assert (data["x"], data["y"]) == ("mm2", "ms")


def test_where_is_one_more_limit_of_a_joint_sweep(results: Path) -> None:
    asked(results)
    joint = load_joint(results, where="ms < 0.15 and sram_bytes <= 64 KiB")
    assert joint is not None
    times = pivot(results, "ms")
    met = (times < 0.15).all(axis=1)
    wanted = {place for place in met[met].index if place[2] <= 65536}
    assert wanted
    assert wanted == {tuple(one.shown.values()) for one in joint.meeting}


@pytest.mark.parametrize("objective", ["ms", "ips", "uJ", "mm2"])
def test_the_best_machine_has_the_best_objective(results: Path, objective: str) -> None:
    joint = asked(results, objective=objective)
    table = joint.table.query("meets")
    best = table[objective].max() if objective == "ips" else table[objective].min()
    assert joint.best is not None
    assert joint.best.total(objective) == best
    for one, other in zip(joint.front, joint.front[1:], strict=False):
        assert (one.total("mm2") or 0) < (other.total("mm2") or 0)
    assert joint.best in joint.front
    assert joint.cheapest in joint.front


def test_weights_change_the_best_machine(tmp_path: Path) -> None:
    """The least energy of one network is on a wide array, that of another on a square one."""
    pes = [{"ic": 1, "oc": 64}, {"ic": 8, "oc": 8}]
    question: dict[str, Any] = {
        "constraints": [], "limits": {}, "timing": {}, "objective": "uJ",
        "arch": {"pe": pes, "sram_bytes": ["64 KiB"]},
    }  # fmt: skip
    table = asked(tmp_path / "two.sqlite", **question).table
    places = {name: table[f"uJ.{name}"].idxmin() for name in NETWORKS}
    assert set(places.values()) == {0, 1}
    for name, place in places.items():
        weights = {one: 1e9 if one == name else 1e-9 for one in NETWORKS}
        best = asked(tmp_path / "two.sqlite", **question, weights=weights).best
        assert best is not None
        assert best.networks[name].values["uJ"] == table.loc[place, f"uJ.{name}"]


def test_the_command_of_the_answer_brings_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a preset file, a network file, its options, and an ISA that widens words."""
    save_tiny(tmp_path)
    (tmp_path / "mine.toml").write_text("arch = { pe = { ic = 2, oc = 4 }, sram_bytes = 65536 }\n")
    monkeypatch.chdir(tmp_path)
    text = """
        joint = true
        networks = ["tiny.onnx", "digits-cnn"]
        presets = ["mine.toml", "balanced-64"]
        isa = ["v4", "v5"]
        integer_io = true
        seed = 3
        timing.bus_bytes = [8, 16]
        """
    written(tmp_path, text)
    found = dla(capsys, "sweep", "grid.toml", "--workers", "1", "--json", "grid.json")
    assert (found.status, found.err) == (0, "")
    saved = json.loads(Path("grid.json").read_text())
    assert saved["answer"].startswith("8 of 8 machines run all networks; best: ")
    assert saved["answer"].endswith("; run the best: " + saved["best"]["command"])
    printed = found.out[found.out.index("8 of 8 machines") :]
    assert max(map(len, printed.splitlines())) <= 80
    told, _, commands = printed.partition("run the best:\n")
    assert saved["answer"].startswith(" ".join(told.split()))
    assert shlex.split(commands) == shlex.split(saved["best"]["command"])
    for row in (saved["best"], saved["machines"][2]):
        commands = row["command"].split(" && ")
        for command, name in zip(commands, ("tiny.onnx", "digits-cnn"), strict=True):
            words = shlex.split(command)
            assert words[:3] == ["dla", "run", name]
            run = dla(capsys, *words[1:], "--summary", "--json", "run.json")
            assert run.status == 0
            report = json.loads(Path("run.json").read_text())
            time = 1e3 * report["totals"]["cycles"] / report["timing"]["clock_hz"]
            assert time == pytest.approx(row[f"ms.{name}"], rel=1e-12)


def test_a_network_that_does_not_fit_is_a_limit_that_is_missed(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    joint = asked(
        tmp_path / "small.sqlite",
        networks=["digits-cnn", "keyword-spotting"],
        limits={},
        weights={},
        constraints=["ms <= 0.0000001"],
        arch={"pe.oc": [64], "sram_bytes": [1024, 65536, 131072]},
        schedules="seed",
        timing={},
    )
    small, large, _ = joint.machines
    assert small.missed[-1] == "keyword-spotting: infeasible"
    assert large.missed == ("digits-cnn: ms <= 0.0000001", "keyword-spotting: ms <= 0.0000001")
    assert joint.best is joint.cheapest is None
    assert answer(joint) == (
        "0 of 3 machines meet all limits; most often missed: digits-cnn: ms <= 0.0000001 "
        "(on 2 of them)"
    )
    assert joint.lines()[-1] == answer(joint)
    assert joint.table["ms.keyword-spotting"].isna().tolist() == [True, False, False]


def test_the_area_is_that_of_the_cost_table_and_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (FOLDER / "horowitz-45nm.toml").read_text()
    twice = re.sub(
        r"square_micrometres = ([\d.]+)",
        lambda at: f"square_micrometres = {2 * float(at[1])}",
        text,
    )
    Path("twice.toml").write_text(twice)
    Path("joint.toml").write_text('joint = true\nnetworks = "digits-cnn"\narch.pe.oc = [4, 8]\n')
    areas = []
    for cost in ("horowitz-45nm", "twice.toml"):
        found = dla(
            capsys, "sweep", "joint.toml", "--workers", "1", "--cost", cost, "--csv", "a.csv"
        )
        assert found.status == 0
        note = (
            f"mm² (estimate by {cost}): processing elements and scratchpad; not included: the bus"
        )
        printed = " ".join(found.out.split())
        assert note in printed
        assert "not included: cycles of the CPU, about digits-cnn 2,093" in printed
        head, row = (line.split(",") for line in Path("a.csv").read_text().splitlines()[:2])
        areas.append(float(row[head.index("mm2")]))
    assert areas[1] == pytest.approx(2 * areas[0])


def test_an_energy_that_no_table_prices_is_no_limit_and_no_objective(tmp_path: Path) -> None:
    flash = {
        "networks": ["digits-cnn"], "limits": {}, "weights": {}, "constraints": [],
        "arch": {}, "timing": {"flash_bytes": [2], "flash_latency": [10]},
    }  # fmt: skip
    place = tmp_path / "flash.sqlite"
    assert asked(place, **flash).best is not None
    with pytest.raises(InputError, match=r"^constraints: 'uJ < 3': uJ of digits-cnn is unknown, "):
        asked(place, **flash | {"constraints": ["uJ < 3"]})
    with pytest.raises(InputError, match=r"^objective: uJ of balanced-64 is unknown, because "):
        answer(asked(place, **flash | {"objective": "uJ"}))


START = 'joint = true\nnetworks = ["digits-cnn", "micro-speech"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('networks = "digits-cnn"\nlimits.digits-cnn = "ms < 3"\n',
         "limits: only a joint sweep has it; add joint = true"),
        ('networks = "digits-cnn"\nconstraints = "ms < 3"\n',
         "constraints: 'ms < 3': 'ms' is a figure, and known only when a point has run; with joint "
         "= true it is a limit (docs/sweeps.md); else choose one of network, "),
        (START + 'limits.digit-cnn = "ms < 3"\n',
         "limits.digit-cnn: no network of this sweep; did you mean digits-cnn? choose one of "),
        (START + "weights.lenet = 3\n", "weights.lenet: no network of this sweep; choose one of "),
        (START + "weights.digits-cnn = 0\n", "weights.digits-cnn is 0: should be greater than 0"),
        (START + 'objective = "s"\n', "objective is 's': should be 'ms', 'ips', 'uJ' or 'mm2'"),
        (START + "constraints = \"network != 'digits-cnn'\"\n",
         "constraints: 'network != 'digits-cnn'': a joint sweep runs every network on every "
         "machine; leave out network, or write limits.NETWORK"),
        (START + 'limits.digits-cnn = "sec < 3"\n',
         "limits.digits-cnn: 'sec < 3': unknown key 'sec'; choose one of network, "),
        (START + 'limits.digits-cnn = "ms <"\n',
         "limits.digits-cnn: 'ms <' is not an expression such as "),
    ],
)  # fmt: skip
def test_errors_of_a_specification(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_spec(text, source="grid.toml")
    assert str(raised.value).startswith(f"grid.toml: {message}")


def test_units_are_objectives_of_an_exploration(tmp_path: Path) -> None:
    """With the same figures as the cycles and the area; an energy with a flash is on no front."""
    save_tiny(tmp_path)
    given = {"networks": [str(tmp_path / "tiny.onnx")], "arch": {"pe.oc": [4, 8, 16]}}
    place = tmp_path / "explored.sqlite"
    found = explore(given, objectives="ms,mm2", output=place, workers=1)
    other = explore(given, objectives="cycles,area", output=place, workers=1)
    assert len(found.found) == 3
    for one, same in zip(found.front, other.front, strict=True):
        assert one.row["key"] == same.row["key"]
        assert one.costs is not None
        assert same.costs is not None
        assert one.costs[0] == pytest.approx(1e3 * same.row["cycles"] / same.row["clock_hz"])
        assert one.costs[1] == pytest.approx(same.costs[1])
    assert [objective.title for objective in found.objectives] == ["ms", "mm2 (mm², estimate)"]
    given["timing"] = {"flash_bytes": 2, "flash_latency": 10}
    unknown = explore(given, objectives="uJ,mm2", output=place, workers=1)
    assert unknown.front == ()
    assert {point.row["status"] for point in unknown.found} == {"ok"}


@pytest.mark.parametrize("objectives", [None, "uJ,mm2"])
def test_an_exploration_of_several_networks_finds_the_machine_of_a_pivot(
    results: Path, objectives: str | None
) -> None:
    """With as many trials as machines it has evaluated all; its front is that of the sweep."""
    found = explore(QUESTION, objectives=objectives, trials=36, output=results, workers=1)
    assert found.joint is not None
    assert len(found.joint.machines) == 36
    times, areas = pivot(results, "ms"), pivot(results, "mm2")[NETWORKS[0]]
    met = (times <= 5).all(axis=1) & (times["keyword-spotting"] <= 0.2) & (areas <= 1)
    column = pivot(results, "ms" if objectives is None else "uJ")
    total = sum(column[name] * weight for name, weight in WEIGHTS.items())[met]
    rows = {tuple(point.row[name] for name in AXES): point for point in found.found}
    assert {place: point.row["status"] == "ok" for place, point in rows.items()} == met.to_dict()
    beaten = {
        one
        for one in total.index
        for other in total.index
        if (total[other], areas[other]) != (total[one], areas[one])
        and total[other] <= total[one]
        and areas[other] <= areas[one]
    }
    front = {tuple(point.row[name] for name in AXES) for point in found.front}
    assert {(total[place], areas[place]) for place in front} == {
        (total[place], areas[place]) for place in set(total.index) - beaten
    }
    swept = asked(results)
    assert answer(found.joint) == answer(swept)
    assert found.comparison is not None
    assert found.comparison.share == 1.0
    assert found.content()["joint"]["answer"] == answer(swept)


def test_objectives_of_an_exploration_of_several_networks() -> None:
    with pytest.raises(
        InputError, match=r"^objectives: cycles is a figure of one network; choose two of ms, ips"
    ):
        explore(QUESTION, objectives="cycles,mm2")
    networks = {"networks": ["digits-cnn", "micro-speech"]}
    with pytest.raises(InputError, match=r"^networks: .*; give one, or add joint = true to search"):
        explore(networks)


def test_tables_of_machines_are_for_joint_sweeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text('networks = "digits-cnn"\n')
    found = dla(capsys, "sweep", "grid.toml", "--json", "grid.json")
    assert found.status == 2
    assert found.err == (
        "error: grid.json: --json and --csv are for joint sweeps; add joint = true to grid.toml, "
        "or give --export FILE.csv\n"
    )


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("sram_bytes >= 512 KiB", True),
        ("sram_bytes < 0.5 MiB", False),
        ("sram_bytes / 512KiB = 1", True),
        ("schedule = '1 KiB'", False),
    ],
)
def test_sizes_in_constraints_have_units(text: str, holds: bool) -> None:
    values = {"sram_bytes": 524288, "schedule": "(1*KiB)"}
    assert parse_constraint(text).is_satisfied(values) is holds
