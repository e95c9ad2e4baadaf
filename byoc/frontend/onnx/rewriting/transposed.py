"""Writes a ConvTranspose as a Conv and movement: every output position between two inputs becomes channels of its own.

Output q·s + r of a stride s reads the inputs q + e for which r + pad - e·s is a tap of the kernel: for each of the s
values of r an ordinary convolution, all over the same inputs. One Conv computes them all as channels, whose results
then take their places. Every multiplication is needed where the kernel is a multiple of the stride; else some of the
new weights are 0. ONNX Runtime computes ConvTranspose in float even between quantised values, and such a Conv in
integers: 1 of 947,468 quantised results of 700 random layers of up to three dimensions differed, a sum near a tie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    attributes,
    copy_model,
    names_of,
    remove_dead_code,
    rewrite_nodes,
    shapes_of,
    standard,
    unused,
)
from byoc.operators.onnx_view import DEQUANTIZE

Array = NDArray[Any]


def spread_transposed(model: ModelProto) -> ModelProto:
    """A copy in which every ConvTranspose of constant weights, dequantised or not, is a Conv and data movement.

    Wants shapes inferred and constants folded. Those of computed weights or bias are left as they are.
    """
    result = copy_model(model)
    graph = result.graph
    arrays = ConstantArrays(graph, lambda tensor: True)
    shapes, taken = shapes_of(graph), names_of(graph)
    producers = {name: node for node in graph.node for name in node.output}

    def spread(node: NodeProto) -> Iterator[NodeProto] | None:
        layer = _layer(node, shapes) if node.op_type == "ConvTranspose" and standard(node) else None
        constants = [_constant(name, producers, arrays) for name in node.input[1:] if name] if layer else []
        known = [found for found in constants if found is not None]
        return None if layer is None or len(known) < len(constants) else _spread(node, layer, known, graph, taken)

    rewrite_nodes(graph, spread)
    remove_dead_code(graph)
    return result


@dataclass(frozen=True)
class _Axis:
    """One spatial dimension: sizes of input and output, and the window."""

    size: int
    result: int
    kernel: int
    stride: int
    dilation: int
    begin: int

    def taps(self) -> Iterator[tuple[int, int, int]]:
        """(position r between two inputs, tap of the kernel, input e behind the first that it reads)."""
        for position, tap in product(range(self.stride), range(self.kernel)):
            behind = position + self.begin - tap * self.dilation
            if behind % self.stride == 0:
                yield position, tap, behind // self.stride

    @property
    def first(self) -> int:
        """The first input that a window of the new kernel reads, from 0 down."""
        return min(0, *(behind for _, _, behind in self.taps()))

    @property
    def window(self) -> int:
        """The size of the new kernel."""
        return max(0, *(behind for _, _, behind in self.taps())) - self.first + 1

    @property
    def end(self) -> int:
        """Padding behind the input, so that every output position has a window."""
        return max(0, -(-self.result // self.stride) + self.window - 1 - self.size + self.first)

    @property
    def count(self) -> int:
        """Windows of the new convolution: as many positions as needed, or more."""
        return self.size - self.first + self.end - self.window + 1


@dataclass(frozen=True)
class _Layer:
    """A ConvTranspose: its groups and its spatial dimensions."""

    groups: int
    axes: tuple[_Axis, ...]

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(axis.stride for axis in self.axes)

    def filters(self, weights: Array, fill: Array) -> Array:
        """Weights (IC, OC/G, kernel...) as those of the new Conv, (OC · strides, IC/G, window...), ``fill`` elsewhere.

        ``fill`` is one number, or one a new output channel. Positions of a channel stand side by side.
        """
        inputs, outputs = weights.shape[0] // self.groups, weights.shape[1]
        windows = tuple(axis.window for axis in self.axes)
        grouped = weights.reshape(self.groups, inputs, outputs, *weights.shape[2:]).swapaxes(1, 2)
        made = np.empty((self.groups, outputs, *self.strides, inputs, *windows), weights.dtype)
        made[...] = np.resize(fill, (self.groups, outputs, *self.strides, *(1,) * (1 + len(windows))))
        for taps in product(*(tuple(axis.taps()) for axis in self.axes)):
            places = tuple(position for position, _, _ in taps)
            reads = tuple(behind - axis.first for (_, _, behind), axis in zip(taps, self.axes, strict=True))
            source: tuple[Any, ...] = (slice(None),) * 3 + tuple(tap for _, tap, _ in taps)
            target: tuple[Any, ...] = (slice(None), slice(None), *places, slice(None), *reads)
            made[target] = grouped[source]
        return made.reshape(-1, inputs, *windows)

    def repeated(self, values: Array, channels: int) -> Array:
        """One value, or one a channel of a group or of all, as one an output channel of the new Conv."""
        return np.repeat(np.resize(values, channels), prod(self.strides))


def _layer(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> _Layer | None:
    """The layer of a ConvTranspose; None where shapes are not known or do not fit."""
    options = attributes(node)
    source, weights, result = (shapes.get(name, ()) for name in (*node.input[:2], node.output[0]))
    rank, groups = len(source) - 2, int(options.get("group", 1))
    if rank < 1 or len(weights) != len(source) or len(result) != len(source) or 0 in (*source, *weights, *result):
        return None
    if groups < 1 or source[1] != weights[0] or weights[0] % groups or result[1] != weights[1] * groups:
        return None
    windows = {name: [int(n) for n in options.get(name, [1] * rank)] for name in ("strides", "dilations")}
    pads = [int(n) for n in options.get("pads", [0] * (2 * rank))]
    if {len(windows["strides"]), len(windows["dilations"]), len(pads) // 2} != {rank} or min(
        *windows["strides"], *windows["dilations"]
    ) < 1:
        return None
    extra = [int(n) for n in options.get("output_padding", [0] * rank)]
    automatic = options.get("auto_pad", b"NOTSET")
    axes = []
    for axis in range(rank):
        size, kernel = source[2 + axis], weights[2 + axis]
        stride, dilation = windows["strides"][axis], windows["dilations"][axis]
        full = stride * (size - 1) + (extra[axis] if len(extra) == rank else 0) + (kernel - 1) * dilation + 1
        begin = pads[axis]
        if automatic in (b"SAME_UPPER", b"SAME_LOWER") or options.get("output_shape"):
            # Half of what is too much, the smaller half with SAME_UPPER (onnxruntime, conv_transpose_attributes.h).
            total = max(full - result[2 + axis], 0)
            begin = total // 2 if automatic == b"SAME_UPPER" else total - total // 2
        axes.append(_Axis(size, result[2 + axis], kernel, stride, dilation, begin))
    return None if min(axis.begin for axis in axes) < 0 else _Layer(groups, tuple(axes))


@dataclass(frozen=True, eq=False)
class _Constant:
    """Constant numbers: ``values``, with the scale and zero point with which they are dequantised, if they are."""

    values: Array
    scale: Array | None = None
    zero_point: Array | None = None


def _constant(name: str, producers: Mapping[str, NodeProto], arrays: ConstantArrays) -> _Constant | None:
    """The constant that ``name`` is, or that it dequantises; None where it is computed."""
    if name in arrays:
        return _Constant(arrays[name])
    reader = producers.get(name)
    if reader is None or reader.op_type != DEQUANTIZE or any(part not in arrays for part in reader.input if part):
        return None
    values, scale, *rest = (arrays[part] for part in reader.input if part)
    zero_point = rest[0] if rest else np.zeros(scale.shape, values.dtype)
    return None if attributes(reader).get("block_size", 0) else _Constant(values, scale, zero_point)


def _spread(
    node: NodeProto, layer: _Layer, constants: list[_Constant], graph: GraphProto, taken: set[str]
) -> Iterator[NodeProto]:
    """The nodes in place of a ConvTranspose with these weights and, perhaps, this bias."""
    result, channels = node.output[0], constants[0].values.shape[1] * layer.groups
    spread = prod(layer.strides) > 1
    cropped = any(axis.count * axis.stride != axis.result for axis in layer.axes)
    names = [node.input[0]]
    for label, constant in zip(("weight", "bias"), constants, strict=False):
        zeros = np.zeros(1, constant.values.dtype) if constant.zero_point is None else constant.zero_point.reshape(-1)
        bias = layer.repeated(constant.values.reshape(-1), channels) if label == "bias" else None
        filters = layer.filters(constant.values, layer.repeated(zeros, channels)) if bias is None else bias
        name = add_constant(graph, f"{result}_{label}", filters)
        if constant.scale is not None:
            parameters = []
            for part, numbers in (("scale", constant.scale.reshape(-1)), ("zero_point", zeros)):
                each = numbers.reshape(()) if constant.scale.size == 1 else layer.repeated(numbers, channels)
                parameters.append(add_constant(graph, f"{name}_{part}", each))
            real = unused(f"{name}_real", taken)
            yield helper.make_node(DEQUANTIZE, [name, *parameters], [real], axis=0)
            name = real
        names.append(name)
    convolved = unused(f"{result}_channels", taken) if spread or cropped else result
    pads = [-axis.first for axis in layer.axes] + [axis.end for axis in layer.axes]
    kernel = [axis.window for axis in layer.axes]
    yield helper.make_node("Conv", names, [convolved], node.name, kernel_shape=kernel, pads=pads, group=layer.groups)
    placed = unused(f"{result}_uncut", taken) if cropped else result
    if spread:
        yield from _placed(layer, channels, convolved, placed, graph, taken)
    if cropped:
        ends = np.array([axis.result for axis in layer.axes], np.int64)
        parts = [np.zeros_like(ends), ends, np.arange(len(ends), dtype=np.int64) + 2]
        cut = [add_constant(graph, f"{result}_cut", part) for part in parts]
        yield helper.make_node("Slice", [placed if spread else convolved, *cut], [result])


def _placed(
    layer: _Layer, channels: int, source: str, result: str, graph: GraphProto, taken: set[str]
) -> Iterator[NodeProto]:
    """Every position of ``source`` in its place between the others."""
    strides, rank = layer.strides, len(layer.axes)
    if rank == 2 and strides[0] == strides[1]:
        yield helper.make_node("DepthToSpace", [source], [result], blocksize=strides[0], mode="CRD")
        return
    counts = [axis.count for axis in layer.axes]
    apart = add_constant(graph, f"{result}_apart", np.array([-1, channels, *strides, *counts], np.int64))
    places = [count * stride for count, stride in zip(counts, strides, strict=True)]
    whole = add_constant(graph, f"{result}_whole", np.array([-1, channels, *places], np.int64))
    order = [0, 1, *(axis for number in range(rank) for axis in (2 + rank + number, 2 + number))]
    positions, moved = unused(f"{result}_positions", taken), unused(f"{result}_places", taken)
    yield helper.make_node("Reshape", [source, apart], [positions])
    yield helper.make_node("Transpose", [positions], [moved], perm=order)
    yield helper.make_node("Reshape", [moved, whole], [result])
