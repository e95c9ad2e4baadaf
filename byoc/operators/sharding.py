"""How a node is divided: which part of its operands makes which part of its result, to the bit.

Families declare it in ``Operator.divide``; :mod:`byoc.splitting` computes a node in parts. Spans are half-open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from byoc.graph import Graph, Node, Value

Along = Literal["channels", "rows"]
AXES: Mapping[Along, int] = {"channels": 1, "rows": 2}
"""The axes of an image (1, channels, rows, columns)."""
Span = tuple[int, int]
"""A half-open interval of channels or rows."""


def _same(span: Span) -> Span:
    return span


def _nothing(span: Span) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Sharding:
    """A node makes a span of its result along ``axis``, where there are ``size`` elements, from parts of its operands.

    ``axes``: by operand, along which axis a part of it is read; None for one that is read whole. ``reads``: which span
    of them is read for a span of the result; ``attributes``: those of the node that are others then.
    """

    axis: int
    size: int
    axes: tuple[int | None, ...]
    reads: Callable[[Span], Span] = _same
    attributes: Callable[[Span], Mapping[str, Any]] = _nothing


def is_image(value: Value) -> bool:
    return len(value.shape) == 4 and value.shape[0] == 1


def element_by_element(graph: Graph, node: Node, along: Along, *, planes: bool = False) -> Sharding | str:
    """That of a node whose elements depend on those at their places alone; constants may repeat, but not along rows.

    ``planes``: rather on all of the plane of a channel. Why not, where it is not so.
    """
    axis, result = AXES[along], graph.values[node.outputs[0]]
    if not is_image(result):
        return f"its output is not one image of {along}"
    operands = [graph.values[name] for name in node.inputs]
    alike = 2 if planes else 4
    if any(value.constant is None and not _alike(value, result, alike) for value in operands):
        return "an operand has another shape than the output"
    constants = {value.name: _axis_of_constant(value, result, axis) for value in operands if value.constant is not None}
    if along == "rows" and any(own is not None for own in constants.values()):
        return "a constant differs from row to row"
    if -1 in constants.values():
        return "an operand has another shape than the output"
    return Sharding(axis, result.shape[axis], tuple(constants.get(name, axis) for name in node.inputs))


def _alike(value: Value, result: Value, dimensions: int) -> bool:
    return len(value.shape) == len(result.shape) and value.shape[:dimensions] == result.shape[:dimensions]


def _axis_of_constant(value: Value, result: Value, axis: int) -> int | None:
    """The constant's axis along which it goes as the result does; None: it repeats; -1: neither."""
    own = len(value.shape) - len(result.shape) + axis
    if own < 0 or value.shape[own] == 1:
        return None
    return own if value.shape[own] == result.shape[axis] else -1
