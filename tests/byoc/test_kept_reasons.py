"""The reason why a node stays names what prevents its other form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from byoc.compiler import compile as compile_network
from byoc.frontend.onnx.file import check_model
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from isa.arch import Arch
from isa.errors import InputError

RANDOM = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


LSTM = {"W": _normal(1, 8, 3), "R": _normal(1, 8, 2)}
GRU = {"W": _normal(1, 6, 3), "R": _normal(1, 6, 2)}
STEPS = {"x": (4, 1, 3)}
HEADS = {"q": (1, 2, 4, 8), "k": (1, 2, 5, 8), "v": (1, 2, 5, 8)}
PEEPHOLES = {"b": np.zeros((1, 16), np.float32), "n": np.array([4], np.int32)}
PEEPHOLES |= {
    "h": np.zeros((1, 1, 2), np.float32),
    "c": np.zeros((1, 1, 2), np.float32),
    "p": _normal(1, 6),
}
RUNNING: Mapping[
    str, tuple[str, Mapping[str, tuple[int, ...]], Mapping[str, np.ndarray], int, Mapping[str, Any]]
] = {
    "LSTM": ("LSTM", STEPS, LSTM, 1, {"hidden_size": 2}),
    "GRU": ("GRU", STEPS, GRU, 1, {"hidden_size": 2}),
    "Attention": ("Attention", HEADS, {}, 1, {}),
    "Einsum": ("Einsum", {"x": (3, 3), "z": (3, 4)}, {}, 1, {"equation": "ij,jk->ik"}),
}
PREVENTED: Mapping[str, tuple[str, Mapping[str, np.ndarray], int, Mapping[str, Any], str]] = {
    "peepholes": ("LSTM", PEEPHOLES, 1, {}, "P (input 'p')"),
    "a diagonal": (
        "Einsum",
        {},
        1,
        {"equation": "ii,ij->j"},
        "attribute equation = ii,ij->j, 'x' float32 [3, 3], 'z' float32 [3, 4]",
    ),
    "products shown": ("Attention", {}, 4, {}, "qk_matmul_output (output 'y3')"),
}
"""What is added to a running node, and what the reason names."""


def _model(
    op_type: str,
    inputs: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, np.ndarray],
    outputs: int,
    attributes: Mapping[str, Any],
) -> ModelProto:
    names = [f"y{number}" if number in (0, outputs - 1) else "" for number in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, [*inputs, *constants], names, name="op", **attributes)],
        "kept",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names if name],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def _reasons(model: ModelProto) -> list[str]:
    found = compile_network(import_model(model, "kept"), Arch(isa="v4")).partition
    return [
        place.reason or ""
        for place in found.placement
        if place.on == "cpu" and "Linear" not in place.op_type
    ]


@pytest.mark.parametrize("name", RUNNING)
def test_a_plain_node_runs_in_another_form(name: str) -> None:
    assert not any(
        "another form" in reason or "no pattern" in reason
        for reason in _reasons(_model(*RUNNING[name]))
    )


@pytest.mark.parametrize("name", PREVENTED)
def test_the_reason_names_what_was_added(name: str) -> None:
    operator, further, outputs, attributes, named = PREVENTED[name]
    op_type, inputs, constants, _, options = RUNNING[operator]
    model = _model(op_type, inputs, {**constants, **further}, outputs, {**options, **attributes})
    assert f"{op_type} stays in float: it runs in another form, but not with {named}" in _reasons(
        model
    )


def test_products_that_onnx_runtime_shows_stay_on_the_cpu() -> None:
    """ONNX Runtime does not infer the type of this output; the file declares it."""
    outputs = ["y", "", "", "qk"]
    operands = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, 8)) for name in "qkv"]
    graph = helper.make_graph(
        [
            helper.make_node(
                "MultiHeadAttention", [*"qkv"], outputs, "op", domain="com.microsoft", num_heads=2
            )
        ],
        "heads",
        operands,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "qk")],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    (reason,) = _reasons(helper.make_model(graph, opset_imports=domains, ir_version=8))
    assert reason.endswith("it runs in another form, but not with output (output 'qk')")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN", "ConvTranspose"])
def test_the_reason_names_weights_that_are_computed(op_type: str, seed: int) -> None:
    """The reason names the operand that is an input of the model instead of a constant."""
    random = np.random.default_rng(seed)
    width, units, steps = (int(size) for size in random.integers(1, 5, 3))
    if op_type == "ConvTranspose":
        operands = {"x": (1, width, 4, 5), "w": (width, units, 2, 2)}
        chosen = "w"
        options = {}
    else:
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type] * units
        operands = {"x": (steps, 1, width), "w": (1, gates, width), "r": (1, gates, units)}
        chosen = str(random.choice(["w", "r"]))
        options = {"hidden_size": units}
    names = {"x": "X", "w": "W", "r": "R"}
    inputs = {name: shape for name, shape in operands.items() if name in ("x", chosen)}
    constants = {name: _normal(*shape) for name, shape in operands.items() if name not in inputs}
    model = _model(op_type, {name: inputs[name] for name in inputs}, constants, 1, options)
    node = model.graph.node[0]
    node.input[:] = list(operands)
    assert f"{names[chosen]} (input '{chosen}') computed at run time" in "".join(_reasons(model))


@pytest.mark.parametrize("name", ["Affine", "ScaledTanh", "ThresholdedRelu"])
def test_activations_without_factors_have_those_of_onnx_runtime(name: str) -> None:
    constants = {"w": _normal(1, 2, 3), "r": _normal(1, 2, 2)}
    model = _model("RNN", STEPS, constants, 1, {"hidden_size": 2, "activations": [name]})
    feeds = {"x": _normal(*STEPS["x"])}
    sessions = (OnnxRuntimeSession(one, optimised=False) for one in (prepare(model), model))
    found, expected = (session.run(["y0"], feeds)["y0"] for session in sessions)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            helper.make_node("Split", ["x"], ["y", "z"], "op", num_outputs=1),
            "num_outputs is 1, and the node has 2 outputs",
        ),
        (
            helper.make_node("MaxPool", ["x"], ["y"], "op", kernel_shape=[1], strides=[0]),
            "strides has 0",
        ),
        (
            helper.make_node(
                "QLinearSigmoid", ["x", "s", "p", "s"], ["y"], "op", domain="com.microsoft"
            ),
            "has 4 inputs; ONNX Runtime reads 5, '' is one",
        ),
        (helper.make_node("STFT", ["x", "o", "", "o"], ["y"], "op"), "its frames have no samples"),
        (
            helper.make_node("STFT", ["x", "o", "", "x"], ["y"], "op"),
            "needs a window, or frame_length as a constant",
        ),
        (
            helper.make_node(
                "QLinearConcat",
                ["s", "p", "x", "s", ""],
                ["y"],
                "op",
                domain="com.microsoft",
                axis=0,
            ),
            "lacks a scale or zero point",
        ),
        (
            helper.make_node("QMoE", [*"xxxsxx"], ["y"], "op", domain="com.microsoft", k=1),
            "lacks a scale or zero point",
        ),
        (
            helper.make_node("QMoE", [*"xxpsxps"], ["y"], "op", domain="com.microsoft", k=1),
            "has weights of other than 3 dimensions",
        ),
        (
            helper.make_node(
                "QLinearSoftmax", [*"xspse"], ["y"], "op", domain="com.microsoft", opset=13
            ),
            "scale or zero point 'e' has no elements",
        ),
        (
            helper.make_node("QLinearWhere", [*"xxsxxspsp"], ["y"], "op", domain="com.microsoft"),
            "ONNX Runtime needs zero point 'x' as a constant",
        ),
    ],
    ids=lambda value: value.op_type if isinstance(value, NodeProto) else "",
)
def test_nodes_that_end_the_runtime_are_refused(node: NodeProto, message: str) -> None:
    """Each of them ends the process in onnx or ONNX Runtime."""
    kind = TensorProto.UINT8 if node.domain else TensorProto.FLOAT
    constants = [("s", TensorProto.FLOAT), ("p", kind)] if node.domain else []
    zero = helper.make_tensor("o", TensorProto.INT64, (), [0])
    graph = helper.make_graph(
        [node],
        "ends",
        [helper.make_tensor_value_info("x", kind, (1, 1, 4))],
        [helper.make_tensor_value_info(name, kind, None) for name in node.output],
        [
            zero,
            helper.make_tensor("e", kind, (0,), []),
            *(helper.make_tensor(name, it, (), [1]) for name, it in constants),
        ],
    )
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(InputError, match=message):
        check_model(helper.make_model(graph, opset_imports=domains, ir_version=10), "ends")


@pytest.mark.parametrize(
    ("op_type", "inputs", "options"),
    [
        ("QLinearSigmoid", ["x", "s", "p", "s", ""], {}),
        ("QLinearSigmoid", ["x", "s", "", "s", "p"], {}),
        ("QLinearWhere", ["c", "x", "s", "p", "x", "s", "p", "s", "p"], {}),
        ("QLinearWhere", ["c", "x", "s", "q", "x", "s", "q", "s", "q"], {}),
        (
            "QLinearAveragePool",
            ["x", "s", "p", "s", "p"],
            {"kernel_shape": [1], "channels_last": 1},
        ),
    ],
)
def test_nodes_like_them_run(op_type: str, inputs: list[str], options: Mapping[str, Any]) -> None:
    """Parameters that may be absent or computed in these places, and windows that fit."""
    node = helper.make_node(op_type, inputs, ["y"], "op", domain="com.microsoft", **options)
    arrays = {"x": np.arange(6, dtype=np.uint8).reshape(1, 3, 2), "c": np.ones((1, 3, 2), np.bool_)}
    arrays["q"] = np.array(1, np.uint8)
    feeds = {name: array for name, array in arrays.items() if name in inputs}
    graph = helper.make_graph(
        [node],
        "runs",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [
            helper.make_tensor("s", TensorProto.FLOAT, (), [1]),
            helper.make_tensor("p", TensorProto.UINT8, (), [1]),
        ],
    )
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    check_model(model, "runs")
    assert OnnxRuntimeSession(model).run(["y"], feeds)["y"].shape == (1, 3, 2)


@pytest.mark.parametrize("optimised", [False, True])
def test_a_pool_of_larger_windows_does_not_end_the_process(optimised: bool) -> None:
    """A pool of larger windows does not end the process in either memory order.

    The shape is undeclared. A network has the pool with channels last and with channels first.
    """
    pool = {"kernel_shape": [4], "domain": "com.microsoft"}
    nodes = [
        helper.make_node(
            "QLinearAveragePool", ["x", "s", "p", "s", "p"], ["y"], "last", channels_last=1, **pool
        ),
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("QLinearAveragePool", ["t", "s", "p", "s", "p"], ["u"], "first", **pool),
        helper.make_node("Transpose", ["u"], ["z"], perm=[0, 2, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "empty",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ("n", "h", "c"))],
        [helper.make_empty_tensor_value_info(name) for name in "yz"],
        [
            helper.make_tensor("s", TensorProto.FLOAT, (), [1]),
            helper.make_tensor("p", TensorProto.UINT8, (), [1]),
        ],
    )
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    session = OnnxRuntimeSession(model, optimised=optimised)
    found = session.run(["y", "z"], {"x": np.ones((1, 3, 2), np.uint8)})
    assert {array.size for array in found.values()} == {0}


def test_attributes_that_a_call_of_a_function_gives_are_no_zeros() -> None:
    split = helper.make_node("Split", ["x"], ["y", "z"], axis=1)
    split.attribute.append(
        AttributeProto(name="num_outputs", ref_attr_name="n", type=AttributeProto.INT)
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Cut", ["x"], ["y", "z"], [split], imports[:1], ["n"])
    graph = helper.make_graph(
        [helper.make_node("Cut", ["x"], ["y", "z"], domain="own", n=2)],
        "halves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2)) for name in "yz"],
    )
    check_model(
        helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=9),
        "halves",
    )
