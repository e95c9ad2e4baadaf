"""Pooling: maximum, average, global."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from byoc.graph import Graph, Node, Value
from byoc.operations import PoolOperation
from byoc.patterns import tensors
from byoc.patterns.base import Pattern, as_parsed
from byoc.patterns.convolution import one_or_two_dimensional, two_dimensional
from byoc.patterns.movement import moves_integers
from byoc.target import Target

Mode = Literal["max", "average", "global_average"]


def parse(graph: Graph, node: Node) -> PoolOperation:
    """The operation that a pooling node is, once it meets every requirement; the batch folds into the channels."""
    source, result = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
    source_plane, result_plane = tensors.plane(source.shape), tensors.plane(result.shape)
    kernel, strides, dilations, pads = (source_plane[1], source_plane[2]), (1, 1), (1, 1), (0, 0, 0, 0)
    if "kernel" in node.attributes:
        window = node.attributes["kernel"]
        kernel = (1, window[0]) if len(window) == 1 else (window[0], window[1])
        strides, dilations, pads = two_dimensional(node)
    mode: Mode = "max"
    if node.op_type in ("AveragePool", "GlobalAveragePool"):
        # ONNX Runtime averages a window that is the whole plane by its rule for GlobalAveragePool (other ties).
        whole = kernel == source_plane[1:] and not any(pads)
        mode = "global_average" if whole else "average"
    operation = PoolOperation(
        name=node.name,
        kind="POOL",
        inputs=(tensors.whole(source, source_plane),),
        output=tensors.whole(result, result_plane),
        onnx_nodes=node.onnx_nodes,
        mode=mode,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pads=pads,
        count_include_pad=node.attributes.get("count_include_pad", False),
    )
    return operation if mode == "max" else _averaging(operation, node, source, result)


def _averaging(operation: PoolOperation, node: Node, source: Value, result: Value) -> PoolOperation:
    """``operation`` with the numbers that averages need."""
    before, after = tensors.affine(source), tensors.affine(result)
    low, high = tensors.clamp(node, after)
    return replace(
        operation,
        input_scale=float(before.scale),
        output_scale=float(after.scale),
        input_zero_point=before.zero_point,
        output_zero_point=after.zero_point,
        offset=before.offset,
        low=low,
        high=high,
    )


def fits_fields(record: PoolOperation, target: Target) -> str | None:
    """sizes, kernel, strides, dilations and pads fit the instruction's fields"""
    detail = tensors.too_large((record.inputs[0].shape, record.output.shape), target)
    window = (*record.kernel, *record.strides, *record.dilations, *record.pads)
    return detail or tensors.oversized("window parameter", max(window), target.window_limit)


def equal_types(graph: Graph, node: Node) -> str | None:
    """input and output have the same element type"""
    source, result = graph.values[node.inputs[0]].dtype, graph.values[node.outputs[0]].dtype
    return None if source == result else f"input is {source}, output is {result}"


def windows_meet_input(graph: Graph, node: Node) -> str | None:
    """every window covers at least one element of the input"""
    if "pads" not in node.attributes:
        return None
    spatial = graph.values[node.inputs[0]].shape[2:]
    results = graph.values[node.outputs[0]].shape[2:]
    attributes = node.attributes
    for axis, (size, count) in enumerate(zip(spatial, results, strict=True)):
        reach = (attributes["kernel"][axis] - 1) * attributes["dilations"][axis]
        first, last = -attributes["pads"][axis], (count - 1) * attributes["strides"][axis] - attributes["pads"][axis]
        if first + reach < 0 or last >= size:
            return f"a window along spatial axis {axis} lies in the padding alone (pads {attributes['pads']})"
    return None


def undilated_average(graph: Graph, node: Node) -> str | None:
    """average pooling has no dilation"""
    dilations = node.attributes.get("dilations", (1,))
    return f"dilations are {dilations}" if node.op_type == "AveragePool" and max(dilations) > 1 else None


def counted_without_rounding_up(graph: Graph, node: Node) -> str | None:
    """average pooling that counts padding does not round its output size up"""
    attributes = node.attributes
    return "ceil_mode is 1" if attributes.get("ceil_mode") and attributes.get("count_include_pad") else None


_COMMON = (
    tensors.variable_input,
    one_or_two_dimensional,
    tensors.eight_bit_input,
    tensors.eight_bit_output,
    equal_types,
    tensors.per_tensor,
    tensors.usable_scales,
    tensors.not_empty,
)

MAXIMUM: Pattern[PoolOperation] = Pattern(
    name="max_pooling",
    op_types=("MaxPool", "GlobalMaxPool"),
    requirements=(*_COMMON, moves_integers, windows_meet_input),
    parse=parse,
    constraints=(fits_fields,),
    operations=as_parsed,
)
AVERAGE: Pattern[PoolOperation] = Pattern(
    name="average_pooling",
    op_types=("AveragePool", "GlobalAveragePool"),
    requirements=(*_COMMON, windows_meet_input, undilated_average, counted_without_rounding_up),
    parse=parse,
    constraints=(fits_fields,),
    operations=as_parsed,
)
