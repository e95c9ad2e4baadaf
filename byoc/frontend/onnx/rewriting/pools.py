"""Pools that no instruction and no integer operator computes, as convolutions of each channel by itself."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.edit import (
    Writer,
    attributes,
    copy_model,
    names_of,
    rewrite_nodes,
    shapes_of,
    standard,
)
from byoc.operators.window import window_attributes
from byoc.session import OnnxRuntimeSession
from isa.errors import InputError


def convolve_pools(model: ModelProto) -> ModelProto:
    """A copy of a float model in which some pools are convolutions with equal weights. Wants shapes inferred.

    AveragePool of elements that lie apart, and that which counts padding and rounds its size up; where not every window
    counts as many elements, a factor for each follows. LpPool: a convolution between powers and roots.
    """
    result = copy_model(model)
    graph, shapes, taken = result.graph, shapes_of(result.graph), names_of(result.graph)

    def written(node: NodeProto) -> list[NodeProto] | None:
        make = _WRITERS.get(node.op_type) if standard(node) else None
        if make is None:
            return None
        source, pooled = shapes.get(node.input[0], ()), shapes.get(node.output[0], ())
        rank = len(attributes(node).get("kernel_shape", ()))
        if not rank or 0 in (*source, *pooled) or {len(source), len(pooled)} != {rank + 2}:
            return None
        return make(_Writer(graph, model, node, source, pooled, taken))

    rewrite_nodes(graph, written)
    return result


class _Writer(Writer):
    """A pool, and the nodes that stand for it."""

    def __init__(
        self,
        graph: GraphProto,
        model: ModelProto,
        node: NodeProto,
        source: tuple[int, ...],
        pooled: tuple[int, ...],
        taken: set[str],
    ) -> None:
        super().__init__(graph, node, taken)
        self.source, self.pooled, self._model = source, pooled, model
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

    def finished(self) -> list[NodeProto]:
        """The nodes, of which the last makes the result."""
        self.nodes[-1].output[0] = self.node.output[0]
        return self.nodes

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
        part = helper.make_model(graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version)
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
