"""Level 2, large operands: sizes at which an implementation that works in blocks takes another way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from experiments.golden.case import Case
from experiments.golden.catalogue.machines import FIXED, machine
from experiments.golden.catalogue.operations import (
    Addition,
    Convolution,
    Pooling,
    Product,
    Requantisation,
    Unary,
    Window,
)
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE

NONE = (0, 0, 0, 0)


def cases() -> Iterator[Case]:
    """Windows of many pixels and products, element-wise operations of many elements; the operands repeat."""
    yield from _windows()
    yield from _rows()


def pattern(*shape: int, period: int = 251) -> NDArray[np.int8]:
    """Values of int8 that repeat, so that they are stored in little space."""
    return np.resize((np.arange(period) * 37 % 256 - 128).astype(np.int8), shape)


def _windows() -> Iterator[Case]:
    arch = machine("v3", "onnxruntime", sram_bytes=1 << 20)
    convolutions = {
        "conv-many-pixels": Convolution(Window((3, 31, 33)), 8, zeros=(-9, 4)),
        "conv-many-products": Convolution(Window((256, 47, 24), stride=(2, 1)), 16, zeros=(7, 0)),
        "conv-stride-2": Convolution(Window((8, 47, 50), stride=(2, 2)), 6, zeros=(-128, 0)),
        "conv-stride-2-dilated": Convolution(Window((8, 48, 51), stride=(1, 2), dilation=(1, 3)), 6, zeros=(5, 0)),
        "depth-few-pixels": Convolution(Window((20, 13, 14), stride=(3, 2), dilation=(2, 3)), 20, -1, zeros=(-9, 1)),
        "depth-few-pixels-multiplied": Convolution(Window((17, 9, 9), (5, 3)), 34, -1, requantise=False),
        "depth-many-pixels": Convolution(Window((18, 31, 30), stride=(1, 2), dilation=(3, 1)), 18, -1, zeros=(-9, 1)),
        "depth-stride-2": Convolution(Window((9, 45, 44), stride=(2, 2)), 9, -1, relu=True, zeros=(99, -8)),
        "depth-blocks": Convolution(Window((40, 100, 100)), 40, -1, zeros=(-3, 3)),
        "group-many": Convolution(Window((24, 20, 20), stride=(2, 1)), 18, 6, zeros=(3, -3)),
    }
    for name, convolution in convolutions.items():
        window, groups = convolution.window, convolution.groups
        depth = {0: window.shape[0], -1: 1}.get(groups) or window.shape[0] // groups
        weights = pattern(convolution.outputs, depth, *window.kernel, period=101)
        given = {**vars(convolution), "input": pattern(*window.shape), "weights": weights}
        yield Convolution(**given).case(f"L2/large-{name}", f"{convolution.mnemonic}, {name}", arch)
    for name, pooling in {
        "max": Pooling(window=Window((9, 40, 41), (3, 3), (2, 2)), input=pattern(9, 40, 41)),
        "average": Pooling(AVERAGE, Window((9, 30, 31)), zeros=(3, -4), input=pattern(9, 30, 31)),
        "global": Pooling(GLOBAL_AVERAGE, Window((5, 40, 40), (40, 40), padding=NONE), input=pattern(5, 40, 40)),
    }.items():
        yield pooling.case(f"L2/large-{name}", f"OP_POOL, {name} of many pixels", arch)


def _rows() -> Iterator[Case]:
    arch = machine("v3", "onnxruntime", sram_bytes=1 << 20)
    product = Product((33, 1500, 40), zero=-2, left=pattern(33, 1500), right=pattern(1500, 40, period=97))
    yield product.case("L2/large-matmul", "sums of 1500 products", arch)
    for shape in ((40, 8, 300), (1, 300, 300), (1, 2, 70000)):
        wide = pattern(*shape).astype(np.int32) * 1009
        requantisation = Requantisation(shape, 5, input=wide, scale=np.linspace(0.0005, 0.002, shape[1]))
        yield requantisation.case(f"L2/large-requant-{'-'.join(map(str, shape))}", "many elements", arch)
    for short, mnemonic in (("relu", "OP_ACT_RELU"), ("leaky", "OP_ACT_LRELU"), ("abs", "OP_E_ABS")):
        for suffix, own in (("", arch), ("-fixed", FIXED)):
            unary = Unary(mnemonic, zeros=(-30, 8), input=pattern(1300))
            yield unary.case(f"L2/large-{short}{suffix}", f"{mnemonic} of many elements", own)
    pair = pattern(40000), pattern(40000, period=131)
    yield Addition(zeros=(9, -9, 1), pair=pair).case("L2/large-add", "OP_E_ADD of many elements", arch)
