"""The estimate of a network on a microcontroller, against the published figures of its fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dla
from byoc.graph import Graph, Node, Value
from byoc.host.sessions import estimate_microcontroller_cycles
from experiments.cli.main import main

CLOCK = 120e6
"""Clock in Hz of the NUCLEO-L4R5ZI (Cortex-M4)."""
PUBLISHED = {
    "autoencoder": 116.212,
    "resnet-8": 2.567,
    "keyword-spotting": 10.019,
    "visual-wake-words": 3.324,
}
"""Inferences a second, microTVM with CMSIS-NN (mlcommons/tiny_results_v1.1, closed/Krai)."""

LAYERS = (
    (32, 16, 112, 1, 4_915_937),
    (16, 96, 112, 1, 24_249_462),
    (96, 24, 56, 1, 2_791_555),
    (24, 144, 56, 1, 10_329_014),
    (9, 32, 112, 32, 13_715_766),
    (9, 96, 56, 96, 10_286_711),
    (9, 144, 56, 144, 15_319_785),
)
"""MACs per result, channels, rows, groups, and cycles of MobileNetV2's layers on an Alif E8.

They are measured on its Cortex-M55 (pytorch/executorch#17651); its first layer is left out.
"""


@pytest.mark.parametrize("name", PUBLISHED)
def test_cortex_m4_takes_the_published_time(name: str) -> None:
    graph = dla.import_model(name).graph
    products = [node for node in graph.nodes if node.macs]
    cycles = estimate_microcontroller_cycles(graph, products, "Cortex-M4")
    assert cycles == pytest.approx(CLOCK / PUBLISHED[name], rel=0.04)


@pytest.mark.parametrize(("depth", "channels", "rows", "groups", "cycles"), LAYERS)
def test_cortex_m55_takes_the_published_cycles(
    depth: int, channels: int, rows: int, groups: int, cycles: int
) -> None:
    value = Value("y", (1, channels, rows, rows), "int8")
    node = Node(
        "layer", "Conv", (), ("y",), {"group": groups}, macs=depth * value.elements, integer=True
    )
    graph = Graph("one", (), ("y",), {"y": value}, (node,))
    found = estimate_microcontroller_cycles(graph, [node], "Cortex-M55")
    assert found == pytest.approx(cycles, rel=0.03)


def test_partition_compares_with_microcontrollers(tmp_path: Path) -> None:
    file = tmp_path / "placed.json"
    arguments = ["partition", "digits-cnn", "--microcontrollers", "--json", str(file)]
    assert main([*arguments, "--cpu", "p*"]) == 0
    found = json.loads(file.read_text())
    whole = found["end_to_end"]
    alone, both, *_ = found["microcontrollers"]
    assert (alone["microcontroller"], alone["accelerator"]) == ("Cortex-M4", False)
    assert alone["cycles"] == alone["cpu_cycles"] > both["cpu_cycles"] > 0
    assert both["dla_cycles"] == whole["dla_cycles"]
    assert both["cycles"] == both["cpu_cycles"] + whole["dla_cycles"] + whole["transfer_cycles"]


def test_transfers_that_a_machine_does_not_count_are_no_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "placed.json"
    arguments = ["partition", "digits-cnn", "--machine", "vta", "--microcontrollers"]
    assert main([*arguments, "--json", str(file)]) == 0
    _, both, *_ = json.loads(file.read_text())["microcontrollers"]
    assert both["transfer_cycles"] is None
    assert both["cycles"] == both["cpu_cycles"] + both["dla_cycles"]
    assert "not counted" in capsys.readouterr().out.split("Cortex-M4 and accelerator")[1]
