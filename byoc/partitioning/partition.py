"""Partition a graph for one machine: regions, host parts, and reasons for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from types import MappingProxyType
from typing import Literal

from byoc.compiled import HostPart, Partition, Placement, Region
from byoc.estimate.constants import MAX_OPERATIONS
from byoc.graph import Annotation, Graph, Node
from byoc.operators.domain import FLAGS
from byoc.operators.layer import Shortage
from byoc.operators.onnx_view import BOUNDARIES, SELECT
from byoc.operators.operator import Operator
from byoc.operators.registry import annotate, check, load_installed_families, lower
from byoc.operators.rules import (
    OTHER_ROUNDING,
    Finding,
    Refusal,
    finding,
    make_unknown_operator,
    open_shape,
)
from byoc.options import Target
from byoc.partitioning.branches import Guard, Guards, find_guards

Outcome = tuple[Operator, ...] | Refusal
NO_GUARDS: Mapping[str, Guards] = MappingProxyType({})


Fit = Callable[[tuple[Operator, ...]], tuple[Operator, ...] | Shortage]


def all_fit(operations: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Return ``operations`` unchanged, as for a machine with enough memory."""
    return operations


def partition(
    graph: Graph,
    target: Target,
    fit: Fit = all_fit,
    annotations: Sequence[Annotation] | None = None,
) -> Partition:
    """Split ``graph`` into regions and host parts for ``target``.

    ``fit(operations)`` returns operations that compute the same and fit the machine's memory, or
    the buffers of one that does not fit; its node then runs on the CPU. ``annotations`` are the
    result of :func:`annotate`, if known.
    """
    return Partitioner(graph, annotations).partition(target, fit)


class Partitioner:
    """Partitioner of one graph for any number of machines.

    Each node is lowered once for each target.
    """

    def __init__(self, graph: Graph, annotations: Sequence[Annotation] | None = None) -> None:
        self._graph = graph
        self._annotations = annotations or annotate(graph)
        selects = any(node.op_type == SELECT for node in graph.nodes)
        self._guards = find_guards(graph) if selects else NO_GUARDS
        self._lowered: dict[tuple[Target, str, int], Outcome] = {}

    def partition(self, target: Target, fit: Fit = all_fit) -> Partition:
        """Return the :func:`partition` of the graph."""
        graph = self._graph
        shortages = dict[str, Shortage]()
        outcomes = {
            node.name: self._outcome(node, annotation, target, fit, shortages)
            for node, annotation in zip(graph.nodes, self._annotations, strict=True)
        }
        groups = _profitable_groups(graph, outcomes, self._guards)
        parts = _parts(graph, groups, outcomes)
        return Partition(graph, parts, _placement(graph, parts, outcomes), shortages)

    def _outcome(
        self,
        node: Node,
        annotation: Annotation,
        target: Target,
        fit: Fit,
        shortages: dict[str, Shortage],
    ) -> Outcome:
        """Return a node's operations on the accelerator, or the last family's refusal.

        They come from the first family that lowers it. Adds a node that no family fits into memory
        to ``shortages``.
        """
        outcome: Outcome = make_unknown_operator(node)
        if annotation.reason is not None:
            outcome = Refusal(
                node.name, annotation.rule, Finding(_escape_braces(annotation.reason))
            )
        if annotation.family is None or not node.integer:
            return outcome
        refused = open_shape(self._graph, node) or _other_rounding(node, target)
        if refused is not None:
            return refused
        for number in range(len(load_installed_families().by_operator.get(node.op_type, ()))):
            outcome = self._lower(node, number, target)
            if isinstance(outcome, Refusal):
                continue
            count = len(outcome)
            # more are not worth tiling
            fitted = fit(outcome) if count <= MAX_OPERATIONS else outcome
            if isinstance(fitted, Shortage):
                shortages[node.name] = fitted
                outcome = Refusal(
                    node.name, "fits_scratchpad", finding("{shortage}", shortage=fitted)
                )
                continue
            shortages.pop(node.name, None)
            outcome = _too_many(node, len(fitted)) or fitted
            if not isinstance(outcome, Refusal):
                return outcome
        return outcome

    def _lower(self, node: Node, number: int, target: Target) -> Outcome:
        """Return the operations of a node from the family with index ``number``, or its refusal."""
        key = target, node.name, number
        if key not in self._lowered:
            family = load_installed_families().by_operator[node.op_type][number]
            # annotations come from the package file and are not trusted
            refused = check(family, self._graph, node)
            self._lowered[key] = refused or lower(family, self._graph, node, target)
        return self._lowered[key]


