"""Batches: the images one after another, each through all layers, in place of each layer for all images.

What lies between two layers is then as small as for one image, and stays in the scratchpad where it would for one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from byoc.graph import Value
from byoc.operators.operator import Operand, Operator

ALL: Final = -1
"""In place of an image: all of them."""


def by_image(
    operations: Sequence[Operator], values: Mapping[str, Value], boundary: Collection[str]
) -> tuple[Operator, ...]:
    """The operations of a region in another order, with the same results: image by image, as far as that is possible.

    ``boundary``: the values that enter and leave the region; their first dimension counts the images. Operations on
    all images are cut where they do the same to all of them; where not, as products of matrices whose rows are
    images, they stay whole, behind what they need. What no such operation uses becomes a value an image.
    The operations themselves where there is one image, or nothing to gain.
    """
    counts = {values[name].shape[0] if values[name].shape else 1 for name in boundary}
    images = counts.pop()
    if counts or images < 2:
        return tuple(operations)
    batch = _Batch(operations, boundary, images)
    return tuple(batch.ordered())


class _Batch:
    """Which image every operation is of."""

    def __init__(self, operations: Sequence[Operator], boundary: Collection[str], images: int) -> None:
        self._images = images
        self._sizes: dict[str, int] = {}
        for operation in operations:
            for operand in _variable(operation):
                end = operand.offset + operand.elements
                self._sizes[operand.value] = max(self._sizes.get(operand.value, 0), end)
        self._operations = [part for operation in operations for part in self._parts(operation)]
        self._whole = set(boundary)
        segment: dict[str, int] = {}
        number = 0
        for operation in self._operations:
            alone = self._image(operation) == ALL
            number += alone
            for operand in _variable(operation):
                if alone or segment.setdefault(operand.value, number) != number:
                    self._whole.add(operand.value)

    def ordered(self) -> Iterator[Operator]:
        """The operations between two that are of no image, image by image."""
        waiting: list[Operator] = []
        for operation in self._operations:
            if self._image(operation) == ALL:
                yield from map(self._renamed, sorted(waiting, key=self._image))
                waiting = []
                yield operation
            else:
                waiting.append(operation)
        yield from map(self._renamed, sorted(waiting, key=self._image))

    def _image_of(self, operand: Operand) -> int:
        """The image that an operand is part of, or ALL."""
        size, rest = divmod(self._sizes[operand.value], self._images)
        first, last = operand.offset // max(size, 1), (operand.offset + operand.elements - 1) // max(size, 1)
        return first if first == last and not rest else ALL

    def _image(self, operation: Operator) -> int:
        """The image that all operands are of, or ALL."""
        found = {self._image_of(operand) for operand in _variable(operation)}
        return found.pop() if len(found) == 1 else ALL

    def _parts(self, operation: Operator) -> tuple[Operator, ...]:
        """An operation an image, where it does the same to all."""
        operands = tuple(_variable(operation))
        same = operation.cuttable and not operation.constant_operands
        whole = all(operand.offset == 0 and operand.elements == self._sizes[operand.value] for operand in operands)
        if not same or not whole or any(operand.shape[0] % self._images for operand in operands):
            return (operation,)
        return tuple(
            replace(
                operation,
                inputs=tuple(self._slice(operand, image) for operand in operation.inputs),
                output=self._slice(operation.output, image),
            )
            for image in range(self._images)
        )

    def _slice(self, operand: Operand, image: int) -> Operand:
        shape = operand.shape[0] // self._images, *operand.shape[1:]
        return replace(operand, shape=shape, offset=image * operand.elements // self._images)

    def _renamed(self, operation: Operator) -> Operator:
        """The operation on values of its image."""
        inputs = tuple(
            operand if operand.value in operation.constant_operands else self._own(operand)
            for operand in operation.inputs
        )
        return replace(operation, inputs=inputs, output=self._own(operation.output))

    def _own(self, operand: Operand) -> Operand:
        if operand.value in self._whole:
            return operand
        image = self._image_of(operand)
        start = image * (self._sizes[operand.value] // self._images)
        return replace(operand, value=f"{operand.value}[{image}]", offset=operand.offset - start)


def _variable(operation: Operator) -> Iterator[Operand]:
    """The operands that are no constants, and the result."""
    for operand in operation.inputs:
        if operand.value not in operation.constant_operands:
            yield operand
    yield operation.output
