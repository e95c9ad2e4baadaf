"""Rows of a constant table that integers choose at run time: what is computed of each row alone, the table can hold.

A one-hot encoding is such rows, too: those of a unit matrix. Its product with constant weights reads rows of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.constants import evaluate
from byoc.frontend.onnx.rewriting.law import View, Writer, looking_at, walked
from byoc.operators.registry import installed
from byoc.runtimes.protobuf import attributes, standard

_INTEGERS = {TensorProto.INT32, TensorProto.INT64}
_SAME_ORDER = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand")


@dataclass(frozen=True, eq=False)
class Rows:
    """A float32 tensor (*S, D): rows of ``table`` (R, D), chosen by the integers of ``chosen``, which has shape S.

    ``classes``: those of a one-hot encoding, whose ``table`` is empty until it is needed. ``limits``: the integers are
    taken for these where they are below or above.
    """

    chosen: str
    table: NDArray[np.float32]
    classes: int = 0
    limits: tuple[int, int] | None = None


@looking_at("Gather", "OneHot", "Cast")
def tabulate_rows(model: ModelProto) -> ModelProto:
    """A copy in which what is computed from rows of constant tables, each row by itself, is rows of another table.

    Where that is no larger than what is chosen from it, or the product of a one-hot encoding with constant weights.
    Wants shapes inferred and constants folded. A model without such rows is returned as it is.
    """
    return walked(model, lambda graph: _Finder(graph).rewritten, upwards=True)


class _Finder:
    """Finds rows in order of execution; they are written from the last ones up, by which what is between them goes."""

    def __init__(self, graph: View) -> None:
        self.graph = graph
        self._shapes, self._arrays, self._types = graph.shapes, graph.constants, graph.types
        self._rows: dict[str, Rows] = {}
        self._rowwise = installed().closes.operators - installed().closes.vectors
        for node in (each for nodes in graph.slots for each in nodes if standard(each) and len(each.output) == 1):
            found = self._found(node)
            if found is not None:
                self._rows[node.output[0]] = found

    def rewritten(self, node: NodeProto) -> Sequence[NodeProto] | None:
        """The nodes that stand for ``node``, which makes rows; None where it stays."""
        found = self._rows.get(node.output[0])
        if found is None or node.op_type == "Gather":
            return None
        w, shape = Writer(self.graph, node), self._shapes[node.output[0]][:-1]
        return None if found.classes > prod(shape) else self._gather(w, found, shape)

    def _found(self, node: NodeProto) -> Rows | None:
        if node.output[0] not in self._shapes:
            return None
        if node.op_type == "Gather":
            return self._looked_up(node)
        if node.op_type == "OneHot":
            return self._one_hot(node)
        if node.op_type == "Cast" and attributes(node)["to"] == TensorProto.FLOAT:
            return self._compared(self.graph.maker(node.input[0], "Equal"))
        if node.op_type == "MatMul":
            return self._product(node)
        return self._function(node) if node.op_type in self._rowwise else None

    def _looked_up(self, node: NodeProto) -> Rows | None:
        table = self._arrays.get(node.input[0])
        if table is None or table.dtype != np.float32 or table.ndim != 2 or node.input[1] in self._arrays:
            return None
        return None if attributes(node).get("axis", 0) % 2 else Rows(node.input[1], table)

    # One-hot encodings along the last dimension. --------------------------------------------------------------------

    def _one_hot(self, node: NodeProto) -> Rows | None:
        """OneHot: integers from -depth to depth - 1, the negative ones count from the end; others choose nothing."""
        indices, depth, values = node.input
        rank = len(self._shapes[node.output[0]])
        if depth not in self._arrays or values not in self._arrays or self._types.get(indices) not in _INTEGERS:
            return None
        size = int(self._arrays[depth].reshape(()))
        if attributes(node).get("axis", -1) % rank != rank - 1 or self._arrays[values].tolist() != [0, 1]:
            return None
        if self._arrays[values].dtype != np.float32:
            return None
        return Rows(indices, _EMPTY, size, (-size - 1, size))

    def _compared(self, node: NodeProto | None) -> Rows | None:
        """Equal of integers (*S, 1) and 0 to depth - 1; integers beyond choose nothing."""
        if node is None or node.output[0] not in self._shapes:
            return None
        *outer, depth = self._shapes[node.output[0]]
        for numbers, indices in (tuple(node.input), tuple(reversed(node.input))):
            array = self._arrays.get(numbers)
            if array is None or array.size != depth or array.reshape(-1).tolist() != list(range(depth)):
                continue
            along_last = array.shape[-1:] == (depth,)
            if along_last and self._shapes.get(indices) == (*outer, 1) and self._types.get(indices) in _INTEGERS:
                return Rows(indices, _EMPTY, depth, (-1, depth))
        return None

    def _product(self, node: NodeProto) -> Rows | None:
        """Rows times constant weights (K, N)."""
        source, weights = self._rows.get(node.input[0]), self._arrays.get(node.input[1])
        if source is None or weights is None or weights.ndim != 2 or weights.dtype != np.float32:
            return None
        if source.classes:
            return Rows(source.chosen, _beyond(weights, source), limits=source.limits)
        return self._of_tables(node, source, [source.table, weights])

    # Functions of rows. ---------------------------------------------------------------------------------------------

    def _function(self, node: NodeProto) -> Rows | None:
        """An element-wise function of rows that the same integers choose, and of constants that are the same in all."""
        shape = self._shapes[node.output[0]]
        sources = {name: self._rows[name] for name in node.input if name in self._rows}
        if not sources or any(source.classes for source in sources.values()):
            return None
        first = next(iter(sources.values()))
        operands: list[NDArray[Any]] = []
        for name in node.input:
            if name in sources:
                same = (sources[name].chosen, sources[name].limits) == (first.chosen, first.limits)
                operand = sources[name].table if same and self._shapes.get(name) == shape else None
            else:
                operand = _of_every_row(self._arrays.get(name), len(shape))
            if operand is None:
                return None
            operands.append(operand)
        return self._of_tables(node, first, operands)

    def _of_tables(self, node: NodeProto, source: Rows, operands: list[NDArray[Any]]) -> Rows | None:
        """``node`` on whole tables, where the result is a table no larger than what is chosen from it."""
        shape = self._shapes[node.output[0]]
        if len(source.table) * shape[-1] > prod(shape):
            return None
        names = [f"operand{index}" for index in range(len(operands))]
        alone = helper.make_node(node.op_type, names, ["table"])
        alone.attribute.extend(node.attribute)
        made = evaluate(alone, dict(zip(names, operands, strict=True)))
        if made is None or made[0].dtype != np.float32 or made[0].shape != (len(source.table), shape[-1]):
            return None
        return Rows(source.chosen, made[0], limits=source.limits)

    # Nodes. ---------------------------------------------------------------------------------------------------------

    def _gather(self, w: Writer, rows: Rows, shape: tuple[int, ...]) -> Sequence[NodeProto]:
        """The nodes that choose from the table, by integers of ``shape``."""
        table = _beyond(np.eye(rows.classes, dtype=np.float32), rows) if rows.classes else rows.table
        indices = rows.chosen if self._shapes[rows.chosen] == shape else self._original(rows.chosen)
        kind = helper.tensor_dtype_to_np_dtype(self._types[indices])
        if self._shapes[indices] != shape:
            indices = w.add("Reshape", indices, w.constant(shape, np.int64))
        if rows.limits is not None:
            indices = w.add("Clip", indices, *(w.constant(end, kind) for end in rows.limits))
        w.add("Gather", w.constant(table), indices, axis=0)
        return w.finished()

    def _original(self, name: str) -> str:
        """What ``name`` is a copy of, of the same elements in the same order."""
        while (node := self.graph.maker(name, *_SAME_ORDER)) is not None:
            shape = self._shapes.get(node.input[0])
            if shape is None or prod(shape) != prod(self._shapes[name]) or node.input[0] not in self._types:
                break
            name = node.input[0]
        return name


_EMPTY = np.zeros((0, 0), np.float32)


def _beyond(weights: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
    """``weights`` with a row of zeros where what is beyond them lies, and once more behind it for what counts from
    their end: the integers that ``rows`` is limited to are rows of it, in both directions."""
    assert rows.limits is not None
    zeros = np.zeros((1, weights.shape[1]), np.float32)
    return np.concatenate([weights, zeros, *([weights] if rows.limits[0] < -1 else [])])


def _of_every_row(array: NDArray[Any] | None, rank: int) -> NDArray[Any] | None:
    """A constant that is the same in every row of a tensor of ``rank`` dimensions, without leading ones; else None."""
    if array is None or array.ndim > rank or prod(array.shape[:-1]) != 1:
        return None
    return array.reshape(array.shape[-1:])
