"""Golden cases of large operands, which no tile of a compiled network reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.golden.case import GoldenCase
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE
from tests.golden_cases.level2 import NONE
from tests.golden_cases.machines import FIXED, TABLES, machine
from tests.golden_cases.operations import Convolution, Pooling, Window
from tests.golden_cases.tensor_operations import (
    Addition,
    DynamicProduct,
    LookUp,
    OnRows,
    Product,
    Repeating,
    Requantisation,
    Unary,
)


def large() -> Iterator[GoldenCase]:
    """Windows of many pixels and products, element-wise operations of many elements.

    The operands repeat.
    """
    yield from _large_windows()
    yield from _large_rows()
    yield from _large_look_ups()
    yield from _large_products()
    yield from _large_pairs()
    yield from _large_on_rows()


def pattern(*shape: int, period: int = 251) -> NDArray[np.int8]:
    """Values of int8 that repeat, so that they are stored in little space."""
    return np.resize((np.arange(period) * 37 % 256 - 128).astype(np.int8), shape)


def _large_windows() -> Iterator[GoldenCase]:
    arch = machine("v3", "onnxruntime", sram_bytes=1 << 20)
    convolutions = {
        "conv-many-pixels": Convolution(Window((3, 31, 33)), 8, zeros=(-9, 4)),
        "conv-many-products": Convolution(Window((256, 47, 24), stride=(2, 1)), 16, zeros=(7, 0)),
        "conv-stride-2": Convolution(Window((8, 47, 50), stride=(2, 2)), 6, zeros=(-128, 0)),
        "conv-stride-2-dilated": Convolution(
            Window((8, 48, 51), stride=(1, 2), dilation=(1, 3)), 6, zeros=(5, 0)
        ),
        "depth-few-pixels": Convolution(
            Window((20, 13, 14), stride=(3, 2), dilation=(2, 3)), 20, -1, zeros=(-9, 1)
        ),
        "depth-few-pixels-multiplied": Convolution(
            Window((17, 9, 9), (5, 3)), 34, -1, requantise=False
        ),
        "depth-many-pixels": Convolution(
            Window((18, 31, 30), stride=(1, 2), dilation=(3, 1)), 18, -1, zeros=(-9, 1)
        ),
        "depth-stride-2": Convolution(
            Window((9, 45, 44), stride=(2, 2)), 9, -1, relu=True, zeros=(99, -8)
        ),
        "depth-blocks": Convolution(Window((40, 100, 100)), 40, -1, zeros=(-3, 3)),
        "group-many": Convolution(Window((24, 20, 20), stride=(2, 1)), 18, 6, zeros=(3, -3)),
        "conv-many-sums": Convolution(Window((128, 31, 33)), 2, zeros=(-3, 5), accumulate=True),
    }
    for name, convolution in convolutions.items():
        window = convolution.window
        groups = convolution.groups
        depth = {0: window.shape[0], -1: 1}.get(groups) or window.shape[0] // groups
        weights = pattern(convolution.outputs, depth, *window.kernel, period=101)
        given = {**vars(convolution), "input": pattern(*window.shape), "weights": weights}
        own = arch.model_copy(update={"isa": "v4"}) if convolution.accumulate else arch
        yield Convolution(**given).case(f"L2/large-{name}", f"{convolution.mnemonic}, {name}", own)
    for name, pooling in {
        "max": Pooling(window=Window((9, 40, 41), (3, 3), (2, 2)), input=pattern(9, 40, 41)),
        "average": Pooling(AVERAGE, Window((9, 30, 31)), zeros=(3, -4), input=pattern(9, 30, 31)),
        "global": Pooling(
            GLOBAL_AVERAGE, Window((5, 40, 40), (40, 40), padding=NONE), input=pattern(5, 40, 40)
        ),
    }.items():
        yield pooling.case(f"L2/large-{name}", f"OP_POOL, {name} of many pixels", arch)


def _large_rows() -> Iterator[GoldenCase]:
    arch = machine("v3", "onnxruntime", sram_bytes=1 << 20)
    product = Product(
        (33, 1500, 40), zero=-2, left=pattern(33, 1500), right=pattern(1500, 40, period=97)
    )
    yield product.case("L2/large-matmul", "sums of 1500 products", arch)
    for shape in ((40, 8, 300), (1, 300, 300), (1, 2, 70000)):
        wide = pattern(*shape).astype(np.int32) * 1009
        requantisation = Requantisation(
            shape, 5, input=wide, scale=np.linspace(0.0005, 0.002, shape[1])
        )
        yield requantisation.case(
            f"L2/large-requant-{'-'.join(map(str, shape))}", "many elements", arch
        )
    for short, mnemonic in (
        ("relu", "OP_ACT_RELU"),
        ("leaky", "OP_ACT_LRELU"),
        ("abs", "OP_E_ABS"),
    ):
        for suffix, own in (("", arch), ("-fixed", FIXED)):
            unary = Unary(mnemonic, zeros=(-30, 8), input=pattern(1300))
            yield unary.case(f"L2/large-{short}{suffix}", f"{mnemonic} of many elements", own)
    pair = pattern(40000), pattern(40000, period=131)
    yield Addition(zeros=(9, -9, 1), pair=pair).case(
        "L2/large-add", "OP_E_ADD of many elements", arch
    )


def _large_products() -> Iterator[GoldenCase]:
    """Sums of more products than float32 adds exactly, and of the largest products there are."""
    for name, zeros in {"": (3, -4, -2), "-ends": (127, -128, 0)}.items():
        for transposed in (False, True):
            right = pattern(*((40, 700) if transposed else (700, 40)), period=97)
            product = DynamicProduct(
                (33, 700, 40), transposed, True, 1e-5, zeros, left=pattern(33, 700), right=right
            )
            place = f"L2/large-product{name}{'-transposed' if transposed else ''}"
            yield product.case(place, "OP_DYN_MAT_MUL, sums of 700 products", TABLES)
    left = np.full((2, 600), -128, np.int8)
    right = np.full((600, 3), 127, np.int8)
    largest = DynamicProduct(
        (2, 600, 3), requantise=False, zeros=(127, -128, 0), left=left, right=right
    )
    yield largest.case("L2/largest-products", "600 products of -255 and 255", TABLES)


def _large_pairs() -> Iterator[GoldenCase]:
    """Over the ends of the kernels' blocks."""
    shapes = {
        "rows": ((3, 20000), (0, 2)),
        "channels": ((700, 30), (0, 1)),
        "first": ((700, 30), (1, 0)),
    }
    for name, (shape, repeats) in shapes.items():
        sizes = [(1 if bits & 2 else shape[0], 1 if bits & 1 else shape[1]) for bits in repeats]
        pair = pattern(*sizes[0]), pattern(*sizes[1], period=241)
        for mnemonic in ("OP_E_MUL", "OP_E_SUB", "OP_E_DIV", "OP_B_ADD", "OP_B_MAX"):
            short = mnemonic.removeprefix("OP_").lower().replace("_", "-")
            made = Repeating(mnemonic, shape, repeats, zeros=(9, -9, 1), pair=pair)
            yield made.case(f"L2/large-{short}-{name}", f"{mnemonic} of many elements", TABLES)


