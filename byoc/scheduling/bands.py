"""Bands of rows of a group's layers, in the order in which they run."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

from byoc.operators.layer import OperatorLayer
from byoc.operators.nest import Span, make_tile
from byoc.scheduling.groups import (
    BandedGroup,
    FusionGraph,
    Member,
    is_needed_after,
    members_of,
)
from isa.instruction import ceil_div


@dataclass(frozen=True)
class Band:
    """Rows that each layer of a group computes in one band, None for a layer without rows.

    ``wanted``: rows of every buffer that the group's layers read in this band. ``lowest``: the
    first row of each buffer that they read in this band or a later one; a layer with strides may
    skip rows that another layer reads later.
    """

    rows: tuple[Span | None, ...]
    wanted: Mapping[str, Span]
    lowest: Mapping[str, int] = field(default_factory=dict)


def bands_of(
    group: BandedGroup, layers: Sequence[OperatorLayer], graph: FusionGraph
) -> tuple[Band, ...]:
    """Return all bands of rows of a layer group, in the order in which they run.

    Each layer runs ahead of the last layer by the rows that windows overlap, and starts that many
    bands earlier. All bands are then about equally large, and windows are as small as possible.
    """
    walk = BandWalk(group, layers, graph)
    last = ceil_div(walk.rows, group.rows) - 1
    found = [
        walk.band(number, final=number == last) for number in range(1 - walk.early(), last + 1)
    ]
    return _add_lowest_rows([band for band in found if any(band.rows)])


def _add_lowest_rows(bands: Sequence[Band]) -> tuple[Band, ...]:
    """Return bands with the first rows that they or later bands read."""
    lowest: dict[str, int] = {}
    found = list[Band]()
    for band in reversed(bands):
        for name, rows in band.wanted.items():
            lowest[name] = min(lowest.get(name, rows.start), rows.start)
        found.append(replace(band, lowest=dict(lowest)))
    return tuple(reversed(found))


class BandWalk:
    """Bands of a group in order, each computed backwards from the rows needed at its end."""

    def __init__(
        self, group: BandedGroup, layers: Sequence[OperatorLayer], graph: FusionGraph
    ) -> None:
        self._group = group
        self._graph = graph
        self._members = members_of(graph, group.first, group.last)
        self._layers = layers[group.first : group.last + 1]
        self.rows = graph.planes[self._members[-1].writes.buffer].rows
        self._done = [0] * len(self._members)

    def early(self) -> int:
        """Return the number of bands until a group's last layer computes its first rows.

        That band is included.
        """
        stops = self._stops(0)
        following = self._stops(1)
        return max(
            ceil_div(stop, max(after - stop, 1))
            for stop, after in zip(stops, following, strict=True)
        )

    def _stops(self, number: int) -> list[int]:
        """Return the row at which each layer of a group stops in band ``number``.

        The bounds of the tensors are ignored.
        """
        wanted: dict[str, int] = {}
        stops = [0] * len(self._members)
        for position in reversed(range(len(self._members))):
            member = self._members[position]
            step = ceil_div(
                self._group.rows * self._graph.planes[member.writes.buffer].rows, self.rows
            )
            stops[position] = stop = wanted.get(member.writes.buffer, (number + 1) * step)
            reach = (stop - 1) * member.stride - member.pad + member.extent
            for piece in member.reads:
                wanted[piece.buffer] = max(wanted.get(piece.buffer, reach), reach)
        return stops

    def band(self, number: int, *, final: bool) -> Band:
        """Return the band with this number; band 0 has the first rows of the last layer.

        Bands must be requested in order.
        """
        wanted: dict[str, Span] = {}
        rows: list[Span | None] = [None] * len(self._members)
        stops = self._stops(number)
        for position in reversed(range(len(self._members))):
            member = self._members[position]
            done = self._done[position]
            buffer = self._graph.planes[member.writes.buffer]
            own = wanted.get(member.writes.buffer)
            if self._is_read_inside(member) and member.writes.buffer not in self._group.kept:
                span = own or Span(0, 0)
            else:
                stop = (
                    buffer.rows
                    if final and self._is_needed_outside(member)
                    else min(stops[position], buffer.rows)
                )
                span = Span(done, max(stop, own.stop if own else 0))
            if span.size <= 0:
                continue
            rows[position] = span
            self._done[position] = max(done, span.stop)
            for piece, read in zip(member.reads, self._read(position, span), strict=False):
                before = wanted.get(piece.buffer, read)
                wanted[piece.buffer] = Span(
                    min(before.start, read.start), max(before.stop, read.stop)
                )
        return Band(tuple(rows), wanted)

    def _read(self, position: int, rows: Span) -> Iterator[Span]:
        member = self._members[position]
        nest = self._layers[position].nest
        read = (
            rows if member.undivided else make_tile(nest, Span(0, nest.channels), rows).input.rows
        )
        return repeat(read)

    def _is_read_inside(self, member: Member) -> bool:
        """Return True if layers of the group read the layer's result."""
        return member.reader <= self._group.last

    def _is_needed_outside(self, member: Member) -> bool:
        """Return True if all rows of a layer's result are needed outside the group."""
        return not self._is_read_inside(member) or is_needed_after(
            self._graph.planes[member.writes.buffer], self._group.last
        )


def window_rows(bands: Sequence[Band], buffer: str, made: Sequence[int]) -> int:
    """Return the number of rows in the window of a buffer that is kept across bands.

    ``made``: positions of its producers in the group.
    """
    lowest = sys.maxsize
    most = 0
    for band in reversed(bands):
        spans = [
            span
            for span in (band.wanted.get(buffer), *(band.rows[maker] for maker in made))
            if span is not None
        ]
        if spans:
            lowest = min(lowest, *(span.start for span in spans))
            most = max(most, max(span.stop for span in spans) - lowest)
    return most
