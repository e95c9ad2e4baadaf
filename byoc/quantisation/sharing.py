"""Quantise several models of one network with one set of scales."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto

from byoc.operators.onnx_view import ADD
from byoc.quantisation.calibrate import Ranges, share_ranges
from byoc.runtimes.protobuf import ConstantArrays, copy_model, is_float32, keep_nodes, shapes_of


def drop_zero_masks(model: ModelProto) -> ModelProto:
    """Remove additions of zeros, such as the mask of a token that sees all others.

    ``model`` has static shapes.
    """
    result = copy_model(model)
    graph = result.graph
    shapes = shapes_of(graph)
    constants = ConstantArrays(graph, is_float32)
    renamed: dict[str, str] = {}
    shown = {value.name for value in graph.output}
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        if node.op_type == ADD and node.output[0] not in shown:
            zeros = [name for name in node.input if name in constants and not constants[name].any()]
            others = [name for name in node.input if name not in zeros]
            if len(others) == 1 and shapes[others[0]] == shapes[node.output[0]]:
                renamed[node.output[0]] = others[0]
    keep_nodes(graph, lambda node: node.output[0] not in renamed)
    return result


def merge_ranges(
    models: Sequence[ModelProto], observed: Sequence[Ranges], groups: Sequence[Sequence[str]]
) -> Ranges:
    """Return one range for each tensor of several models, from the ranges observed in each.

    Tensors of a group share a range. So do tensors that share a range in any of the models.
    """
    merged: Ranges = {}
    for _ in range(2):  # what one model shares can widen what another shares
        for ranges in observed:
            for name, limits in ranges.items():
                merged[name] = merge_limits(limits, merged.get(name, limits))
        tie_ranges(merged, groups)
        observed = [
            share_ranges(model, {name: merged[name] for name in ranges})
            for model, ranges in zip(models, observed, strict=True)
        ]
    for ranges in observed:
        merged |= ranges
    return merged


def merge_limits(
    first: tuple[np.float32, np.float32], second: tuple[np.float32, np.float32]
) -> tuple[np.float32, np.float32]:
    """Return the smallest range that contains two ranges."""
    return min(first[0], second[0]), max(first[1], second[1])


def tie_ranges(ranges: Ranges, groups: Sequence[Sequence[str]]) -> None:
    """Give, in place, the tensors of each group their common range; ignore unknown tensors.

    For state: an output that is an input of the next inference has that input's scale.
    """
    for group in groups:
        known = [name for name in group if name in ranges]
        if known:
            common = ranges[known[0]]
            for name in known[1:]:
                common = merge_limits(common, ranges[name])
            ranges.update(dict.fromkeys(known, common))
