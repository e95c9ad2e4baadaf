"""Element-wise minimum and maximum of any number of tensors, and Where built from them.

The tensors may have any scales, or be flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Literal

import numpy as np

from byoc.graph import Graph, Node, Value
from byoc.operators import domain, elementwise
from byoc.operators.activation import rescale, rescale_constant, unscalable
from byoc.operators.elementwise import Pair, pair_of
from byoc.operators.forms import Form, Limits, QLinear, Written
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import Operator
from byoc.operators.records import MANY, Operand, Settings
from byoc.operators.rules import Constraint, Finding, Requirement, finding, rule
from byoc.operators.table import make_look_up
from byoc.options import Target
from isa.arch import Arch
from isa.ops.lookup import TABLE_BYTES

Function = Literal["min", "max"]
FUNCTIONS: Mapping[str, Function] = {"Min": "min", "And": "min", "Max": "max", "Or": "max"}


@dataclass(frozen=True, eq=False)
class SelectionSteps:
    """Sequence of operations that computes the minimum or maximum of several tensors.

    The result is ``result``. Functions of one tensor (``before``) run first, then functions of two
    tensors at a time. ``others`` are operands with other scales than the result; they are rescaled
    first. Rounding is monotonic: the smaller of two numbers also becomes the smaller integer.
    """

    result: Value
    before: tuple[Operator, ...]
    others: tuple[Value, ...]
    pairs: tuple[MinMax, ...]


class _Maker:
    """Collector of the operations that compute a minimum, maximum or selection."""

    def __init__(self, node: Node, result: Value) -> None:
        self.node = node
        self.result = result
        self.before: list[Operator] = []
        self._others: list[Value] = []
        self._pairs: list[MinMax] = []

    def steps(self) -> SelectionSteps:
        return SelectionSteps(
            self.result, tuple(self.before), tuple(self._others), tuple(self._pairs)
        )

    def scale_operand(self, value: Value) -> Value:
        result = self.result
        if _alike(value, result):
            return value
        if value.constant is not None:
            return rescale_constant(value, result)
        made = replace(result, name=f"{result.name}:of:{value.name}", shape=value.shape)
        if value not in self._others:
            self._others.append(value)
            output = Operand(made.name, domain.elementwise_shape(value.shape))
            self.before.append(rescale(self.node, value, result, output))
        return made

    def add_comparison(self, a: Value, b: Value, function: Function, name: str) -> Value:
        """Add the minimum or maximum of two operands as ``name`` and return it.

        Constants are compared at once.
        """
        if a.constant is not None and b.constant is not None:
            made = (
                np.minimum(a.constant, b.constant)
                if function == "min"
                else np.maximum(a.constant, b.constant)
            )
            return replace(a, name=name, shape=made.shape, constant=made)
        target = replace(self.result, name=name, shape=np.broadcast_shapes(a.shape, b.shape))
        self._pairs.append(MinMax(**pair_of(self.node, a, b, target), function=function))
        return target


@rule(domain.FIXED)
def scales_in_int32(record: SelectionSteps, target: Target) -> Finding | None:
    """Return a finding if rescaling 255 steps of an operand overflows int32, or None."""
    return next(
        filter(None, (unscalable(value, record.result, target) for value in record.others)), None
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class MinMax(Pair):
    """Minimum or maximum of two int8 tensors of equal quantisation.

    For flags, the minimum is a logical and, and the maximum a logical or.
    """

    family: ClassVar[str] = "minmax"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("Min", operands=None, alone="Identity", plain=True, ranges="all"),
        Form("Max", operands=None, alone="Identity", plain=True, ranges="all"),
        Form("And", operands=2, bare=True, plain=True, passive=True),
        Form("Or", operands=2, bare=True, plain=True, passive=True),
    )
    arity: ClassVar[tuple[int, int]] = (2, MANY)
    requirements: ClassVar[tuple[Requirement, ...]] = (
        *elementwise.PAIR,
        domain.per_tensor,
        domain.usable_scales,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (*elementwise.PAIR_CONSTRAINTS, scales_in_int32)
    repeating: ClassVar[str] = "OP_B_MIN"

    function: Function

    @classmethod
    def attributes(cls, written: Written) -> dict[str, object]:
        """Return an empty dictionary, because a minimum or maximum has no ONNX attributes."""
        return {}

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> SelectionSteps:
        """Return the operations of a minimum or maximum, with all constants merged.

        All constants become one operand. Computed operands come first.
        """
        maker = _Maker(node, graph.values[node.outputs[0]])
        name = maker.result.name
        function = FUNCTIONS[node.op_type]
        every = [maker.scale_operand(graph.values[operand]) for operand in node.inputs]
        constants = [value for value in every if value.constant is not None]
        operands = [value for value in every if value.constant is None]
        if constants:
            operands.append(
                reduce(
                    lambda a, b: maker.add_comparison(a, b, function, f"{a.name},{b.name}"),
                    constants,
                )
            )
        first = operands[0]
        for number, value in enumerate(operands[1:], start=2):
            first = maker.add_comparison(
                first, value, function, f"{name}:{number}" if number < len(operands) else name
            )
        return maker.steps()

    @classmethod
    def operations(cls, record: Any, target: Target) -> tuple[Operator, ...]:
        """Return the rescalings and look-ups of a minimum or maximum, then the comparisons."""
        pairs = (
            operation
            for pair in record.pairs
            for operation in super(MinMax, cls).operations(pair, target)
        )
        return (*record.before, *pairs)

    @property
    def mnemonic(self) -> str:
        """Name of the instruction for a minimum or maximum.

        If an operand is broadcast, both functions have the same mnemonic.
        """
        if self.repeats:
            return self.repeating
        return "OP_C_MIN" if self.function == "min" else "OP_C_MAX"

    def settings(self, arch: Arch) -> Settings:
        """Return the fields that select minimum or maximum and describe the broadcast."""
        return Settings(
            {}, {**self.fields(), "maximum": int(self.function == "max")} if self.repeats else {}
        )


def _alike(value: Value, result: Value) -> bool:
    """Return True if a tensor already has the scale of the result.

    Bare integers have no scale.
    """
    if value.quantization is None or result.quantization is None:
        return True
    return value.quantization.same_as(result.quantization)


# Selection


@rule("the condition is bool, and both other operands have the element type of the result")
def chosen_by_flags(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the element types of a Where are not supported, or None.

    The condition must be flags. The other operands must have the result's type, because stored
    values are selected unchanged.
    """
    types = tuple(graph.values[name].dtype for name in (*node.inputs, *node.outputs))
    if types[0] == domain.FLAGS and len(set(types[1:])) == 1:
        return None
    return finding("element types are {types[0]}; {types[1]}, {types[2]}, {types[3]}", types=types)


