"""Convolutions: plain, depthwise and grouped, one- and two-dimensional."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operations import ConvOperation, Operand, Operation, Requantise
from byoc.patterns import tensors, weights
from byoc.patterns.base import Pattern
from byoc.target import Target


@dataclass(frozen=True, eq=False)
class ConvRecord:
    """One convolution in the int8 domain.

    ``weights`` are (OC, IC/group, KH, KW); ``bias`` is int64 (OC,) with the zero point folded in.
    """

    node: Node
    source: str
    result: str
    result_dtype: str
    batch: int
    source_plane: tuple[int, int, int]
    result_plane: tuple[int, int, int]
    weights: NDArray[np.int8]
    bias: NDArray[np.int64]
    input_zero_point: int
    requantise: Requantise | None
    group: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]

    @property
    def depthwise(self) -> bool:
        """True when every group has one input channel (and there is more than one)."""
        return self.group == self.source_plane[0] and self.group > 1


def parse(graph: Graph, node: Node) -> ConvRecord:
    """The record of a convolution that meets every requirement."""
    source, kernel, result = (graph.values[name] for name in (*node.inputs[:2], node.outputs[0]))
    assert kernel.constant is not None
    data = tensors.stored(kernel.constant)
    filters = data.reshape(*data.shape[:2], *(1,) * (4 - data.ndim), *data.shape[2:])
    zero_point = input_zero_point(graph, node)
    bias = graph.values[node.inputs[2]].constant if len(node.inputs) > 2 else None
    sums = filters.reshape(len(filters), -1).sum(axis=1, dtype=np.int64)
    strides, dilations, pads = two_dimensional(node)
    return ConvRecord(
        node=node,
        source=source.name,
        result=result.name,
        result_dtype=result.dtype,
        batch=source.shape[0],
        source_plane=tensors.plane((1, *source.shape[1:])),
        result_plane=tensors.plane((1, *result.shape[1:])),
        weights=filters,
        bias=tensors.fold_zero_point(bias, sums, zero_point),
        input_zero_point=zero_point,
        requantise=None
        if result.dtype == "int32"
        else tensors.requantisation(node, source, kernel, result, kernel.shape[0]),
        group=node.attributes["group"],
        strides=strides,
        dilations=dilations,
        pads=pads,
    )


def input_zero_point(graph: Graph, node: Node) -> int:
    """Zero point of the first operand in the int8 domain."""
    value = graph.values[node.inputs[0]]
    if "zero_points" in node.attributes:
        return int(node.attributes["zero_points"][0][0]) - (128 if value.dtype == "uint8" else 0)
    return tensors.affine(value).stored_zero_point


def two_dimensional(node: Node) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]:
    """Strides, dilations and pads (top, left, bottom, right) of a one- or two-dimensional window."""
    strides, dilations, pads = (node.attributes[key] for key in ("strides", "dilations", "pads"))
    if len(strides) == 1:
        return (1, strides[0]), (1, dilations[0]), (0, pads[0], 0, pads[1])
    return (strides[0], strides[1]), (dilations[0], dilations[1]), (pads[0], pads[1], pads[2], pads[3])


def operations(record: ConvRecord) -> tuple[Operation, ...]:
    """One operation an image and a group; a depthwise convolution is one operation an image."""
    return tuple(operation for image in range(record.batch) for operation in _image(record, image))


def _image(record: ConvRecord, image: int) -> Iterator[ConvOperation]:
    groups = 1 if record.depthwise else record.group
    channels, *spatial = record.source_plane
    outputs, *result_spatial = record.result_plane
    source_shape = (channels // groups, *spatial)
    result_shape = (outputs // groups, *result_spatial)
    for group in range(groups):
        chosen = slice(group * outputs // groups, (group + 1) * outputs // groups)
        yield ConvOperation(
            name=record.node.name,
            kind="DEPTH" if record.depthwise else "CONV",
            inputs=(Operand(record.source, source_shape, (image * groups + group) * int(np.prod(source_shape))),),
            output=Operand(
                record.result,
                result_shape,
                (image * groups + group) * int(np.prod(result_shape)),
                "int32" if record.requantise is None else "int8",
            ),
            onnx_nodes=record.node.onnx_nodes,
            weights=record.weights[chosen],
            bias=record.bias[chosen].astype(np.int32),
            requantise=_channels(record.requantise, chosen),
            input_zero_point=record.input_zero_point,
            strides=record.strides,
            dilations=record.dilations,
            pads=record.pads,
            depthwise=record.depthwise,
        )


def _channels(requantise: Requantise | None, chosen: slice) -> Requantise | None:
    """The requantisation of some of the output channels."""
    if requantise is None:
        return None
    return Requantise(requantise.scale[chosen], requantise.zero_point, requantise.low, requantise.high)


def one_or_two_dimensional(graph: Graph, node: Node) -> str | None:
    """only 1-D and 2-D windows run on the accelerator"""
    rank = len(graph.values[node.inputs[0]].shape) - 2
    return None if rank in (1, 2) else f"the window has {rank} dimensions"


def accumulators_fit(record: ConvRecord, target: Target) -> str | None:
    """accumulators are int32: |bias| + 128 · Σ|weights| of every output channel is at most 2147483647"""
    bound = tensors.largest_accumulator(record.weights.reshape(len(record.weights), -1), record.bias)
    return f"an accumulator could reach {bound}" if bound >= tensors.ACCUMULATOR_LIMIT else None


def depthwise_available(record: ConvRecord, target: Target) -> str | None:
    """use --isa v2 or --emulate-depthwise"""
    if not record.depthwise or target.emulate_depthwise or "OP_DEPTH_CONV" in target.instructions:
        return None
    return f"OP_DEPTH_CONV is not in ISA {target.isa}"


def fits_fields(record: ConvRecord, target: Target) -> str | None:
    """sizes, kernel, strides, dilations and pads fit the instruction's fields"""
    detail = tensors.too_large((record.source_plane, record.result_plane), target)
    window = (*record.weights.shape[2:], *record.strides, *record.dilations, *record.pads)
    return detail or tensors.oversized("window parameter", max(window), target.window_limit)


PATTERN: Pattern[ConvRecord] = Pattern(
    name="convolution",
    op_types=("Conv",),
    requirements=(
        one_or_two_dimensional,
        tensors.variable_input,
        tensors.eight_bit_input,
        tensors.eight_bit_output,
        tensors.per_tensor,
        tensors.usable_scales,
        tensors.not_empty,
        weights.constant_weights,
        weights.eight_bit_weights,
        weights.symmetric_weights,
        weights.weights_per_output_channel,
        weights.integer_bias,
        weights.bias_in_accumulator_scale,
    ),
    parse=parse,
    constraints=(depthwise_available, accumulators_fit, fits_fields),
    operations=operations,
)
