"""Operations as loop nests, and their tiles: halo rows and padding included."""

from __future__ import annotations

from dataclasses import dataclass

from byoc.operations import ConvOperation, MatMulOperation, Operation, PoolOperation, RequantiseOperation
from byoc.tile import Box, Span, Tile


@dataclass(frozen=True)
class Nest:
    """An operation as a loop nest over (channels, rows, columns) of its output.

    Planes are (C, H, W). A ``matrix`` (M, N) has M rows and N channels of one column, stored row by row. Element-wise
    operations are one channel of as many rows as there are elements. Channels form ``groups`` groups of equal size:
    output channel o reads only the ``group_inputs`` input channels of group ``o // group_outputs``.
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

    @property
    def grouped(self) -> bool:
        """Whether different output channels read different input channels."""
        return self.groups > 1

    @property
    def group_inputs(self) -> int:
        """Input channels of a group."""
        return self.input_channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of a group."""
        return self.channels // self.groups

    @property
    def extent(self) -> int:
        """Rows from the first to the last tap of a window."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def splits_rows(self) -> bool:
        """Whether bands of rows are possible: every window touches data or lies above it, never wholly below."""
        return (self.rows - 1) * self.stride - self.pad_top < self.input_rows


def nest_of(operation: Operation) -> Nest:
    """The loop nest of an operation."""
    if isinstance(operation, ConvOperation | PoolOperation):
        return _window_nest(operation)
    shape = operation.output.shape
    if isinstance(operation, MatMulOperation):
        rows, depth = operation.inputs[0].shape
        return Nest(shape[1], rows, 1, depth, rows, 1, matrix=True)
    if isinstance(operation, RequantiseOperation) and len(shape) == 2:
        return Nest(shape[1], shape[0], 1, shape[1], shape[0], 1, groups=shape[1], matrix=True)
    if isinstance(operation, RequantiseOperation):
        channels, rows, columns = shape
        return Nest(channels, rows, columns, channels, rows, columns, groups=channels)
    elements = operation.output.elements
    return Nest(1, elements, 1, 1, elements, 1)


def pool_kernel(operation: PoolOperation) -> tuple[int, int]:
    """Rows and columns of a pool's window: the whole plane where the average is global."""
    height, width = operation.inputs[0].shape[1:]
    return (height, width) if operation.mode == "global_average" else operation.kernel


def _window_nest(operation: ConvOperation | PoolOperation) -> Nest:
    (oc, oh, ow), (ic, ih, iw) = operation.output.shape, operation.inputs[0].shape
    if isinstance(operation, ConvOperation):
        kernel, groups = operation.weights.shape[2], operation.groups
    else:
        kernel, groups = pool_kernel(operation)[0], ic
    stride, dilation = operation.strides[0], operation.dilations[0]
    return Nest(oc, oh, ow, ic, ih, iw, kernel, stride, dilation, operation.pads[0], groups)


def make_tile(nest: Nest, channels: Span, rows: Span) -> Tile:
    """The tile with these output channels and rows, all columns."""
    first = rows.start * nest.stride - nest.pad_top
    last = (rows.stop - 1) * nest.stride - nest.pad_top + nest.extent
    start = max(first, 0)
    # A window that lies wholly in the padding still gets one row: the machine has no empty tensors.
    stop = max(min(last, nest.input_rows), start + 1)
    if rows.size == nest.rows:
        start, stop = 0, nest.input_rows
    source = Box(_input_channels(nest, channels), Span(start, stop), Span(0, nest.input_columns))
    return Tile(Box(channels, rows, Span(0, nest.columns)), source, start - first)


def _input_channels(nest: Nest, channels: Span) -> Span:
    if not nest.grouped:
        return Span(0, nest.input_channels)
    first, last = channels.start // nest.group_outputs, (channels.stop - 1) // nest.group_outputs
    return Span(first * nest.group_inputs, (last + 1) * nest.group_inputs)


def split(size: int, step: int) -> tuple[Span, ...]:
    """``[0, size)`` in pieces of ``step``, the last one possibly smaller."""
    return tuple(Span(start, min(start + step, size)) for start in range(0, size, step))


def allowed_channels(nest: Nest, wanted: int) -> int:
    """The largest channel tile not above ``wanted``: whole groups, or an even part of one where there are several."""
    wanted, group = min(wanted, nest.channels), nest.group_outputs if nest.grouped else 1
    if wanted >= group:
        return wanted // group * group
    return max(size for size in range(1, wanted + 1) if group % size == 0)


def band_rows(nest: Nest, rows: int) -> int:
    """Most input rows that a band of ``rows`` output rows reads."""
    if rows >= nest.rows:
        return nest.input_rows
    return min(nest.input_rows, (rows - 1) * nest.stride + nest.extent)
