"""Sliding windows: their geometry, views of their input, and convolutions.

There are no index arrays, only strides.

``OP_CONV`` and ``OP_GROUP_CONV`` are exact matrix products of raw int8 values, one per group; the
zero point is part of the bias, as in the instruction. ``OP_DEPTH_CONV``, and ``OP_CONV`` with one
input and one output channel (an emulated depthwise filter), are computed in one of two ways, chosen
by shape. Sums of at most 1024 products are exact in float32 in any order
(see `products`).

- By planes, for large planes or few channels. The input is copied to float32 once per kernel
  column. Each copy contains exactly the columns of the outputs, and its rows are split by their
  phase under the stride. All outputs of a channel are then one contiguous run for every tap, and
  ``einsum`` multiplies and adds them in one pass.
- By pixels, for small planes. These are transposed to float32 (rows, phases, columns, channels),
  columns split by their phase under the stride. A tap of a whole row of outputs is then one
  contiguous run of OW * C elements; so are its weights, repeated OW times.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Workspace
from dla_sim.kernels.products import Products, add_chunks, products
from dla_sim.kernels.results import ResultConverter
from dla_sim.kernels.windows import PlaneSource, WindowRegisters, prepare_window, source, window
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.windows import ACCUMULATE, element_bytes

_BLOCK_ELEMENTS = 1 << 20
"""Maximum elements of the two large operands of one matrix product.

Few calls matter more than cache sizes, which BLAS handles.
"""


def convolution(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_CONV``; None if the kernel cannot execute the command."""
    element = element_bytes(command)
    shape = window(command, element)
    if shape is None:
        return None
    return _prepare(shape, 1, element, command, arch)


