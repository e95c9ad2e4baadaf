"""Rewrite rules for linear operators of float models: merge scales, shifts and products.

The rules recompute constants in float64 and round once to float32. This changes rounding, so they
apply only to float models before quantisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from byoc.frontend.onnx.rewriting.law import GraphView, Law, make_pass
from byoc.operators.registry import load_installed_families
from byoc.operators.table import AFFINE
from byoc.runtimes.protobuf import attributes, copy_node, set_attributes, standard

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ChannelAffine:
    """``y = x * scale + shift`` with a factor and a summand per channel, float64 (channels,)."""

    source: str
    scale: Array
    shift: Array
    per_channel: bool

    def compose_after(self, first: ChannelAffine) -> ChannelAffine:
        """Return the affine function that applies ``first`` and then this function."""
        return ChannelAffine(
            first.source,
            first.scale * self.scale,
            first.shift * self.scale + self.shift,
            first.per_channel or self.per_channel,
        )


# Affine nodes.


def _affine(graph: GraphView, node: NodeProto | None) -> ChannelAffine | None:
    if node is None or not standard(node):
        return None
    if node.op_type == "BatchNormalization":
        return _batch_normalization(graph, node)
    return _arithmetic(graph, node) if node.op_type in AFFINE else None


def _batch_normalization(graph: GraphView, node: NodeProto) -> ChannelAffine | None:
    """Return ``scale = gamma / sqrt(variance + epsilon)`` and ``shift = beta - mean * scale``."""
    options = attributes(node)
    parameters = [graph.floats.get(name) for name in node.input[1:5]]
    known = [np.asarray(parameter, np.float64) for parameter in parameters if parameter is not None]
    outputs = [name for name in node.output if name]
    if (
        options.get("training_mode", 0)
        or len(outputs) != 1
        or len(known) < 4
        or _channels(graph, node.input[0]) is None
    ):
        return None
    gamma, beta, mean, variance = known
    scale = gamma / np.sqrt(variance + options.get("epsilon", 1e-5))
    return ChannelAffine(node.input[0], scale, beta - mean * scale, per_channel=True)


def _arithmetic(graph: GraphView, node: NodeProto) -> ChannelAffine | None:
    source, other = node.input
    if source in graph.floats and node.op_type in ("Mul", "Add"):
        source, other = other, source
    channels = _channels(graph, source)
    if (
        channels is None
        or other not in graph.floats
        or graph.shapes.get(node.output[0]) != graph.shapes[source]
    ):
        return None
    if prod(graph.shapes[other]) not in (1, channels):
        return None
    array = np.asarray(graph.floats[other], np.float64)
    planes = (1,) * (len(graph.shapes[source]) - 2)
    shape = (1,) * (2 + len(planes) - array.ndim) + array.shape
    if shape not in {(1, channels, *planes), (1, 1, *planes)}:
        return None
    values = np.broadcast_to(array.reshape(-1), (channels,))
    one = np.ones(channels)
    zero = np.zeros(channels)
    if node.op_type == "Div" and not values.all():
        return None
    scale, shift = {
        "Mul": (values, zero),
        "Div": (1 / np.where(values, values, 1), zero),
        "Add": (one, values),
        "Sub": (one, -values),
    }[node.op_type]
    return ChannelAffine(source, scale, shift, per_channel=array.size == channels)


def _channels(graph: GraphView, name: str) -> int | None:
    shape = graph.shapes.get(name, ())
    return shape[1] if len(shape) > 1 and name not in graph.constants else None


def _chain(graph: GraphView, node: NodeProto) -> ChannelAffine | None:
    """Return the composition of the longest chain of affine nodes that ends with ``node``.

    Intermediate tensors must have no other consumers.
    """
    found = _affine(graph, node)
    while found is not None:
        reader = node
        maker = graph.maker(found.source)
        first = (
            _affine(graph, maker)
            if maker is not None and graph.alone(found.source, reader)
            else None
        )
        if first is None or maker is None:
            return found
        found = found.compose_after(first)
        node = maker
    return None


def _is_continued(graph: GraphView, node: NodeProto) -> bool:
    """Return True if the affine chain continues after ``node``."""
    reader = graph.only_reader(node.output[0])
    return (
        reader is not None
        and not graph.is_shown(node.output[0])
        and _affine(graph, reader) is not None
    )


# Products by constants.


@dataclass(frozen=True)
class _Product:
    """Conv, ConvTranspose or Gemm with constant weights and bias.

    Axis ``rows`` of the weights has the result's channels.
    """

    node: NodeProto
    options: Mapping[str, Any]
    rows: int
    shape: tuple[int, ...]
    numbers: Mapping[str, NDArray[Any]]

    @property
    def weights(self) -> Array:
        return np.asarray(self.numbers[self.node.input[1]], np.float64)

    @property
    def biases(self) -> Array:
        """Biases of a product, one per output channel; zeros if it has none."""
        name = (*self.node.input, "", "")[2]
        return (
            np.asarray(self.numbers[name], np.float64) if name else np.zeros(self.shape[self.rows])
        )


def _product(graph: GraphView, node: NodeProto | None) -> _Product | None:
    """Read a Conv, ConvTranspose or Gemm with constant weights; None for other nodes."""
    if node is None or not standard(node) or node.op_type not in ("Conv", "ConvTranspose", "Gemm"):
        return None
    names = [name for name in node.input[1:] if name]
    options = attributes(node)
    rank = len(graph.shapes.get(node.output[0], ()))
    if any(name not in graph.floats for name in names) or rank < (
        2 if node.op_type == "Gemm" else 3
    ):
        return None
    rows = 0
    if node.op_type == "ConvTranspose":
        rows = 1
        if options.get("group", 1) != 1:
            return None
    if node.op_type == "Gemm":
        rows = 0 if options.get("transB", 0) else 1
        plain = options.get("alpha", 1.0) == options.get("beta", 1.0) == 1.0
        if not plain or any(len(graph.shapes[name]) != 1 for name in names[1:]):
            return None
    return _Product(node, options, rows, graph.shapes[names[0]], graph.floats)


def _make_product(
    graph: GraphView,
    like: NodeProto,
    source: str,
    output: str,
    weights: Array,
    biases: Array,
    **options: Any,
) -> NodeProto:
    """Return a Conv or Gemm with the attributes of ``like``, but other constants."""
    node = copy_node(like)
    names = [
        graph.constant(f"{output}_{suffix}", values.astype(np.float32))
        for suffix, values in (("folded_weight", weights), ("folded_bias", biases))
    ]
    node.input[:] = [source, *names]
    node.output[:] = [output]
    set_attributes(node, **options)
    return node


def _reshape_along(axis: int, rank: int) -> tuple[int, ...]:
    return (*(1,) * axis, -1, *(1,) * (rank - axis - 1))


def _has_padding(options: Mapping[str, Any]) -> bool:
    """Return True if a Conv pads its operand."""
    return any(options.get("pads", ())) or options.get("auto_pad", b"NOTSET") not in (
        b"NOTSET",
        b"VALID",
    )


# Rewrite rules.


class ScaleBehindProduct(Law):
    """`s · (W x + b) + t` = `(s W) x + (s b + t)`: fold scales and shifts into the product before.

    The left side is a chain of scales and shifts by constants (Mul, Add, Sub, Div,
    BatchNormalization), one per channel or one for all, after a Conv, ConvTranspose or Gemm by
    constants. Intermediate tensors must have no other consumers.
    """

    name = "scale-behind-product"
    roots = AFFINE
    measure = "operators"
    exact = False

    def match(
        self, graph: GraphView, node: NodeProto
    ) -> tuple[_Product, ChannelAffine] | str | None:
        """Return a product and the affine chain that follows it and ends with ``node``."""
        chain = None if _is_continued(graph, node) else _chain(graph, node)
        product = None if chain is None else _product(graph, graph.maker(chain.source))
        if chain is None or product is None:
            return None
        shared = graph.is_shown(chain.source) or graph.only_reader(chain.source) is None
        return "others read the product" if shared else (product, chain)

    def apply(
        self, graph: GraphView, node: NodeProto, found: tuple[_Product, ChannelAffine]
    ) -> Sequence[NodeProto]:
        """Return the product with the scales and shifts folded into its weights and bias."""
        product, chain = found
        weights = product.weights * chain.scale.reshape(
            _reshape_along(product.rows, len(product.shape))
        )
        biases = product.biases * chain.scale + chain.shift
        return [
            _make_product(
                graph, product.node, product.node.input[0], node.output[0], weights, biases
            )
        ]


class ScaleBeforeProduct(Law):
    """`W (s x + t) + b` = `(W s) x + (W t + b)`: fold scales and shifts into the next product.

    The left side is a chain of scales and shifts by constants before a Conv or Gemm by constants.
    Intermediate tensors must have no other consumers, and a shift cannot pass padding. Pays unless
    `x` is the result of an element-wise operator: there the chain becomes part of a table, which is
    free and rounds once.
    """

    name = "scale-before-product"
    roots = frozenset({"Conv", "Gemm"})
    measure = "operators"
    exact = False

    def match(
        self, graph: GraphView, node: NodeProto
    ) -> tuple[_Product, ChannelAffine] | str | None:
        """Return a product and the chain of affine nodes that computes its operand."""
        maker = graph.maker(node.input[0])
        product = None if _affine(graph, maker) is None else _product(graph, node)
        chain = None if product is None or maker is None else _chain(graph, maker)
        if product is None or chain is None or product.options.get("transA", 0):
            return None
        if not graph.alone(node.input[0], node):
            return "others read what is scaled"
        if chain.shift.any() and _has_padding(product.options):
            return "a shift does not go through padding"
        if graph.maker(chain.source, *load_installed_families().closes.elementwise) is not None:
            return "a table scales what is computed element by element"
        return product, chain

    def apply(
        self, graph: GraphView, node: NodeProto, found: tuple[_Product, ChannelAffine]
    ) -> Sequence[NodeProto]:
        """Return the product with the scales and shifts folded into its weights and bias."""
        product, chain = found
        weights = product.weights
        groups = product.options.get("group", 1)
        if node.op_type == "Gemm":
            columns = _reshape_along(1 - product.rows, 2)
            shifts = (weights * chain.shift.reshape(columns)).sum(1 - product.rows)
            scaled = weights * chain.scale.reshape(columns)
        else:
            apart = weights.reshape(groups, -1, *weights.shape[1:])
            scale, shift = (
                numbers.reshape(groups, 1, -1, *(1,) * (weights.ndim - 2))
                for numbers in (chain.scale, chain.shift)
            )
            shifts = (apart * shift).sum(tuple(range(2, apart.ndim))).reshape(-1)
            scaled = (apart * scale).reshape(weights.shape)
        return [
            _make_product(
                graph, node, chain.source, node.output[0], scaled, product.biases + shifts
            )
        ]


class ScaleAsDepthwise(Law):
    """`s x + t` = a depthwise 1×1 Conv: make one operator of scales and shifts of planes.

    Holds for operands (N, C, D₁ ...) if `s` or `t` has one number per channel and no product can
    absorb the chain.
    """

    name = "scale-as-depthwise"
    roots = AFFINE
    measure = "operators other than products"
    exact = False

    def match(self, graph: GraphView, node: NodeProto) -> ChannelAffine | None:
        """Return the longest chain of affine nodes that ends with ``node``."""
        chain = None if _is_continued(graph, node) else _chain(graph, node)
        fits = chain is not None and chain.per_channel and len(graph.shapes[chain.source]) >= 3
        later = (
            ScaleBeforeProduct().match(graph, reader) for reader in graph.readers(node.output[0])
        )
        return None if not fits or any(isinstance(taken, tuple) for taken in later) else chain

    def apply(self, graph: GraphView, node: NodeProto, found: ChannelAffine) -> Sequence[NodeProto]:
        """Return a depthwise 1×1 Conv that replaces a chain of scales and shifts."""
        kernel = [1] * (len(graph.shapes[found.source]) - 2)
        scale = found.scale.reshape(-1, 1, *kernel)
        plain = helper.make_node(
            "Conv", [""], [""], node.name or node.output[0], kernel_shape=kernel, group=len(scale)
        )
        return [_make_product(graph, plain, found.source, node.output[0], scale, found.shift)]


class MergeProducts(Law):
    """`W₂ (W₁ x + b₁) + b₂` = `(W₂ W₁) x + (W₂ b₁ + b₂)`: merge two consecutive products.

    Both are Gemm, or both are Conv with one group and one of them is 1×1, without strides if it is
    the first. The intermediate tensor must have no other consumers, and `b₁` cannot pass padding.
    Pays if the merged product takes fewer multiplications than both, which depends on their ranks.
    """

    name = "merge-products"
    roots = frozenset({"Conv", "Gemm"})
    measure = "multiplications"
    exact = False

    def match(self, graph: GraphView, node: NodeProto) -> tuple[_Product, _Product] | str | None:
        """Return the two consecutive products that can be merged, or why they cannot."""
        maker = graph.maker(node.input[0], node.op_type)
        first = _product(graph, maker)
        second = _product(graph, node)
        if (
            first is None
            or second is None
            or {p.options.get("group", 1) for p in (first, second)} != {1}
        ):
            return None
        if any(p.options.get("transA", 0) for p in (first, second)):
            return None
        if not graph.alone(node.input[0], node):
            return "others read the first product"
        if node.op_type == "Conv" and not _is_pointwise(second):
            if not _is_pointwise(first) or max(first.options.get("strides", [1])) > 1:
                return "neither of both is 1×1"
            if first.biases.any() and _has_padding(second.options):
                return "the first one's bias does not go through padding"
        spent = sum(_multiplications(graph, p.node, prod(p.shape)) for p in (first, second))
        channels = prod(
            p.shape[p.rows] if p is second else p.shape[1 - p.rows] for p in (first, second)
        )
        merged = _multiplications(
            graph, node, channels * prod(first.shape[2:]) * prod(second.shape[2:])
        )
        return (
            (first, second)
            if merged < spent
            else f"{merged:,} multiplications are no fewer than {spent:,}"
        )

    def apply(
        self, graph: GraphView, node: NodeProto, found: tuple[_Product, _Product]
    ) -> Sequence[NodeProto]:
        """Return one product that replaces two; of two Convs, the larger window is kept."""
        first, second = found
        weights, biases = _merge_constants(first, second)
        source = first.node.input[0]
        output = node.output[0]
        if node.op_type == "Gemm":
            return [_make_product(graph, node, source, output, weights, biases, transB=0)]
        if not _is_pointwise(second):
            return [_make_product(graph, node, source, output, weights, biases)]
        strides = [
            one * other
            for one, other in zip(
                *(p.options.get("strides", [1] * (weights.ndim - 2)) for p in found), strict=True
            )
        ]
        return [_make_product(graph, first.node, source, output, weights, biases, strides=strides)]


def _is_pointwise(product: _Product) -> bool:
    """Return True if a Conv reads one element of every channel, without padding."""
    return prod(product.shape[2:]) == 1 and not _has_padding(product.options)


def _multiplications(graph: GraphView, node: NodeProto, weights: int) -> int:
    """Return the multiplications of a product, from its number of weights and its result."""
    shape = graph.shapes[node.output[0]]
    return weights * shape[0] * prod(shape[2:])


def _merge_constants(first: _Product, second: _Product) -> tuple[Array, Array]:
    """Return the weights and biases of one product that replaces two consecutive ones.

    Those of Gemm have shape (K, N), those of Conv the larger window.
    """
    if first.node.op_type == "Gemm":
        inner, outer = (p.weights if p.rows else p.weights.T for p in (first, second))
        return inner @ outer, first.biases @ outer + second.biases
    flat = second.weights.sum(tuple(range(2, second.weights.ndim)))
    biases = flat @ first.biases + second.biases
    if _is_pointwise(second):
        return np.tensordot(flat, first.weights, 1), biases
    plane = first.weights.reshape(first.weights.shape[:2])
    return np.moveaxis(np.tensordot(second.weights, plane, ((1,), (0,))), -1, 1), biases


class MeanAsPool(Law):
    """`ReduceMean(x)` of planes (N, C, D₁ ...) = `GlobalAveragePool(x)`, reshaped if necessary.

    Pays because every variant has pools, and because ONNX Runtime sums integers in them, bit-equal
    with the accelerator.
    """

    name = "mean-as-pool"
    roots = frozenset({"ReduceMean"})
    measure = "reductions"
    exact = False

    def match(self, graph: GraphView, node: NodeProto) -> tuple[int, ...] | str | None:
        """Return the result shape of a global pool that can replace a ReduceMean."""
        shape = graph.shapes.get(node.input[0], ())
        options = attributes(node)
        axes = options.get("axes", graph.constants.get((*node.input, "")[1]))
        if len(shape) < 3 or 0 in shape or axes is None or node.output[0] not in graph.shapes:
            return None
        if sorted(int(axis) % len(shape) for axis in axes) != list(range(2, len(shape))):
            return "its axes are not those of planes"
        return (*shape[:2], *(1 for _ in shape[2:]))

    def apply(
        self, graph: GraphView, node: NodeProto, found: tuple[int, ...]
    ) -> Sequence[NodeProto]:
        """Return a GlobalAveragePool, and a Reshape if the mean has another shape."""
        result = graph.shapes[node.output[0]]
        if result == found:
            return [helper.make_node("GlobalAveragePool", node.input[:1], node.output, node.name)]
        pooled = graph.tensor(f"{node.output[0]}_pooled", found)
        shape = graph.constant(f"{node.output[0]}_shape", np.array(result, np.int64))
        return [
            helper.make_node("GlobalAveragePool", node.input[:1], [pooled], node.name),
            helper.make_node("Reshape", [pooled, shape], node.output),
        ]


FOLDS: tuple[Law, ...] = (
    ScaleBehindProduct(),
    ScaleBeforeProduct(),
    ScaleAsDepthwise(),
    MeanAsPool(),
)
OTHERS: tuple[Law, ...] = (MergeProducts(),)
fold_affine = make_pass("fold_affine", FOLDS)
linear_laws = make_pass("linear_laws", OTHERS)
