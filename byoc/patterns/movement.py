"""Data movement that costs nothing: Reshape and its kin, and Transpose that keeps the order."""

from __future__ import annotations

from byoc.graph import Graph, Node
from byoc.operations import AliasOperation
from byoc.patterns import elementwise, tensors
from byoc.patterns.base import Pattern, as_parsed


def parse(graph: Graph, node: Node) -> AliasOperation:
    """The alias that a data movement node is."""
    source, result = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
    return AliasOperation(
        name=node.name,
        kind="DMA",
        inputs=(tensors.whole(source, tensors.elementwise_shape(source.shape)),),
        output=tensors.whole(result, tensors.elementwise_shape(result.shape)),
        onnx_nodes=node.onnx_nodes,
    )


def moves_integers(graph: Graph, node: Node) -> str | None:
    """inputs and output must have the same quantisation"""
    if node.attributes.get("plain"):
        return None
    result = graph.values[node.outputs[0]]
    assert result.quantization is not None
    for name in node.inputs:
        source = graph.values[name]
        assert source.quantization is not None
        if source.dtype != result.dtype:
            return f"'{name}' is {source.dtype}, '{result.name}' is {result.dtype}"
        if not source.quantization.same_as(result.quantization):
            first, second = tensors.affine(source), tensors.affine(result)
            return (
                f"'{name}' has scale {first.scale:.9g} and zero point {first.zero_point}, "
                f"'{result.name}' has scale {second.scale:.9g} and zero point {second.zero_point}"
            )
    return None


def keeps_order(graph: Graph, node: Node) -> str | None:
    """only a Transpose that keeps the order of the dimensions longer than 1 costs nothing"""
    if node.op_type != "Transpose":
        return None
    shape, permutation = graph.values[node.inputs[0]].shape, node.attributes["perm"]
    long = [axis for axis in permutation if shape[axis] > 1]
    return None if long == sorted(long) else f"perm {permutation} reorders shape {shape}"


PATTERN: Pattern[AliasOperation] = Pattern(
    name="movement",
    op_types=("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Transpose"),
    requirements=(
        elementwise.computed_operands,
        tensors.eight_bit_input,
        tensors.eight_bit_output,
        tensors.per_tensor,
        tensors.not_empty,
        moves_integers,
        keeps_order,
    ),
    parse=parse,
    constraints=(),
    operations=as_parsed,
)
