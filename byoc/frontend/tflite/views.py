"""How tensors of a model lie in the graph: as the model has them, or with channels first; views move nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Layout

PLANES = (0, 3, 1, 2)
"""Axes of a tensor (batch, rows, columns, channels) in the order in which the accelerator has planes."""


@dataclass(frozen=True)
class View:
    """The elements of a tensor of ``shape``, seen as ``factors`` and transposed by ``order``, as an array of ``lies``.

    ``axes``: which of the tensor's axes each axis of ``lies`` is; None where they are no axes of it.
    """

    shape: tuple[int, ...]
    factors: tuple[int, ...]
    order: tuple[int, ...]
    lies: tuple[int, ...]
    axes: tuple[int, ...] | None

    @property
    def plain(self) -> bool:
        """Whether it lies as the model has it."""
        return self.lies == self.shape and not self.moved

    @property
    def moved(self) -> bool:
        """Whether elements follow each other in another order than in the model."""
        return len(self.steps) > 1 or any(step != 1 for _, step in self.steps)

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Dimensions (size, step in the model), outermost first, none of size 1, neighbours that continue as one.

        Views of equal steps hold the same elements in the same order.
        """
        strides = [prod(self.factors[axis + 1 :]) for axis in range(len(self.factors))]
        found: list[tuple[int, int]] = []
        for axis in self.order:
            size, step = self.factors[axis], strides[axis]
            if size == 1:
                continue
            if found and found[-1][1] == size * step:
                found[-1] = found[-1][0] * size, step
            else:
                found.append((size, step))
        return tuple(found)

    def layout(self, tensor: str, dtype: str) -> Layout:
        """As the graph says it."""
        return Layout(tensor, self.shape, self.factors, self.order, dtype)

    def arranged(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """The model's elements as they lie."""
        return np.ascontiguousarray(array.reshape(self.factors).transpose(self.order)).reshape(self.lies)

    def axis(self, axis: int) -> int:
        """Where an axis of the tensor, counted from either end, lies; there must be axes."""
        assert self.axes is not None
        return self.axes.index(axis % len(self.shape))


def refined(one: View, other: View) -> tuple[View, View] | None:
    """Two views of a tensor with the same factors, the coarsest there are; None where they have none."""
    total = prod(one.shape)
    if total == 0:
        return None
    ends = sorted({end for view in (one, other) for end in _ends(view.factors)}, reverse=True)
    factors = tuple(before // after for before, after in zip((total, *ends), ends, strict=False))
    if any(before % after for before, after in zip((total, *ends), ends, strict=False)):
        return None
    first, second = (_with_factors(view, factors) for view in (one, other))
    return first, second


def _ends(factors: tuple[int, ...]) -> list[int]:
    """How many elements there are behind each factor."""
    return [prod(factors[axis + 1 :]) for axis in range(len(factors))]


def _with_factors(view: View, factors: tuple[int, ...]) -> View:
    """A view with finer factors, lying as an array of them."""
    parts: list[list[int]] = [[] for _ in view.factors]
    ends, finer = _ends(view.factors), _ends(factors)
    for number, (end, size) in enumerate(zip(finer, factors, strict=True)):
        if size > 1:
            parts[max(axis for axis, whole in enumerate(ends) if whole * view.factors[axis] >= end * size)].append(
                number
            )
    order = tuple(number for axis in view.order for number in parts[axis])
    order += tuple(number for number, size in enumerate(factors) if size == 1)
    return replace(view, factors=factors, order=order, lies=tuple(factors[number] for number in order), axes=None)


def permuted(shape: Sequence[int], axes: Sequence[int]) -> View:
    """A tensor with its axes in another order."""
    factors, order = tuple(shape), tuple(axes)
    return View(factors, factors, order, tuple(factors[axis] for axis in order), order)


def natural(shape: Sequence[int]) -> View:
    """A tensor as the model has it."""
    return permuted(shape, range(len(shape)))


def planes(shape: Sequence[int]) -> View:
    """A tensor of four dimensions with its channels first, another one as it is."""
    return permuted(shape, PLANES) if len(shape) == 4 else natural(shape)


def reshaped(view: View, shape: Sequence[int]) -> View:
    """The same elements in the same order as a tensor of another shape: one of the two views above where that fits."""
    for found in (natural(shape), planes(shape)):
        if found.steps == view.steps:
            return found
    factors = tuple(view.factors)
    return View(tuple(shape), factors, view.order, tuple(shape), None)
