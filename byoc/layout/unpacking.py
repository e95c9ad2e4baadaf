"""Movements through dense copies, if these take fewer bus slots than strided copies.

A movement that writes single bytes of a tensor in several strided pieces stores each byte as a
transfer of its own. If the sources are first unpacked into dense tensors, fewer pieces write longer
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from byoc.estimate.movements import movement_slots
from byoc.operators.copies import copies
from byoc.operators.gather import ByteMap, Int64
from byoc.operators.operator import Operator
from byoc.operators.packing import find_packed_pieces
from byoc.operators.pieces import NOTHING, Piece, find_pieces
from isa.layout import Layout


@dataclass(frozen=True)
class TensorMovement:
    """Tensor that a movement writes: its name and byte map, and the ``operations`` that write it.

    ``layouts`` and ``shapes`` are those of the region's tensors, by name.
    """

    name: str
    bytes: ByteMap
    operations: tuple[Operator, ...]
    layouts: Mapping[str, Layout]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def is_short(self) -> bool:
        """True if several operations write the tensor with more bus slots than it has bytes."""
        slots = movement_slots(self.operations)
        return len(self.operations) > 1 and slots > self.bytes.byte.size

    def copies(self, source: str, result: str, pieces: tuple[Piece, ...]) -> tuple[Operator, ...]:
        """Return the operations that copy ``pieces``, named after the layer that moves the tensor.

        Each piece is a strided copy from ``source`` to ``result``.
        """
        first = self.operations[0]
        return copies(first.name, first.onnx_nodes, source, result, pieces)

    def find_pieces(self, name: str, index: Int64) -> tuple[Piece, ...]:
        """Return the strided copies that write a dense copy of tensor ``name``.

        ``index`` has the source position of each element. If it covers the tensor, the strided
        copies are found along the axes of the tensor's shape.
        """
        shape = self.shapes.get(name, ())
        return find_pieces(index.reshape(shape if prod(shape) == index.size else (-1,)))


def find_unpacked_routes(movement: TensorMovement) -> Iterator[tuple[Operator, ...]]:
    """Yield operations that write a tensor's bytes through dense copies of its sources.

    The first sequence copies the dense sources to the tensor. The second first makes a dense copy
    of the tensor too. A dense copy has the elements that the movement reads. Yield nothing if a
    source has no layout, or if these elements are not consecutive: the elements between them may be
    written later.
    """
    found = movement.bytes
    layout = movement.layouts[movement.name]
    plain = f"{movement.name}~dense"  # the names of other copies end in a number
    filled = tuple(one for one in movement.operations if not one.inputs)
    dense: dict[str, Int64] = {}
    unpacked = list[Operator]()
    for number, source in enumerate(found.sources):
        origin = movement.layouts.get(source)
        if origin is None:
            return
        taken = found.source == number
        places = origin.places(np.arange(origin.elements))
        is_read = np.zeros(prod(origin.stored), np.bool_)
        is_read[found.byte[taken]] = True
        needed = is_read[places]
        first, last = needed.argmax(), needed.size - needed[::-1].argmax()
        places = places[first:last]
        if np.count_nonzero(is_read) != places.size or not needed[first:last].all():
            return
        elements = np.zeros(is_read.size, np.int64)
        elements[places] = np.arange(places.size)
        index = np.full(taken.size, NOTHING, np.int64)
        index[taken] = elements[found.byte[taken]]
        name = f"{plain}~{source}"
        dense[name] = index
        unpacked += movement.copies(source, name, movement.find_pieces(source, places))
    shape = movement.shapes.get(movement.name, ())
    written = [
        one
        for name, index in dense.items()
        for one in movement.copies(name, movement.name, find_packed_pieces(index, layout, shape))
    ]
    yield (*unpacked, *written, *filled)
    places = layout.places(np.arange(layout.elements))
    gathered = [
        one
        for name, index in dense.items()
        for one in movement.copies(name, plain, movement.find_pieces(movement.name, index[places]))
    ]
    index = np.full(found.source.size, NOTHING, np.int64)
    moved = (found.source[places] >= 0).nonzero()[0]
    index[places[moved]] = moved
    packed = movement.copies(plain, movement.name, find_packed_pieces(index, layout, shape))
    yield (*unpacked, *gathered, *packed, *filled)
