"""Comparison with the oracle: every element, no tolerance, and the first difference named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Difference:
    """One element that differs; ``coordinates`` index the tensor."""

    tensor: str
    coordinates: tuple[int, ...]
    actual: int | float
    expected: int | float

    def message(self) -> str:
        """One line: tensor, coordinates, both values."""
        where = ", ".join(str(index) for index in self.coordinates)
        return f"tensor '{self.tensor}' at [{where}]: the DLA has {self.actual}, the oracle has {self.expected}"


@dataclass(frozen=True)
class Comparison:
    """Counts over all tensors, and the first difference in the tensors' order, row-major."""

    tensors: int = 0
    elements: int = 0
    mismatches: int = 0
    max_abs_diff: int | float = 0
    first: Difference | None = None


def compare(actual: Tensors, expected: Tensors) -> Comparison:
    """Compare ``actual`` with ``expected``, in the order of ``expected``; equal shapes and types are demanded.

    NaN equals NaN. Raises ValueError when a tensor is missing or has another shape or element type: that is a bug of
    the program, not a difference in values.
    """
    result = Comparison()
    for name, wanted in expected.items():
        if name not in actual:
            raise ValueError(f"no value for tensor '{name}'")
        result = _add(result, name, actual[name], wanted)
    return result


def _add(so_far: Comparison, name: str, found: NDArray[Any], wanted: NDArray[Any]) -> Comparison:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        raise ValueError(
            f"tensor '{name}' is {found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
        )
    differs = found != wanted
    if np.issubdtype(found.dtype, np.floating):
        differs &= ~(np.isnan(found) & np.isnan(wanted))
    count = int(np.count_nonzero(differs))
    largest, first = so_far.max_abs_diff, so_far.first
    if count:
        largest = max(largest, _largest(found[differs], wanted[differs]))
        first = first or _first(name, differs, found, wanted)
    return Comparison(so_far.tensors + 1, so_far.elements + found.size, so_far.mismatches + count, largest, first)


def _largest(found: NDArray[Any], wanted: NDArray[Any]) -> int | float:
    if np.issubdtype(found.dtype, np.floating):
        gaps = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        return float(np.nan_to_num(gaps, nan=np.finfo(np.float64).max, posinf=np.finfo(np.float64).max).max())
    return int(np.abs(found.astype(np.int64) - wanted.astype(np.int64)).max())


def _first(name: str, differs: NDArray[np.bool_], found: NDArray[Any], wanted: NDArray[Any]) -> Difference:
    position = tuple(int(index) for index in np.unravel_index(int(np.argmax(differs)), differs.shape))
    return Difference(name, position, found[position].item(), wanted[position].item())
