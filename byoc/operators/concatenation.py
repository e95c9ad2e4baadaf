"""Concatenation of dense slices: free where quantisations agree, a change of scale of every operand where not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from byoc.graph import Graph, Node, Value
from byoc.operators import domain, elementwise
from byoc.operators.activation import Activation
from byoc.operators.forms import Form, QLinear, Written
from byoc.operators.movement import Alias
from byoc.operators.operator import Constraint, Operand, Operator, Requirement
from byoc.operators.rules import Finding, finding, rule
from byoc.target import Target


@dataclass(frozen=True, eq=False)
class ConcatRecord:
    """Operands with their first elements in the result; ``free`` where none changes its quantisation."""

    node: Node
    sources: tuple[Value, ...]
    result: Value
    starts: tuple[int, ...]
    free: bool


@rule("every operand is one dense slice of the result: the dimensions before the axis are 1")
def dense_slices(graph: Graph, node: Node) -> Finding | None:
    """No operand is spread over the result."""
    shape, axis = graph.values[node.outputs[0]].shape, node.attributes["axis"]
    slices = math.prod(shape[:axis])
    if slices == 1:
        return None
    values = {"axis": axis, "shape": shape, "slices": slices}
    return finding("axis {axis} of shape {shape} makes {slices} slices of every operand", **values)


@rule(domain.FIXED)
def scales_in_int32(record: ConcatRecord, target: Target) -> Finding | None:
    """Every change of scale, times at most 255 steps."""
    for source in () if record.free else record.sources:
        ratio = float(domain.affine(source).scale) / float(domain.affine(record.result).scale)
        found = domain.leaves_int32(255, ratio, target)
        if found is not None:
            return found
    return None


@dataclass(frozen=True, eq=False, kw_only=True)
class Concatenation(Operator):
    """What a Concat becomes are operations of other families: one alias, or one change of scale an operand."""

    family: ClassVar[str] = "concatenation"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "Concat",
            operands=None,
            attributes=("axis",),
            plain=True,
            passive=True,
            ranges="all",
            integer=(QLinear("QLinearConcat", ((2, 3, 4),), (0, 1), repeats=True),),
        ),
    )
    requirements: ClassVar[tuple[Requirement, ...]] = (
        *elementwise.UNARY,
        elementwise.equal_types,
        domain.per_tensor,
        domain.usable_scales,
        dense_slices,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (scales_in_int32,)

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """The axis, counted from the front."""
        axis = int(written.node.attributes["axis"])
        return {"axis": axis + len(written.operand_shape()) if axis < 0 else axis}

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> ConcatRecord:
        """The record of a concatenation that meets every requirement."""
        sources = tuple(graph.values[name] for name in node.inputs)
        result = graph.values[node.outputs[0]]
        starts = np.cumsum([0, *(source.elements for source in sources)])[:-1]
        return ConcatRecord(node, sources, result, tuple(int(start) for start in starts), _free(node, sources, result))

    @classmethod
    def operations(cls, record: ConcatRecord, target: Target) -> tuple[Operator, ...]:
        """One alias, or one change of scale an operand into its slice of the result."""
        if not record.free:
            pairs = zip(record.sources, record.starts, strict=True)
            return tuple(_rescaled(record, source, start) for source, start in pairs)
        return (
            Alias(
                name=record.node.name,
                kind="DMA",
                inputs=tuple(domain.whole(value, domain.elementwise_shape(value.shape)) for value in record.sources),
                output=domain.whole(record.result, domain.elementwise_shape(record.result.shape)),
                onnx_nodes=record.node.onnx_nodes,
                offsets=record.starts,
            ),
        )


def _free(node: Node, sources: tuple[Value, ...], result: Value) -> bool:
    """Whether every operand already has the quantisation of the result."""
    if node.attributes.get("plain"):
        return True
    assert result.quantization is not None
    return all(value.quantization is not None and value.quantization.same_as(result.quantization) for value in sources)


def _rescaled(record: ConcatRecord, source: Value, start: int) -> Activation:
    """``source`` at ``start`` of the result, in the result's quantisation: a leaky Relu of slope 1."""
    before, after = domain.affine(source), domain.affine(record.result)
    shape = domain.elementwise_shape(source.shape)
    return Activation(
        name=record.node.name,
        kind="ACT",
        inputs=(domain.whole(source, shape),),
        output=Operand(record.result.name, shape, start),
        onnx_nodes=record.node.onnx_nodes,
        function="leaky_relu",
        alpha=1.0,
        input_scale=float(before.scale),
        output_scale=float(after.scale),
        input_zero_point=before.stored_zero_point,
        output_zero_point=after.stored_zero_point,
    )
