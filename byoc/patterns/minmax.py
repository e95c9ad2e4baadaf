"""Element-wise minimum and maximum."""

from __future__ import annotations

from byoc.graph import Graph, Node
from byoc.operations import MinMaxOperation
from byoc.patterns import elementwise, tensors
from byoc.patterns.base import Pattern, as_parsed
from byoc.patterns.movement import moves_integers


def parse(graph: Graph, node: Node) -> MinMaxOperation:
    """The operation that a minimum or maximum is, once it meets every requirement."""
    first, second, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
    shape = tensors.elementwise_shape(result.shape)
    return MinMaxOperation(
        name=node.name,
        kind="ELTWISE",
        inputs=(tensors.whole(first, shape), tensors.whole(second, shape)),
        output=tensors.whole(result, shape),
        onnx_nodes=node.onnx_nodes,
        function="min" if node.op_type == "Min" else "max",
    )


PATTERN: Pattern[MinMaxOperation] = Pattern(
    name="minmax",
    op_types=("Min", "Max"),
    requirements=(*elementwise.BINARY, tensors.per_tensor, moves_integers),
    parse=parse,
    constraints=(),
    operations=as_parsed,
)
