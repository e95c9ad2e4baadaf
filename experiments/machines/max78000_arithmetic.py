"""Arithmetic of MAX78000 on integers: sums, shift with rounding, saturation, pools.

Activations are int8 with zero point 0. All scales are powers of two, so that one shift scales the
sum of a convolution. ``benchmarks/max78000_vectors.py`` compares the functions with the vendor's
simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from isa.errors import InputError

Integers = NDArray[np.int64]
FRACTION_BITS = 7
"""Bits behind the binary point of activations, weights and biases."""
LARGEST_SHIFT = 15
"""Largest number of bits that the hardware shifts a sum to the left or to the right."""


def saturate(values: Integers) -> Integers:
    """Clip to int8."""
    return np.clip(values, -128, 127)


def shift_sums(sums: Integers, shift: int) -> Integers:
    """Return ``floor(sums * 2**shift / 128 + 1/2)``, saturated: halves round up."""
    right = FRACTION_BITS - shift
    if right <= 0:
        return saturate(sums << -right)
    return saturate(sums + (1 << right >> 1) >> right)


def convolve(
    values: Integers, weights: Integers, padding: Sequence[int], dilation: Sequence[int]
) -> Integers:
    """Return the sums of a convolution with stride 1.

    Args:
        values: (C, H, W) or (C, L).
        weights: (outputs, C, kernel sides).
        padding: zeros before each side, then behind each side.
        dilation: distance of taps on each side.
    """
    sides = weights.ndim - 2
    around = [(0, 0), *zip(padding[:sides], padding[sides:], strict=True)]
    reach = [(taps - 1) * step + 1 for taps, step in zip(weights.shape[2:], dilation, strict=True)]
    axes = tuple(range(1, sides + 1))
    windows = sliding_window_view(np.pad(values, around), reach, axes)
    steps: tuple[Any, ...] = tuple(slice(None, None, step) for step in dilation)
    taps = windows[(..., *steps)]
    last = tuple(range(sides + 1, 2 * sides + 1))
    sums: Integers = np.tensordot(weights, taps, ((1, *(axis + 1 for axis in axes)), (0, *last)))
    return sums


def add_bias(sums: Integers, bias: Integers) -> Integers:
    """Add 128 times the int8 bias of each output channel."""
    return sums + (bias << FRACTION_BITS).reshape(-1, *(1,) * (sums.ndim - 1))


def pool_maximum(values: Integers, window: Sequence[int], stride: Sequence[int]) -> Integers:
    """Return the maximum of each window; incomplete windows are left out."""
    found: Integers = _cut_windows(values, window, stride).max(axis=tuple(range(-len(window), 0)))
    return found


def pool_average(values: Integers, window: Sequence[int], stride: Sequence[int]) -> Integers:
    """Return the mean of each window, rounded towards zero."""
    axes = tuple(range(-len(window), 0))
    sums: Integers = _cut_windows(values, window, stride).sum(axis=axes)
    found: Integers = np.sign(sums) * (np.abs(sums) // int(np.prod(window)))
    return found


def _cut_windows(values: Integers, window: Sequence[int], stride: Sequence[int]) -> Integers:
    windows = sliding_window_view(values, tuple(window), tuple(range(1, len(window) + 1)))
    return windows[(slice(None), *(slice(None, None, step) for step in stride))]


def combine(operation: str, left: Integers, right: Integers) -> Integers:
    """Return the saturated result of Add or Sub, or the bits of Or or Xor."""
    functions: dict[str, Callable[..., Integers]] = {
        "Add": np.add,
        "Sub": np.subtract,
        "Or": np.bitwise_or,
        "Xor": np.bitwise_xor,
    }
    return saturate(functions[operation](left, right))


def compute_nodes(
    graph: Graph, nodes: Sequence[Node], values: Mapping[str, NDArray[Any]]
) -> Mapping[str, NDArray[Any]]:
    """Return the results of nodes that the machine runs; all scales must be powers of two.

    Raises:
        InputError: a scale, zero point, bias or operator that the machine does not have.
    """
    found = dict(values)
    for node in nodes:
        operands = [_read(graph.values[name], found) for name in node.inputs]
        result = _compute(graph, node, operands)
        value = graph.values[node.outputs[0]]
        found[value.name] = result.reshape(value.shape).astype(value.dtype)
    return {name: found[name] for node in nodes for name in node.outputs}


def _read(value: Value, found: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    array = found[value.name] if value.constant is None else value.constant
    return array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array


def _compute(graph: Graph, node: Node, operands: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the elements of a node's result; their shape may lack the axis of the batch."""
    result = graph.values[node.outputs[0]]
    kind = node.op_type
    if kind in ("Conv", "MatMul"):
        return _compute_product(graph, node, operands)
    if {_scale(graph.values[name], node) for name in node.inputs} != {_scale(result, node)}:
        raise InputError(f"{node.name}: {kind} changes the scale, which the machine cannot")
    attributes = node.attributes
    if kind in ("Add", "Sub"):
        return combine(kind, *operands)
    if kind in ("Flatten", "Reshape"):
        return operands[0]
    if kind == "Concat":
        return np.concatenate(operands, axis=attributes["axis"])
    values = _take_image(operands[0], node)
    if kind in ("MaxPool", "AveragePool"):
        pool = pool_maximum if kind == "MaxPool" else pool_average
        return pool(values, attributes["kernel"], attributes["strides"])
    if kind in ("GlobalMaxPool", "GlobalAveragePool"):
        pool = pool_maximum if kind == "GlobalMaxPool" else pool_average
        return pool(values, values.shape[1:], values.shape[1:])
    if kind == "DepthToSpace":
        return _copy_pieces(values, attributes["pieces"])
    raise InputError(f"{node.name}: the machine has no arithmetic for {kind}")


