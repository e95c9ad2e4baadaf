"""Reference semantics of every compute instruction: values by hand, ONNX Runtime's integer operators to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from isa import numerics
from isa.arch import Arch, PeArray
from isa.errors import InputError
from isa.instruction import Machine
from isa.ops.requant import ChannelScales, pack_records
from tests.isa.bench import make_command, run

BITS = numerics.float32_bits


def onnx_result(op: str, inputs: dict[str, NDArray[Any]], domain: str = "", **attributes: Any) -> NDArray[Any]:
    """What ONNX Runtime's operator ``op`` gives; all inputs but the first are constants."""
    names = list(inputs)
    first = inputs[names[0]]
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    constants = [numpy_helper.from_array(inputs[name], name) for name in names[1:]]
    source = helper.make_tensor_value_info(names[0], helper.np_dtype_to_tensor_dtype(first.dtype), first.shape)
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(first.dtype), None)
    graph = helper.make_graph([node], "g", [source], [output], constants)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    result: NDArray[Any] = session.run(None, {names[0]: first})[0]
    return result


def records(bias: NDArray[np.int32], scale: NDArray[np.float32], arch: Arch | None = None) -> NDArray[np.uint8]:
    return np.frombuffer(pack_records(bias, ChannelScales.of(scale), arch or Arch()), np.uint8)


def scalar(value: float) -> NDArray[np.float32]:
    return np.array(value, np.float32)


def zero(value: int) -> NDArray[np.int8]:
    return np.array(value, np.int8)


