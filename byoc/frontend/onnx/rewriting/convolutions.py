"""Rewrite ConvTranspose, and pools without an instruction, as Conv and data movement.

ConvTranspose: output q·s + r of stride s reads the inputs q + e for which r + pad - e·s is a tap of
the kernel. For each of the s values of r this is an ordinary convolution of the same inputs. One
Conv computes all of them as separate channels, which are then interleaved. No multiplication is
wasted if the kernel is a multiple of the stride; otherwise some new weights are 0.

ONNX Runtime computes ConvTranspose in float even between quantised values, and such a Conv in
integers. 1 of 947,468 quantised results of 700 random layers with up to three dimensions differed,
a sum near a tie. A pool becomes a convolution of each channel by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.operators.onnx_view import DEQUANTIZE
from byoc.operators.window import window_attributes
from byoc.runtimes.protobuf import attributes
from byoc.runtimes.session import OnnxRuntimeSession
from isa.errors import InputError

Array = NDArray[Any]
MOVED_CHANNELS = 16
"""Number of adjacent channels that move together, a multiple of the default atom."""


@dataclass(frozen=True)
class _Axis:
    """Sizes, stride, dilation and first padding of a ConvTranspose along one dimension."""

    size: int
    result: int
    kernel: int
    stride: int
    dilation: int
    begin: int

    def taps(self) -> Iterator[tuple[int, int, int]]:
        """Yield (output phase, kernel tap, input offset) of each product of a ConvTranspose."""
        for position, tap in product(range(self.stride), range(self.kernel)):
            behind = position + self.begin - tap * self.dilation
            if behind % self.stride == 0:
                yield position, tap, behind // self.stride

    @property
    def first(self) -> int:
        """Smallest input offset, at most 0, of the Conv that replaces a ConvTranspose."""
        return min(0, *(behind for _, _, behind in self.taps()))

    @property
    def window(self) -> int:
        """Kernel size, along one dimension, of the Conv that replaces a ConvTranspose."""
        return max(0, *(behind for _, _, behind in self.taps())) - self.first + 1

    @property
    def end(self) -> int:
        """Padding at the end of the input, so that every output position has a window."""
        return max(0, -(-self.result // self.stride) + self.window - 1 - self.size + self.first)

    @property
    def count(self) -> int:
        """Output size, along one dimension, of the Conv that replaces a ConvTranspose."""
        return self.size - self.first + self.end - self.window + 1


@dataclass(frozen=True)
class _TransposedConvolution:
    """Groups, output channels and spatial dimensions of a ConvTranspose."""

    groups: int
    channels: int
    axes: tuple[_Axis, ...]

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(axis.stride for axis in self.axes)

    @property
    def by_position(self) -> bool:
        """True if the Conv's channels of one output phase are adjacent.

        Otherwise the phases of one output channel are adjacent. Adjacent channels that fill whole
        atoms of banked memory move together.
        """
        return self.groups == 1 and self.channels % MOVED_CHANNELS == 0

    def filters(self, weights: Array, fill: Array) -> Array:
        """Rearrange the weights of a ConvTranspose as filters of an equivalent Conv.

        Weights (IC, OC/G, kernel...) become filters (OC · strides, IC/G, window...).
        Taps without a weight get ``fill``, one number or one per new output channel.
        """
        inputs = weights.shape[0] // self.groups
        outputs = weights.shape[1]
        windows = tuple(axis.window for axis in self.axes)
        grouped = weights.reshape(self.groups, inputs, outputs, *weights.shape[2:]).swapaxes(1, 2)
        channels = (*self.strides, outputs) if self.by_position else (outputs, *self.strides)
        made = np.empty((self.groups, *channels, inputs, *windows), weights.dtype)
        made[...] = np.resize(fill, (self.groups, *channels, *(1,) * (1 + len(windows))))
        for taps in product(*(tuple(axis.taps()) for axis in self.axes)):
            places = tuple(position for position, _, _ in taps)
            reads = tuple(
                behind - axis.first for (_, _, behind), axis in zip(taps, self.axes, strict=True)
            )
            source: tuple[Any, ...] = (slice(None),) * 3 + tuple(tap for _, tap, _ in taps)
            outer = (*places, slice(None)) if self.by_position else (slice(None), *places)
            target: tuple[Any, ...] = (slice(None), *outer, slice(None), *reads)
            made[target] = grouped[source]
        return made.reshape(-1, inputs, *windows)

    def repeat_channels(self, values: Array) -> Array:
        """Repeat per-channel constants of a ConvTranspose for all channels of its Conv.

        The values are one number, or one per channel of a group or of all groups.
        """
        every = np.resize(values, self.channels)
        return (
            np.tile(every, prod(self.strides))
            if self.by_position
            else np.repeat(every, prod(self.strides))
        )


def _layer(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> _TransposedConvolution | None:
    """Read the parameters of a ConvTranspose; None if shapes are unknown or do not fit."""
    options = attributes(node)
    source, weights, result = (shapes.get(name, ()) for name in (*node.input[:2], node.output[0]))
    rank = len(source) - 2
    groups = int(options.get("group", 1))
    if (
        rank < 1
        or len(weights) != len(source)
        or len(result) != len(source)
        or 0 in (*source, *weights, *result)
    ):
        return None
    if (
        groups < 1
        or source[1] != weights[0]
        or weights[0] % groups
        or result[1] != weights[1] * groups
    ):
        return None
    windows = {
        name: [int(n) for n in options.get(name, [1] * rank)] for name in ("strides", "dilations")
    }
    pads = [int(n) for n in options.get("pads", [0] * (2 * rank))]
    if {len(windows["strides"]), len(windows["dilations"]), len(pads) // 2} != {rank} or min(
        *windows["strides"], *windows["dilations"]
    ) < 1:
        return None
    extra = [int(n) for n in options.get("output_padding", [0] * rank)]
    automatic = options.get("auto_pad", b"NOTSET")
    axes = []
    for axis in range(rank):
        size = source[2 + axis]
        kernel = weights[2 + axis]
        stride = windows["strides"][axis]
        dilation = windows["dilations"][axis]
        full = (
            stride * (size - 1)
            + (extra[axis] if len(extra) == rank else 0)
            + (kernel - 1) * dilation
            + 1
        )
        begin = pads[axis]
        if automatic in (b"SAME_UPPER", b"SAME_LOWER") or options.get("output_shape"):
            # Pad half of the excess, the smaller half first with SAME_UPPER (onnxruntime,
            # conv_transpose_attributes.h).
            total = max(full - result[2 + axis], 0)
            begin = total // 2 if automatic == b"SAME_UPPER" else total - total // 2
        axes.append(_Axis(size, result[2 + axis], kernel, stride, dilation, begin))
    return (
        None
        if min(axis.begin for axis in axes) < 0
        else _TransposedConvolution(groups, result[1], tuple(axes))
    )


@dataclass(frozen=True, eq=False)
class _Constant:
    """Constant tensor, with a scale and a zero point if it is quantised."""

    values: Array
    scale: Array | None = None
    zero_point: Array | None = None


def _constant(graph: GraphView, name: str) -> _Constant | None:
    """Return a constant tensor, or the quantised constant it is dequantised from.

    Returns None if the tensor is computed.
    """
    if name in graph.constants:
        return _Constant(graph.constants[name])
    reader = graph.maker(name, DEQUANTIZE)
    if reader is None or any(part not in graph.constants for part in reader.input if part):
        return None
    values, scale, *rest = (graph.constants[part] for part in reader.input if part)
    zero_point = rest[0] if rest else np.zeros(scale.shape, values.dtype)
    return None if attributes(reader).get("block_size", 0) else _Constant(values, scale, zero_point)


@write_operators("ConvTranspose")
def spread_transposed(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite a ConvTranspose of constant weights, dequantised or not, as a Conv and data movement.

    Needs folded constants. Layers with computed weights or bias stay unchanged.
    """
    layer = _layer(node, graph.shapes)
    constants = [_constant(graph, name) for name in node.input[1:] if name] if layer else []
    known = [found for found in constants if found is not None]
    if layer is None or len(known) < len(constants):
        return None
    w = NodeWriter(graph, node)
    names = [node.input[0]]
    for label, constant in zip(("weight", "bias"), known, strict=False):
        zeros = (
            np.zeros(1, constant.values.dtype)
            if constant.zero_point is None
            else constant.zero_point.reshape(-1)
        )
        bias = layer.repeat_channels(constant.values.reshape(-1)) if label == "bias" else None
        filters = (
            layer.filters(constant.values, layer.repeat_channels(zeros)) if bias is None else bias
        )
        name = w.constant(filters, part=label)
        if constant.scale is not None:
            parameters = []
            for part, numbers in (("scale", constant.scale.reshape(-1)), ("zero_point", zeros)):
                each = (
                    numbers.reshape(())
                    if constant.scale.size == 1
                    else layer.repeat_channels(numbers)
                )
                parameters.append(graph.constant(f"{name}_{part}", each))
            name = w.add(DEQUANTIZE, name, *parameters, axis=0)
        names.append(name)
    cropped = any(axis.count * axis.stride != axis.result for axis in layer.axes)
    pads = [-axis.first for axis in layer.axes] + [axis.end for axis in layer.axes]
    kernel = [axis.window for axis in layer.axes]
    made = w.add(
        "Conv", *names, label=node.name, kernel_shape=kernel, pads=pads, group=layer.groups
    )
    if prod(layer.strides) > 1:
        made = _interleave_positions(w, layer, made)
    if cropped:
        ends = np.array([axis.result for axis in layer.axes], np.int64)
        parts = [np.zeros_like(ends), ends, np.arange(len(ends), dtype=np.int64) + 2]
        w.add("Slice", made, *(w.constant(part, part="cut") for part in parts))
    return w.finish()


