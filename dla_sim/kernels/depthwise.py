"""``OP_DEPTH_CONV``, and ``OP_CONV`` with one input and one output channel (an emulated depthwise filter).

Compiled kernels compute the results at once; else two ways, chosen by the shape. Sums of at most 1024 products are
exact in float32 in any order (see `products`).

- By planes, for large planes or few channels: the input becomes float32 in one copy a kernel column, each with exactly
  the columns of the outputs, rows split by their phase under the stride. Then all outputs of a channel are one
  contiguous run for every tap, and ``einsum`` multiplies and adds them up in one pass.
- By pixels, for small planes: these are transposed to float32 (rows, phases, columns, channels), columns split by their
  phase under the stride. So a tap of a whole row of outputs is one contiguous run of OW * C elements, as are its
  weights, repeated OW times.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Scratch
from dla_sim.kernels.compiled import Compiled
from dla_sim.kernels.results import Results, prepare_window
from dla_sim.kernels.windows import Source, Window, source, window
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.convolution import element_bytes

_FEW_PIXELS = 400
_NARROW = 28
_MANY_CHANNELS = 16
"""Up to so many outputs a plane and a row, from so many channels on, it is faster with the channels innermost."""
_PLANE_ELEMENTS = 1 << 20
"""Elements of the float32 copies of one block of channels, by planes."""
_PIXEL_ELEMENTS = 1 << 19
"""Elements of the float32 planes of one block of channels, by pixels."""
_COPIED_BYTES = 1 << 20
"""Bytes of the copies of one block of channels for the compiled kernel."""
_SKEW = 16
"""Elements added to the rows of the result before it is transposed. Their length is often a power of two, and the
columns of such a matrix share a few sets of the first-level cache."""


def depthwise(command: Command, arch: Arch) -> Attempt | None:
    """Prepares an ``OP_DEPTH_CONV``; None for what is left to the semantics."""
    element = element_bytes(command)
    shape = window(command, element)
    return None if shape is None else depthwise_window(shape, element, command, arch)


def depthwise_window(shape: Window, element: int, command: Command, arch: Arch) -> Attempt | None:
    """Prepares a depthwise convolution of a known window with outputs of ``element`` bytes."""
    if shape.oc % shape.ic:
        return None
    weights, fill = command["EX_OPERAND_ADDRESS"], command["EX_INPUT_ZERO_POINT"]
    few = shape.pixels <= _FEW_PIXELS and shape.ow <= _NARROW and shape.oc >= _MANY_CHANNELS
    compute = by_pixels if few else by_planes

    at_once = _at_once(shape, fill if shape.padded else 0, weights)

    def run(results: Results, scratch: Scratch) -> None:
        if at_once is not None and scratch.compiled is not None and results.finish.compilable:
            at_once(results, scratch.compiled)
        else:
            factors = np.ndarray((shape.oc, shape.kh, shape.kw), np.int8, results.machine.sram, weights)
            compute(shape, fill, factors, results, scratch)

    return prepare_window(shape, shape.kh * shape.kw, element, command, arch, run)


def _at_once(shape: Window, fill: int, weights: int) -> Callable[[Results, Compiled], None] | None:
    """The compiled kernel, which computes and stores the results; None for outputs in columns that no input has."""
    if (shape.ow - 1) * shape.sx >= shape.iw:
        return None
    multiplier = shape.oc // shape.ic
    taps = shape.kh, shape.kw, shape.sy, shape.sx, shape.dy, shape.dx, shape.oh, shape.ow, multiplier
    count = min(max(_COPIED_BYTES // (shape.kw * shape.rows * shape.iw), 1), shape.ic)
    blocks = [
        (
            slice(first * multiplier, min(first + count, shape.ic) * multiplier),
            (
                shape.input + first * shape.input_plane, shape.input_plane, min(count, shape.ic - first),
                shape.ih, shape.iw, shape.top, shape.left, fill,
            ),
        )
        for first in range(0, shape.ic, count)
    ]  # fmt: skip

    def run(results: Results, compiled: Compiled) -> None:
        memory, limits = results.machine.sram.view(np.int8), results.finish.limits
        for channels, planes in blocks:
            first = channels.start
            compiled.depthwise(
                planes, taps, weights + first * shape.kh * shape.kw, results.records[channels], limits, memory,
                shape.output + first * shape.output_plane, shape.output_plane,
            )  # fmt: skip

    return run


def by_planes(shape: Window, fill: int, weights: NDArray[np.int8], results: Results, scratch: Scratch) -> None:
    """Computes the window; ``weights`` int8 (OC, KH, KW), ``fill`` what the padding reads."""
    multiplier = shape.oc // shape.ic
    planes = source(shape, results.machine, scratch, fill, shape.split)
    factors = weights.astype(np.float32).transpose(2, 1, 0)
    height = -(-shape.rows // shape.sy)
    inputs = max(_PLANE_ELEMENTS // (multiplier * shape.kw * shape.sy * height * shape.ow), 1)
    for first in range(0, shape.ic, inputs):
        count = min(inputs, shape.ic - first)
        channel, channels = first * multiplier, count * multiplier
        copies = _copies(shape, planes, first, count, scratch)
        sums = _sums_by_planes(shape, copies, factors[:, :, channel : channel + channels], scratch)
        results.store(sums, shape.output + channel * shape.output_plane, shape.output_plane, channel, 0)


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


def _sums_by_planes(
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


def by_pixels(shape: Window, fill: int, weights: NDArray[np.int8], results: Results, scratch: Scratch) -> None:
    """Computes the window; ``weights`` int8 (OC, KH, KW), ``fill`` what the padding reads."""
    multiplier = shape.oc // shape.ic
    inputs = max(_PIXEL_ELEMENTS // (multiplier * shape.rows * shape.columns), 1)
    for first in range(0, shape.ic, inputs):
        count = min(inputs, shape.ic - first)
        channels = slice(first * multiplier, (first + count) * multiplier)
        pixels = _pixels(shape, fill, first, count, results.machine, scratch)
        sums = _sums_by_pixels(shape, pixels, _factors(shape, weights[channels], scratch), scratch)
        _store_pixels(shape, sums, channels.start, results, scratch)


def _store_pixels(shape: Window, sums: NDArray[np.float32], first: int, results: Results, scratch: Scratch) -> None:
    """Results of (OH * OW, channels) sums to the planes of the output."""
    pixels, channels = sums.shape
    dtype = results.finish.dtype
    result = scratch.array("result", (pixels, channels + _SKEW), dtype)[:, :channels]
    results.write(sums, result, first, 1)
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


def _sums_by_pixels(
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