def _large_look_ups() -> Iterator[GoldenCase]:
    tables = pattern(7, 256, period=249)
    for name, shape in {"": (1, 1, 40000), "-planes": (2, 7, 1300), "-matrix": (900, 7, 1)}.items():
        look_up = LookUp(shape, pattern(*shape), tables[: shape[1]])
        yield look_up.case(f"L2/large-lut{name}", "OP_LUT of many elements", TABLES)


def _large_on_rows() -> Iterator[GoldenCase]:
    soft: dict[str, Any] = {"scales": (0.02, 1 / 255), "zeros": (0, -128)}
    cases = {
        "mean": OnRows("OP_REDUCE", (90, 400, 1), input=pattern(90, 400)),
        "mean-strided": OnRows("OP_REDUCE", (1, 400, 90), input=pattern(400, 90)),
        "softmax": OnRows("OP_SOFTMAX", (128, 128, 1), input=pattern(128, 128), **soft),
        "softmax-strided": OnRows("OP_SOFTMAX", (2, 16, 500), input=pattern(32, 500), **soft),
        "layer-norm": OnRows("OP_NORM", (64, 256, 1), {"centred": 1}, input=pattern(64, 256)),
    }
    for name, on_rows in cases.items():
        yield on_rows.case(f"L2/large-{name}", f"{on_rows.mnemonic} of many elements", TABLES)
