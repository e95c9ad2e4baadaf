"""The record of assigned layouts, and the copies between layouts that operations need.

An operation reads an operand in place if its bytes have the required layout there, and otherwise a
copy. Results are written in place under the same condition, and otherwise to a tensor of their own
that is then copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.layout.preferences import RegionTensors
from byoc.operators.copies import copies, fills
from byoc.operators.gather import Int64
from byoc.operators.operator import Operator
from byoc.operators.packing import find_packed_pieces
from byoc.operators.pieces import (
    NOTHING,
    REMEMBERED_MAPS,
    Dim,
    Piece,
    find_pieces,
    merge_dims,
)
from byoc.operators.records import Operand
from isa.layout import Layout

Moved = tuple[Piece, ...]
"""Pieces of elements: their numbers in a source and in the result."""


class CopyKey(NamedTuple):
    """Key of a copy: elements of a tensor, and the layout that they have in the copy.

    With ``padded``, zeros follow the last channel.
    """

    value: str
    offset: int
    layout: Layout
    padded: bool = True


@dataclass(frozen=True)
class Assignment:
    """Layouts and operations assigned so far in a region.

    :func:`byoc.layout.assign.assign_layouts` owns it and only adds to it.

    Attributes:
        region: facts about the region's tensors.
        layouts: layout of each tensor.
        operations: operations with layouts, including copies.
        copies: names of tensors that hold elements of another tensor in another layout.
        padded: tensors whose padding is written.
    """

    region: RegionTensors
    layouts: dict[str, Layout] = field(default_factory=dict)
    operations: list[Operator] = field(default_factory=list)
    copies: dict[CopyKey, str] = field(default_factory=dict)
    padded: set[str] = field(default_factory=set)

    def add_tensor(self, key: CopyKey) -> str:
        """Add a tensor with the elements and layout of ``key`` and return its name."""
        name = self.copies[key] = f"{key.value}~{len(self.copies)}"
        self.layouts[name] = key.layout._replace(begin=0)
        return name


def slice_layout(layout: Layout, offset: int, required: Layout) -> Layout | None:
    """Return the layout of a tensor's slice at element ``offset``, if it is ``required``.

    ``layout`` is that of the tensor. Return None if the slice has another layout than ``required``.
    """
    if layout.atom != required.atom:
        return None
    image, rest = divmod(offset, layout.channels * layout.positions)
    if required._replace(begin=0).canonical == layout._replace(begin=0).canonical and not offset:
        return required._replace(begin=layout.begin)
    same = required._replace(images=0, begin=0) == layout._replace(images=0, begin=0)
    if same and not rest and image + required.images <= layout.images:
        return required._replace(begin=layout.count_bytes_before(offset))
    if (
        layout.by_row
        or required.by_row
        or layout.positions != required.positions
        or rest % layout.positions
    ):
        return None
    first = rest // layout.positions
    ends = required.channels % required.atom == 0 or first + required.channels == layout.channels
    inside = required.images == 1 and first + required.channels <= layout.channels
    fits = inside and ends and first % required.atom == 0
    return required._replace(begin=layout.count_bytes_before(offset)) if fits else None


def read_operand(
    state: Assignment, consumer: Operator, operand: Operand, required: Layout
) -> Operand:
    """Return an operand in the layout that its consumer needs, copied if necessary.

    An operand that has this layout is read in place.
    """
    if operand.value in consumer.constant_operands:
        return replace(operand, assigned=required)
    found = slice_layout(state.layouts[operand.value], operand.offset, required)
    if found is not None:
        return replace(operand, assigned=found)
    key = CopyKey(operand.value, operand.offset, required)
    if key not in state.copies:
        piece = Piece(operand.offset, 0, (Dim(operand.elements, 1, 1),))
        copy_elements(state, consumer, state.add_tensor(key), {operand.value: (piece,)})
    return replace(operand, value=state.copies[key], offset=0, assigned=required._replace(begin=0))


def write_result(state: Assignment, operation: Operator, required: Layout) -> None:
    """Add an operation whose result has layout ``required``.

    Copy the result if its tensor has another layout.
    """
    result = operation.output
    region = state.region
    name = result.value
    if name not in state.layouts:
        preferred = (
            None if required.by_row or region.is_whole(result) else region.preferred.get(name)
        )
        state.layouts[name] = preferred or region.extend(result, required) or region.default(name)
    found = slice_layout(state.layouts[name], result.offset, required)
    if found is not None and not operation.omits_padding:
        state.operations.append(replace(operation, output=replace(result, assigned=found)))
        return
    own = state.add_tensor(
        CopyKey(name, result.offset, required, padded=not operation.omits_padding)
    )
    written = replace(result, value=own, offset=0, assigned=required._replace(begin=0))
    state.operations.append(replace(operation, output=written))
    piece = Piece(0, result.offset, (Dim(result.elements, 1, 1),))
    copy_elements(state, operation, name, {own: (piece,)})


def copy_elements(
    state: Assignment, operation: Operator, target: str, moved: Mapping[str, Moved]
) -> None:
    """Add operations that copy elements of tensors to ``target``, for ``operation``.

    ``moved`` has the elements by name of the source.
    """
    add_copies(state, operation, target, find_copies(state, target, moved))


def find_copies(
    state: Assignment, target: str, moved: Mapping[str, Moved]
) -> dict[str, tuple[Piece, ...]]:
    """Return, by source tensor, the pieces of bytes to copy from it to ``target``.

    The bytes follow from the layouts of both tensors.
    """
    layout = state.layouts[target]
    shape = state.region.shapes.get(target, ())
    return {
        source: _find_stored_pieces(pieces, state.layouts[source], layout, shape)
        for source, pieces in moved.items()
    }


@lru_cache(maxsize=REMEMBERED_MAPS)
def _find_stored_pieces(
    moved: Moved, source: Layout, target: Layout, shape: tuple[int, ...]
) -> tuple[Piece, ...]:
    """Return the pieces of bytes that hold ``moved`` elements; ``shape`` is the result's."""
    return find_packed_pieces(_map_bytes(moved, source, target), target, shape)


