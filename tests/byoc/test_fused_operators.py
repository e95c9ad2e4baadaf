"""Files that ONNX Runtime optimised and saved are read like ONNX files.

They have fused, channels-last and blocked operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from byoc.frontend.onnx.file import check_model
from byoc.frontend.onnx.rewriting.fused import BLOCKED, MICROSOFT, restore_operators
from byoc.runtimes.session import OnnxRuntimeSession
from experiments.running.inference import run
from isa.errors import InputError

node = helper.make_node
Array = NDArray[Any]


def array(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    numbers = np.random.default_rng([seed, *shape]).standard_normal(shape)
    if dtype == "float32":
        return (numbers * 0.4).astype(dtype)
    limits = np.iinfo(dtype)
    return (numbers * 40 + 128 * (dtype == "uint8")).clip(limits.min, limits.max).astype(dtype)


SCALES = {"sx": np.float32(0.02), "zx": np.uint8(120), "sw": np.float32(0.01), "zw": np.uint8(128)}
SCALES |= {"sy": np.float32(0.05), "zy": np.uint8(100)}
WEIGHTS = {
    "w": array(6, 4, 3, 3),
    "b": array(6),
    "z": array(1, 6, 5, 5, seed=1),
    "a": array(8, 6),
    "c": array(6, seed=2),
}
WEIGHTS |= {
    "gain": array(8, seed=3),
    "skip": array(1, 5, 8),
    "qw": array(6, 4, 3, 3, dtype="uint8"),
}
WEIGHTS |= {"bias": np.arange(6, dtype=np.int32), **SCALES}
IMAGE = (1, 4, 7, 7)
ROWS = (1, 5, 8)
MATRIX = (3, 8)
LAST = (1, 7, 7, 4)


def model_of(
    nodes: Sequence[NodeProto],
    shape: Sequence[int],
    dtype: int = TensorProto.FLOAT,
    opset: int = 17,
) -> ModelProto:
    """A model from ``x`` to ``y`` with those of the constants that the nodes read."""
    read = {name for one in nodes for name in one.input}
    constants = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in WEIGHTS.items()
        if name in read
    ]
    graph = helper.make_graph(
        nodes,
        "saved",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
        constants,
    )
    domains = {"": opset, MICROSOFT: 1, BLOCKED: 1}
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*each) for each in domains.items()], ir_version=8
    )


def fused(
    activation: str, *parameters: float, inputs: str = "xwb", **options: Any
) -> list[NodeProto]:
    chosen = (
        {"activation": activation, "activation_params": list(parameters)}
        if parameters
        else {"activation": activation}
    )
    return [node("FusedConv", list(inputs), ["y"], domain=MICROSOFT, **chosen, **options)]


def product(activation: str, inputs: str = "xac", **options: float) -> list[NodeProto]:
    given = {f"activation_{name}": value for name, value in options.items()}
    return [
        node(
            "FusedGemm",
            list(inputs),
            ["y"],
            domain=MICROSOFT,
            activation=activation,
            alpha=0.5,
            **given,
        )
    ]


FLOAT: Mapping[str, tuple[list[NodeProto], tuple[int, ...]]] = {
    "conv-relu": (fused("Relu", pads=[1, 1, 1, 1]), IMAGE),
    "conv-leaky": (fused("LeakyRelu", 0.3, strides=[2, 2]), IMAGE),
    "conv-clip": (fused("Clip", -0.5, 0.5), IMAGE),
    "conv-hard-sigmoid": (fused("HardSigmoid", 0.3, 0.4, inputs="xw"), IMAGE),
    "conv-tanh": (fused("Tanh"), IMAGE),
    "conv-sum": (fused("Relu", inputs="xwbz"), IMAGE),
    "gemm-relu": (product("Relu"), MATRIX),
    "gemm-leaky": (product("LeakyRelu", alpha=0.2), MATRIX),
    "gemm-elu": (product("Elu", alpha=0.7), MATRIX),
    "gemm-hard-sigmoid": (product("HardSigmoid", alpha=0.3, beta=0.4), MATRIX),
    "gemm-selu": (product("Selu", alpha=1.5, gamma=1.1, inputs="xa"), MATRIX),
    "rms": ([node("SimplifiedLayerNormalization", ["x", "gain"], ["y"], axis=-1, epsilon=1e-5)],
            ROWS),
    "skip-rms": (
        [
            node("SkipSimplifiedLayerNormalization", ["x", "skip", "gain"], ["n", "", "", "s"],
                 domain=MICROSOFT),
            node("Add", ["n", "s"], ["y"]),
        ],
        ROWS,
    ),
    "blocked-pool": (
        [
            node("ReorderInput", ["x"], ["blocks"], domain=BLOCKED),
            node("MaxPool", ["blocks"], ["pooled"], domain=BLOCKED, kernel_shape=[2, 2],
                 strides=[2, 2]),
            node("ReorderOutput", ["pooled"], ["y"], domain=BLOCKED, channels=8),
        ],
        (1, 8, 6, 6),
    ),
    "blocked-pool-last": (
        [
            node("ReorderInput", ["x"], ["blocks"], domain=BLOCKED, channels_last=1),
            node("AveragePool", ["blocks"], ["pooled"], domain=BLOCKED, kernel_shape=[3, 3],
                 count_include_pad=1),
            node("ReorderOutput", ["pooled"], ["y"], domain=BLOCKED, channels=8, channels_last=1),
        ],
        (1, 6, 6, 8),
    ),
}  # fmt: skip
CONVOLUTION = ["x", "sx", "zx", "qw", "sw", "zw", "sy", "zy", "bias"]
GLOBAL = node(
    "QLinearGlobalAveragePool",
    ["t", "sy", "zy", "sy", "zy"],
    ["y"],
    domain=MICROSOFT,
    channels_last=1,
)
INTEGER: Mapping[str, tuple[list[NodeProto], tuple[int, ...]]] = {
    "conv": (
        [node("QLinearConv", CONVOLUTION, ["y"], domain=MICROSOFT, channels_last=1,
              pads=[1, 1, 1, 1])],
        LAST,
    ),
    "conv-first": ([node("QLinearConv", CONVOLUTION, ["y"], domain=MICROSOFT, channels_last=0)],
                   IMAGE),
    "max": ([node("NhwcMaxPool", ["x"], ["y"], domain=MICROSOFT, kernel_shape=[2, 2],
                  strides=[2, 2])], LAST),
    "average": (
        [
            node("QLinearAveragePool", ["x", "sx", "zx", "sy", "zy"], ["y"], domain=MICROSOFT,
                 kernel_shape=[3, 3], channels_last=1),
        ],
        LAST,
    ),
    "global-behind-a-table": (
        [node("QLinearLeakyRelu", ["x", "sx", "zx", "sy", "zy"], ["t"], domain=MICROSOFT,
              alpha=0.1), GLOBAL],
        LAST,
    ),
}  # fmt: skip


def runs(model: ModelProto, feed: Array) -> Array:
    return np.asarray(OnnxRuntimeSession(model, optimised=False).run(["y"], {"x": feed})["y"])


@pytest.mark.parametrize("name", FLOAT)
@pytest.mark.parametrize("opset", [17, 21])
def test_float_operators_are_restored(name: str, opset: int) -> None:
    """The result is that of ONNX Runtime's own operator."""
    nodes, shape = FLOAT[name]
    model = model_of(nodes, shape, opset=opset)
    check_model(model, name)
    restored = restore_operators(model)
    assert {one.domain for one in restored.graph.node} == {""}
    feed = array(*shape, seed=7)
    np.testing.assert_allclose(runs(restored, feed), runs(model, feed), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", INTEGER)
def test_integer_operators_are_restored_to_the_bit(name: str) -> None:
    nodes, shape = INTEGER[name]
    model = model_of(nodes, shape, TensorProto.UINT8)
    restored = restore_operators(model)
    assert not any(
        attribute.i
        for one in restored.graph.node
        for attribute in one.attribute
        if attribute.name == "channels_last"
    )
    assert {one.op_type for one in restored.graph.node}.isdisjoint({"NhwcMaxPool"})
    feed = array(*shape, dtype="uint8", seed=7)
    np.testing.assert_array_equal(runs(restored, feed), runs(model, feed))


@pytest.mark.parametrize("name", [*FLOAT, *INTEGER])
def test_saved_operators_run_on_the_accelerator(name: str) -> None:
    """Nothing but changes of type and order is left to the CPU."""
    (nodes, shape), dtype = (
        (FLOAT[name], TensorProto.FLOAT) if name in FLOAT else (INTEGER[name], TensorProto.UINT8)
    )
    report = run(model_of(nodes, shape, dtype)).report
    assert report.check.mismatches == 0
    moved = {"QuantizeLinear", "DequantizeLinear", "Transpose"}
    assert {entry.op_type for entry in report.placement if entry.on == "cpu"} <= moved
    assert {entry.region for entry in report.placement if entry.on == "dla"} == {0}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_tables_in_blocks_are_written_out_to_the_bit(bits: int, zeros: bool) -> None:
    """Rows of packed bytes, with and without zero points, in blocks that do not fill the row."""
    rng = np.random.default_rng(bits)
    arrays = {
        "table": rng.integers(0, 256, (9, 40 * bits // 8)).astype(np.uint8),
        "ids": rng.integers(-9, 9, (2, 3)),
        "scales": rng.uniform(0.1, 0.2, (9, 3)).astype(np.float32),
        "zeros": rng.integers(0, 256, (9, -(-3 * bits // 8))).astype(np.uint8),
    }
    names = [*arrays][: 3 + zeros]
    options = {"domain": MICROSOFT, "bits": bits, "block_size": 16}
    model = model_of([node("GatherBlockQuantized", names, ["y"], **options)], IMAGE)
    model.graph.initializer.extend(numpy_helper.from_array(arrays[n], n) for n in names)
    restored = restore_operators(model)
    assert [one.op_type for one in restored.graph.node] == ["Gather"]
    np.testing.assert_array_equal(runs(restored, array(*IMAGE)), runs(model, array(*IMAGE)))


def test_weights_in_blocks_are_refused_with_the_remedy() -> None:
    """Their order depends on the processor on which the file was saved."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["blocks"], "stem", domain=BLOCKED, kernel_shape=[3, 3]),
        node("ReorderOutput", ["blocks"], ["y"], domain=BLOCKED, channels=6),
    ]
    with pytest.raises(
        InputError, match=r"node 'stem' is Conv in a layout of one processor.*give the original"
    ):
        restore_operators(model_of(nodes, IMAGE))


def test_an_unknown_activation_is_left_alone() -> None:
    model = model_of(fused("LeakyRelu"), IMAGE)
    assert restore_operators(model) is model


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_a_quantised_file_saved_by_onnx_runtime_runs_in_one_region(
    level: str, tmp_path: Path
) -> None:
    """Convolution, pool and product between uint8 tensors, as the installed version writes them."""
    nodes = [
        node("QLinearConv", CONVOLUTION, ["t"], "conv", pads=[1, 1, 1, 1]),
        node("MaxPool", ["t"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node(
            "QLinearGlobalAveragePool",
            ["m", "sy", "zy", "sy", "zy"],
            ["y"],
            "mean",
            domain=MICROSOFT,
        ),
    ]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.log_severity_level = 4
    model = model_of(nodes, IMAGE, TensorProto.UINT8)
    onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    saved = {one.op_type for one in onnx.load(tmp_path / "saved.onnx").graph.node}
    assert ("NhwcMaxPool" in saved) == (level == "ORT_ENABLE_ALL")
    report = run(tmp_path / "saved.onnx").report
    assert report.check.mismatches == 0
    assert [entry.op_type for entry in report.placement if entry.on == "cpu"] == []
