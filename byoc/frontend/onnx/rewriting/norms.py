"""Find normalisations written as elementary operators, to quantise each as one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto

from byoc.frontend.onnx.rewriting.form import convert_opset
from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, look_at, walk_model
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.runtimes.protobuf import attributes, opset_of, standard

LAYER = "LayerNormalization"
ROOT_MEAN_SQUARE = "RMSNormalization"
SOFTMAX = "Softmax"
LEAST_OPSET = {LAYER: 17, ROOT_MEAN_SQUARE: 23, SOFTMAX: 13}
"""First opset with each operator; from opset 13 on, a Softmax is along one axis."""
_SAME_ORDER = ("Reshape", "Squeeze", "Unsqueeze", "Expand", "Identity")
_LEAST = (-np.inf, float(np.finfo(np.float32).min))


class AxisRows(NamedTuple):
    """Rows of a tensor: the elements along the sorted ``axes`` form one row."""

    source: str
    axes: tuple[int, ...]


class StandardDeviation(NamedTuple):
    """Standard deviation of a tensor's rows, or their root mean square if not ``centred``."""

    rows: AxisRows
    epsilon: float
    centred: bool


class NormalisationMatch(NamedTuple):
    """Match of a normalisation of rows, with its divisor, optional gain and optional bias."""

    by: StandardDeviation
    gain: NDArray[np.float32] | None = None
    bias: NDArray[np.float32] | None = None


_ROOTS = ("Add", "Mul", "Div")


@look_at(*_ROOTS)
def recognise_norms(model: ModelProto) -> ModelProto:
    """Rewrite normalisations of rows as LayerNormalization, RMSNormalization or Softmax nodes.

    The pattern is ``(x - mean) / sqrt(variance + epsilon)``, or the same without the mean, then a
    constant factor and summand. The mean may be a sum divided by the length. The variance may be
    ``mean((x - mean)^2)`` or ``mean(x^2) - mean^2``, clamped at 0. Squares may be Pow or Mul, roots
    Sqrt or Pow, quotients Div or Reciprocal and Mul. The factor may multiply the reciprocal, and
    the whole may be ``x * f + (summand - mean * f)``. A Softmax is ``exp(x - max(x))`` divided by
    its sum.

    Rows not along the last dimensions are transposed. Needs inferred shapes and folded constants.
    An operator that needs a newer opset than the model can be converted to is not written.
    """
    wanted: set[int] = set()

    def start(graph: GraphView) -> Callable[[NodeProto], Sequence[NodeProto] | None]:
        finder = _NormalisationMatcher(graph)
        return lambda node: _write_normalisation(finder, node, wanted)

    result = walk_model(
        model, start, lambda node: node.op_type in _ROOTS and standard(node), upwards=True
    )
    if max(wanted, default=0) > opset_of(model):
        newer = convert_opset(model, max(wanted))
        if opset_of(newer) >= max(wanted):
            return recognise_norms(infer_shapes(newer))
    return result


def _write_normalisation(
    finder: _NormalisationMatcher, node: NodeProto, wanted: set[int]
) -> list[NodeProto] | None:
    """Replace the elementary operators of a normalisation that ends in ``node``.

    The opset that it needs is added to ``wanted``. Returns None if there is no normalisation or the
    model's opset lacks its operator.
    """
    rows = finder.softmax(node)
    found = (finder.match_biased(node) or finder.match_gained(node)) if rows is None else None
    if rows is None and found is None:
        return None
    op_type = SOFTMAX if found is None else LAYER if found.by.centred else ROOT_MEAN_SQUARE
    wanted.add(LEAST_OPSET[op_type])
    if finder.graph.opset < LEAST_OPSET[op_type]:
        return None
    w = NodeWriter(finder.graph, node)
    if rows is not None:
        w.add(op_type, rows.source, label=node.name, axis=rows.axes[0])
    elif found is not None:
        _normalisation(w, op_type, found)
    return w.finish()


