"""Convolutions as matrix products: the copy moves the elements of each window.

The estimates equal the formulas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.layouts import row_text
from byoc.estimate.matrices import Layouts, _count_copied, _matrix, layouts_of
from byoc.operators.convolution import Convolution
from byoc.operators.pieces import NOTHING
from byoc.operators.records import Operand
from isa.arch import Arch
from isa.instruction import ceil_div
from isa.layout import Layout

CASES: Mapping[
    str, tuple[tuple[int, int, int], tuple[int, int], tuple[int, int], tuple[int, int], int]
] = {
    "3x3": ((11, 6, 7), (3, 3), (1, 1), (1, 1), 8),
    "stride": ((8, 9, 9), (3, 2), (2, 3), (1, 1), 8),
    "dilation": ((3, 9, 8), (2, 3), (1, 1), (2, 2), 4),
}
"""Input (channels, rows, columns), kernel, strides, dilations, atom in which the input lies."""


def convolution(
    shape: tuple[int, int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    atom: int,
) -> Convolution:
    """One of 5 output channels, padded by one on each side."""
    rows, columns = (
        (size + 2 - (taps - 1) * dilation - 1) // stride + 1
        for size, taps, stride, dilation in zip(shape[1:], kernel, strides, dilations, strict=True)
    )
    return Convolution(
        name="c", kind="CONV", onnx_nodes=(), weights=np.zeros((5, shape[0], *kernel), np.int8),
        bias=np.zeros(5, np.int32), requantise=None, input_zero_point=0, groups=1,
        inputs=(Operand("x", shape, assigned=Layout(shape[0], shape[1] * shape[2], atom)),),
        output=Operand("y", (5, rows, columns), assigned=Layout(5, rows * columns, 8)),
        strides=strides, dilations=dilations, pads=(1, 1, 1, 1),
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_matrix_has_what_every_window_reads(name: str) -> None:
    (depth, height, width), kernel, strides, dilations, _ = CASES[name]
    made = convolution(*CASES[name])
    data = np.random.default_rng(3).integers(1, 100, (depth, height, width))
    lies = made.inputs[0].assigned
    assert lies is not None
    packed = np.zeros(lies.image_bytes, np.int64)
    packed[lies.places(np.arange(lies.elements))] = data.reshape(-1)
    index = _matrix(made, 8)
    taken = (
        np.where(index == NOTHING, 0, packed[index]).transpose(1, 0, 2).reshape(index.shape[1], -1)
    )
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1)))
    _, rows, columns = made.output.shape
    for position in range(rows * columns):
        row = position // columns * strides[0]
        column = position % columns * strides[1]
        window = padded[:, row :: dilations[0], column :: dilations[1]][:, : kernel[0], : kernel[1]]
        wanted = window.transpose(1, 2, 0).reshape(-1)
        assert taken[position, : wanted.size].tolist() == wanted.tolist()
        assert not taken[position, wanted.size :].any()
    asked, commands = _count_copied(made, 8, 32)
    moved = np.count_nonzero(index.reshape(-1) != NOTHING)
    assert ceil_div(moved, 32) <= asked <= moved
    assert commands > 0


def test_a_convolution_by_hand() -> None:
    """16 channels of 6 x 6, 3 x 3, become 5, on {8, 8}: A = 8, W = 32.

    Direct: 2 blocks of input channels for each of 9 taps, 36 steps in stripes of 32 and 4, a word
    each: 18 * 36 = 648 behind 2 words of weights, 650. Words: 18 * (min(32, 8 + 6) + min(4, 1 +
    1)), fewer. As a matrix 144 channels of 36 positions: 18 blocks, 36 steps each: 650 again. The
    copy writes 18 surfaces of 9 words: 162.
    """
    made = convolution((16, 6, 6), (3, 3), (1, 1), (1, 1), 8)
    arch = Arch(isa="v5")
    assert layouts_of(made, 0, arch) == Layouts(650, 0, 650, 162)


def test_one_tap_has_no_other_layout() -> None:
    arch = Arch(isa="v5")
    flat = convolution((16, 6, 6), (1, 1), (1, 1), (1, 1), 8)
    assert layouts_of(flat, 0, arch) is None


TABLE = [
    line
    for line in (Path(__file__).parents[2] / "docs/compiler.md")
    .read_text(encoding="utf-8")
    .splitlines()
    if re.match(r"\| [a-z0-9-]+ \| \d+ \| ", line)
]
QUICK = ("digits-cnn", "resnet-8", "keyword-spotting")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for line in TABLE
        for name in [line.split(" ")[1]]
    ],
)
def test_the_table_of_the_document_is_what_the_estimate_says(line: str) -> None:
    assert row_text(line.split(" ")[1]) == line


def test_the_table_has_all_that_is_quick() -> None:
    assert {*QUICK} <= {line.split(" ")[1] for line in TABLE}
