"""Level 1, instructions: the shapes that networks have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from experiments.golden.case import Case
from experiments.golden.catalogue.machines import ARRAYS, BALANCED, FIXED, GROUPED, TIMINGS, machine
from experiments.golden.catalogue.operations import (
    Addition,
    Convolution,
    Pooling,
    Product,
    Requantisation,
    Unary,
    Window,
    generator,
    int8,
    pair_case,
    shift_case,
)
from isa.arch import Arch
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE

NONE = (0, 0, 0, 0)
CONVOLUTIONS: Mapping[str, Convolution] = {
    "conv-1x1": Convolution(Window((16, 4, 4), (1, 1), padding=NONE), 16, zeros=(0, -3)),
    "conv-3x3": Convolution(Window((4, 6, 7)), 8, zeros=(-5, 7)),
    "conv-3x3-relu": Convolution(Window((4, 6, 6)), 8, relu=True, zeros=(3, -128)),
    "conv-3x3-accumulators": Convolution(Window((4, 6, 6)), 8, requantise=False, zeros=(9, 0)),
    "conv-3x3-stride-2": Convolution(Window((4, 9, 8), stride=(2, 2)), 8, zeros=(-128, 0)),
    "conv-3x3-dilation-2": Convolution(Window((3, 9, 9), dilation=(2, 2), padding=(2, 2, 2, 2)), 4),
    "conv-5x5": Convolution(Window((3, 8, 8), (5, 5), padding=(2, 2, 2, 2)), 4, zeros=(1, 1)),
    "conv-7x7-stride-2": Convolution(Window((3, 14, 14), (7, 7), (2, 2), padding=(3, 3, 2, 2)), 8, zeros=(-14, -128)),
    "conv-1x7": Convolution(Window((4, 5, 9), (1, 7), padding=(0, 3, 0, 3)), 4),
    "conv-relu6": Convolution(Window((8, 5, 5)), 8, zeros=(-128, -100), limits=(-100, 20)),
}
SEPARATE: Mapping[str, Convolution] = {
    "depth-3x3": Convolution(Window((16, 6, 6)), 16, -1, zeros=(-8, 2)),
    "depth-3x3-stride-2": Convolution(Window((16, 9, 9), stride=(2, 2), padding=(0, 0, 1, 1)), 16, -1, zeros=(4, 4)),
    "depth-5x5-relu": Convolution(Window((8, 8, 8), (5, 5), padding=(2, 2, 2, 2)), 8, -1, relu=True, zeros=(0, -20)),
    "depth-multiplier-2": Convolution(Window((6, 5, 5)), 12, -1),
    "depth-accumulators": Convolution(Window((8, 4, 4)), 8, -1, requantise=False, zeros=(-3, 0)),
}
GROUPS: Mapping[str, Convolution] = {
    "group-2": Convolution(Window((8, 5, 5)), 8, 2, zeros=(-4, 6)),
    "group-4-1x1": Convolution(Window((16, 4, 4), (1, 1), padding=NONE), 32, 4),
    "group-all": Convolution(Window((12, 5, 5), stride=(2, 2)), 12, 12, relu=True, zeros=(2, -9)),
    "group-1-accumulators": Convolution(Window((6, 4, 4)), 10, 1, requantise=False),
}
POOLS: Mapping[str, Pooling] = {
    "max-2x2": Pooling(),
    "max-3x3-stride-2-padded": Pooling(window=Window((8, 7, 7), (3, 3), (2, 2))),
    "average-2x2": Pooling(AVERAGE, zeros=(-7, -7)),
    "average-3x3-padded": Pooling(AVERAGE, Window((4, 6, 6)), (0.05, 0.04), (12, -3)),
    "average-3x3-padded-all-taps": Pooling(AVERAGE, Window((4, 6, 6)), (0.05, 0.04), (12, -3), count_include_pad=True),
    "average-3x3-uint8": Pooling(AVERAGE, Window((4, 6, 6)), (0.05, 0.06), (131, 120), offset=128),
    "global-average-7x7": Pooling(GLOBAL_AVERAGE, Window((16, 7, 7), (7, 7), padding=NONE), (0.04, 0.02), (-9, 5)),
}
PRODUCTS: Mapping[str, Product] = {
    "matmul-vector": Product((1, 64, 10), zero=5),
    "matmul-matrix": Product((6, 24, 12), zero=-9),
    "matmul-relu": Product((5, 16, 8), relu=True, zero=-40),
    "matmul-accumulators": Product((3, 20, 7), requantise=False),
}


def cases() -> Iterator[Case]:
    """All instructions on both numerics; convolutions, pools and products on every array and timing too."""
    yield from _windows("", BALANCED, GROUPED)
    yield from _windows("-fixed", FIXED, machine("v3", "fixed"))
    for suffix, arch in (("", BALANCED), ("-fixed", FIXED)):
        yield from _elementwise(suffix, arch)
    yield from _machines()


def _windows(suffix: str, arch: Arch, grouped: Arch) -> Iterator[Case]:
    for name, convolution in {**CONVOLUTIONS, **SEPARATE}.items():
        yield convolution.case(f"L1/{name}{suffix}", f"{convolution.mnemonic}, {name}", arch)
    for name, convolution in GROUPS.items():
        yield convolution.case(f"L1/{name}{suffix}", f"{convolution.mnemonic}, {name}", grouped)
    for name, pooling in POOLS.items():
        yield pooling.case(f"L1/{name}{suffix}", f"OP_POOL, {name}", arch)
    for name, product in PRODUCTS.items():
        yield product.case(f"L1/{name}{suffix}", f"OP_MAT_MUL, {name}", arch)


def _elementwise(suffix: str, arch: Arch) -> Iterator[Case]:
    shapes = {"requant-planes": (1, 6, 20), "requant-matrix": (5, 8, 1)}
    for name, shape in shapes.items():
        yield Requantisation(shape, zero=-4).case(f"L1/{name}{suffix}", f"OP_REQUANT of {shape}", arch)
    for short, mnemonic in (("relu", "OP_ACT_RELU"), ("leaky", "OP_ACT_LRELU"), ("abs", "OP_E_ABS")):
        unary = Unary(mnemonic, 100, zeros=(10, -20))
        yield unary.case(f"L1/{short}{suffix}", f"{mnemonic} between two quantisations", arch)
    for short, mnemonic in (("min", "OP_C_MIN"), ("max", "OP_C_MAX")):
        rng = generator(f"L1/{short}")
        pair = int8(rng, 100), int8(rng, 100)
        yield pair_case(f"L1/{short}{suffix}", f"{mnemonic} of random values", arch, mnemonic, pair)
    yield Addition(100, zeros=(4, -7, 3)).case(f"L1/add{suffix}", "OP_E_ADD of int8 tensors", arch)
    yield Addition(100, zeros=(120, 131, 99), offset=128).case(f"L1/add-uint8{suffix}", "OP_E_ADD, uint8", arch)
    rng = generator("L1/wide")
    wide = rng.integers(-(2**30), 2**30, (2, 60), dtype=np.int32)
    yield pair_case(f"L1/wide-add{suffix}", "OP_E32_ADD of large values", arch, "OP_E32_ADD", (wide[0], wide[1]))
    for rounding, word in enumerate(("floor", "even", "away")):
        yield shift_case(f"L1/wide-shift-{word}{suffix}", f"OP_E32_SHIFT, {word}", arch, wide[0], 7, 1, rounding)
    small = wide[0] >> 12
    yield shift_case(f"L1/wide-shift-left{suffix}", "OP_E32_SHIFT to the left", arch, small, 9, 0, 0)


def _machines() -> Iterator[Case]:
    """The same work on every shape of the array and with every timing: other cycles, the same values."""
    chosen = {name: CONVOLUTIONS[name] for name in ("conv-1x1", "conv-3x3-stride-2", "conv-3x3-accumulators")}
    for place, arch in ARRAYS.items():
        own = {**chosen, "depth-3x3": SEPARATE["depth-3x3"]} if arch.isa != "v1" else chosen
        for name, convolution in {**own, **(GROUPS if arch.isa == "v3" else {})}.items():
            yield convolution.case(f"L1/{place}-{name}", f"{name} on the array {place}", arch)
        for name in ("max-3x3-stride-2-padded", "average-2x2"):
            yield POOLS[name].case(f"L1/{place}-{name}", f"{name} on the array {place}", arch)
        yield PRODUCTS["matmul-matrix"].case(f"L1/{place}-matmul", f"OP_MAT_MUL on the array {place}", arch)
        yield Requantisation((1, 5, 13)).case(f"L1/{place}-requant", f"OP_REQUANT on the array {place}", arch)
        yield Addition(77).case(f"L1/{place}-add", f"OP_E_ADD on the array {place}", arch)
    for place, timing in TIMINGS.items():
        for name, convolution in chosen.items():
            yield convolution.case(f"L1/{place}-{name}", f"{name}, timing {place}", BALANCED, timing)
        yield Addition(333).case(f"L1/{place}-add", f"OP_E_ADD, timing {place}", BALANCED, timing)
