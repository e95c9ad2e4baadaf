"""Every rule of `onnxruntime` numerics equals ONNX Runtime to the bit.

Scales are seeded random ones and ones with many ties. Weights stay within -63..63: beyond that the
16-bit sums in ONNX Runtime's kernels for CPUs without VNNI saturate.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from isa import numerics

TYPES = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8}
ACTIVATIONS = pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=["int8", "uint8"])
EVERY_BYTE = np.arange(256, dtype=np.uint8)
MICROSOFT = "com.microsoft"


def run(nodes, inputs, constants, expect, tmp_path):
    """Run a graph with output y at EXTENDED; check its operators after optimisation.

    They must be among ``expect``.
    """
    graph = helper.make_graph(
        nodes,
        "numerics",
        [
            helper.make_tensor_value_info(name, TYPES[v.dtype.type], v.shape)
            for name, v in inputs.items()
        ],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    optimised = {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}
    assert optimised in expect, f"ONNX Runtime ran {sorted(optimised)}"
    return session.run(None, inputs)[0]


def draw_scale(rng) -> np.float32:
    """A power of two, a small dyadic fraction (many ties), a short decimal, or anything."""
    choices = [
        2.0 ** rng.integers(-8, 2),
        rng.integers(1, 20) / 2.0 ** rng.integers(2, 7),
        rng.integers(1, 30) * 0.01,
        np.exp(rng.uniform(-6, 1)),
    ]
    return np.float32(choices[rng.integers(0, len(choices))])


def draw_zero(rng, dtype) -> int:
    limits = np.iinfo(dtype)
    return int(
        rng.choice(
            [limits.min, limits.max, rng.integers(limits.min, limits.max + 1)], p=[0.3, 0.1, 0.6]
        )
    )


def draw_bytes(rng, shape, dtype) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8).view(dtype)


def offset_of(dtype) -> int:
    return 128 if dtype is np.uint8 else 0


def stored(values: np.ndarray) -> np.ndarray:
    """The int8 tensor that stands for an int8 or uint8 one."""
    return (values.astype(np.int64) - offset_of(values.dtype.type)).astype(np.int8)


def ends(sx, zx, sy, zy, dtype) -> dict[str, object]:
    """The quantisation constants of a graph from x to y."""
    return {"sx": sx, "zx": dtype(zx), "sy": sy, "zy": dtype(zy)}


def assert_equal(ours: np.ndarray, theirs: np.ndarray, context: object) -> None:
    np.testing.assert_array_equal(ours, stored(theirs), err_msg=str(context))


def between_quantisation(operator: str, **attributes: object):
    return [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["real_x"]),
        helper.make_node(operator, ["real_x"], ["real_y"], **attributes),
        helper.make_node("QuantizeLinear", ["real_y", "sy", "zy"], ["y"]),
    ]


class TestRequantise:
    """The three operators share one rule.

    Weights are per output channel, with a bias where the operator takes one.
    """

    @staticmethod
    def draw(seed, dtype, channels):
        rng = np.random.default_rng(seed)
        sx = draw_scale(rng)
        sy = draw_scale(rng) * np.float32(8)
        sw = np.array([draw_scale(rng) for _ in range(channels)], np.float32)
        return rng, sx, draw_zero(rng, dtype), sw, sy, draw_zero(rng, dtype)

    @ACTIVATIONS
    @pytest.mark.parametrize("seed", range(20))
    def test_convolution(self, seed, dtype, tmp_path):
        rng, sx, zx, sw, sy, zy = self.draw(seed, dtype, 8)
        x = draw_bytes(rng, (1, 5, 16, 16), dtype)
        weights = rng.integers(-63, 64, (8, 5, 1, 1)).astype(np.int8)
        bias = rng.integers(-5000, 5000, 8).astype(np.int32)
        names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias"]
        constants = ends(sx, zx, sy, zy, dtype) | {
            "w": weights,
            "sw": sw,
            "zw": np.zeros(8, np.int8),
            "bias": bias,
        }
        y = run(
            [helper.make_node("QLinearConv", names, ["y"])],
            {"x": x},
            constants,
            [{"QLinearConv"}],
            tmp_path,
        )
        accumulator = np.einsum(
            "oc,chw->ohw", weights[:, :, 0, 0].astype(np.int64), x[0].astype(np.int64) - zx
        )
        accumulator += bias.reshape(8, 1, 1)
        scale = numerics.requantise_scale(sx, sw, sy).reshape(8, 1, 1)
        assert_equal(
            numerics.requantise(accumulator, scale, zy - offset_of(dtype)), y[0], (sx, sw, sy)
        )

    @ACTIVATIONS
    @pytest.mark.parametrize("operator", ["QLinearMatMul", "QGemm"])
    @pytest.mark.parametrize("seed", range(10))
    def test_matrix_product(self, seed, operator, dtype, tmp_path):
        rng, sx, zx, sw, sy, zy = self.draw(seed, dtype, 24)
        x = draw_bytes(rng, (40, 30), dtype)
        weights = rng.integers(-63, 64, (30, 24)).astype(np.int8)
        bias = rng.integers(-5000, 5000, 24).astype(np.int32) * (operator == "QGemm")
        constants = ends(sx, zx, sy, zy, dtype) | {
            "w": weights,
            "sw": sw,
            "zw": np.zeros(24, np.int8),
        }
        names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
        domain = ""
        if operator == "QGemm":
            names.insert(6, "bias")
            constants["bias"] = bias
            domain = MICROSOFT
        node = helper.make_node(operator, names, ["y"], domain=domain)
        y = run([node], {"x": x}, constants, [{operator}], tmp_path)
        accumulator = (x.astype(np.int64) - zx) @ weights.astype(np.int64) + bias
        ours = numerics.requantise(
            accumulator, numerics.requantise_scale(sx, sw, sy), zy - offset_of(dtype)
        )
        assert_equal(ours, y, (sx, sw, sy))


@ACTIVATIONS
@pytest.mark.parametrize("seed", range(40))
def test_add_of_all_pairs(seed, dtype, tmp_path):
    rng = np.random.default_rng(seed)
    scales = [draw_scale(rng) for _ in range(3)]
    if seed % 4 == 0:
        # nearly every sum is a tie
        scales = [np.float32(2.0 ** rng.integers(-3, 1)), np.float32(0.5), np.float32(1)]
    zeros = [draw_zero(rng, dtype) for _ in range(3)]
    a = np.repeat(EVERY_BYTE, 256).view(dtype)
    b = np.tile(EVERY_BYTE, 256).view(dtype)
    names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    constants = dict(zip(["sa", "sb", "sy"], scales, strict=True))
    constants |= {name: dtype(zero) for name, zero in zip(["za", "zb", "zy"], zeros, strict=True)}
    node = helper.make_node("QLinearAdd", names, ["y"], domain=MICROSOFT)
    y = run([node], {"a": a, "b": b}, constants, [{"QLinearAdd"}], tmp_path)
    ours = numerics.add_constants(scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2])
    assert_equal(
        numerics.add(stored(a), stored(b), *ours, offset=offset_of(dtype)), y, (scales, zeros)
    )


def window_taps(x, kernel, strides, pads, size):
    """Gather the taps of every window of (C, H, W), row-major, and count the valid ones."""
    rows, columns = (np.arange(n) * s - p for n, s, p in zip(size, strides, pads[:2], strict=True))
    taps = []
    valid_taps = np.zeros(size, np.int64)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            inside = [
                (at >= 0) & (at < n)
                for at, n in ((rows + i, x.shape[1]), (columns + j, x.shape[2]))
            ]
            valid = inside[0][:, np.newaxis] & inside[1]
            taps.append(
                (np.take(np.take(x, rows + i, 1, mode="clip"), columns + j, 2, mode="clip"), valid)
            )
            valid_taps += valid
    return taps, valid_taps


@ACTIVATIONS
@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("quantised_operator", [True, False], ids=["QLinear", "QDQ"])
def test_average_pool(quantised_operator, count_include_pad, ceil_mode, dtype, tmp_path):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        kernel = rng.integers(1, 5, 2).tolist()
        strides = rng.integers(1, 4, 2).tolist()
        pads = [int(rng.integers(0, k)) for k in kernel * 2]
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        attributes |= {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        sx = draw_scale(rng)
        sy = draw_scale(rng)
        zx = draw_zero(rng, dtype)
        zy = draw_zero(rng, dtype)
        x = draw_bytes(rng, (1, 4, *rng.integers(5, 14, 2)), dtype)
        nodes = between_quantisation("AveragePool", **attributes)
        if quantised_operator:
            names = ["x", "sx", "zx", "sy", "zy"]
            nodes = [
                helper.make_node("QLinearAveragePool", names, ["y"], domain=MICROSOFT, **attributes)
            ]
        y = run(nodes, {"x": x}, ends(sx, zx, sy, zy, dtype), [{"QLinearAveragePool"}], tmp_path)
        taps, valid = window_taps(stored(x[0]), kernel, strides, pads, y.shape[2:])
        count = kernel[0] * kernel[1] if count_include_pad else valid
        ours = numerics.average_taps(taps, count, (sx, sy), (zx, zy), offset=offset_of(dtype))
        assert_equal(ours, y[0], (seed, attributes, sx, sy, zx, zy))


@ACTIVATIONS
@pytest.mark.parametrize("quantised_operator", [True, False], ids=["QLinear", "QDQ"])
def test_global_average_pool(quantised_operator, dtype, tmp_path):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sx = draw_scale(rng)
        sy = draw_scale(rng)
        zx = draw_zero(rng, dtype)
        zy = draw_zero(rng, dtype)
        x = draw_bytes(rng, (1, 40, *rng.integers(1, 12, 2)), dtype)
        nodes = between_quantisation("GlobalAveragePool")
        if quantised_operator:
            names = ["x", "sx", "zx", "sy", "zy"]
            nodes = [
                helper.make_node(
                    "QLinearGlobalAveragePool", names, ["y"], domain=MICROSOFT, channels_last=0
                )
            ]
        constants = ends(sx, zx, sy, zy, dtype)
        y = run(nodes, {"x": x}, constants, [{"QLinearGlobalAveragePool"}], tmp_path)
        total = (x[0].astype(np.int64) - zx).sum(axis=(1, 2))
        scale = numerics.global_average_scale(sx, sy, x.shape[2] * x.shape[3])
        assert_equal(
            numerics.global_average(total, scale, zy - offset_of(dtype)),
            y[0, :, 0, 0],
            (seed, sx, sy),
        )


@ACTIVATIONS
@pytest.mark.parametrize(
    ("operator", "function", "expect"),
    [
        (
            "Relu",
            "relu",
            [
                {"DequantizeLinear", "Relu", "QuantizeLinear"},
                {"DequantizeLinear", "QuantizeLinear"},
            ],
        ),
        ("LeakyRelu", "leaky_relu", [{"QLinearLeakyRelu"}]),
        ("Abs", "absolute", [{"DequantizeLinear", "Abs", "QuantizeLinear"}]),
    ],
)
def test_unary_of_every_byte(operator, function, expect, dtype, tmp_path):
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sx = draw_scale(rng)
        sy = draw_scale(rng)
        zx = draw_zero(rng, dtype)
        zy = draw_zero(rng, dtype)
        alpha = float(np.float32(rng.choice([0.01, 0.1, 0.25, 0.5, -0.3, 1.5, rng.uniform()])))
        attributes = {"alpha": alpha} if operator == "LeakyRelu" else {}
        x = EVERY_BYTE.view(dtype)
        constants = ends(sx, zx, sy, zy, dtype)
        y = run(between_quantisation(operator, **attributes), {"x": x}, constants, expect, tmp_path)
        offset = offset_of(dtype)
        assert_equal(
            numerics.unary(stored(x), function, (sx, sy), (zx - offset, zy - offset), alpha),
            y,
            (seed, sx, sy),
        )


@ACTIVATIONS
def test_clip_is_the_identity_with_quantised_limits(dtype, tmp_path):
    expect = [
        {"DequantizeLinear", "Clip", "QuantizeLinear"},
        {"DequantizeLinear", "QuantizeLinear"},
    ]
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sx = draw_scale(rng)
        sy = draw_scale(rng)
        zx = draw_zero(rng, dtype)
        zy = draw_zero(rng, dtype)
        limits = np.sort(rng.normal(size=2) * 80 * sx).astype(np.float32)
        nodes = between_quantisation("Clip")
        nodes[1].input.extend(["lowest", "highest"])
        x = EVERY_BYTE.view(dtype)
        offset = offset_of(dtype)
        constants = ends(sx, zx, sy, zy, dtype) | {"lowest": limits[0], "highest": limits[1]}
        y = run(nodes, {"x": x}, constants, expect, tmp_path)
        low, high = numerics.saturate_int8(
            np.rint(limits / sy).astype(np.int64) + zy - offset
        ).tolist()
        ours = numerics.unary(
            stored(x), "leaky_relu", (sx, sy), (zx - offset, zy - offset), 1.0, low, high
        )
        assert_equal(ours, y, (seed, limits, sx, sy))