CONVOLUTIONS = [
    # groups, ic, oc, (ih, iw), kernel, strides, dilations, pads (top, left, bottom, right)
    (1, 3, 8, (9, 7), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    (1, 5, 4, (6, 6), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    (1, 2, 3, (11, 8), (3, 2), (1, 3), (2, 1), (2, 0, 1, 1)),
    (6, 6, 6, (8, 5), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (4, 4, 8, (7, 9), (3, 3), (2, 1), (1, 2), (0, 2, 2, 1)),
    (1, 1, 1, (1, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    (1, 1, 1, (2, 2), (3, 3), (1, 1), (1, 1), (2, 2, 2, 2)),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_convolution_equals_onnx_runtime(case: tuple[Any, ...], seed: int) -> None:
    groups, ic, oc, (ih, iw), (kh, kw), strides, dilations, pads = case
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (1, ic, ih, iw), dtype=np.int8)
    w = rng.integers(-127, 128, (oc, ic // groups, kh, kw), dtype=np.int8)
    bias = rng.integers(-4000, 4000, oc, dtype=np.int32)
    xs, ys = scalar(rng.uniform(0.01, 0.1)), scalar(rng.uniform(0.3, 2))
    ws = rng.uniform(0.001, 0.02, oc).astype(np.float32)
    zx, zy = int(rng.integers(-128, 128)), int(rng.integers(-20, 20))
    expected = onnx_result(
        "QLinearConv",
        {"x": x, "xs": xs, "xz": zero(zx), "w": w, "ws": ws, "wz": np.zeros(oc, np.int8)}
        | {"ys": ys, "yz": zero(zy), "b": bias},
        group=groups, strides=strides, dilations=dilations, pads=pads,
    )[0]  # fmt: skip
    folded = (bias - zx * w.reshape(oc, -1).sum(axis=1, dtype=np.int64)).astype(np.int32)
    scale = numerics.requantise_scale(xs, ws, ys)
    registers = {
        "EX_INPUT_CHANNELS": ic, "EX_INPUT_HEIGHT": ih, "EX_INPUT_WIDTH": iw,
        "EX_OUTPUT_CHANNELS": oc, "EX_OUTPUT_HEIGHT": expected.shape[1], "EX_OUTPUT_WIDTH": expected.shape[2],
        "EX_KERNEL_HEIGHT": kh, "EX_KERNEL_WIDTH": kw, "EX_STRIDE_HEIGHT": strides[0], "EX_STRIDE_WIDTH": strides[1],
        "EX_DILATION_HEIGHT": dilations[0], "EX_DILATION_WIDTH": dilations[1],
        "EX_PAD_TOP": pads[0], "EX_PAD_LEFT": pads[1], "EX_INPUT_ZERO_POINT": zx, "EX_OUTPUT_ZERO_POINT": zy,
    }  # fmt: skip
    mnemonic = "OP_DEPTH_CONV" if groups > 1 else "OP_CONV"
    operands: list[NDArray[Any]] = [x, w, records(folded, scale)]
    found = run(mnemonic, registers, operands, (expected.shape, np.int8), {"requantise": 1})
    np.testing.assert_array_equal(found, expected)
    relu = run(mnemonic, registers, operands, (expected.shape, np.int8), {"requantise": 1, "relu": 1})
    np.testing.assert_array_equal(relu, np.maximum(expected, zy))
    wide = run(mnemonic, registers, operands, (expected.shape, np.int32))
    requantised = run(
        "OP_REQUANT",
        {"EX_OUTPUT_CHANNELS": oc, "EX_LENGTH": expected[0].size, "EX_OUTPUT_ZERO_POINT": zy},
        [wide, None, records(folded, scale)],
        (expected.shape, np.int8),
    )
    np.testing.assert_array_equal(requantised, expected)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 7, 5), (4, 300, 3), (3, 1, 1)])
def test_matrix_product_equals_onnx_runtime(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m * 100 + k)
    a = rng.integers(-128, 128, (m, k), dtype=np.int8)
    b = rng.integers(-127, 128, (k, n), dtype=np.int8)
    bs = rng.uniform(0.001, 0.02, n).astype(np.float32)
    xs, ys, zx, zy = scalar(0.04), scalar(0.9), -9, 4
    expected = onnx_result(
        "QLinearMatMul",
        {"a": a, "as": xs, "az": zero(zx), "b": b, "bs": bs, "bz": np.zeros(n, np.int8), "ys": ys, "yz": zero(zy)},
    )
    folded = (-zx * b.sum(axis=0, dtype=np.int64)).astype(np.int32)
    registers = {"EX_ROWS": m, "EX_INPUT_CHANNELS": k, "EX_OUTPUT_CHANNELS": n, "EX_OUTPUT_ZERO_POINT": zy}
    operands: list[NDArray[Any]] = [a, b, records(folded, numerics.requantise_scale(xs, bs, ys))]
    np.testing.assert_array_equal(
        run("OP_MAT_MUL", registers, operands, ((m, n), np.int8), {"requantise": 1}), expected
    )
    wide = run("OP_MAT_MUL", registers, operands, ((m, n), np.int32))
    np.testing.assert_array_equal(wide, (a.astype(np.int64) - zx) @ b.astype(np.int64))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 7, 5), (4, 300, 3), (3, 1, 1)])
def test_product_of_two_activations_equals_onnx_runtime(m: int, k: int, n: int) -> None:
    """As do 0 of 7,197,228 outputs by script: int8 and uint8, ties, zero points and scales from end to end."""
    rng = np.random.default_rng(m * 100 + k)
    a, b = rng.integers(-128, 128, (m, k), dtype=np.int8), rng.integers(-128, 128, (k, n), dtype=np.int8)
    xs, bs, ys, (zx, zb, zy) = scalar(0.04), scalar(0.03), scalar(0.9), (-128, 77, 4)
    expected = onnx_result(
        "QLinearMatMul",
        {"a": a, "as": xs, "az": zero(zx), "b": b, "bs": bs, "bz": zero(zb), "ys": ys, "yz": zero(zy)},
    )
    registers = {
        "EX_ROWS": m, "EX_INPUT_CHANNELS": k, "EX_OUTPUT_CHANNELS": n,
        "EX_INPUT_ZERO_POINT": zx, "EX_OPERAND_ZERO_POINT": zb, "EX_OUTPUT_ZERO_POINT": zy,
        "EX_SCALE_A": BITS(numerics.requantise_scale(xs, bs, ys)),
    }  # fmt: skip
    found = run("OP_DYN_MAT_MUL", registers, [a, b], ((m, n), np.int8), {"requantise": 1})
    np.testing.assert_array_equal(found, expected)
    turned = run("OP_DYN_MAT_MUL", registers, [a, b.T], ((m, n), np.int8), {"requantise": 1, "transposed": 1})
    np.testing.assert_array_equal(turned, expected)
    wide = run("OP_DYN_MAT_MUL", registers, [a, b], ((m, n), np.int32))
    np.testing.assert_array_equal(wide, (a.astype(np.int64) - zx) @ (b.astype(np.int64) - zb))


def test_product_of_two_activations_by_hand() -> None:
    """1·4 + 3·-2 and 1·0 + 3·6 less the zero points; halved, moved by 1 and limited to 9 they are 0 and 9."""
    registers = {"EX_INPUT_CHANNELS": 2, "EX_OUTPUT_CHANNELS": 2, "EX_INPUT_ZERO_POINT": 1, "EX_OPERAND_ZERO_POINT": 2}
    a, b = np.array([[2, 4]], np.int8), np.array([[6, 2], [0, 8]], np.int8)
    assert run("OP_DYN_MAT_MUL", registers, [a, b], ((1, 2), np.int32)).tolist() == [[-2, 18]]
    half = {"EX_SCALE_A": 1 << 30, "EX_OUTPUT_ZERO_POINT": 1, "EX_CLAMP_HIGH": 9}
    fixed = Arch(numerics="fixed")
    found = run("OP_DYN_MAT_MUL", registers | half, [a, b], ((1, 2), np.int8), {"requantise": 1}, fixed)
    assert found.tolist() == [[0, 9]]


def pool_registers(
    shape: tuple[int, ...], out: tuple[int, ...], kernel: tuple[int, int], **more: int
) -> dict[str, int]:
    return {
        "EX_INPUT_CHANNELS": shape[0], "EX_INPUT_HEIGHT": shape[1], "EX_INPUT_WIDTH": shape[2],
        "EX_OUTPUT_CHANNELS": out[0], "EX_OUTPUT_HEIGHT": out[1], "EX_OUTPUT_WIDTH": out[2],
        "EX_KERNEL_HEIGHT": kernel[0], "EX_KERNEL_WIDTH": kernel[1],
        **{f"EX_{name}": value for name, value in more.items()},
    }  # fmt: skip


@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_max_pooling_equals_onnx_runtime(ceil_mode: int) -> None:
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 8, 9), dtype=np.int8)
    attributes = {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1), "ceil_mode": ceil_mode}
    expected = onnx_result("MaxPool", {"x": x}, **attributes)[0]
    registers = pool_registers(x.shape[1:], expected.shape, (3, 2), STRIDE_HEIGHT=2, STRIDE_WIDTH=2, PAD_TOP=1)
    np.testing.assert_array_equal(run("OP_POOL", registers, [x], (expected.shape, np.int8)), expected)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("unsigned", [False, True])
