"""Strided pieces together equal the map of positions that they come from, and they are few."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from byoc.operators.pieces import (
    NO_PADDING,
    NOTHING,
    Dim,
    Piece,
    Runs,
    find_padded_runs,
    find_pieces,
    layout,
    make_strided_transfers,
    merge_dims,
)

X = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)


def made(pieces: tuple[Piece, ...], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """The map that pieces are; an element that two of them write fails."""
    index = np.full(int(np.prod(shape)), NOTHING)
    for piece in pieces:
        sources, targets = piece.positions()
        assert len(sources) == piece.elements
        assert (sources.min(), sources.max()) == (piece.lowest, piece.highest)
        assert (index[targets] == NOTHING).all()
        index[targets] = sources
    return index.reshape(shape)


CASES = {
    "all": (X, 1),
    "planes last": (X.transpose(0, 2, 3, 1), 1),
    "strided box": (X[:, 1:, ::2, 1:4], 1),
    "reversed": (X[..., ::-1], 1),
    "twice as large": (X.repeat(2, 2).repeat(2, 3), 1),
    "one and a half": (X[:, :, :, [0, 0, 1, 2, 2, 3]], 2),
    "depth to space": (
        np.arange(192).reshape(2, 2, 3, 4, 4).transpose(2, 3, 0, 4, 1).reshape(3, 8, 8),
        1,
    ),
    "shuffled": (X.reshape(2, 3, 20).transpose(1, 0, 2).reshape(6, 20), 1),
    "mirrored border": (np.pad(X, ((0, 0), (0, 0), (2, 1), (1, 2)), mode="reflect"), 9),
    "nothing": (np.full((3, 2), NOTHING), 0),
    "no elements": (np.zeros((0, 2), np.int64), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_regular_map_is_few_pieces(case: str) -> None:
    index, most = CASES[case]
    pieces = find_pieces(index)
    np.testing.assert_array_equal(made(pieces, index.shape), index)
    assert len(pieces) <= most


def test_any_map_is_its_pieces() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        index = np.arange(rng.integers(1, 200))
        index = index.reshape(
            next(s for s in ((-1, 7, 2), (-1, 3), (-1,)) if index.size % abs(int(np.prod(s))) == 0)
        )
        for axis in range(index.ndim):
            index = index.take(
                np.sort(rng.integers(0, index.shape[axis], rng.integers(1, 9))), axis
            )
        index = index.transpose(rng.permutation(index.ndim))
        index = np.where(rng.random(index.shape) < rng.choice([0, 0.3]), NOTHING, index)
        np.testing.assert_array_equal(made(find_pieces(index), index.shape), index)


def test_dimensions_that_continue_each_other_are_one() -> None:
    assert merge_dims([Dim(3, 8, 20), Dim(1, 5, 5), Dim(2, 4, 10), Dim(4, 1, 1)]) == (
        Dim(6, 4, 10),
        Dim(4, 1, 1),
    )
    assert Piece(7, 0, (Dim(9, 1, 1),)).dense
    assert not Piece(0, 0, (Dim(9, 1, 2),)).dense


def test_transfers_include_padding_that_is_no_longer_than_its_run() -> None:
    """One transfer of 3 * 16 - 7 bytes moves a row of three positions of 9 of 16 bytes.

    Rows are 64 bytes apart.
    """
    dims = (Dim(4, 64, 27), Dim(3, 16, 9), Dim(3, 3, 3), Dim(3, 1, 1))
    runs = find_padded_runs(dims)
    assert runs == Runs(9, 16)
    axes = layout([(dim.size, dim.source) for dim in dims], 1, runs)
    (transfer,) = make_strided_transfers(5, axes, 1, runs)
    assert (transfer.offset, transfer.nbytes, transfer.dims) == (5, 41, ((4, 64, 48),))


@pytest.mark.parametrize(
    "dims",
    [
        (Dim(4, 64, 27), Dim(3, 16, 7), Dim(7, 1, 1)),  # more padding than bytes
        (Dim(4, 400, 60), Dim(3, 40, 30), Dim(30, 1, 1)),  # bursts of their own take fewer slots
        (Dim(4, 64, 27), Dim(9, 1, 1), Dim(3, 16, 9)),  # tiles divide the run
    ],
)
def test_other_runs_are_transferred_without_padding(dims: tuple[Dim, ...]) -> None:
    assert find_padded_runs(dims) == NO_PADDING
