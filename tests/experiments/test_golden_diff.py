"""``dla golden diff`` and ``snapshot``: two machines, two versions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.compare.comparison import LayerSnapshot, Snapshot, compare
from experiments.compare.presentation import comparison_page
from experiments.compare.sources import load_snapshot
from isa.errors import InputError
from tests.experiments.command_line import dla
from tests.experiments.reporting import Page

SEED = "preset=seed-i64,schedule=seed"


def test_a_variant_changes_cycles_and_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    data = tmp_path / "data.json"
    sides = f"{SEED},isa=v1,emulate-depthwise=yes", f"{SEED},isa=v2"
    outcome = dla(
        capsys, "golden", "diff", *sides, "--model", "digits-cnn", "--json", data, "--html", page
    )
    assert outcome.status == 0, outcome.err
    found = json.loads(data.read_text())
    assert found["conditions"] == {"arch.isa": ["v1", "v2"], "emulate-depthwise": ["True", "False"]}
    assert {layer["values"] for layer in found["layers"]} == {"equal"}
    assert found["movers"][0]["name"] == "depthwise"
    assert found["movers"][0]["cycles"] < -8000
    before, after = found["totals"]["cycles"]
    assert sum(layer["cycles"][0] or 0 for layer in found["layers"]) == before
    assert after - before == sum(item["cycles"] for item in found["movers"])
    text = page.read_text()
    assert "default-src 'none'" in text  # no content can fetch anything
    read = Page(text)
    assert "depthwise" in read.text
    assert "CONV + REQUANT" in outcome.out
    assert {"layer-changes", "layer-cycles", "layer-traffic"} <= set(read.ids)
    assert read.links
    assert all(link.startswith("#") for link in read.links)


def test_other_numerics_change_values_and_the_first_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = dla(capsys, "golden", "diff", "default", "numerics=fixed", "--model", "digits-cnn")
    assert outcome.status == 1
    assert outcome.err.startswith("difference: ")
    assert "elements, by at most" in outcome.err
    assert "the first in tensor 'conv_act_QuantizeLinear_Output' at [" in outcome.err


def test_every_option_of_the_compiler_is_a_setting_of_a_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.json"
    sides = "isa=v3,grouped=cpu,strict=no", "isa=v3,grouped=native"
    outcome = dla(capsys, "golden", "diff", *sides, "--model", "resnext-11", "--json", data)
    assert outcome.status == 0, outcome.err
    found = json.loads(data.read_text())
    assert found["conditions"] == {"grouped": ["cpu", "native"]}
    before, after = found["totals"]["macs"]
    assert before < after  # what the CPU computes is none of the machine's
    outcome = dla(capsys, "golden", "diff", "grouped=maybe", "default", "--model", "digits-cnn")
    assert (outcome.status, outcome.err) == (
        2,
        "error: 'grouped=maybe': grouped is 'maybe'; it is auto or cpu or per-group or native\n",
    )


def test_integer_inputs_and_outputs_change_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = dla(capsys, "golden", "diff", "default", "integer-io=yes", "--model", "digits-cnn")
    assert (outcome.status, outcome.err) == (0, "")


def test_a_snapshot_is_compared_with_a_later_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "before.snapshot"
    assert (
        dla(capsys, "golden", "snapshot", "digits-cnn", "--on", "bus_bytes=4", "-o", place).status
        == 0
    )
    outcome = dla(
        capsys, "golden", "diff", place, "bus_bytes=16,burst_bytes=128", "--model", "digits-cnn"
    )
    assert outcome.status == 0
    assert "timing.bus_bytes" in outcome.out
    taken = load_snapshot(place)
    assert sum(layer.figures.get("cycles", 0) for layer in taken.layers) == taken.totals["cycles"]
    assert all(layer.values is not None for layer in taken.layers)


def test_a_run_report_has_no_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "run.json"
    snapshot = tmp_path / "a.snapshot"
    assert dla(capsys, "run", "digits-cnn", "--json", report).status == 0
    assert dla(capsys, "golden", "snapshot", "digits-cnn", "-o", snapshot).status == 0
    data = tmp_path / "data.json"
    assert dla(capsys, "golden", "diff", report, snapshot, "--json", data).status == 0
    found = json.loads(data.read_text())
    assert found["movers"] == []
    assert found["totals"]["cycles"][0] == found["totals"]["cycles"][1]
    assert found["totals"]["instructions"][0] == found["totals"]["instructions"][1]
    assert {layer["values"] for layer in found["layers"]} <= {"unknown", "only in B"}


def _snapshot(*layers: LayerSnapshot) -> Snapshot:
    return Snapshot(
        "made up", {}, layers, {"cycles": sum(layer.figures.get("cycles", 0) for layer in layers)}
    )


def test_layers_are_matched_by_name() -> None:
    one = {"t": np.array([[1, 2], [3, 4]], np.int8)}
    a = _snapshot(
        LayerSnapshot("x", {"cycles": 10}, one), LayerSnapshot("gone", {"cycles": 5}, one)
    )
    other = {"t": np.array([[1, 2], [7, 0]], np.int8)}
    b = _snapshot(
        LayerSnapshot("new", {"cycles": 1}, one), LayerSnapshot("x", {"cycles": 9}, other)
    )
    found = compare(a, b)
    assert [(layer.name, layer.values) for layer in found.layers] == [
        ("x", "differ"),
        ("gone", "only in A"),
        ("new", "only in B"),
    ]
    assert (
        found.layers[0].remark
        == "2 of 4 elements, by at most 4; the first in tensor 't' at [1, 0]: 3 in A, 7 in B"
    )
    assert [(layer.name, layer.change) for layer in found.movers] == [
        ("gone", -5),
        ("x", -1),
        ("new", 1),
    ]
    resized = replace(a, layers=(LayerSnapshot("x", {}, {"t": np.zeros(3, np.int8)}),))
    assert compare(resized, b).layers[0].remark == "tensor 't' is int8 [3] in A, int8 [2, 2] in B"


def test_names_are_quoted_on_the_page() -> None:
    odd = _snapshot(LayerSnapshot("<b>&", {"cycles": 1}, {}))
    page = comparison_page(compare(odd, odd))
    assert "&lt;b&gt;&amp;" in page
    assert "<b>&" not in page


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.snapshot"
    file.write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(InputError, match="not a snapshot of 'dla golden snapshot'"):
        load_snapshot(file)
