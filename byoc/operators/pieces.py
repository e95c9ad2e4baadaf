"""Division of index maps into pieces whose elements are copied at constant strides.

An operation that only moves elements is an index map: a few boxes, each with its own strides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.operators.nest import Numbers, RowTransfer, TransferAxis
from isa.ops.movement import DIMENSIONS

GAP = 8
"""Maximum stride in bytes at which a transfer includes the gaps between elements.

It is one beat of the bus.
"""
LONGEST_PADDED = 32
"""Maximum stride in bytes of runs whose padding is transferred too.

It is four beats, fewer than a separate burst takes.
"""
NOTHING = -1
"""Index map entry of an element that is not a copy."""
REMEMBERED_MAPS = 256
"""Maximum number of index maps whose pieces are cached, by contents."""
_FOUND: dict[tuple[tuple[int, ...], bytes], tuple[Piece, ...]] = {}


class Dim(NamedTuple):
    """Dimension of a strided piece: step count, and element strides in source and target."""

    size: int
    source: int
    target: int


class Piece(NamedTuple):
    """Elements that are copied at constant strides along nested dimensions (a strided piece).

    The dimensions are outermost first, from positions ``source`` and ``target``.
    """

    source: int
    target: int
    dims: tuple[Dim, ...] = ()

    @property
    def elements(self) -> int:
        return math.prod(dim.size for dim in self.dims)

    @property
    def dense(self) -> bool:
        """True if the elements of a strided piece are contiguous in source and target."""
        return self.dims in ((), (Dim(self.elements, 1, 1),))

    @property
    def lowest(self) -> int:
        return self.source + sum(min(0, (dim.size - 1) * dim.source) for dim in self.dims)

    @property
    def highest(self) -> int:
        return self.source + sum(max(0, (dim.size - 1) * dim.source) for dim in self.dims)

    def view_sources(self, tensor: Numbers) -> Numbers:
        """Return a view of the elements of a tensor that a strided piece reads."""
        return self._view(tensor, self.source, [dim.source for dim in self.dims])

    def view_targets(self, tensor: Numbers) -> Numbers:
        """Return a view of the elements of a tensor that a strided piece writes."""
        return self._view(tensor, self.target, [dim.target for dim in self.dims])

    def _view(self, tensor: Numbers, first: int, strides: Sequence[int]) -> Numbers:
        width = tensor.itemsize
        sizes = [dim.size for dim in self.dims]
        return np.ndarray(
            sizes, tensor.dtype, tensor, first * width, [stride * width for stride in strides]
        )

    def positions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.source_positions(), self._positions(
            self.target, [dim.target for dim in self.dims]
        )

    def source_positions(self) -> NDArray[np.int64]:
        """Return the positions of the elements that a strided piece reads, in copy order."""
        return self._positions(self.source, [dim.source for dim in self.dims])

    def _positions(self, first: int, strides: Sequence[int]) -> NDArray[np.int64]:
        found = np.array([first])
        for dim, stride in zip(self.dims, strides, strict=True):
            found = (found[:, np.newaxis] + np.arange(dim.size) * stride).reshape(-1)
        return found


def find_pieces(index: NDArray[np.integer]) -> tuple[Piece, ...]:
    """Return few strided pieces that together copy exactly the elements of an index map.

    ``index`` has the position in the flat source of every element, or NOTHING. Its shape guides the
    search.
    """
    if not index.size:
        return ()
    narrow = index.size < 1 << 31 and int(index.max()) < 1 << 31
    slices = np.atleast_1d(index.astype(np.int32 if narrow else np.int64, "C"))
    copied = (slices != NOTHING).reshape(len(slices), -1)
    used = np.flatnonzero(copied.any(axis=1))
    if not used.size:
        return ()
    span = slice(int(used[0]), int(used[-1]) + 1)
    part = slices[span]
    first = int(part.view(f"u{part.itemsize}").min())  # NOTHING is the largest unsigned number
    moved = np.where(copied[span].reshape(part.shape), part - first, NOTHING)
    digest = sha256(moved.data).digest()
    key = moved.shape, digest  # the parts of a tensor, and layers of one shape, have equal maps
    found = _FOUND.get(key)
    if found is None:
        if len(_FOUND) == REMEMBERED_MAPS:
            _FOUND.clear()
        found = _FOUND[key] = tuple(
            Piece(piece.source, piece.target, merge_dims(piece.dims))
            for piece in _pieces(moved.astype(np.int64))
        )
    begin = span.start * copied.shape[1]
    return tuple([Piece(first + one.source, begin + one.target, one.dims) for one in found])


def _pieces(index: NDArray[np.int64]) -> list[Piece]:
    """Return the strided pieces of an index map, found axis by axis from the last.

    Rows with equal steps share a pattern at different start positions.
    """
    if index.ndim == 0:
        return [] if index == NOTHING else [Piece(int(index), 0)]
    length = index.shape[-1]
    rows = index.reshape(-1, length)
    known = rows != NOTHING
    first = np.take_along_axis(rows, known.argmax(axis=1)[:, np.newaxis], 1)
    steps = np.where(known, rows - first, np.iinfo(np.int64).min)
    patterns, which = _patterns(steps)
    begins_of = np.where(known.any(axis=1), first[:, 0], NOTHING)
    found = []
    for number, pattern in enumerate(patterns):
        begins = np.where(which == number, begins_of, NOTHING)
        outer = _pieces(begins.reshape(index.shape[:-1]))
        for inner in _row(pattern) if outer else ():
            for piece in outer:
                dims = tuple(Dim(dim.size, dim.source, dim.target * length) for dim in piece.dims)
                begin = piece.source + inner.source, piece.target * length + inner.target
                found.append(Piece(*begin, (*dims, *inner.dims)))
    return found


def _patterns(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows of an array, sorted, and each row's index among them.

    Most rows equal the previous one.
    """
    heads = np.flatnonzero(np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)]))
    seen: dict[bytes, int] = {}
    which = np.array([seen.setdefault(rows[head].tobytes(), len(seen)) for head in heads.tolist()])
    different = rows[heads[np.unique(which, return_index=True)[1]]]
    order = sorted(range(len(different)), key=lambda number: different[number].tolist())
    return different[order], np.repeat(np.argsort(order)[which], np.diff(heads, append=len(rows)))