def _interleave_positions(w: NodeWriter, layer: _TransposedConvolution, source: str) -> str:
    """Move the output phases of a ConvTranspose from channels to spatial dimensions."""
    strides = layer.strides
    rank = len(layer.axes)
    channels = layer.channels
    if rank == 2 and strides[0] == strides[1]:
        mode = "DCR" if layer.by_position else "CRD"
        return w.add("DepthToSpace", source, blocksize=strides[0], mode=mode)
    counts = [axis.count for axis in layer.axes]
    places = [count * stride for count, stride in zip(counts, strides, strict=True)]
    outer, channel, first = (
        ([*strides, channels], 1 + rank, 1) if layer.by_position else ([channels, *strides], 1, 2)
    )
    order = [
        0,
        channel,
        *(axis for number in range(rank) for axis in (2 + rank + number, first + number)),
    ]
    apart = w.add("Reshape", source, w.constant([-1, *outer, *counts], np.int64))
    return w.add(
        "Reshape",
        w.add("Transpose", apart, perm=order),
        w.constant([-1, channels, *places], np.int64),
    )


class _ConvolutionWriter(NodeWriter):
    def __init__(
        self, graph: GraphView, node: NodeProto, source: tuple[int, ...], pooled: tuple[int, ...]
    ) -> None:
        super().__init__(graph, node)
        self.source = source
        self.pooled = pooled
        options = {**self.options, "auto_pad": self.options.get("auto_pad", b"NOTSET").decode()}
        self.window = window_attributes(
            options, tuple(options["kernel_shape"]), source[2:], pooled[2:], cuts=True
        )

    @property
    def regular(self) -> bool:
        """True if no padding of the pool is negative."""
        return min(self.window["pads"]) >= 0

    def convolve(self, name: str, weight: float) -> str:
        """Add a Conv that sums every window of a pool and multiplies the sum by ``weight``."""
        channels = self.source[1]
        window = self.window
        kernel = window["kernel"]
        weights = self.constant(np.full((channels, 1, *kernel), weight, np.float32))
        options: dict[str, Any] = {
            "kernel_shape": kernel,
            **{key: window[key] for key in ("strides", "dilations", "pads")},
        }
        return self.add("Conv", name, weights, group=channels, **options)

    def shares(self) -> NDArray[np.float32] | None:
        """Return factors that correct the averages of an AveragePool's windows at the borders.

        A factor is a window's average divided by (its sum / the kernel's size).
        The shape is ``(1, 1, *spatial)``, computed by ONNX Runtime's own operator. Returns None if
        a window is empty or the operator does not run.
        """
        shape = (1, 1, *self.source[2:])
        kernel = self.window["kernel"]
        alone = helper.make_node("AveragePool", ["x"], ["y"])
        alone.attribute.extend(self.node.attribute)
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
            for name, dims in (("x", shape), ("y", None))
        ]
        graph = helper.make_graph([alone], "average", values[:1], values[1:])
        part = helper.make_model(
            graph, opset_imports=self.graph.opsets, ir_version=self.graph.ir_version
        )
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
        """Return how many input elements, not padding, each window covers along an axis."""
        window = self.window
        firsts = np.arange(self.pooled[2 + axis]) * window["strides"][axis] - window["pads"][axis]
        taps = firsts[:, None] + np.arange(window["kernel"][axis]) * window["dilations"][axis]
        return np.asarray(((taps >= 0) & (taps < size)).sum(axis=1), np.float32)