@dataclass(frozen=True, eq=False, kw_only=True)
class Selection(Pair):
    """Element-wise selection from two tensors by flags.

    The result is max(min(a, +), min(b, -)), with limits + and - derived from the flags. The limit
    is the largest stored value where the tensor is selected, and the smallest elsewhere. Compared
    with ONNX Runtime's QLinearWhere, 0 of 3,932,160 results differ.
    """

    family: ClassVar[str] = "choice"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "Where",
            operands=3,
            flags=1,
            plain=True,
            passive=True,
            integer=(QLinear("QLinearWhere", ((1, 2, 3), (4, 5, 6)), (7, 8)),),
        ),
    )
    instructions: ClassVar[tuple[str, ...]] = ("OP_LUT", "OP_B_MIN")
    arity: ClassVar[tuple[int, int]] = (3, 3)
    requirements: ClassVar[tuple[Requirement, ...]] = (
        elementwise.any_computed,
        domain.eight_bit_input,
        domain.eight_bit_output,
        domain.not_empty,
        chosen_by_flags,
        domain.per_tensor,
        domain.usable_scales,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = MinMax.constraints

    @classmethod
    def useful(
        cls, node: OnnxNode, position: int, ranges: Sequence[Limits | None], result: Limits
    ) -> Limits | None:
        """Return the range of the result of a Where for both of its data operands.

        A selected value is the result.
        """
        return result if position else None

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> SelectionSteps:
        condition, first, second = (graph.values[name] for name in node.inputs)
        maker = _Maker(node, graph.values[node.outputs[0]])
        result = maker.result.name
        first, second = (
            maker.add_comparison(
                _to_stored_value(maker.scale_operand(value)),
                _limits(maker, condition, flag),
                "min",
                f"{result}:if:{flag}",
            )
            for value, flag in ((first, 1), (second, 0))
        )
        maker.add_comparison(first, second, "max", result)
        return maker.steps()

    @classmethod
    def operations(cls, record: Any, target: Target) -> tuple[Operator, ...]:
        """Return the operations of a Where: limits, rescalings and comparisons."""
        return MinMax.operations(record, target)


def _to_stored_value(value: Value) -> Value:
    """Return a constant in the accelerator's int8 domain.

    Other values are returned unchanged.
    """
    if value.constant is None:
        return value
    return replace(value, dtype="int8", constant=domain.to_stored_integers(value.constant))


def _limits(maker: _Maker, condition: Value, flag: int) -> Value:
    """Return a tensor of the largest value where a condition holds, the smallest elsewhere.

    It holds where ``condition`` is ``flag``. The values are stored int8 values.
    """
    table = np.where(np.minimum(np.arange(TABLE_BYTES), 1) == flag, 127, -128).astype(np.int8)
    name = f"{maker.result.name}:where:{flag}"
    limits = replace(condition, name=name, dtype="int8")
    if condition.constant is not None:
        return replace(limits, constant=table[condition.constant.astype(np.int64)])
    maker.before.append(make_look_up(maker.node, condition, limits, table))
    return limits
