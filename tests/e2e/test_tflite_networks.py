"""Whole TensorFlow Lite networks equal LiteRT at every region output, with both resolvers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from byoc.compiler import compile
from byoc.frontend.tflite.file import read_tflite
from byoc.importing import import_model, tflite_package
from byoc.package.package import Package, load_package, save_package
from byoc.runtimes import litert
from experiments.running import inference
from isa.errors import InputError
from tests.e2e.harness import compare, simulate
from tests.e2e.tflite_every import arch, every_tensor, feeds_of
from tests.e2e.tflite_networks import NETWORKS
from tests.e2e.tflite_random import compared, content_of
from tests.e2e.tflite_twins import twin_of
from tests.tflite.builder import VERSIONS, Quantisation, TfliteBuilder


@lru_cache(maxsize=2)
def _package(name: str) -> Package:
    return tflite_package(read_tflite(NETWORKS[name](0), name), name)


@pytest.mark.parametrize("numerics", ["fixed", "onnxruntime"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_region_is_as_litert_has_it(name: str, numerics: str) -> None:
    package = _package(name)
    for seed in range(2):
        found = compare(package, feeds_of(package, seed), arch(numerics))
        assert found.tensors > 0
        assert found.mismatches == 0


@pytest.mark.parametrize("name", ["mobilenet-v2", "residual", "gated", "autoencoder", "attention"])
def test_every_tensor_is_as_the_reference_kernels_have_it(name: str) -> None:
    package = _package(name)
    found = every_tensor(package)
    assert found.tensors == sum(len(node.outputs) for node in package.graph.nodes)
    assert found.mismatches == 0


@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - {"attention"}))
def test_nothing_moves_data_for_the_order_of_axes(name: str) -> None:
    network = compile(_package(name), arch("fixed"))
    assert [node.name for node in network.graph.nodes if node.op_type == "Transpose"] == []


def test_run_reports_the_oracle(tmp_path: Path) -> None:
    path = tmp_path / "network.tflite"
    path.write_bytes(NETWORKS["mobilenet-v1"](0))
    fixed = inference.run(path, settings=["numerics=fixed"]).report
    assert fixed.check.oracle.startswith("LiteRT")
    assert fixed.check.oracle.endswith("reference kernels (BUILTIN_REF)")
    assert (fixed.check.mismatches, fixed.check.outputs.differences) == (0, 0)
    default = inference.run(path).report
    assert default.check.oracle.endswith("default resolver (XNNPACK)")
    assert default.check.mismatches == 0
    reasons = {place.op_type: place.reason for place in default.placement if place.on == "cpu"}
    assert "choose numerics fixed" in reasons["Softmax"]
    said = "2 of 31 nodes run on the CPU only because of rounding; use --set numerics=fixed"
    assert [warning.message() for warning in default.warnings] == [said]
    assert fixed.warnings == ()


@pytest.mark.parametrize(
    "name", ["mobilenet-v1", "mobilenet-v2", "residual", "autoencoder", "keyword-spotting"]
)
def test_a_network_costs_what_its_onnx_twin_costs(name: str) -> None:
    package = _package(name)
    twin = import_model(twin_of(package.graph), name)
    cycles = []
    for one in (package, twin):
        inputs = [one.graph.values[name].in_model for name in one.graph.inputs]
        done = simulate(
            one, {value.name: np.zeros(value.shape, value.dtype) for value in inputs}, arch("fixed")
        )
        cycles.append(sum(trace.cycles for trace in done.run.traces.values()))
    assert abs(cycles[0] - cycles[1]) <= cycles[1] / 100


def test_a_package_holds_the_file_and_runs_without_it(tmp_path: Path) -> None:
    content = NETWORKS["keyword-spotting"](0)
    path = tmp_path / "network.dla"
    save_package(tflite_package(read_tflite(content, "kws"), "kws"), path)
    package = load_package(path)
    assert package.read_member("model.tflite") == content
    report = inference.run(path, settings=["numerics=fixed"], integer_io=True).report
    assert (report.check.mismatches, report.check.outputs.differences, report.check.tensors) == (
        0,
        0,
        1,
    )
    assert [place.node for place in report.placement if place.on == "cpu"] == []


@pytest.mark.parametrize(("first", "numerics"), [(0, "fixed"), (6, "fixed"), (0, "onnxruntime")])
def test_random_networks(first: int, numerics: str) -> None:
    """More of them: python -m tests.e2e.tflite_random --count 1000."""
    found = [compared(seed, numerics) for seed in range(first, first + 6)]
    assert sum(one.mismatches for one in found) == 0
    assert min(one.tensors for one in found) > 0


def test_a_row_whose_elements_lie_in_the_order_of_planes_has_tables_in_that_order() -> None:
    builder = TfliteBuilder("row")
    random = np.random.default_rng(0)
    x = builder.input("x", (1, 3, 3, 4), Quantisation(0.02))
    window = {"filter_width": 1, "filter_height": 1, "stride_w": 1, "stride_h": 1}
    x = builder.operator("MAX_POOL_2D", [x], x.quantisation, padding="VALID", **window)
    x = builder.operator(
        "RESHAPE", [x, builder.constant("shape", np.array([1, 36], np.int32))], x.quantisation
    )
    factors = builder.constant("c", random.integers(-128, 128, 36, np.int8), Quantisation(0.02))
    content = builder.model(builder.operator("MUL", [x, factors], Quantisation(0.03)))
    package = tflite_package(read_tflite(content, "row"), "row")
    assert [node.op_type for node in package.graph.nodes[:3]] == ["MaxPool", "Reshape", "Table"]
    assert every_tensor(package).mismatches == 0


def _chosen(comparison: str, operands: int) -> Package:
    """Return a SELECT between two functions of the first operand.

    It compares the first operand with the last of ``operands`` operands.
    """
    builder = TfliteBuilder("chosen")
    scale = Quantisation(0.02, 3)
    inputs = [builder.input(name, (1, 3, 4, 5), scale) for name in "xy"[:operands]]
    zero = builder.constant("zero", np.array([3], np.int8), scale)
    x = inputs[0]
    condition = builder.operator(
        comparison, [x, zero if operands == 1 else inputs[1]], None, np.bool_
    )
    branches = [builder.operator(kind, [x], scale) for kind in ("NEG", "LEAKY_RELU")]
    content = builder.model(builder.operator("SELECT", [condition, *branches], scale))
    return tflite_package(read_tflite(content, "chosen"), "chosen")


@pytest.mark.parametrize(
    "comparison", ["EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"]
)
def test_a_choice_by_a_comparison_is_one_table(comparison: str) -> None:
    """A choice by a comparison, as converters write SELU, is one table."""
    package = _chosen(comparison, 1)
    assert [node.op_type for node in package.graph.nodes] == ["Table"]
    assert compare(package, feeds_of(package, 0), arch("fixed")).mismatches == 0


def test_a_choice_by_another_tensor_stays_with_the_reason() -> None:
    package = _chosen("GREATER", 2)
    found = compare(package, feeds_of(package, 0), arch("fixed"))
    assert found.mismatches == 0
    reasons = [str(place.reason) for place in found.partition.placement if place.on == "cpu"]
    assert len(reasons) == 2
    assert all("it is no function of one tensor" in reason for reason in reasons)


def _outputs_of_litert(content: bytes, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """LiteRT's outputs by the names that it gives them."""
    runtime = litert.interpreter(content)
    for one in runtime.get_input_details():
        runtime.set_tensor(one["index"], given[one["name"]])
    runtime.invoke()
    return {one["name"]: runtime.get_tensor(one["index"]) for one in runtime.get_output_details()}