def test_average_pooling_equals_onnx_runtime(include: int, unsigned: bool) -> None:
    rng = np.random.default_rng(2 + include)
    offset, dtype = (128, np.uint8) if unsigned else (0, np.int8)
    stored = rng.integers(-128, 128, (1, 3, 7, 9), dtype=np.int8)
    x = (stored.astype(np.int64) + offset).astype(dtype)
    zx, zy, xs, ys = 5 + offset, offset - 3, 0.03125, 0.0625
    attributes = {"kernel_shape": (3, 3), "strides": (2, 1), "pads": (1, 1, 1, 1), "count_include_pad": include}
    expected = onnx_result(
        "QLinearAveragePool",
        {"x": x, "xs": scalar(xs), "xz": np.array(zx, dtype), "ys": scalar(ys), "yz": np.array(zy, dtype)},
        "com.microsoft",
        **attributes,
    )[0]
    registers = pool_registers(
        x.shape[1:], expected.shape, (3, 3), STRIDE_HEIGHT=2, PAD_TOP=1, PAD_LEFT=1, INPUT_ZERO_POINT=zx,
        OUTPUT_ZERO_POINT=zy, OFFSET=offset, SCALE_A=BITS(xs), SCALE_Y=BITS(ys),
    )  # fmt: skip
    fields = {"mode": 1, "count_include_pad": include}
    found = run("OP_POOL", registers, [stored], (expected.shape, np.int8), fields)
    np.testing.assert_array_equal(found.astype(np.int64) + offset, expected)


def test_global_average_equals_onnx_runtime() -> None:
    x = np.random.default_rng(4).integers(-128, 128, (1, 6, 7, 5), dtype=np.int8)
    zx, zy, xs, ys = -11, 7, scalar(0.031), scalar(0.027)
    inputs = {"x": x, "xs": xs, "xz": zero(zx), "ys": ys, "yz": zero(zy)}
    expected = onnx_result("QLinearGlobalAveragePool", inputs, "com.microsoft", channels_last=0)[0]
    factor = BITS(numerics.global_average_scale(xs, ys, 35))
    registers = pool_registers(
        x.shape[1:], expected.shape, (7, 5), INPUT_ZERO_POINT=zx, OUTPUT_ZERO_POINT=zy, SCALE_A=factor
    )
    np.testing.assert_array_equal(run("OP_POOL", registers, [x], (expected.shape, np.int8), {"mode": 2}), expected)


@pytest.mark.parametrize("unsigned", [False, True])
def test_addition_equals_onnx_runtime(unsigned: bool) -> None:
    rng = np.random.default_rng(5)
    offset, dtype = (128, np.uint8) if unsigned else (0, np.int8)
    a, b = rng.integers(-128, 128, (2, 4096), dtype=np.int8)
    quantised = [(stored.astype(np.int64) + offset).astype(dtype) for stored in (a, b)]
    scales, zeros = (0.02, 0.03, 0.05), (offset + 3, offset - 7, offset + 1)
    inputs = {"a": quantised[0], "as": scalar(scales[0]), "az": np.array(zeros[0], dtype)}
    inputs |= {"b": quantised[1], "bs": scalar(scales[1]), "bz": np.array(zeros[1], dtype)}
    inputs |= {"ys": scalar(scales[2]), "yz": np.array(zeros[2], dtype)}
    expected = onnx_result("QLinearAdd", inputs, "com.microsoft")
    constants = numerics.add_constants(scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2])
    registers = {f"EX_SCALE_{name}": BITS(value) for name, value in zip("ABY", constants, strict=True)}
    registers |= {"EX_LENGTH": a.size, "EX_OFFSET": offset}
    found = run("OP_E_ADD", registers, [a, b], (a.shape, np.int8))
    np.testing.assert_array_equal(found.astype(np.int64) + offset, expected)


EVERY = np.arange(-128, 128, dtype=np.int8)


def test_unary_functions_by_hand() -> None:
    """Equal scales and zero point 10: the value is x - 10, so -20 is -30: ReLU gives 0, leaky ReLU by 0.5 gives -15."""
    registers = {"EX_LENGTH": 3, "EX_INPUT_ZERO_POINT": 10, "EX_OUTPUT_ZERO_POINT": 10}
    registers |= {"EX_SCALE_A": BITS(0.5), "EX_SCALE_B": BITS(0.5), "EX_SCALE_Y": BITS(0.5)}
    x = np.array([-20, 10, 60], np.int8)
    assert run("OP_ACT_RELU", registers, [x], ((3,), np.int8)).tolist() == [10, 10, 60]
    assert run("OP_ACT_LRELU", registers, [x], ((3,), np.int8)).tolist() == [-5, 10, 60]
    assert run("OP_E_ABS", registers, [x], ((3,), np.int8)).tolist() == [40, 10, 60]
    clamped = registers | {"EX_CLAMP_LOW": 11, "EX_CLAMP_HIGH": 20}
    assert run("OP_E_ABS", clamped, [x], ((3,), np.int8)).tolist() == [20, 11, 20]


def test_leaky_relu_equals_onnx_runtime_on_every_value() -> None:
    inputs = {"x": EVERY, "xs": scalar(0.11), "xz": zero(-3), "ys": scalar(0.07), "yz": zero(21)}
    expected = onnx_result("QLinearLeakyRelu", inputs, "com.microsoft", alpha=0.1)
    registers = {"EX_LENGTH": 256, "EX_INPUT_ZERO_POINT": -3, "EX_OUTPUT_ZERO_POINT": 21}
    registers |= {"EX_SCALE_A": BITS(0.11), "EX_SCALE_B": BITS(0.1), "EX_SCALE_Y": BITS(0.07)}
    np.testing.assert_array_equal(run("OP_ACT_LRELU", registers, [EVERY], ((256,), np.int8)), expected)


def test_minimum_and_maximum() -> None:
    a, b = EVERY, EVERY[::-1].copy()
    registers = {"EX_LENGTH": 256}
    np.testing.assert_array_equal(run("OP_C_MIN", registers, [a, b], ((256,), np.int8)), np.minimum(a, b))
    np.testing.assert_array_equal(run("OP_C_MAX", registers, [a, b], ((256,), np.int8)), np.maximum(a, b))


