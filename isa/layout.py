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
        """Return the byte offsets of a tensor's int8 elements; ``elements`` are their indices."""
        size = self.channels * self.positions
        image = elements // max(size, 1) if self.images > 1 else None
        rest = elements if image is None else elements - image * size
        slow = rest // max(self.channels if self.by_row else self.positions, 1)
        channel = rest - slow * self.channels if self.by_row else slow
        # Terms are added in place: new arrays of large tensors take longer than the arithmetic.
        found: NDArray[np.int64] = channel // self.atom
        found *= (self.positions - 1) * self.atom
        found += rest if self.by_row else rest * self.atom
        slow *= self.atom - self.channels if self.by_row else 1 - self.positions * self.atom
        found += slow
        if image is not None:
            image *= self.image_bytes
            found += image
        found += self.begin
        return found


def dense(shape: tuple[int, ...], begin: int = 0) -> Layout:
    """Return the layout of a dense tensor: the first dimension as channels, in atoms of one."""
    return Layout(prod(shape[:1]), prod(shape[1:]), 1, begin=begin)
