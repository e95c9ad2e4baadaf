"""Exact sums of int8 products with float32 arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.results import EXACT, PRODUCT
from dla_sim.kernels.scratch import Scratch

CHUNK = EXACT // PRODUCT
"""Products whose float32 sum is exact: 1024. In any order, for every partial sum is an integer of at most 2**24."""
_NARROW = 64, 128
_COLUMNS = 448
"""For at most so many rows and products BLAS is up to 1.4 times faster on so many columns at a time."""


def multiply(left: NDArray[np.float32], right: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """``out = left @ right``, exact for raw int8 values and at most 1024 products a sum."""
    rows, products = left.shape
    columns = right.shape[1]
    if rows > _NARROW[0] or products > _NARROW[1] or columns < 2 * _COLUMNS:
        np.matmul(left, right, out=out)
        return
    for first in range(0, columns, _COLUMNS):
        last = first + _COLUMNS
        np.matmul(left, right[:, first:last], out=out[:, first:last])


def add_chunks(parts: Iterable[NDArray[np.float32]], shape: tuple[int, ...], scratch: Scratch) -> NDArray[np.int32]:
    """int32 sum of exact float32 ``parts``, which may share one buffer; the caller knows that it fits int32."""
    total: NDArray[np.int32] = scratch.array("int32 sums", shape, np.int32)
    total.fill(0)
    for part in parts:
        np.add(total, part.astype(np.int32), out=total)
    return total
