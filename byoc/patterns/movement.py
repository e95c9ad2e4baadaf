"""Data movement that costs nothing: Reshape and its kin, Transpose that keeps the order, Concat of dense slices."""

from __future__ import annotations

import math

import numpy as np

from byoc.graph import Graph, Node
from byoc.operations import AliasOperation, Operation
from byoc.patterns import elementwise, tensors
from byoc.patterns.base import Pattern


def parse(graph: Graph, node: Node) -> AliasOperation:
    """The alias that a data movement node is."""
    sources = [graph.values[name] for name in node.inputs]
    result = graph.values[node.outputs[0]]
    starts = np.cumsum([0, *(source.elements for source in sources)])[:-1]
    return AliasOperation(
        name=node.name,
        kind="DMA",
        inputs=tuple(tensors.whole(source, tensors.elementwise_shape(source.shape)) for source in sources),
        output=tensors.whole(result, tensors.elementwise_shape(result.shape)),
        onnx_nodes=node.onnx_nodes,
        offsets=tuple(int(start) for start in starts),
    )


def operations(record: AliasOperation) -> tuple[Operation, ...]:
    """The alias itself."""
    return (record,)


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


def dense_slices(graph: Graph, node: Node) -> str | None:
    """only a Concat whose dimensions before the axis are 1 costs nothing"""
    if node.op_type != "Concat":
        return None
    shape, axis = graph.values[node.outputs[0]].shape, node.attributes["axis"]
    return f"axis {axis} of shape {shape} has {math.prod(shape[:axis])} slices" if math.prod(shape[:axis]) > 1 else None


PATTERN: Pattern[AliasOperation] = Pattern(
    name="movement",
    op_types=("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Transpose", "Concat"),
    requirements=(
        elementwise.computed_operands,
        tensors.eight_bit_input,
        tensors.eight_bit_output,
        tensors.per_tensor,
        tensors.not_empty,
        moves_integers,
        keeps_order,
        dense_slices,
    ),
    parse=parse,
    constraints=(),
    operations=operations,
)
