"""Layouts of a convolution on a machine of words: direct on packed tensors, or as a product of matrices (im2col).

As a product of matrices ``OP_PERMUTE`` copies what every output position reads, row of the kernel after row, column
after column, channel after channel, into the row of a matrix first: P. Gibson's (2023) comparison, with the cost of
the conversion. Cycles are those of EX alone, every operand in a bank of its own
that LD and ST leave to it.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.operators.convolution import Convolution
from byoc.operators.movement import asked_words
from byoc.operators.nest import NOTHING, find_pieces
from isa.arch import Arch
from isa.instruction import ceil_div
from isa.ops.packed import NARROW, Product, gapless, mapped, product_bound, words_of
from isa.packing import Shape

CONVOLUTIONS = ("OP_CONV", "OP_GROUP_CONV")
"""Instructions of what has both layouts."""


class Layouts(NamedTuple):
    """Cycles of a convolution: ``direct`` with its ``mapping``; as a ``product`` of matrices behind a ``conversion``.

    The conversion has the words of the matrix at least; where that is not enough to tell, the words of its copies.
    """

    direct: int
    mapping: int
    product: int
    conversion: int

    @property
    def matrix(self) -> int:
        """Cycles as a product of matrices, with the conversion."""
        return self.product + self.conversion


def layouts_of(operation: Convolution, mapping: int, arch: Arch, overhead: int = 0) -> Layouts | None:
    """What a convolution takes on packed operands in either way; None where both are the same, or it is depthwise.

    ``mapping`` is that of its direct form. A copy takes ``overhead`` cycles beside those of its words. Raises
    ValueError for a machine without words.
    """
    nest, kernel, words = operation.loops.nest, operation.window, words_of(arch)
    depthwise = nest.groups > 1 and nest.groups == nest.input_channels
    if depthwise or (prod(kernel) == 1 and operation.strides == (1, 1)):
        return None
    follow = gapless(nest.columns, nest.input_columns, *operation.strides)
    shape = Shape(nest.groups, nest.group_outputs, nest.group_inputs, *kernel)
    plain = Product(shape, nest.rows, nest.columns, operation.strides[1], gapless=follow)
    direct = product_bound(mapped(plain, mapping), arch)
    depth, positions = nest.group_inputs * prod(kernel), nest.rows * nest.columns
    matrix = Product(Shape(1, nest.group_outputs, depth), 1, positions)
    product = nest.groups * product_bound(matrix, arch)
    conversion = nest.groups * words.surfaces(depth) * words.count(positions * words.atom)
    if product + conversion < direct and nest.groups == 1:
        asked, commands = _copied(operation, words.atom, words.word)
        conversion = asked + commands * overhead
    return Layouts(direct, mapping, product, conversion)


def _copied(operation: Convolution, atom: int, word: int) -> tuple[int, int]:
    """(words that the copies into the matrix ask for, copies). What is padding is not counted."""
    index = _matrix(operation, atom)
    found = [asked_words(piece.dims, word) for piece in find_pieces(index)]
    return sum(words for words, _ in found), sum(commands for _, commands in found)


def _matrix(operation: Convolution, atom: int) -> NDArray[np.int64]:
    """(surfaces, positions, atom): the byte of the input from which each byte of the matrix comes, or NOTHING."""
    nest = operation.loops.nest
    own = NARROW if operation.inputs[0].layout.atom == NARROW else atom
    steps = (
        (np.arange(count) * stride - before)[:, np.newaxis] + np.arange(taps) * dilation
        for count, stride, before, taps, dilation in zip(
            (nest.rows, nest.columns), operation.strides, operation.pads[:2], operation.window, operation.dilations,
            strict=True,
        )
    )  # fmt: skip
    rows, columns = steps
    channels = np.arange(nest.group_inputs)
    places = channels // own * (nest.input_rows * nest.input_columns * own) + channels % own
    row, column = rows[:, np.newaxis, :, np.newaxis], columns[np.newaxis, :, np.newaxis, :]
    inside = (row >= 0) & (row < nest.input_rows) & (column >= 0) & (column < nest.input_columns)
    pixels = np.where(inside, (row * nest.input_columns + column) * own, NOTHING)[..., np.newaxis]
    taken = np.where(pixels == NOTHING, NOTHING, pixels + places).reshape(nest.rows * nest.columns, -1)
    surfaces = ceil_div(taken.shape[1], atom)
    found = np.full((len(taken), surfaces * atom), NOTHING, np.int64)
    found[:, : taken.shape[1]] = taken
    return np.ascontiguousarray(found.reshape(len(taken), surfaces, atom).swapaxes(0, 1))
