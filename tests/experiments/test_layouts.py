"""``dla explain`` for banked memory: layouts of operands, copies, region inputs and outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from byoc.options import CompileOptions
from dla_sim.presets import load_hardware
from dla_sim.program_timing import ProgramTiming
from experiments.running.network import load_network
from experiments.tune.explain import compile_package, region_layouts
from tests.experiments.command_line import dla

Capture = pytest.CaptureFixture[str]
WORDS = ("--isa", "v5", "--preset", "balanced-64")


def test_a_layer_says_how_its_operands_lie(tmp_path: Path, capsys: Capture) -> None:
    place = tmp_path / "e.json"
    said = dla(capsys, "explain", "digits-cnn", "conv", *WORDS, "--json", place).out
    found = json.loads(place.read_text())["layouts"]
    ((_, first), (_, second)) = found["operations"][0]["operands"]
    assert first == "1 channel of 64 positions in atoms of 1 byte"
    assert second.endswith("in atoms of 8 bytes")
    assert first in said
    product = found["convolution"]
    assert f"direct with mapping 3, {product['direct']:,} cycles of EX by the formulas" in said
    assert (
        f"{product['product']:,} and {product['conversion']:,} for the copy into one, so that it "
        "is direct" in said
    )
    assert "no copies are made for it" in said


def test_other_machines_say_what_they_said(tmp_path: Path, capsys: Capture) -> None:
    place = tmp_path / "e.json"
    ideal = ("explain", "digits-cnn", "--isa", "v4")
    assert "atoms" not in dla(capsys, *ideal, "conv", "--json", place).out
    assert "layouts" not in json.loads(place.read_text())
    assert "atoms" not in dla(capsys, *ideal, "--json", place).out
    assert "layouts" not in json.loads(place.read_text())[0]


def test_what_is_moved_is_what_the_program_moves(tmp_path: Path, capsys: Capture) -> None:
    """All bytes and cycles of OP_PERMUTE are some layer's.

    A value of the edge has the bytes of its tensor.
    """
    hardware = load_hardware("balanced-64", isa="v5")
    package = load_network("lstm-small").package
    made = compile_package(package, hardware.arch, CompileOptions())
    found = region_layouts(package, hardware.arch, CompileOptions(), made, hardware.timing)
    assert len(found) == len(made)
    for (program, report), told in zip(made, found, strict=True):
        assert set(told.layers) >= set(report.estimates)
        moves = [
            command for command in program.commands if command.instruction.mnemonic == "OP_PERMUTE"
        ]
        each = [one.moved for one in told.layers.values()]
        assert sum(one.commands for one in each) == len(moves)
        operands = [one.instruction.operands(one, program.arch).writes[0].total for one in moves]
        assert sum(one.nbytes for one in each) == sum(operands)
        assert (
            sum(one.cycles for one in each)
            <= ProgramTiming(program).run(hardware.timing).units["EX"]["busy"] * 2
        )
        assert {edge.value: edge.packed for edge in told.edges} == {
            tensor.name: tensor.nbytes for tensor in program.tensors
        }
        assert all(edge.packed >= edge.nbytes and edge.slots > 0 for edge in told.edges)
    place = tmp_path / "e.json"
    out = dla(
        capsys, "explain", "lstm-small", *WORDS, "--json", place, "--csv", tmp_path / "e.csv"
    ).out
    assert "the host packs" in out
    assert "the host unpacks" in out
    assert [len(one["layouts"]["layers"]) for one in json.loads(place.read_text())] == [
        len(t.layers) for t in found
    ]
    assert "nbytes" in (tmp_path / "e.csv").read_text().splitlines()[0]
