"""Layers of MAX78000 as passes over its processors, and their cycles in closed form.

The formula restates the vendor's latency estimate (``izer/latency.py`` of
analogdevicesinc/ai8x-synthesis) for layers that do not stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from experiments.machines.description import LayerWork, Shape

PROCESSORS = 64
KERNEL_BYTES = 9
GROUP = 16
"""Processors of a group; without a convolution, they write their pixels one after another."""
SHARED = 4
"""Processors that share an instance of data memory; a word holds one byte of each."""


@dataclass(frozen=True)
class PassWork:
    """Layer as the hardware executes it, in passes over the processors.

    Attributes:
        pooled: rows and columns that the convolution reads, after pooling and with the zeros that
            a transposed convolution inserts.
        outputs: output channels.
        kernel: rows and columns of the kernel.
        padding: rows and columns of padding on each side.
        window: elements of the pooling window; 1 without pooling.
        passes: passes over the input channels.
        operands: tensors of an element-wise operation before the convolution; otherwise 1.
        pool_first: whether pooling precedes the element-wise operation.
        slots: cycles to write one pixel in one pass without a convolution; 0 with one.
        flattened: 1 if a fully connected layer flattens more than 16 pixels, otherwise 0.
    """

    pooled: tuple[int, int]
    outputs: int
    kernel: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    window: int = 1
    passes: int = 1
    operands: int = 1
    pool_first: bool = True
    slots: int = 0
    flattened: int = 0


def count_cycles(work: PassWork) -> tuple[int, int]:
    """Return two numbers of cycles: to read and pool a layer's inputs, and to write its results."""
    rows, columns = work.pooled
    operands = work.operands if work.pool_first else 1
    zero = work.passes * operands * 2  # a pixel of padding: a read and a write of the row buffer
    pixel = work.passes * operands * (work.operands // operands * work.window + 1)
    if work.slots:
        return rows * columns * pixel, rows * columns * work.passes * work.slots
    top, side = work.padding
    repeats = 1 if work.pool_first else work.passes
    leading_rows = work.kernel[0] - 1 - top
    leading_columns = work.kernel[1] - 1 - side
    output_columns = columns - leading_columns + side

    def fill_row(cost: int) -> int:
        return 2 * side * (zero + 1) + repeats * columns * (cost + 1)

    def complete_row(cost: int) -> int:
        windows = leading_columns * (cost + 1) + (output_columns - side) * cost
        return side * (2 * zero + 1) + repeats * windows

    read = top * (fill_row(zero) + complete_row(zero)) + leading_rows * fill_row(pixel)
    read += (rows - leading_rows) * complete_row(pixel)
    written = output_columns * work.passes * work.outputs + (work.outputs == work.passes == 1)
    return read + work.flattened, (rows - leading_rows + top) * written


def to_plane(shape: Shape) -> tuple[int, int, int]:
    """Return channels, rows and columns; the hardware stores a sequence as one column."""
    channels, rows, columns = (*shape, 1, 1, 1)[:3]
    return channels, rows, columns


def count_passes(channels: int) -> int:
    """Return the passes over input channels."""
    return -(-channels // PROCESSORS)


def count_processors(channels: int) -> int:
    """Return the number of processors of a layer; with several passes, a multiple of four."""
    each = -(-channels // count_passes(channels))
    return each if channels <= PROCESSORS else -(-each // SHARED) * SHARED


def count_written(channels: int) -> int:
    """Return the channels that a layer writes: in groups of equal size, a multiple of four."""
    return count_processors(channels) * count_passes(channels)


def is_sequence(layer: LayerWork) -> bool:
    """Return whether the layer reads a sequence (C, L)."""
    return len(layer.inputs[0]) == 2


def _order_sides(pair: tuple[int, int], layer: LayerWork) -> tuple[int, int]:
    """Return rows and columns; the graph stores a sequence as one row, the hardware as a column."""
    return (pair[1], pair[0]) if is_sequence(layer) else pair


def plan_layer(layer: LayerWork) -> PassWork:
    """Return a layer as the hardware executes it."""
    channels, rows, columns = to_plane(layer.pool.output if layer.pool else layer.inputs[0])
    passes = count_passes(channels)
    window = prod(layer.pool.kernel) if layer.pool else 1
    pool_first = not layer.pool or layer.op_types[0] == layer.pool.op_type
    operands = len(layer.inputs)
    size = (rows, columns)
    if layer.op_types[-1] == "MatMul":
        flattened = int(passes * rows * columns > 16)
        outputs = layer.output[-1] if rows * columns > 1 else count_written(layer.output[-1])
        return PassWork(size, outputs, passes=passes, flattened=flattened)
    if layer.op_types[-1] == "DepthToSpace":
        size = (2 * rows, 2 * columns)
        return PassWork(size, count_written(layer.output[0]), (3, 3), (1, 1), passes=passes)
    if layer.op_types[-1] != "Conv":
        slots = -(-min(count_processors(channels), GROUP) // SHARED)
        passes = 2 * passes - 1 if layer.pool else passes
        return PassWork(size, channels, (1, 1), (0, 0), window, passes, operands, pool_first, slots)
    kernel = _order_sides(layer.kernel, layer)
    padding = _order_sides(layer.padding[:2], layer)
    if is_sequence(layer):
        dilation = layer.dilation[1]
        kernel = ((kernel[0] - 1) * dilation + 1, 1)
        if kernel[0] > 9:  # the hardware folds the sequence and convolves the plane
            size = (-(-rows // dilation), dilation)
            kernel = (3, 3)
            padding = (1, 1)
    written = count_written(layer.output[0])
    return PassWork(size, written, kernel, padding, window, passes, operands, pool_first)


def count_kernels(layer: LayerWork) -> int:
    """Return the kernels of 9 bytes that each processor of the layer stores.

    A byte holds weights of several output channels. The vendor's compiler writes zeros for output
    channels that :func:`count_written` adds, and reserves at least ``reserved`` bits
    (``izer/kernels.py``).
    """
    if layer.op_types[-1] not in ("Conv", "DepthToSpace", "MatMul"):
        return 0
    work = plan_layer(layer)
    outputs = layer.output[-1 if layer.op_types[-1] == "MatMul" else 0]
    shared = max(8 // layer.weight_bits, 1)
    taps = prod(work.kernel)
    if layer.op_types[-1] == "MatMul" and prod(work.pooled) > 1:
        kernels = outputs * prod(work.pooled) * work.passes
        stored = -(-kernels // shared)
        added = count_written(outputs) - outputs
    else:
        kernels = work.outputs * work.passes
        groups = -(-outputs // shared)
        stored = groups * work.passes * taps
        added = -(-count_processors(outputs) // shared) * count_passes(outputs) - groups
        added *= work.passes
    stored += added * (taps // shared)
    reserved = (kernels * layer.weight_bits + kernels % shared * (shared - 1)) * taps
    return max(-(-reserved // (8 * KERNEL_BYTES)), -(-stored // KERNEL_BYTES))


def place_weights(layers: Sequence[LayerWork], capacity: int) -> dict[str, str]:
    """Place the weights of all layers; return, by layer, why weights do not fit.

    Layers with many processors are placed first. A layer uses neighbouring processors that begin
    at a multiple of four. Of all such groups it uses the one whose fullest processor has the most
    free space.

    Args:
        layers: layers of the network.
        capacity: kernels of 9 bytes that a processor stores.
    """
    filled = [0] * (PROCESSORS // SHARED)  # all processors of a layer use the same addresses
    reasons = {}
    widths = {
        layer.name: -(-count_processors(to_plane(layer.inputs[0])[0]) // SHARED) for layer in layers
    }
    for layer in sorted(layers, key=lambda one: -widths[one.name]):
        width = widths[layer.name]
        kernels = count_kernels(layer)
        levels = [max(filled[first : first + width]) for first in range(len(filled) - width + 1)]
        first = min(range(len(levels)), key=levels.__getitem__)
        if levels[first] + kernels > capacity:
            fullest = filled.index(levels[first], first) * SHARED
            reasons[layer.name] = (
                f"{kernels:,} kernels of 9 bytes do not fit: processor {fullest} has "
                f"{capacity - levels[first]:,} of {capacity:,} free"
            )
        elif kernels:
            filled[first : first + width] = [levels[first] + kernels] * width
    return reasons