@lru_cache(maxsize=REMEMBERED_MAPS)
def count_breaks(moved: Moved, source: Layout, target: Layout) -> int:
    """Return how often the next byte of a copy does not follow the last one on both sides."""
    index = _map_bytes(moved, source, target)
    targets = np.flatnonzero(index != NOTHING)
    return int(np.count_nonzero(np.diff(index[targets]) != np.diff(targets)))


def _map_bytes(moved: Moved, source: Layout, target: Layout) -> Int64:
    """Return the byte of a source for each byte of a result, or NOTHING.

    ``moved`` are pieces of elements, ``source`` and ``target`` the layouts of both tensors.
    """
    places = zip(*[piece.positions() for piece in moved], strict=True)
    sources, targets = [one[0] if len(one) == 1 else np.concatenate(one) for one in places]
    index = np.full(prod(target.stored), NOTHING, np.int64)
    index[target.places(targets)] = source.places(sources)
    return index


def add_copies(
    state: Assignment,
    operation: Operator,
    target: str,
    pieces: Mapping[str, tuple[Piece, ...]],
    constants: Mapping[str, NDArray[np.int8]] = MappingProxyType({}),
) -> None:
    """Add the copies of ``pieces``, by name of the source, and the padding of ``target``."""
    for source, found in pieces.items():
        own = {source: constants[source]} if source in constants else {}
        made = copies(operation.name, operation.onnx_nodes, source, target, found)
        state.operations.extend(
            [replace(one, constant_operands=own) for one in made] if own else made
        )
    if pieces:
        _add_padding(state, operation, target)


def add_fill(state: Assignment, operation: Operator, byte: int) -> None:
    """Add the operations that fill the elements of a result with ``byte`` in its layout."""
    name = operation.output.value
    layout = state.layouts[operation.output.value]
    index = np.full(prod(layout.stored), NOTHING, np.int64)
    targets = Piece(0, operation.output.offset, operation.loops.dims).positions()[1]
    index[layout.places(targets)] = 0
    pieces = find_pieces(index.reshape(layout.stored))
    state.operations.extend(fills(operation.name, operation.onnx_nodes, name, pieces, byte))


def _add_padding(state: Assignment, operation: Operator, name: str) -> None:
    """Fill the padding after the last channel of a tensor that is written byte by byte, once."""
    layout = state.layouts[name]
    if name in state.padded or layout.channels % layout.atom == 0:
        return
    state.padded.add(name)
    whole, rest = divmod(layout.channels, layout.atom)
    first = layout.begin + whole * layout.positions * layout.atom + rest
    dims = (
        Dim(layout.images, 0, layout.image_bytes),
        Dim(layout.positions, 0, layout.atom),
        Dim(layout.atom - rest, 0, 1),
    )
    state.operations.extend(
        fills(operation.name, operation.onnx_nodes, name, (Piece(0, first, merge_dims(dims)),), 0)
    )
