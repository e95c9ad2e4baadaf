"""Memory layout of a tensor: how its channels and positions are stored in atoms.

Dense tensors have atoms of one element. Tensors in banked memory have atoms of several channels.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Layout(NamedTuple):
    """Layout of an operand that banked memory stores in atoms.

    The operand has ``images`` of ``channels`` by ``positions`` elements. An atom has ``atom``
    channels of one position. Elements are ordered by channel, then position; with ``by_row``, by
    position, then channel, as in a matrix. ``begin``: bytes of its tensor before the operand, for
    int8 elements.
    """

    channels: int
    positions: int
    atom: int
    by_row: bool = False
    images: int = 1
    begin: int = 0

    @property
    def surfaces(self) -> int:
        """Number of channel atoms per position and image."""
        return -(-self.channels // self.atom)

    @property
    def elements(self) -> int:
        return self.images * self.channels * self.positions

    @property
    def stored(self) -> tuple[int, int, int]:
        """Shape of the tensor in memory: surfaces of all images, positions, bytes per atom."""
        return self.images * self.surfaces, self.positions, self.atom

    @property
    def canonical(self) -> Layout:
        """Layout in a unique form, so that equal layouts compare equal.

        Images of whole atoms become channels, and ``by_row`` is off if both orders are the same.
        """
        found = self
        if found.by_row and 1 in (found.channels, found.positions):
            found = found._replace(by_row=False)
        if not found.by_row and found.images > 1 and found.channels % found.atom == 0:
            found = found._replace(channels=found.images * found.channels, images=1)
        return found

    @property
    def image_bytes(self) -> int:
        """Bytes of one image of int8 elements."""
        return self.surfaces * self.positions * self.atom

    def count_bytes_before(self, offset: int) -> int:
        """Return the number of stored bytes before an element of the tensor.

        The element must be the first of an image or of an atom.
        """
        image, rest = divmod(offset, max(self.channels * self.positions, 1))
        atoms = 0 if self.by_row else rest // max(self.positions, 1) // self.atom
        return self.begin + image * self.image_bytes + atoms * self.positions * self.atom

    def places(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the byte offsets of a tensor's int8 elements, given their numbers."""
        image, rest = _divide_numbers(elements, self.channels * self.positions)
        slow, fast = _divide_numbers(rest, self.channels if self.by_row else self.positions)
        channel, position = (fast, slow) if self.by_row else (slow, fast)
        surface, inside = _divide_numbers(channel, self.atom)
        surface += image * self.surfaces
        found: NDArray[np.int64] = (
            surface * (self.positions * self.atom) + position * self.atom + inside + self.begin
        )
        return found


def _divide_numbers(
    numbers: NDArray[np.int64], divisor: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the quotients and remainders of integer arrays.

    np.divmod takes ten times as long.
    """
    quotients = numbers // max(divisor, 1)
    return quotients, numbers - quotients * divisor


def dense(shape: tuple[int, ...], begin: int = 0) -> Layout:
    """Return the layout of a dense tensor: the first dimension as channels, in atoms of one."""
    return Layout(prod(shape[:1]), prod(shape[1:]), 1, begin=begin)