def test_a_table_has_the_results_in_the_order_of_the_bytes() -> None:
    """The table of a function of every value, beginning with that of 0; one for all, or one a channel."""
    table = (EVERY.view(np.uint8).astype(np.int64) * 7 + 3).astype(np.int8)
    order = np.arange(256, dtype=np.uint8).view(np.int8)
    assert order[[0, 127, 128, 255]].tolist() == [0, 127, -128, -1]
    own = np.stack([np.roll(order, 11), ~order, table])
    found = run("OP_LUT", {"EX_LENGTH": 256}, [EVERY, ~order], ((256,), np.int8))
    assert found.tolist() == [-1 - value for value in EVERY.tolist()]
    planes = np.stack([EVERY, EVERY[::-1], np.roll(EVERY, 5)])
    expected = [[int(own[channel][value % 256]) for value in row] for channel, row in enumerate(planes.tolist())]
    registers = {"EX_OUTPUT_CHANNELS": 3, "EX_LENGTH": 256}
    assert run("OP_LUT", registers, [planes, own], ((3, 256), np.int8)).tolist() == expected
    registers = {"EX_ROWS": 256, "EX_OUTPUT_CHANNELS": 3, "EX_LENGTH": 1}
    matrix = np.ascontiguousarray(planes.T)
    assert run("OP_LUT", registers, [matrix, own], ((256, 3), np.int8)).T.tolist() == expected


def test_a_permutation_copies_in_four_dimensions() -> None:
    """Depth to space in blocks of 2 x 2, by NumPy's own transpose; a fill that leaves what lies between."""
    x = np.arange(2 * 2 * 3 * 4 * 5, dtype=np.uint8).view(np.int8).reshape(2, 2, 3, 4, 5)
    expected = x[1].transpose(1, 2, 3, 0).reshape(3, 4, 10)
    registers = {f"EX_COUNT_{n}": count for n, count in enumerate((2, 5, 4, 3), start=1)}
    registers |= {f"EX_INPUT_STRIDE_{n}": stride for n, stride in enumerate((60, 1, 5, 20), start=1)}
    registers |= {f"EX_OUTPUT_STRIDE_{n}": stride for n, stride in enumerate((1, 2, 10, 40), start=1)}
    np.testing.assert_array_equal(run("OP_PERMUTE", registers, [x[1]], ((3, 4, 10), np.int8)), expected)
    filled = {"EX_COUNT_1": 9, "EX_OUTPUT_STRIDE_1": 1, "EX_INPUT_ZERO_POINT": -3}
    assert run("OP_PERMUTE", filled, [], ((9,), np.int8), {"fill": 1}).tolist() == [-3] * 9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("offset", [0, 128])
@pytest.mark.parametrize("repeat", range(4))
def test_products_equal_onnx_runtime(repeat: int, offset: int, seed: int) -> None:
    """QLinearMul of dense tensors, a value a channel, a row or one value; half of the seeds are full of ties."""
    rng = np.random.default_rng(100 * repeat + 10 * seed + offset)
    shape = 1 if repeat & 2 else 9, 1 if repeat & 1 else 300
    a, b = rng.integers(-128, 128, (9, 300), dtype=np.int8), rng.integers(-128, 128, shape, dtype=np.int8)
    scales = rng.uniform(0.01, 0.2, 3).astype(np.float32)
    scales[2] = scales[0] * scales[1] * np.float32(rng.integers(2, 40) if seed % 2 else rng.uniform(5, 60))
    zeros = rng.integers(-128, 128, 3)
    dtype = np.int8 if offset == 0 else np.uint8
    inputs: dict[str, NDArray[Any]] = {}
    for name, data, scale, zero_point in zip("ab", (a, b), scales, zeros, strict=False):
        inputs |= {name: (data.astype(np.int64) + offset).astype(dtype), f"{name}s": np.asarray(scale)}
        inputs[f"{name}z"] = np.asarray(zero_point + offset, dtype)
    inputs |= {"ys": np.asarray(scales[2]), "yz": np.asarray(zeros[2] + offset, dtype)}
    expected = onnx_result("QLinearMul", inputs, "com.microsoft").astype(np.int64) - offset
    registers = {"EX_OUTPUT_CHANNELS": 9, "EX_LENGTH": 300, "EX_OFFSET": offset}
    registers |= {"EX_INPUT_ZERO_POINT": int(zeros[0]), "EX_OPERAND_ZERO_POINT": int(zeros[1])}
    registers |= {"EX_OUTPUT_ZERO_POINT": int(zeros[2]) + offset}
    registers["EX_SCALE_A"] = BITS(float(np.float32(scales[0] * scales[1]) / scales[2]))
    found = run("OP_E_MUL", registers, [a, b], ((9, 300), np.int8), {"repeat_a": 0, "repeat_b": repeat})
    np.testing.assert_array_equal(found, expected)


def test_differences_by_hand() -> None:
    """(x + 1) · 0.5 less (b - 2) · 0.25 by 0.5, on zero point 3: 11 and 4 are (6 - 0.5) / 0.5 + 3 = 14."""
    registers = {"EX_OUTPUT_CHANNELS": 2, "EX_LENGTH": 3, "EX_INPUT_ZERO_POINT": -1, "EX_OPERAND_ZERO_POINT": 2}
    registers |= {"EX_OUTPUT_ZERO_POINT": 3, "EX_CLAMP_HIGH": 100}
    registers |= {f"EX_SCALE_{name}": BITS(scale) for name, scale in zip("ABY", (0.5, 0.25, 0.5), strict=True)}
    x, b = np.array([[11, -1, 0], [127, 5, -128]], np.int8), np.array([4, 3], np.int8)
    found = run("OP_E_SUB", registers, [x, b], ((2, 3), np.int8), {"repeat_a": 0, "repeat_b": 1})
    assert found.tolist() == [[14, 2, 3], [100, 9, -125]]  # 5.5 is rounded to 6, -127.5 to -128
    turned = run("OP_E_SUB", registers, [b, x], ((2, 3), np.int8), {"repeat_a": 1, "repeat_b": 0})
    assert turned.tolist() == [[3, 9, 9], [-55, 5, 72]]


