"""Level 0: each instruction alone, of every variant and both numerics, on simple values.

The values can be followed by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from experiments.golden.case import GoldenCase
from isa.arch import Arch
from isa.variants import VARIANTS
from tests.golden_cases.builder import Builder
from tests.golden_cases.machines import machine
from tests.golden_cases.operations import Convolution, Pooling, Resizing, Window, packed
from tests.golden_cases.tensor_operations import (
    Addition,
    DynamicProduct,
    LookUp,
    OnRows,
    Permutation,
    Product,
    Repeating,
    Requantisation,
    Unary,
    pair_case,
    shift_case,
)

Make = Callable[[str, str, Arch], GoldenCase]
POINT = Window((2, 2, 2), (1, 1), padding=(0, 0, 0, 0))
COUNT = np.arange(-4, 4, dtype=np.int8)
WIDE = np.arange(-8, 8, dtype=np.int32) * 3


def _ones(arch: Arch, channels: int) -> NDArray[np.uint8]:
    """Records that change nothing: no bias, scale 1."""
    return packed(np.zeros(channels), np.ones(channels), arch)


def _convolution(groups: int, depth: int) -> Make:
    def make(name: str, text: str, arch: Arch) -> GoldenCase:
        weights = np.ones((2, depth, 1, 1), np.int8)
        case = Convolution(
            POINT, 2, groups, input=COUNT.reshape(2, 2, 2), weights=weights, channels=_ones(arch, 2)
        )
        return case.case(name, text, arch)

    return make


def _matmul(name: str, text: str, arch: Arch) -> GoldenCase:
    left = COUNT.reshape(2, 4)
    right = np.eye(4, dtype=np.int8)
    return Product((2, 4, 4), left=left, right=right, channels=_ones(arch, 4)).case(
        name, text, arch
    )


def _dynamic(name: str, text: str, arch: Arch) -> GoldenCase:
    left = COUNT.reshape(2, 4)
    right = np.eye(4, dtype=np.int8)
    return DynamicProduct((2, 4, 4), scale=1.0, left=left, right=right).case(name, text, arch)


def _requant(name: str, text: str, arch: Arch) -> GoldenCase:
    return Requantisation((1, 2, 8), input=WIDE.reshape(1, 2, 8), scale=np.ones(2)).case(
        name, text, arch
    )


def _pool(name: str, text: str, arch: Arch) -> GoldenCase:
    window = Window((2, 2, 2), (2, 2), (2, 2), padding=(0, 0, 0, 0))
    return Pooling(window=window, input=COUNT.reshape(2, 2, 2)).case(name, text, arch)


def _resize(name: str, text: str, arch: Arch) -> GoldenCase:
    """Two planes of two by two become three by two: between two rows lies their mean."""
    data = COUNT.reshape(2, 2, 2)
    return Resizing((2, 2, 2), (0.0, 0.5, 1.0), (0.0, 1.0), (0.5, 0.5), (0, 0), input=data).case(
        name, text, arch
    )


def _unary(mnemonic: str) -> Make:
    return lambda name, text, arch: Unary(mnemonic, scales=(0.5, 0.5), slope=0.5, input=COUNT).case(
        name, text, arch
    )


def _pair(mnemonic: str) -> Make:
    return lambda name, text, arch: pair_case(
        name, text, arch, mnemonic, (COUNT, COUNT[::-1].copy())
    )


def _add(name: str, text: str, arch: Arch) -> GoldenCase:
    return Addition(scales=(0.5, 0.5, 0.5), pair=(COUNT, COUNT * 2)).case(name, text, arch)


def _look_up(name: str, text: str, arch: Arch) -> GoldenCase:
    """Every value becomes its complement, -1 less itself."""
    complement = ~np.arange(256, dtype=np.uint8).view(np.int8)
    return LookUp((1, 1, 8), COUNT.reshape(1, 1, 8), complement.reshape(1, 256)).case(
        name, text, arch
    )


def _permute(name: str, text: str, arch: Arch) -> GoldenCase:
    """Two rows of four become four rows of two."""
    return Permutation(8, 8, ((2, 4, 1), (4, 1, 2)), input=COUNT).case(name, text, arch)


def _repeating(mnemonic: str) -> Make:
    """Two channels of four, with one value each."""
    pair = COUNT.reshape(2, 4), np.array([[-2], [3]], np.int8)
    made = Repeating(mnemonic, (2, 4), scales=(0.5, 0.5, 0.5), pair=pair)
    return lambda name, text, arch: made.case(name, text, arch)


def _on_rows(mnemonic: str, **fields: int) -> Make:
    """Eight values as two rows of four; gains of 1 and 2, biases of 0 and 1."""
    pairs = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 1.0], [2.0, 1.0]])

    def make(name: str, text: str, arch: Arch) -> GoldenCase:
        on_rows = OnRows(
            mnemonic,
            (2, 4, 1),
            fields,
            (0.5, 0.125),
            (0, 1),
            input=COUNT.reshape(8, 1),
            pairs=pairs,
        )
        return on_rows.case(name, text, arch)

    return make


def _wide_add(name: str, text: str, arch: Arch) -> GoldenCase:
    return pair_case(name, text, arch, "OP_E32_ADD", (WIDE, WIDE[::-1].copy()))


def _wide_shift(name: str, text: str, arch: Arch) -> GoldenCase:
    return shift_case(name, text, arch, WIDE, 1, rounding=0)


def _copy(name: str, text: str, arch: Arch) -> GoldenCase:
    """Eight bytes in and out; only the DMA instructions."""
    builder = Builder(arch, name.rpartition("/")[2])
    source = builder.input("input", COUNT)
    target = builder.output("result", "int8", (8,))
    builder.read(source, 0, 8, "push.EX")
    builder.operation("OP_SYNC", {}, "pop.LD push.ST", unit=1)
    builder.write(target, 0, 8, "pop.EX")
    return builder.case(name, text)


def _end(name: str, text: str, arch: Arch) -> GoldenCase:
    """Nothing at all."""
    return Builder(arch, name.rpartition("/")[2]).case(name, text)


INSTRUCTIONS: Mapping[str, Make] = {
    "OP_SYNC": _copy, "OP_END": _end, "OP_DMA_READ": _copy, "OP_DMA_WRITE": _copy,
    "OP_CONV": _convolution(0, 2), "OP_DEPTH_CONV": _convolution(-1, 1),
    "OP_GROUP_CONV": _convolution(2, 1),
    "OP_MAT_MUL": _matmul, "OP_REQUANT": _requant, "OP_POOL": _pool, "OP_RESIZE": _resize,
    "OP_ACT_RELU": _unary("OP_ACT_RELU"), "OP_ACT_LRELU": _unary("OP_ACT_LRELU"),
    "OP_E_ABS": _unary("OP_E_ABS"),
    "OP_C_MIN": _pair("OP_C_MIN"), "OP_C_MAX": _pair("OP_C_MAX"), "OP_E_ADD": _add,
    "OP_E32_ADD": _wide_add, "OP_E32_SHIFT": _wide_shift, "OP_LUT": _look_up,
    "OP_PERMUTE": _permute, "OP_DYN_MAT_MUL": _dynamic,
    "OP_E_MUL": _repeating("OP_E_MUL"), "OP_E_SUB": _repeating("OP_E_SUB"),
    "OP_E_DIV": _repeating("OP_E_DIV"),
    "OP_B_ADD": _repeating("OP_B_ADD"), "OP_B_MIN": _repeating("OP_B_MIN"),
    "OP_REDUCE": _on_rows("OP_REDUCE"), "OP_SOFTMAX": _on_rows("OP_SOFTMAX"),
    "OP_NORM": _on_rows("OP_NORM", centred=1),
}  # fmt: skip
"""How the level-0 case of each instruction is made; the DMA instructions and OP_SYNC share one."""


def cases() -> Iterator[GoldenCase]:
    """Yield one case for each variant, numerics and instruction that moves or computes data.

    OP_END alone is a case too.
    """
    for isa, variant in VARIANTS.items():
        for numerics in ("onnxruntime", "fixed"):
            arch = machine(isa, numerics)
            for item in variant.instructions:
                if item.mnemonic in ("OP_DMA_READ", "OP_DMA_WRITE"):
                    continue  # the case of OP_SYNC is theirs
                short = item.mnemonic.lower().replace("_", "-")
                text = f"{item.mnemonic} alone, {isa}, numerics {numerics}"
                yield INSTRUCTIONS[item.mnemonic](f"L0/{isa}-{numerics}-{short}", text, arch)
