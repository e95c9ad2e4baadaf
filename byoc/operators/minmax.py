"""Element-wise minimum and maximum, of any number of tensors of any scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Literal

import numpy as np

from byoc.graph import Graph, Node, Value
from byoc.operators import domain, elementwise
from byoc.operators.activation import rescaled, rescaled_constant, unscalable
from byoc.operators.elementwise import Pair, pair_of
from byoc.operators.forms import Form, Written
from byoc.operators.operator import MANY, Constraint, Operand, Operator, Requirement, Settings
from byoc.operators.rules import Finding, rule
from byoc.target import Target
from isa.arch import Arch


@dataclass(frozen=True, eq=False)
class Comparison:
    """Operands of other scales than the result are brought to it first; then two are compared at a time.

    Rounding is monotonic: the smaller of two numbers becomes the smaller of both integers.
    """

    result: Value
    others: tuple[Value, ...]
    rescalings: tuple[Operator, ...]
    pairs: tuple[MinMax, ...]


@rule(domain.FIXED)
def scales_in_int32(record: Comparison, target: Target) -> Finding | None:
    """Every change of scale, times at most 255 steps."""
    return next(filter(None, (unscalable(value, record.result, target) for value in record.others)), None)


@dataclass(frozen=True, eq=False, kw_only=True)
class MinMax(Pair):
    """Minimum or maximum of two int8 tensors of equal quantisation."""

    family: ClassVar[str] = "minmax"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("Min", operands=None, plain=True, ranges="all"),
        Form("Max", operands=None, plain=True, ranges="all"),
    )
    arity: ClassVar[tuple[int, int]] = (1, MANY)
    requirements: ClassVar[tuple[Requirement, ...]] = (*elementwise.PAIR, domain.per_tensor, domain.usable_scales)
    constraints: ClassVar[tuple[Constraint, ...]] = (*elementwise.PAIR_CONSTRAINTS, scales_in_int32)
    repeating: ClassVar[str] = "OP_B_MIN"

    function: Literal["min", "max"]

    @classmethod
    def canonical_type(cls, form: Form, operands: int) -> str:
        """A comparison of one operand is the operand."""
        return "Identity" if operands == 1 else form.op_type

    @classmethod
    def attributes(cls, written: Written) -> dict[str, object]:
        """None of its own."""
        return {}

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Comparison:
        """The record of a node that meets every requirement; computed operands first, constant ones as one."""
        result, rescalings, others, operands = graph.values[node.outputs[0]], [], [], []
        for name in node.inputs:
            value = graph.values[name]
            if _alike(value, result):
                operands.append(value)
            elif value.constant is not None:
                operands.append(rescaled_constant(value, result))
            else:
                operands.append(replace(result, name=f"{result.name}:of:{name}", shape=value.shape))
                if value not in others:
                    others.append(value)
                    shape = domain.elementwise_shape(value.shape)
                    rescalings.append(rescaled(node, value, result, Operand(operands[-1].name, shape)))
        function: Literal["min", "max"] = "min" if node.op_type == "Min" else "max"
        constants = [value for value in operands if value.constant is not None]
        operands = [value for value in operands if value.constant is None]
        if constants:
            operands.append(reduce(lambda a, b: _compared(a, b, function), constants))
        pairs, first = [], operands[0]
        for number, value in enumerate(operands[1:], start=2):
            shape = np.broadcast_shapes(first.shape, value.shape)
            target = replace(result, name=f"{result.name}:{number}", shape=shape) if number < len(operands) else result
            pairs.append(cls(**pair_of(node, first, value, target), function=function))
            first = target
        return Comparison(result, tuple(others), tuple(rescalings), tuple(pairs))

    @classmethod
    def operations(cls, record: Any, target: Target) -> tuple[Operator, ...]:
        """Changes of scale, then the comparisons, one a slice."""
        pairs = (operation for pair in record.pairs for operation in super(MinMax, cls).operations(pair, target))
        return (*record.rescalings, *pairs)

    @property
    def mnemonic(self) -> str:
        """One for each function; one for both where operands repeat."""
        if self.repeats:
            return self.repeating
        return "OP_C_MIN" if self.function == "min" else "OP_C_MAX"

    def settings(self, arch: Arch) -> Settings:
        """The function, and how operands repeat."""
        return Settings({}, {**self.fields(), "maximum": int(self.function == "max")} if self.repeats else {})


def _alike(value: Value, result: Value) -> bool:
    """Whether an operand already has the scale of the result; bare integers have none."""
    if value.quantization is None or result.quantization is None:
        return True
    return value.quantization.same_as(result.quantization)


def _compared(a: Value, b: Value, function: Literal["min", "max"]) -> Value:
    """The comparison of two constants."""
    assert a.constant is not None
    assert b.constant is not None
    made = np.minimum(a.constant, b.constant) if function == "min" else np.maximum(a.constant, b.constant)
    return replace(a, name=f"{a.name},{b.name}", shape=made.shape, constant=made)
