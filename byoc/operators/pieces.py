"""Index maps as strided pieces: what moves elements without computing is a few boxes with strides of their own."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa.ops.movement import DIMENSIONS

GAP = 8
"""Bytes from element to element up to which a transfer brings what lies between along: one beat of the bus."""
NOTHING = -1
"""In an index map: an element that is no copy of another."""


class Dim(NamedTuple):
    """``size`` steps: elements from source to source and from target to target."""

    size: int
    source: int
    target: int


class Piece(NamedTuple):
    """Elements in nested dimensions, outermost first; ``source`` and ``target`` are the first one's positions."""

    source: int
    target: int
    dims: tuple[Dim, ...] = ()

    @property
    def elements(self) -> int:
        """How many elements it moves."""
        return math.prod(dim.size for dim in self.dims)

    @property
    def dense(self) -> bool:
        """Whether both its sources and its targets lie one behind the other."""
        return self.dims in ((), (Dim(self.elements, 1, 1),))

    @property
    def lowest(self) -> int:
        """The lowest position that it reads."""
        return self.source + sum(min(0, (dim.size - 1) * dim.source) for dim in self.dims)

    @property
    def highest(self) -> int:
        """The highest position that it reads."""
        return self.source + sum(max(0, (dim.size - 1) * dim.source) for dim in self.dims)

    def positions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The positions of all of its sources, and of its targets."""
        sources, targets = np.array([self.source]), np.array([self.target])
        for dim in self.dims:
            steps = np.arange(dim.size)
            sources = (sources[:, np.newaxis] + steps * dim.source).reshape(-1)
            targets = (targets[:, np.newaxis] + steps * dim.target).reshape(-1)
        return sources, targets


def find_pieces(index: NDArray[np.integer]) -> tuple[Piece, ...]:
    """The pieces of an index map: ``index`` has the position in the flat source of every element, or NOTHING.

    Its shape helps to find few; together they are exactly the map.
    """
    if index.size == 0:
        return ()
    return tuple(_merged(piece) for piece in _pieces(index.astype(np.int64)))


def _pieces(index: NDArray[np.int64]) -> list[Piece]:
    """Axis by axis from the last: rows of equal steps are one pattern, at the positions where they begin."""
    if index.ndim == 0:
        return [] if index == NOTHING else [Piece(int(index), 0)]
    length = index.shape[-1]
    rows = index.reshape(-1, length)
    known = rows != NOTHING
    first = np.take_along_axis(rows, known.argmax(axis=1)[:, np.newaxis], 1)
    steps = np.where(known, rows - first, np.iinfo(np.int64).min)
    same = bool((steps == steps[0]).all())
    patterns, which = (
        (steps[:1], np.zeros(len(rows), np.int64)) if same else np.unique(steps, axis=0, return_inverse=True)
    )
    found = []
    for number, pattern in enumerate(patterns):
        begins = np.where((which.reshape(-1) == number) & known.any(axis=1), first[:, 0], NOTHING)
        outer = _pieces(begins.reshape(index.shape[:-1]))
        for inner in _row(pattern) if outer else ():
            for piece in outer:
                dims = tuple(Dim(dim.size, dim.source, dim.target * length) for dim in piece.dims)
                begin = piece.source + inner.source, piece.target * length + inner.target
                found.append(Piece(*begin, (*dims, *inner.dims)))
    return found


def _row(pattern: NDArray[np.int64]) -> list[Piece]:
    """The pieces of one row: runs of equal steps, then runs of equal runs, until nothing more is equal."""
    targets = np.flatnonzero(pattern != np.iinfo(np.int64).min)
    alike: dict[tuple[Dim, ...], list[tuple[int, int]]]
    alike = {(): list(zip(pattern[targets].tolist(), targets.tolist(), strict=True))}
    found: list[Piece] = []
    while alike:
        longer: dict[tuple[Dim, ...], list[tuple[int, int]]] = defaultdict(list)
        for dims, starts in alike.items():
            for dim, start in _runs(starts):
                if dim.size == 1:
                    found.append(Piece(*start, dims))
                else:
                    longer[dim, *dims].append(start)
        alike = longer
    return found


def _runs(starts: Sequence[tuple[int, int]]) -> Iterable[tuple[Dim, tuple[int, int]]]:
    """The longest runs of equal steps, one behind the other."""
    position = 0
    while position < len(starts):
        (source, target), end = starts[position], position + 1
        step = (0, 0)
        if end < len(starts):
            step = starts[end][0] - source, starts[end][1] - target
        while end < len(starts) and (starts[end][0] - starts[end - 1][0], starts[end][1] - starts[end - 1][1]) == step:
            end += 1
        yield Dim(end - position, *step), (source, target)
        position = end


def _merged(piece: Piece) -> Piece:
    """The piece with dimensions that continue each other as one."""
    return Piece(piece.source, piece.target, merged(piece.dims))


def spread_of(dims: Iterable[Dim]) -> int:
    """Bytes of a tile buffer that one byte of the source takes: small gaps between elements come along."""
    smallest = min((abs(dim.source) for dim in dims if dim.source), default=1)
    return smallest if smallest <= GAP else 1


def plane_dims(dims: Iterable[Dim], nbytes: int, elements: int) -> tuple[Dim, ...] | None:
    """A copy to ``elements`` bytes as one of whole planes of ``nbytes`` bytes, of every plane once: its dimensions, in
    planes; None where it is none that one command makes.
    """
    copied = merged(dims)
    dense = copied[-1] if copied and copied[-1][1:] == (1, 1) else None
    if dense is None or any(number % nbytes or number < 0 for dim in copied[:-1] for number in dim[1:]):
        return None
    found = [Dim(size, source // nbytes, target // nbytes) for size, source, target in copied[:-1]]
    if dense.size > nbytes:
        found.append(Dim(dense.size // nbytes, 1, 1))
    once = math.prod(dim.size for dim in found) * nbytes == elements
    return tuple(found) if once and dense.size % nbytes == 0 and len(found) < len(DIMENSIONS) else None


def merged(dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """The same dimensions, those that continue the next one as one with it, and none of a single step."""
    kept: list[Dim] = []
    for dim in reversed(tuple(dims)):
        if dim.size == 1:
            continue
        inner = kept[-1] if kept else None
        if inner and (dim.source, dim.target) == (inner.size * inner.source, inner.size * inner.target):
            kept[-1] = Dim(dim.size * inner.size, inner.source, inner.target)
        else:
            kept.append(dim)
    return tuple(reversed(kept))
