"""Concatenation of dense slices: free where quantisations agree, a change of scale of every operand where not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byoc.graph import Graph, Node, Value
from byoc.operations import AliasOperation, Operand, Operation, UnaryOperation
from byoc.patterns import elementwise, tensors
from byoc.patterns.base import Pattern
from byoc.target import Target


@dataclass(frozen=True, eq=False)
class ConcatRecord:
    """Operands with their first elements in the result; ``free`` where none changes its quantisation."""

    node: Node
    sources: tuple[Value, ...]
    result: Value
    starts: tuple[int, ...]
    free: bool


def parse(graph: Graph, node: Node) -> ConcatRecord:
    """The record of a concatenation that meets every requirement."""
    sources = tuple(graph.values[name] for name in node.inputs)
    result = graph.values[node.outputs[0]]
    starts = np.cumsum([0, *(source.elements for source in sources)])[:-1]
    return ConcatRecord(node, sources, result, tuple(int(start) for start in starts), _free(node, sources, result))


def _free(node: Node, sources: tuple[Value, ...], result: Value) -> bool:
    """Whether every operand already has the quantisation of the result."""
    if node.attributes.get("plain"):
        return True
    assert result.quantization is not None
    return all(value.quantization is not None and value.quantization.same_as(result.quantization) for value in sources)


def operations(record: ConcatRecord, target: Target) -> tuple[Operation, ...]:
    """One alias, or one change of scale an operand into its slice of the result."""
    if record.free:
        return (
            AliasOperation(
                name=record.node.name,
                kind="DMA",
                inputs=tuple(tensors.whole(value, tensors.elementwise_shape(value.shape)) for value in record.sources),
                output=tensors.whole(record.result, tensors.elementwise_shape(record.result.shape)),
                onnx_nodes=record.node.onnx_nodes,
                offsets=record.starts,
            ),
        )
    pairs = zip(record.sources, record.starts, strict=True)
    return tuple(_rescaled(record, source, start) for source, start in pairs)


def _rescaled(record: ConcatRecord, source: Value, start: int) -> UnaryOperation:
    """``source`` at ``start`` of the result, in the result's quantisation: a leaky Relu of slope 1."""
    before, after = tensors.affine(source), tensors.affine(record.result)
    shape = tensors.elementwise_shape(source.shape)
    return UnaryOperation(
        name=record.node.name,
        kind="ACT",
        inputs=(tensors.whole(source, shape),),
        output=Operand(record.result.name, shape, start),
        onnx_nodes=record.node.onnx_nodes,
        function="leaky_relu",
        alpha=1.0,
        input_scale=float(before.scale),
        output_scale=float(after.scale),
        input_zero_point=before.stored_zero_point,
        output_zero_point=after.stored_zero_point,
    )


def dense_slices(graph: Graph, node: Node) -> str | None:
    """every operand is one dense slice of the result: the dimensions before the axis are 1"""
    shape, axis = graph.values[node.outputs[0]].shape, node.attributes["axis"]
    slices = math.prod(shape[:axis])
    return None if slices == 1 else f"axis {axis} of shape {shape} makes {slices} slices of every operand"


PATTERN: Pattern[ConcatRecord] = Pattern(
    name="concatenation",
    op_types=("Concat",),
    requirements=(*elementwise.UNARY, elementwise.equal_types, tensors.per_tensor, tensors.usable_scales, dense_slices),
    parse=parse,
    constraints=(),
    operations=operations,
)
