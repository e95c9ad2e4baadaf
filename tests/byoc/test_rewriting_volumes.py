"""3-D convolutions and pools become 2-D ones: same numbers, all on the accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.frontend.onnx.rewriting.volumes import flatten_volumes
from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from isa.arch import Arch
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

SHAPE = (1, 4, 5, 6, 7)
LAYERS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "cube": ("Conv", (3, 4, 3, 3, 3), {"pads": [1] * 6}),
    "strided": ("Conv", (3, 4, 3, 2, 3), {"strides": [2, 2, 1], "pads": [0, 1, 1, 1, 0, 1]}),
    "dilated": ("Conv", (2, 4, 2, 3, 2), {"dilations": [3, 2, 1]}),
    "grouped": ("Conv", (6, 2, 3, 3, 1), {"group": 2, "pads": [1, 1, 0, 1, 1, 0]}),
    "depthwise": ("Conv", (4, 1, 3, 3, 3), {"group": 4, "pads": [1] * 6}),
    "plane": ("Conv", (5, 4, 1, 3, 3), {"pads": [0, 1, 1, 0, 1, 1]}),
    "plane-strided": ("Conv", (5, 4, 1, 3, 3), {"strides": [2, 1, 1]}),
    "depth": ("Conv", (5, 4, 3, 1, 1), {"pads": [1, 0, 0, 1, 0, 0], "strides": [2, 1, 1]}),
    "columns": ("Conv", (5, 4, 1, 1, 3), {"pads": [0, 0, 1, 0, 0, 1]}),
    "point": ("Conv", (5, 4, 1, 1, 1), {}),
    "maximum": (
        "MaxPool",
        (),
        {"kernel_shape": [3, 2, 3], "strides": [2, 2, 1], "pads": [1, 1, 1, 1, 0, 1]},
    ),
    "maximum-plane": ("MaxPool", (), {"kernel_shape": [1, 2, 2], "strides": [1, 2, 2]}),
    "maximum-depth": ("MaxPool", (), {"kernel_shape": [2, 1, 1], "dilations": [2, 1, 1]}),
    "average": ("AveragePool", (), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
    "average-uncounted": (
        "AveragePool",
        (),
        {"kernel_shape": [2, 3, 2], "strides": [2, 2, 1], "auto_pad": "SAME_LOWER"},
    ),
    "average-rounded-up": (
        "AveragePool",
        (),
        {"kernel_shape": [2, 2, 2], "strides": [2, 4, 3], "ceil_mode": 1},
    ),
    "maximum-rounded-up": (
        "MaxPool",
        (),
        {"kernel_shape": [2, 3, 2], "strides": [2, 2, 2], "ceil_mode": 1},
    ),
    "average-padded": (
        "AveragePool",
        (),
        {"kernel_shape": [3, 3, 3], "pads": [1] * 6, "count_include_pad": 1},
    ),
    "global-average": ("GlobalAveragePool", (), {}),
    "global-maximum": ("GlobalMaxPool", (), {}),
    "transposed": ("ConvTranspose", (4, 3, 2, 2, 2), {"strides": [2, 2, 2]}),
}


def _model(name: str, images: int = 1) -> tuple[ModelProto, dict[str, np.ndarray]]:
    op_type, filters, attributes = LAYERS[name]
    rng = np.random.default_rng(5)
    builder = ModelBuilder()
    shape = (images, *SHAPE[1:])
    constants = []
    if filters:
        outputs = filters[0] if op_type == "Conv" else filters[1]
        constants = [
            builder.constant(rng.standard_normal(s), "float32") for s in (filters, (outputs,))
        ]
    builder.node(
        op_type, builder.input("x", shape), *constants, name="op", result="y", **attributes
    )
    builder.output("y")
    return builder.model(), {"x": rng.standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_keep_their_numbers_and_have_no_third_dimension(name: str) -> None:
    model, feed = _model(name, images=2)
    (expected,) = OnnxRuntimeSession(model).run(["y"], feed).values()
    rewritten = prepare(model)
    (found,) = OnnxRuntimeSession(rewritten).run(["y"], feed).values()
    assert found.shape == expected.shape
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=2e-6 * float(np.abs(expected).max()) + 1e-6
    )
    windows = [
        a.ints for node in rewritten.graph.node for a in node.attribute if a.name == "kernel_shape"
    ]
    assert max((len(window) for window in windows), default=0) <= 2
    assert "op" in [node.name for node in rewritten.graph.node]


@pytest.mark.parametrize("name", LAYERS)
def test_quantised_all_of_it_runs_on_the_accelerator(name: str) -> None:
    model, feed = _model(name)
    found = compare(
        import_model(model, name, calibration=[feed]), feed, Arch(isa="v4", sram_bytes=65536)
    )
    assert found.mismatches == 0
    hosts = {place.op_type for place in found.partition.placement if place.on == "cpu"}
    assert hosts <= {"QuantizeLinear", "DequantizeLinear"}, hosts
    assert len(found.partition.regions) == 1


@pytest.mark.parametrize(
    "attributes",
    [{"dilations": [2, 1, 1]}, {"ceil_mode": 1, "strides": [2, 2, 2], "count_include_pad": 1}],
)
def test_what_would_be_another_average_stays(attributes: dict[str, Any]) -> None:
    builder = ModelBuilder()
    builder.node(
        "AveragePool", builder.input("x", SHAPE), result="y", kernel_shape=[3, 3, 3], **attributes
    )
    builder.output("y")
    (node,) = flatten_volumes(infer_shapes(builder.model())).graph.node
    assert len(next(a.ints for a in node.attribute if a.name == "kernel_shape")) == 3


def _quantised(name: str, dtype: str, activation: str) -> ModelProto:
    op_type, filters, attributes = LAYERS[name]
    rng = np.random.default_rng(7)
    builder = ModelBuilder()
    data = 0.03, 5 if dtype == "int8" else 130
    result = data if op_type in ("MaxPool", "GlobalMaxPool") else (0.04, 3)
    operands = [builder.dequantize(builder.input("x", SHAPE, dtype), *data, dtype)]
    if filters:
        axis = int(op_type == "ConvTranspose")
        scales = rng.uniform(0.005, 0.01, filters[axis]).astype(np.float32)
        numbers = rng.integers(-127, 128, filters).astype(np.int8)
        biases = rng.integers(-999, 999, filters[axis]).astype(np.int32)
        operands += [
            builder.weights(numbers, scales, axis=axis),
            builder.weights(biases, scales * np.float32(data[0])),
        ]
    made = builder.node(op_type, *operands, name="op", **attributes)
    if activation and filters:
        made = builder.node(activation, made)
    builder.quantize(made, *result, dtype, result="y")
    builder.output("y", dtype)
    return builder.model()


@pytest.mark.parametrize(
    "name", sorted(LAYERS.keys() - {"average-uncounted", "average-rounded-up"})
)
@pytest.mark.parametrize(("dtype", "activation"), [("int8", ""), ("uint8", "Relu")])
def test_between_quantised_values_it_is_the_same_integers(
    name: str, dtype: str, activation: str
) -> None:
    """Results equal those of the given model to the bit.

    They may only differ at a Relu whose sums ONNX Runtime keeps in float.
    """
    package = import_model(_quantised(name, dtype, activation), name)
    assert package.fidelity is not None
    assert not package.fidelity.left_out
    assert activation or package.fidelity.integer == 0.0
    feed = {"x": np.random.default_rng(1).integers(0, 256, SHAPE).astype(np.uint8).view(dtype)}
    for sram, schedule in ((8192, "default"), (1 << 19, "default"), (8192, "seed")):
        found = compare(package, feed, Arch(isa="v4", sram_bytes=sram), schedule)
        assert (found.mismatches, len(found.partition.regions)) == (0, 1)
        assert [place for place in found.partition.placement if place.on == "cpu"] == []


@pytest.mark.parametrize("name", ["average-uncounted", "average-rounded-up"])
def test_integer_averages_that_leave_padding_out_stay(name: str) -> None:
    (place,) = compare(
        import_model(_quantised(name, "int8", ""), name),
        {"x": np.zeros(SHAPE, np.int8)},
        Arch(isa="v4"),
    ).partition.placement
    assert place.reason is not None
    assert "3 dimensions" in place.reason
