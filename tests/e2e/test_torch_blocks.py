"""Blocks of PyTorch's exporter become one exact region; each CPU operator has a true reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

import experiments
from byoc.frontend.onnx.rewriting.form import remove_identities
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.frontend.onnx.rewriting.spectra import convolve_spectra
from byoc.runtimes.session import OnnxRuntimeSession
from tests.e2e.field_files import failure_of

node = helper.make_node
info = helper.make_tensor_value_info
RANDOM = np.random.default_rng(0)
LEAST = np.finfo(np.float32).min


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[ValueInfoProto],
    constants: Mapping[str, Any],
    opset: int = 18,
) -> onnx.ModelProto:
    tensors = [
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    ]
    graph = helper.make_graph(
        list(nodes), "block", inputs, [info("y", TensorProto.FLOAT, None)], tensors
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _tensor(name: str, *shape: int) -> ValueInfoProto:
    return info(name, TensorProto.FLOAT, shape)


def _weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


HEADS = [_tensor(name, 1, 2, 5, 4) for name in "qv"] + [_tensor("k", 1, 2, 4, 5)]


def _safe_attention(
    between: Sequence[onnx.NodeProto], weights: str, mask: Mapping[str, Any]
) -> onnx.ModelProto:
    """Return F.scaled_dot_product_attention with a mask at opsets below 23."""
    nodes = [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["softmax"], axis=-1),
        *between,
        node("IsNaN", [weights], ["missing"]),
        node("Where", ["missing", "zero", weights], ["safe"]),
        node("MatMul", ["safe", "v"], ["y"]),
    ]
    return _model(nodes, HEADS, {"zero": np.float32(0), **mask})


CAUSAL = {"mask": np.where(np.tri(5, dtype=bool), 0, LEAST).astype(np.float32)}


def test_attention_that_replaces_what_is_no_number_is_one_region() -> None:
    assert failure_of(_safe_attention([], "softmax", CAUSAL)) == ""


def test_attention_with_a_mask_of_truths_is_one_region() -> None:
    model = _safe_attention([], "softmax", {"least": LEAST})
    model.graph.node.insert(0, node("Where", ["allowed", "zero", "least"], ["mask"]))
    model.graph.input.append(info("allowed", TensorProto.BOOL, (5, 5)))
    assert failure_of(model) == ""


def test_attention_that_replaces_infinities_too_is_one_region() -> None:
    """torch.nan_to_num behind a softmax."""
    nodes = [
        node("Softmax", ["q"], ["s"], axis=-1),
        node("IsNaN", ["s"], ["missing"]),
        node("Where", ["missing", "zero", "s"], ["numbers"]),
        node("IsInf", ["s"], ["infinite"]),
        node("Less", ["s", "zero"], ["below"]),
        node("And", ["below", "infinite"], ["lowest"]),
        node("Where", ["lowest", "least", "numbers"], ["bounded"]),
        node("Greater", ["s", "zero"], ["above"]),
        node("And", ["above", "infinite"], ["highest"]),
        node("Where", ["highest", "most", "bounded"], ["finite"]),
        node("MatMul", ["finite", "v"], ["y"]),
    ]
    constants = {"zero": np.float32(0), "least": LEAST, "most": -LEAST}
    assert (
        failure_of(_model(nodes, [_tensor("q", 1, 2, 5, 5), _tensor("v", 1, 2, 5, 4)], constants))
        == ""
    )


@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_attention_of_opset_23_with_a_mask_at_run_time_is_one_region(dtype: type) -> None:
    given = [_tensor(name, 1, 2, 5, 4) for name in "qkv"]
    mask = info("m", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), (1, 1, 5, 5))
    assert failure_of(_model([node("Attention", [*"qkvm"], ["y"])], [*given, mask], {}, 23)) == ""


@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_reduction_along_axes_that_lie_apart_is_one_region(op_type: str, keepdims: int) -> None:
    for axes, shape in (
        ([-3, -1], (1, 4, 3, 2, 3, 2)),
        ([2, 0], (3, 4, 5)),
        ([0, 2, 3], (2, 3, 4, 5)),
    ):
        nodes = [node("Relu", ["x"], ["r"]), node(op_type, ["r", "axes"], ["y"], keepdims=keepdims)]
        assert failure_of(_model(nodes, [_tensor("x", *shape)], {"axes": np.array(axes)})) == ""


def test_an_adaptive_pool_of_uneven_windows_is_one_region() -> None:
    """nn.AdaptiveAvgPool2d(3) of 7 × 7: windows of three rows and columns that overlap."""
    starts = np.array([0, 2, 4])[:, None] + np.arange(3)
    rows, columns = np.broadcast_arrays(starts[:, :, None, None], starts)
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[2, 3, 0, 1]),
        node("GatherND", ["t", "places"], ["g"]),
        node("Transpose", ["g"], ["windows"], perm=[4, 5, 0, 1, 2, 3]),
        node("ReduceMean", ["windows", "axes"], ["m"], keepdims=0),
        node("Conv", ["m", "v"], ["y"]),
    ]
    constants = {"w": _weights(4, 3, 1, 1), "v": _weights(2, 4, 3, 3), "axes": np.array([-3, -1])}
    constants["places"] = np.stack([rows, columns], -1)
    assert failure_of(_model(nodes, [_tensor("x", 1, 3, 7, 7)], constants)) == ""


def test_the_mean_of_volumes_is_one_region() -> None:
    """nn.AdaptiveAvgPool3d(1) behind a Conv3d."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1] * 6),
        node("Relu", ["c"], ["r"]),
        node("ReduceMean", ["r", "axes"], ["m"], keepdims=1),
        node("Reshape", ["m", "shape"], ["f"]),
        node("Gemm", ["f", "v"], ["y"]),
    ]
    constants = {"w": _weights(4, 2, 3, 3, 3), "v": _weights(4, 5), "axes": np.array([-1, -2, -3])}
    constants["shape"] = np.array([1, 4])
    assert failure_of(_model(nodes, [_tensor("x", 1, 2, 3, 5, 6)], constants)) == ""