def test_quotients_by_hand() -> None:
    """(x + 1) · 0.5 by (b - 2) · 0.25 by 0.5, on zero point 3: 11 and 4 are 6 / 0.5 / 0.5 + 3 = 27; what 0 divides is
    the limit of its sign, 0 by 0 the lower one.
    """
    registers = {"EX_OUTPUT_CHANNELS": 2, "EX_LENGTH": 4, "EX_INPUT_ZERO_POINT": -1, "EX_OPERAND_ZERO_POINT": 2}
    registers |= {"EX_OUTPUT_ZERO_POINT": 3, "EX_CLAMP_HIGH": 100, "EX_CLAMP_LOW": -90}
    registers |= {f"EX_SCALE_{name}": BITS(scale) for name, scale in zip("ABY", (0.5, 0.25, 0.5), strict=True)}
    x, b = np.array([[11, -1, 0, -8], [11, -1, 0, -8]], np.int8), np.array([4, 2], np.int8)
    found = run("OP_E_DIV", registers, [x, b], ((2, 4), np.int8), {"repeat_a": 0, "repeat_b": 1})
    assert found.tolist() == [[27, 3, 5, -11], [100, -90, 100, -90]]
    whole = registers | {"EX_SCALE_A": 1 << 30, "EX_SHIFT_A": -17}
    fixed = run("OP_E_DIV", whole, [x, b], ((2, 4), np.int8), {"repeat_a": 0, "repeat_b": 1}, Arch(numerics="fixed"))
    assert fixed.tolist() == found.tolist()


def test_sums_and_comparisons_of_tensors_that_repeat() -> None:
    """As those of dense tensors: of every channel with one value, and of one row with every channel."""
    rng = np.random.default_rng(2)
    a, b, row = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((5, 1), (5, 40), (1, 40)))
    scaling = {f"EX_SCALE_{name}": BITS(scale) for name, scale in zip("ABY", (0.7, 0.9, -3.0), strict=True)}
    shape = {"EX_OUTPUT_CHANNELS": 5, "EX_LENGTH": 40}
    for first, second, repeats in ((a, b, (1, 0)), (b, a, (0, 1)), (a, row, (1, 2)), (b, row, (0, 2))):
        fields = dict(zip(("repeat_a", "repeat_b"), repeats, strict=True))
        dense = [np.broadcast_to(operand, (5, 40)).copy() for operand in (first, second)]
        expected = run("OP_E_ADD", scaling | {"EX_LENGTH": 200}, dense, ((5, 40), np.int8))
        found = run("OP_B_ADD", scaling | shape, [first, second], ((5, 40), np.int8), fields)
        np.testing.assert_array_equal(found, expected)
        for maximum, function in ((0, np.minimum), (1, np.maximum)):
            found = run("OP_B_MIN", shape, [first, second], ((5, 40), np.int8), fields | {"maximum": maximum})
            np.testing.assert_array_equal(found, function(first, second))


@pytest.mark.parametrize(
    ("mnemonic", "fields", "places", "shape"),
    [
        ("OP_CONV", {"requantise": 1}, {"OUTPUT_CHANNELS": 3, "INPUT_WIDTH": 7, "OUTPUT_WIDTH": 7}, (3, 7)),
        ("OP_DEPTH_CONV", {"requantise": 1}, {"OUTPUT_CHANNELS": 3, "INPUT_WIDTH": 7, "OUTPUT_WIDTH": 7}, (3, 7)),
        ("OP_GROUP_CONV", {"requantise": 1}, {"OUTPUT_CHANNELS": 3, "INPUT_WIDTH": 7, "OUTPUT_WIDTH": 7}, (3, 7)),
        ("OP_MAT_MUL", {"requantise": 1}, {"OUTPUT_CHANNELS": 3, "ROWS": 7}, (7, 3)),
        ("OP_REQUANT", {}, {"OUTPUT_CHANNELS": 3, "LENGTH": 7}, (3, 7)),
        ("OP_POOL", {}, {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 3, "INPUT_WIDTH": 7, "OUTPUT_WIDTH": 7}, (3, 7)),
        ("OP_E_ADD", {}, {"LENGTH": 21, "SCALE_A": 0x3F800000}, (3, 7)),
    ],
)
def test_results_are_looked_up_last(
    mnemonic: str, fields: dict[str, int], places: dict[str, int], shape: tuple[int, int]
) -> None:
    """The result with a table is the table of the result without: one for all, or one a channel; int8 only."""
    rng = np.random.default_rng(5)
    data, weights = rng.integers(-99, 99, 84, np.int8), rng.integers(-99, 99, 84, np.int8)
    records = rng.integers(-9, 9, (3, 2), np.int32)
    records[:, 1] = np.array([0.1, 0.2, 0.3], np.float32).view(np.int32)
    tables = rng.integers(-128, 128, (3, 256), np.int8)
    registers = {f"EX_{name}": value for name, value in places.items()}
    operands = [data, weights, records, tables]
    result = shape, np.int8
    plain = run(mnemonic, registers, operands, result, fields).astype(np.int64)
    one = run(mnemonic, registers, operands, result, {**fields, "look_up": 1})
    assert one.tolist() == [[int(tables[0, value % 256]) for value in row] for row in plain]
    channel = np.broadcast_to([0, 1, 2] if shape == (7, 3) else [[0], [1], [2]], shape) * (mnemonic != "OP_E_ADD")
    own = run(mnemonic, registers, operands, result, {**fields, "look_up": 2})
    assert own.tolist() == tables[channel, plain % 256].tolist()
    if fields:
        with pytest.raises(InputError, match=f"{mnemonic}: only int8 is looked up; set requantise to 1"):
            run(mnemonic, registers, operands, (shape, np.int32), {"look_up": 1})


