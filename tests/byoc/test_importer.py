"""The importer: units that become one node, unchanged nodes, and data of nodes and tensors."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.graph import Graph, Node
from byoc.operators.window import window_attributes
from isa.errors import InputError
from tests.byoc.oracle_check import check_against_onnxruntime, placed
from tests.byoc.small_models import ModelBuilder, convolution_unit, unary_unit

ONES = np.ones((6, 4, 3, 3), np.int8)


def _node(graph: Graph, name: str = "op") -> Node:
    return next(node for node in graph.nodes if node.name == name)


def test_a_unit_is_one_node_on_integer_tensors() -> None:
    bias = np.arange(6, dtype=np.int32)
    model = convolution_unit(
        ONES, (1, 4, 5, 6), bias=bias, activation=("Clip",), pads=[1, 0, 1, 0], strides=[2, 1]
    )
    graph = import_graph(model)
    (node,) = graph.nodes
    assert (node.name, node.op_type, node.inputs, node.outputs) == (
        "op",
        "Conv",
        ("x", "w", "b"),
        ("y",),
    )
    assert node.integer
    assert node.attributes == {
        "activation": ("Clip", 0.0, 6.0),
        "kernel": (3, 3),
        "strides": (2, 1),
        "dilations": (1, 1),
        "pads": (1, 0, 1, 0),
        "group": 1,
    }
    assert node.onnx_nodes == (
        "dequantizelinear0",
        "dequantizelinear1",
        "dequantizelinear2",
        "op",
        "act",
        "quantizelinear5",
    )
    assert node.macs == 6 * 3 * 4 * 4 * 3 * 3
    result = graph.values["y"]
    assert (result.shape, result.dtype) == ((1, 6, 3, 4), "int8")
    assert result.quantization is not None
    assert (float(result.quantization.scale), int(result.quantization.zero_point)) == (
        float(np.float32(0.1)),
        -7,
    )
    np.testing.assert_array_equal(graph.values["b"].constant, bias)


def test_gemm_becomes_a_matrix_product_with_weights_k_by_n() -> None:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (2, 3), "int8"), 0.1)
    weights = np.arange(12, dtype=np.int8).reshape(4, 3)
    scales = [0.1, 0.2, 0.3, 0.4]
    result = builder.node(
        "Gemm", x, builder.weights(weights, scales, axis=0, name="w"), name="op", transB=1
    )
    builder.quantize(result, 0.1, result="y")
    builder.output("y", "int8")
    graph = import_graph(builder.model())
    (node,) = graph.nodes
    assert (node.op_type, node.inputs, node.macs) == ("MatMul", ("x", "w:transposed"), 24)
    value = graph.values["w:transposed"]
    np.testing.assert_array_equal(value.constant, weights.T)
    assert value.quantization is not None
    assert value.quantization.axis == 1


def test_edges_and_float_operators_stay_under_their_names() -> None:
    builder = ModelBuilder()
    x = builder.quantize(builder.input("x", (2, 3)), 0.1, 5, result="xq")
    y = builder.node("Softmax", builder.dequantize(x, 0.1, 5, name="d"), name="s", result="y")
    builder.output(y)
    graph = import_graph(builder.model())
    rows = [(node.op_type, node.inputs, node.outputs, node.integer) for node in graph.nodes]
    assert rows == [
        ("QuantizeLinear", ("x",), ("xq",), False),
        ("DequantizeLinear", ("xq",), ("d.out",), False),
        ("Softmax", ("d.out",), ("y",), False),
    ]
    assert list(graph.values) == ["x", "y", "xq", "d.out"]


def test_float_weights_that_the_model_quantises_are_folded() -> None:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), 0.1)
    real = np.random.default_rng(0).standard_normal((6, 4, 3, 3))
    scales = np.linspace(0.01, 0.02, 6)
    quantised = builder.node(
        "QuantizeLinear",
        builder.constant(real, "float32"),
        builder.constant(scales, "float32"),
        builder.constant(np.zeros(6), "int8"),
        axis=0,
    )
    weights = builder.dequantize(quantised, scales, np.zeros(6), axis=0)
    builder.quantize(builder.node("Conv", x, weights, name="op"), 0.1, result="y")
    builder.output("y", "int8")
    assert placed(check_against_onnxruntime(prepare(builder.model()))) == {"op": "dla"}


def test_constant_nodes_and_names_that_are_missing_or_repeated() -> None:
    builder = ModelBuilder()
    builder.input("x", (2, 3, 4), "int8")
    shape = helper.make_node("Constant", [], ["shape"], value_ints=[2, 12])
    first = helper.make_node("Reshape", ["x", "shape"], ["a"], name="same")
    second = helper.make_node("Relu", ["a"], ["b"], name="same")
    third = helper.make_node("Identity", ["b"], ["c"])
    builder.nodes += [shape, first, second, third]
    builder.output("c", "int8")
    graph = import_graph(builder.model())
    assert [node.name for node in graph.nodes] == ["same", "same#1", "Identity:c"]


def test_dead_nodes_are_left_out() -> None:
    builder = ModelBuilder()
    builder.input("x", (2, 3), "int8")
    builder.node("Relu", "x", name="live", result="y")
    builder.node("Relu", "x", name="dead")
    builder.output("y", "int8")
    assert [node.name for node in import_graph(builder.model()).nodes] == ["live"]


def _remark(model: onnx.ModelProto) -> str:
    return placed(check_against_onnxruntime(model))["op"]


def test_remark_input_in_float() -> None:
    builder = ModelBuilder()
    builder.quantize(builder.node("Relu", builder.input("x", (2, 3)), name="op"), 0.1, result="y")
    builder.output("y", "int8")
    assert (
        _remark(builder.model())
        == "Relu stays in float: its input 'x' is not quantised with constant parameters"
    )


def _float_product(
    op: str, right: tuple[int, ...] | None, bias: tuple[int, ...] = (), kind: str = "float32"
) -> str:
    """Return the remark on a float product of ``x`` (3, 8) and a second operand.

    The second operand is a constant of shape ``right``, or a computed tensor (8, 5).
    """
    builder = ModelBuilder()
    inputs = [builder.input("x", (3, 8), kind)]
    if right is None:
        inputs.append(builder.node("Relu", builder.input("w", (8, 5), kind), result="r"))
    else:
        inputs.append(builder.constant(np.ones(right), kind, "r"))
    if bias:
        inputs.append(builder.constant(np.ones(bias), kind, "b"))
    builder.output(builder.node(op, *inputs, name="op", result="y"), kind)
    return _remark(builder.model())


@pytest.mark.parametrize(
    ("remark", "expected"),
    [
        (
            lambda: _float_product("MatMul", None),
            "MatMul stays in float: its input 'x' is not quantised with constant parameters",
        ),
        (
            lambda: _float_product("MatMul", (8, 5), kind="float16"),
            "MatMul stays in float: its input 'x' is float16; only float32 is quantised: export "
            "the model in float32",
        ),
        (
            lambda: _float_product("Gemm", (8, 5), (1, 5)),
            "Gemm stays in float: its input 'x' is not quantised with constant parameters",
        ),
    ],
)
def test_remark_names_what_no_quantiser_could_mend(
    remark: Callable[[], str], expected: str
) -> None:
    assert remark() == expected


def test_remark_output_in_float() -> None:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (2, 3), "int8"), 0.1)
    builder.output(builder.node("Relu", x, name="op", result="y"))
    assert (
        _remark(builder.model())
        == "Relu stays in float: its output 'y' is a float output of the model"
    )


def test_remark_output_used_twice() -> None:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (2, 3), "int8"), 0.1)
    result = builder.node("Relu", x, name="op", result="r")
    builder.output(builder.quantize(result, 0.1, result="y"), "int8")
    builder.output(builder.node("Sigmoid", result, result="z"))
    assert (
        _remark(builder.model())
        == "Relu stays in float: its output 'r' is used in float by 2 nodes"
    )


def test_remark_output_goes_to_a_float_operator() -> None:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (2, 3), "int8"), 0.1)
    builder.output(
        builder.node(
            "Sigmoid", builder.node("Relu", x, name="op", result="r"), name="s", result="y"
        )
    )
    assert (
        _remark(builder.model())
        == "Relu stays in float: its output 'r' goes in float to Sigmoid 's'"
    )


def test_remark_second_output() -> None:
    builder = ModelBuilder()
    builder.input("x", (1, 3, 4, 4), "int8")
    builder.nodes.append(
        helper.make_node("MaxPool", ["x"], ["y", "where"], name="op", kernel_shape=[2, 2])
    )
    builder.output("y", "int8")
    builder.output("where", "int64")
    assert _remark(builder.model()) == "MaxPool stays on the CPU: it has a second output 'where'"


def test_remark_two_quantisations_of_one_tensor() -> None:
    builder = ModelBuilder()
    builder.input("x", (2, 3), "int8")
    total = builder.node(
        "Add", builder.dequantize("x", 0.1), builder.dequantize("x", 0.2), name="op"
    )
    builder.quantize(total, 0.1, result="y")
    builder.output("y", "int8")
    assert _remark(builder.model()) == "Add stays in float: it reads 'x' with two quantisations"


def test_remark_another_quantisation_than_elsewhere() -> None:
    builder = ModelBuilder()
    builder.input("x", (2, 3), "int8")
    builder.output(
        builder.quantize(builder.node("Relu", builder.dequantize("x", 0.1)), 0.1, result="a"),
        "int8",
    )
    builder.output(
        builder.quantize(
            builder.node("Abs", builder.dequantize("x", 0.2), name="op"), 0.1, result="b"
        ),
        "int8",
    )
    expected = (
        "Abs stays in float: it uses 'x' with another quantisation than the rest of the model"
    )
    assert _remark(builder.model()) == expected


def test_a_dynamic_input_is_bad_input() -> None:
    builder = ModelBuilder()
    builder.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, None]))
    builder.output(builder.node("Relu", "x", result="y"))
    message = (
        "input 'x' has a dynamic shape (batch, 3, ?); give it a static one with --shape x=1,3,1"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        import_graph(builder.model())


def test_a_shape_that_depends_on_data_is_said_to() -> None:
    builder = ModelBuilder()
    builder.output(builder.node("NonZero", builder.input("x", (3, 3)), result="y"), "int64")
    value = import_graph(builder.model()).values["y"]
    assert (value.open, value.dtype) == (True, "int64")


def test_a_shape_that_nobody_knows_is_bad_input() -> None:
    builder = ModelBuilder()
    builder.output(
        builder.node("Unheard", builder.input("x", (3, 3)), result="y", domain="com.microsoft")
    )
    message = "the shape of tensor 'y' is not known: .*; export it with static shapes"
    with pytest.raises(InputError, match=f"^{message}$"):
        import_graph(builder.model())


def test_operators_of_onnxruntime_get_their_shapes_from_it() -> None:
    builder = ModelBuilder()
    builder.output(
        builder.node(
            "Gelu", builder.input("x", (3, 5)), name="op", result="g", domain="com.microsoft"
        )
    )
    graph = import_graph(builder.model())
    assert (graph.values["g"].shape, graph.values["g"].dtype) == ((3, 5), "float32")
    assert placed(check_against_onnxruntime(builder.model()))["op"] == (
        "Gelu stays in float: its input 'x' is not quantised with constant parameters"
    )


@pytest.mark.parametrize("opset", [10, 13, 21])
def test_older_opsets(opset: int) -> None:
    builder = ModelBuilder(opset)
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "uint8"), 0.05, 131, "uint8")
    result = builder.node(
        "Relu", builder.node("Conv", x, builder.weights(ONES, 0.1), name="op"), name="act"
    )
    builder.quantize(result, 0.1, 0, "uint8", result="y")
    builder.output("y", "uint8")
    assert placed(check_against_onnxruntime(builder.model()))["op"] == "dla"


def test_clip_of_opset_6_has_its_bounds_in_attributes() -> None:
    builder = ModelBuilder(10)
    x = builder.dequantize(builder.input("x", (2, 3), "uint8"), 0.05, 131, "uint8")
    builder.quantize(
        builder.node("Clip", x, name="op", min=-1.0, max=2.0), 0.1, 120, "uint8", result="y"
    )
    builder.output("y", "uint8")
    assert _node(import_graph(builder.model())).attributes == {"bounds": (-1.0, 2.0)}
    assert placed(check_against_onnxruntime(builder.model()))["op"] == "dla"


def test_control_flow_runs_on_the_cpu_with_what_its_bodies_capture() -> None:
    builder = ModelBuilder()
    x = builder.dequantize(builder.quantize(builder.input("x", (2, 3)), 0.1), 0.1)
    captured = builder.node("Relu", x, result="r")
    kept = helper.make_tensor_value_info("k", TensorProto.FLOAT, [2, 3])
    body = helper.make_graph([helper.make_node("Neg", [captured], ["k"])], "body", [], [kept])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    builder.inputs.append(condition)
    builder.nodes.append(
        helper.make_node("If", ["c"], ["y"], name="op", then_branch=body, else_branch=body)
    )
    builder.output("y")
    graph = import_graph(builder.model())
    assert _node(graph).inputs == ("c", "r")


@pytest.mark.parametrize(
    ("attributes", "result", "pads"),
    [
        ({"pads": (1, 0, 2, 1)}, (5, 4), (1, 0, 2, 1)),
        ({"auto_pad": "SAME_UPPER", "strides": (2, 2)}, (3, 3), (0, 1, 1, 1)),
        ({"auto_pad": "SAME_LOWER", "strides": (2, 2)}, (3, 3), (1, 1, 0, 1)),
        ({"auto_pad": "VALID"}, (3, 3), (0, 0, 0, 0)),
        ({"strides": (2, 2), "ceil_mode": 1}, (3, 2), (0, 0, 1, 0)),
    ],
)
def test_windows(
    attributes: dict[str, object], result: tuple[int, int], pads: tuple[int, ...]
) -> None:
    source = (6, 5) if "strides" in attributes else (5, 5)
    assert window_attributes(attributes, (3, 3), source, result)["pads"] == pads


def test_activation_between_float_neighbours_is_not_fused() -> None:
    graph = import_graph(unary_unit("Relu", (2, 3)))
    assert [(node.op_type, dict(node.attributes)) for node in graph.nodes] == [("Relu", {})]
