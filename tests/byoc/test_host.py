"""Host parts, their price, the rewriting of fused activations, and the oracle."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import helper

from byoc.compiled import HostPart
from byoc.frontend.onnx.cutting import Cutter
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.rewriting.definitions import integer_clamps
from byoc.graph import Graph
from byoc.host.sessions import (
    Oracle,
    PartSession,
    estimate_cycles,
    opener,
    oracle_text,
)
from byoc.importing import package_of
from byoc.partitioning.partition import partition
from byoc.runtimes.session import OnnxRuntimeSession
from isa.errors import InputError
from tests.byoc.oracle_check import V2, check_against_onnxruntime, placed, random_feeds
from tests.byoc.small_models import ModelBuilder, convolution_unit, unary_unit

WEIGHTS = np.random.default_rng(3).integers(-128, 128, (6, 4, 3, 3), np.int8)


def _edges() -> onnx.ModelProto:
    """float → Q → Relu unit → DQ → Softmax → float."""
    builder = ModelBuilder()
    q = builder.quantize(builder.input("x", (2, 3)), 0.1, 5, result="q")
    y = builder.quantize(
        builder.node("Relu", builder.dequantize(q, 0.1, 5), name="op"), 0.1, 5, result="r"
    )
    builder.output(builder.node("Softmax", builder.dequantize(y, 0.1, 5), name="s", result="y"))
    return builder.model()


def _open(model: onnx.ModelProto, graph: Graph, part: HostPart) -> PartSession:
    return opener(model, graph)(part.inputs, part.outputs)


def test_a_host_part_keeps_the_boundary_types() -> None:
    model = _edges()
    graph = import_graph(model)
    first, last = partition(graph, V2).host_parts
    x = np.asarray([[-1.0, 0.06, 2.0], [9.0, 100.0, -100.0]], np.float32)
    start = _open(model, graph, first).run({"x": x})
    assert start["q"].dtype == np.int8
    np.testing.assert_array_equal(start["q"], [[-5, 6, 25], [95, 127, -128]])
    end = _open(model, graph, last).run({"r": start["q"]})
    assert (end["y"].dtype, end["y"].shape) == (np.float32, (2, 3))


def test_price_of_a_host_part_by_hand() -> None:
    builder = ModelBuilder()
    product = builder.node(
        "MatMul", builder.input("x", (2, 3)), builder.input("w", (3, 5)), result="y"
    )
    builder.output(product)
    graph = import_graph(builder.model())
    part = HostPart(graph.nodes, ("x", "w"), ("y",))
    # 2·3·5 = 30 MACs; 6 + 15 + 10 = 31 float32 are 124 bytes.
    assert estimate_cycles(graph, part) == math.ceil(1000 + 30 / 8 + 124 / 4)


def test_a_cut_contains_what_lies_between_and_nothing_else() -> None:
    model = _edges()
    graph = import_graph(model)
    cut = Cutter(model, graph).cut(["q"], ["r"])
    assert [node.op_type for node in cut.graph.node] == [
        "DequantizeLinear",
        "Relu",
        "QuantizeLinear",
    ]
    assert [value.name for value in (*cut.graph.input, *cut.graph.output)] == ["q", "r"]
    onnx.checker.check_model(cut, full_check=True)


def test_a_cut_follows_what_the_bodies_of_control_flow_read() -> None:
    builder = ModelBuilder()
    captured = builder.node("Relu", builder.input("x", (2, 3)), result="r")
    inner = helper.make_tensor_value_info("k", onnx.TensorProto.FLOAT, [2, 3])
    body = helper.make_graph([helper.make_node("Neg", [captured], ["k"])], "body", [], [inner])
    builder.inputs.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    builder.nodes.append(
        helper.make_node("If", ["c"], ["y"], name="op", then_branch=body, else_branch=body)
    )
    builder.output("y")
    model = builder.model()
    cut = Cutter(model, import_graph(model)).cut(["x", "c"], ["y"])
    assert [node.op_type for node in cut.graph.node] == ["Relu", "If"]


@pytest.mark.parametrize(
    ("activation", "after", "count"),
    [
        (("Relu",), (0.1, -7), 1),
        (("Relu",), (0.1, -128), 0),
        (("Clip",), (0.1, -128), 1),  # up to 25.5, the bound is 6
        (("Clip",), (0.02, -128), 0),  # up to 5.1, the bound is 6
    ],
)
def test_activations_inside_the_range_are_rewritten(
    activation: tuple[str], after: tuple[float, int], count: int
) -> None:
    model = convolution_unit(WEIGHTS, (1, 4, 5, 6), activation=activation, after=after)
    before = model.SerializeToString(deterministic=True)
    rewritten, found = integer_clamps(model, import_graph(model))
    assert found == count
    assert model.SerializeToString(deterministic=True) == before
    assert [node.op_type for node in rewritten.graph.node if node.name == "op:clamp"] == [
        "Clip"
    ] * count
    assert OnnxRuntimeSession(rewritten).run(["y"], random_feeds(model, 1))["y"].shape == (
        1,
        6,
        3,
        4,
    )


def test_rewritten_groups_mean_the_same_up_to_the_last_bit() -> None:
    model = convolution_unit(WEIGHTS, (1, 4, 19, 16), activation=("Relu",), after=(0.35, -7))
    graph = import_graph(model)
    rewritten, _ = integer_clamps(model, graph)
    feeds = random_feeds(model, 5)
    float_group = OnnxRuntimeSession(model).run(["y"], feeds)["y"].astype(int)
    integer_group = Oracle(rewritten, graph, ["y"]).values(feeds)["y"].astype(int)
    assert np.abs(float_group - integer_group).max() <= 1
    assert integer_group.min() == -7


def test_rewriting_needs_a_clip_of_integers() -> None:
    model = convolution_unit(WEIGHTS, (1, 4, 5, 6), activation=("Relu",))
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 11))
    with pytest.raises(
        InputError, match=r"^the model has opset 11; convert it to opset 12 or later$"
    ):
        integer_clamps(model, import_graph(model))


def test_what_onnxruntime_fuses_wrongly_stays_in_float() -> None:
    model = unary_unit("AveragePool", (1, 3, 6, 7), kernel_shape=[3, 3], dilations=[2, 1])
    assert placed(check_against_onnxruntime(model))["op"].startswith("dilations are (2, 1)")
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (2, 3, 4), "int8"), 0.1)
    stack = builder.weights(WEIGHTS[:2, :, :, 0].copy(), np.full(3, 0.1), axis=2)
    builder.quantize(builder.node("MatMul", x, stack, name="op"), 0.1, result="y")
    builder.output("y", "int8")
    reason = (
        "'c2' has several scales along axis 2; a constant operand has one scale; a constant "
        "second operand may have one scale per column"
    )
    assert placed(check_against_onnxruntime(builder.model()))["op"] == reason


def test_the_oracle_can_start_at_a_region() -> None:
    package = package_of(_edges(), "edges")
    oracle = Oracle(package.model, package.graph, ["r"], inputs=["q"])
    values = oracle.values({"q": np.asarray([[-5, 6, 25], [95, 127, -128]], np.int8)})
    np.testing.assert_array_equal(values["r"], [[5, 6, 25], [95, 127, 5]])
    assert Oracle(package.model, package.graph, []).values({}) == {}


def test_the_report_says_what_the_oracle_is() -> None:
    import onnxruntime

    plain = f"ONNX Runtime {onnxruntime.__version__}, integer operators"
    assert oracle_text(package_of(_edges(), "edges")) == plain
    model = convolution_unit(WEIGHTS, (1, 4, 5, 6), activation=("Relu",))
    assert (
        oracle_text(package_of(model, "conv")) == f"{plain}; 1 fused activation rewritten as "
        "integer operator and clamp"
    )