def _row(pattern: NDArray[np.int64]) -> list[Piece]:
    """Return the strided pieces of one row of an index map.

    Runs of equal steps are merged, then runs of equal runs, until no runs are left.
    """
    targets = np.flatnonzero(pattern != np.iinfo(np.int64).min)
    alike: dict[tuple[Dim, ...], NDArray[np.int64]] = {
        (): np.stack([pattern[targets], targets], axis=1)
    }
    found: list[Piece] = []
    while alike:
        longer: dict[tuple[Dim, ...], NDArray[np.int64]] = {}
        for dims, starts in alike.items():
            for dim, begins in _runs(starts):
                if dim.size == 1:
                    found += [Piece(source, target, dims) for source, target in begins.tolist()]
                else:
                    longer[dim, *dims] = begins
        alike = longer
    return found


def _runs(starts: NDArray[np.int64]) -> Iterable[tuple[Dim, NDArray[np.int64]]]:
    """Yield the longest runs of equal steps between consecutive rows (source, target).

    Each kind of run is yielded once, with the starts of its runs. Kinds of runs are yielded in the
    order of their first occurrence.
    """
    steps = np.diff(starts, axis=0)
    # of equal steps
    first = np.concatenate([[0], np.flatnonzero((steps[1:] != steps[:-1]).any(axis=1)) + 1])
    ends = np.append(first[1:], len(steps))
    taken = _select_runs(ends - first)
    begins = first + np.concatenate([[0], taken[:-1]])  # the end of the previous run is not a start
    begins = begins[taken]
    ends = ends[taken]
    last = int(ends[-1]) + 1 if len(ends) else 0
    kinds = np.column_stack([ends - begins + 1, steps[begins]])
    for kind, members in _alike(kinds):
        yield Dim(*kind), starts[begins[members]]
    if last < len(starts):
        yield Dim(1, 0, 0), starts[last:]


