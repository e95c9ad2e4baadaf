"""The comparison with Vela: parsing, pairs of results, equal networks and the document."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from onnx import TensorProto

from benchmarks import vela
from benchmarks.vela import (
    MARKS,
    SHAPES,
    SIZES,
    because,
    chosen_shapes,
    pairs,
    tables,
)
from benchmarks.vela_estimates import ACCELERATORS, NETWORKS, parse_summary, read_summary
from benchmarks.vela_records import (
    DEDICATED,
    SHARED,
    Estimate,
    Place,
    Point,
    Setting,
    read_record,
    write_record,
)
from experiments.models import MODELS

ROOT = Path(__file__).parents[2]
ESTIMATES = read_record(vela.RECORD, Setting, Estimate)

# Part of Vela's 5.2 output for micro speech on ethos-u85-128, 16 KiB, tensors in the scratchpad.
SUMMARY = """\
experiment,network,sram_memory_used,dram_memory_used,total_original_weights,total_npu_encoded_weights,\
dram_feature_map_read_bytes,dram_feature_map_write_bytes,dram_weight_read_bytes,dram_total_bytes,cycles_total
default,micro_speech,7.03125,20.109375,16640,19136,128,0,19296,19584,13991
"""
MICRO = Setting("micro-speech", "ethos-u85-128", 16, SHARED)
POINT = Point(cycles=5000, overlapped=4500, roofline=3000, moved_bytes=20_000)


def test_summary_is_read(tmp_path: Path) -> None:
    path = tmp_path / "summary.csv"
    path.write_text(SUMMARY)
    found = parse_summary(read_summary(path), stored_bytes=20_592)
    assert found == Estimate(
        sram_bytes=7200, cycles=13_991, map_bytes=128, constant_bytes=19_456, stored_bytes=20_592,
        weights=16_640, encoded_weights=19_136,
    )  # fmt: skip
    assert found.moved_bytes == 19_584
    # Stored 20,592 bytes of which 19,136 would be 16,640; moved less than once, which is counted as
    # once.
    assert found.unpacked_bytes == 128 + 18_096
    assert replace(found, constant_bytes=41_184).unpacked_bytes == 128 + 2 * 18_096


def test_a_record_is_kept(tmp_path: Path) -> None:
    chosen = {setting: one for setting, one in ESTIMATES.items() if setting.kib == 16}
    write_record(tmp_path / "vela.csv", chosen)
    assert read_record(tmp_path / "vela.csv", Setting, Estimate) == chosen


def points(**cycles: int) -> dict[Place, Point]:
    """All forms alike in all scratchpads, but for the ``cycles`` of some (``x8x8=100``)."""
    forms = [shape for shapes in SHAPES.values() for shape in shapes]
    return {
        Place("micro-speech", shape, 16): replace(
            POINT, cycles=cycles.get(f"x{shape}", POINT.cycles)
        )
        for shape in forms
    }


def test_a_form_is_chosen_for_all() -> None:
    assert chosen_shapes(points(x8x8=100, x32x32=100)) == {
        64: "8x8",
        128: "4x32",
        256: "8x32",
        1024: "32x32",
    }


ENDS = 49 * 40 + 4
"""Bytes of micro speech's input and output."""


@pytest.mark.parametrize(("cycles", "mode"), [(4245, DEDICATED), (4246, DEDICATED), (4247, SHARED)])
def test_the_better_mode_counts_with_the_ends_that_the_shared_one_leaves_out(
    cycles: int, mode: str
) -> None:
    shared = Estimate(16_384, 4000, 1000, 20_000, 20_000, 16_000, 8000)
    other = replace(shared, cycles=cycles, constant_bytes=24_000)
    (pair,) = pairs(
        points(), {MICRO: shared, MICRO._replace(mode=DEDICATED): other}, ["micro-speech"]
    )
    assert (pair.theirs.mode, pair.theirs.cycles) == (mode, min(cycles, 4000 + 246))
    assert (pair.theirs.moved_bytes, pair.theirs.unpacked_bytes) == (21_000 + ENDS, 29_000 + ENDS)
    assert pair.bytes == 20_000 / (21_000 + ENDS)


def test_where_vela_wants_more_than_the_scratchpad_there_is_no_pair() -> None:
    assert (
        pairs(
            points(),
            {MICRO: Estimate(16_385, 4000, 1000, 20_000, 20_000, 16_000, 8000)},
            ["micro-speech"],
        )
        == []
    )


