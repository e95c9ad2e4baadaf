"""``--cpu PATTERN``: chosen nodes stay on the CPU with the reason; outputs are equal to the bit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import experiments
from byoc.compiler import partition_package
from byoc.operators.onnx_view import BOUNDARIES
from byoc.package.package import Package, load_package, save_package
from byoc.partitioning.forcing import FORCED, keep_on_cpu
from dla_sim.presets import load_preset
from experiments.running.network import load_network
from experiments.running.package_cache import PackageCache
from isa.errors import InputError
from tests.experiments.command_line import dla, save_tiny


def kept(package: Package) -> set[str]:
    """Names of the nodes that are forced to the CPU."""
    found = partition_package(package, load_preset().arch).placement
    assert all(place.on == "cpu" for place in found if place.rule == FORCED)
    return {place.node for place in found if place.rule == FORCED}


@pytest.fixture(scope="module")
def digits() -> Package:
    return load_network("digits-cnn").package


@pytest.mark.parametrize(
    ("patterns", "nodes"),
    [
        (["conv"], {"conv"}),
        (["*p*"], {"depthwise", "pointwise", "pool"}),
        (["op:Conv", "pool"], {"conv", "depthwise", "pointwise", "pool"}),
        (["op:Max*"], {"pool"}),
        (["[cd]*"], {"conv", "classifier", "depthwise"}),
        (["image_*", "conv"], {"conv"}),  # the first runs there anyway
        ([], set()),
    ],
)
def test_patterns_choose_nodes(patterns: list[str], nodes: set[str], digits: Package) -> None:
    assert kept(keep_on_cpu(digits, patterns)) == nodes


def test_brackets_in_a_name_stand_for_themselves_too(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(save_tiny(tmp_path))
    model.graph.node[0].name = "block[0]/conv"
    onnx.save(model, tmp_path / "brackets.onnx")
    package = load_network(str(tmp_path / "brackets.onnx")).package
    assert kept(keep_on_cpu(package, ["block[0]/conv"])) == {"block[0]/conv"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "poool",
            "--cpu poool: no node matches; did you mean pool? 'dla partition MODEL' lists them",
        ),
        ("op:Softmax", "--cpu op:Softmax: no node matches; the types are Conv, DequantizeLinear, "),
        ("", "--cpu : no node matches; "),
    ],
)
def test_a_pattern_without_a_node_is_an_error(pattern: str, message: str, digits: Package) -> None:
    with pytest.raises(InputError) as error:
        keep_on_cpu(digits, ["conv", pattern])
    assert str(error.value).startswith(message)


def test_any_choice_of_nodes_gives_the_same_outputs() -> None:
    generator = random.Random(5)
    whole = experiments.run("digits-cnn").report
    names = [place.node for place in whole.placement if place.op_type not in BOUNDARIES]
    for _ in range(4):
        chosen = generator.sample(names, generator.randint(1, len(names)))
        report = experiments.run("digits-cnn", cpu=chosen).report
        assert {place.node for place in report.placement if place.on == "cpu"} >= set(chosen)
        assert report.check.mismatches == 0
        assert report.check.outputs is not None
        assert report.check.outputs.differences == 0


def test_a_package_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = dla(capsys, "compile", "digits-cnn", "--cpu", "pool", "-o", tmp_path / "made.dla")
    assert made.status == 0
    assert kept(load_package(tmp_path / "made.dla")) == {"pool"}
    again = load_package(tmp_path / "made.dla")
    save_package(keep_on_cpu(again, ["conv"]), tmp_path / "both.dla")
    assert kept(load_package(tmp_path / "both.dla")) == {"pool", "conv"}


def test_what_is_cached_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLA_NO_CACHE")
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path / "cache"))
    cache = PackageCache(tmp_path / "cache")
    model = str(save_tiny(tmp_path))
    for patterns, nodes in (([], set()), (["conv"], {"conv"}), ([], set())):
        report = experiments.run(model, cpu=patterns).report
        assert {
            place.node for place in report.placement if "--cpu" in (place.reason or "")
        } == nodes
        assert report.check.mismatches == 0
    assert len([path for path in cache.entries() if path.suffix == ".package"]) == 1


@pytest.mark.parametrize(
    "words",
    [["run"], ["partition"], ["compile"], ["emit"], ["explain"], ["tune", "--measurements", "1"]],
)
def test_every_command_that_imports_has_it(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found = dla(capsys, words[0], "digits-cnn", *words[1:], "--cpu", "no such node")
    assert found.status == 2
    assert found.err.startswith("error: --cpu no such node: no node matches; ")
    assert found.err.count("\n") == 1
    assert dla(capsys, words[0], "digits-cnn", *words[1:], "--cpu", "pool").status == 0


def test_the_reason_stands_in_report_and_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    report = json.loads(dla(capsys, "run", "digits-cnn", "--cpu", "op:MaxPool", "--json", "-").out)
    assert report["command"] == "dla run digits-cnn --cpu op:MaxPool"
    reasons = {entry["node"]: entry["reason"] for entry in report["placement"]}
    assert reasons["pool"] == "kept on the CPU by --cpu op:MaxPool"
    assert (
        "kept on the CPU by --cpu op:MaxPool"
        in dla(capsys, "partition", "digits-cnn", "--cpu", "op:MaxPool").out
    )
