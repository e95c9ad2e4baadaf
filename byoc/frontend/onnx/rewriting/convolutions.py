"""Writes as Conv, and movement, what is none: ConvTranspose, and pools that no instruction computes.

A ConvTranspose: every output position between two inputs becomes channels of its own. Output q·s + r of a stride s
reads the inputs q + e for which r + pad - e·s is a tap of the kernel: for each of the s values of r an ordinary
convolution, all over the same inputs. One Conv computes them all as channels, whose results then take their places.
Every multiplication is needed where the kernel is a multiple of the stride; else some of the new weights are 0. ONNX
Runtime computes ConvTranspose in float even between quantised values, and such a Conv in integers: 1 of 947,468
quantised results of 700 random layers of up to three dimensions differed, a sum near a tie. A pool is a convolution of
each channel by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.law import View, Writer, written
from byoc.operators.onnx_view import DEQUANTIZE
from byoc.operators.window import window_attributes
from byoc.runtimes.protobuf import attributes
from byoc.runtimes.session import OnnxRuntimeSession
from isa.errors import InputError

Array = NDArray[Any]


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


def _constant(graph: View, name: str) -> _Constant | None:
    """The constant that ``name`` is, or that it dequantises; None where it is computed."""
    if name in graph.constants:
        return _Constant(graph.constants[name])
    reader = graph.maker(name, DEQUANTIZE)
    if reader is None or any(part not in graph.constants for part in reader.input if part):
        return None
    values, scale, *rest = (graph.constants[part] for part in reader.input if part)
    zero_point = rest[0] if rest else np.zeros(scale.shape, values.dtype)
    return None if attributes(reader).get("block_size", 0) else _Constant(values, scale, zero_point)


@written("ConvTranspose")
def spread_transposed(graph: View, node: NodeProto) -> Sequence[NodeProto] | None:
    """A ConvTranspose of constant weights, dequantised or not, as a Conv and data movement.

    Wants constants folded. Those of computed weights or bias are left as they are.
    """
    layer = _layer(node, graph.shapes)
    constants = [_constant(graph, name) for name in node.input[1:] if name] if layer else []
    known = [found for found in constants if found is not None]
    if layer is None or len(known) < len(constants):
        return None
    w, channels = Writer(graph, node), known[0].values.shape[1] * layer.groups
    names = [node.input[0]]
    for label, constant in zip(("weight", "bias"), known, strict=False):
        zeros = np.zeros(1, constant.values.dtype) if constant.zero_point is None else constant.zero_point.reshape(-1)
        bias = layer.repeated(constant.values.reshape(-1), channels) if label == "bias" else None
        filters = layer.filters(constant.values, layer.repeated(zeros, channels)) if bias is None else bias
        name = w.constant(filters, part=label)
        if constant.scale is not None:
            parameters = []
            for part, numbers in (("scale", constant.scale.reshape(-1)), ("zero_point", zeros)):
                each = numbers.reshape(()) if constant.scale.size == 1 else layer.repeated(numbers, channels)
                parameters.append(graph.constant(f"{name}_{part}", each))
            name = w.add(DEQUANTIZE, name, *parameters, axis=0)
        names.append(name)
    cropped = any(axis.count * axis.stride != axis.result for axis in layer.axes)
    pads = [-axis.first for axis in layer.axes] + [axis.end for axis in layer.axes]
    kernel = [axis.window for axis in layer.axes]
    made = w.add("Conv", *names, label=node.name, kernel_shape=kernel, pads=pads, group=layer.groups)
    if prod(layer.strides) > 1:
        made = _placed(w, layer, channels, made)
    if cropped:
        ends = np.array([axis.result for axis in layer.axes], np.int64)
        parts = [np.zeros_like(ends), ends, np.arange(len(ends), dtype=np.int64) + 2]
        w.add("Slice", made, *(w.constant(part, part="cut") for part in parts))
    return w.finished()


def _placed(w: Writer, layer: _Layer, channels: int, source: str) -> str:
    """Every position of ``source`` in its place between the others."""
    strides, rank = layer.strides, len(layer.axes)
    if rank == 2 and strides[0] == strides[1]:
        return w.add("DepthToSpace", source, blocksize=strides[0], mode="CRD")
    counts = [axis.count for axis in layer.axes]
    places = [count * stride for count, stride in zip(counts, strides, strict=True)]
    order = [0, 1, *(axis for number in range(rank) for axis in (2 + rank + number, 2 + number))]
    apart = w.add("Reshape", source, w.constant([-1, channels, *strides, *counts], np.int64))
    return w.add("Reshape", w.add("Transpose", apart, perm=order), w.constant([-1, channels, *places], np.int64))


class _Writer(Writer):
    def __init__(self, graph: View, node: NodeProto, source: tuple[int, ...], pooled: tuple[int, ...]) -> None:
        super().__init__(graph, node)
        self.source, self.pooled = source, pooled
        options = {**self.options, "auto_pad": self.options.get("auto_pad", b"NOTSET").decode()}
        self.window = window_attributes(options, tuple(options["kernel_shape"]), source[2:], pooled[2:], cuts=True)

    @property
    def regular(self) -> bool:
        """Whether padding only adds to the input."""
        return min(self.window["pads"]) >= 0

    def convolved(self, name: str, weight: float) -> str:
        """The sum of every window times ``weight``."""
        channels, window = self.source[1], self.window
        kernel = window["kernel"]
        weights = self.constant(np.full((channels, 1, *kernel), weight, np.float32))
        options: dict[str, Any] = {
            "kernel_shape": kernel,
            **{key: window[key] for key in ("strides", "dilations", "pads")},
        }
        return self.add("Conv", name, weights, group=channels, **options)

    def shares(self) -> NDArray[np.float32] | None:
        """By which factor the average of each window is more than the sum of its elements over the kernel's size.

        (1, 1, *spatial); made by ONNX Runtime's own operator. None where a window has no element, or it does not run.
        """
        shape, kernel = (1, 1, *self.source[2:]), self.window["kernel"]
        alone = helper.make_node("AveragePool", ["x"], ["y"])
        alone.attribute.extend(self.node.attribute)
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", shape), ("y", None))
        ]
        graph = helper.make_graph([alone], "average", values[:1], values[1:])
        part = helper.make_model(graph, opset_imports=self.graph.opsets, ir_version=self.graph.ir_version)
        try:
            averages = OnnxRuntimeSession(part).run(["y"], {"x": np.ones(shape, np.float32)})["y"]
        except InputError:
            return None
        inside = np.ones((), np.float32)
        for axis, size in enumerate(self.source[2:]):
            inside = np.multiply.outer(inside, self._taps(axis, size))
        if averages.shape[2:] != inside.shape or not inside.all():
            return None
        factors: NDArray[np.float32] = averages * np.float32(prod(kernel)) / inside
        return factors

    def _taps(self, axis: int, size: int) -> NDArray[np.float32]:
        """How many elements of the input each window has along an axis."""
        window = self.window
        firsts = np.arange(self.pooled[2 + axis]) * window["strides"][axis] - window["pads"][axis]
        taps = firsts[:, None] + np.arange(window["kernel"][axis]) * window["dilations"][axis]
        return np.asarray(((taps >= 0) & (taps < size)).sum(axis=1), np.float32)


def _average(w: _Writer) -> list[NodeProto] | None:
    apart = max(w.window["dilations"]) > 1
    rounded = bool(w.options.get("ceil_mode") and w.options.get("count_include_pad"))
    factors = w.shares() if w.regular and (apart or rounded) else None
    if factors is None:
        return None
    convolved = w.convolved(w.node.input[0], 1 / prod(w.window["kernel"]))
    if not np.allclose(factors, 1, rtol=1e-6):
        w.add("Mul", convolved, w.constant(factors))
    return w.finished()


def _norm(w: _Writer) -> list[NodeProto] | None:
    power = int(w.options.get("p", 2))
    if power < 1 or not w.regular:
        return None
    x = w.add("Abs", w.node.input[0])
    total = w.convolved(x if power == 1 else w.add("Pow", x, w.constant(np.float32(power))), 1.0)
    if power > 1:
        w.add("Pow", total, w.constant(np.float32(1 / power)))
    return w.finished()


_WRITERS: dict[str, Callable[[_Writer], list[NodeProto] | None]] = {"AveragePool": _average, "LpPool": _norm}


@written(*_WRITERS)
def convolve_pools(graph: View, node: NodeProto) -> Sequence[NodeProto] | None:
    """Some pools of a float model as convolutions with equal weights.

    AveragePool of elements that lie apart, and that which counts padding and rounds its size up; where not every window
    counts as many elements, a factor for each follows. LpPool: a convolution between powers and roots.
    """
    source, pooled = graph.shapes.get(node.input[0], ()), graph.shapes.get(node.output[0], ())
    rank = len(attributes(node).get("kernel_shape", ()))
    if not rank or 0 in (*source, *pooled) or {len(source), len(pooled)} != {rank + 2}:
        return None
    return _WRITERS[node.op_type](_Writer(graph, node, source, pooled))
