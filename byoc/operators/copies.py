"""Strided copies and fills: the operations that move elements on the accelerator."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from typing import Any, ClassVar

from byoc.graph import Node
from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.operator import Operator
from byoc.operators.pieces import (
    NO_PADDING,
    Dim,
    Piece,
    Runs,
    find_padded_runs,
    layout,
    merge_dims,
    spread_of,
)
from byoc.operators.records import CommandPart, Loops, Operand, Registers, Settings, Traits, Whole
from isa.arch import Arch
from isa.ops.movement import DIMENSIONS, copy_words


def make_copies(
    node: Node, source: str, result: str, pieces: Iterable[Piece]
) -> tuple[Operator, ...]:
    """Return the copies that move pieces of the value ``source`` into ``result`` for a node."""
    return copies(node.name, node.onnx_nodes, source, result, pieces)


def copies(
    name: str, onnx_nodes: tuple[str, ...], source: str, result: str, pieces: Iterable[Piece]
) -> tuple[Operator, ...]:
    """Return the copy operations that move strided pieces of ``source`` into ``result``.

    ``name`` is the name of the layer.
    """
    found = []
    for piece in pieces:
        hull = piece.highest - piece.lowest + 1
        operand = Operand(source, (1, hull), piece.lowest)
        found.append(StridedCopy(**_fields(name, onnx_nodes, piece, result), inputs=(operand,)))
    return tuple(found)


def fills(
    name: str, onnx_nodes: tuple[str, ...], result: str, pieces: Iterable[Piece], value: int
) -> tuple[Operator, ...]:
    """Return operations that write the byte ``value`` into strided pieces of ``result``."""
    return tuple(
        Fill(**_fields(name, onnx_nodes, piece, result), inputs=(), value=value) for piece in pieces
    )


def _fields(name: str, onnx_nodes: tuple[str, ...], piece: Piece, result: str) -> dict[str, Any]:
    """Return the keyword arguments that strided copies and fills have in common.

    They are the name, and the position of the piece in the result.
    """
    hull = 1 + sum((dim.size - 1) * dim.target for dim in piece.dims)
    output = Operand(result, (hull,), piece.target)
    parts = _cut(piece.dims)
    return {"name": name, "kind": "ELTWISE", "output": output, "onnx_nodes": onnx_nodes, **parts}


def _cut(dims: tuple[Dim, ...]) -> dict[str, Any]:
    """Select the two dimensions of a strided copy that tiles divide.

    The first is the outermost one on both sides; the second has many steps. Dividing between
    contiguous elements would make transfers of few bytes.
    """

    def is_apart(dim: Dim) -> int:
        return min(dim.source or dim.target, dim.target)

    able = [dim for dim in dims if dim.source > 0 or all(other.source == 0 for other in dims)]
    chosen = [max(able, key=lambda dim: (is_apart(dim), dim.size))] if able else []
    others = [dim for dim in able if dim not in chosen]
    if others:
        chosen.append(max(others, key=lambda dim: (min(is_apart(dim), 16), dim.size)))
    channels, rows = (*chosen, Dim(1, 0, 0), Dim(1, 0, 0))[:2]
    return {
        "channels": channels,
        "rows": rows,
        "inner": tuple(dim for dim in dims if dim not in chosen),
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class StridedCopy(Operator):
    """Operation that copies elements of a tensor at constant strides.

    Tiles divide ``channels`` and ``rows``, but not ``inner`` ones. Tile buffers contain elements
    densely, in the order of the tensor.
    """

    instructions: ClassVar[tuple[str, ...]] = ("OP_PERMUTE",)
    traits: ClassVar[Traits] = Traits(moves=True, along_elements=True)

    channels: Dim
    rows: Dim
    inner: tuple[Dim, ...]
    word: int = 0
    """Bytes of a scratchpad word, used to order dimensions; 0 for ideal memory."""

    @property
    def loops(self) -> Loops:
        """Loops of a strided copy over its ``channels`` and ``rows`` dimensions.

        All other elements are columns.
        """
        channels = self.channels.size
        rows = self.rows.size
        columns = math.prod(dim.size for dim in self.inner)
        runs = find_padded_runs(self.dims)
        width = math.prod(dim.size for dim in self.inner if dim.source) * spread_of(self.dims)
        width = width // runs.nbytes * runs.stride
        return Loops(
            LoopNest(channels, rows, columns, channels, rows, width, groups=channels),
            dims=self.dims,
        )

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (self.channels, self.rows, *self.inner)

    def settings(self, arch: Arch) -> Settings:
        """Return only the ``fill`` field, because every copy command has its own registers."""
        return Settings({}, {"fill": int(not self.inputs)})

    def finer(self) -> tuple[Operator, ...]:
        """Return two halves of a strided copy, split along its longest inner dimension.

        No tile divides an inner dimension. The result is empty if none has two steps.
        """
        longest = max(self.inner, key=lambda dim: dim.size, default=None)
        if longest is None or longest.size < 2:
            return ()
        place = self.dims.index(longest)
        count = longest.size // 2
        return tuple(
            self._part(place, first, size)
            for first, size in ((0, count), (count, longest.size - count))
        )

    def _part(self, place: int, first: int, size: int) -> Operator:
        """Return the part of a strided copy with ``size`` steps along one dimension.

        The dimension is number ``place``, and the part begins at its step ``first``.
        """
        dims = list(self.dims)
        dim = dims[place]
        dims[place] = dim._replace(size=size)
        piece = Piece(first * dim.source, first * dim.target, tuple(dims))
        whole = Piece(0, 0, self.dims)
        inputs = tuple(
            replace(
                one,
                shape=(1, piece.highest - piece.lowest + 1),
                offset=one.offset + piece.lowest - whole.lowest,
            )
            for one in self.inputs
        )
        hull = 1 + sum((one.size - 1) * one.target for one in dims)
        output = replace(self.output, shape=(hull,), offset=self.output.offset + piece.target)
        return replace(self, inputs=inputs, output=output, **_cut(piece.dims))

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the registers that determine the duration of a tile's copy.

        They describe the fastest dimension, and all others merged into one.
        """
        loops = geometry.tile_dims(tile.output.channels.size, tile.output.rows.size)
        counts = [dim.size for dim in loops]
        sources = _pack_strides(
            counts,
            [dim.source for dim in loops],
            spread_of(geometry.dims),
            find_padded_runs(geometry.dims),
        )
        targets = _pack_strides(counts, [dim.target for dim in loops], 1)
        inside, outside = _unroll_dims(
            Dim(*loop) for loop in zip(counts, sources, targets, strict=True)
        )
        *others, fastest = inside or (Dim(1, 0, 0),)
        return {
            "EX_COUNT_1": fastest.size,
            "EX_INPUT_STRIDE_1": fastest.source,
            "EX_OUTPUT_STRIDE_1": fastest.target,
            "EX_COUNT_2": math.prod(dim.size for dim in (*others, *outside)),
            "EX_COUNT_3": 1,
            "EX_COUNT_4": 1,
        }

    def commands(
        self, geometry: Geometry, tile: Tile, registers: Registers, whole: Whole
    ) -> tuple[CommandPart, ...]:
        """Return commands that copy a tile along at most four dimensions each.

        The source strides are not negative.
        """
        loops = geometry.tile_dims(tile.output.channels.size, tile.output.rows.size)
        counts = [dim.size for dim in loops]
        sources = [dim.source for dim in loops]
        targets = [dim.target for dim in loops]
        runs = find_padded_runs(self.dims)
        sources = (
            sources if whole.operand else _pack_strides(counts, sources, spread_of(self.dims), runs)
        )
        targets = targets if whole.result else _pack_strides(counts, targets, 1)
        inside, outside = _unroll_dims(
            Dim(*loop) for loop in zip(counts, sources, targets, strict=True)
        )
        if self.word:
            order, _ = fewest_words(
                tuple((dim.size, dim.source, dim.target) for dim in inside), self.word
            )
            inside = tuple(Dim(*dim) for dim in reversed(order))
        # Sources with a negative stride begin after the lowest one.
        steps = Piece(
            sum(-(dim.size - 1) * dim.source for dim in outside if dim.source < 0), 0, outside
        )
        values = dict(registers)
        for number, loop in zip(
            DIMENSIONS, (*reversed(inside), *[Dim(1, 0, 0)] * len(DIMENSIONS)), strict=False
        ):
            values[f"EX_COUNT_{number}"] = loop.size
            values[f"EX_INPUT_STRIDE_{number}"] = loop.source
            values[f"EX_OUTPUT_STRIDE_{number}"] = loop.target
        places = zip(*(positions.tolist() for positions in steps.positions()), strict=True)
        if not self.inputs:
            return tuple(CommandPart(values, {"EX_OUTPUT_ADDRESS": target}) for _, target in places)
        return tuple(
            CommandPart(values, {"EX_INPUT_ADDRESS": source, "EX_OUTPUT_ADDRESS": target})
            for source, target in places
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Fill(StridedCopy):
    """Operation without operand that writes one byte to elements at constant strides."""

    value: int

    def settings(self, arch: Arch) -> Settings:
        registers, fields = super().settings(arch)
        return Settings({**registers, "EX_INPUT_ZERO_POINT": self.value}, fields)


def get_filled_byte(operation: Operator) -> int | None:
    """Return the byte that a fill operation writes; None for other operations."""
    return operation.value if isinstance(operation, Fill) else None


def order_for_words(operation: Operator, word: int) -> Operator:
    """Return a strided copy with its dimensions ordered for memory words of ``word`` bytes.

    Other operations are returned unchanged.
    """
    return replace(operation, word=word) if isinstance(operation, StridedCopy) else operation


_LANES = 64
_BANKS = 16
"""Lanes and banks of the machine for which dimensions are ordered.

The order may be a little slower on others.
"""


def _unroll_dims(dims: Iterable[Dim]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Return the dimensions of a copy that one command covers, fastest last, and the others.

    The rest needs one command per step.

    A command has at most four dimensions and only non-negative source strides.
    """
    copies = merge_dims(dims)
    upwards = sorted((dim for dim in copies if dim.source >= 0), key=lambda dim: -dim.size)
    inside = upwards[: len(DIMENSIONS)]
    outside = upwards[len(DIMENSIONS) :]
    return tuple(sorted(inside, key=_steps, reverse=True)), (
        *outside,
        *(dim for dim in copies if dim.source < 0),
    )


def _steps(dim: Dim) -> float:
    """Return the cycles per byte of a copy with ``dim`` as the fastest dimension."""
    parallel = _LANES if max(dim.source, dim.target) <= 1 else _BANKS
    return -(-dim.size // parallel) / dim.size


@lru_cache(maxsize=4096)
def fewest_words(
    dims: tuple[tuple[int, int, int], ...], word: int
) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """Return a copy's dimensions ordered for the fewest memory words, and that number.

    Dimensions are (steps, source, target), fastest first.
    """
    found = [(copy_words(order, (0, 0), word), order) for order in permutations(dims)]
    (read, written), order = min(found, key=lambda one: (max(one[0]), sum(one[0])))
    return order, max(read, written)


def count_asked_words(dims: Iterable[Dim], word: int) -> tuple[int, int]:
    """Return the memory words that a copy requests at most, and its number of commands.

    ``dims`` are the dimensions of the copy.
    """
    inside, outside = _unroll_dims(dims)
    commands = math.prod(dim.size for dim in outside)
    return commands * fewest_words(
        tuple((dim.size, dim.source, dim.target) for dim in inside), word
    )[1], commands


def _pack_strides(
    counts: Sequence[int], strides: Sequence[int], spread: int, runs: Runs = NO_PADDING
) -> list[int]:
    """Return the byte stride of each dimension of a copy in a packed tile buffer."""
    moving = sorted(
        (n for n, stride in enumerate(strides) if stride and counts[n] > 1),
        key=lambda n: abs(strides[n]),
    )
    axes = layout([(counts[number], abs(strides[number])) for number in moving], spread, runs)
    found = [0] * len(strides)
    for number, axis in zip(moving, axes, strict=True):
        found[number] = axis.buffer if strides[number] > 0 else -axis.buffer
    return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Copy(Operator):
    """Copy of bytes through the scratchpad by the two DMA units.

    It has no ONNX operator and no instruction.
    """

    traits: ClassVar[Traits] = Traits(flat=True, in_place=True)
