"""Convolutions: plain, depthwise and grouped, one- and two-dimensional."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operations import ConvOperation, Operand, Operation, Requantise, Via
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
        return self.group == self.source_plane[0] > 1

    @property
    def grouped(self) -> bool:
        """True when there are several groups of several input channels each."""
        return self.group > 1 and not self.depthwise


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


def operations(record: ConvRecord, target: Target) -> tuple[Operation, ...]:
    """One operation an image; one an image and a group where no instruction of the target computes several groups."""
    if record.grouped and not _native(target):
        parts, via = record.group, None
    else:
        parts, via = 1, group_convolution("OP_GROUP_CONV", "EX_GROUPS", record) if _on_groups(record, target) else None
    return convolutions(record, parts, via)


def _native(target: Target) -> bool:
    """Whether grouped convolutions are to run as such."""
    return target.grouped != "per-group" and "OP_GROUP_CONV" in target.instructions


def _on_groups(record: ConvRecord, target: Target) -> bool:
    """Whether a convolution needs OP_GROUP_CONV: depthwise ones have an instruction, or emulation, of their own."""
    if record.depthwise:
        return not target.emulate_depthwise and "OP_DEPTH_CONV" not in target.instructions
    return record.grouped


def group_convolution(mnemonic: str, register: str, record: ConvRecord) -> Via:
    """An instruction that computes several groups at once and finds their number, 1 within a group, in ``register``."""
    outputs = record.result_plane[0] // record.group
    return Via(mnemonic=mnemonic, tile_registers=lambda tile: {register: max(tile.output.channels.size // outputs, 1)})


def convolutions(record: ConvRecord, parts: int = 1, via: Via | None = None) -> tuple[Operation, ...]:
    """Each image as ``parts`` operations, of one or all of the groups, on the instruction that ``via`` names."""
    return tuple(operation for image in range(record.batch) for operation in _image(record, image, parts, via))


def _image(record: ConvRecord, image: int, parts: int, via: Via | None) -> Iterator[ConvOperation]:
    channels, *spatial = record.source_plane
    outputs, *result_spatial = record.result_plane
    source_shape = (channels // parts, *spatial)
    result_shape = (outputs // parts, *result_spatial)
    for part in range(parts):
        chosen = slice(part * outputs // parts, (part + 1) * outputs // parts)
        yield ConvOperation(
            name=record.node.name,
            kind="DEPTH" if record.depthwise else "CONV",
            inputs=(Operand(record.source, source_shape, (image * parts + part) * int(np.prod(source_shape))),),
            output=Operand(
                record.result,
                result_shape,
                (image * parts + part) * int(np.prod(result_shape)),
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
            groups=record.group // parts,
            via=via,
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
    """a depthwise convolution runs on it or is emulated: use --isa v2 or --emulate-depthwise"""
    if not record.depthwise or target.emulate_depthwise:
        return None
    if {"OP_DEPTH_CONV", "OP_GROUP_CONV"} & target.instructions:
        return None
    return f"OP_DEPTH_CONV is not in ISA {target.isa}"


def grouped_wanted(record: ConvRecord, target: Target) -> str | None:
    """with --grouped cpu, grouped convolutions stay on the CPU"""
    return f"it has {record.group} groups" if record.grouped and target.grouped == "cpu" else None


def grouped_available(record: ConvRecord, target: Target) -> str | None:
    """with --grouped native, grouped convolutions run on it: use --isa v3"""
    if not record.grouped or target.grouped != "native" or "OP_GROUP_CONV" in target.instructions:
        return None
    return f"OP_GROUP_CONV is not in ISA {target.isa}"


def fits_fields(record: ConvRecord, target: Target) -> str | None:
    """sizes, kernel, strides, dilations and pads fit the instruction's fields"""
    detail = tensors.too_large((record.source_plane, record.result_plane), target)
    window = (*record.weights.shape[2:], *record.strides, *record.dilations, *record.pads)
    detail = detail or tensors.oversized("window parameter", max(window), target.window_limit)
    if detail is None and _on_groups(record, target):
        return tensors.oversized("groups", record.group, target.group_limit)
    return detail


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
    constraints=(depthwise_available, grouped_wanted, grouped_available, accumulators_fit, fits_fields),
    operations=operations,
)
