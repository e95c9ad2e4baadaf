"""Division of a node: which parts of its operands give which part of its result, bit-exactly.

Families declare it in ``Operator.divide``; :mod:`byoc.splitting` computes a node in parts. Spans
are half-open.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from byoc.graph import Graph, Node, Value

Along = Literal["channels", "rows"]
AXES: Mapping[Along, int] = {"channels": 1, "rows": 2}
"""Axes of an image (1, channels, rows, columns)."""
Span = tuple[int, int]
"""Half-open interval of channels or rows."""


def _same(span: Span) -> Span:
    return span


def _nothing(span: Span) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Sharding:
    """Division of a node among machines: which operand parts give a part of its result.

    Attributes:
        axis: axis of the result that is divided.
        size: elements along that axis.
        axes: for each operand, the axis along which a part is read; None if the operand is read
            whole.
        reads: converts a span of the result to the span of the operands.
        attributes: returns the node's attributes that change for a span.
    """

    axis: int
    size: int
    axes: tuple[int | None, ...]
    reads: Callable[[Span], Span] = _same
    attributes: Callable[[Span], Mapping[str, Any]] = _nothing


def is_image(value: Value) -> bool:
    return len(value.shape) == 4 and value.shape[0] == 1


def element_by_element(
    graph: Graph, node: Node, along: Along, *, planes: bool = False
) -> Sharding | str:
    """Return the division among machines of a node that computes its result element by element.

    Elements depend only on operand elements at the same position. Constants may be broadcast, but
    must not differ along rows.

    Args:
        graph: the graph of the node.
        node: the node to divide.
        along: "channels" or "rows".
        planes: elements may depend on the whole plane of their channel.

    Returns:
        The division, or the reason why there is none.
    """
    axis = AXES[along]
    result = graph.values[node.outputs[0]]
    if not is_image(result):
        return f"its output is not one image of {along}"
    operands = [graph.values[name] for name in node.inputs]
    alike = 2 if planes else 4
    if any(value.constant is None and not _alike(value, result, alike) for value in operands):
        return "an operand has another shape than the output"
    constants = {
        value.name: _axis_of_constant(value, result, axis)
        for value in operands
        if value.constant is not None
    }
    if along == "rows" and any(own is not None for own in constants.values()):
        return "a constant differs from row to row"
    if -1 in constants.values():
        return "an operand has another shape than the output"
    return Sharding(
        axis, result.shape[axis], tuple(constants.get(name, axis) for name in node.inputs)
    )


def _alike(value: Value, result: Value, dimensions: int) -> bool:
    return (
        len(value.shape) == len(result.shape)
        and value.shape[:dimensions] == result.shape[:dimensions]
    )


def _axis_of_constant(value: Value, result: Value, axis: int) -> int | None:
    """Return the constant's axis that matches the result's axis.

    The result is None if the constant is broadcast there, and -1 if it does not match.
    """
    own = len(value.shape) - len(result.shape) + axis
    if own < 0 or value.shape[own] == 1:
        return None
    return own if value.shape[own] == result.shape[axis] else -1
