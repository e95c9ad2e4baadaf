"""``OP_DEPTH_CONV``, and ``OP_CONV`` with one input and one output channel (an emulated depthwise filter).

The input becomes float32 in one copy a kernel column, each with exactly the columns of the outputs, rows split by their
phase under the stride. Then all outputs of a channel are one contiguous run for every tap, and ``einsum`` multiplies
and adds them up in one pass. Sums of at most 1024 products are exact in float32 (see `convolution`).
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.depthwise_pixels import by_pixels
from dla_sim.kernels.overlaps import operands_apart
from dla_sim.kernels.products import CHUNK
from dla_sim.kernels.results import Results, results
from dla_sim.kernels.scratch import Scratch
from dla_sim.kernels.windows import Source, Window, source, window
from isa.instruction import Command, Machine
from isa.ops.convolution import element_bytes, lower_limit

_FEW_PIXELS = 400
_MANY_CHANNELS = 16
"""Up to so many outputs a plane, from so many channels on, it is faster with the channels innermost."""
_BLOCK_ELEMENTS = 1 << 20
"""Elements of the float32 copies of one block of channels."""


def depthwise(command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes the command; False, with nothing written, for what is left to the semantics."""
    element = element_bytes(command)
    shape = window(command, element)
    return shape is not None and depthwise_window(shape, element, command, machine, scratch)


def depthwise_window(shape: Window, element: int, command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes a depthwise convolution of a known window; False as `depthwise`."""
    taps = shape.kh * shape.kw
    if shape.oc % shape.ic or taps > CHUNK:
        return False
    if not operands_apart(shape, element, shape.oc * taps, command, machine):
        return False
    found = results(command, machine, shape.oc, taps, lower_limit(command))
    if found is None:
        return False
    zero_point = command["EX_INPUT_ZERO_POINT"]
    raw = np.ndarray((shape.oc, shape.kh, shape.kw), np.int8, machine.sram, command["EX_OPERAND_ADDRESS"])
    dtype = np.int8 if element == 1 else np.int32
    if shape.oh * shape.ow <= _FEW_PIXELS and shape.oc >= _MANY_CHANNELS:
        if shape.padded and not -128 <= zero_point <= 127:
            return False
        by_pixels(shape, dtype, raw, found, scratch)
        return True
    planes = source(shape, command, machine, scratch, zero_point)
    if planes is None:
        return False
    _by_planes(shape, dtype, planes, raw.astype(np.float32), found, scratch)
    return True


def _by_planes(
    shape: Window, dtype: Any, planes: Source, weights: NDArray[np.float32], found: Results, scratch: Scratch
) -> None:
    multiplier = shape.oc // shape.ic
    phases, height = _phases(shape)
    inputs = max(_BLOCK_ELEMENTS // (multiplier * shape.kw * phases * height * shape.ow), 1)
    pixels = shape.oh * shape.ow
    element = np.dtype(dtype).itemsize
    for first in range(0, shape.ic, inputs):
        count = min(inputs, shape.ic - first)
        channels = slice(first * multiplier, (first + count) * multiplier)
        copies = _copies(shape, planes, first, count, scratch)
        sums = _sums(shape, copies, weights[channels], scratch)
        address = found.command["EX_OUTPUT_ADDRESS"] + channels.start * shape.output_plane
        strides = (shape.output_plane, element)
        output: NDArray[Any] = np.ndarray((count * multiplier, pixels), dtype, found.machine.sram, address, strides)
        found.store(sums, output, channels.start, 0)


def _phases(shape: Window) -> tuple[int, int]:
    """(phases of the rows, rows of each) of the float32 copies: row r of the input is row r // sy of phase r % sy."""
    return shape.sy, -(-shape.rows // shape.sy)


def _copies(shape: Window, planes: Source, first: int, count: int, scratch: Scratch) -> NDArray[np.float32]:
    """(KW, channels, phases, rows, OW) float32: the columns that each kernel column reads, for some channels."""
    multiplier = shape.oc // shape.ic
    phases, height = _phases(shape)
    full = scratch.array("copies", (shape.kw, count, multiplier, phases, height, shape.ow), np.float32)
    strides = (planes.plane, 0, shape.sy * planes.row, planes.step)
    for phase in range(phases):
        rows = -(-(shape.rows - phase) // shape.sy)
        skip = first * planes.plane + phase * planes.row
        planes.copy_taps(full[:, :, :, phase, :rows], strides, skip, shape.dx)
    return full.reshape(shape.kw, count * multiplier, phases, height, shape.ow)


def _row_groups(shape: Window) -> list[slice]:
    """The kernel rows, grouped by the phase of the input rows that they read."""
    period = shape.sy // gcd(shape.sy, shape.dy)
    return [slice(first, shape.kh, period) for first in range(min(period, shape.kh))]


def _sums(
    shape: Window, copies: NDArray[np.float32], weights: NDArray[np.float32], scratch: Scratch
) -> NDArray[np.float32]:
    """(channels, OH * OW) float32 sums of products over all taps."""
    channels, pixels = copies.shape[1], shape.oh * shape.ow
    total: NDArray[np.float32] = scratch.array("sums", (channels, pixels), np.float32)
    for number, rows in enumerate(_row_groups(shape)):
        taken = range(shape.kh)[rows]
        start, step = taken[0] * shape.dy, taken.step * shape.dy // shape.sy
        skip = copies.strides[2] * (start % shape.sy) + copies.strides[3] * (start // shape.sy)
        size = (shape.kw, len(taken), channels, pixels)
        strides = (copies.strides[0], step * copies.strides[3], copies.strides[1], 4)
        taps = np.ndarray(size, np.float32, copies, skip, strides)
        factors = weights[:, rows].transpose(2, 1, 0)
        if number == 0:
            np.einsum("xyc,xycp->cp", factors, taps, out=total)
        else:
            part = scratch.array("part", (channels, pixels), np.float32)
            np.add(total, np.einsum("xyc,xycp->cp", factors, taps, out=part), out=total)
    return total
