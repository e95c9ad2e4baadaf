"""Whole TensorFlow Lite networks: every tensor that leaves a region is as LiteRT has it, with both resolvers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from byoc.compiler import compile
from byoc.frontend.tflite.file import read_tflite
from byoc.graph import Value
from byoc.importing import import_model, tflite_package
from byoc.operators.registry import annotate
from byoc.package.package import Package, build_package, load_package, save_package
from experiments.running import workflow
from isa.arch import Arch
from tests.e2e.harness import compare, simulate
from tests.e2e.tflite_networks import NETWORKS
from tests.e2e.tflite_twins import twin_of


@lru_cache(maxsize=2)
def _package(name: str) -> Package:
    return tflite_package(read_tflite(NETWORKS[name](0), name), name)


def _drawn(value: Value, random: np.random.Generator) -> NDArray[Any]:
    if value.dtype == "float32":
        return random.standard_normal(value.shape).astype(np.float32)
    return random.integers(-128, 128, value.shape, np.int8)


def _arch(numerics: str) -> Arch:
    return Arch.model_validate({"isa": "v4", "sram_bytes": 1 << 19, "numerics": numerics})


CASES = [(name, numerics) for name in NETWORKS for numerics in ("fixed", "onnxruntime")]
for dense in ("autoencoder", "lstm"):  # fully connected layers round once there, and twice here
    CASES.remove((dense, "fixed"))


@pytest.mark.parametrize(("name", "numerics"), CASES)
def test_every_region_is_as_litert_has_it(name: str, numerics: str) -> None:
    package = _package(name)
    inputs = [package.graph.values[name].in_model for name in package.graph.inputs]
    for seed in range(2):
        random = np.random.default_rng(seed)
        feeds = {value.name: _drawn(value, random) for value in inputs}
        found = compare(package, feeds, _arch(numerics))
        assert found.tensors > 0
        assert found.mismatches == 0


@pytest.mark.parametrize("name", ["mobilenet-v2", "residual", "gated"])
def test_every_tensor_is_as_the_reference_kernels_have_it(name: str) -> None:
    """With every result an output of the graph, so that it leaves its region; LiteRT keeps every tensor of the file."""
    package = _package(name)
    every = replace(package.graph, outputs=tuple(out for node in package.graph.nodes for out in node.outputs))
    whole = build_package(every, annotate(every), package.model, 0, name)
    random = np.random.default_rng(0)
    feeds = {each: _drawn(every.values[each].in_model, random) for each in every.inputs}
    found = compare(whole, feeds, _arch("fixed"))
    assert found.tensors == len(every.outputs)
    assert found.mismatches == 0


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_moves_data_for_the_order_of_axes(name: str) -> None:
    network = compile(_package(name), _arch("fixed"))
    assert [node.name for node in network.graph.nodes if node.op_type == "Transpose"] == []


def test_run_reports_the_oracle(tmp_path: Path) -> None:
    path = tmp_path / "network.tflite"
    path.write_bytes(NETWORKS["mobilenet-v1"](0))
    fixed = workflow.run(path, settings=["numerics=fixed"])
    assert fixed.check.oracle.startswith("LiteRT")
    assert fixed.check.oracle.endswith("reference kernels (BUILTIN_REF)")
    assert (fixed.check.mismatches, fixed.check.outputs.differences) == (0, 0)
    default = workflow.run(path)
    assert default.check.oracle.endswith("default resolver (XNNPACK)")
    assert default.check.mismatches == 0
    reasons = {place.op_type: place.reason for place in default.placement if place.on == "cpu"}
    assert "choose numerics fixed" in reasons["Softmax"]


@pytest.mark.parametrize("name", ["mobilenet-v1", "mobilenet-v2", "residual", "autoencoder", "keyword-spotting"])
def test_a_network_costs_what_its_onnx_twin_costs(name: str) -> None:
    package = _package(name)
    twin = import_model(twin_of(package.graph), name)
    cycles = []
    for one in (package, twin):
        inputs = [one.graph.values[name].in_model for name in one.graph.inputs]
        done = simulate(one, {value.name: np.zeros(value.shape, value.dtype) for value in inputs}, _arch("fixed"))
        cycles.append(sum(trace.cycles for trace in done.run.traces.values()))
    assert abs(cycles[0] - cycles[1]) <= cycles[1] / 100


def test_a_package_holds_the_file_and_runs_without_it(tmp_path: Path) -> None:
    content, path = NETWORKS["keyword-spotting"](0), tmp_path / "network.dla"
    save_package(tflite_package(read_tflite(content, "kws"), "kws"), path)
    package = load_package(path)
    assert package.read_member("model.tflite") == content
    report = workflow.run(path, settings=["numerics=fixed"], integer_io=True)
    assert (report.check.mismatches, report.check.outputs.differences, report.check.tensors) == (0, 0, 1)
    assert [place.node for place in report.placement if place.on == "cpu"] == []
