"""``dla rtl synth`` says of a synthesis what is in it.

The synthesis itself is tested in tests/dla_sim/rtl.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dla_sim.rtl.synthesis import Component, Synthesis
from experiments.cli.main import main
from experiments.rtl import gates

FOUND = Synthesis(
    "dla_machine",
    {
        "dla_machine": Component("dla_machine", {"$_NAND_": 10, "$_DFF_P_": 2}, {"lane": 3}, 4, 0),
        "lane": Component("lane", {"$_XOR_": 100, "$_NOT_": 2, "$_DFF_N_": 1}, {}, 7, 64),
    },
)
"""Gates by hand: 10 + 2 * 16 / 4 = 18 of the machine itself, 100 * 3 + 1 + 4 = 305 of each lane."""


def test_the_command_counts_by_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gates, "synthesise_hardware", lambda hardware, *, progress: FOUND)
    places = tmp_path / "gates.json", tmp_path / "gates.csv"
    assert (
        main(
            [
                "rtl",
                "synth",
                "--preset",
                "balanced-64",
                "--isa",
                "v4",
                "--json",
                str(places[0]),
                "--csv",
                str(places[1]),
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "933 gate equivalents, of them 5 flip-flops of 4 gates" in out
    assert "longest path within a component: 7 levels of logic, in lane" in out
    assert "192 bits of small memories, 524,288 bytes of scratchpad" in out
    assert "0.001 mm² by horowitz-45nm; measured" in out
    assert "0.027 mm² by horowitz-45nm; estimated" in out
    rows = list(csv.DictReader(places[1].read_text().splitlines()))
    assert [(row["component"], row["times"], row["gates"], row["all_gates"]) for row in rows] == [
        ("lane", "3", "305", "915"), ("dla_machine", "1", "18", "18"),
    ]  # fmt: skip
    document = json.loads(places[0].read_text())
    assert document["total"] == {"gates": 933, "registers": 5, "memory_bits": 192}
    assert document["deepest"] == {"component": "lane", "levels": 7}
    assert document["measured_logic_um2"] == pytest.approx(933 * 0.798)
    assert document["estimated_pe_um2"] == 64 * 419
