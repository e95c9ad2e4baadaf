"""Lowering: which values share a buffer, and where a copy is needed instead."""

from __future__ import annotations

import numpy as np

from byoc.operators.copies import Copy
from byoc.operators.operator import Operator
from byoc.operators.products import Requantisation
from byoc.operators.records import Operand
from byoc.scheduling.lowering import Lowered, TensorStart, lower, split
from isa.arch import Arch
from tests.byoc import region_cases as cases
from tests.byoc.region_cases import alias, operand

RNG = np.random.default_rng(1)


def lowered(
    *operations: Operator, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",)
) -> Lowered:
    made, values = cases.region(operations, inputs, outputs)
    return lower(made.operations, values, inputs, outputs)


def copies(result: Lowered) -> list[tuple[str, str, int]]:
    found = [item for item in result.operations if isinstance(item, Copy)]
    return [(item.inputs[0].value, item.output.value, item.output.offset) for item in found]


def pointwise(source: str, target: str, channels: int, depth: int = 4) -> Operator:
    return cases.convolution(RNG, operand(source, depth, 2, 2), target, channels, kernel=(1, 1))


def test_a_reshape_between_two_layers_costs_nothing() -> None:
    result = lowered(
        pointwise("x", "a", 4),
        alias((operand("a", 4, 2, 2),), operand("b", 2, 8)),
        cases.matmul(RNG, operand("b", 2, 8), "y", 3),
    )
    assert result.places["a"] == result.places["b"]
    assert [type(item).__name__ for item in result.operations] == ["Convolution", "MatMul"]
    assert {buffer.name: buffer.role for buffer in result.buffers} == {
        "x": "input",
        "y": "output",
        "b": "intermediate",
    }


def test_a_concatenation_is_written_in_place() -> None:
    parts = operand("a", 3, 2, 2), operand("b", 5, 2, 2)
    result = lowered(
        pointwise("x", "a", 3), pointwise("x", "b", 5), alias(parts, operand("y", 8, 2, 2), (0, 12))
    )
    assert result.places["a"] == TensorStart("y", 0)
    assert result.places["b"] == TensorStart("y", 12)
    assert copies(result) == []


def test_a_tensor_that_is_split_and_joined_with_another_is_never_copied() -> None:
    def part(name: str, first: int) -> Operator:
        return alias((Operand("a", (2, 2, 2), first),), operand(name, 2, 2, 2))

    result = lowered(
        pointwise("x", "a", 4),
        part("left", 0),
        part("right", 8),
        pointwise("right", "c", 2, depth=2),
        alias(
            (operand("left", 8), operand("right", 8), operand("c", 8)), operand("y", 24), (0, 8, 16)
        ),
    )
    assert copies(result) == []
    assert [result.places[name] for name in ("a", "left", "right", "c")] == [
        TensorStart("y", at) for at in (0, 0, 8, 16)
    ]


def test_concatenations_of_concatenations_share_one_buffer() -> None:
    result = lowered(
        pointwise("x", "a", 1),
        pointwise("x", "b", 1),
        alias((operand("a", 4), operand("b", 4)), operand("ab", 8), (0, 4)),
        pointwise("ab", "c", 1, depth=2),
        alias((operand("c", 4), operand("ab", 8)), operand("y", 12), (0, 4)),
    )
    assert {name: result.places[name] for name in ("a", "b", "ab", "c")} == {
        "a": TensorStart("y", 4), "b": TensorStart("y", 8), "ab": TensorStart("y", 4),
        "c": TensorStart("y", 0),
    }  # fmt: skip


def test_the_same_value_twice_in_a_concatenation_is_copied_once() -> None:
    result = lowered(
        pointwise("x", "a", 1), alias((operand("a", 4), operand("a", 4)), operand("y", 8), (0, 4))
    )
    assert result.places["a"] == TensorStart("y", 0)
    assert copies(result) == [("a", "y", 4)]


def test_a_value_in_two_concatenations_is_copied_into_the_second() -> None:
    a = operand("a", 4)
    b = operand("b", 4)
    result = lowered(
        pointwise("x", "a", 1),
        pointwise("x", "b", 1),
        alias((a, b), operand("y", 8), (0, 4)),
        alias((b, a), operand("z", 8), (0, 4)),
        outputs=("y", "z"),
    )
    assert result.places["b"] == TensorStart("y", 4)
    assert copies(result) == [("b", "z", 0), ("a", "z", 4)]


def test_an_input_that_is_also_an_output_is_copied() -> None:
    result = lowered(alias((operand("x", 4, 2),), operand("y", 8)))
    assert copies(result) == [("x", "y", 0)]
    assert {buffer.name: buffer.role for buffer in result.buffers} == {"x": "input", "y": "output"}


def test_a_slice_of_a_value_becomes_a_value_without_copy() -> None:
    result = lowered(
        pointwise("x", "a", 6),
        alias((operand("a", 2, 2, 2, offset=8),), operand("b", 2, 2, 2)),
        pointwise("b", "y", 1, depth=2),
    )
    assert result.places["b"] == TensorStart("a", 8)
    assert copies(result) == []


def test_seed_splits_requantisation_through_an_accumulator_of_its_own() -> None:
    result = split(lowered(pointwise("x", "a", 4), pointwise("a", "y", 3)), Arch())
    kinds = [(item.name, item.kind, item.output.dtype) for item in result.operations]
    assert kinds == [
        ("a", "CONV", "int32"), ("a:requantise", "REQUANT", "int8"),
        ("y", "CONV", "int32"), ("y:requantise", "REQUANT", "int8"),
    ]  # fmt: skip
    last = result.operations[-1]
    assert isinstance(last, Requantisation)
    assert last.inputs[0].nbytes == 4 * last.output.nbytes
    intermediates = [buffer for buffer in result.buffers if buffer.role == "intermediate"]
    assert {buffer.name: buffer.nbytes for buffer in intermediates} == {
        "a": 16, "a@0:accumulator": 64, "y@0:accumulator": 48,
    }  # fmt: skip
