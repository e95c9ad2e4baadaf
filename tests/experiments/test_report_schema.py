"""The run report: sums that must hold, exact JSON round trip, messages for bad files, tables."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dla_sim.engine.accounts import CAUSES
from dla_sim.engine.breakdown import PARTS
from experiments.report.schema import UNITS, RunReport, report_json
from experiments.report.shown import Document
from experiments.report.store import default_path, load_report
from experiments.running.result import RUN
from isa.arch import Arch
from isa.errors import InputError
from isa.files import write_atomically
from isa.instruction import KINDS

LAYER = {
    "onnx_nodes": ["conv"],
    "region": 0,
    "macs": 640,
    "utilization": 0.1,
    "dram_read_bytes": 10,
    "dram_write_bytes": 5,
    "tiles": 2,
    "name": "conv",
    "kind": "CONV",
    "cycles": 100,
    "stalls": {"EX": {"token_LD": 40}},
    "breakdown": dict.fromkeys(PARTS, 0) | {"compute": 60, "weights": 40},
}
WHOLE = {
    "cycles": 1334,
    "dla_cycles": 100,
    "cpu_cycles": 1234,
    "transfer_cycles": 0,
    "dla_macs": 640,
    "cpu_macs": 0,
    "segments": [
        {"on": "dla", "region": 0, "nodes": 1, "cycles": 100},
        {"on": "cpu", "region": None, "nodes": 1, "cycles": 1234},
    ],
    "fallbacks": [
        {
            "op_type": "Softmax",
            "rule": "",
            "reason": "no pattern",
            "nodes": 1,
            "macs": 0,
            "estimated_cycles": 1234,
        }
    ],
}


def sample() -> dict[str, Any]:
    """Return a small consistent report: 100 cycles, of which EX works 60."""
    unit = dict.fromkeys(CAUSES, 0)
    return {
        "schema": "dla-run/1",
        "version": "0.1.0",
        "command": "dla run tiny",
        "model": "tiny",
        "hashes": {"arch": Arch().digest()},
        "arch": Arch().model_dump(),
        "timing": {"bus_bytes": 8, "clock_hz": 1_000_000_000},
        "schedule": "default",
        "seed": 0,
        "totals": {
            "cycles": 100,
            "macs": 640,
            "utilization": 0.1,
            "lower_bound_cycles": 20,
            "dram_read_bytes": 10,
            "dram_write_bytes": 5,
            "sram_peak_bytes": 64,
            "instructions": 4,
        },
        "kinds": dict.fromkeys(KINDS, 0) | {"CONV": 60, "DMA": 40},
        "ex_cycles": dict.fromkeys(KINDS, 0) | {"CONV": 60},
        "layers": [copy.deepcopy(LAYER)],
        "units": {name: unit | {"busy": 60, "drained": 40} for name in UNITS},
        "placement": [
            {"node": "conv", "op_type": "Conv", "on": "dla", "region": 0, "reason": None},
            {
                "node": "soft",
                "op_type": "Softmax",
                "on": "cpu",
                "region": None,
                "reason": "no pattern",
            },
        ],
        "host": {
            "nodes": 1,
            "estimated_cycles": 1234,
            "estimate": True,
            "layers": [{"node": "soft", "op_type": "Softmax", "macs": 0, "estimated_cycles": 1234}],
        },
        "edges": [
            {"producer": 0, "consumer": 1, "tensor": "made", "dtype": "int8", "shape": [1, 16]}
        ],
        "end_to_end": copy.deepcopy(WHOLE),
        "check": {
            "oracle": "ONNX Runtime",
            "tensors": 1,
            "elements": 16,
            "mismatches": 0,
            "max_abs_diff": 0,
        },
        "accuracy": {"float": 0.98, "int8": 0.97, "dla": 0.97, "images": 450},
        "compile": {"regions": 1, "words": 20, "sets": 15, "sets_elided": 30, "dram_bytes": 4096},
    }


def test_json_round_trip_is_exact() -> None:
    content = sample()
    content["timing"]["dram_rate"] = "1/3"  # no decimal has this value
    report = RunReport.model_validate(content)
    text = report_json(report)
    assert json.loads(text)["timing"]["dram_rate"] == "1/3"
    assert report_json(RunReport.model_validate(json.loads(text))) == text
    assert list(json.loads(text))[:6] == ["schema", "version", "command", "model", "hashes", "arch"]
    assert json.loads(text)["accuracy"]["float"] == 0.98


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("kinds", "DMA"), 41, "the sum of kinds is 101, expected 100"),
        (("ex_cycles", "CONV"), 59, "the sum of ex_cycles is 59, expected 60"),
        (("layers", 0, "cycles"), 99, "the sum of the layers' cycles is 99, expected 100"),
        (("layers", 0, "macs"), 639, "the sum of the layers' MACs is 639, expected 640"),
        (("units", "ST", "bus"), 1, "the sum of the causes of ST is 101, expected 100"),
        (("totals", "lower_bound_cycles"), 101, "100 cycles are below the bound of 101"),
        (("totals", "roofline_cycles"), 102, "100 cycles are below the bound of 102"),
    ],
)
def test_sums_that_do_not_add_up_are_refused(
    path: tuple[Any, ...], value: int, message: str
) -> None:
    content = copy.deepcopy(sample())
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(ValueError, match="Value error") as caught:
        RunReport.model_validate(content)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schedule",), "<script>alert(1)</script>", "String should match pattern"),
        (("version",), "1\n2", "String should match pattern"),
        (("hashes", "arch"), "a b", "String should match pattern"),
        (("arch", "isa"), "<script>alert(1)</script>", "String should match pattern"),
        (("timing", "dram_rate"), "../3", "String should match pattern"),
        (("arch", "isa"), 3, "isa of the machine is 3"),
        (("arch", "<b>"), 3, "String should match pattern"),
        (("arch", "pe"), 3, "pe.ic of the machine is None"),
        (("arch", "sram_bytes"), "1024", "sram_bytes of the machine is '1024'"),
        (("timing", "bus_bytes"), 10**30, "bus_bytes of the machine is 1000000000000"),
        (("timing", "clock_hz"), 0, "clock_hz of the machine is 0"),
        (("timing", "clock_hz"), float("nan"), "clock_hz of the machine is nan"),
        (("totals", "dram_read_bytes"), 10**30, "less than or equal to"),
        (("model",), "x" * 70_000, "at most 65536 characters"),
        (("model",), "\ud800", "valid string"),
    ],
)
def test_texts_and_numbers_are_bounded(path: tuple[Any, ...], value: object, message: str) -> None:
    content = copy.deepcopy(sample())
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        RunReport.model_validate(content)


def test_save_and_load(tmp_path: Path) -> None:
    report = RunReport.model_validate(sample())
    path = tmp_path / "folder" / default_path(report, report_json(report))
    write_atomically(path, report_json(report))
    assert load_report(path) == report
    assert path.name.startswith("tiny-")
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{path}: no such file; 'dla run MODEL --json {path}' makes a report"),
        (
            "{",
            "{path}: not a run report (it is not JSON); 'dla run MODEL --json {path}' makes a "
            "report",
        ),
        (
            "[]",
            "{path}: not a run report of schema dla-run/1 (schema is None); run 'dla run' again",
        ),
        (
            '{"schema": "x"}',
            "{path}: not a run report of schema dla-run/1 (schema is 'x'); run 'dla run' again",
        ),
        (
            '{"schema": "dla-run/1"}',
            "{path}: damaged run report (version: Field required); run 'dla run' again",
        ),
    ],
)
def test_bad_report_files(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError) as caught:
        load_report(path)
    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_reports_have_finite_numbers(tmp_path: Path, number: str) -> None:
    path = tmp_path / "run.json"
    old = f'"utilization": {sample()["totals"]["utilization"]}'
    text = report_json(RunReport.model_validate(sample()))
    assert old in text
    path.write_text(text.replace(old, f'"utilization": {number}'))
    with pytest.raises(
        InputError, match=r"damaged run report \(totals.utilization: .*; run 'dla run' again$"
    ):
        load_report(path)


def test_tables_show_every_part() -> None:
    console = Console(width=140, record=True, file=None, quiet=False)
    with console.capture() as captured:
        Document(RunReport.model_validate(sample()), RUN).show(console)
    text = captured.get()
    for part in (
        "tiny on 8x8 PEs (ic x oc), 512 KiB SRAM, 8 bytes/cycle, ISA v2, schedule default",
        "~1,234",
        "0 mismatches in 16 elements of 1 tensor against ONNX Runtime",
        "float 98.00%, int8 97.00%, DLA 97.00% of 450 images; int8 and DLA agree on every image",
        "1 region, 20 words: 4 instructions, 15 register writes (30 saved)",
        "1 nodes, estimated 1,234 cycles (not in the total)",
    ):
        assert part in text
