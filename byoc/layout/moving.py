"""Movements of a region on a machine of words, as few as they can be: bytes of atoms, wherever they come from.

What only moves elements is a map of bytes. Maps one behind another are one map; what lies between is not there. A map
that leaves every position in its place is one operation on all atoms of a band of rows (:class:`Gather`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.operators.movement import StridedCopy, copies, fewest_words, filled_byte, fills, in_words
from byoc.operators.nest import NOTHING, Nest, Piece, Tile, find_pieces
from byoc.operators.operator import (
    Geometry,
    Loops,
    Lying,
    Operand,
    Operator,
    Part,
    Registers,
    Settings,
    Traits,
    Whole,
)
from isa.arch import Arch
from isa.instruction import ceil_div
from isa.ops.movement import DIMENSIONS

Int64 = NDArray[np.int64]
MOST_BYTES = 1 << 25
"""Of a value whose map is looked at."""
MOST_PIECES = 256
"""Copies that a movement becomes at most."""
_FILLED = -1
"""Instead of the number of a source: the place is the byte itself."""
_SHARED = -3
"""Instead of the number of a source: nobody moves that byte."""
_FAR = 1 << 20
"""Bytes from surface to surface while the pieces of a map are looked for: more than any atom has."""


class _Map(NamedTuple):
    """Where each byte of a value comes from: the number of a source, and the byte there."""

    sources: tuple[str, ...]
    which: Int64
    place: Int64


def joined(
    operations: Sequence[Operator],
    kept: Collection[str],
    lying: Mapping[str, Lying],
    word: int,
    fits: Callable[[Operator], bool],
) -> tuple[Operator, ...]:
    """``operations`` with movements that follow one another as one.

    Of values without zeros behind their last channel no whole atoms are taken. ``kept``: values that enter or leave;
    ``lying``: how values lie; ``word``: bytes of the machine's; ``fits``: whether
    an operation can be tiled.
    """
    dense = {operation.output.value for operation in operations if operation.omits_padding}
    lying = {name: lies for name, lies in lying.items() if name not in dense}
    makers: dict[str, list[Operator]] = {}
    readers: dict[str, list[Operator]] = {}
    sizes: dict[str, int] = {}
    for operation in operations:
        makers.setdefault(operation.output.value, []).append(operation)
        for operand in operation.inputs:
            readers.setdefault(operand.value, []).append(operation)
        for operand in (*operation.inputs, operation.output):
            sizes[operand.value] = max(sizes.get(operand.value, 0), operand.start + operand.nbytes)
    known: dict[str, _Map] = {}
    made: dict[str, tuple[Operator, ...]] = {}
    stay: dict[str, list[Operator]] = {}
    past: set[str] = set()
    for name, found in makers.items():
        free = all(one.slices for one in found)
        again = len(found) == 1 and found[0].inputs[:1] and found[0].inputs[0].value in known
        if not all(map(_moves, found)) or sizes[name] > MOST_BYTES or (free and not again):
            continue
        past_any = any(one.value in known for operation in found for one in operation.inputs)
        for before in (known, {}):  # past what lies between, or from there where that alone leaves positions in place
            if name in made and (_is_gather(made[name]) or not past_any):
                break
            mapped = _composed(found, sizes[name], before)
            shared = [one for one in found if one.slices and one.inputs[0].value not in before]  # costs nothing
            written = None if mapped is None else _written(found[0], name, mapped, shared, lying, word, fits)
            if mapped is None or written is None:
                continue
            if name not in made or (_is_gather(written) and not _is_gather(made[name])):
                known[name], made[name], stay[name] = mapped, written, shared
                past.discard(name)
                past.update({name} if before is known else ())
    passing = {
        name
        for name in known
        if name not in kept
        and readers.get(name)
        and all(one.output.value in past and name not in known[one.output.value].sources for one in readers[name])
    }
    result = list[Operator]()
    for operation in operations:
        name = operation.output.value
        if name in passing:
            continue
        if name not in made or operation in stay[name]:
            result.append(operation)
        if name in made and operation is makers[name][-1]:
            result += made[name]
    return tuple(in_words(one, word) for one in _after_their_operands(result, made.keys()))


def _after_their_operands(operations: Sequence[Operator], whole: Collection[str]) -> Iterator[Operator]:
    """``operations`` in order, but for those that read a value of ``whole`` before all of it is written.

    Such a value was written image by image, with what reads an image between them, and is now written at once, behind
    the last one. What waits is followed by what writes the same value, and by what reads that.
    """
    left = Counter(one.output.value for one in operations if one.output.value in whole)
    waiting: list[Operator] = []
    for operation in operations:
        waiting.append(operation)
        again = True
        while again:
            again, behind, held = False, list[Operator](), set[str]()
            for one in waiting:
                name = one.output.value
                if name in held or any(left[read.value] or read.value in held for read in one.inputs):
                    behind.append(one)
                    held.add(name)
                    continue
                if name in whole:
                    left[name] -= 1
                    again = again or not left[name]
                yield one
            waiting = behind


def _is_gather(made: Sequence[Operator]) -> bool:
    return len(made) == 1 and made[0].traits.gathers


def _moves(operation: Operator) -> bool:
    return operation.traits.moves and not operation.constant_operands


def _composed(makers: Sequence[Operator], size: int, known: Mapping[str, _Map]) -> _Map | None:
    """The map of a value that ``makers`` write, from what no other map makes; None where one is missing."""
    sources: dict[str, int] = {}
    which, place = np.full(size, NOTHING - 1, np.int64), np.zeros(size, np.int64)
    for operation in makers:
        for name, begins, targets in _positions(operation):
            if name is None:
                which[targets], place[targets] = _FILLED, begins
                continue
            before = known.get(name)
            if before is None:
                which[targets], place[targets] = sources.setdefault(name, len(sources)), begins
                continue
            numbers = np.array([sources.setdefault(one, len(sources)) for one in before.sources] + [_FILLED])
            which[targets], place[targets] = numbers[before.which[begins]], before.place[begins]
    used = tuple(sources)
    return None if (which < _FILLED).any() else _Map(used, which, place)


def _positions(operation: Operator) -> Iterator[tuple[str | None, Int64, Int64]]:
    """(source, its bytes, bytes of the result) that an operation moves; of a fill None and the byte."""
    if operation.slices:
        for source, target in operation.slices:
            steps = np.arange(source.nbytes)
            yield source.value, source.start + steps, target.start + steps
        return
    dims = operation.loops.dims
    lowest = Piece(0, 0, dims).lowest
    begin = operation.inputs[0].start - lowest if operation.inputs else 0
    sources, targets = Piece(begin, operation.output.start, dims).positions()
    filled = filled_byte(operation)
    if filled is not None:
        yield None, np.full_like(targets, filled), targets
    else:
        yield operation.inputs[0].value, sources, targets


def _written(
    node: Operator,
    name: str,
    found: _Map,
    shared: Sequence[Operator],
    lying: Mapping[str, Lying],
    word: int,
    fits: Callable[[Operator], bool],
) -> tuple[Operator, ...] | None:
    """The operations that write ``name`` by its map, but for what is ``shared``: the same bytes in both values.

    None where they are too many, or it is not known how it lies.
    """
    lies = lying.get(name)
    if lies is None or lies.surfaces * lies.positions * lies.atom != found.which.size:
        return None
    if shared:
        which = found.which.copy()
        for operation in shared:
            for _, _, targets in _positions(operation):
                which[targets] = _SHARED
        found = found._replace(which=which)
    else:
        gathered = _gathered(node, name, found, lying, word)
        if gathered is not None and fits(gathered):
            return (gathered,)
    shape = lies.surfaces, lies.positions, lies.atom
    result = list[Operator]()
    for number, source in enumerate(found.sources):
        pieces = find_pieces(np.where(found.which == number, found.place, NOTHING).reshape(shape))
        result += copies(node.name, node.onnx_nodes, source, name, pieces)
    for value in np.unique(found.place[found.which == _FILLED]).tolist():
        index = np.where((found.which == _FILLED) & (found.place == value), 0, NOTHING)
        result += fills(node.name, node.onnx_nodes, name, find_pieces(index.reshape(shape)), value)
    return tuple(result) if len(result) <= MOST_PIECES and all(map(fits, result)) else None


# One operation on all atoms. -----------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """A dimension of a piece: steps, surfaces and bytes from source to source and from result to result."""

    size: int
    source: tuple[int, int]
    target: tuple[int, int]


class _Taken(NamedTuple):
    """Bytes of every position that come from operand number ``operand``, or (None) are ``value``: surface and byte."""

    operand: int | None
    source: tuple[int, int]
    target: tuple[int, int]
    steps: tuple[_Step, ...]
    value: int = 0


def _gathered(node: Operator, name: str, found: _Map, lying: Mapping[str, Lying], word: int) -> Gather | None:
    """The map as one operation; None where it does not leave positions in their place."""
    lies = lying[name]
    shape = lies.surfaces, lies.positions, lies.atom
    which, place = found.which.reshape(shape), found.place.reshape(shape)
    if not found.sources or (which != which[:, :1]).any():
        return None
    depths, taken = list[int](), list[_Taken]()
    steps = np.arange(lies.positions)[:, np.newaxis] * lies.atom
    for number, source in enumerate(found.sources):
        other, mine = lying.get(source), which[:, 0] == number
        if other is None or other[1:] != lies[1:]:
            return None
        if (np.where(mine[:, np.newaxis], place - steps - place[:, :1], 0)).any():
            return None
        surface, byte = np.divmod(place[:, 0], other.positions * other.atom)
        if (mine & (byte >= other.atom)).any():
            return None
        depths.append(other.surfaces)
        pieces = _pieces(np.where(mine, surface * _FAR + byte, NOTHING), lies.atom)
        taken += [_Taken(number, *piece) for piece in pieces]
    for value in np.unique(place[which == _FILLED]).tolist():
        pieces = _pieces(np.where((which[:, 0] == _FILLED) & (place[:, 0] == value), 0, NOTHING), lies.atom)
        taken += [_Taken(None, *piece, value) for piece in pieces]
    if len(taken) > MOST_PIECES:
        return None
    rows, columns = _rows(node.output, lies)
    operands = tuple(
        Operand(source, (depth * lies.positions * lies.atom,))
        for source, depth in zip(found.sources, depths, strict=True)
    )
    return Gather(
        name=node.name, kind="ELTWISE", onnx_nodes=node.onnx_nodes, inputs=operands,
        output=Operand(name, (found.which.size,)), depths=tuple(depths), rows=rows, row_bytes=columns * lies.atom,
        taken=tuple(taken), atom=lies.atom, word=word,
    )  # fmt: skip


def _rows(output: Operand, lies: Lying) -> tuple[int, int]:
    """Rows and columns in which positions are cut into bands: of whole words where there are such."""
    columns = next((size for size in (28, 14, 56, 16, 8, 4, 7, 2) if lies.positions % size == 0), 1)
    return lies.positions // columns, columns


def _pieces(index: Int64, atom: int) -> list[tuple[tuple[int, int], tuple[int, int], tuple[_Step, ...]]]:
    """The pieces of a map (surfaces, atom) of bytes that lie :data:`_FAR` bytes a surface apart."""
    width, found = 4 * atom, []  # so that no run goes on in the next surface
    apart = np.full((len(index), width), NOTHING, np.int64)
    apart[:, :atom] = index
    for piece in find_pieces(apart):
        steps = [_Step(dim.size, _apart(dim.source, _FAR), _apart(dim.target, width)) for dim in piece.dims]
        able = [min(step.source, step.target) >= (0, 0) for step in steps]
        upwards = tuple(step for step, ok in zip(steps, able, strict=True) if ok)
        others = tuple(dim for dim, ok in zip(piece.dims, able, strict=True) if not ok)  # a copy a step
        starts = Piece(piece.source, piece.target, others).positions()
        for source, target in zip(*(places.tolist() for places in starts), strict=True):
            found.append((_apart(source, _FAR), _apart(target, width), upwards))
    return found


def _apart(place: int, surface: int) -> tuple[int, int]:
    surfaces = (place + surface // 2) // surface
    return surfaces, place - surfaces * surface


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Operator):
    """Bytes of the atoms of some tensors become the atoms of one, position by position.

    A channel of its nest is a surface, ``rows`` of ``row_bytes`` bytes; ``depths`` are the surfaces of each operand,
    ``taken`` what of them goes where. Positions are ``atom`` bytes, words of the scratchpad ``word``.
    """

    instructions: ClassVar[tuple[str, ...]] = StridedCopy.instructions
    traits: ClassVar[Traits] = Traits(moves=True, along_elements=True, gathers=True)

    depths: tuple[int, ...]
    rows: int
    row_bytes: int
    atom: int
    word: int
    taken: tuple[_Taken, ...]

    @property
    def loops(self) -> Loops:
        """Surfaces, rows and the bytes of a row."""
        surfaces = self.output.nbytes // (self.rows * self.row_bytes)
        sizes = surfaces, self.rows, self.row_bytes, self.depths[0], self.rows, self.row_bytes
        return Loops(Nest(*sizes, whole=True), depths=self.depths)

    def settings(self, arch: Arch) -> Settings:
        """For the estimate: bytes far apart, as many a row as all commands ask for words in the whole tensor."""
        rows = self.rows
        words = sum(copied.words for copied in self._copies(rows, (True,) * len(self.depths), True))
        far = {f"EX_{side}_STRIDE_{n}": 1 << 20 for side in ("INPUT", "OUTPUT") for n in (1, 3)}
        return Settings({**far, "EX_COUNT_3": max(1, ceil_div(words, rows))}, {"fill": 0})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        return {"EX_COUNT_1": tile.output.rows.size, "EX_COUNT_2": 1, "EX_COUNT_4": 1}

    def commands(self, geometry: Geometry, tile: Tile, registers: Registers, whole: Whole) -> tuple[Part, ...]:
        """A copy of all positions for every piece, or several where one has too many dimensions."""
        return tuple(
            Part(
                {**registers, **copied.registers},
                {"EX_OUTPUT_ADDRESS": copied.target}
                | ({} if copied.operand is None else {"EX_INPUT_ADDRESS": copied.source}),
                copied.operand or 0,
                {"fill": int(copied.operand is None)},
            )
            for copied in self._copies(tile.output.rows.size, whole.operands, whole.result)
        )

    def _copies(self, rows: int, near: tuple[bool, ...], whole: bool) -> Iterator[_Copied]:
        """The commands on a band of ``rows``; ``near``, ``whole``: which operands are whole tensors, and the result."""
        band, tensor = rows * self.row_bytes, self.rows * self.row_bytes
        result = tensor if whole else band
        for one in self.taken:
            plane = 0 if one.operand is None else tensor if near[one.operand] else band
            dims = [(rows * self.row_bytes // self.atom, self.atom, self.atom)]
            dims += [(step.size, _bytes(step.source, plane), _bytes(step.target, result)) for step in one.steps]
            if one.operand is None:
                dims = [(count, 0, stride) for count, _, stride in dims]
            dims = [dim for dim in dims if dim[0] > 1]
            fewest = sorted(dims[1:])[: max(0, len(dims) - len(DIMENSIONS))]
            inner = [dim for dim in dims if dim not in fewest]
            order, words = fewest_words(tuple(inner), self.word)
            source, target = _bytes(one.source, plane), _bytes(one.target, result)
            for steps in product(*(range(count) for count, _, _ in fewest)):
                moved = [sum(n * dim[side] for n, dim in zip(steps, fewest, strict=True)) for side in (1, 2)]
                yield _Copied(one.operand, source + moved[0], target + moved[1], _registers(order, one.value), words)


class _Copied(NamedTuple):
    """One command: its operand, where it begins on both sides, its registers, and the words it asks for at most."""

    operand: int | None
    source: int
    target: int
    registers: Registers
    words: int


def _bytes(place: tuple[int, int], plane: int) -> int:
    return place[0] * plane + place[1]


_Dims = tuple[tuple[int, int, int], ...]


def _registers(dims: _Dims, value: int) -> dict[str, int]:
    registers = {"EX_INPUT_ZERO_POINT": value}
    for number, dim in zip(DIMENSIONS, (*dims, *[(1, 0, 0)] * len(DIMENSIONS)), strict=False):
        for name, held in zip(("COUNT", "INPUT_STRIDE", "OUTPUT_STRIDE"), dim, strict=True):
            registers[f"EX_{name}_{number}"] = held
    return registers
