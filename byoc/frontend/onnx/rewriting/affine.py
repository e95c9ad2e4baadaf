"""Folds per-channel scales and shifts (BatchNormalization, Mul, Add, Sub, Div by constants) into products.

A chain of them behind a Conv, a ConvTranspose or a Gemm disappears into its weights and bias. A chain on planes with
nothing to fold into, as in DenseNet's pre-activation blocks, becomes one 1×1 depthwise Conv, which the accelerator can
run quantised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    attributes,
    copy_model,
    is_float32,
    remove_dead_code,
    set_nodes,
    shapes_of,
    use_counts,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """``y = x * scale + shift`` with one factor and one summand a channel, float64 (channels,)."""

    source: str
    scale: Array
    shift: Array
    per_channel: bool

    def after(self, first: Affine) -> Affine:
        """The composition: ``first``, then this."""
        return Affine(
            first.source,
            first.scale * self.scale,
            first.shift * self.scale + self.shift,
            first.per_channel or self.per_channel,
        )


def fold_affine(model: ModelProto) -> ModelProto:
    """A copy with every chain of per-channel affine nodes on float32 values folded or made a depthwise Conv.

    ``w' = w * scale`` for each output channel and ``b' = b * scale + shift``, in float64, rounded once to float32; for
    BatchNormalization ``scale = gamma / sqrt(variance + epsilon)`` and ``shift = beta - mean * scale``. A chain is
    folded into the product before it only if nobody else reads what lies between. Chains of scalar factors and
    summands, and chains on rows (N, C), that do not follow a product stay as they are. Wants shapes inferred and
    constants folded.
    """
    result = copy_model(model)
    rewriter = _Rewriter(result.graph)
    nodes = [new for node in rewriter.graph.node if (new := rewriter.rewrite(node)) is not None]
    set_nodes(result.graph, nodes)
    remove_dead_code(result.graph)
    return result


class _Rewriter:
    """One walk over a graph in topological order."""

    def __init__(self, graph: GraphProto) -> None:
        self.graph = graph
        self.shapes = shapes_of(graph)
        self.arrays = ConstantArrays(graph, is_float32)
        self.uses = use_counts(graph)
        self.readers = {name: node for node in graph.node for name in node.input}
        self.producers = {output: node for node in graph.node for output in node.output}
        self.absorbed: set[str] = set()

    def rewrite(self, node: NodeProto) -> NodeProto | None:
        """The node to put in this one's place; None for an affine node that has been absorbed by an earlier node."""
        if node.output and node.output[0] in self.absorbed:
            return None
        axis = self._columns(node)
        if axis is not None:
            chain = self._chain(self._next_affine(node.output[0]))
            return self._fold(node, axis, *chain) if chain else node
        chain = self._chain(self._affine(node))
        if chain is None or not chain[0].per_channel or len(self.shapes[chain[0].source]) < 3:
            return node
        self.absorbed.update(name for name in chain[1] if name != node.output[0])
        return self._depthwise(node, *chain)

    def _affine(self, node: NodeProto | None) -> tuple[Affine, str] | None:
        """What the node computes if it is affine by constants on a value of planes, with its output's name."""
        if node is None or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "BatchNormalization":
            affine = self._batch_normalization(node)
        elif node.op_type in ("Mul", "Add", "Sub", "Div"):
            affine = self._arithmetic(node)
        else:
            affine = None
        return (affine, node.output[0]) if affine else None

    def _batch_normalization(self, node: NodeProto) -> Affine | None:
        options = attributes(node)
        parameters = [self.arrays.get(name) for name in node.input[1:5]]
        outputs = [name for name in node.output if name]
        if options.get("training_mode", 0) or len(outputs) != 1 or self._channels(node.input[0]) is None:
            return None
        if any(parameter is None for parameter in parameters):
            return None
        gamma, beta, mean, variance = (np.asarray(parameter, np.float64) for parameter in parameters)
        scale = gamma / np.sqrt(variance + options.get("epsilon", 1e-5))
        return Affine(node.input[0], scale, beta - mean * scale, per_channel=True)

    def _arithmetic(self, node: NodeProto) -> Affine | None:
        source, other = node.input
        if source in self.arrays and node.op_type in ("Mul", "Add"):
            source, other = other, source
        channels = self._channels(source)
        if channels is None or other not in self.arrays or self.shapes.get(node.output[0]) != self.shapes[source]:
            return None
        array = np.asarray(self.arrays[other], np.float64)
        planes = (1,) * (len(self.shapes[source]) - 2)
        shape = (1,) * (2 + len(planes) - array.ndim) + array.shape
        if shape not in {(1, channels, *planes), (1, 1, *planes)}:
            return None
        values = np.broadcast_to(array.reshape(-1), (channels,))
        one, zero = np.ones(channels), np.zeros(channels)
        if node.op_type == "Div" and not values.all():
            return None
        scale, shift = {
            "Mul": (values, zero),
            "Div": (1 / np.where(values, values, 1), zero),
            "Add": (one, values),
            "Sub": (one, -values),
        }[node.op_type]
        return Affine(source, scale, shift, per_channel=array.size == channels)

    def _channels(self, name: str) -> int | None:
        shape = self.shapes.get(name, ())
        return shape[1] if len(shape) > 1 and name not in self.arrays else None

    def _next_affine(self, name: str) -> tuple[Affine, str] | None:
        """The affine node that alone reads ``name``."""
        if self.uses[name] != 1 or name not in self.readers:
            return None
        return self._affine(self.readers[name])

    def _chain(self, first: tuple[Affine, str] | None) -> tuple[Affine, list[str]] | None:
        """The longest run of affine nodes from ``first`` on, composed, with the names of all their outputs."""
        if first is None:
            return None
        affine, output = first
        outputs = [output]
        while (following := self._next_affine(outputs[-1])) is not None:
            affine = following[0].after(affine)
            outputs.append(following[1])
        return affine, outputs

    def _columns(self, node: NodeProto) -> int | None:
        """The axis of the weights that counts the channels of the result; None for what is no plain product."""
        if node.domain not in ("", "ai.onnx") or any(name not in self.arrays for name in node.input[1:] if name):
            return None
        options = attributes(node)
        if node.op_type == "Conv":
            return 0 if len(self.shapes.get(node.output[0], ())) > 2 else None
        if node.op_type == "ConvTranspose":
            return 1 if options.get("group", 1) == 1 else None
        if node.op_type == "Gemm":
            biases = self.shapes.get(node.input[2], ()) if len(node.input) == 3 and node.input[2] else (0,)
            plain = options.get("alpha", 1.0) == options.get("beta", 1.0) == 1.0
            return (0 if options.get("transB", 0) else 1) if plain and len(biases) == 1 else None
        return None

    def _fold(self, node: NodeProto, axis: int, affine: Affine, outputs: list[str]) -> NodeProto:
        weights = np.asarray(self.arrays[node.input[1]], np.float64)
        biased = len(node.input) == 3 and node.input[2]
        bias = np.asarray(self.arrays[node.input[2]], np.float64) if biased else np.zeros(weights.shape[axis])
        shape = [1] * weights.ndim
        shape[axis] = -1
        self.absorbed.update(outputs)
        scaled, moved = weights * affine.scale.reshape(shape), bias * affine.scale + affine.shift
        return self._product(node, node.input[0], outputs[-1], scaled, moved)

    def _depthwise(self, node: NodeProto, affine: Affine, outputs: list[str]) -> NodeProto:
        channels = len(affine.scale)
        kernel = [1] * (len(self.shapes[affine.source]) - 2)
        plain = helper.make_node("Conv", [""], [""], node.name or outputs[0], kernel_shape=kernel, group=channels)
        scale = affine.scale.reshape(-1, 1, *kernel)
        return self._product(plain, affine.source, outputs[-1], scale, affine.shift)

    def _product(self, like: NodeProto, source: str, output: str, weights: Array, bias: Array) -> NodeProto:
        """A node with ``like``'s name and attributes and new constants."""
        node = NodeProto()
        node.CopyFrom(like)
        del node.input[:], node.output[:]
        node.output.append(output)
        node.input.append(source)
        for suffix, values in (("folded_weight", weights), ("folded_bias", bias)):
            array: NDArray[Any] = values.astype(np.float32)
            node.input.append(add_constant(self.graph, f"{output}_{suffix}", array))
        return node
