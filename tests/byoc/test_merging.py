"""Movements of a region on a machine of words: several are one, and move the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from byoc.layout.merging import merge_moves
from byoc.operators.copies import StridedCopy, copies, fills, get_filled_byte
from byoc.operators.gather import Gather
from byoc.operators.movement import Alias
from byoc.operators.operator import Operator
from byoc.operators.pieces import NOTHING, Dim, Piece, find_pieces
from byoc.operators.records import Operand
from byoc.operators.reduction import Reduction
from isa.layout import Layout
from isa.ops.movement import DIMENSIONS

ATOM = 8
WORD = 32
POSITIONS = 12
MIRRORED = {n: 15 - n for n in range(16)}
Bytes = NDArray[np.uint8]


def _places(channels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bytes of channels of all positions: (channels, positions)."""
    steps = np.arange(POSITIONS) * ATOM
    return (channels // ATOM * (POSITIONS * ATOM) + channels % ATOM)[:, np.newaxis] + steps


def _moved(source: str, result: str, taken: Mapping[int, int], surfaces: int) -> list[Operator]:
    """Copies of channels of ``source`` to channels of ``result``, and zeros in the others."""
    index = np.full(surfaces * POSITIONS * ATOM, NOTHING, np.int64)
    targets, sources = (np.array(list(part)) for part in (taken.keys(), taken.values()))
    index[_places(targets)] = _places(sources)
    shape = surfaces, POSITIONS, ATOM
    rest = np.where(index == NOTHING, 0, NOTHING).reshape(shape)
    return [
        *copies("n", (), source, result, find_pieces(index.reshape(shape))),
        *fills("n", (), result, find_pieces(rest), 0),
    ]


def run_moves(operations: Sequence[Operator], values: dict[str, Bytes]) -> dict[str, Bytes]:
    """Execute operations that move bytes and return the memories."""
    for operation in operations:
        name = operation.output.value
        result = values.setdefault(name, np.full(4096, 0xEE, np.uint8))
        if isinstance(operation, Gather):
            plane = operation.rows * operation.row_bytes
            for one in operation._copies(operation.rows, (plane,) * (len(operation.inputs) + 1)):
                places = [np.array([start]) for start in (one.source, one.target)]
                for number in DIMENSIONS:
                    steps = np.arange(one.registers[f"EX_COUNT_{number}"])
                    strides = (
                        one.registers[f"EX_{side}_STRIDE_{number}"] for side in ("INPUT", "OUTPUT")
                    )
                    places = [
                        (place[:, np.newaxis] + steps * stride).reshape(-1)
                        for place, stride in zip(places, strides, strict=True)
                    ]
                operand = (
                    None if one.operand is None else values[operation.inputs[one.operand].value]
                )
                result[places[1]] = (
                    one.registers["EX_INPUT_ZERO_POINT"] if operand is None else operand[places[0]]
                )
            continue
        assert isinstance(operation, StridedCopy)
        dims = operation.loops.dims
        begin = operation.inputs[0].start - Piece(0, 0, dims).lowest if operation.inputs else 0
        sources, targets = Piece(begin, operation.output.start, dims).positions()
        result[targets] = (
            values[operation.inputs[0].value][sources]
            if operation.inputs
            else get_filled_byte(operation)
        )
    return values


def _check(
    operations: list[Operator], sizes: Mapping[str, int], inputs: Sequence[str], output: str
) -> list[Operator]:
    """The joined operations; they make the same bytes."""
    layouts = {name: Layout(channels, POSITIONS, ATOM) for name, channels in sizes.items()}
    found = list(merge_moves(operations, {*inputs, output}, layouts, WORD, lambda operation: True))
    rng = np.random.default_rng(1)
    first = {name: rng.integers(0, 256, 4096, dtype=np.uint8) for name in inputs}
    size = layouts[output].surfaces * POSITIONS * ATOM
    wanted = run_moves(operations, dict(first))[output]
    got = run_moves(found, dict(first))[output]
    assert wanted[:size].tolist() == got[:size].tolist()
    return found


def test_a_shuffle_and_a_slice_are_one() -> None:
    """Two groups of 10 are shuffled, and channels 5 to 16 taken: one operation, nothing between."""
    shuffled = {
        2 * channel + group: 10 * group + channel for group in (0, 1) for channel in range(10)
    }
    operations = _moved("a", "b", shuffled, 3) + _moved("b", "c", {n: n + 5 for n in range(12)}, 2)
    found = _check(operations, {"a": 20, "b": 20, "c": 12}, ["a"], "c")
    assert [type(one) for one in found] == [Gather]
    assert [operand.value for operand in found[0].inputs] == ["a"]


def test_what_others_read_stays() -> None:
    """A region output is written, and its consumers read its sources."""
    operations = _moved("a", "b", {n: 19 - n for n in range(20)}, 3) + _moved(
        "b", "c", {n: n + 3 for n in range(9)}, 2
    )
    layouts = {
        name: Layout(channels, POSITIONS, ATOM)
        for name, channels in {"a": 20, "b": 20, "c": 9}.items()
    }
    found = merge_moves(operations, {"a", "b", "c"}, layouts, WORD, lambda operation: True)
    assert [one.output.value for one in found] == ["b", "c"]


def test_channels_of_several_tensors() -> None:
    """5 channels of one tensor and 9 of another, not aligned to atoms, are one operation.

    The operation has two operands.
    """
    beside = _moved("a", "c", {n: n for n in range(5)}, 2)[:-1]
    other = _moved("b", "c", {n + 5: n for n in range(9)}, 2)
    behind = [one for one in other if one.inputs]
    filled = fills("n", (), "c", find_pieces(_rest(14, 2)), 0)
    found = _check(
        [*[one for one in beside if one.inputs], *behind, *filled],
        {"a": 5, "b": 9, "c": 14},
        ["a", "b"],
        "c",
    )
    assert [type(one) for one in found] == [Gather]
    assert found[0].loops.depths == (1, 2)


def test_what_does_not_fit_stays_copies() -> None:
    """Pieces are copied one by one if a band of one row does not fit the scratchpad."""
    operations = _moved("a", "b", {n: n + 5 for n in range(12)}, 2)
    layouts = {"a": Layout(20, POSITIONS, ATOM), "b": Layout(12, POSITIONS, ATOM)}
    found = merge_moves(
        operations, {"a", "b"}, layouts, WORD, lambda operation: not isinstance(operation, Gather)
    )
    assert not any(isinstance(one, Gather) for one in found)


def _rest(channels: int, surfaces: int) -> NDArray[np.int64]:
    index = np.full((surfaces, POSITIONS, ATOM), NOTHING, np.int64)
    index[-1, :, channels % ATOM :] = 0
    return index


def test_what_lies_in_both_values_is_not_copied() -> None:
    """16 channels that are the same bytes in both values stay so.

    Only the 5 behind them are moved.
    """
    source, result = (Operand(name, (16 * POSITIONS,)) for name in ("a", "c"))
    alias = Alias(name="n", kind="CONCAT", onnx_nodes=(), inputs=(source,), output=result)
    moved = _moved("b", "c", {n + 16: n for n in range(5)}, 3)
    operations = [alias, moved[0], fills("n", (), "c", find_pieces(_rest(21, 3)), 0)[0]]
    layouts = {
        name: Layout(channels, POSITIONS, ATOM)
        for name, channels in {"a": 16, "b": 5, "c": 21}.items()
    }
    found = merge_moves(operations, {"a", "b", "c"}, layouts, WORD, lambda operation: True)
    assert found[0] is alias
    assert all(one.output.start >= 16 * POSITIONS for one in found[1:])
    assert {operand.value for one in found[1:] for operand in one.inputs} == {"b"}


def test_what_reads_an_image_waits_for_all_of_them() -> None:
    """A consumer of a tensor that is written in pieces waits for all pieces.

    The original order has a consumer of the first piece, and its result, before the last piece. The
    merged write is placed after the last piece, so the consumer must follow it. Operations that
    write or read the consumer's result must follow too.
    """
    written = _moved("a", "b", {n: 19 - n for n in range(20)}, 3)
    index = np.where(_rest(20, 3) == 0, 0, NOTHING)
    first, other = (
        copies("n", (), name, "c", find_pieces(_one(place))) for name, place in (("b", 0), ("d", 1))
    )
    last = fills("n", (), "e", find_pieces(index), 0)
    reader = copies("n", (), "c", "f", find_pieces(_one(0)))
    operations = [*written[:-1], *first, *reader, *last, *other, written[-1]]
    layouts = {name: Layout(20, POSITIONS, ATOM) for name in "abcdef"}
    found = merge_moves(
        operations,
        set("abcdef"),
        layouts,
        WORD,
        lambda operation: operation.output.value not in "cef",
    )
    assert [one.output.value for one in found] == ["e", "b", "c", "f", "c"]
    assert [operand.value for one in found[2:] for operand in one.inputs] == ["b", "c", "d"]


def _one(place: int) -> NDArray[np.int64]:
    """Byte ``place`` of a value of 20 channels, and no other."""
    index = np.full((3, POSITIONS, ATOM), NOTHING, np.int64)
    index[0, 0, place] = place
    return index


def test_what_one_map_names_is_written() -> None:
    """A tensor that a merged map names is written although only ``d`` reads it.

    The map of d names b, because a piece of d precedes all of b.
    """
    early, late = (
        copies("n", (), name, "d", find_pieces(_one(place))) for name, place in (("a", 0), ("b", 1))
    )
    rest = np.where(_one(0) + _one(1) == 2 * NOTHING, 0, NOTHING)
    operations = [*early, *_moved("a", "b", {n: 19 - n for n in range(20)}, 3), *late]
    operations += fills("n", (), "d", find_pieces(rest), 0)
    found = _check(operations, dict.fromkeys("abd", 20), ["a"], "d")
    assert {one.output.value for one in found} == {"b", "d"}


def test_what_lies_dense_is_not_taken_by_atoms() -> None:
    """Copies of the 20 results of a reduction are no operation on whole atoms.

    The results have no padding.
    """
    reduction = Reduction(across=True,
        name="n", kind="POOL", onnx_nodes=(), mode="max", count=12, scales=(1.0, 1.0),
        zero_points=(0, 0),
        inputs=(Operand("a", (12, 20), assigned=Layout(12, 20, ATOM)),),
        output=Operand("b", (1, 20), assigned=Layout(20, 1, ATOM)),
    )  # fmt: skip
    shape = 3, 1, ATOM
    index = np.arange(3 * ATOM).reshape(shape)
    operations = [
        reduction,
        *copies("n", (), "b", "c", find_pieces(np.where(index < 20, index, NOTHING))),
        *fills("n", (), "c", find_pieces(np.where(index < 20, NOTHING, 0)), 0),
    ]
    layouts = {name: Layout(20, 1, ATOM) for name in "bc"} | {"a": Layout(12, 20, ATOM)}
    found = merge_moves(operations, {"a", "c"}, layouts, WORD, lambda operation: True)
    assert not any(isinstance(one, Gather) for one in found)


def test_a_copy_in_two_finer_ones_moves_the_same_bytes() -> None:
    dims = (Dim(3, 200, 400), Dim(2, 40, 50), Dim(5, -7, 3), Dim(2, 1, 1))
    (whole,) = copies("n", (), "a", "b", [Piece(90, 10, dims)])

    def moved(operations: Sequence[Operator]) -> set[tuple[int, int]]:
        found = set[tuple[int, int]]()
        for one in operations:
            sources, targets = Piece(0, one.output.start, one.loops.dims).positions()
            begin = one.inputs[0].start - Piece(0, 0, one.loops.dims).lowest
            found |= set(zip((sources + begin).tolist(), targets.tolist(), strict=True))
        return found

    parts = whole.finer()
    assert len(parts) == 2
    assert moved(parts) == moved([whole])
    assert len(moved([whole])) == 60
    assert all(part.inputs[0].elements < whole.inputs[0].elements for part in parts)


def test_constants_behind_two_movements_stay_constants() -> None:
    """Channel 3 of c is the padding of b, which is 0 and comes from no tensor."""
    operations = _moved("a", "b", {n: 9 - n for n in range(10)}, 2) + _moved(
        "b", "c", {0: 1, 1: 5, 3: 12, 4: 7}, 1
    )
    found = _check(operations, {"a": 10, "b": 10, "c": 5}, ["a"], "c")
    assert {operand.value for one in found for operand in one.inputs} == {"a"}


def test_movements_without_a_tiling_stay_as_they_are() -> None:
    operations = _moved("a", "b", {n: n + 5 for n in range(12)}, 2) + _moved(
        "b", "c", {n: 11 - n for n in range(12)}, 2
    )
    layouts = {
        name: Layout(channels, POSITIONS, ATOM)
        for name, channels in {"a": 20, "b": 12, "c": 12}.items()
    }
    found = merge_moves(operations, {"a", "c"}, layouts, WORD, lambda operation: False)
    assert [(one.output.value, len(one.inputs)) for one in found] == [
        (one.output.value, len(one.inputs)) for one in operations
    ]


def test_whole_atoms_are_taken_from_the_tensor_that_has_them() -> None:
    """``c`` reads whole atoms of ``b`` and no single bytes of ``a``.

    b has the odd channels of a with positions reversed.
    """
    places = _places(np.arange(16))
    channels = np.arange(16)
    index = np.full(2 * POSITIONS * ATOM, NOTHING, np.int64)
    index[places] = np.where(channels[:, np.newaxis] % 2, places[:, ::-1], places)
    operations = [*copies("n", (), "a", "b", find_pieces(index.reshape(2, POSITIONS, ATOM)))]
    operations += _moved("b", "c", {n: 8 + n for n in range(8)}, 1)
    layouts = {
        name: Layout(count, POSITIONS, ATOM) for name, count in {"a": 16, "b": 16, "c": 8}.items()
    }
    found = merge_moves(operations, {"a", "b", "c"}, layouts, WORD, lambda operation: True)
    assert {
        operand.value for one in found if one.output.value == "c" for operand in one.inputs
    } == {"b"}


def test_what_a_stored_batch_reads_is_stored() -> None:
    """A batch whose consumer cannot read its sources is stored, and so is what its producers read.

    Two steps are joined to the batch ``b``, which is moved to ``c``. No operation that writes a
    whole tensor has a tiling, and ``d`` is one image, which its copies write.
    """
    joined = [
        copy
        for image, name in enumerate("xy")
        for copy in _moved(name, "b", {8 * image + n: n for n in range(8)}, 2)
        if copy.inputs
    ]
    moved = [copy for step in "cd" for copy in _moved(chr(ord(step) - 1), step, MIRRORED, 2)]
    one = Layout(8, POSITIONS, ATOM)
    layouts = {"x": one, "y": one} | dict.fromkeys("bc", one._replace(images=2))
    layouts["d"] = Layout(16, POSITIONS, ATOM)
    found = merge_moves([*joined, *moved], {"x", "y", "d"}, layouts, WORD, lambda operation: False)
    first = {name: np.arange(4096).astype(np.uint8) + step for step, name in enumerate("xy")}
    size = 2 * POSITIONS * ATOM
    wanted, got = (run_moves(one, dict(first))["d"][:size] for one in ([*joined, *moved], found))
    assert wanted.tolist() == got.tolist()
