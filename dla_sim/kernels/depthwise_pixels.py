"""Depthwise convolution of small planes with the channels innermost.

The planes are transposed to float32 (rows, phases, columns, channels), columns split by their phase under the stride.
So a tap of a whole row of outputs is one contiguous run of OW * C elements, as are its weights, repeated OW times.
"""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.results import Results
from dla_sim.kernels.scratch import Scratch
from dla_sim.kernels.windows import Window
from isa.instruction import Machine

_BLOCK_ELEMENTS = 1 << 19
"""Elements of the float32 planes of one block of channels."""
_SKEW = 16
"""Elements added to the rows of the result before it is transposed. Their length is often a power of two, and the
columns of such a matrix share a few sets of the first-level cache."""


def by_pixels(shape: Window, fill: int, weights: NDArray[np.int8], results: Results, scratch: Scratch) -> None:
    """Computes the window; ``weights`` int8 (OC, KH, KW), ``fill`` what the padding reads."""
    multiplier = shape.oc // shape.ic
    inputs = max(_BLOCK_ELEMENTS // (multiplier * shape.rows * shape.columns), 1)
    for first in range(0, shape.ic, inputs):
        count = min(inputs, shape.ic - first)
        channels = slice(first * multiplier, (first + count) * multiplier)
        pixels = _pixels(shape, fill, first, count, results.machine, scratch)
        sums = _sums(shape, pixels, _factors(shape, weights[channels], scratch), scratch)
        _store(shape, sums, channels.start, results, scratch)


def _store(shape: Window, sums: NDArray[np.float32], first: int, results: Results, scratch: Scratch) -> None:
    """Results of (OH * OW, channels) sums to the planes of the output."""
    pixels, channels = sums.shape
    dtype = results.finish.dtype
    result = scratch.array("result", (pixels, channels + _SKEW), dtype)[:, :channels]
    results.store(sums, result, first, 1)
    np.copyto(shape.output_view(results.machine.sram, dtype, first, channels), result.T)


def _pixels(
    shape: Window, fill: int, first: int, count: int, machine: Machine, scratch: Scratch
) -> NDArray[np.float32]:
    """(rows, phases, columns, channels) float32 of some input channels, with padding, repeated by the multiplier."""
    multiplier = shape.oc // shape.ic
    size = (shape.rows, shape.sx, -(-shape.columns // shape.sx), count, multiplier)
    pixels: NDArray[np.float32] = scratch.array("pixels", size, np.float32)
    if shape.padded:
        pixels.fill(fill)
    address = shape.input + first * shape.input_plane
    top, bottom = shape.top, min(shape.rows, shape.top + shape.ih)
    end = min(shape.columns, shape.left + shape.iw)
    for phase in range(shape.sx):
        # Column j of the phase is input column j * sx + phase - left.
        low = max(-((phase - shape.left) // shape.sx), 0)
        high = max(-(-(end - phase) // shape.sx), low)
        if high > low and bottom > top:
            inner = pixels[top:bottom, phase, low:high]
            start = address + low * shape.sx + phase - shape.left
            strides = (shape.iw, shape.sx, shape.input_plane, 0)
            np.copyto(inner, np.ndarray(inner.shape, np.int8, machine.sram, start, strides))
    return pixels.reshape(*size[:3], count * multiplier)


def _factors(shape: Window, weights: NDArray[np.int8], scratch: Scratch) -> NDArray[np.float32]:
    """(KW, KH, OW * channels) float32 weights, repeated for each column of outputs."""
    channels = len(weights)
    short = scratch.array("short factors", (shape.kw, shape.kh, channels), np.float32)
    np.copyto(short, weights.transpose(2, 1, 0))
    full: NDArray[np.float32] = scratch.array("factors", (shape.kw, shape.kh, shape.ow, channels), np.float32)
    np.copyto(full, short[:, :, None])
    return full.reshape(shape.kw, shape.kh, shape.ow * channels)


def _sums(
    shape: Window, pixels: NDArray[np.float32], factors: NDArray[np.float32], scratch: Scratch
) -> NDArray[np.float32]:
    """(OH * OW, channels) float32 sums of products over all taps."""
    run = factors.shape[2]
    total: NDArray[np.float32] = scratch.array("sums", (shape.oh, run), np.float32)
    row, phase, column, _ = pixels.strides
    period = shape.sx // gcd(shape.sx, shape.dx)
    for first in range(min(period, shape.kw)):
        taken = range(first, shape.kw, period)
        start, step = first * shape.dx, period * shape.dx // shape.sx
        size = (len(taken), shape.kh, shape.oh, run)
        skip = phase * (start % shape.sx) + column * (start // shape.sx)
        taps = np.ndarray(size, np.float32, pixels, skip, (step * column, shape.dy * row, shape.sy * row, 4))
        if first == 0:
            np.einsum("xyq,xyrq->rq", factors[::period], taps, out=total)
        else:
            part = scratch.array("part", total.shape, np.float32)
            np.einsum("xyq,xyrq->rq", factors[first::period], taps, out=part)
            np.add(total, part, out=total)
    return total.reshape(shape.oh * shape.ow, -1)
