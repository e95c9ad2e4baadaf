"""Partition at load: which nodes run on the accelerator, in which regions, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from byoc.graph import Graph, Node
from byoc.operations import Operation, is_free
from byoc.passes.graph_annotate import Annotation, annotate
from byoc.passes.graph_merge import Group, merge
from byoc.patterns.base import Rejection
from byoc.patterns.registry import installed
from byoc.target import Target

__all__ = ["HostPart", "Partition", "Placement", "Region", "Target", "partition"]

Shortage = Callable[[Operation], str | None]
MOVES_ONLY = "it only moves data next to operators that run on the CPU"


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes that run as one program. ``inputs`` and ``outputs`` are integer tensors by name, flat and ordered."""

    index: int
    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True, eq=False)
class HostPart:
    """Nodes that run on the CPU together, between tensors that are named as in the embedded ONNX model."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Where one canonical node runs; on the CPU with the reason. ``region`` is the index of its region."""

    node: str
    op_type: str
    on: Literal["dla", "cpu"]
    region: int | None
    reason: str | None
    onnx_nodes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Partition:
    """``parts`` in an order of execution; ``placement`` has one entry a canonical node, in the graph's order."""

    graph: Graph
    parts: tuple[Region | HostPart, ...]
    placement: tuple[Placement, ...]

    @property
    def regions(self) -> tuple[Region, ...]:
        """The accelerator's parts."""
        return tuple(part for part in self.parts if isinstance(part, Region))

    @property
    def host_parts(self) -> tuple[HostPart, ...]:
        """The CPU's parts."""
        return tuple(part for part in self.parts if isinstance(part, HostPart))


def no_shortage(operation: Operation) -> str | None:
    """A machine whose memory holds everything."""
    return None


def partition(
    graph: Graph,
    target: Target,
    shortage: Shortage = no_shortage,
    annotations: Sequence[Annotation] | None = None,
) -> Partition:
    """Split ``graph`` into regions and host parts for ``target``.

    ``shortage(operation)`` returns None, or names the buffers and the bytes missing where an operation does not fit
    the machine's memory; its node then runs on the CPU. ``annotations`` are those of :func:`annotate`, if known.
    """
    outcomes = {
        node.name: _outcome(graph, node, annotation, target, shortage)
        for node, annotation in zip(graph.nodes, annotations or annotate(graph), strict=True)
    }
    groups = _profitable_groups(graph, outcomes)
    parts = _parts(graph, groups, outcomes)
    return Partition(graph, parts, _placement(graph, parts, outcomes))


Outcome = tuple[Operation, ...] | Rejection


def _outcome(graph: Graph, node: Node, annotation: Annotation, target: Target, shortage: Shortage) -> Outcome:
    """The operations of a node by the first family that has any, or why it runs on the CPU: the last one's reason."""
    outcome: Outcome = Rejection(annotation.reason or f"operator {node.op_type} has no pattern")
    if annotation.pattern is None or not node.integer:
        return outcome
    for pattern in installed().by_operator.get(node.op_type, ()):
        outcome = pattern.check(graph, node) or pattern.lower(graph, node, target)  # annotations are not trusted
        if not isinstance(outcome, Rejection):
            missing = next((found for found in map(shortage, outcome) if found is not None), None)
            if missing is None:
                break
            outcome = Rejection(missing)
    return outcome


def _profitable_groups(graph: Graph, outcomes: dict[str, Outcome]) -> tuple[Group, ...]:
    """Groups in execution order; regions that would only move data go to the CPU, whose nodes then merge.

    A region without an instruction of its own is worth a call only where the CPU computes nothing: there the network
    is data movement between quantisation at its edges, and belongs to the accelerator as a whole.
    """
    while True:
        on = [name for name, outcome in outcomes.items() if not isinstance(outcome, Rejection)]
        groups = merge(graph.nodes, on)
        idle = [group for group in groups if group.accelerated and _only_moves(group, outcomes)]
        if not idle or not _host_computes(graph, outcomes):
            return groups
        for node in (node for group in idle for node in group.nodes):
            outcomes[node.name] = Rejection(MOVES_ONLY)


def _only_moves(group: Group, outcomes: dict[str, Outcome]) -> bool:
    operations = (outcomes[node.name] for node in group.nodes)
    return all(not isinstance(found, Rejection) and all(is_free(o) for o in found) for found in operations)


def _host_computes(graph: Graph, outcomes: dict[str, Outcome]) -> bool:
    return any(
        isinstance(outcomes[node.name], Rejection) and node.op_type not in ("QuantizeLinear", "DequantizeLinear")
        for node in graph.nodes
    )


def _parts(graph: Graph, groups: Iterable[Group], outcomes: dict[str, Outcome]) -> tuple[Region | HostPart, ...]:
    parts: list[Region | HostPart] = []
    regions = 0
    for group in groups:
        inputs, outputs = boundary(graph, group.nodes)
        if not group.accelerated:
            parts.append(HostPart(group.nodes, inputs, outputs))
            continue
        found = (outcomes[node.name] for node in group.nodes)
        operations = tuple(o for lowered in found if not isinstance(lowered, Rejection) for o in lowered)
        parts.append(Region(regions, f"region{regions}", group.nodes, inputs, outputs, operations))
        regions += 1
    return tuple(parts)


def boundary(graph: Graph, nodes: Sequence[Node]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tensors ``nodes`` read from outside, by first use, and those that others or the model read, by production."""
    inside = {node.name for node in nodes}
    made = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.inputs)
    inputs = tuple(name for name in read if name not in made and graph.values[name].constant is None)
    wanted = set(graph.outputs)
    for node in graph.nodes:
        if node.name not in inside:
            wanted.update(node.inputs)
    return inputs, tuple(name for node in nodes for name in node.outputs if name in wanted)


def _placement(graph: Graph, parts: Iterable[Region | HostPart], outcomes: dict[str, Outcome]) -> tuple[Placement, ...]:
    region_of = {node.name: part.index for part in parts if isinstance(part, Region) for node in part.nodes}
    placements = []
    for node in graph.nodes:
        outcome = outcomes[node.name]
        on: Literal["dla", "cpu"] = "cpu" if isinstance(outcome, Rejection) else "dla"
        reason = outcome.reason if isinstance(outcome, Rejection) else None
        placements.append(Placement(node.name, node.op_type, on, region_of.get(node.name), reason, node.onnx_nodes))
    return tuple(placements)