@pytest.mark.parametrize("seed", range(20))
def test_outputs_have_the_names_of_the_file(seed: int, tmp_path: Path) -> None:
    content = content_of(seed)
    path = tmp_path / "network.tflite"
    path.write_bytes(content)
    random = np.random.default_rng(seed)
    shapes = {one["name"]: one["shape"] for one in litert.interpreter(content).get_input_details()}
    given = {name: random.integers(-128, 128, shape, np.int8) for name, shape in shapes.items()}
    found = inference.run(path, inputs=given, settings=["numerics=fixed"])
    wanted = _outputs_of_litert(content, given)
    assert {name: array.tolist() for name, array in found.outputs.items()} == {
        name: array.tolist() for name, array in wanted.items()
    }


def test_outputs_that_share_a_tensor_a_name_or_an_input(tmp_path: Path) -> None:
    builder = TfliteBuilder("names")
    path = tmp_path / "names.tflite"
    x = builder.input("x", (1, 4, 4, 4), Quantisation(0.02))
    inner = builder.operator("ABS", [x], Quantisation(0.02), name="y")
    same = builder.operator("NEG", [inner], Quantisation(0.02), name="y")
    twins = [
        builder.operator(kind, [same], Quantisation(0.02), name="twin") for kind in ("ABS", "NEG")
    ]
    path.write_bytes(builder.model(same, x, same, *twins))
    array = np.arange(64).reshape(1, 4, 4, 4).astype(np.int8)
    outputs = inference.run(path, inputs={"x": array}, settings=["numerics=fixed"]).outputs
    assert list(outputs) == ["y", "x", f"twin#{twins[0].index}", f"twin#{twins[1].index}"]
    assert [int(found.reshape(-1)[5]) for found in outputs.values()] == [-5, 5, 5, 5]


