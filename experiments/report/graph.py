"""Graph of a network: its edges, and their layout in columns and lanes.

A node is one column to the right of its last producer. It stays in the lane of a producer if the
lane is free, so that chains are straight. A tensor that passes other columns takes a free lane, so
that no line crosses a node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from experiments.report.parts import Count, Part, Text


class GraphEdge(Part):
    """Tensor that passes from one node of ``placement`` to another, by their indices.

    ``producer`` is None for an input of the network, ``consumer`` for an output.
    """

    producer: Count | None
    consumer: Count | None
    tensor: Text
    dtype: Text
    shape: tuple[Count, ...]


class BranchEntry(Part):
    """Region that runs only if run-time conditions select its results.

    ``conditions`` are names of flags and their values. ``ran`` tells whether the first inference
    ran the region.
    """

    region: Count
    conditions: Mapping[Text, bool]
    ran: bool

    def message(self) -> str:
        """Return one line with the region's conditions and whether it ran."""
        told = " and ".join(
            f"'{name}' is {str(value).lower()}" for name, value in self.conditions.items()
        )
        return f"region {self.region} {'ran' if self.ran else 'did not run'}: it runs if {told}"


Edge = tuple[int, int]
"""Numbers of producer and consumer."""


@dataclass(frozen=True)
class GraphLayout:
    """Places of nodes: a column and a lane each, from 0.

    ``routes`` has the lane in which each edge passes the columns between its nodes.
    """

    columns: tuple[int, ...]
    lanes: tuple[int, ...]
    routes: tuple[int, ...]


def lay_out(nodes: int, edges: Sequence[Edge]) -> GraphLayout:
    """Return the places of ``nodes`` nodes in topological order; equal graphs give equal places.

    Every producer has a smaller number than its consumers.
    """
    producers: list[list[int]] = [[] for _ in range(nodes)]
    for producer, consumer in edges:
        producers[consumer].append(producer)
    columns: list[int] = []
    for found in producers:
        columns.append(1 + max((columns[producer] for producer in found), default=-1))
    lanes = _Lanes()
    placed: list[int] = []
    passed: dict[Edge, int] = {}
    for node, found in enumerate(producers):
        nearest = sorted(set(found), key=lambda producer: (-columns[producer], producer))
        lane = lanes.take(placed[nearest[0]] if nearest else 0, [columns[node]])
        placed.append(lane)
        for producer in nearest:
            between = range(columns[producer] + 1, columns[node])
            wanted = lane if producer == nearest[0] else placed[producer]
            passed[producer, node] = lanes.take(wanted, between, producer)
    top = min([*placed, *passed.values()], default=0)
    return GraphLayout(
        tuple(columns),
        tuple(lane - top for lane in placed),
        tuple(passed[edge] - top for edge in edges),
    )


class _Lanes:
    """Record of the nodes and lines that take each column of each lane of the graph."""

    def __init__(self) -> None:
        self._taken: dict[tuple[int, int], int] = {}

    def take(self, wanted: int, columns: Sequence[int], producer: int = -1) -> int:
        """Return the lane nearest to ``wanted`` whose ``columns`` are free, and take them.

        Lines from one ``producer`` share a lane; -1 stands for a node.
        """
        near = (wanted + (step + 1) // 2 * (1 if step % 2 else -1) for step in count())
        lane = next(lane for lane in near if self._is_free(lane, columns, producer))
        self._taken |= {(lane, column): producer for column in columns}
        return lane

    def _is_free(self, lane: int, columns: Sequence[int], producer: int) -> bool:
        takers = {self._taken.get((lane, column)) for column in columns}
        return takers <= ({None} if producer < 0 else {None, producer})
