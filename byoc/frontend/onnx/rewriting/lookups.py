"""Precompute functions of rows that run-time integers select from a constant table.

A function of each row by itself can be applied to the table instead. A one-hot encoding selects
rows of a unit matrix, so its product with constant weights selects rows of the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.constants import evaluate
from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, look_at, walk_model
from byoc.operators.registry import load_installed_families
from byoc.runtimes.protobuf import attributes, standard

_INTEGERS = {TensorProto.INT32, TensorProto.INT64}
_SAME_ORDER = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand")


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Rows of a constant table (R, D) that an integer tensor selects at run time.

    The integers ``chosen`` have shape S, so the rows have shape (*S, D). The integers are clamped
    to ``limits``. ``classes`` is the size of a one-hot encoding, whose ``table`` stays empty until
    it is needed.
    """

    chosen: str
    table: NDArray[np.float32]
    classes: int = 0
    limits: tuple[int, int] | None = None


@look_at("Gather", "OneHot", "Cast")
def tabulate_rows(model: ModelProto) -> ModelProto:
    """Replace a function of rows selected from a constant table by a precomputed table.

    Applies if the new table is no larger than the rows selected from it, or for the product of a
    one-hot encoding with constant weights. Needs inferred shapes and folded constants. A model
    without such rows is returned unchanged.
    """
    return walk_model(model, lambda graph: _RowFinder(graph).rewrite, upwards=True)


