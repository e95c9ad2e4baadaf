"""Views: layouts of the model's tensors in the graph, as in the model or with channels first.

A view copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from byoc.graph import ModelView

PLANES = (0, 3, 1, 2)
"""Axes of a tensor (batch, rows, columns, channels) in the accelerator's order for planes."""


@dataclass(frozen=True)
class TensorView:
    """Layout of a tensor whose elements have another order and shape than in the model.

    They are reshaped to ``factors``, transposed by ``order`` and shaped as ``lies``. ``axes`` gives
    the tensor's axis for each axis of ``lies``; None if these are not axes of the tensor.
    """

    shape: tuple[int, ...]
    factors: tuple[int, ...]
    order: tuple[int, ...]
    lies: tuple[int, ...]
    axes: tuple[int, ...] | None

    @property
    def plain(self) -> bool:
        """True if the tensor has the shape and element order of the model."""
        return self.lies == self.shape and not self.moved

    @property
    def moved(self) -> bool:
        """True if the tensor's element order differs from the model's."""
        return len(self.steps) > 1 or any(step != 1 for _, step in self.steps)

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Merged dimensions of a layout as (size, stride in the model), outermost first.

        Dimensions of size 1 are left out.
        Views with equal steps have the same elements in the same order.
        """
        strides = [prod(self.factors[axis + 1 :]) for axis in range(len(self.factors))]
        found: list[tuple[int, int]] = []
        for axis in self.order:
            size = self.factors[axis]
            step = strides[axis]
            if size == 1:
                continue
            if found and found[-1][1] == size * step:
                found[-1] = found[-1][0] * size, step
            else:
                found.append((size, step))
        return tuple(found)

    def layout(self, tensor: str, dtype: str) -> ModelView:
        """Convert a view of a TensorFlow Lite tensor to the graph's layout type."""
        return ModelView(tensor, self.shape, self.factors, self.order, dtype)

    def arrange(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """Rearrange an array in the model's layout into this view's layout."""
        return np.ascontiguousarray(array.reshape(self.factors).transpose(self.order)).reshape(
            self.lies
        )

    def axis(self, axis: int) -> int:
        """Return the position of a tensor's axis in the view.

        ``axis`` may be negative; the view must have axes.
        """
        assert self.axes is not None
        return self.axes.index(axis % len(self.shape))


def refine_views(one: TensorView, other: TensorView) -> tuple[TensorView, TensorView] | None:
    """Return two views of a tensor with the coarsest common factors; None if there are none."""
    total = prod(one.shape)
    if total == 0:
        return None
    ends = sorted({end for view in (one, other) for end in _ends(view.factors)}, reverse=True)
    factors = tuple(before // after for before, after in zip((total, *ends), ends, strict=False))
    if any(before % after for before, after in zip((total, *ends), ends, strict=False)):
        return None
    first, second = (_split_factors(view, factors) for view in (one, other))
    return first, second


def _ends(factors: tuple[int, ...]) -> list[int]:
    """Return the stride of each factor: the number of elements in the factors after it."""
    return [prod(factors[axis + 1 :]) for axis in range(len(factors))]


def _split_factors(view: TensorView, factors: tuple[int, ...]) -> TensorView:
    """Return a view as an array of finer factors of its tensor's dimensions."""
    parts: list[list[int]] = [[] for _ in view.factors]
    ends = _ends(view.factors)
    finer = _ends(factors)
    for number, (end, size) in enumerate(zip(finer, factors, strict=True)):
        if size > 1:
            parts[
                max(
                    axis
                    for axis, whole in enumerate(ends)
                    if whole * view.factors[axis] >= end * size
                )
            ].append(number)
    order = tuple(number for axis in view.order for number in parts[axis])
    order += tuple(number for number, size in enumerate(factors) if size == 1)
    return replace(
        view,
        factors=factors,
        order=order,
        lies=tuple(factors[number] for number in order),
        axes=None,
    )


def permute_axes(shape: Sequence[int], axes: Sequence[int]) -> TensorView:
    """Return the view of a tensor with its axes in another order."""
    factors = tuple(shape)
    order = tuple(axes)
    return TensorView(factors, factors, order, tuple(factors[axis] for axis in order), order)


def natural(shape: Sequence[int]) -> TensorView:
    """Return the layout that a tensor has in the model."""
    return permute_axes(shape, range(len(shape)))


def planes(shape: Sequence[int]) -> TensorView:
    """Return the channels-first view of a four-dimensional tensor; the natural view for others."""
    return permute_axes(shape, PLANES) if len(shape) == 4 else natural(shape)


def reshape_view(view: TensorView, shape: Sequence[int]) -> TensorView:
    """Return a view with another shape and the elements in the same order.

    It is the natural view or planes if possible.
    """
    for found in (natural(shape), planes(shape)):
        if found.steps == view.steps:
            return found
    factors = tuple(view.factors)
    return TensorView(tuple(shape), factors, view.order, tuple(shape), None)