def _normalisation(w: NodeWriter, op_type: str, found: NormalisationMatch) -> None:
    """Write a normalisation as one operator, between Transposes if needed.

    Transposes move the axes of the rows to the end.
    """
    source, axes = found.by.rows
    shape = w.graph.shapes[source]
    order = [axis for axis in range(len(shape)) if axis not in axes] + list(axes)
    moved = order != sorted(order)
    gain = np.ones((), np.float32) if found.gain is None else found.gain
    operands = [w.constant(_find_common_row(gain, shape, axes), part="gain")]
    if found.bias is not None:
        operands.append(w.constant(_find_common_row(found.bias, shape, axes), part="bias"))
    last = w.add("Transpose", source, perm=order) if moved else source
    axis = len(shape) - len(axes)
    epsilon = found.by.epsilon
    made = w.add(op_type, last, *operands, label=w.node.name, axis=axis, epsilon=epsilon)
    if moved:
        w.add("Transpose", made, perm=[order.index(axis) for axis in range(len(shape))])


def _find_common_row(
    array: NDArray[np.float32], shape: tuple[int, ...], axes: tuple[int, ...]
) -> NDArray[np.float32]:
    """Return the part of a broadcast constant that a tensor's rows along ``axes`` share."""
    row = [size if axis in axes else 1 for axis, size in enumerate(shape)]
    return np.broadcast_to(array, row).reshape([shape[axis] for axis in axes])


def _both_ways(node: NodeProto | None) -> Iterator[tuple[str, str]]:
    """Yield the two operands of a node in both orders."""
    if node is not None and len(node.input) == 2:
        yield node.input[0], node.input[1]
        yield node.input[1], node.input[0]