class _RowFinder:
    """Finder of tensors whose rows are selected from a constant table.

    Rewriting goes from the last rows upwards, so that intermediate nodes are removed.
    """

    def __init__(self, graph: GraphView) -> None:
        self.graph = graph
        self._shapes = graph.shapes
        self._arrays = graph.constants
        self._types = graph.types
        self._rows: dict[str, SelectedRows] = {}
        self._rowwise = (
            load_installed_families().closes.operators - load_installed_families().closes.vectors
        )
        for node in (
            each
            for nodes in graph.slots
            for each in nodes
            if standard(each) and len(each.output) == 1
        ):
            found = self._find_rows(node)
            if found is not None:
                self._rows[node.output[0]] = found

    def rewrite(self, node: NodeProto) -> Sequence[NodeProto] | None:
        """Return nodes that compute a node's result by selecting rows of a constant table.

        Returns None if it stays.
        """
        found = self._rows.get(node.output[0])
        if found is None or node.op_type == "Gather":
            return None
        w = NodeWriter(self.graph, node)
        shape = self._shapes[node.output[0]][:-1]
        return None if found.classes > prod(shape) else self._gather(w, found, shape)

    def _find_rows(self, node: NodeProto) -> SelectedRows | None:
        if node.output[0] not in self._shapes:
            return None
        if node.op_type == "Gather":
            return self._find_looked_up(node)
        if node.op_type == "OneHot":
            return self._one_hot(node)
        if node.op_type == "Cast" and attributes(node)["to"] == TensorProto.FLOAT:
            return self._find_compared(self.graph.maker(node.input[0], "Equal"))
        if node.op_type == "MatMul":
            return self._product(node)
        return self._function(node) if node.op_type in self._rowwise else None

    def _find_looked_up(self, node: NodeProto) -> SelectedRows | None:
        table = self._arrays.get(node.input[0])
        if (
            table is None
            or table.dtype != np.float32
            or table.ndim != 2
            or node.input[1] in self._arrays
        ):
            return None
        return None if attributes(node).get("axis", 0) % 2 else SelectedRows(node.input[1], table)

    # One-hot encodings along the last dimension.

    def _one_hot(self, node: NodeProto) -> SelectedRows | None:
        """Read a OneHot as rows that its indices select from an identity matrix.

        Negative indices count from the end; indices out of range select zeros.
        """
        indices, depth, values = node.input
        rank = len(self._shapes[node.output[0]])
        if (
            depth not in self._arrays
            or values not in self._arrays
            or self._types.get(indices) not in _INTEGERS
        ):
            return None
        size = int(self._arrays[depth].reshape(()))
        if attributes(node).get("axis", -1) % rank != rank - 1 or self._arrays[values].tolist() != [
            0,
            1,
        ]:
            return None
        if self._arrays[values].dtype != np.float32:
            return None
        return SelectedRows(indices, _EMPTY, size, (-size - 1, size))

    def _find_compared(self, node: NodeProto | None) -> SelectedRows | None:
        """Read an Equal of integers with 0 to depth - 1 as rows of an identity matrix.

        Integers out of range select zeros.
        """
        if node is None or node.output[0] not in self._shapes:
            return None
        *outer, depth = self._shapes[node.output[0]]
        for numbers, indices in (tuple(node.input), tuple(reversed(node.input))):
            array = self._arrays.get(numbers)
            if (
                array is None
                or array.size != depth
                or array.reshape(-1).tolist() != list(range(depth))
            ):
                continue
            along_last = array.shape[-1:] == (depth,)
            if (
                along_last
                and self._shapes.get(indices) == (*outer, 1)
                and self._types.get(indices) in _INTEGERS
            ):
                return SelectedRows(indices, _EMPTY, depth, (-1, depth))
        return None

    def _product(self, node: NodeProto) -> SelectedRows | None:
        """Read a product of selected rows and constant weights as rows of another table."""
        source = self._rows.get(node.input[0])
        weights = self._arrays.get(node.input[1])
        if source is None or weights is None or weights.ndim != 2 or weights.dtype != np.float32:
            return None
        if source.classes:
            return SelectedRows(
                source.chosen, _append_zero_row(weights, source), limits=source.limits
            )
        return self._evaluate_tables(node, source, [source.table, weights])

    # Functions of rows.

    def _function(self, node: NodeProto) -> SelectedRows | None:
        """Read an element-wise function of selected rows as rows of another table.

        The constants must be the same in every row.
        """
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
                operand = _find_common_row(self._arrays.get(name), len(shape))
            if operand is None:
                return None
            operands.append(operand)
        return self._evaluate_tables(node, first, operands)

    def _evaluate_tables(
        self, node: NodeProto, source: SelectedRows, operands: list[NDArray[Any]]
    ) -> SelectedRows | None:
        """Apply a node to whole tables and return its result as rows of the new table.

        Returns None if that table is larger than the rows selected from it.
        """
        shape = self._shapes[node.output[0]]
        if len(source.table) * shape[-1] > prod(shape):
            return None
        names = [f"operand{index}" for index in range(len(operands))]
        alone = helper.make_node(node.op_type, names, ["table"])
        alone.attribute.extend(node.attribute)
        made = evaluate(alone, dict(zip(names, operands, strict=True)))
        if (
            made is None
            or made[0].dtype != np.float32
            or made[0].shape != (len(source.table), shape[-1])
        ):
            return None
        return SelectedRows(source.chosen, made[0], limits=source.limits)

    # Nodes.

    def _gather(
        self, w: NodeWriter, rows: SelectedRows, shape: tuple[int, ...]
    ) -> Sequence[NodeProto]:
        """Return the nodes that select rows of a table with indices of ``shape``."""
        table = (
            _append_zero_row(np.eye(rows.classes, dtype=np.float32), rows)
            if rows.classes
            else rows.table
        )
        indices = rows.chosen if self._shapes[rows.chosen] == shape else self._original(rows.chosen)
        kind = helper.tensor_dtype_to_np_dtype(self._types[indices])
        if self._shapes[indices] != shape:
            indices = w.add("Reshape", indices, w.constant(shape, np.int64))
        if rows.limits is not None:
            indices = w.add("Clip", indices, *(w.constant(end, kind) for end in rows.limits))
        w.add("Gather", w.constant(table), indices, axis=0)
        return w.finish()

    def _original(self, name: str) -> str:
        """Return the tensor that ``name`` is a reshaped copy of."""
        while (node := self.graph.maker(name, *_SAME_ORDER)) is not None:
            shape = self._shapes.get(node.input[0])
            if (
                shape is None
                or prod(shape) != prod(self._shapes[name])
                or node.input[0] not in self._types
            ):
                break
            name = node.input[0]
        return name


_EMPTY = np.zeros((0, 0), np.float32)


def _append_zero_row(weights: NDArray[np.float32], rows: SelectedRows) -> NDArray[np.float32]:
    """Append a row of zeros to a table, for indices out of range.

    If negative indices are allowed, ``weights`` are appended once more, so that the clamped
    indices, negative ones included, address the extended table.
    """
    assert rows.limits is not None
    zeros = np.zeros((1, weights.shape[1]), np.float32)
    return np.concatenate([weights, zeros, *([weights] if rows.limits[0] < -1 else [])])


def _find_common_row(array: NDArray[Any] | None, rank: int) -> NDArray[Any] | None:
    """Return a constant with a single row, broadcast to all rows of a tensor, else None.

    ``rank`` is that of the tensor of rows.
    """
    if array is None or array.ndim > rank or prod(array.shape[:-1]) != 1:
        return None
    return array.reshape(array.shape[-1:])
