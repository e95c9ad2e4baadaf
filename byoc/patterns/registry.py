"""Every operator family, by operator type, and the support table made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from byoc.graph import Graph, Node
from byoc.patterns import activation, add, concatenation, convolution, matmul, minmax, movement, pooling
from byoc.patterns.base import Pattern, Rejection

PATTERNS: tuple[Pattern[Any], ...] = (
    convolution.PATTERN,
    matmul.PATTERN,
    pooling.MAXIMUM,
    pooling.AVERAGE,
    add.PATTERN,
    activation.PATTERN,
    minmax.PATTERN,
    movement.PATTERN,
    concatenation.PATTERN,
)
_BY_TYPE = {op_type: pattern for pattern in PATTERNS for op_type in pattern.op_types}
_BY_NAME = {pattern.name: pattern for pattern in PATTERNS}


@dataclass(frozen=True)
class SupportRow:
    """One row of the support table: a family, its ONNX operators, and the rules a node must meet.

    Operators without ``QLinear`` or ``Integer`` in their names run quantised: between DequantizeLinear and
    QuantizeLinear, or where ``plain`` lists them, on bare integers as well.
    """

    pattern: str
    operators: tuple[str, ...]
    plain: tuple[str, ...]
    rules: tuple[str, ...]


def pattern_named(name: str) -> Pattern[Any] | None:
    """The family of that name, None where there is none."""
    return _BY_NAME.get(name)


def find_pattern(graph: Graph, node: Node) -> Pattern[Any] | Rejection:
    """The family that runs ``node``, or why none does; depends on the model alone, not on the target."""
    if node.remark:
        return Rejection(f"{node.op_type} stays in float: {node.remark}")
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return Rejection(f"{node.op_type} is where the integer part of the network ends")
    pattern = _BY_TYPE.get(node.op_type)
    if pattern is None or not node.integer:
        return Rejection(f"operator {node.op_type} has no pattern")
    return pattern.check(graph, node) or pattern


def support_table() -> tuple[SupportRow, ...]:
    """The rows of the generated support table, a family each."""
    from byoc.frontend.qoperator import PLAIN_OPERATORS, integer_operators  # they import onnx, which takes its time

    rows = []
    for pattern in PATTERNS:
        floats = [op_type for op_type in pattern.op_types if op_type != "Requantize"]
        floats += ["Gemm"] * ("MatMul" in floats)
        integers = [name for op_type in (*pattern.op_types, *floats) for name in integer_operators(op_type)]
        plain = tuple(op_type for op_type in floats if op_type in PLAIN_OPERATORS)
        rows.append(SupportRow(pattern.name, tuple(dict.fromkeys((*floats, *integers))), plain, pattern.rules()))
    return tuple(rows)