def _too_many(node: Node, count: int) -> Refusal | None:
    """Return the refusal of a node with more operations than a region may have.

    Returns None for a smaller ``count``.
    """
    if count <= MAX_OPERATIONS:
        return None
    found = finding(
        "it takes {count:,} operations and a region has at most {most:,}: every image of a batch "
        "and every group is one; give a smaller batch (--shape, or export the model with one)",
        count=count,
        most=MAX_OPERATIONS,
    )
    return Refusal(node.name, "few_operations", found)


def _other_rounding(node: Node, target: Target) -> Refusal | None:
    """Return the refusal of a node whose rounding needs other numerics than the machine's."""
    wanted = node.attributes.get("numerics", target.numerics)
    if wanted == target.numerics:
        return None
    found = finding(
        "the model's runtime rounds as numerics {wanted}: choose numerics {wanted}", wanted=wanted
    )
    return Refusal(node.name, OTHER_ROUNDING, found)


def _escape_braces(text: str) -> str:
    """Escape braces so that ``text`` appears literally in a finding."""
    return text.replace("{", "{{").replace("}", "}}")


def _profitable_groups(
    graph: Graph, outcomes: dict[str, Outcome], guards: Mapping[str, Guards]
) -> tuple[NodeGroup, ...]:
    """Return groups of nodes in order, after moving unprofitable components to the CPU.

    A component that only moves data, or computes only flags from flags, is not worth its transfers
    if the CPU computes something anyway; the CPU parts around it then merge. If the CPU computes
    nothing but quantisation at the edges, the accelerator runs the whole network.
    """
    while True:
        on = [name for name, outcome in outcomes.items() if not isinstance(outcome, Refusal)]
        groups = merge(graph.nodes, on, guards)
        computed = [
            component for group in groups if group.accelerated for component in group.components
        ]
        idle = [component for component in computed if _only_moves(graph, component, outcomes)]
        if not idle or not _host_computes(graph, outcomes):
            return groups
        for node in (node for component in idle for node in component):
            found = finding("it only moves data next to operators that run on the CPU")
            outcomes[node.name] = Refusal(node.name, "profitable", found)


def _only_moves(graph: Graph, component: Sequence[Node], outcomes: dict[str, Outcome]) -> bool:
    return all(_is_moved(graph, node, outcomes[node.name]) for node in component)


def _is_moved(graph: Graph, node: Node, found: Outcome) -> bool:
    if all(graph.values[name].dtype == FLAGS for name in (*node.inputs, *node.outputs)):
        return True
    return not isinstance(found, Refusal) and all(operation.traits.moves for operation in found)


def _host_computes(graph: Graph, outcomes: dict[str, Outcome]) -> bool:
    return any(
        isinstance(outcomes[node.name], Refusal) and node.op_type not in BOUNDARIES
        for node in graph.nodes
    )


def _parts(
    graph: Graph, groups: Iterable[NodeGroup], outcomes: dict[str, Outcome]
) -> tuple[Region | HostPart, ...]:
    parts: list[Region | HostPart] = []
    regions = 0
    read_by = readers(graph)
    for group in groups:
        if not group.accelerated:
            parts.append(HostPart(group.nodes, *boundary(graph, group.nodes, read_by)))
            continue
        for nodes in _runs(group.nodes, outcomes):
            inputs, outputs = boundary(graph, nodes, read_by)
            operations = tuple(one for node in nodes for one in _operations(outcomes[node.name]))
            name = f"region{regions}"
            guards = tuple(sorted(group.guards))
            parts.append(Region(regions, name, nodes, inputs, outputs, operations, guards))
            regions += 1
    return tuple(parts)


def _operations(outcome: Outcome) -> tuple[Operator, ...]:
    return () if isinstance(outcome, Refusal) else outcome


def _runs(nodes: Sequence[Node], outcomes: Mapping[str, Outcome]) -> Iterator[tuple[Node, ...]]:
    """Yield runs of consecutive nodes with at most :data:`MAX_OPERATIONS` operations a run.

    The nodes are in topological order, so no path leaves such a run and comes back.
    """
    first = total = 0
    for index, node in enumerate(nodes):
        count = len(_operations(outcomes[node.name]))
        if total + count > MAX_OPERATIONS:
            yield tuple(nodes[first:index])
            first = index
            total = 0
        total += count
    yield tuple(nodes[first:])


def readers(graph: Graph) -> dict[str, set[str]]:
    """Return the names of the nodes that read each tensor.

    The empty name stands for an output of the model.
    """
    found = {name: {node.name for node in nodes} for name, nodes in graph.consumers.items()}
    for name in graph.outputs:
        found.setdefault(name, set()).add("")
    return found


