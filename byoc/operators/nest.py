"""Loop nests and tiles as data: spans and boxes of tensors, halo rows, padding and transfers."""

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.integer[Any]]


class Span(NamedTuple):
    """Half-open interval ``[start, stop)``."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of integers in the interval."""
        return self.stop - self.start


class Box(NamedTuple):
    """Box-shaped part of a tensor: its ranges of channels, rows and columns."""

    channels: Span
    rows: Span
    columns: Span

    @property
    def elements(self) -> int:
        return self.channels.size * self.rows.size * self.columns.size


class Tile(NamedTuple):
    """Work of one command: an output box, the input box that it reads, and padding rows above it.

    A tile of some input channels computes partial sums: ``first`` starts them, ``last`` converts
    them to results.
    """

    output: Box
    input: Box
    pad_top: int
    first: bool = True
    last: bool = True

    @property
    def depth(self) -> Span | None:
        """Range of a tile's input channels if the tile has only some of them, else None."""
        return None if self.first and self.last else self.input.channels


@dataclass(frozen=True)
class LoopNest:
    """Loop nest of an operation over (channels, rows, columns) of its output.

    Planes are (C, H, W). A ``matrix`` (M, N) has M rows and N channels of one column, stored row by
    row. Element-wise operations are one channel with one row per element. Channels form ``groups``
    groups of equal size: output channel o reads only the ``group_inputs`` input channels of group
    ``o // group_outputs``. ``channel_step``: a tile has a multiple of so many channels; with 0 it
    has any number of channels, and of groups whole ones or an even part of one. ``reads``: for each
    row, the first input row that it reads and the row after the last, if no window defines them.
    """

    channels: int
    rows: int
    columns: int
    input_channels: int
    input_rows: int
    input_columns: int
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    pad_top: int = 0
    groups: int = 1
    matrix: bool = False
    channel_step: int = 0
    reads: tuple[tuple[int, int], ...] = ()

    @property
    def grouped(self) -> bool:
        """True if different output channels read different input channels."""
        return self.groups > 1

    @property
    def group_inputs(self) -> int:
        return self.input_channels // self.groups

    @property
    def group_outputs(self) -> int:
        return self.channels // self.groups

    @property
    def extent(self) -> int:
        """Number of rows from the first to the last tap of a window."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def splits_rows(self) -> bool:
        """True if bands of rows are possible: no window is entirely below the data."""
        return bool(self.reads) or (self.rows - 1) * self.stride - self.pad_top < self.input_rows

    @property
    def rows_read(self) -> NDArray[np.bool_] | None:
        """Mask of the input rows that the loop nest reads.

        It is None if all rows are read. Strides longer than the window skip rows, and the last
        window may end before the last row.
        """
        if (
            not self.reads
            and self.kernel == self.stride == 1
            and self.rows == self.input_rows
            and not self.pad_top
        ):
            return None
        read = np.zeros(self.input_rows, np.bool_)
        for first, behind in self.reads:
            read[first:behind] = True
        if not self.reads:
            starts = np.arange(self.rows) * self.stride - self.pad_top
            rows = starts[:, np.newaxis] + np.arange(self.kernel) * self.dilation
            read[rows[(rows >= 0) & (rows < self.input_rows)]] = True
        return None if read.all() else read

    def read_by(self, rows: Span) -> Span:
        """Return the range of input rows that a range of output rows reads.

        The ranges are those of :attr:`reads`.
        """
        first, behind = zip(*self.reads[rows.start : rows.stop], strict=True)
        return Span(min(first), max(behind))


def make_tile(nest: LoopNest, channels: Span, rows: Span, depth: Span | None = None) -> Tile:
    """Return the tile of these output channels and rows, and of all columns.

    ``depth`` are its input channels; None: all.
    """
    first = rows.start * nest.stride - nest.pad_top
    last = (rows.stop - 1) * nest.stride - nest.pad_top + nest.extent
    start = max(first, 0)
    # A window entirely in the padding still gets one row, because the machine has no empty tensors.
    stop = max(min(last, nest.input_rows), start + 1)
    if rows.size == nest.rows:
        start = 0
        stop = nest.input_rows
    elif nest.reads:
        start, stop = nest.read_by(rows)
    source = Box(
        depth or _input_channels(nest, channels), Span(start, stop), Span(0, nest.input_columns)
    )
    ends = (True, True) if depth is None else (depth.start == 0, depth.stop == nest.input_channels)
    return Tile(Box(channels, rows, Span(0, nest.columns)), source, start - first, *ends)


def _input_channels(nest: LoopNest, channels: Span) -> Span:
    if not nest.grouped:
        return Span(0, nest.input_channels)
    first = channels.start // nest.group_outputs
    last = (channels.stop - 1) // nest.group_outputs
    return Span(first * nest.group_inputs, (last + 1) * nest.group_inputs)


def split(size: int, step: int) -> tuple[Span, ...]:
    """Divide the interval ``[0, size)`` into intervals of ``step`` integers.

    The last one may be smaller.
    """
    return tuple(Span(start, min(start + step, size)) for start in range(0, size, step))


def find_allowed_channels(nest: LoopNest, wanted: int) -> int:
    """Return the largest legal channel tile of at most ``wanted`` channels.

    A legal tile has whole groups, or an even part of one group. With a ``channel_step`` return at
    least one step.
    """
    wanted = min(wanted, nest.channels)
    group = nest.channel_step or (nest.group_outputs if nest.grouped else 1)
    if wanted >= group or nest.channel_step:
        return max(wanted // group, 1) * group
    return max(size for size in range(1, wanted + 1) if group % size == 0)


def band_rows(nest: LoopNest, rows: int) -> int:
    """Return the maximum number of input rows that a band of ``rows`` output rows reads."""
    if rows >= nest.rows:
        return nest.input_rows
    if nest.reads:
        return max(nest.read_by(band).size for band in split(nest.rows, rows))
    return min(nest.input_rows, (rows - 1) * nest.stride + nest.extent)


class TransferAxis(NamedTuple):
    """Dimension of a transfer: count, byte stride in the tensor, byte stride in the scratchpad."""

    size: int
    tensor: int
    buffer: int


class RowTransfer(NamedTuple):
    """Rows of ``nbytes`` bytes that a transfer moves along at most three dimensions.

    They begin at byte ``offset`` of the tensor. ``dims`` are the dimensions, innermost first. In
    the scratchpad the rows begin ``sram_offset`` bytes after the tile's address.
    """

    offset: int
    nbytes: int
    dims: tuple[TransferAxis, ...] = ()
    sram_offset: int = 0

    @property
    def total(self) -> int:
        return self.nbytes * prod(axis.size for axis in self.dims)


def plane_transfer(box: Box, rows: int, columns: int, element: int, plane: int = 0) -> RowTransfer:
    """Return the transfer of a box of a tensor (C, rows, columns), with all columns.

    An element has ``element`` bytes. In the scratchpad the channels are ``plane`` bytes apart, or
    dense if ``plane`` is 0.
    """
    row = columns * element
    nbytes = box.rows.size * row
    stride = rows * row
    offset = (box.channels.start * rows + box.rows.start) * row
    return _make_strided(offset, nbytes, box.channels.size, stride, plane or nbytes)


def matrix_transfer(box: Box, channels: int, element: int) -> RowTransfer:
    """Return the transfer of a box of a row-major matrix (rows, channels).

    The box is dense in the scratchpad.
    """
    nbytes = box.channels.size * element
    offset = (box.rows.start * channels + box.channels.start) * element
    return _make_strided(offset, nbytes, box.rows.size, channels * element, nbytes)


def _make_strided(
    offset: int, nbytes: int, repeats: int, dram_stride: int, sram_stride: int
) -> RowTransfer:
    if repeats == 1 or dram_stride == sram_stride == nbytes:
        return RowTransfer(offset, nbytes * repeats)
    return RowTransfer(offset, nbytes, (TransferAxis(repeats, dram_stride, sram_stride),))