@pytest.mark.parametrize("requantise", [0, 1])
def test_sums_of_some_input_channels_add_up_to_those_of_all(requantise: int) -> None:
    """A convolution and a product in three commands, the middle ones in int32; only the first begins with the bias."""
    rng = np.random.default_rng(6)
    channels = rng.integers(-9, 9, (3, 2), np.int32)
    channels[:, 1] = np.array([0.01, 0.02, 0.03], np.float32).view(np.int32)
    planes, filters = rng.integers(-99, 99, (7, 4, 5), np.int8), rng.integers(-99, 99, (3, 7, 2, 2), np.int8)
    window = {"INPUT_HEIGHT": 4, "INPUT_WIDTH": 5, "OUTPUT_HEIGHT": 3, "OUTPUT_WIDTH": 4}
    window |= {"KERNEL_HEIGHT": 2, "KERNEL_WIDTH": 2}
    rows, matrix = rng.integers(-99, 99, (6, 7), np.int8), rng.integers(-99, 99, (7, 3), np.int8)
    for mnemonic, places, shape in (("OP_CONV", window, (3, 3, 4)), ("OP_MAT_MUL", {"ROWS": 6}, (6, 3))):
        registers = {f"EX_{name}": value for name, value in (places | {"OUTPUT_CHANNELS": 3}).items()}
        sums: NDArray[Any] | None = None
        for first, last in ((0, 3), (3, 4), (4, 7)):
            parts = [planes[first:last], filters[:, first:last]]
            if mnemonic == "OP_MAT_MUL":
                parts = [rows[:, first:last], matrix[first:last]]
            ends = requantise if last == 7 else 0
            result = shape, np.int8 if ends else np.int32
            fields = {"requantise": ends, "accumulate": int(first > 0)}
            own = registers | {"EX_INPUT_CHANNELS": last - first}
            sums = run(mnemonic, own, [*parts, channels, None, sums], result, fields)  # type: ignore[list-item]
        operands = [planes, filters] if mnemonic == "OP_CONV" else [rows, matrix]
        whole = registers | {"EX_INPUT_CHANNELS": 7}
        wanted = run(mnemonic, whole, [*operands, channels], result, {"requantise": requantise})
        assert sums is not None
        assert np.array_equal(sums, wanted), mnemonic


def test_wide_addition_and_shift() -> None:
    a, b = np.array([2**31 - 2, -5, 7], np.int32), np.array([1, 5, -9], np.int32)
    registers = {"EX_LENGTH": 3}
    assert run("OP_E32_ADD", registers, [a, b], ((3,), np.int32)).tolist() == [2**31 - 1, 0, -2]
    with pytest.raises(OverflowError, match=r"overflows int32 at \(0,\): 2147483648"):
        run("OP_E32_ADD", registers, [a, np.array([2, 0, 0], np.int32)], ((3,), np.int32))
    values = np.array([5, -5, 6], np.int32)
    shifted = {"EX_LENGTH": 3, "EX_SHIFT_A": 1}
    for rounding, expected in ((0, [2, -3, 3]), (1, [2, -2, 3]), (2, [3, -3, 3])):
        fields = {"direction": 1, "rounding": rounding}
        assert run("OP_E32_SHIFT", shifted, [values], ((3,), np.int32), fields).tolist() == expected
    assert run("OP_E32_SHIFT", shifted, [values], ((3,), np.int32)).tolist() == [10, -10, 12]


def test_requantisation_in_place() -> None:
    arch = Arch()
    machine = Machine(arch, np.zeros(256, np.uint8), np.zeros(0, np.uint8))
    machine.sram[0:16] = np.array([-300, -1, 1, 300], np.int32).view(np.uint8)
    machine.sram[64:72] = records(np.array([0], np.int32), np.array([0.5], np.float32))
    registers = {"EX_CHANNEL_ADDRESS": 64, "EX_LENGTH": 4, "EX_OUTPUT_ZERO_POINT": 1, "EX_OUTPUT_CHANNELS": 1}
    command = make_command("OP_REQUANT", registers)
    command.instruction.semantics(command, machine)
    assert machine.sram[:4].view(np.int8).tolist() == [-128, 1, 1, 127]  # -150+1 saturates; -0.5 and 0.5 round to 0


def test_fixed_numerics_by_hand() -> None:
    """Scale 0.5 is the multiplier 2**30 with shift 0: 5 → 2.5 rounds away to 3, -5 → -2.5 to -2 (TensorFlow Lite)."""
    arch = Arch(numerics="fixed")
    packed = records(np.array([1], np.int32), np.array([0.5], np.float32), arch)
    assert packed.view(np.int32).tolist() == [1, 1 << 30, 0]
    registers = {"EX_OUTPUT_CHANNELS": 1, "EX_INPUT_CHANNELS": 1, "EX_ROWS": 2}
    x = np.array([[4], [-6]], np.int8)
    operands: list[NDArray[Any]] = [x, np.array([[1]], np.int8), packed]
    found = run("OP_MAT_MUL", registers, operands, ((2, 1), np.int8), {"requantise": 1}, arch)
    assert found.reshape(-1).tolist() == [3, -2]