@pytest.mark.parametrize(
    ("encoded", "ours", "reason"),
    [
        (
            8000,
            {"roofline": 4300},
            "Vela compresses these weights 2.00 times: unpacked, its bytes alone take 4,371; no",
        ),
        (16_000, {"roofline": 4300}, "no schedule has fewer than 4,300"),
        (
            16_000,
            {"overlapped": 3900},
            "as Vela counts, without latencies and waits, ours are 3,900",
        ),
        (16_000, {"moved_bytes": 39_999}, "bytes: they alone take 5,000, Vela's 3,371"),
        (
            16_000,
            {},
            "as Vela counts, ours are 4,500; bytes alone take 2,500, and the roofline is 3,000",
        ),
    ],
)
def test_reasons(encoded: int, ours: dict[str, int], reason: str) -> None:
    theirs = Estimate(7200, 4000, 5000, 20_000, 20_000, 16_000, encoded)
    found = {place: replace(point, **ours) for place, point in points().items()}
    (pair,) = pairs(found, {MICRO: theirs}, ["micro-speech"])
    assert because(pair).startswith(reason)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_weights_that_vela_counts(name: str) -> None:
    """It rounds those of a layer up to sixteen."""
    tensors = [
        one for one in MODELS[name].build(0).graph.initializer if one.data_type == TensorProto.FLOAT
    ]
    weights = sum(-(-prod(one.dims) // 16) * 16 for one in tensors if len(one.dims) > 1)
    counted = {
        estimate.weights for setting, estimate in ESTIMATES.items() if setting.network == name
    }
    assert counted == {weights}


def test_the_record_has_every_pair() -> None:
    assert set(ESTIMATES) == {
        Setting(name, accelerator, kib, mode)
        for name in NETWORKS
        for accelerator in ACCELERATORS
        for kib in SIZES
        for mode in (DEDICATED, SHARED)
    }


def test_the_document_shows_the_record() -> None:
    """docs/validation.md has the tables of the record.

    ``python -m benchmarks.vela --record benchmarks/vela-ours.csv --markdown docs/validation.md``
    writes both.
    """
    found = pairs(read_record(ROOT / "benchmarks/vela-ours.csv", Place, Point), ESTIMATES, NETWORKS)
    begin, end = MARKS
    assert (
        "\n".join((begin, "", *tables(found), "", end)) in (ROOT / "docs/validation.md").read_text()
    )


def test_our_side_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro speech moves its weights, records, inputs, outputs and softmax table once each.

    Exceptions are eight input rows between two bands, whose windows are ten rows high and two rows
    apart, and the records of the logits. These sum their inputs in two halves, and load the records
    for each.
    """
    monkeypatch.setattr(vela, "SHAPES", {64: ("8x8",)})
    monkeypatch.setattr(vela, "SIZES", (64,))
    found = vela.measure("micro-speech", "v4")
    point = found.pop(Place("micro-speech", "8x8", 64))
    assert found == {}
    again, rest = divmod(point.moved_bytes - (16_640 + (12 + 4) * 8 + 1024 + ENDS), 8 * 40)
    assert (again < 5, rest) == (True, 0)
    # 80 taps, 8 at a time: 500 outputs of the convolution take 10 each, its bytes less. Weights and
    # records of the logits are 16,064 bytes, which load while the convolution computes; table and
    # results of the softmax 1,028.
    assert point.overlapped == 5000 + 2008 + 129
    assert point.roofline < point.cycles < point.overlapped


def test_what_is_missing_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def message(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["vela", *words])
        with pytest.raises(SystemExit) as error:
            vela.main()
        assert error.value.code == 2
        return capsys.readouterr().err

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert message("--files", str(tmp_path)) == (
        "error: Vela is not installed; install the project with the extra 'vela'\n"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    assert message("--files", str(tmp_path), "--networks", "micro-speech") == (
        f"error: {tmp_path} has no file of micro-speech: "
        "tensorflow/lite/micro/examples/micro_speech/models/micro_speech_quantized.tflite "
        "of github.com/tensorflow/tflite-micro\n"
    )
    assert (
        message("--table", str(tmp_path / "no.csv"))
        == f"error: --table {tmp_path / 'no.csv'}: no such file\n"
    )
    assert message("--networks", "lenet").startswith(
        "error: --networks lenet: the networks are keyword-spotting, "
    )
