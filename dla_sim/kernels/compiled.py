"""Kernels that numba compiles: one pass where NumPy takes several. They need the extra ``fast``, and time to load.

They are plain Python on arrays and numbers, equal to what they stand for to the bit: integers are exact, and each
float32 operation is rounded once, in the order written; nothing may be fused or reordered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError

Bytes = NDArray[np.int8]
Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]
Limits = tuple[float, float, int]
"""Lowest and highest scaled value, integers below 2**17, and what is added to it: the zero point of the result."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """The compiled functions: see those of the same names."""

    requantise_rows: Callable[..., None]
    requantise_columns: Callable[..., None]
    depthwise: Callable[..., None]


@cache
def load_compiled() -> Compiled:
    """All of them, ready; compiled when they are loaded for the first time, later read from numba's cache.

    Raises InputError where numba is not installed.
    """
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError as error:
        raise InputError("compiled kernels need numba: pip install 'dla-byoc-simulator[fast]'") from error
    for helper in (_requantised, _pad, _add_kernel_row):
        register_jitable(helper)
    record = "int32[::1], float32[::1], Tuple((float64, float64, int64)), int8[::1], int64"
    return Compiled(
        _compile(numba, requantise_rows, f"void(int32[:, ::1], {record}, int64)"),
        _compile(numba, requantise_columns, f"void(int32[:, ::1], {record})"),
        _compile(
            numba,
            depthwise,
            f"void(UniTuple(int64, 8), int8[::1], UniTuple(int64, 9), int8[::1], int32[::1], {record}, int64)",
        ),
    )


def _compile(numba: Any, function: Callable[..., None], signature: str) -> Callable[..., None]:
    try:
        compiled: Callable[..., None] = numba.njit(signature, error_model="numpy", cache=True)(function)
    except RuntimeError:  # there is no folder to keep it in
        compiled = numba.njit(signature, error_model="numpy")(function)
    return compiled


def _requantised(total: np.int32, scale: np.float32, limits: Limits) -> np.int8:
    scaled = min(max(np.float32(total) * scale, np.float32(limits[0])), np.float32(limits[1]))
    return np.int8(np.int32(np.rint(scaled)) + limits[2])


def requantise_rows(
    sums: Int32, bias: Int32, scale: Float32, limits: Limits, memory: Bytes, start: int, step: int
) -> None:
    """Requantises ``sums`` (channels, results) with a bias and scale a channel: row c to ``memory[start + c*step :]``.

    ``numerics.requantise`` of sum plus bias, which the caller knows to fit int32.
    """
    count = sums.shape[1]
    for channel in range(sums.shape[0]):
        row, initial, factor = sums[channel], bias[channel], scale[channel]
        target = memory[start + channel * step : start + channel * step + count]
        for place in range(count):
            target[place] = _requantised(np.int32(row[place] + initial), factor, limits)


def requantise_columns(sums: Int32, bias: Int32, scale: Float32, limits: Limits, memory: Bytes, start: int) -> None:
    """As :func:`requantise_rows`, of ``sums`` (results, channels), to dense rows from ``memory[start]`` on."""
    count = sums.shape[1]
    for number in range(sums.shape[0]):
        row = sums[number]
        target = memory[start + number * count : start + (number + 1) * count]
        for place in range(count):
            target[place] = _requantised(np.int32(row[place] + bias[place]), scale[place], limits)


Planes = tuple[int, int, int, int, int, int, int, int]
"""Address, bytes from plane to plane, channels, rows, columns, padding at the top and left, and what it reads."""
Taps = tuple[int, int, int, int, int, int, int, int, int]
"""Kernel rows and columns, strides, dilations, output rows and columns, output channels an input channel."""


def depthwise(
    planes: Planes,
    weights: Bytes,
    taps: Taps,
    padded: Bytes,
    sums: Int32,
    bias: Int32,
    scale: Float32,
    limits: Limits,
    memory: Bytes,
    start: int,
    step: int,
) -> None:
    """A depthwise convolution of ``planes`` of ``memory``, requantised to planes ``step`` bytes apart, from ``start``.

    ``sums`` has room for the output rows at stride 1 along a row, each as wide as what all its windows reach over; that
    much longer than they are, it is one run for every tap. ``padded`` has room for as many rows as the windows reach
    over, up to a multiple of the stride, and for what the last kernel row reads beyond.
    """
    kh, kw, sy, sx, dy, dx, oh, ow, multiplier = taps
    width = len(sums) // oh
    rows = (oh - 1) * sy + (kh - 1) * dy + 1
    phase = (rows + sy - 1) // sy * width
    for channel in range(planes[2]):
        _pad(planes, channel, memory, padded, sy, rows, width, phase)
        for output in range(channel * multiplier, (channel + 1) * multiplier):
            sums[:] = bias[output]
            for row in range(kh):
                first = output * kh * kw + row * kw
                _add_kernel_row(
                    sums, padded[row * dy % sy * phase + row * dy // sy * width :], weights[first : first + kw], dx
                )
            factor = scale[output]
            for y in range(oh):
                found = sums[y * width : (y + 1) * width]
                begin = start + output * step + y * ow
                target = memory[begin : begin + ow]
                if sx == 1:  # apart, so that it becomes vectors
                    for x in range(ow):
                        target[x] = _requantised(found[x], factor, limits)
                else:
                    for x in range(ow):
                        target[x] = _requantised(found[sx * x], factor, limits)


def _pad(
    planes: Planes, channel: int, memory: Bytes, padded: Bytes, sy: int, rows: int, width: int, phase: int
) -> None:
    """A plane with its padding: row r is row r // sy of phase r % sy, which are ``phase`` elements apart."""
    address, plane, _, ih, iw, top, left, fill = planes
    padded[:] = fill
    inside = max(min(iw, width - left), 0)
    for first in range(sy):
        at = (first + top) % sy * phase + (first + top) // sy * width + left
        for y in range(first, min(ih, rows - top), sy):
            begin = address + channel * plane + y * iw
            row, copy = memory[begin : begin + inside], padded[at : at + inside]
            for x in range(inside):
                copy[x] = row[x]
            at += width


def _add_kernel_row(sums: Int32, padded: Bytes, weights: Bytes, dx: int) -> None:
    """Adds the products with the weights of a kernel row, three at a time, to all sums."""
    count, taps = len(sums), len(weights)
    for k in range(0, taps - 2, 3):
        at = k * dx
        x0, x1, x2 = padded[at : at + count], padded[at + dx : at + dx + count], padded[at + 2 * dx :]
        f0, f1, f2 = np.int32(weights[k]), np.int32(weights[k + 1]), np.int32(weights[k + 2])
        for p in range(count):
            sums[p] += f0 * np.int32(x0[p]) + f1 * np.int32(x1[p]) + f2 * np.int32(x2[p])
    for k in range(taps - taps % 3, taps):
        x0, f0 = padded[k * dx : k * dx + count], np.int32(weights[k])
        for p in range(count):
            sums[p] += f0 * np.int32(x0[p])