def test_records_with_a_factor_round_once() -> None:
    """The halves of a float64 take the words of multiplier and shift: 5 · 0.5 and -5 · 0.5 go away from zero."""
    arch = Arch(numerics="fixed")
    scales = ChannelScales(np.ones(2, np.float32), np.array([0.5, 0.25]), once=True)
    packed = np.frombuffer(pack_records(np.array([1, 0], np.int32), scales, arch), np.uint8)
    assert packed.view(np.int32).tolist() == [1, 0, 0x3FE00000, 0, 0, 0x3FD00000]
    registers = {"EX_OUTPUT_CHANNELS": 2, "EX_INPUT_CHANNELS": 1, "EX_ROWS": 2}
    operands: list[NDArray[Any]] = [np.array([[4], [-6]], np.int8), np.array([[1, 1]], np.int8), packed]
    found = run("OP_MAT_MUL", registers, operands, ((2, 2), np.int8), {"requantise": 1}, arch)
    assert found.tolist() == [[3, 1], [-3, -2]]
    mixed = np.concatenate([packed[:12], np.array([0, 1 << 30, -1], "<i4").view(np.uint8)])
    found = run("OP_MAT_MUL", registers, [*operands[:2], mixed], ((2, 2), np.int8), {"requantise": 1}, arch)
    assert found.tolist() == [[3, 1], [-3, -2]]


