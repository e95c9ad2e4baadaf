"""Gathers of tensors with other atoms than the result, and of tensors with only one consumer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from byoc.layout.merging import merge_moves
from byoc.operators.gather import ByteMap, Gather, Origins, list_moved_pieces, to_gather
from byoc.operators.operator import Operator
from byoc.operators.pieces import Piece
from byoc.operators.records import Operand
from byoc.operators.reduction import Reduction
from isa.layout import Layout
from tests.byoc.test_merging import ATOM, POSITIONS, WORD, _moved

NARROW = 4


def gathered(
    layouts: Mapping[str, Layout], taken: Mapping[tuple[str, int], int]
) -> tuple[ByteMap, Gather | None]:
    """Return the map that takes channels of tensors as channels of ``c``, and its gather.

    The other channels are filled with 0.
    """
    names = tuple(sorted({name for name, _ in taken}))
    layout = layouts["c"]
    source = np.full((layout.surfaces, layout.positions, layout.atom), -1, np.int64)
    byte = np.zeros_like(source)
    for (name, channel), target in taken.items():
        other = layouts[name]
        place = (target // layout.atom, slice(None), target % layout.atom)
        start = channel // other.atom * other.positions * other.atom + channel % other.atom
        source[place] = names.index(name)
        byte[place] = start + np.arange(layout.positions) * other.atom
    found = ByteMap(names, Origins(source.reshape(-1), byte.reshape(-1)))
    node: Operator = _moved("a", "c", {0: 0}, 1)[0]
    return found, to_gather(node, "c", found, layouts, {}, WORD)


def check_pieces(gather: Gather, found: ByteMap) -> None:
    """The pieces that a program states are the bytes of the map."""
    source = np.full(found.source.size, -2)
    byte = np.zeros(found.source.size, np.int64)
    for number, value, piece in list_moved_pieces(gather):
        begin = -Piece(0, 0, piece.dims).lowest if number is None else piece.source
        sources, targets = Piece(begin, piece.target, piece.dims).positions()
        source[targets] = -1 if number is None else number
        byte[targets] = value if number is None else sources
    assert (source == found.source).all()
    assert (byte == found.byte).all()


def test_a_gather_of_narrow_atoms_states_the_bytes_that_it_moves() -> None:
    """Surfaces of the source have half as many bytes as those of the result."""
    layouts = {"a": Layout(12, POSITIONS, NARROW), "c": Layout(12, POSITIONS, ATOM)}
    found, gather = gathered(layouts, {("a", 11 - channel): channel for channel in range(12)})
    assert gather is not None
    assert gather.inputs[0].elements == 3 * POSITIONS * NARROW
    check_pieces(gather, found)


def test_tensors_with_different_atoms_are_not_gathered_together() -> None:
    """A gather has one stride between positions and one between surfaces for all operands."""
    taken = {**{("a", n): n for n in range(8)}, **{("b", n): 8 + n for n in range(8)}}
    for positions in (1, POSITIONS):
        alike = {
            "a": Layout(8, positions, ATOM),
            "b": Layout(8, positions, ATOM),
            "c": Layout(16, positions, ATOM),
        }
        found, gather = gathered(alike, taken)
        assert gather is not None
        check_pieces(gather, found)
        assert gathered({**alike, "a": Layout(8, positions, NARROW)}, taken)[1] is None


def test_a_tensor_is_stored_for_one_consumer_that_reads_it() -> None:
    """c reads the bytes of a past b; the reduction needs b itself."""
    operations = _moved("a", "b", {n: 19 - n for n in range(20)}, 3)
    reduction = Reduction(across=True,
        name="n", kind="POOL", onnx_nodes=(), mode="max", count=20, scales=(1.0, 1.0),
        zero_points=(0, 0),
        inputs=(Operand("b", (20, POSITIONS), assigned=Layout(20, POSITIONS, ATOM)),),
        output=Operand("r", (1, POSITIONS), assigned=Layout(POSITIONS, 1, ATOM)),
    )  # fmt: skip
    moved = [*operations, *_moved("b", "c", {n: n + 3 for n in range(9)}, 2)]
    layouts = {
        "a": Layout(20, POSITIONS, ATOM),
        "b": Layout(20, POSITIONS, ATOM),
        "c": Layout(9, POSITIONS, ATOM),
    }
    layouts["r"] = Layout(POSITIONS, 1, ATOM)
    found = merge_moves([*moved, reduction], {"a", "c", "r"}, layouts, WORD, lambda operation: True)
    assert {one.output.value for one in found} == {"b", "c", "r"}
    assert [
        operand.value for one in found if one.output.value == "c" for operand in one.inputs
    ] == ["a"]
    found = merge_moves(moved, {"a", "c"}, layouts, WORD, lambda operation: True)
    assert {one.output.value for one in found} == {"c"}
