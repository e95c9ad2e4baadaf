"""The account of a whole run: accelerator, CPU and transfers, one after another.

All reports show the same account.
"""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from pydantic import ValidationError

from dla_sim.presets import load_hardware
from experiments.report.schema import EndToEnd, RunReport
from experiments.running.inference import run
from tests.experiments.command_line import dla, tiny_model
from tests.experiments.reporting import compared, tiny_run


def summing(folder: Path) -> Path:
    """Save a model with two running sums that no accelerator computes.

    A convolution precedes them and a Hardmax is between them.
    """
    model = tiny_model()
    graph = model.graph
    graph.node[-1].output[0] = "rectified"
    graph.initializer.append(helper.make_tensor("axis", TensorProto.INT64, [], [1]))
    graph.node.extend(
        [
            helper.make_node("CumSum", ["rectified", "axis"], ["sum"], name="sum"),
            helper.make_node("Hardmax", ["sum"], ["most"], name="most"),
            helper.make_node("CumSum", ["most", "axis"], ["result"], name="again"),
        ]
    )
    path = folder / "summing.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    return run(summing(tmp_path_factory.mktemp("model"))).report


def account(report: RunReport) -> EndToEnd:
    assert report.end_to_end is not None
    return report.end_to_end


def test_parts_follow_one_another_and_what_passes_between_takes_time(report: RunReport) -> None:
    """The host packs what enters, and unpacks what leaves, at 4 bytes a cycle.

    3 channels of 64 positions in atoms of 4 bytes, 4 channels in atoms of 8.
    """
    found = account(report)
    assert [part.on for part in found.segments] == ["cpu", "transfer", "dla", "transfer", "cpu"]
    assert [part.region for part in found.segments] == [None, 0, 0, 0, None]
    assert [part.cycles for part in found.segments if part.on == "transfer"] == [
        4 * 64 // 8 + 4 * 64 // 4,
        8 * 64 // 8 + 8 * 64 // 4,
    ]
    assert (
        found.cycles == report.totals.cycles + report.host.estimated_cycles + found.transfer_cycles
    )
    assert (found.dla_macs, found.cpu_macs) == (report.totals.macs, 0)


def test_on_ideal_memory_the_host_packs_nothing(tmp_path: Path) -> None:
    found = account(run(summing(tmp_path), isa="v4").report)
    bus = load_hardware(None).timing.bus_bytes
    assert [part.cycles for part in found.segments if part.on == "transfer"] == [
        ceil(3 * 8 * 8 / bus),
        ceil(4 * 8 * 8 / bus),
    ]


def test_what_falls_back_is_summed_by_operator_and_reason_the_dearest_first(
    report: RunReport,
) -> None:
    found = account(report).fallbacks
    assert {(item.op_type, item.nodes) for item in found} == {
        ("CumSum", 2),
        ("Hardmax", 1),
        ("QuantizeLinear", 1),
        ("DequantizeLinear", 1),
    }
    dear = [item.estimated_cycles + item.edge_cycles for item in found]
    assert dear == sorted(dear, reverse=True)
    assert sum(item.estimated_cycles for item in found) == report.host.estimated_cycles
    (sums,) = (item for item in found if item.op_type == "CumSum")
    (edge,) = (item.estimated_cycles for item in found if item.op_type == "DequantizeLinear")
    assert {item.op_type: item.edge_cycles for item in found if item.edge_cycles} == {
        "CumSum": edge
    }
    assert sums.rule == "integer"
    assert sums.reason.startswith("CumSum stays in float: it runs in another form")


def test_partition_says_what_run_says(
    report: RunReport, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = tmp_path / "where.json"
    shown = dla(capsys, "partition", summing(tmp_path), "--json", place)
    assert EndToEnd.model_validate(json.loads(place.read_text())["end_to_end"]) == account(report)
    whole = account(report)
    time = whole.share(whole.dla_cycles)
    macs = whole.dla_macs
    assert (
        f"1 of 6 nodes and 100.00% of {macs:,} MACs on the DLA, {time:.1%} of the time\n"
        in shown.out
    )
    last = shown.out.splitlines()[-1]
    assert last.startswith(
        f"end to end ~{whole.cycles:,} cycles, estimated: accelerator {time:.1%} "
        f"({whole.dla_cycles:,})"
    )
    ran = dla(capsys, "run", summing(tmp_path), "--json", place, "--all")
    assert last in ran.out.splitlines()[1]


def test_integers_leave_the_quantisation_at_the_ends_to_the_application(
    report: RunReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = account(report)
    (first,) = (layer for layer in report.host.layers if layer.op_type == "QuantizeLinear")
    # what the CPU computes in float needs the other one
    assert real.interface_cycles == first.estimated_cycles
    integers = account(run(summing(tmp_path), integer_io=True).report)
    assert (integers.interface_cycles, integers.cycles) == (0, real.cycles - real.interface_cycles)
    assert integers.share(integers.cpu_cycles) == real.integer_cpu_share
    said = (
        f"with --integer-io {real.integer_cpu_share:.1%} of the time ({integers.cpu_cycles:,} "
        "cycles) on the CPU\n"
    )
    assert said in dla(capsys, "partition", summing(tmp_path)).out
    ran = ("run", summing(tmp_path), "--all")
    assert said.rstrip() in dla(capsys, *ran).out
    assert "with --integer-io" not in dla(capsys, *ran, "--integer-io").out


def test_two_runs_are_compared_from_end_to_end(report: RunReport) -> None:
    found = compared(tiny_run(), report).totals["end_to_end_cycles"]
    assert found == (account(tiny_run()).cycles, account(report).cycles)


@pytest.mark.parametrize("key", ["cycles", "dla_cycles", "cpu_cycles", "transfer_cycles"])
def test_sums_must_hold(key: str) -> None:
    content = tiny_run().model_dump(mode="json", by_alias=True)
    content["end_to_end"][key] += 1
    with pytest.raises(ValidationError, match="the sum of"):
        RunReport.model_validate(content)


def test_it_is_the_account_of_the_rest_of_the_report() -> None:
    content = tiny_run().model_dump(mode="json", by_alias=True)
    whole = content["end_to_end"]
    for part in (whole, next(part for part in whole["segments"] if part["on"] == "dla")):
        part["cycles"] += 1
    whole["dla_cycles"] += 1
    with pytest.raises(ValidationError, match="dla_cycles"):
        RunReport.model_validate(content)
