"""Cost of a convolution on banked memory, computed directly or as a matrix product (im2col).

The direct convolution reads packed tensors. For the matrix product, ``OP_PERMUTE`` first copies the
inputs of each output position into one matrix row: kernel row by kernel row, column by column,
channel by channel. This is P. Gibson's (2023) comparison, with the conversion cost added. Cycles
are those of EX alone; each operand has its own bank, which LD and ST do not use.
"""

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.operators.convolution import Convolution
from byoc.operators.copies import count_asked_words
from byoc.operators.pieces import NOTHING, find_pieces
from isa.arch import Arch, words_of
from isa.instruction import ceil_div
from isa.ops.products import ArrayProduct, gapless, product_bound, use_mapping
from isa.packing import WeightShape

CONVOLUTIONS = ("OP_CONV", "OP_GROUP_CONV")
"""Instructions that have both layouts."""


class Layouts(NamedTuple):
    """Cycles of a convolution computed directly, and as a matrix product after a conversion.

    ``mapping`` is the mapping of the direct convolution. ``conversion`` is at least the words of
    the matrix. If that is too little to decide, it is the words that the copies read or write.
    """

    direct: int
    mapping: int
    product: int
    conversion: int

    @property
    def matrix(self) -> int:
        """Cycles of the convolution as a matrix product, including the conversion."""
        return self.product + self.conversion


def layouts_of(
    operation: Convolution, mapping: int, arch: Arch, overhead: int = 0
) -> Layouts | None:
    """Return the cycles of a convolution on packed operands, direct and as a matrix product.

    Args:
        operation: the convolution.
        mapping: mapping of its direct form.
        arch: the machine.
        overhead: cycles per copy in addition to those of its words.

    Returns:
        The cycles, or None if both forms are the same or the convolution is depthwise.

    Raises:
        ValueError: if the machine has no banked memory.
    """
    nest = operation.loops.nest
    kernel = operation.window
    words = words_of(arch)
    depthwise = nest.groups > 1 and nest.groups == nest.input_channels
    if depthwise or (prod(kernel) == 1 and operation.strides == (1, 1)):
        return None
    follow = gapless(nest.columns, nest.input_columns, *operation.strides)
    shape = WeightShape(nest.groups, nest.group_outputs, nest.group_inputs, *kernel)
    plain = ArrayProduct(shape, nest.rows, nest.columns, operation.strides[1], gapless=follow)
    direct = product_bound(use_mapping(plain, mapping), arch)
    depth = nest.group_inputs * prod(kernel)
    positions = nest.rows * nest.columns
    matrix = ArrayProduct(WeightShape(1, nest.group_outputs, depth), 1, positions)
    product = nest.groups * product_bound(matrix, arch)
    conversion = nest.groups * words.surfaces(depth) * words.count(positions * words.atom)
    if product + conversion < direct and nest.groups == 1:
        asked, commands = _count_copied(operation, words.atom, words.word)
        conversion = asked + commands * overhead
    return Layouts(direct, mapping, product, conversion)


def _count_copied(operation: Convolution, atom: int, word: int) -> tuple[int, int]:
    """Return how many words copies into the im2col matrix access, and how many copies it takes.

    Padding is not counted.
    """
    index = _matrix(operation, atom)
    found = [count_asked_words(piece.dims, word) for piece in find_pieces(index)]
    return sum(words for words, _ in found), sum(commands for _, commands in found)


def _matrix(operation: Convolution, atom: int) -> NDArray[np.int64]:
    """Return the input byte that is copied to each byte of the im2col matrix, or NOTHING.

    The result has shape (surfaces, positions, atom).
    """
    nest = operation.loops.nest
    own = operation.inputs[0].layout.atom
    steps = (
        (np.arange(count) * stride - before)[:, np.newaxis] + np.arange(taps) * dilation
        for count, stride, before, taps, dilation in zip(
            (nest.rows, nest.columns), operation.strides, operation.pads[:2], operation.window,
            operation.dilations,
            strict=True,
        )
    )  # fmt: skip
    rows, columns = steps
    channels = np.arange(nest.group_inputs)
    places = channels // own * (nest.input_rows * nest.input_columns * own) + channels % own
    row = rows[:, np.newaxis, :, np.newaxis]
    column = columns[np.newaxis, :, np.newaxis, :]
    inside = (row >= 0) & (row < nest.input_rows) & (column >= 0) & (column < nest.input_columns)
    pixels = np.where(inside, (row * nest.input_columns + column) * own, NOTHING)[..., np.newaxis]
    taken = np.where(pixels == NOTHING, NOTHING, pixels + places).reshape(
        nest.rows * nest.columns, -1
    )
    surfaces = ceil_div(taken.shape[1], atom)
    found = np.full((len(taken), surfaces * atom), NOTHING, np.int64)
    found[:, : taken.shape[1]] = taken
    return np.ascontiguousarray(found.reshape(len(taken), surfaces, atom).swapaxes(0, 1))
