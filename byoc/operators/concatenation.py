"""Concatenation: free for dense slices of equal quantisation, otherwise rescaled or copied.

The copies are strided.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from byoc.graph import Graph, Node, Value
from byoc.operators import domain, elementwise
from byoc.operators.activation import rescale, rescale_constant, unscalable
from byoc.operators.copies import make_copies
from byoc.operators.forms import Form, Kinds, QLinear, Written, integer
from byoc.operators.movement import Alias, check_permutation
from byoc.operators.operator import Operator
from byoc.operators.pieces import Dim, Piece, merge_dims
from byoc.operators.records import Operand
from byoc.operators.rules import Constraint, Finding, Requirement, rule
from byoc.options import Target


@dataclass(frozen=True, eq=False)
class ConcatRecord:
    """Operands of a Concat node, with the start of each operand in the result.

    With ``free``, no operand changes its quantisation. ``slices`` is the number of times that the
    sequence of all operands repeats in the result. ``starts`` are element counts over complete
    operands.
    """

    node: Node
    sources: tuple[Value, ...]
    result: Value
    starts: tuple[int, ...]
    free: bool
    slices: int


@rule(
    "an operand that is not one contiguous slice of the result is copied by OP_PERMUTE: use "
    "--isa v4"
)
def permutation_available(record: ConcatRecord, target: Target) -> Finding | None:
    """Return a finding if a Concat needs strided copies and the ISA has none, or None.

    A Concat needs them if an operand fills several slices of the result.
    """
    return check_permutation(0 if record.slices == 1 else len(record.sources), target)


@rule(domain.FIXED)
def scales_in_int32(record: ConcatRecord, target: Target) -> Finding | None:
    """Return a finding if rescaling 255 steps of an operand overflows int32, or None."""
    for source in () if record.free else record.sources:
        found = unscalable(source, record.result, target)
        if found is not None:
            return found
    return None


@dataclass(frozen=True, eq=False, kw_only=True)
class Concatenation(Operator):
    """Concatenation, compiled to an alias, or to a change of scale and a copy per operand."""

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
        *elementwise.PAIR,
        domain.per_tensor,
        domain.usable_scales,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (scales_in_int32, permutation_available)
    kinds: ClassVar[Kinds] = {"axis": integer(0)}

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """Return the axis of a Concat, counted from the first dimension."""
        axis = int(written.node.attributes["axis"])
        return {"axis": axis + len(written.operand_shape()) if axis < 0 else axis}

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if the operands' shapes do not add up to the result's shape.

        Sizes add up along the axis and must be equal elsewhere.
        """
        *shapes, result = (graph.values[name].shape for name in (*node.inputs, *node.outputs))
        axis = node.attributes["axis"]
        fits = axis < len(result) and all(len(shape) == len(result) for shape in shapes)
        fits = fits and sum(shape[axis] for shape in shapes) == result[axis]
        others = {(*shape[:axis], *shape[axis + 1 :]) for shape in (*shapes, result)}
        return (
            None
            if fits and len(others) == 1
            else f"'{node.name}' joins {shapes} to {result} along axis {axis}"
        )

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> ConcatRecord:
        result = graph.values[node.outputs[0]]
        sources = tuple(_constant_as(graph.values[name], result) for name in node.inputs)
        starts = np.cumsum([0, *(source.elements for source in sources)])[:-1]
        slices = math.prod(result.shape[: node.attributes["axis"]])
        free = _free(node, sources, result)
        return ConcatRecord(
            node, sources, result, tuple(int(start) for start in starts), free, slices
        )

    @classmethod
    def operations(cls, record: ConcatRecord, target: Target) -> tuple[Operator, ...]:
        """Return the operations of a Concat: aliases, or rescalings and strided copies."""
        node = record.node
        result = record.result
        if record.slices > 1:
            return tuple(_interleave_operands(record))
        if not record.free:
            return tuple(
                rescale(
                    node,
                    source,
                    result,
                    Operand(result.name, domain.elementwise_shape(source.shape), start),
                )
                if source.constant is None
                else _alias(record, (source,), (start,))
                for source, start in zip(record.sources, record.starts, strict=True)
            )
        return (_alias(record, record.sources, record.starts),)


def _alias(record: ConcatRecord, sources: tuple[Value, ...], starts: tuple[int, ...]) -> Alias:
    return Alias(
        name=record.node.name,
        kind="DMA",
        inputs=tuple(
            Operand.from_value(value, domain.elementwise_shape(value.shape)) for value in sources
        ),
        output=Operand.from_value(record.result, domain.elementwise_shape(record.result.shape)),
        onnx_nodes=record.node.onnx_nodes,
        offsets=starts,
        constant_operands=domain.constants_of(sources),
    )


def _interleave_operands(record: ConcatRecord) -> Iterator[Operator]:
    """Yield a copy of each Concat operand, rescaled first if its quantisation differs."""
    node = record.node
    result = record.result
    whole = result.elements // record.slices
    for number, (source, start) in enumerate(zip(record.sources, record.starts, strict=True)):
        name = source.name
        size = source.elements // record.slices
        if not record.free and source.constant is None:
            name = f"{result.name}:{number}"
            yield rescale(
                node, source, result, Operand(name, domain.elementwise_shape(source.shape))
            )
        dims = merge_dims((Dim(record.slices, size, whole), Dim(size, 1, 1)))
        for copy in make_copies(node, name, result.name, (Piece(0, start // record.slices, dims),)):
            yield replace(copy, constant_operands=domain.constants_of((source,)))


def _constant_as(value: Value, result: Value) -> Value:
    """Return a constant tensor requantised like ``result``, or a computed tensor unchanged."""
    if value.constant is None or value.quantization is None or result.quantization is None:
        return value
    return (
        value
        if value.quantization.same_as(result.quantization)
        else rescale_constant(value, result)
    )


def _free(node: Node, sources: tuple[Value, ...], result: Value) -> bool:
    """Return True if every operand of a Concat already has the quantisation of the result."""
    if node.attributes.get("plain"):
        return True
    assert result.quantization is not None
    return all(
        value.quantization is not None and value.quantization.same_as(result.quantization)
        for value in sources
    )


def make_concatenation(first: Value, parts: tuple[str, ...], result: str, axis: int) -> Node:
    """Return a node that concatenates tensors along ``axis``.

    ``first`` is one of the parts.
    """
    attributes = {**domain.plain_attribute(first), "axis": axis}
    return Node(f"{result} joined", "Concat", parts, (result,), attributes, integer=True)