class _NormalisationMatcher:
    """Matcher of normalisations in elementary operators, from the last node backwards."""

    def __init__(self, graph: GraphView) -> None:
        self.graph = graph
        self.shapes = graph.shapes

    # Normalisations.

    def match_biased(self, node: NodeProto) -> NormalisationMatch | None:
        """Match a normalisation with subtracted means and a bias that ends in ``node``."""
        if node.op_type != "Add":
            return None
        for constant, other in _both_ways(node):
            maker = self.graph.maker(other)
            found = None if maker is None else self.match_gained(maker)
            if (
                found is not None
                and found.by.centred
                and self._is_broadcast_to(constant, found.by.rows)
            ):
                return found._replace(bias=self.graph.floats[constant])
        return self._match_shifted(node)

    def _match_shifted(self, node: NodeProto) -> NormalisationMatch | None:
        """Match a normalisation in the form ``x * f + (summand - mean * f)``."""
        for first, second in _both_ways(node):
            product = self.graph.maker(first, "Mul")
            rest = self.graph.maker(second, "Sub")
            shift = None if rest is None else self.graph.maker(rest.input[1], "Mul")
            for data, factor in _both_ways(product) if rest is not None else ():
                for mean, again in _both_ways(shift):
                    for by, gain in self._factors(factor) if again == factor else ():
                        same = (
                            by.centred
                            and data == by.rows.source
                            and self._mean_over(mean) == by.rows
                        )
                        if (
                            rest is not None
                            and same
                            and self._is_broadcast_to(rest.input[0], by.rows)
                        ):
                            return NormalisationMatch(by, gain, self.graph.floats[rest.input[0]])
        return None

    def match_gained(self, node: NodeProto) -> NormalisationMatch | None:
        """Match a normalisation that ends in ``node``, possibly with a constant gain."""
        bare = self._bare(node)
        for constant, other in _both_ways(node) if bare is None and node.op_type == "Mul" else ():
            maker = self.graph.maker(other)
            found = None if maker is None else self._bare(maker)
            if (
                found is not None
                and found.gain is None
                and self._is_broadcast_to(constant, found.by.rows)
            ):
                return found._replace(gain=self.graph.floats[constant])
        return bare

    def _bare(self, node: NodeProto) -> NormalisationMatch | None:
        """Match a normalisation without bias that ends in the Div or Mul ``node``."""
        if node.op_type == "Div":
            found = [
                by for by in self._deviations(node.input[1]) if self._is_data(node.input[0], by)
            ]
            return NormalisationMatch(found[0]) if found else None
        for data, factor in _both_ways(node) if node.op_type == "Mul" else ():
            for by, gain in self._factors(factor):
                if self._is_data(data, by):
                    return NormalisationMatch(by, gain)
        return None

    def _is_data(self, name: str, by: StandardDeviation) -> bool:
        """Return True if a normalisation divides this tensor by the standard deviation ``by``."""
        return self._match_centred(name) == by.rows if by.centred else name == by.rows.source

    def _factors(self, name: str) -> Iterator[tuple[StandardDeviation, NDArray[np.float32] | None]]:
        """Yield the standard deviations whose reciprocal a tensor may be.

        Each comes with a constant factor if there is one.
        """
        yield from ((by, None) for by in self._reciprocals(name))
        for constant, other in _both_ways(self.graph.maker(name, "Mul")):
            for by in self._reciprocals(other):
                if self._is_broadcast_to(constant, by.rows):
                    yield by, self.graph.floats[constant]

    def _reciprocals(self, name: str) -> Iterator[StandardDeviation]:
        node = self.graph.maker(self._flat(name), "Reciprocal", "Div", "Pow")
        if node is None:
            return
        if node.op_type == "Reciprocal" or (
            node.op_type == "Div" and self._number(node.input[0]) == 1
        ):
            found = self._deviations(node.input[-1])
        elif node.op_type == "Pow" and self._number(node.input[1]) == -0.5:
            found = self._roots_of(node.input[0])
        else:
            return
        yield from (by for by in found if self._is_row_constant(name, by.rows))

    def _deviations(self, name: str) -> Iterator[StandardDeviation]:
        node = self.graph.maker(self._flat(name), "Sqrt", "Pow")
        if node is not None and (node.op_type == "Sqrt" or self._number(node.input[1]) == 0.5):
            yield from (
                by for by in self._roots_of(node.input[0]) if self._is_row_constant(name, by.rows)
            )

    def _roots_of(self, name: str) -> Iterator[StandardDeviation]:
        """Yield the standard deviations whose square plus epsilon a tensor may be."""
        for number, variance in _both_ways(self.graph.maker(self._flat(name), "Add")):
            epsilon = self._number(number)
            moment = self._mean(variance)
            if epsilon is None:
                continue
            squared = None if moment is None else self._match_squared(moment.source)
            if moment is not None and squared is not None:
                if (rows := self._match_centred(squared)) is not None and rows.axes == moment.axes:
                    yield StandardDeviation(rows, epsilon, centred=True)
                yield StandardDeviation(AxisRows(squared, moment.axes), epsilon, centred=False)
            elif (rows := self._difference_of_moments(variance)) is not None:
                yield StandardDeviation(rows, epsilon, centred=True)

    def _difference_of_moments(self, name: str) -> AxisRows | None:
        """Match a variance written ``mean(x^2) - mean(x)^2``, and return its rows.

        It may be clamped at 0.
        """
        clipped = self.graph.maker(self._flat(name), "Max", "Relu")
        if clipped is not None:
            inner = [other for number, other in _both_ways(clipped) if self._number(number) == 0]
            return (
                self._difference_of_moments((inner or clipped.input)[0])
                if clipped.op_type == "Relu" or inner
                else None
            )
        node = self.graph.maker(self._flat(name), "Sub")
        if node is None or self.shapes.get(node.input[0]) != self.shapes.get(node.input[1]):
            return None
        moment = self._mean(node.input[0])
        mean = self._match_squared(self._flat(node.input[1]))
        source = None if moment is None else self._match_squared(moment.source)
        rows = None if moment is None or source is None else AxisRows(source, moment.axes)
        return rows if mean is not None and self._mean(mean) == rows else None

    # Softmax.

    def softmax(self, node: NodeProto) -> AxisRows | None:
        """Match a Softmax along one axis that ends in ``node``, and return its rows."""
        pairs = [(node.input[0], node.input[1])] if node.op_type == "Div" else []
        for numerator, factor in _both_ways(node) if node.op_type == "Mul" else ():
            inverse = self.graph.maker(self._flat(factor), "Reciprocal")
            pairs += [(numerator, inverse.input[0])] if inverse is not None else []
        for numerator, denominator in pairs:
            exponential = self.graph.maker(numerator, "Exp")
            total = self._match_reduction(denominator, "ReduceSum")
            below = None if exponential is None else self.graph.maker(exponential.input[0], "Sub")
            if total is None or total.source != numerator or len(total.axes) != 1 or below is None:
                continue
            rows = AxisRows(below.input[0], total.axes)
            over = self._is_row_constant(below.input[1], rows) and self._is_row_constant(
                denominator, rows
            )
            if over and self._largest(below.input[1]) == rows:
                return rows
        return None

    def _largest(self, name: str) -> AxisRows | None:
        """Match the maximum of each row of a tensor and return the rows.

        A Max with the smallest number may follow.
        """
        for number, other in _both_ways(self.graph.maker(self._flat(name), "Max")):
            if self._number(number) in _LEAST:
                return self._match_reduction(other, "ReduceMax")
        return self._match_reduction(name, "ReduceMax")

    # Parts of patterns.

    def _flat(self, name: str) -> str:
        """Return the tensor that ``name`` is a reshaped copy of."""
        while (node := self.graph.maker(name, *_SAME_ORDER)) is not None:
            before, behind = (self.shapes.get(side) for side in (node.input[0], name))
            if before is None or behind is None or prod(before) != prod(behind):
                break
            name = node.input[0]
        return name

    def _is_row_constant(self, name: str, rows: AxisRows) -> bool:
        """Return True if a tensor has one number per row and broadcasts to the rows."""
        shape = self.shapes[rows.source]
        own = self.shapes.get(name, ())
        kept = tuple(1 if axis in rows.axes else size for axis, size in enumerate(shape))
        return (1,) * (len(shape) - len(own)) + own == kept

    def _is_broadcast_to(self, name: str, rows: AxisRows) -> bool:
        if name not in self.graph.floats:
            return False
        shape = self.shapes[rows.source]
        own = self.graph.floats[name].shape
        sizes = enumerate((1,) * (len(shape) - len(own)) + own)
        return len(own) <= len(shape) and all(
            n == 1 or (axis in rows.axes and n == shape[axis]) for axis, n in sizes
        )

    def _match_centred(self, name: str) -> AxisRows | None:
        """Match rows minus their means, ``x - mean(x)``, and return the rows."""
        node = self.graph.maker(name, "Sub")
        rows = None if node is None else self._mean_over(node.input[1])
        return (
            rows if node is not None and rows is not None and rows.source == node.input[0] else None
        )

    def _match_squared(self, name: str) -> str | None:
        node = self.graph.maker(name, "Pow", "Mul")
        if node is None:
            return None
        square = (
            self._number(node.input[1]) == 2
            if node.op_type == "Pow"
            else node.input[0] == node.input[1]
        )
        return node.input[0] if square else None

    def _mean_over(self, name: str) -> AxisRows | None:
        """Match the means of rows, in a shape that broadcasts to them, and return the rows."""
        rows = self._mean(name)
        return rows if rows is not None and self._is_row_constant(name, rows) else None

    def _mean(self, name: str) -> AxisRows | None:
        """Match the means of rows in any shape, by ReduceMean or ReduceSum, and return the rows."""
        rows = self._match_reduction(name, "ReduceMean")
        node = self.graph.maker(self._flat(name), "Mul", "Div")
        if rows is not None or node is None:
            return rows
        pairs = _both_ways(node) if node.op_type == "Mul" else [(node.input[1], node.input[0])]
        for number, other in pairs:
            rows = self._match_reduction(other, "ReduceSum")
            factor = self._number(number)
            if rows is None or factor is None:
                continue
            count = prod(self.shapes[rows.source][axis] for axis in rows.axes)
            if np.isclose(
                factor * count if node.op_type == "Mul" else factor / count, 1, rtol=1e-6, atol=0
            ):
                return rows
        return None

    def _match_reduction(self, name: str, op_type: str) -> AxisRows | None:
        """Match a reduction along constant axes, in any shape, and return its rows."""
        node = self.graph.maker(self._flat(name), op_type)
        if node is None or node.input[0] not in self.shapes:
            return None
        axes = attributes(node).get("axes", ())
        if len(node.input) > 1 and node.input[1]:
            if node.input[1] not in self.graph.constants:
                return None
            axes = self.graph.constants[node.input[1]].reshape(-1).tolist()
        rank = len(self.shapes[node.input[0]])
        return (
            AxisRows(node.input[0], tuple(sorted(int(axis) % rank for axis in axes)))
            if len(axes)
            else None
        )

    def _number(self, name: str) -> float | None:
        array = self.graph.constants.get(name)
        return float(array.reshape(())) if array is not None and array.size == 1 else None
