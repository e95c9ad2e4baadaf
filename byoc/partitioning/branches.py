"""Find the nodes whose results are used only for one value of a run-time condition.

A Where with one flag selects the result of a branch, such as that of an If. The host runs a branch
only if its result is selected.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from byoc.estimate.constants import MACS_PER_BYTE
from byoc.graph import Graph, Node
from byoc.operators.domain import FLAGS
from byoc.operators.onnx_view import SELECT

Guard = tuple[str, bool]
"""Tensor of a condition, and its value for which a result is used."""
Guards = frozenset[Guard]

_ALWAYS: Guards = frozenset()


def find_guards(graph: Graph) -> dict[str, Guards]:
    """Return the conditions under which the results of nodes are used, by node name.

    Nodes that are always needed are absent. So are conditions of branches that compute too little
    to be a region of their own.
    """
    needed: dict[str, Guards] = dict.fromkeys(graph.outputs, _ALWAYS)
    guards = dict[str, Guards]()
    for node in reversed(graph.nodes):
        uses = [needed[name] for name in node.outputs if name in needed]
        own = frozenset.intersection(*uses) if uses else _ALWAYS
        if own:
            guards[node.name] = own
        for position, name in enumerate(node.inputs):
            chosen = _find_selection(graph, node, position)
            use = own if chosen is None else own | {chosen}
            needed[name] = needed.get(name, use) & use
    paying = _find_paying(graph, guards)
    kept = {name: own & paying for name, own in guards.items()}
    return {name: own for name, own in kept.items() if own}


def _find_selection(graph: Graph, node: Node, position: int) -> Guard | None:
    """Return the condition for which a node uses the operand at ``position``, or None."""
    if node.op_type != SELECT or position not in (1, 2):
        return None
    condition = graph.values[node.inputs[0]]
    able = condition.dtype == FLAGS and condition.elements == 1 and condition.constant is None
    return (node.inputs[0], position == 1) if able else None


def _find_paying(graph: Graph, guards: Mapping[str, Guards]) -> Guards:
    """Return the conditions of branches that compute enough (:data:`MACS_PER_BYTE`)."""
    members: dict[Guard, list[Node]] = {}
    for node in graph.nodes:
        for guard in sorted(guards.get(node.name, ())):
            members.setdefault(guard, []).append(node)
    return frozenset(
        guard
        for guard, nodes in members.items()
        if sum(node.macs for node in nodes) >= MACS_PER_BYTE * _count_crossing(graph, nodes)
    )


def _count_crossing(graph: Graph, nodes: Iterable[Node]) -> int:
    """Return the bytes of the tensors that enter or leave ``nodes``."""
    nodes = list(nodes)
    read = {name for node in nodes for name in node.inputs if graph.values[name].constant is None}
    made = {name for node in nodes for name in node.outputs}
    inside = Counter(name for node in nodes for name in node.inputs)
    everywhere = Counter(name for node in graph.nodes for name in node.inputs)
    left = {name for name in made if everywhere[name] > inside[name]}
    return sum(graph.values[name].elements for name in (read - made) | left)