def _select_runs(lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the stretches of equal steps that become runs.

    Single steps that begin at the end of a run do not.
    """
    if not lengths.any():
        return np.zeros(len(lengths), np.bool_)
    single = lengths == 1
    heads = np.flatnonzero(np.concatenate([[True], single[1:] != single[:-1]]))
    place = np.arange(len(lengths)) - np.repeat(heads, np.diff(heads, append=len(lengths)))
    # a longer stretch precedes them
    behind = np.repeat(heads > 0, np.diff(heads, append=len(lengths)))
    taken: NDArray[np.bool_] = ~single | ((place + behind) % 2 == 0)
    return taken


def _alike(kinds: NDArray[np.int64]) -> Iterable[tuple[list[int], NDArray[np.int64]]]:
    """Yield the distinct rows of ``kinds`` with the positions of each.

    The order is that of their first occurrence.
    """
    if not len(kinds):
        return
    # Rows are compared as bytes: np.unique with an axis makes a field per column, which dominates
    # the run time.
    rows = (
        np.ascontiguousarray(kinds)
        .view(np.dtype((np.void, kinds.shape[1] * kinds.itemsize)))
        .reshape(-1)
    )
    _, seen, which = np.unique(rows, return_index=True, return_inverse=True)
    members = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    for number in np.argsort(seen).tolist():
        yield kinds[seen[number]].tolist(), members[number]


def spread_of(dims: Iterable[Dim]) -> int:
    """Return the number of tile buffer bytes that a copy needs for each source byte.

    Small gaps between elements are transferred too.
    """
    smallest = min((abs(dim.source) for dim in dims if dim.source), default=1)
    return smallest if smallest <= GAP else 1


class Runs(NamedTuple):
    """Contiguous runs of a copy, whose transfers include the padding after each run.

    A run has ``nbytes`` bytes and begins ``stride`` bytes after the previous one.
    """

    nbytes: int
    stride: int


NO_PADDING = Runs(1, 1)


def find_padded_runs(dims: Sequence[Dim]) -> Runs:
    """Return the contiguous runs of a copy whose padding is transferred too.

    If no padding is transferred, the runs are single bytes. Tiles divide the first two dimensions,
    which cannot be part of a run. A run is at least as long as its padding.
    """
    extent = spread_of(dims)
    for dim in sorted(
        (dim for dim in dims if dim.size > 1 and dim.source), key=lambda dim: abs(dim.source)
    ):
        stride = abs(dim.source)
        if extent < stride <= min(2 * extent, LONGEST_PADDED):
            return Runs(extent, stride)
        if stride != extent or dim in dims[:2]:
            break
        extent *= dim.size
    return NO_PADDING


def plane_dims(dims: Iterable[Dim], nbytes: int, elements: int) -> tuple[Dim, ...] | None:
    """Return the dimensions of a copy, counted in planes of ``nbytes`` bytes.

    The copy writes ``elements`` bytes. Return None if it does not copy every plane once, or needs
    more than one command.
    """
    copied = merge_dims(dims)
    dense = copied[-1] if copied and copied[-1][1:] == (1, 1) else None
    if dense is None or any(
        number % nbytes or number < 0 for dim in copied[:-1] for number in dim[1:]
    ):
        return None
    found = [Dim(size, source // nbytes, target // nbytes) for size, source, target in copied[:-1]]
    if dense.size > nbytes:
        found.append(Dim(dense.size // nbytes, 1, 1))
    once = math.prod(dim.size for dim in found) * nbytes == elements
    return (
        tuple(found) if once and dense.size % nbytes == 0 and len(found) < len(DIMENSIONS) else None
    )


def merge_dims(dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return the dimensions of a copy, with single steps omitted and contiguous ones merged."""
    kept: list[Dim] = []
    for dim in reversed(tuple(dims)):
        if dim.size == 1:
            continue
        inner = kept[-1] if kept else None
        if inner and (dim.source, dim.target) == (
            inner.size * inner.source,
            inner.size * inner.target,
        ):
            kept[-1] = Dim(dim.size * inner.size, inner.source, inner.target)
        else:
            kept.append(dim)
    return tuple(reversed(kept))


def layout(
    dims: Sequence[tuple[int, int]], spread: int, runs: Runs = NO_PADDING
) -> tuple[TransferAxis, ...]:
    """Return the dimensions of a part of a tensor in a tile buffer, innermost first.

    ``dims`` are (count, stride in the tensor); the result is sorted by stride. Dimensions of one
    step or of stride 0 are omitted. ``runs`` are stored with their padding.
    """
    found = []
    extent = spread
    for count, stride in sorted(
        (dim for dim in dims if dim[0] > 1 and dim[1]), key=lambda dim: dim[1]
    ):
        if (extent, stride) == runs:
            extent = stride
        found.append(TransferAxis(count, stride, extent))
        extent *= count
    return tuple(found)


def make_strided_transfers(
    offset: int,
    axes: tuple[TransferAxis, ...],
    spread: int,
    runs: Runs = NO_PADDING,
    *,
    whole: bool = False,
) -> tuple[RowTransfer, ...]:
    """Return the transfers of a strided part of a tensor, with at most three dimensions each.

    The padding of ``runs`` is included. ``whole``: the scratchpad has the tensor's strides too.
    """
    extent = spread
    row = 1
    rest = list(axes)
    while (
        rest
        and rest[0].tensor == rest[0].buffer
        and (extent == rest[0].tensor or (extent, rest[0].tensor) == runs)
    ):
        axis = rest.pop(0)
        extent = axis.size * axis.tensor
        row = row + (axis.size - 1) * axis.tensor
    rest = [axis._replace(buffer=axis.tensor) if whole else axis for axis in rest]
    dims = tuple(rest[:3])
    outer = rest[3:]
    found = []
    for place in np.ndindex(*(axis.size for axis in outer)):
        tensor = sum(step * axis.tensor for step, axis in zip(place, outer, strict=True))
        buffer = sum(step * axis.buffer for step, axis in zip(place, outer, strict=True))
        found.append(RowTransfer(offset + tensor, row, dims=dims, sram_offset=buffer))
    return tuple(found)
