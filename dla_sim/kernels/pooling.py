"""Kernel of ``OP_POOL``.

It computes maxima of shifted rows and columns, ONNX Runtime's running float32 sum, or global
averages.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Workspace, disjoint, highest
from dla_sim.kernels.windows import PlaneSource, WindowRegisters, source, window
from isa import numerics
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE, MAX
from isa.registers import float_value

_SANE = (1e-20, 1e20)


def pooling(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_POOL``; None if the kernel cannot execute the command."""
    shape = window(command, 1)
    mode = command.fields["mode"]
    if shape is None or command["EX_CLAMP_LOW"] > command["EX_CLAMP_HIGH"]:
        return None
    if mode == GLOBAL_AVERAGE:
        shape = replace(shape, oh=1, ow=1, output_plane=command["EX_OUTPUT_PLANE"] or 1)
    shape = replace(shape, oc=shape.ic)
    if shape.output_plane < shape.oh * shape.ow and shape.oc > 1:
        return None
    result = shape.output, shape.output + shape.output_bytes(1)
    data = shape.input, shape.input + shape.input_bytes
    if not disjoint(result, (data,)) or (mode != MAX and arch.numerics != "onnxruntime"):
        return None
    pool = {MAX: _maximum, AVERAGE: _average}.get(mode, _global_average)
    end = highest(result, data)
    size = (shape.oc, shape.oh, shape.ow)
    strides = shape.output_plane, shape.ow, 1

    def attempt(machine: Machine, scratch: Workspace) -> bool:
        if end > machine.sram.size:
            return False
        target = np.ndarray(size, np.int8, machine.sram, shape.output, strides)
        return pool(shape, command, machine, scratch, target)

    return attempt


def _maximum(
    shape: WindowRegisters,
    command: Command,
    machine: Machine,
    scratch: Workspace,
    target: NDArray[np.int8],
) -> bool:
    """Compute max pooling: maxima over the rows of each window, then over its columns."""
    planes = source(shape, machine, scratch, -128)
    tall: NDArray[np.int8] = scratch.array("rows", (shape.ic, shape.oh, shape.columns), np.int8)
    for row in range(shape.kh):
        taken = planes.view(
            tall.shape, (planes.plane, shape.sy * planes.row, 1), row * shape.dy * planes.row
        )
        if row == 0:
            np.copyto(tall, taken)
        else:
            np.maximum(tall, taken, out=tall)
    wide: NDArray[np.int8] = scratch.array("columns", (shape.ic, shape.oh, shape.columns), np.int8)
    length = (shape.ow - 1) * shape.sx + 1
    best = wide[:, :, :length]
    np.copyto(best, tall[:, :, :length])
    for column in range(1, shape.kw):
        skip = column * shape.dx
        np.maximum(best, tall[:, :, skip : skip + length], out=best)
    np.clip(best[:, :, :: shape.sx], command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"], out=target)
    return True


def _average(
    shape: WindowRegisters,
    command: Command,
    machine: Machine,
    scratch: Workspace,
    target: NDArray[np.int8],
) -> bool:
    """Compute average pooling as a running float32 sum of dequantised taps, row by row.

    Padding adds nothing.
    """
    offset = command["EX_OFFSET"]
    zero_point = command["EX_INPUT_ZERO_POINT"]
    input_scale = float_value(command["EX_SCALE_A"])
    output_scale = float_value(command["EX_SCALE_Y"])
    if not all(_SANE[0] < scale < _SANE[1] for scale in (input_scale, output_scale)):
        return False
    count = _counts(shape, command)
    if not count.all():
        return False
    values = _dequantise_input(
        shape, machine, scratch, offset - zero_point, np.float32(input_scale)
    )
    total: NDArray[np.float32] = scratch.array("sums", target.shape, np.float32)
    total.fill(0)
    for row in range(shape.kh):
        rows = slice(row * shape.dy, row * shape.dy + (shape.oh - 1) * shape.sy + 1, shape.sy)
        for column in range(shape.kw):
            first = column * shape.dx
            np.add(
                total,
                values[:, rows, first : first + (shape.ow - 1) * shape.sx + 1 : shape.sx],
                out=total,
            )
    np.divide(total, count.astype(np.float32), out=total)
    np.divide(total, np.float32(output_scale), out=total)
    np.add(total, np.float32(command["EX_OUTPUT_ZERO_POINT"]), out=total)
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    numerics.requantise_float32(total, np.ones((), np.float32), -offset, low, high, out=target)
    return True


def _counts(shape: WindowRegisters, command: Command) -> NDArray[np.int64]:
    """Return the divisor of each output (OH, OW) of an average pooling.

    A divisor is the number of taps inside the input, or of all taps if padding counts.
    """
    if command.fields["count_include_pad"]:
        return np.full((shape.oh, shape.ow), shape.kh * shape.kw, dtype=np.int64)
    rows = _count_taps_inside(shape.oh, shape.sy, shape.kh, shape.dy, shape.top, shape.ih)
    columns = _count_taps_inside(shape.ow, shape.sx, shape.kw, shape.dx, shape.left, shape.iw)
    return rows[:, None] * columns


def _count_taps_inside(
    outputs: int, stride: int, taps: int, dilation: int, pad: int, size: int
) -> NDArray[np.int64]:
    """Return, for each output along one axis, the number of taps inside the input."""
    position = np.arange(outputs)[:, None] * stride + np.arange(taps) * dilation - pad
    inside: NDArray[np.int64] = ((position >= 0) & (position < size)).sum(axis=1)
    return inside


def _dequantise_input(
    shape: WindowRegisters,
    machine: Machine,
    scratch: Workspace,
    offset: int,
    scale: np.float32,
) -> NDArray[np.float32]:
    """Return float32 (x + offset) * scale as (IC, rows, columns), with 0 in the padding."""
    rows = shape.rows
    columns = shape.columns
    values: NDArray[np.float32] = scratch.array("columns", (shape.ic, rows, columns), np.float32)
    values.fill(0)
    bottom = min(rows, shape.top + shape.ih)
    right = min(columns, shape.left + shape.iw)
    if bottom > shape.top and right > shape.left:
        planes = PlaneSource(machine.sram, shape.input, shape.input_plane, shape.iw, 1)
        size = (shape.ic, bottom - shape.top, right - shape.left)
        inner = values[:, shape.top : bottom, shape.left : right]
        np.add(planes.view(size, (planes.plane, planes.row, 1)), np.float32(offset), out=inner)
        np.multiply(inner, scale, out=inner)
    return values


def _global_average(
    shape: WindowRegisters,
    command: Command,
    machine: Machine,
    scratch: Workspace,
    target: NDArray[np.int8],
) -> bool:
    """Compute an average pooling whose window is the whole plane.

    The sum of each plane, exact in float32, is scaled as in the semantics.
    """
    pixels = shape.ih * shape.iw
    if pixels * 128 > 1 << 24:
        return False
    planes = PlaneSource(machine.sram, shape.input, shape.input_plane, shape.iw, 1)
    data = planes.view((shape.ic, pixels), (planes.plane, 1)).astype(np.float32)
    totals = data.sum(axis=1).astype(np.int64) - pixels * command["EX_INPUT_ZERO_POINT"]
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    zero_point = command["EX_OUTPUT_ZERO_POINT"]
    factor = np.float32(float_value(command["EX_SCALE_A"]))
    target[:, 0, 0] = numerics.global_average(totals, factor, zero_point, low, high)
    return True
