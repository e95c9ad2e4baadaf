"""Tiles as data: half-open spans and boxes of tensors, and what one command computes and reads."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """Half-open interval ``[start, stop)``."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of integers in the interval."""
        return self.stop - self.start


class Box(NamedTuple):
    """A box of a tensor: channels, rows, columns."""

    channels: Span
    rows: Span
    columns: Span

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.channels.size * self.rows.size * self.columns.size


class Tile(NamedTuple):
    """What one command computes: an output box, the input box it reads, and the padding rows above that input box."""

    output: Box
    input: Box
    pad_top: int