def test_a_loop_over_a_sequence_runs_on_the_cpu(tmp_path: Path) -> None:
    """nn.EmbeddingBag: a sequence that a Loop fills, a node without operands before it."""
    sequence = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [
            node("SequenceInsert", ["before", "rows"], ["after"]),
            node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            info("i", TensorProto.INT64, ()),
            info("going", TensorProto.BOOL, ()),
            sequence("before", 1, None),
        ],
        [info("on", TensorProto.BOOL, ()), sequence("after", 1, None)],
    )
    nodes = [
        node("Gather", ["table", "indices"], ["rows"]),
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["two", "", "empty"], ["filled"], body=body),
        node("ConcatFromSequence", ["filled"], ["all"], axis=0),
        node("Gemm", ["x", "w"], ["g"]),
        node("Relu", ["g"], ["p"]),
        node("Add", ["p", "all"], ["y"]),
    ]
    constants = {"table": _weights(9, 6), "w": _weights(4, 6), "two": np.int64(2)}
    given = [info("indices", TensorProto.INT64, (3,)), _tensor("x", 6, 4)]
    onnx.save(_model(nodes, given, constants), tmp_path / "bag.onnx")
    report = experiments.run(tmp_path / "bag.onnx", cache=False).report
    assert (report.check.mismatches, report.check.outputs.differences) == (0, 0)
    reasons = {
        placed.op_type: str(placed.reason) for placed in report.placement if placed.on == "cpu"
    }
    assert "'indices' int64 [3]" in reasons["Gather"]
    assert "it has a body" in reasons["Loop"]
    assert [placed.op_type for placed in report.placement if placed.on == "dla"]


@pytest.mark.parametrize(
    ("producer", "asked", "shape"),
    [("Sqrt", "p", ()), ("Softmax", "x", ()), ("Softmax", "p", (3, 1, 1))],
)
def test_a_where_that_may_replace_something_stays(
    producer: str, asked: str, shape: tuple[int, ...]
) -> None:
    """A Where stays if it may replace a value.

    Cases are a root, a question about another tensor, and a tensor smaller than the result.
    """
    nodes = [
        node(producer, ["x"], ["p"]),
        node("IsNaN", [asked], ["n"]),
        node("Where", ["n", "zero", "p"], ["w"]),
        node("Neg", ["w"], ["y"]),
    ]
    model = infer_shapes(_model(nodes, [_tensor("x", 2, 6)], {"zero": np.zeros(shape, np.float32)}))
    assert remove_identities(model) is model


def test_a_where_behind_quantised_values_goes() -> None:
    parameters = ["scale", "zero_point"]
    between = [node("QuantizeLinear", ["softmax", *parameters], ["w_q"])]
    between.append(node("DequantizeLinear", ["w_q", *parameters], ["w"]))
    given = {**CAUSAL, "scale": np.float32(1 / 255), "zero_point": np.int8(-128)}
    after = remove_identities(infer_shapes(_safe_attention(between, "w", given)))
    assert not {"IsNaN", "Where"} & {each.op_type for each in after.graph.node}


TRANSFORMS: dict[str, tuple[tuple[int, ...], int, dict[str, int]]] = {
    "real": ((2, 9, 1), 1, {}),
    "real, half": ((2, 9, 1), 1, {"onesided": 1}),
    "real, first axis": ((6, 3, 1), 0, {"onesided": 1}),
    "complex": ((1, 4, 7, 2), 2, {}),
    "complex, inner axis": ((1, 4, 7, 2), 1, {}),
    "complex, inverse": ((3, 8, 2), -2, {"inverse": 1}),
}


@pytest.mark.parametrize("case", TRANSFORMS)
@pytest.mark.parametrize("opset", [18, 21])
def test_a_fourier_transform_is_one_region(case: str, opset: int) -> None:
    """torch.fft: the spectrum, its numbers as ONNX Runtime has them."""
    shape, axis, options = TRANSFORMS[case]
    constants: dict[str, Any] = {"axis": np.int64(axis)} if opset >= 20 else {}
    options = options if opset >= 20 else {**options, "axis": axis % len(shape)}
    nodes = [node("DFT", ["x", "", *constants], ["d"], **options), node("Identity", ["d"], ["y"])]
    model = _model(nodes, [_tensor("x", *shape)], constants, opset)
    feeds = {"x": _weights(*shape)}
    found, expected = (
        OnnxRuntimeSession(each).run(["y"], feeds)["y"] for each in (prepare(model), model)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert failure_of(model) == ""


@pytest.mark.parametrize("reason", ["length", "inverse of half"])
def test_other_fourier_transforms_stay(reason: str) -> None:
    """Fourier transforms of more elements than the axis, or back from half a spectrum, stay."""
    options = {"inverse": 1, "onesided": 1} if "inverse" in reason else {}
    nodes = [node("DFT", ["x", "length", "axis"], ["y"], **options)]
    constants = {"length": np.int64(8 if options else 16), "axis": np.int64(1)}
    model = infer_shapes(_model(nodes, [_tensor("x", 1, 8, 2)], constants, 21))
    assert convolve_spectra(model) is model
