"""Reference semantics of compute instructions equal hand values and ONNX Runtime to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from isa import numerics
from isa.arch import Arch
from isa.instruction import Machine
from isa.ops.requant import ChannelScales, pack_records
from tests.isa.bench import make_command, run
from tests.isa.onnx_results import BITS, onnx_result, records, scalar, zero

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
    xs = scalar(rng.uniform(0.01, 0.1))
    ys = scalar(rng.uniform(0.3, 2))
    ws = rng.uniform(0.001, 0.02, oc).astype(np.float32)
    zx = int(rng.integers(-128, 128))
    zy = int(rng.integers(-20, 20))
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
        "EX_OUTPUT_CHANNELS": oc, "EX_OUTPUT_HEIGHT": expected.shape[1],
        "EX_OUTPUT_WIDTH": expected.shape[2],
        "EX_KERNEL_HEIGHT": kh, "EX_KERNEL_WIDTH": kw, "EX_STRIDE_HEIGHT": strides[0],
        "EX_STRIDE_WIDTH": strides[1],
        "EX_DILATION_HEIGHT": dilations[0], "EX_DILATION_WIDTH": dilations[1],
        "EX_PAD_TOP": pads[0], "EX_PAD_LEFT": pads[1], "EX_INPUT_ZERO_POINT": zx,
        "EX_OUTPUT_ZERO_POINT": zy,
    }  # fmt: skip
    mnemonic = "OP_DEPTH_CONV" if groups > 1 else "OP_CONV"
    operands: list[NDArray[Any]] = [x, w, records(folded, scale)]
    found = run(mnemonic, registers, operands, (expected.shape, np.int8), {"requantise": 1})
    np.testing.assert_array_equal(found, expected)
    relu = run(
        mnemonic, registers, operands, (expected.shape, np.int8), {"requantise": 1, "relu": 1}
    )
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
    xs = scalar(0.04)
    ys = scalar(0.9)
    zx = -9
    zy = 4
    expected = onnx_result(
        "QLinearMatMul",
        {
            "a": a,
            "as": xs,
            "az": zero(zx),
            "b": b,
            "bs": bs,
            "bz": np.zeros(n, np.int8),
            "ys": ys,
            "yz": zero(zy),
        },
    )
    folded = (-zx * b.sum(axis=0, dtype=np.int64)).astype(np.int32)
    registers = {
        "EX_ROWS": m,
        "EX_INPUT_CHANNELS": k,
        "EX_OUTPUT_CHANNELS": n,
        "EX_OUTPUT_ZERO_POINT": zy,
    }
    operands: list[NDArray[Any]] = [a, b, records(folded, numerics.requantise_scale(xs, bs, ys))]
    np.testing.assert_array_equal(
        run("OP_MAT_MUL", registers, operands, ((m, n), np.int8), {"requantise": 1}), expected
    )
    wide = run("OP_MAT_MUL", registers, operands, ((m, n), np.int32))
    np.testing.assert_array_equal(wide, (a.astype(np.int64) - zx) @ b.astype(np.int64))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 7, 5), (4, 300, 3), (3, 1, 1)])
def test_product_of_two_activations_equals_onnx_runtime(m: int, k: int, n: int) -> None:
    """A product of two activations equals ONNX Runtime's QLinearMatMul.

    A script found 0 differences in 7,197,228 outputs: int8 and uint8, ties, and zero points and
    scales of the whole range.
    """
    rng = np.random.default_rng(m * 100 + k)
    a = rng.integers(-128, 128, (m, k), dtype=np.int8)
    b = rng.integers(-128, 128, (k, n), dtype=np.int8)
    xs = scalar(0.04)
    bs = scalar(0.03)
    ys = scalar(0.9)
    (zx, zb, zy) = (-128, 77, 4)
    expected = onnx_result(
        "QLinearMatMul",
        {
            "a": a,
            "as": xs,
            "az": zero(zx),
            "b": b,
            "bs": bs,
            "bz": zero(zb),
            "ys": ys,
            "yz": zero(zy),
        },
    )
    registers = {
        "EX_ROWS": m, "EX_INPUT_CHANNELS": k, "EX_OUTPUT_CHANNELS": n,
        "EX_INPUT_ZERO_POINT": zx, "EX_OPERAND_ZERO_POINT": zb, "EX_OUTPUT_ZERO_POINT": zy,
        "EX_SCALE_A": BITS(numerics.requantise_scale(xs, bs, ys)),
    }  # fmt: skip
    found = run("OP_DYN_MAT_MUL", registers, [a, b], ((m, n), np.int8), {"requantise": 1})
    np.testing.assert_array_equal(found, expected)
    turned = run(
        "OP_DYN_MAT_MUL", registers, [a, b.T], ((m, n), np.int8), {"requantise": 1, "transposed": 1}
    )
    np.testing.assert_array_equal(turned, expected)
    wide = run("OP_DYN_MAT_MUL", registers, [a, b], ((m, n), np.int32))
    np.testing.assert_array_equal(wide, (a.astype(np.int64) - zx) @ (b.astype(np.int64) - zb))


def test_product_of_two_activations_by_hand() -> None:
    """1·4 + 3·-2 and 1·0 + 3·6 less the zero points.

    Halved, moved by 1 and limited to 9 they are 0 and 9.
    """
    registers = {
        "EX_INPUT_CHANNELS": 2,
        "EX_OUTPUT_CHANNELS": 2,
        "EX_INPUT_ZERO_POINT": 1,
        "EX_OPERAND_ZERO_POINT": 2,
    }
    a = np.array([[2, 4]], np.int8)
    b = np.array([[6, 2], [0, 8]], np.int8)
    assert run("OP_DYN_MAT_MUL", registers, [a, b], ((1, 2), np.int32)).tolist() == [[-2, 18]]
    half = {"EX_SCALE_A": 1 << 30, "EX_OUTPUT_ZERO_POINT": 1, "EX_CLAMP_HIGH": 9}
    fixed = Arch(numerics="fixed")
    found = run(
        "OP_DYN_MAT_MUL", registers | half, [a, b], ((1, 2), np.int8), {"requantise": 1}, fixed
    )
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
    attributes = {
        "kernel_shape": (3, 2),
        "strides": (2, 2),
        "pads": (1, 0, 1, 1),
        "ceil_mode": ceil_mode,
    }
    expected = onnx_result("MaxPool", {"x": x}, **attributes)[0]
    registers = pool_registers(
        x.shape[1:], expected.shape, (3, 2), STRIDE_HEIGHT=2, STRIDE_WIDTH=2, PAD_TOP=1
    )
    np.testing.assert_array_equal(
        run("OP_POOL", registers, [x], (expected.shape, np.int8)), expected
    )


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("unsigned", [False, True])
def test_average_pooling_equals_onnx_runtime(include: int, unsigned: bool) -> None:
    rng = np.random.default_rng(2 + include)
    offset, dtype = (128, np.uint8) if unsigned else (0, np.int8)
    stored = rng.integers(-128, 128, (1, 3, 7, 9), dtype=np.int8)
    x = (stored.astype(np.int64) + offset).astype(dtype)
    zx = 5 + offset
    zy = offset - 3
    xs = 0.03125
    ys = 0.0625
    attributes = {
        "kernel_shape": (3, 3),
        "strides": (2, 1),
        "pads": (1, 1, 1, 1),
        "count_include_pad": include,
    }
    expected = onnx_result(
        "QLinearAveragePool",
        {
            "x": x,
            "xs": scalar(xs),
            "xz": np.array(zx, dtype),
            "ys": scalar(ys),
            "yz": np.array(zy, dtype),
        },
        "com.microsoft",
        **attributes,
    )[0]
    registers = pool_registers(
        x.shape[1:], expected.shape, (3, 3), STRIDE_HEIGHT=2, PAD_TOP=1, PAD_LEFT=1,
        INPUT_ZERO_POINT=zx,
        OUTPUT_ZERO_POINT=zy, OFFSET=offset, SCALE_A=BITS(xs), SCALE_Y=BITS(ys),
    )  # fmt: skip
    fields = {"mode": 1, "count_include_pad": include}
    found = run("OP_POOL", registers, [stored], (expected.shape, np.int8), fields)
    np.testing.assert_array_equal(found.astype(np.int64) + offset, expected)


def test_global_average_equals_onnx_runtime() -> None:
    x = np.random.default_rng(4).integers(-128, 128, (1, 6, 7, 5), dtype=np.int8)
    zx = -11
    zy = 7
    xs = scalar(0.031)
    ys = scalar(0.027)
    inputs = {"x": x, "xs": xs, "xz": zero(zx), "ys": ys, "yz": zero(zy)}
    expected = onnx_result("QLinearGlobalAveragePool", inputs, "com.microsoft", channels_last=0)[0]
    factor = BITS(numerics.global_average_scale(xs, ys, 35))
    registers = pool_registers(
        x.shape[1:],
        expected.shape,
        (7, 5),
        INPUT_ZERO_POINT=zx,
        OUTPUT_ZERO_POINT=zy,
        SCALE_A=factor,
    )
    np.testing.assert_array_equal(
        run("OP_POOL", registers, [x], (expected.shape, np.int8), {"mode": 2}), expected
    )


@pytest.mark.parametrize("requantise", [0, 1])
def test_sums_of_some_input_channels_add_up_to_those_of_all(requantise: int) -> None:
    """A convolution and a product in three commands, the middle ones in int32.

    Only the first begins with the bias.
    """
    rng = np.random.default_rng(6)
    channels = rng.integers(-9, 9, (3, 2), np.int32)
    channels[:, 1] = np.array([0.01, 0.02, 0.03], np.float32).view(np.int32)
    planes = rng.integers(-99, 99, (7, 4, 5), np.int8)
    filters = rng.integers(-99, 99, (3, 7, 2, 2), np.int8)
    window = {"INPUT_HEIGHT": 4, "INPUT_WIDTH": 5, "OUTPUT_HEIGHT": 3, "OUTPUT_WIDTH": 4}
    window |= {"KERNEL_HEIGHT": 2, "KERNEL_WIDTH": 2}
    rows = rng.integers(-99, 99, (6, 7), np.int8)
    matrix = rng.integers(-99, 99, (7, 3), np.int8)
    for mnemonic, places, shape in (
        ("OP_CONV", window, (3, 3, 4)),
        ("OP_MAT_MUL", {"ROWS": 6}, (6, 3)),
    ):
        registers = {
            f"EX_{name}": value for name, value in (places | {"OUTPUT_CHANNELS": 3}).items()
        }
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
    a = np.array([2**31 - 2, -5, 7], np.int32)
    b = np.array([1, 5, -9], np.int32)
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
    registers = {
        "EX_CHANNEL_ADDRESS": 64,
        "EX_LENGTH": 4,
        "EX_OUTPUT_ZERO_POINT": 1,
        "EX_OUTPUT_CHANNELS": 1,
    }
    command = make_command("OP_REQUANT", registers)
    command.instruction.semantics(command, machine)
    # -150+1 saturates; -0.5 and 0.5 round to 0
    assert machine.sram[:4].view(np.int8).tolist() == [-128, 1, 1, 127]


def test_fixed_numerics_by_hand() -> None:
    """Scale 0.5 is the multiplier 2**30 with shift 0, and ties round upwards.

    5 → 2.5 rounds away to 3, -5 → -2.5 to -2 (TensorFlow Lite).
    """
    arch = Arch(numerics="fixed")
    packed = records(np.array([1], np.int32), np.array([0.5], np.float32), arch)
    assert packed.view(np.int32).tolist() == [1, 1 << 30, 0]
    registers = {"EX_OUTPUT_CHANNELS": 1, "EX_INPUT_CHANNELS": 1, "EX_ROWS": 2}
    x = np.array([[4], [-6]], np.int8)
    operands: list[NDArray[Any]] = [x, np.array([[1]], np.int8), packed]
    found = run("OP_MAT_MUL", registers, operands, ((2, 1), np.int8), {"requantise": 1}, arch)
    assert found.reshape(-1).tolist() == [3, -2]


def test_records_with_a_factor_round_once() -> None:
    """Records with a float64 factor round once: 5 · 0.5 and -5 · 0.5 round away from zero.

    The halves of the factor take the words of multiplier and shift.
    """
    arch = Arch(numerics="fixed")
    scales = ChannelScales(np.ones(2, np.float32), np.array([0.5, 0.25]), once=True)
    packed = np.frombuffer(pack_records(np.array([1, 0], np.int32), scales, arch), np.uint8)
    assert packed.view(np.int32).tolist() == [1, 0, 0x3FE00000, 0, 0, 0x3FD00000]
    registers = {"EX_OUTPUT_CHANNELS": 2, "EX_INPUT_CHANNELS": 1, "EX_ROWS": 2}
    operands: list[NDArray[Any]] = [
        np.array([[4], [-6]], np.int8),
        np.array([[1, 1]], np.int8),
        packed,
    ]
    found = run("OP_MAT_MUL", registers, operands, ((2, 2), np.int8), {"requantise": 1}, arch)
    assert found.tolist() == [[3, 1], [-3, -2]]
    mixed = np.concatenate([packed[:12], np.array([0, 1 << 30, -1], "<i4").view(np.uint8)])
    found = run(
        "OP_MAT_MUL", registers, [*operands[:2], mixed], ((2, 2), np.int8), {"requantise": 1}, arch
    )
    assert found.tolist() == [[3, 1], [-3, -2]]