def _compute_product(graph: Graph, node: Node, operands: Sequence[Integers]) -> Integers:
    values, weights, *bias = operands
    image = _take_image(values, node)
    names = (*node.inputs[:2], node.outputs[0])
    source, factor, result = (_scale(graph.values[name], node) for name in names)
    shift = FRACTION_BITS + int(np.log2(source * factor / result))
    if abs(shift) > LARGEST_SHIFT:
        raise InputError(
            f"{node.name}: the scales {source:g}, {factor:g} and {result:g} need an output shift "
            f"of {shift}; the hardware has -{LARGEST_SHIFT} to {LARGEST_SHIFT}"
        )
    if node.op_type == "MatMul":
        sums = weights.T @ image
    else:
        sums = convolve(image, weights, node.attributes["pads"], node.attributes["dilations"])
    for constant in bias:
        stored = constant >> FRACTION_BITS
        if (saturate(stored) << FRACTION_BITS != constant).any():
            raise InputError(f"{node.name}: a bias is not an int8 times 128")
        sums = add_bias(sums, stored)
    found = shift_sums(sums, shift)
    return np.maximum(found, 0) if node.attributes.get("activation") == "Relu" else found


def _take_image(values: NDArray[Any], node: Node) -> NDArray[Any]:
    """Return the only image of a batch; raise InputError for several."""
    if len(values) > 1:
        raise InputError(f"{node.name}: a batch of {len(values)}; the machine computes one image")
    image: NDArray[Any] = values[0]
    return image


def _scale(value: Value, node: Node) -> float:
    """Return the scale of a tensor, a power of two, with zero point 0."""
    quantization = value.quantization
    if quantization is None:
        raise InputError(f"{node.name}: {value.name} is not quantised")
    scales = {float(scale) for scale in quantization.scale.reshape(-1)}
    scale = scales.pop()
    if scales or np.frexp(scale)[0] != 0.5 or quantization.zero_point.any():
        raise InputError(
            f"{node.name}: {value.name} has scale {scale:g} and zero point "
            f"{quantization.zero_point.reshape(-1)[0]}; the machine needs one power of two and 0: "
            "quantise a float network with --quantise power-of-two"
        )
    return scale


def _copy_pieces(values: Integers, pieces: Sequence[Sequence[int]]) -> Integers:
    """Return the elements in another order: offsets, then (count, from, to) for each loop."""
    source = np.ascontiguousarray(values).reshape(-1)
    result = np.empty_like(source)
    for begin, end, *loops in pieces:
        counts = tuple(loops[::3])
        reads = tuple(8 * step for step in loops[1::3])
        writes = tuple(8 * step for step in loops[2::3])
        as_strided(result[end:], counts, writes)[...] = as_strided(source[begin:], counts, reads)
    return result
