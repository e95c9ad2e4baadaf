"""Movements through dense copies: the same bytes in fewer bus slots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from byoc.estimate.bus import DEFAULT_BUS
from byoc.estimate.movements import movement_slots
from byoc.layout.merging import TensorMovement, find_unpacked_routes, merge_moves
from byoc.operators.copies import copies, fills
from byoc.operators.gather import CONSTANT, ByteMap, Origins
from byoc.operators.operator import Operator
from byoc.operators.packing import find_packed_pieces
from byoc.operators.pieces import NOTHING, Dim, Piece
from isa.layout import Layout
from tests.byoc.test_merging import run_moves

ATOM = 8
WORD = 32
BLOCK = 3
ROWS = 6
COLUMNS = 4
CHANNELS = BLOCK * BLOCK
SHAPES = {"a": (1, CHANNELS, ROWS, COLUMNS), "b": (1, 1, BLOCK * ROWS, BLOCK * COLUMNS)}
PACKED = Layout(CHANNELS, ROWS * COLUMNS, ATOM)
ELEMENTS = CHANNELS * ROWS * COLUMNS
DENSE = Layout(ELEMENTS, 1, ATOM)
PLANE = Layout(1, ELEMENTS, ATOM)


def _depth_to_space() -> NDArray[np.int64]:
    """Return the element of the source for each element of a depth-to-space in blocks of 3."""
    row, column = np.mgrid[: BLOCK * ROWS, : BLOCK * COLUMNS]
    channel = row % BLOCK * BLOCK + column % BLOCK
    found = channel * (ROWS * COLUMNS) + row // BLOCK * COLUMNS + column // BLOCK
    return found.reshape(-1)


def _movement(target: Layout, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> TensorMovement:
    """Return the movement of a depth-to-space from packed channels to a tensor with ``target``."""
    size = target.surfaces * target.positions * target.atom
    index = np.full(size, NOTHING, np.int64)
    index[target.places(np.arange(ELEMENTS))] = PACKED.places(_depth_to_space())
    source = np.where(index == NOTHING, CONSTANT, 0)
    pieces = find_packed_pieces(index, target, shapes["b"])
    rest = find_packed_pieces(np.where(index == NOTHING, 0, NOTHING), target, shapes["b"])
    operations = (*copies("n", (), "a", "b", pieces), *fills("n", (), "b", rest, 0))
    bytes_moved = ByteMap(("a",), Origins(source, np.where(index == NOTHING, 0, index)))
    return TensorMovement("b", bytes_moved, operations, {"a": PACKED, "b": target}, shapes)


def test_blocks_of_two_surfaces_are_three_pieces() -> None:
    """Surface 0 has rows 0 and 1 of a block and two channels of row 2; surface 1 the third."""
    pieces = find_packed_pieces(PACKED.places(_depth_to_space()), DENSE, SHAPES["b"])
    assert sorted(piece.elements // (ROWS * COLUMNS) for piece in pieces) == [1, 2, 6]
    index = np.full(ELEMENTS, NOTHING, np.int64)
    for piece in pieces:
        sources, targets = piece.positions()
        index[targets] = sources
    np.testing.assert_array_equal(index, PACKED.places(_depth_to_space()))


@pytest.mark.parametrize("target", [DENSE, PLANE], ids=["dense", "packed"])
def test_both_routes_write_the_same_bytes(target: Layout) -> None:
    movement = _movement(target)
    size = movement.bytes.byte.size
    data = np.random.default_rng(7).integers(0, 256, 4096, dtype=np.uint8)
    wanted = run_moves(movement.operations, {"a": data})["b"][:size].tolist()
    found = [
        run_moves(route, {"a": data})["b"][:size].tolist()
        for route in find_unpacked_routes(movement)
    ]
    assert found == [wanted, wanted]


def test_padding_that_is_read_has_no_dense_route() -> None:
    movement = _movement(DENSE)
    last = PACKED.places(np.array([ELEMENTS - 1]))
    movement.bytes.byte[0] = last[0] + 1
    assert list(find_unpacked_routes(movement)) == []


def _merged(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Operator, ...]:
    movement = _movement(DENSE, shapes)
    return merge_moves(
        movement.operations, {"a", "b"}, movement.layouts, WORD, lambda one: True, shapes
    )


def test_the_route_of_fewer_slots_is_taken() -> None:
    """Single bytes in three pieces take a burst each; unpacked channels are written in rows."""
    direct = _movement(DENSE).operations
    found = _merged(SHAPES)
    assert {one.inputs[0].value for one in found if one.output.value == "b"} == {"b~dense~a"}
    assert movement_slots(found) < movement_slots(direct) / 2


def test_slots_of_runs() -> None:
    """Each run of a store takes a burst; a load includes the gaps of a beat."""
    columns, rows = 14, 12
    piece = Piece(0, 0, (Dim(rows, 8 * columns, 3 * columns), Dim(columns, 8, 3), Dim(2, 1, 1)))
    loaded = DEFAULT_BUS.rows_slots(1, 8 * rows * columns, 8)
    stored = rows * columns * DEFAULT_BUS.burst_gap
    assert movement_slots(copies("n", (), "a", "b", (piece,))) == loaded + stored


def test_dense_copies_have_only_the_elements_that_are_read() -> None:
    """The others may be written later, such as the next image."""
    movement = _movement(DENSE)
    half = CHANNELS // 3 * ROWS * COLUMNS
    movement.bytes.source[_depth_to_space() >= half] = CONSTANT
    route = next(find_unpacked_routes(movement))
    assert [one.output.elements for one in route if one.output.value == "b~dense~a"] == [half]
    movement.bytes.source[_depth_to_space() == 1] = CONSTANT
    assert list(find_unpacked_routes(movement)) == []
