"""Kernels compiled by numba: one pass over the data where NumPy needs several.

They require the extra ``fast``, and time to load. The functions are plain Python on arrays and
numbers, and bit-identical to the NumPy code that they replace: integers are exact, and each float32
operation is rounded once, in source order. The compiler must not fuse or reorder operations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.errors import MissingExtraError
from isa.installation import remedy

Bytes = NDArray[np.int8]
Int32 = NDArray[np.int32]
Limits = tuple[float, float, int]
"""Lowest and highest scaled value (integers below 2**17), and the zero point added to the
result.
"""


@dataclass(frozen=True, eq=False)
class Compiled:
    """Kernels compiled by numba; each has the name of its Python function in this module."""

    records_fit: Callable[..., bool]
    requantise_rows: Callable[..., None]
    requantise_columns: Callable[..., None]
    depthwise: Callable[..., None]
    run_steps: Callable[..., None]
    group: int
    deepest: int


@cache
def load_compiled() -> Compiled:
    """Return the kernels that numba compiles.

    The first call compiles them, later processes read numba's cache.

    Raises InputError if numba is not installed.
    """
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError as error:
        raise MissingExtraError(
            f"compiled kernels need numba; install it with: {remedy('fast')}"
        ) from error
    from dla_sim.kernels import stepping

    for helper in (_requantise, _scale, _take, _stack, _add_kernel_row, _pick):
        register_jitable(helper)
    ended = "int32[:, ::1], Tuple((float64, float64, int64)), int8[::1], int64"
    return Compiled(
        _compile(numba, can_use_records, "boolean(int32[:, ::1], int64, float64)"),
        _compile(numba, requantise_rows, f"void(int32[:, ::1], {ended}, int64)"),
        _compile(numba, requantise_columns, f"void(int32[:, ::1], {ended})"),
        _compile(
            numba, depthwise, f"void(UniTuple(int64, 8), UniTuple(int64, 9), int64, {ended}, int64)"
        ),
        stepping.run_steps,
        stepping.GROUP,
        max(positions for _, positions in stepping.SIZES),
    )


def _compile(numba: Any, function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    try:
        compiled: Callable[..., Any] = numba.njit(signature, error_model="numpy", cache=True)(
            function
        )
    except RuntimeError:  # no folder for the cache is writable
        compiled = numba.njit(signature, error_model="numpy")(function)
    return compiled


def _requantise(total: np.int32, scale: np.float32, limits: Limits) -> np.int8:
    scaled = min(max(np.float32(total) * scale, np.float32(limits[0])), np.float32(limits[1]))
    return np.int8(np.int32(np.rint(scaled)) + limits[2])


def _scale(records: Int32, channel: int) -> np.float32:
    found: np.float32 = np.int32(records[channel, 1]).view(np.float32)
    return found


def can_use_records(records: Int32, largest_bias: int, largest_squares: float) -> bool:
    """Return True if the channels' biases and scales are small enough for compiled kernels.

    Every bias must be at most ``largest_bias``, and the sum of squared scales at most
    ``largest_squares``.

    Magnitudes of biases are compared; a scale that is not a number gives False. ``records``
    (channels, words) are channel records: the bias, and the bits of the float32 scale.
    """
    squares = 0.0
    for channel in range(len(records)):
        if abs(np.int64(records[channel, 0])) > largest_bias:
            return False
        squares += np.float64(_scale(records, channel)) ** 2
    return squares <= largest_squares


def requantise_rows(
    sums: Int32, records: Int32, limits: Limits, memory: Bytes, start: int, step: int
) -> None:
    """Requantise ``sums`` (channels, results) with each channel's record.

    Row c is written to ``memory[start + c*step :]``. It computes ``numerics.requantise`` of sum
    plus bias; the caller ensures that this fits int32.
    """
    count = sums.shape[1]
    for channel in range(sums.shape[0]):
        row = sums[channel]
        initial = records[channel, 0]
        factor = _scale(records, channel)
        target = memory[start + channel * step : start + channel * step + count]
        for place in range(count):
            target[place] = _requantise(np.int32(row[place] + initial), factor, limits)


def requantise_columns(
    sums: Int32, records: Int32, limits: Limits, memory: Bytes, start: int
) -> None:
    """Requantise ``sums`` (results, channels) and write dense rows from ``memory[start]`` on.

    Otherwise like :func:`requantise_rows`.
    """
    count = sums.shape[1]
    bias = np.empty(count, np.int32)
    scale = np.empty(count, np.float32)
    for channel in range(count):
        bias[channel] = records[channel, 0]
        scale[channel] = _scale(records, channel)
    for number in range(sums.shape[0]):
        row = sums[number]
        target = memory[start + number * count : start + (number + 1) * count]
        for place in range(count):
            target[place] = _requantise(np.int32(row[place] + bias[place]), scale[place], limits)


Planes = tuple[int, int, int, int, int, int, int, int]
"""Address, plane stride in bytes, channels, rows, columns, padding at the top, padding at the
left, padding value.
"""
Taps = tuple[int, int, int, int, int, int, int, int, int]
"""Kernel rows and columns, strides, dilations, output rows and columns, output channels per
input channel.
"""


def depthwise(
    planes: Planes,
    taps: Taps,
    weights: int,
    records: Int32,
    limits: Limits,
    memory: Bytes,
    start: int,
    step: int,
) -> None:
    """Compute a depthwise convolution of ``planes`` in ``memory``.

    The int8 output planes are written from ``start`` on. Output planes are ``step`` bytes apart.
    ``weights`` is the address of the int8 weights (OC, KH, KW). Every output must start in a column
    of the input: ``(OW - 1) * SX < columns``, which holds for any padding that does not widen the
    output. The input is copied once per kernel column, with the padding inserted, so each tap of an
    output plane is one run of bytes. Between the rows of outputs the run may contain surplus
    results, which are discarded.
    """
    kh, kw, sy, sx, dy, _, oh, ow, multiplier = taps
    rows, gap, columns = _stack(planes, taps, memory)
    every = sx if planes[4] % sx == 0 else 1
    width = planes[4] // every
    skip = sx // every
    size = len(columns) // kw
    sums = np.empty(((oh - 1) * sy + 1) * width, np.int32)
    found = np.empty(len(sums), np.int8)
    dense = sy == 1 and skip == 1 and ow == width
    for channel in range(planes[2] * multiplier):
        sums[:] = records[channel, 0]
        first = (channel // multiplier * rows + gap - planes[5]) * width
        for row in range(kh):
            begin = weights + (channel * kh + row) * kw
            _add_kernel_row(sums, columns, first + row * dy * width, size, memory, begin, kw)
        begin = start + channel * step
        factor = _scale(records, channel)
        target = memory[begin : begin + oh * ow]
        results = target if dense else found
        for place in range(len(results)):
            results[place] = _requantise(sums[place], factor, limits)
        if not dense:
            _pick(found, sy * width, skip, ow, target)


def _pick(found: Bytes, row: int, skip: int, columns: int, target: Bytes) -> None:
    """Copy every ``skip``-th element of each row to dense rows in ``target``.

    Dense rows have ``columns`` elements. Source rows are ``row`` elements apart.
    """
    for y in range(len(target) // columns):
        wanted = target[y * columns : (y + 1) * columns]
        values = found[y * row :]
        if skip == 1:
            for x in range(columns):
                wanted[x] = values[x]
        else:
            for x in range(columns):
                wanted[x] = values[skip * x]


def _stack(planes: Planes, taps: Taps, memory: Bytes) -> tuple[int, int, Bytes]:
    """Copy the input of a depthwise convolution once per kernel column.

    Returns the rows per channel, the padding rows before each channel, and the copies.

    Each copy contains the rows of all channels with padding between them. Its rows have all columns
    of the input or, if the stride divides their number, only the columns that start a window.
    Channels are a fixed number of elements apart.
    """
    address, plane, channels, ih, iw, top, left, fill = planes
    kh, kw, sy, sx, dy, dx, oh, _, _ = taps
    rows = (oh - 1) * sy + (kh - 1) * dy + 1
    inside = max(min(ih, rows - top), 0)
    gap = max(top, rows - top - inside)
    slack = left + kw * dx
    total = (channels * (gap + inside) + gap) * iw
    stacked = np.full(total + 2 * slack, fill, np.int8)
    for channel in range(channels):
        begin = slack + (channel * (gap + inside) + gap) * iw
        target = stacked[begin : begin + inside * iw]
        source = memory[address + channel * plane :]
        for place in range(len(target)):
            target[place] = source[place]
    every = sx if iw % sx == 0 else 1
    size = total // every
    columns = np.empty(kw * size, np.int8)
    for column in range(kw):
        shift = column * dx - left
        copy = columns[column * size : (column + 1) * size]
        _take(stacked, slack + shift, every, copy)
        for x in range(iw // every):
            if not 0 <= x * every + shift < iw:
                copy[x :: iw // every] = fill
    return gap + inside, gap, columns


def _take(source: Bytes, first: int, every: int, target: Bytes) -> None:
    """Copy every ``every``-th element of ``source``, from ``first`` on, to ``target``."""
    values = source[first:]
    if every == 1:
        for place in range(len(target)):
            target[place] = values[place]
    elif every == 2:
        for place in range(len(target)):
            target[place] = values[2 * place]
    else:
        for place in range(len(target)):
            target[place] = values[every * place]


def _add_kernel_row(
    sums: Int32, columns: Bytes, first: int, size: int, memory: Bytes, weights: int, taps: int
) -> None:
    """Add the products of the inputs with a kernel row's weights ``taps`` to all sums.

    The weights begin at ``memory[weights]``. Kernel column c reads ``columns[first + c*size + p]``
    for sum p. Three columns are added at a time.
    """
    count = len(sums)
    for k in range(0, taps - 2, 3):
        at = first + k * size
        x0 = columns[at : at + count]
        x1 = columns[at + size : at + size + count]
        x2 = columns[at + 2 * size :]
        at = weights + k
        f0 = np.int32(memory[at])
        f1 = np.int32(memory[at + 1])
        f2 = np.int32(memory[at + 2])
        for p in range(count):
            sums[p] += f0 * np.int32(x0[p]) + f1 * np.int32(x1[p]) + f2 * np.int32(x2[p])
    for k in range(taps - taps % 3, taps):
        x0 = columns[first + k * size : first + k * size + count]
        f0 = np.int32(memory[weights + k])
        for p in range(count):
            sums[p] += f0 * np.int32(x0[p])