BY_DEFAULT_ALONE = {"ELU": 1, "GELU": 3, "TILE": 3, "STRIDED_SLICE": 5}
"""Operators, and versions, that LiteRT has among its default kernels and not among its reference
kernels.
"""


@pytest.mark.parametrize("seed", range(20))
def test_operators_of_the_default_resolver_run(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = list(BY_DEFAULT_ALONE)[seed % len(BY_DEFAULT_ALONE)]
    monkeypatch.setitem(VERSIONS, kind, BY_DEFAULT_ALONE[kind])
    random = np.random.default_rng(seed)
    builder = TfliteBuilder("default")
    path = tmp_path / "default.tflite"
    shape = tuple(map(int, random.integers(3, 8, 4)))
    scale = Quantisation(float(random.uniform(0.01, 0.1)), int(random.integers(-20, 20)))
    x = builder.operator("NEG", [builder.input("x", (1, *shape[1:]), scale)], scale)
    integers = [x]
    if kind == "TILE":
        integers += [builder.constant("times", random.integers(1, 3, 4).astype(np.int32))]
    elif kind == "STRIDED_SLICE":
        ends = ([0, 1, 0, 0], x.shape, [1, 1, 2, 1])
        integers += [
            builder.constant(f"end{place}", np.array(end, np.int32))
            for place, end in enumerate(ends)
        ]
    y = builder.operator(kind, integers, scale if len(integers) > 1 else Quantisation(0.05, 3))
    path.write_bytes(builder.model(y))
    report = inference.run(path).report
    assert report.check is not None
    assert (report.check.mismatches, report.check.outputs.differences) == (0, 0)
    assert kind in {place.node.split(":")[0] for place in report.placement if place.on == "dla"}
    message = (
        rf"operator {kind}, version \d: LiteRT's reference kernels .* "
        r"use settings=\{"
    )
    with pytest.raises(InputError, match=message):
        inference.run(path, settings=["numerics=fixed"])


def test_a_version_that_no_kernel_has_is_named(tmp_path: Path) -> None:
    builder = TfliteBuilder("new")
    path = tmp_path / "new.tflite"
    x = builder.input("x", (1, 4, 4, 4), Quantisation(0.02))
    content = builder.model(builder.operator("ABS", [x], Quantisation(0.02)))
    model = litert.schema().ModelT.InitFromPackedBuf(content, 0)
    model.operatorCodes[0].version = 99
    path.write_bytes(litert.pack_model(model))
    with pytest.raises(
        InputError, match="operator ABS, version 99: LiteRT does not have it; install a newer one"
    ):
        inference.run(path)
