"""Exact sums of int8 products with float32 arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.results import EXACT, PRODUCT
from dla_sim.kernels.scratch import Scratch

CHUNK = EXACT // PRODUCT
"""Products whose float32 sum is exact: 1024. In any order, for every partial sum is an integer of at most 2**24."""


def add_chunks(parts: Iterable[NDArray[np.float32]], shape: tuple[int, ...], scratch: Scratch) -> NDArray[np.int32]:
    """int32 sum of exact float32 ``parts``, which may share one buffer; the caller knows that it fits int32."""
    total: NDArray[np.int32] = scratch.array("int32 sums", shape, np.int32)
    total.fill(0)
    for part in parts:
        np.add(total, part.astype(np.int32), out=total)
    return total