def prepare_grouped(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_GROUP_CONV``; None if the kernel cannot execute the command."""
    element = element_bytes(command)
    shape = window(command, element)
    groups = command["EX_GROUPS"]
    if shape is None or not groups or shape.ic % groups or shape.oc % groups:
        return None
    return _prepare(shape, groups, element, command, arch)


def _prepare(
    shape: WindowRegisters, groups: int, element: int, command: Command, arch: Arch
) -> Attempt | None:
    alone = not command.fields.get(ACCUMULATE.name, 0)
    if shape.ic == groups and (groups > 1 or shape.oc == 1) and alone:
        return depthwise_window(shape, element, command, arch)
    taps = shape.ic // groups * shape.kh * shape.kw
    weights = command["EX_OPERAND_ADDRESS"]
    fill = command["EX_INPUT_ZERO_POINT"]
    way = products(shape.oc // groups * taps * shape.pixels)
    run = _Convolution(_groups(shape, groups), weights, fill, way).run
    return prepare_window(shape, taps, element, command, arch, run)


def _groups(shape: WindowRegisters, groups: int) -> tuple[WindowRegisters, ...]:
    if groups == 1:
        return (shape,)
    inputs = shape.ic // groups
    outputs = shape.oc // groups
    return tuple(
        replace(
            shape,
            ic=inputs,
            oc=outputs,
            input=shape.input + group * inputs * shape.input_plane,
            output=shape.output + group * outputs * shape.output_plane,
        )
        for group in range(groups)
    )


@dataclass(frozen=True, eq=False)
class _Convolution:
    """Convolution prepared from a command: sliding windows, weight address and padding value.

    It also holds the address of the weights and the padding value.
    """

    groups: tuple[WindowRegisters, ...]
    weights: int
    fill: int
    way: Products

    def run(self, results: ResultConverter, scratch: Workspace) -> None:
        machine = results.machine
        for number, shape in enumerate(self.groups):
            size = shape.oc, shape.ic * shape.kh * shape.kw
            stored = np.ndarray(
                size, np.int8, machine.sram, self.weights + number * size[0] * size[1]
            )
            weights = self.way.prepare_left(stored, scratch)
            planes = source(shape, machine, scratch, self.fill)
            _Group(planes, weights, self.way, scratch).run(shape, number * shape.oc, results)


@dataclass(frozen=True, eq=False)
class _Group:
    """Inputs and weights of one group of a running convolution.

    The weights are in the form that ``way`` needs.
    """

    planes: PlaneSource
    weights: NDArray[Any]
    way: Products
    scratch: Workspace

    def run(self, shape: WindowRegisters, first: int, results: ResultConverter) -> None:
        """Compute a convolution group in blocks of outputs.

        ``first`` is the number of the window's first channel in the command.
        """
        budget = max(_BLOCK_ELEMENTS // (self.weights.shape[1] + shape.oc), 1)
        if budget >= shape.pixels:
            results.store(self._sums(shape, 0), shape.output, shape.output_plane, first, 0)
            return
        rows, columns = (budget // shape.ow, shape.ow) if budget >= shape.ow else (1, budget)
        for top in range(0, shape.oh, rows):
            for left in range(0, shape.ow, columns):
                part = replace(
                    shape,
                    oh=min(rows, shape.oh - top),
                    ow=min(columns, shape.ow - left),
                    output=shape.output
                    + (top * shape.ow + left) * np.dtype(results.finish.dtype).itemsize,
                )
                sums = self._sums(part, top * shape.sy * self.planes.row + left * self.planes.step)
                results.store(sums, part.output, part.output_plane, first, 0, top * shape.ow + left)

    def _sums(self, part: WindowRegisters, skip: int) -> NDArray[Any]:
        """Return the exact convolution sums (OC, OH * OW) of one block of outputs."""
        taps = part.kh * part.kw
        chunk = self.way.longest // taps
        if part.ic <= chunk:
            return self._product(part, 0, part.ic, skip)
        parts = (
            self._product(part, first, min(chunk, part.ic - first), skip)
            for first in range(0, part.ic, chunk)
        )
        return add_chunks(parts, (part.oc, part.pixels), self.scratch)

    def _product(self, part: WindowRegisters, first: int, channels: int, skip: int) -> NDArray[Any]:
        """Return the convolution sums (OC, OH * OW) over some input channels."""
        planes = self.planes
        taps = part.kh * part.kw
        skip += first * planes.plane
        weights = (
            self.weights
            if channels == part.ic
            else self.weights[:, first * taps : (first + channels) * taps]
        )
        if taps == 1 and part.sy == 1 and planes.step == 1 and planes.row == part.ow:
            stored = planes.view((channels, part.pixels), (planes.plane, 1), skip)
            return self.way.multiply(weights, self.way.right(stored, self.scratch), self.scratch)
        size = channels, part.kh, part.kw, part.oh, part.ow
        columns = self.scratch.array("columns", size, self.way.dtype)
        strides = (part.dx, planes.plane, part.dy * planes.row, part.sy * planes.row, planes.step)
        target = columns.transpose(2, 0, 1, 3, 4)
        np.copyto(target, planes.view(target.shape, strides, skip))
        return self.way.multiply(weights, columns.reshape(-1, part.pixels), self.scratch)


_FEW_PIXELS = 400
_NARROW = 28
_MANY_CHANNELS = 16
"""Largest plane and row of outputs, and fewest channels, for computation by pixels.

Within these limits it is faster than the computation by planes.
"""
_PLANE_ELEMENTS = 1 << 20
"""Elements of the float32 copies of one block of channels, by planes."""
_PIXEL_ELEMENTS = 1 << 19
"""Elements of the float32 planes of one block of channels, by pixels."""
_SKEW = 16
"""Elements added to each row of the result before it is transposed.

The row length is often a power of two; the columns of such a matrix would share a few sets of the
first-level cache.
"""


def depthwise(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_DEPTH_CONV``; None if the kernel cannot execute the command."""
    element = element_bytes(command)
    shape = window(command, element)
    return None if shape is None else depthwise_window(shape, element, command, arch)


def depthwise_window(
    shape: WindowRegisters, element: int, command: Command, arch: Arch
) -> Attempt | None:
    """Prepare a depthwise convolution of a known window with outputs of ``element`` bytes."""
    if shape.oc % shape.ic:
        return None
    weights = command["EX_OPERAND_ADDRESS"]
    fill = command["EX_INPUT_ZERO_POINT"]
    few = shape.pixels <= _FEW_PIXELS and shape.ow <= _NARROW and shape.oc >= _MANY_CHANNELS
    compute = compute_by_pixels if few else compute_by_planes

    def run(results: ResultConverter, scratch: Workspace) -> None:
        factors = np.ndarray((shape.oc, shape.kh, shape.kw), np.int8, results.machine.sram, weights)
        compute(shape, fill, factors, results, scratch)

    return prepare_window(shape, shape.kh * shape.kw, element, command, arch, run)


def compute_by_planes(
    shape: WindowRegisters,
    fill: int,
    weights: NDArray[np.int8],
    results: ResultConverter,
    scratch: Workspace,
) -> None:
    """Compute a depthwise convolution plane by plane.

    ``weights`` are int8 (OC, KH, KW), ``fill`` is the padding value.
    """
    multiplier = shape.oc // shape.ic
    planes = source(shape, results.machine, scratch, fill)
    factors = weights.astype(np.float32).transpose(2, 1, 0)
    height = -(-shape.rows // shape.sy)
    inputs = max(_PLANE_ELEMENTS // (multiplier * shape.kw * shape.sy * height * shape.ow), 1)
    for first in range(0, shape.ic, inputs):
        count = min(inputs, shape.ic - first)
        channel = first * multiplier
        channels = count * multiplier
        copies = _copies(shape, planes, first, count, scratch)
        sums = _sums_by_planes(shape, copies, factors[:, :, channel : channel + channels], scratch)
        results.store(
            sums, shape.output + channel * shape.output_plane, shape.output_plane, channel, 0
        )


def _copies(
    shape: WindowRegisters, planes: PlaneSource, first: int, count: int, scratch: Workspace
) -> NDArray[np.float32]:
    """Return the input columns that each kernel column reads, for some channels, as float32.

    The shape is (KW, channels, phases, rows, OW).

    Row r of the input is row r // sy of phase r % sy.
    """
    multiplier = shape.oc // shape.ic
    phases = shape.sy
    height = -(-shape.rows // shape.sy)
    full = scratch.array(
        "copies", (shape.kw, count, multiplier, phases, height, shape.ow), np.float32
    )
    strides = (shape.dx, planes.plane, 0, shape.sy * planes.row, planes.step)
    for phase in range(min(phases, shape.rows)):
        rows = -(-(shape.rows - phase) // shape.sy)
        skip = first * planes.plane + phase * planes.row
        part = full[:, :, :, phase, :rows]
        np.copyto(part, planes.view(part.shape, strides, skip))
    return full.reshape(shape.kw, count * multiplier, phases, height, shape.ow)


def _sums_by_planes(
    shape: WindowRegisters,
    copies: NDArray[np.float32],
    factors: NDArray[np.float32],
    scratch: Workspace,
) -> NDArray[np.float32]:
    """Return the float32 sums (channels, OH * OW) of products over all taps.

    ``factors`` is (KW, KH, channels). Kernel rows whose input rows have the same phase are added in
    one call.
    """
    channels = copies.shape[1]
    total: NDArray[np.float32] = scratch.array("sums", (channels, shape.pixels), np.float32)
    kernel_column, plane, phase, row, _ = copies.strides
    period = shape.sy // gcd(shape.sy, shape.dy)
    for first in range(min(period, shape.kh)):
        start = first * shape.dy
        step = period * shape.dy // shape.sy
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


def compute_by_pixels(
    shape: WindowRegisters,
    fill: int,
    weights: NDArray[np.int8],
    results: ResultConverter,
    scratch: Workspace,
) -> None:
    """Compute a depthwise convolution pixel by pixel.

    ``weights`` are int8 (OC, KH, KW), ``fill`` is the padding value.
    """
    multiplier = shape.oc // shape.ic
    inputs = max(_PIXEL_ELEMENTS // (multiplier * shape.rows * shape.columns), 1)
    for first in range(0, shape.ic, inputs):
        count = min(inputs, shape.ic - first)
        channels = slice(first * multiplier, (first + count) * multiplier)
        pixels = _pixels(shape, fill, first, count, results.machine, scratch)
        factors = _factors(shape, weights[channels], scratch)
        sums = bind_sums_by_pixels(shape, pixels, factors.shape, scratch)(factors)
        _store_pixels(shape, sums, channels.start, results, scratch)


def _store_pixels(
    shape: WindowRegisters,
    sums: NDArray[np.float32],
    first: int,
    results: ResultConverter,
    scratch: Workspace,
) -> None:
    """Write the results of sums (OH * OW, channels) to the output planes."""
    pixels, channels = sums.shape
    dtype = results.finish.dtype
    result = scratch.array("result", (pixels, channels + _SKEW), dtype)[:, :channels]
    results.write(sums, result, first, 1)
    np.copyto(shape.output_view(results.machine.sram, dtype, first, channels), result.T)


def _pixels(
    shape: WindowRegisters, fill: int, first: int, count: int, machine: Machine, scratch: Workspace
) -> NDArray[np.float32]:
    """Return some input channels, with padding, as float32 (rows, phases, columns, channels).

    Each channel is repeated once per output channel that reads it.
    """
    multiplier = shape.oc // shape.ic
    size = (shape.rows, shape.sx, -(-shape.columns // shape.sx), count, multiplier)
    pixels: NDArray[np.float32] = scratch.array("pixels", size, np.float32)
    if shape.padded:
        pixels.fill(fill)
    address = shape.input + first * shape.input_plane
    top = shape.top
    bottom = min(shape.rows, shape.top + shape.ih)
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


def _factors(
    shape: WindowRegisters, weights: NDArray[np.int8], scratch: Workspace
) -> NDArray[np.float32]:
    """Return weights as float32 (KW, KH, OW * channels), repeated for each output column."""
    channels = len(weights)
    short = scratch.array("short factors", (shape.kw, shape.kh, channels), np.float32)
    np.copyto(short, weights.transpose(2, 1, 0))
    full: NDArray[np.float32] = scratch.array(
        "factors", (shape.kw, shape.kh, shape.ow, channels), np.float32
    )
    np.copyto(full, short[:, :, None])
    return full.reshape(shape.kw, shape.kh, shape.ow * channels)


def bind_sums_by_pixels(
    shape: WindowRegisters,
    pixels: NDArray[np.float32],
    size: tuple[int, ...],
    scratch: Workspace,
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Return a function from the weights to float32 sums (OH * OW, channels) over all taps.

    The weights have the shape ``size``: (KW, KH, OW * channels).
    """
    run = size[2]
    total: NDArray[np.float32] = scratch.array("sums", (shape.oh, run), np.float32)
    row, phase, column, _ = pixels.strides
    period = shape.sx // gcd(shape.sx, shape.dx)
    taps = []
    for first in range(min(period, shape.kw)):
        taken = range(first, shape.kw, period)
        start = first * shape.dx
        step = period * shape.dx // shape.sx
        skip = phase * (start % shape.sx) + column * (start // shape.sx)
        strides = step * column, shape.dy * row, shape.sy * row, 4
        taps.append(
            np.ndarray((len(taken), shape.kh, shape.oh, run), np.float32, pixels, skip, strides)
        )
    sums = total.reshape(shape.oh * shape.ow, -1)

    def add(factors: NDArray[np.float32]) -> NDArray[np.float32]:
        np.einsum("xyq,xyrq->rq", factors[::period], taps[0], out=total)
        for first, others in enumerate(taps[1:], 1):
            part = scratch.array("part", total.shape, np.float32)
            np.einsum("xyq,xyrq->rq", factors[first::period], others, out=part)
            np.add(total, part, out=total)
        return sums

    return add