def _average(w: _ConvolutionWriter) -> list[NodeProto] | None:
    apart = max(w.window["dilations"]) > 1
    rounded = bool(w.options.get("ceil_mode") and w.options.get("count_include_pad"))
    factors = w.shares() if w.regular and (apart or rounded) else None
    if factors is None:
        return None
    convolved = w.convolve(w.node.input[0], 1 / prod(w.window["kernel"]))
    if not np.allclose(factors, 1, rtol=1e-6):
        w.add("Mul", convolved, w.constant(factors))
    return w.finish()


def _norm(w: _ConvolutionWriter) -> list[NodeProto] | None:
    power = int(w.options.get("p", 2))
    if power < 1 or not w.regular:
        return None
    x = w.add("Abs", w.node.input[0])
    total = w.convolve(x if power == 1 else w.add("Pow", x, w.constant(np.float32(power))), 1.0)
    if power > 1:
        w.add("Pow", total, w.constant(np.float32(1 / power)))
    return w.finish()


_WRITERS: dict[str, Callable[[_ConvolutionWriter], list[NodeProto] | None]] = {
    "AveragePool": _average,
    "LpPool": _norm,
}


@write_operators(*_WRITERS)
def convolve_pools(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite some pools of a float model as convolutions with equal weights.

    These are AveragePool with dilations, and AveragePool that counts padding and rounds its size
    up. If windows count different numbers of elements, a Mul by a factor for each follows. LpPool
    becomes a convolution between powers and roots.
    """
    source = graph.shapes.get(node.input[0], ())
    pooled = graph.shapes.get(node.output[0], ())
    rank = len(attributes(node).get("kernel_shape", ()))
    if not rank or 0 in (*source, *pooled) or {len(source), len(pooled)} != {rank + 2}:
        return None
    return _WRITERS[node.op_type](_ConvolutionWriter(graph, node, source, pooled))
