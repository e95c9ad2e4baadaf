"""Element-wise instructions, look-ups and permutations equal ONNX Runtime or hand calculations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from isa import numerics
from isa.arch import Arch
from isa.errors import InputError
from tests.isa.bench import run
from tests.isa.onnx_results import BITS, onnx_result, scalar, zero


@pytest.mark.parametrize("unsigned", [False, True])
def test_addition_equals_onnx_runtime(unsigned: bool) -> None:
    rng = np.random.default_rng(5)
    offset, dtype = (128, np.uint8) if unsigned else (0, np.int8)
    a, b = rng.integers(-128, 128, (2, 4096), dtype=np.int8)
    quantised = [(stored.astype(np.int64) + offset).astype(dtype) for stored in (a, b)]
    scales = (0.02, 0.03, 0.05)
    zeros = (offset + 3, offset - 7, offset + 1)
    inputs = {"a": quantised[0], "as": scalar(scales[0]), "az": np.array(zeros[0], dtype)}
    inputs |= {"b": quantised[1], "bs": scalar(scales[1]), "bz": np.array(zeros[1], dtype)}
    inputs |= {"ys": scalar(scales[2]), "yz": np.array(zeros[2], dtype)}
    expected = onnx_result("QLinearAdd", inputs, "com.microsoft")
    constants = numerics.add_constants(
        scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2]
    )
    registers = {
        f"EX_SCALE_{name}": BITS(value) for name, value in zip("ABY", constants, strict=True)
    }
    registers |= {"EX_LENGTH": a.size, "EX_OFFSET": offset}
    found = run("OP_E_ADD", registers, [a, b], (a.shape, np.int8))
    np.testing.assert_array_equal(found.astype(np.int64) + offset, expected)


EVERY = np.arange(-128, 128, dtype=np.int8)


def test_unary_functions_by_hand() -> None:
    """Unary functions with equal scales and zero point 10 equal values by hand.

    The value is x - 10, so -20 is -30: ReLU gives 0, leaky ReLU by 0.5 gives -15.
    """
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
    np.testing.assert_array_equal(
        run("OP_ACT_LRELU", registers, [EVERY], ((256,), np.int8)), expected
    )


def test_minimum_and_maximum() -> None:
    a = EVERY
    b = EVERY[::-1].copy()
    registers = {"EX_LENGTH": 256}
    np.testing.assert_array_equal(
        run("OP_C_MIN", registers, [a, b], ((256,), np.int8)), np.minimum(a, b)
    )
    np.testing.assert_array_equal(
        run("OP_C_MAX", registers, [a, b], ((256,), np.int8)), np.maximum(a, b)
    )


def test_a_table_has_the_results_in_the_order_of_the_bytes() -> None:
    """The table of a function of every value, beginning with that of 0.

    One for all, or one a channel.
    """
    table = (EVERY.view(np.uint8).astype(np.int64) * 7 + 3).astype(np.int8)
    order = np.arange(256, dtype=np.uint8).view(np.int8)
    assert order[[0, 127, 128, 255]].tolist() == [0, 127, -128, -1]
    own = np.stack([np.roll(order, 11), ~order, table])
    found = run("OP_LUT", {"EX_LENGTH": 256}, [EVERY, ~order], ((256,), np.int8))
    assert found.tolist() == [-1 - value for value in EVERY.tolist()]
    planes = np.stack([EVERY, EVERY[::-1], np.roll(EVERY, 5)])
    expected = [
        [int(own[channel][value % 256]) for value in row]
        for channel, row in enumerate(planes.tolist())
    ]
    registers = {"EX_OUTPUT_CHANNELS": 3, "EX_LENGTH": 256}
    assert run("OP_LUT", registers, [planes, own], ((3, 256), np.int8)).tolist() == expected
    registers = {"EX_ROWS": 256, "EX_OUTPUT_CHANNELS": 3, "EX_LENGTH": 1}
    matrix = np.ascontiguousarray(planes.T)
    assert run("OP_LUT", registers, [matrix, own], ((256, 3), np.int8)).T.tolist() == expected


def test_a_permutation_copies_in_four_dimensions() -> None:
    """Depth to space in blocks of 2 x 2, by NumPy's own transpose.

    A fill that leaves what lies between.
    """
    x = np.arange(2 * 2 * 3 * 4 * 5, dtype=np.uint8).view(np.int8).reshape(2, 2, 3, 4, 5)
    expected = x[1].transpose(1, 2, 3, 0).reshape(3, 4, 10)
    registers = {f"EX_COUNT_{n}": count for n, count in enumerate((2, 5, 4, 3), start=1)}
    registers |= {
        f"EX_INPUT_STRIDE_{n}": stride for n, stride in enumerate((60, 1, 5, 20), start=1)
    }
    registers |= {
        f"EX_OUTPUT_STRIDE_{n}": stride for n, stride in enumerate((1, 2, 10, 40), start=1)
    }
    np.testing.assert_array_equal(
        run("OP_PERMUTE", registers, [x[1]], ((3, 4, 10), np.int8)), expected
    )
    filled = {"EX_COUNT_1": 9, "EX_OUTPUT_STRIDE_1": 1, "EX_INPUT_ZERO_POINT": -3}
    assert run("OP_PERMUTE", filled, [], ((9,), np.int8), {"fill": 1}).tolist() == [-3] * 9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("offset", [0, 128])
@pytest.mark.parametrize("repeat", range(4))
def test_products_equal_onnx_runtime(repeat: int, offset: int, seed: int) -> None:
    """QLinearMul of dense tensors, a value a channel, a row or one value.

    Half of the seeds are full of ties.
    """
    rng = np.random.default_rng(100 * repeat + 10 * seed + offset)
    shape = 1 if repeat & 2 else 9, 1 if repeat & 1 else 300
    a = rng.integers(-128, 128, (9, 300), dtype=np.int8)
    b = rng.integers(-128, 128, shape, dtype=np.int8)
    scales = rng.uniform(0.01, 0.2, 3).astype(np.float32)
    scales[2] = (
        scales[0] * scales[1] * np.float32(rng.integers(2, 40) if seed % 2 else rng.uniform(5, 60))
    )
    zeros = rng.integers(-128, 128, 3)
    dtype = np.int8 if offset == 0 else np.uint8
    inputs: dict[str, NDArray[Any]] = {}
    for name, data, scale, zero_point in zip("ab", (a, b), scales, zeros, strict=False):
        inputs |= {
            name: (data.astype(np.int64) + offset).astype(dtype),
            f"{name}s": np.asarray(scale),
        }
        inputs[f"{name}z"] = np.asarray(zero_point + offset, dtype)
    inputs |= {"ys": np.asarray(scales[2]), "yz": np.asarray(zeros[2] + offset, dtype)}
    expected = onnx_result("QLinearMul", inputs, "com.microsoft").astype(np.int64) - offset
    registers = {"EX_OUTPUT_CHANNELS": 9, "EX_LENGTH": 300, "EX_OFFSET": offset}
    registers |= {"EX_INPUT_ZERO_POINT": int(zeros[0]), "EX_OPERAND_ZERO_POINT": int(zeros[1])}
    registers |= {"EX_OUTPUT_ZERO_POINT": int(zeros[2]) + offset}
    registers["EX_SCALE_A"] = BITS(float(np.float32(scales[0] * scales[1]) / scales[2]))
    found = run(
        "OP_E_MUL", registers, [a, b], ((9, 300), np.int8), {"repeat_a": 0, "repeat_b": repeat}
    )
    np.testing.assert_array_equal(found, expected)


def test_differences_by_hand() -> None:
    """Differences equal values by hand: 11 and 4 give (6 - 0.5) / 0.5 + 3 = 14.

    The difference is (x + 1) · 0.5 less (b - 2) · 0.25 by 0.5, with zero point 3.
    """
    registers = {
        "EX_OUTPUT_CHANNELS": 2,
        "EX_LENGTH": 3,
        "EX_INPUT_ZERO_POINT": -1,
        "EX_OPERAND_ZERO_POINT": 2,
    }
    registers |= {"EX_OUTPUT_ZERO_POINT": 3, "EX_CLAMP_HIGH": 100}
    registers |= {
        f"EX_SCALE_{name}": BITS(scale) for name, scale in zip("ABY", (0.5, 0.25, 0.5), strict=True)
    }
    x = np.array([[11, -1, 0], [127, 5, -128]], np.int8)
    b = np.array([4, 3], np.int8)
    found = run("OP_E_SUB", registers, [x, b], ((2, 3), np.int8), {"repeat_a": 0, "repeat_b": 1})
    assert found.tolist() == [[14, 2, 3], [100, 9, -125]]  # 5.5 is rounded to 6, -127.5 to -128
    turned = run("OP_E_SUB", registers, [b, x], ((2, 3), np.int8), {"repeat_a": 1, "repeat_b": 0})
    assert turned.tolist() == [[3, 9, 9], [-55, 5, 72]]


def test_quotients_by_hand() -> None:
    """Quotients equal values by hand: 11 and 4 give 6 / 0.5 / 0.5 + 3 = 27.

    The quotient is (x + 1) · 0.5 by (b - 2) · 0.25 by 0.5, with zero point 3. A division by 0 gives
    the limit of the dividend's sign, 0 by 0 the lower one.
    """
    registers = {
        "EX_OUTPUT_CHANNELS": 2,
        "EX_LENGTH": 4,
        "EX_INPUT_ZERO_POINT": -1,
        "EX_OPERAND_ZERO_POINT": 2,
    }
    registers |= {"EX_OUTPUT_ZERO_POINT": 3, "EX_CLAMP_HIGH": 100, "EX_CLAMP_LOW": -90}
    registers |= {
        f"EX_SCALE_{name}": BITS(scale) for name, scale in zip("ABY", (0.5, 0.25, 0.5), strict=True)
    }
    x = np.array([[11, -1, 0, -8], [11, -1, 0, -8]], np.int8)
    b = np.array([4, 2], np.int8)
    found = run("OP_E_DIV", registers, [x, b], ((2, 4), np.int8), {"repeat_a": 0, "repeat_b": 1})
    assert found.tolist() == [[27, 3, 5, -11], [100, -90, 100, -90]]
    whole = registers | {"EX_SCALE_A": 1 << 30, "EX_SHIFT_A": -17}
    fixed = run(
        "OP_E_DIV",
        whole,
        [x, b],
        ((2, 4), np.int8),
        {"repeat_a": 0, "repeat_b": 1},
        Arch(numerics="fixed"),
    )
    assert fixed.tolist() == found.tolist()


def test_sums_and_comparisons_of_tensors_that_repeat() -> None:
    """Sums and comparisons of repeated tensors equal those of dense tensors.

    Every channel is combined with one value, and one row with every channel.
    """
    rng = np.random.default_rng(2)
    a, b, row = (
        rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((5, 1), (5, 40), (1, 40))
    )
    scaling = {
        f"EX_SCALE_{name}": BITS(scale) for name, scale in zip("ABY", (0.7, 0.9, -3.0), strict=True)
    }
    shape = {"EX_OUTPUT_CHANNELS": 5, "EX_LENGTH": 40}
    for first, second, repeats in (
        (a, b, (1, 0)),
        (b, a, (0, 1)),
        (a, row, (1, 2)),
        (b, row, (0, 2)),
    ):
        fields = dict(zip(("repeat_a", "repeat_b"), repeats, strict=True))
        dense = [np.broadcast_to(operand, (5, 40)).copy() for operand in (first, second)]
        expected = run("OP_E_ADD", scaling | {"EX_LENGTH": 200}, dense, ((5, 40), np.int8))
        found = run("OP_B_ADD", scaling | shape, [first, second], ((5, 40), np.int8), fields)
        np.testing.assert_array_equal(found, expected)
        for maximum, function in ((0, np.minimum), (1, np.maximum)):
            found = run(
                "OP_B_MIN",
                shape,
                [first, second],
                ((5, 40), np.int8),
                fields | {"maximum": maximum},
            )
            np.testing.assert_array_equal(found, function(first, second))


@pytest.mark.parametrize(
    ("mnemonic", "fields", "places", "shape"),
    [
        (
            "OP_CONV",
            {"requantise": 1},
            {"OUTPUT_CHANNELS": 3, "INPUT_WIDTH": 7, "OUTPUT_WIDTH": 7},
            (3, 7),
        ),
        (
            "OP_DEPTH_CONV",
            {"requantise": 1},
            {"OUTPUT_CHANNELS": 3, "INPUT_WIDTH": 7, "OUTPUT_WIDTH": 7},
            (3, 7),
        ),
        (
            "OP_GROUP_CONV",
            {"requantise": 1},
            {"OUTPUT_CHANNELS": 3, "INPUT_WIDTH": 7, "OUTPUT_WIDTH": 7},
            (3, 7),
        ),
        ("OP_MAT_MUL", {"requantise": 1}, {"OUTPUT_CHANNELS": 3, "ROWS": 7}, (7, 3)),
        ("OP_REQUANT", {}, {"OUTPUT_CHANNELS": 3, "LENGTH": 7}, (3, 7)),
        (
            "OP_POOL",
            {},
            {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 3, "INPUT_WIDTH": 7, "OUTPUT_WIDTH": 7},
            (3, 7),
        ),
        ("OP_E_ADD", {}, {"LENGTH": 21, "SCALE_A": 0x3F800000}, (3, 7)),
    ],
)
def test_results_are_looked_up_last(
    mnemonic: str, fields: dict[str, int], places: dict[str, int], shape: tuple[int, int]
) -> None:
    """The result with a table is the table of the result without: one for all, or one a channel.

    Int8 only.
    """
    rng = np.random.default_rng(5)
    data = rng.integers(-99, 99, 84, np.int8)
    weights = rng.integers(-99, 99, 84, np.int8)
    records = rng.integers(-9, 9, (3, 2), np.int32)
    records[:, 1] = np.array([0.1, 0.2, 0.3], np.float32).view(np.int32)
    tables = rng.integers(-128, 128, (3, 256), np.int8)
    registers = {f"EX_{name}": value for name, value in places.items()}
    operands = [data, weights, records, tables]
    result = shape, np.int8
    plain = run(mnemonic, registers, operands, result, fields).astype(np.int64)
    one = run(mnemonic, registers, operands, result, {**fields, "look_up": 1})
    assert one.tolist() == [[int(tables[0, value % 256]) for value in row] for row in plain]
    channel = np.broadcast_to([0, 1, 2] if shape == (7, 3) else [[0], [1], [2]], shape) * (
        mnemonic != "OP_E_ADD"
    )
    own = run(mnemonic, registers, operands, result, {**fields, "look_up": 2})
    assert own.tolist() == tables[channel, plain % 256].tolist()
    if fields:
        with pytest.raises(
            InputError, match=f"{mnemonic}: only int8 is looked up; set requantise to 1"
        ):
            run(mnemonic, registers, operands, (shape, np.int32), {"look_up": 1})