FORMULAS = [
    # pe (ic, oc, ow), mnemonic, registers, cycles worked out by hand from design section 5
    ((64, 1, 1), "OP_CONV", {"INPUT_CHANNELS": 65, "OUTPUT_CHANNELS": 3, "OUTPUT_HEIGHT": 4, "OUTPUT_WIDTH": 5,
                             "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 2}, 2 * 3 * 4 * 5 * 6),
    ((1, 64, 1), "OP_CONV", {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 65, "OUTPUT_HEIGHT": 4, "OUTPUT_WIDTH": 5,
                             "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3}, 3 * 2 * 4 * 5 * 9),
    ((8, 4, 2), "OP_CONV", {"INPUT_CHANNELS": 9, "OUTPUT_CHANNELS": 9, "OUTPUT_HEIGHT": 7, "OUTPUT_WIDTH": 5},
     2 * 3 * 7 * 3),
    ((8, 4, 2), "OP_DEPTH_CONV", {"INPUT_CHANNELS": 33, "OUTPUT_CHANNELS": 33, "OUTPUT_HEIGHT": 7, "OUTPUT_WIDTH": 5,
                                  "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3}, 2 * 7 * 3 * 9),
    ((8, 4, 2), "OP_MAT_MUL", {"ROWS": 3, "INPUT_CHANNELS": 17, "OUTPUT_CHANNELS": 5}, 3 * 2 * 2),
    ((8, 4, 2), "OP_DYN_MAT_MUL", {"ROWS": 3, "INPUT_CHANNELS": 17, "OUTPUT_CHANNELS": 5}, 3 * 2 * 2),
    ((8, 4, 2), "OP_POOL", {"OUTPUT_CHANNELS": 33, "OUTPUT_HEIGHT": 7, "OUTPUT_WIDTH": 5, "KERNEL_HEIGHT": 2},
     2 * 7 * 3 * 2),
    ((8, 4, 2), "OP_E_ADD", {"LENGTH": 65}, 2),
    ((8, 4, 2), "OP_REQUANT", {"OUTPUT_CHANNELS": 5, "LENGTH": 13}, 2),
    ((8, 4, 2), "OP_E_MUL", {"OUTPUT_CHANNELS": 3, "LENGTH": 43}, 3),
    ((8, 4, 2), "OP_B_ADD", {"OUTPUT_CHANNELS": 64, "LENGTH": 1}, 1),
    ((8, 4, 2), "OP_LUT", {"LENGTH": 129}, 3),
    ((8, 4, 2), "OP_PERMUTE", {"COUNT_1": 129, "INPUT_STRIDE_1": 1, "OUTPUT_STRIDE_1": 1, "COUNT_3": 2}, 2 * 3),
    ((8, 4, 2), "OP_PERMUTE", {"COUNT_1": 17, "INPUT_STRIDE_1": 2, "OUTPUT_STRIDE_1": 1, "COUNT_2": 3, "COUNT_4": 5},
     3 * 5 * 2),
    ((1, 4, 2), "OP_PERMUTE", {"COUNT_1": 17, "INPUT_STRIDE_1": 0, "OUTPUT_STRIDE_1": 2}, 3),
    ((8, 4, 2), "OP_LUT", {"ROWS": 3, "OUTPUT_CHANNELS": 5, "LENGTH": 13}, 4),
    # 64 lanes: 5 rows of 70 elements are 350, six times the lanes; a lane a row sums 70 elements.
    ((8, 4, 2), "OP_REDUCE", {"ROWS": 5, "INPUT_CHANNELS": 70, "LENGTH": 1}, 6),
    ((8, 4, 2), "OP_SOFTMAX", {"ROWS": 5, "INPUT_CHANNELS": 70, "LENGTH": 1}, 6 + 70 + 6),
    ((8, 4, 2), "OP_NORM", {"ROWS": 5, "INPUT_CHANNELS": 70, "LENGTH": 1}, 6 + 6 + 5),
    # 3 planes of 5 by 7 are 105 elements, twice the lanes, four neighbours each.
    ((8, 4, 2), "OP_RESIZE", {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 3, "OUTPUT_HEIGHT": 5, "OUTPUT_WIDTH": 7}, 4 * 2),
    # 2 · 33 = 66 rows of 16 elements: 1056 elements, 17 times the lanes, and two rows a lane.
    ((8, 4, 2), "OP_REDUCE", {"ROWS": 2, "INPUT_CHANNELS": 16, "LENGTH": 33}, 17),
    ((8, 4, 2), "OP_SOFTMAX", {"ROWS": 2, "INPUT_CHANNELS": 16, "LENGTH": 33}, 17 + 2 * 16 + 17),
    ((8, 4, 2), "OP_NORM", {"ROWS": 2, "INPUT_CHANNELS": 16, "LENGTH": 33}, 17 + 17 + 2),
]  # fmt: skip


@pytest.mark.parametrize(("pe", "mnemonic", "registers", "cycles"), FORMULAS)
def test_cycle_formulas(pe: tuple[int, int, int], mnemonic: str, registers: dict[str, int], cycles: int) -> None:
    arch = Arch(pe=PeArray(ic=pe[0], oc=pe[1], ow=pe[2]))
    command = make_command(mnemonic, {f"EX_{name}": value for name, value in registers.items()})
    assert command.instruction.cycles(command, arch) == cycles


MAPPINGS = [
    # pe (ic, oc, ow), mnemonic, (G, IC, OC), (OH, OW), (KH, KW), cycles of mapping 0, 1, 2, 3 by hand
    # 3 channels on 16 lanes: 9 taps one by one; 27 products in two rounds; 5 blocks of 3 lanes, 2 of 8: 10 columns
    # at once; 2 columns of 27 products each.
    ((16, 16, 1), "OP_CONV", (1, 3, 8), (4, 20), (3, 3), (9 * 80, 2 * 80, 9 * 4 * 2, 2 * 4 * 10)),
    # Enough channels: nothing is idle, and 64 · 9 products divide as evenly.
    ((16, 16, 1), "OP_CONV", (1, 64, 64), (4, 20), (3, 3), (4 * 9 * 4 * 80, 36 * 4 * 80, 4 * 9 * 4 * 80, 36 * 4 * 80)),
    # 40 depthwise channels on 64 lanes: one by one; 9 taps in two rounds of 8 lanes, 8 channels at once: 5 rounds; with
    # 5 channels 12 columns at once, of which 10 are there, or 5 of their taps side by side.
    ((8, 8, 1), "OP_DEPTH_CONV", (40, 40, 40), (6, 10), (3, 3), (9 * 60, 5 * 2 * 60, 9 * 60, 5 * 2 * 60)),
    ((8, 8, 1), "OP_DEPTH_CONV", (5, 5, 5), (6, 10), (3, 3), (9 * 60, 2 * 60, 9 * 6, 2 * 60)),
    # 4 groups of 2 by 3 on 8 by 6 lanes, two output columns in parallel: 4 · 2 blocks, so 2 columns a group at once;
    # with both taps side by side 2 · 2 blocks, one a group, which sum 4 products at once.
    ((8, 6, 2), "OP_GROUP_CONV", (4, 8, 12), (3, 8), (1, 2), (2 * 3 * 4, 1 * 3 * 4, 2 * 3 * 2, 1 * 3 * 4)),
]  # fmt: skip


@pytest.mark.parametrize(("pe", "mnemonic", "channels", "output", "kernel", "cycles"), MAPPINGS)
def test_idle_lanes_save_the_cycles_of_their_formula(
    pe: tuple[int, int, int],
    mnemonic: str,
    channels: tuple[int, int, int],
    output: tuple[int, int],
    kernel: tuple[int, int],
    cycles: tuple[int, ...],
) -> None:
    arch = Arch(pe=PeArray(ic=pe[0], oc=pe[1], ow=pe[2]))
    registers = {"EX_INPUT_CHANNELS": channels[1], "EX_OUTPUT_CHANNELS": channels[2]}
    registers |= {"EX_OUTPUT_HEIGHT": output[0], "EX_OUTPUT_WIDTH": output[1]}
    registers |= {"EX_KERNEL_HEIGHT": kernel[0], "EX_KERNEL_WIDTH": kernel[1]}
    registers |= {"EX_GROUPS": channels[0]} if mnemonic == "OP_GROUP_CONV" else {}
    commands = [make_command(mnemonic, registers, {"mapping": mapping}) for mapping in range(4)]
    assert tuple(command.instruction.cycles(command, arch) for command in commands) == cycles


def test_adding_to_earlier_sums_takes_a_pass_of_the_post_lanes() -> None:
    registers = {"EX_OUTPUT_CHANNELS": 64, "EX_OUTPUT_HEIGHT": 10, "EX_OUTPUT_WIDTH": 10}
    for lanes, fields, cycles in ((4, {}, 800), (4, {"accumulate": 1}, 1600), (64, {"accumulate": 1}, 800)):
        command = make_command("OP_CONV", registers, fields)
        assert command.instruction.cycles(command, Arch(post_lanes=lanes)) == cycles


def test_fused_post_processing_costs_the_larger_of_the_two() -> None:
    registers = {"EX_OUTPUT_CHANNELS": 64, "EX_OUTPUT_HEIGHT": 10, "EX_OUTPUT_WIDTH": 10}
    arch = Arch(post_lanes=4)
    fused = make_command("OP_CONV", registers, {"requantise": 1})
    assert fused.instruction.cycles(fused, arch) == 6400 // 4
    wide = make_command("OP_CONV", registers)
    assert wide.instruction.cycles(wide, arch) == 8 * 100
    pool = {**registers, "EX_INPUT_CHANNELS": 64}
    for fields, cycles in (({}, 100), ({"look_up": 1}, 6400 // 4), ({"look_up": 2}, 6400 // 4)):
        command = make_command("OP_POOL", pool, fields)
        assert command.instruction.cycles(command, arch) == cycles
