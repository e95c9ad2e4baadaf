"""Depthwise convolution plane by plane, for large planes or few channels.

The input becomes float32 in one copy a kernel column, each with exactly the columns of the outputs, rows split by their
phase under the stride. Then all outputs of a channel are one contiguous run for every tap, and ``einsum`` multiplies
and adds them up in one pass.
"""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.results import Results
from dla_sim.kernels.scratch import Scratch
from dla_sim.kernels.windows import Source, Window, source

_BLOCK_ELEMENTS = 1 << 20
"""Elements of the float32 copies of one block of channels."""


def by_planes(shape: Window, fill: int, weights: NDArray[np.int8], results: Results, scratch: Scratch) -> None:
    """Computes the window; ``weights`` int8 (OC, KH, KW), ``fill`` what the padding reads."""
    multiplier = shape.oc // shape.ic
    machine, dtype = results.machine, results.finish.dtype
    planes = source(shape, machine, scratch, fill, shape.split)
    factors = weights.astype(np.float32).transpose(2, 1, 0)
    height = -(-shape.rows // shape.sy)
    inputs = max(_BLOCK_ELEMENTS // (multiplier * shape.kw * shape.sy * height * shape.ow), 1)
    for first in range(0, shape.ic, inputs):
        count = min(inputs, shape.ic - first)
        channel, channels = first * multiplier, count * multiplier
        copies = _copies(shape, planes, first, count, scratch)
        sums = _sums(shape, copies, factors[:, :, channel : channel + channels], scratch)
        results.store(sums, shape.output_view(machine.sram, dtype, channel, channels), channel, 0)


def _copies(shape: Window, planes: Source, first: int, count: int, scratch: Scratch) -> NDArray[np.float32]:
    """(KW, channels, phases, rows, OW) float32: the columns that each kernel column reads, for some channels.

    Row r of the input is row r // sy of phase r % sy.
    """
    multiplier, phases, height = shape.oc // shape.ic, shape.sy, -(-shape.rows // shape.sy)
    full = scratch.array("copies", (shape.kw, count, multiplier, phases, height, shape.ow), np.float32)
    strides = (planes.plane, 0, shape.sy * planes.row, planes.step)
    for phase in range(min(phases, shape.rows)):
        rows = -(-(shape.rows - phase) // shape.sy)
        skip = first * planes.plane + phase * planes.row
        planes.copy_taps(full[:, :, :, phase, :rows], strides, skip, shape.dx)
    return full.reshape(shape.kw, count * multiplier, phases, height, shape.ow)


def _sums(
    shape: Window, copies: NDArray[np.float32], factors: NDArray[np.float32], scratch: Scratch
) -> NDArray[np.float32]:
    """(channels, OH * OW) float32 sums of products over all taps; ``factors`` is (KW, KH, channels).

    Kernel rows whose input rows have one phase are taken together.
    """
    channels = copies.shape[1]
    total: NDArray[np.float32] = scratch.array("sums", (channels, shape.pixels), np.float32)
    kernel_column, plane, phase, row, _ = copies.strides
    period = shape.sy // gcd(shape.sy, shape.dy)
    for first in range(min(period, shape.kh)):
        start, step = first * shape.dy, period * shape.dy // shape.sy
        group = factors[:, first::period]
        skip = phase * (start % shape.sy) + row * (start // shape.sy)
        size = (shape.kw, group.shape[1], channels, shape.pixels)
        taps = np.ndarray(size, np.float32, copies, skip, (kernel_column, step * row, plane, 4))
        if first == 0:
            np.einsum("xyc,xycp->cp", group, taps, out=total)
        else:
            part = scratch.array("part", total.shape, np.float32)
            np.add(total, np.einsum("xyc,xycp->cp", group, taps, out=part), out=total)
    return total
