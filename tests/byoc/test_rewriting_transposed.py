"""A ConvTranspose is rewritten as a Conv and movement.

It gives the same numbers in float, and runs quantised on the accelerator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from byoc.frontend.onnx.rewriting.convolutions import spread_transposed
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from isa.arch import Arch
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "upsampling": ((2, 3, 5, 6), (3, 4, 2, 2), {"strides": [2, 2]}),
    "overlapping": (
        (1, 4, 5, 5),
        (4, 2, 3, 3),
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "generator": ((1, 4, 4, 4), (4, 3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "plain": ((1, 3, 6, 5), (3, 2, 3, 3), {"pads": [1, 0, 2, 1]}),
    "uneven": (
        (1, 2, 4, 7),
        (2, 3, 5, 2),
        {"strides": [3, 1], "dilations": [2, 3], "pads": [2, 0, 1, 1]},
    ),
    "gaps": ((1, 2, 4, 3), (2, 2, 1, 2), {"strides": [3, 3]}),
    "grouped": ((1, 6, 4, 4), (6, 2, 3, 2), {"strides": [2, 2], "group": 3}),
    "depthwise": (
        (1, 4, 5, 5),
        (4, 1, 4, 4),
        {"strides": [2, 2], "group": 4, "pads": [1, 1, 1, 1]},
    ),
    "line": ((2, 3, 9), (3, 5, 4), {"strides": [3], "pads": [1, 2]}),
    "volume": (
        (1, 2, 3, 2, 3),
        (2, 2, 2, 3, 2),
        {"strides": [2, 1, 2], "output_padding": [1, 0, 1]},
    ),
    "same-upper": ((1, 2, 5, 4), (2, 3, 4, 3), {"strides": [3, 2], "auto_pad": "SAME_UPPER"}),
    "same-lower": ((1, 2, 5, 4), (2, 3, 4, 3), {"strides": [3, 2], "auto_pad": "SAME_LOWER"}),
    "atoms": ((1, 3, 4, 3), (3, 16, 2, 3), {"strides": [2, 2]}),
    "line-of-atoms": ((2, 3, 5), (3, 32, 4), {"strides": [3], "pads": [1, 2]}),
    "cropped": ((1, 2, 5, 4), (2, 3, 4, 3), {"strides": [2, 2], "output_shape": [9, 7]}),
}


def _float(name: str, bias: bool = True) -> tuple[ModelProto, dict[str, np.ndarray]]:
    shape, filters, attributes = LAYERS[name]
    rng = np.random.default_rng(3)
    builder = ModelBuilder()
    constants = [builder.constant(rng.standard_normal(filters), "float32")]
    if bias:
        constants.append(
            builder.constant(
                rng.standard_normal(filters[1] * attributes.get("group", 1)), "float32"
            )
        )
    builder.node(
        "ConvTranspose", builder.input("x", shape), *constants, name="op", result="y", **attributes
    )
    builder.output("y")
    return builder.model(), {"x": rng.standard_normal(shape).astype(np.float32)}


def _types(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("name", LAYERS)
def test_float_layers_keep_their_numbers(name: str) -> None:
    model, feed = _float(name, bias=name != "plain")
    (expected,) = OnnxRuntimeSession(model).run(["y"], feed).values()
    rewritten = prepare(model)
    assert "ConvTranspose" not in _types(rewritten)
    (found,) = OnnxRuntimeSession(rewritten).run(["y"], feed).values()
    assert found.shape == expected.shape
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=2e-6 * float(np.abs(expected).max()) + 1e-6
    )


def test_a_kernel_as_wide_as_its_stride_multiplies_nothing_by_zero() -> None:
    model, _ = _float("upsampling")
    (conv, moved) = prepare(model).graph.node
    assert (conv.op_type, conv.name, moved.op_type) == ("Conv", "op", "DepthToSpace")
    weights = next(
        onnx.numpy_helper.to_array(t)
        for t in prepare(model).graph.initializer
        if t.name == conv.input[1]
    )
    assert weights.shape == (16, 3, 1, 1)
    assert np.count_nonzero(weights) == weights.size


def test_batch_normalization_behind_it_is_folded_first() -> None:
    builder = ModelBuilder()
    rng = np.random.default_rng(2)
    x = builder.input("x", (1, 4, 5, 5))
    y = builder.node(
        "ConvTranspose",
        x,
        builder.constant(rng.standard_normal((4, 6, 2, 2)), "float32"),
        strides=[2, 2],
    )
    y = builder.node("Add", y, builder.constant(rng.standard_normal((1, 6, 1, 1)), "float32"))
    numbers = [builder.constant(rng.uniform(0.5, 2, 6), "float32") for _ in range(4)]
    builder.node("Relu", builder.node("BatchNormalization", y, *numbers), result="y")
    builder.output("y")
    model = builder.model()
    feed = {"x": rng.standard_normal((1, 4, 5, 5)).astype(np.float32)}
    assert _types(prepare(model)) == ["Conv", "Relu", "DepthToSpace"]
    (expected,) = OnnxRuntimeSession(model).run(["y"], feed).values()
    (found,) = OnnxRuntimeSession(prepare(model)).run(["y"], feed).values()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", LAYERS)
def test_quantised_layers_run_on_the_accelerator(name: str, dtype: str) -> None:
    """Weights of one scale, or one a channel with zero points.

    Against ONNX Runtime's float ConvTranspose as well.
    """
    shape, filters, attributes = LAYERS[name]
    rng = np.random.default_rng(7)
    builder = ModelBuilder()
    moved = 128 if dtype == "uint8" else 0
    outputs = filters[1] * attributes.get("group", 1)
    x = builder.dequantize(builder.input("x", shape, dtype), 0.03, 5 + moved, dtype)
    scales = (
        rng.uniform(0.01, 0.02, filters[1]).astype(np.float32)
        if dtype == "int8"
        else np.float32(0.015)
    )
    weights = builder.weights(rng.integers(-127, 128, filters).astype(np.int8), scales, axis=1)
    every = np.resize(scales, outputs) * np.float32(0.03)
    bias = builder.weights(
        rng.integers(-900, 900, outputs).astype(np.int32), every if dtype == "int8" else every[0]
    )
    y = builder.node("ConvTranspose", x, weights, bias, name="op", **attributes)
    builder.quantize(y, 0.11, 9 + moved, dtype, result="y")
    builder.output("y", dtype)
    feed = {"x": rng.integers(0, 256, shape).astype(np.uint8).view(dtype)}
    model = builder.model()
    package = import_model(model, name)
    (place,) = [
        place
        for place in compare(package, feed, Arch(isa="v4")).partition.placement
        if place.node == "op"
    ]
    assert place.on == "dla", place.reason
    for arch, schedule in (
        (Arch(isa="v4"), "default"),
        (Arch(isa="v3", sram_bytes=4096, sram_banks=1), "seed"),
    ):
        assert compare(package, feed, arch, schedule).mismatches == 0
    (expected,) = OnnxRuntimeSession(model).run(["y"], feed).values()
    (found,) = OnnxRuntimeSession(package.model).run(["y"], feed).values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["weights", "bias"])
def test_computed_constants_leave_it_as_it_is(kind: str) -> None:
    builder = ModelBuilder()
    x = builder.input("x", (1, 2, 4, 4))
    other = builder.input("z", (2, 3, 2, 2) if kind == "weights" else (3,))
    weights = other if kind == "weights" else builder.constant(np.ones((2, 3, 2, 2)), "float32")
    builder.node("ConvTranspose", x, weights, *([other] if kind == "bias" else []), result="y")
    builder.output("y")
    model = onnx.shape_inference.infer_shapes(builder.model())
    assert _types(spread_transposed(model)) == ["ConvTranspose"]
