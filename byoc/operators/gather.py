"""Gather: one operation that moves bytes of the atoms of several tensors, position by position.

:func:`to_gather` turns a byte map that keeps every byte at its position into such an operation. It
is tiled in bands of rows and has one command for each piece of the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.operators.copies import StridedCopy, fewest_words, get_filled_byte
from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.operator import Operator
from byoc.operators.pieces import NOTHING, Dim, Piece, find_pieces
from byoc.operators.records import CommandPart, Loops, Operand, Registers, Settings, Traits, Whole
from isa.arch import Arch
from isa.instruction import ceil_div
from isa.layout import Layout
from isa.ops.movement import DIMENSIONS

Int64 = NDArray[np.int64]
MAX_PIECES_PER_MOVE = 256
"""Maximum number of copies of a movement."""
CONSTANT = -1
"""Source number in a byte map of a byte that is given by value."""
_SURFACE_STRIDE = 1 << 20
"""Stride of surfaces in bytes during the search for pieces; larger than any atom."""


@dataclass(frozen=True, eq=False)
class Origins:
    """Source of each byte of a tensor.

    For each byte, ``source`` is the number of a tensor, or :data:`CONSTANT`; ``byte`` is the byte's
    offset in that tensor, or the constant value.
    """

    source: NDArray[np.int32]
    byte: Int64

    @cached_property
    def taken(self) -> dict[tuple[Layout, tuple[Layout | None, ...]], tuple[_Taken, ...] | None]:
        """Cache of the pieces of gathers, by the layouts of the result and of the sources."""
        return {}


class ByteMap(NamedTuple):
    """Source of each byte of a tensor, and the names of its ``sources`` by number."""

    sources: tuple[str, ...]
    origins: Origins

    @property
    def source(self) -> NDArray[np.int32]:
        return self.origins.source

    @property
    def byte(self) -> Int64:
        return self.origins.byte


class _Step(NamedTuple):
    """Dimension of a strided piece: step count, and strides in source and result.

    Strides are (surfaces, bytes).
    """

    size: int
    source: tuple[int, int]
    target: tuple[int, int]


class _Taken(NamedTuple):
    """Bytes at every position of a gather's result that one operand or constant provides.

    ``operand`` is the operand's number. If it is None, the bytes have ``value``.
    """

    operand: int | None
    source: tuple[int, int]
    target: tuple[int, int]
    steps: tuple[_Step, ...]
    value: int = 0


def to_gather(
    node: Operator,
    name: str,
    found: ByteMap,
    layouts: Mapping[str, Layout],
    shapes: Mapping[str, tuple[int, ...]],
    word: int,
) -> Gather | None:
    """Return one gather operation for a byte map, or None if that is impossible.

    A byte map is no gather if bytes change position or the map has too many pieces.
    """
    layout = layouts[name]
    others = tuple([layouts.get(source) for source in found.sources])
    known = found.origins.taken
    if (layout, others) not in known:  # many tensors of a region are moved alike
        known[layout, others] = _find_taken(found.origins, layout, others)
    taken = known[layout, others]
    if taken is None:
        return None
    depths = tuple([other.surfaces for other in others if other is not None])
    atom = max(other.atom for other in others if other is not None)
    rows, columns = _rows(layout, (shapes.get(one, ()) for one in (name, *found.sources)))
    operands = tuple(
        Operand(source, (depth * layout.positions * atom,))
        for source, depth in zip(found.sources, depths, strict=True)
    )
    return Gather(
        name=node.name, kind="ELTWISE", onnx_nodes=node.onnx_nodes, inputs=operands,
        output=Operand(name, (found.source.size,)), depths=depths, rows=rows,
        row_bytes=columns * layout.atom,
        taken=taken, atom=layout.atom, source_atom=atom, word=word,
    )  # fmt: skip


def _find_taken(
    found: Origins, layout: Layout, others: tuple[Layout | None, ...]
) -> tuple[_Taken, ...] | None:
    """Return what each operand provides of a gather, or None if the bytes are no gather.

    ``others`` are the layouts of the sources.
    """
    shape = layout.surfaces, layout.positions, layout.atom
    which = found.source.reshape(shape)
    place = found.byte.reshape(shape)
    if not others or (which != which[:, :1]).any():
        return None
    taken = list[_Taken]()
    atoms = {other.atom for other in others if other is not None}
    steps = np.arange(layout.positions)[:, np.newaxis] * max(atoms, default=layout.atom)
    copied = which[:, :1] != CONSTANT
    if len(atoms) > 1 or (copied & (place - place[:, :1] != steps)).any():
        return None
    for number, other in enumerate(others):
        mine = which[:, 0] == number
        if other is None or other._replace(channels=0, atom=0) != layout._replace(
            channels=0, atom=0
        ):
            return None
        surface, byte = np.divmod(place[:, 0], other.positions * other.atom)
        if (mine & (byte >= other.atom)).any():
            return None
        pieces = _pieces(np.where(mine, surface * _SURFACE_STRIDE + byte, NOTHING), layout.atom)
        taken += [_Taken(number, *piece) for piece in pieces]
    for value in [] if copied.all() else np.unique(place[which == CONSTANT]).tolist():
        pieces = _pieces(
            np.where((which[:, 0] == CONSTANT) & (place[:, 0] == value), 0, NOTHING), layout.atom
        )
        taken += [_Taken(None, *piece, value) for piece in pieces]
    return tuple(taken) if len(taken) <= MAX_PIECES_PER_MOVE else None


def _rows(layout: Layout, shapes: Iterable[tuple[int, ...]]) -> tuple[int, int]:
    """Return the rows and columns in which a tensor's positions are arranged for bands.

    They come from a tensor's image, or from factoring the number of positions.
    """
    for shape in shapes:
        if len(shape) == 4 and prod(shape[2:]) == layout.positions:
            return shape[2], shape[3]
    columns = next(
        (size for size in (28, 14, 56, 16, 8, 4, 7, 2) if layout.positions % size == 0), 1
    )
    return layout.positions // columns, columns


def _pieces(
    index: Int64, atom: int
) -> list[tuple[tuple[int, int], tuple[int, int], tuple[_Step, ...]]]:
    """Return the strided pieces of a byte map of shape (surfaces, atom).

    Surfaces are :data:`_SURFACE_STRIDE` bytes apart.
    """
    width = 4 * atom  # gaps keep runs from continuing in the next surface
    found = []
    apart = np.full((len(index), width), NOTHING, np.int64)
    apart[:, :atom] = index
    for piece in find_pieces(apart):
        steps = [
            _Step(
                dim.size, _split_place(dim.source, _SURFACE_STRIDE), _split_place(dim.target, width)
            )
            for dim in piece.dims
        ]
        able = [min(step.source, step.target) >= (0, 0) for step in steps]
        upwards = tuple(step for step, ok in zip(steps, able, strict=True) if ok)
        # one copy per step
        others = tuple(dim for dim, ok in zip(piece.dims, able, strict=True) if not ok)
        starts = Piece(piece.source, piece.target, others).positions()
        for source, target in zip(*(places.tolist() for places in starts), strict=True):
            found.append(
                (_split_place(source, _SURFACE_STRIDE), _split_place(target, width), upwards)
            )
    return found


def _split_place(place: int, surface: int) -> tuple[int, int]:
    surfaces = (place + surface // 2) // surface
    return surfaces, place - surfaces * surface


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Operator):
    """Gather of bytes from the atoms of several tensors into the atoms of one.

    It treats all positions alike. A channel of its nest is a surface of ``rows`` rows of
    ``row_bytes`` bytes. ``depths`` has the surfaces of each operand, ``taken`` the pieces of the
    map. A position has ``atom`` bytes in the result and ``source_atom`` bytes in operands.
    ``word``: bytes of a memory word.
    """

    instructions: ClassVar[tuple[str, ...]] = StridedCopy.instructions
    traits: ClassVar[Traits] = Traits(moves=True, along_elements=True, gathers=True)

    depths: tuple[int, ...]
    rows: int
    row_bytes: int
    atom: int
    source_atom: int
    word: int
    taken: tuple[_Taken, ...]

    @property
    def loops(self) -> Loops:
        """Loop nest of the gather's result: surfaces, rows, bytes of a row."""
        surfaces = self.output.nbytes // (self.rows * self.row_bytes)
        sizes = surfaces, self.rows, self.row_bytes, self.depths[0], self.rows, self._source_row
        return Loops(LoopNest(*sizes, channel_step=surfaces), depths=self.depths)

    @property
    def _source_row(self) -> int:
        """Bytes of one row of an operand of the gather."""
        return self.row_bytes // self.atom * self.source_atom

    def settings(self, arch: Arch) -> Settings:
        """Return registers that estimate a gather's cost by its average memory words per row.

        Large strides put each byte in a word of its own. The words are those of all commands on the
        whole tensor.
        """
        rows = self.rows
        planes = self._planes(rows, Whole(True, True, (True,) * len(self.depths)))
        words = sum(copied.words for copied in self._copies(rows, planes))
        far = {f"EX_{side}_STRIDE_{n}": 1 << 20 for side in ("INPUT", "OUTPUT") for n in (1, 3)}
        return Settings({**far, "EX_COUNT_3": max(1, ceil_div(words, rows))}, {"fill": 0})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        return {"EX_COUNT_1": tile.output.rows.size, "EX_COUNT_2": 1, "EX_COUNT_4": 1}

    def commands(
        self, geometry: Geometry, tile: Tile, registers: Registers, whole: Whole
    ) -> tuple[CommandPart, ...]:
        """Return the copy commands of a gather: one or more for each strided piece.

        A piece with too many dimensions needs several copies.
        """
        return tuple(
            CommandPart(
                {**registers, **copied.registers},
                {"EX_OUTPUT_ADDRESS": copied.target}
                | ({} if copied.operand is None else {"EX_INPUT_ADDRESS": copied.source}),
                copied.operand or 0,
                {"fill": int(copied.operand is None)},
            )
            for copied in self._copies(
                tile.output.rows.size, self._planes(tile.output.rows.size, whole)
            )
        )

    def _planes(self, rows: int, whole: Whole) -> tuple[int, ...]:
        """Return the distance in bytes between surfaces, for each operand and the result.

        They are the strides in a band of ``rows``.
        """
        inputs = tuple((self.rows if near else rows) * self._source_row for near in whole.operands)
        return whole.planes or (*inputs, (self.rows if whole.result else rows) * self.row_bytes)

    @cached_property
    def _known(self) -> dict[tuple[int, tuple[int, ...]], tuple[_Copied, ...]]:
        """Cache of the copy commands of a band, by its rows and surface strides.

        Most bands of a tiling have equal ones.
        """
        return {}

    def _copies(self, rows: int, planes: tuple[int, ...]) -> tuple[_Copied, ...]:
        """Return the copy commands of a gather for a band of ``rows`` rows.

        ``planes`` has the surface strides of operands and result.
        """
        key = rows, planes
        if key not in self._known:
            self._known[key] = tuple(self._make_copies(rows, planes))
        return self._known[key]

    def _make_copies(self, rows: int, planes: tuple[int, ...]) -> Iterator[_Copied]:
        result = planes[-1]
        for one in self.taken:
            plane = 0 if one.operand is None else planes[one.operand]
            dims = [(rows * self.row_bytes // self.atom, self.source_atom, self.atom)]
            dims += [
                (step.size, _bytes(step.source, plane), _bytes(step.target, result))
                for step in one.steps
            ]
            if one.operand is None:
                dims = [(count, 0, stride) for count, _, stride in dims]
            dims = [dim for dim in dims if dim[0] > 1]
            fewest = sorted(dims[1:])[: max(0, len(dims) - len(DIMENSIONS))]
            inner = [dim for dim in dims if dim not in fewest]
            order, words = fewest_words(tuple(inner), self.word)
            source = _bytes(one.source, plane)
            target = _bytes(one.target, result)
            for steps in product(*(range(count) for count, _, _ in fewest)):
                moved = [
                    sum(n * dim[side] for n, dim in zip(steps, fewest, strict=True))
                    for side in (1, 2)
                ]
                yield _Copied(
                    one.operand,
                    source + moved[0],
                    target + moved[1],
                    _registers(order, one.value),
                    words,
                )


class _Copied(NamedTuple):
    """Copy command of a gather, with its operand, start offsets, registers and memory words.

    ``words`` is the largest number of words that the command needs.
    """

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


def list_moved_pieces(operation: Operator) -> Iterator[tuple[int | None, int, Piece]]:
    """Yield the strided pieces that a data movement copies, with their operand numbers.

    The items are (operand number, 0, piece). For a fill, they are (None, byte, piece).
    """
    if isinstance(operation, Gather):
        plane = operation.rows * operation.row_bytes
        read = plane // operation.atom * operation.source_atom
        for one in operation.taken:
            steps = [
                Dim(step.size, _bytes(step.source, read), _bytes(step.target, plane))
                for step in one.steps
            ]
            dims = (*steps, Dim(plane // operation.atom, operation.source_atom, operation.atom))
            yield (
                one.operand,
                one.value,
                Piece(_bytes(one.source, read), _bytes(one.target, plane), dims),
            )
        return
    dims = operation.loops.dims
    filled = get_filled_byte(operation)
    if filled is not None:
        yield None, filled, Piece(0, 0, dims)
    elif dims:
        yield 0, 0, Piece(-Piece(0, 0, dims).lowest, 0, dims)
    else:
        yield 0, 0, Piece(0, 0, (Dim(operation.output.nbytes, 1, 1),))


def find_moved_pieces(operation: Operator) -> Iterator[tuple[str | int, Piece]]:
    """Yield the source tensor and the strided piece of bytes of each copy of a data movement.

    For a fill, yield its value in place of the source. Bytes of dense operands are elements.
    """
    if operation.slices:
        for read, written in operation.slices:
            yield read.value, Piece(read.start, written.start, (Dim(read.nbytes, 1, 1),))
        return
    dims = operation.loops.dims
    first = operation.output.start
    filled = get_filled_byte(operation)
    if filled is not None:
        yield filled, Piece(0, first, dims)
    else:
        source = operation.inputs[0]
        yield source.value, Piece(source.start - Piece(0, 0, dims).lowest, first, dims)
