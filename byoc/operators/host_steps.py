"""Work of operators on the CPU that is neither multiply-accumulates nor copies."""

import math

from byoc.graph import Graph, Node

SAMPLES_PER_CYCLE = 8
"""Elements of an image that the CPU weighs and adds in a cycle."""
LOOKUPS = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators that read only the elements that they select."""


def count_scalar_steps(graph: Graph, node: Node) -> int:
    """Return the scalar operations of a node that are neither MACs nor copies."""
    values = [graph.values[name] for name in (*node.inputs[:1], *node.outputs[:1]) if name]
    if len(values) < 2 or any(value.open for value in values):
        return 0
    data, result = values
    size = data.elements
    if node.op_type == "TopK":
        return size * max(1, math.ceil(math.log2(result.shape[-1] + 1)))
    if node.op_type == "GridSample":
        taps = {"nearest": 1, "cubic": 4}.get(str(node.attributes.get("mode")), 2)
        return result.elements * int(taps ** (len(data.shape) - 2)) // SAMPLES_PER_CYCLE
    if node.op_type == "NonMaxSuppression":
        return size * data.shape[1]
    return size if node.op_type in ("CumSum", "ScatterElements", "ScatterND") else 0