def boundary(
    graph: Graph, nodes: Sequence[Node], read_by: Mapping[str, set[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of tensors that enter and leave the set ``nodes``.

    Inputs are tensors read from outside, in order of first use. Outputs are tensors that other
    nodes or the model read, in order of production. ``read_by`` is the result of the graph's
    :func:`readers`.
    """
    inside = {node.name for node in nodes}
    made = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.inputs)
    inputs = tuple(
        name for name in read if name not in made and graph.values[name].constant is None
    )
    return inputs, tuple(
        name for node in nodes for name in node.outputs if read_by.get(name, inside) - inside
    )


def _placement(
    graph: Graph, parts: Iterable[Region | HostPart], outcomes: dict[str, Outcome]
) -> tuple[Placement, ...]:
    region_of = {
        node.name: part.index for part in parts if isinstance(part, Region) for node in part.nodes
    }
    placements = []
    for node in graph.nodes:
        outcome = outcomes[node.name]
        on: Literal["dla", "cpu"] = "cpu" if isinstance(outcome, Refusal) else "dla"
        reason, rule = (
            (str(outcome), outcome.rule) if isinstance(outcome, Refusal) else (None, None)
        )
        region = region_of.get(node.name)
        placements.append(
            Placement(node.name, node.op_type, on, region, reason, node.onnx_nodes, rule)
        )
    return tuple(placements)


# Merging nodes into parts: waves of Kahn's algorithm that alternate between the kinds of parts: the
# CPU, the accelerator, and the accelerator under each condition. A wave takes every ready node of
# its kind until none is left; then the next kind has its turn. A node of a wave depends only on
# earlier waves and on its own, so no path leaves a wave and comes back. Every wave is therefore
# convex, and the order of the waves is an execution order. Without conditions no partition has
# fewer regions: each wave of the accelerator ends a path through the graph that changes sides
# equally often. A node with a condition waits for the condition's producer; this closes no cycle,
# because a result that a condition depends on is never used under that condition only.


@dataclass(frozen=True, eq=False)
class NodeGroup:
    """Nodes that run together on the CPU or on the accelerator, under the same ``guards``.

    They are in topological order within each connected component.
    """

    accelerated: bool
    components: tuple[tuple[Node, ...], ...]
    guards: Guards = frozenset()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for component in self.components for node in component)


def merge(
    nodes: Sequence[Node], accelerated: Iterable[str], guards: Mapping[str, Guards] = NO_GUARDS
) -> tuple[NodeGroup, ...]:
    """Divide the nodes into few groups for CPU or accelerator, in execution order.

    Each is a wave of host nodes, or of accelerator nodes with the same conditions ``guards``.
    ``accelerated`` names the nodes of the accelerator. Nodes must be in topological order; every
    node is in exactly one group. Without conditions no division has fewer groups.
    """
    chosen = dict.fromkeys(accelerated)
    kinds = {name: guards.get(name, frozenset()) for name in chosen}
    producer = {name: node.name for node in nodes for name in node.outputs}
    needs = {
        node.name: {
            producer[name]
            for name in (*node.inputs, *(one for one, _ in kinds.get(node.name, ())))
            if name in producer
        }
        for node in nodes
    }
    turns = cycle((None, frozenset[Guard](), *dict.fromkeys(filter(None, kinds.values()))))
    waiting = list(nodes)
    done = set[str]()
    groups = list[NodeGroup]()
    while waiting:
        turn = next(turns)
        wave, waiting = _wave(waiting, turn, kinds, needs, done)
        if wave:
            components = (tuple(wave),) if turn is None else _components(wave, needs)
            groups.append(NodeGroup(turn is not None, components, turn or frozenset()))
    return tuple(groups)


def _wave(
    waiting: list[Node],
    turn: Guards | None,
    kinds: Mapping[str, Guards],
    needs: Mapping[str, set[str]],
    done: set[str],
) -> tuple[list[Node], list[Node]]:
    """Return the waiting nodes of kind ``turn`` that can run now, and the other waiting nodes.

    The kind of a node is its conditions if it runs on the accelerator, or None for the CPU. The
    names of the nodes that can run are added to ``done``.
    """
    wave = []
    rest = []
    for node in waiting:  # in topological order one pass finds every node that becomes ready
        if kinds.get(node.name) == turn and needs[node.name] <= done:
            wave.append(node)
            done.add(node.name)
        else:
            rest.append(node)
    return wave, rest


def _components(wave: list[Node], needs: Mapping[str, set[str]]) -> tuple[tuple[Node, ...], ...]:
    """Return the weakly connected components of a set of nodes, ordered by first node.

    Each component keeps the order of nodes.
    """
    parent = {node.name: node.name for node in wave}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for node in wave:
        for needed in needs[node.name]:
            if needed in parent:
                parent[root(needed)] = root(node.name)
    members: dict[str, list[Node]] = {}
    for node in wave:
        members.setdefault(root(node.name), []).append(node)
    return tuple(tuple(component) for component in members.values())
