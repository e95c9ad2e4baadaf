"""Rows of a constant table that integers choose at run time: what is computed of each row alone, the table can hold.

A one-hot encoding is such rows, too: those of a unit matrix. Its product with constant weights reads rows of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from byoc.frontend.onnx.rewriting.constants import evaluate
from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    attributes,
    copy_model,
    names_of,
    remove_dead_code,
    set_nodes,
    shapes_of,
    standard,
    types_of,
    unused,
)
from byoc.frontend.onnx.rewriting.law import looking_at
from byoc.operators.registry import installed

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
    walk = _Walk(model.graph)
    nodes = [new for node in model.graph.node for new in walk.rewritten(node)]
    if not walk.constants:
        return model
    result = copy_model(model)
    set_nodes(result.graph, nodes)
    result.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in walk.constants.items())
    remove_dead_code(result.graph)
    return result


class _Walk:
    """Finds rows in order of execution."""

    def __init__(self, graph: GraphProto) -> None:
        self.constants: dict[str, NDArray[Any]] = {}
        """What the nodes read that the graph does not have."""
        self._shapes = shapes_of(graph)
        self._arrays = ConstantArrays(graph, lambda tensor: True)
        self._types = types_of(graph)
        self._producers = {name: node for node in graph.node for name in node.output}
        self._taken = names_of(graph)
        self._rows: dict[str, Rows] = {}
        self._rowwise = installed().closes.operators - installed().closes.vectors

    def rewritten(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that stand for ``node``."""
        found = self._found(node) if standard(node) and len(node.output) == 1 else None
        if found is None:
            return [node]
        name = node.output[0]
        self._rows[name] = found
        if node.op_type == "Gather" or (found.classes and found.classes > prod(self._shapes[name][:-1])):
            return [node]
        return self._gather(name, found)

    def _found(self, node: NodeProto) -> Rows | None:
        """The rows that a node makes, if it does."""
        if node.output[0] not in self._shapes:
            return None
        if node.op_type == "Gather":
            return self._looked_up(node)
        if node.op_type == "OneHot":
            return self._one_hot(node)
        if node.op_type == "Cast" and attributes(node)["to"] == TensorProto.FLOAT:
            return self._compared(self._producers.get(node.input[0]))
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
        if node is None or node.op_type != "Equal" or not standard(node) or node.output[0] not in self._shapes:
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

    def _gather(self, name: str, rows: Rows) -> list[NodeProto]:
        """The nodes that make ``name`` of the table; those whose results nobody needs go later."""
        table = _beyond(np.eye(rows.classes, dtype=np.float32), rows) if rows.classes else rows.table
        shape, indices = self._shapes[name][:-1], rows.chosen
        nodes: list[NodeProto] = []
        if self._shapes[indices] != shape:
            indices = self._original(indices)
        kind = helper.tensor_dtype_to_np_dtype(self._types[indices])
        if self._shapes[indices] != shape:
            nodes.append(self._node("Reshape", name, indices, self._constant(name, np.array(shape, np.int64))))
            indices = nodes[-1].output[0]
        if rows.limits is not None:
            nodes.append(
                self._node("Clip", name, indices, *(self._constant(name, np.array(end, kind)) for end in rows.limits))
            )
            indices = nodes[-1].output[0]
        return [*nodes, helper.make_node("Gather", [self._constant(name, table), indices], [name], name, axis=0)]

    def _node(self, op_type: str, name: str, *operands: str) -> NodeProto:
        result = unused(f"{name}_rows", self._taken)
        return helper.make_node(op_type, list(operands), [result], result)

    def _constant(self, name: str, array: NDArray[Any]) -> str:
        unique = unused(f"{name}_rows", self._taken)
        self.constants[unique] = array
        return unique

    def _original(self, name: str) -> str:
        """What ``name`` is a copy of, of the same elements in the same order."""
        while (node := self._producers.get(name)) is not None and node.op_type in _SAME_ORDER and standard(node):
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
