"""Operators between uint8 and int8 tensors get operands of one element type.

The conversion is exact, is made once a tensor, and takes no cycles.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import experiments
from byoc.frontend.onnx.rewriting.integers import match_types
from byoc.frontend.onnx.rewriting.prepare import apply, passes
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.runtimes.session import OnnxRuntimeSession
from tests.byoc.small_models import ModelBuilder
from tests.e2e.field_files import mixed_types

ZERO = {"uint8": 130, "int8": 2}
SHAPE = (1, 3, 8, 8)


def _convolutions(
    before: str, after: str, weights: str = "int8", count: int = 1
) -> onnx.ModelProto:
    """Return convolutions of one tensor of type ``before``, with results of type ``after``."""
    b = ModelBuilder()
    q = b.input("x", SHAPE, before)
    filters = np.arange(108).reshape(4, 3, 3, 3).astype(weights)
    for number in range(count):
        made = b.node(
            "Conv",
            b.dequantize(q, 0.02, ZERO[before], before),
            b.weights(filters, 0.01, ZERO[weights]),
        )
        b.quantize(made, 0.5, ZERO[after], after, result=f"y{number}")
        b.output(f"y{number}", after)
    return b.model()


@pytest.mark.parametrize("seed", range(20))
def test_equal_types_change_no_bit(seed: int) -> None:
    model = infer_shapes(mixed_types(np.random.default_rng(seed)))
    matched = match_types(model)
    assert matched is not model
    (name,) = (value.name for value in model.graph.output)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)}
    before, after = (
        OnnxRuntimeSession(each, optimised=False).run([name], feed) for each in (model, matched)
    )
    np.testing.assert_array_equal(after[name], before[name])


def test_a_tensor_that_several_operators_read_is_moved_once() -> None:
    matched = match_types(infer_shapes(_convolutions("uint8", "int8", count=3)))
    moved = [
        node
        for node in matched.graph.node
        if node.op_type == "QuantizeLinear" and "x" in node.output[0]
    ]
    assert len(moved) == 1


@pytest.mark.parametrize(
    ("before", "after", "weights"), [("uint8", "int8", "uint8"), ("int8", "uint8", "int8")]
)
def test_another_type_of_the_input_costs_no_cycles(before: str, after: str, weights: str) -> None:
    mixed, plain = (
        experiments.run(_convolutions(given, after, weights)).report for given in (before, after)
    )
    assert [placed.on for placed in mixed.placement if placed.op_type == "Conv"] == ["dla"]
    assert mixed.totals.cycles == plain.totals.cycles


@pytest.mark.parametrize(
    "types", [("uint8", "uint8"), ("int8", "int8"), ("uint8", "uint8", "uint8")]
)
def test_operators_of_equal_types_stay_as_they_are(types: tuple[str, ...]) -> None:
    """ONNX Runtime multiplies uint8 by integers of either type."""
    model = infer_shapes(_convolutions(*types))
    assert match_types(model) is model


@pytest.mark.parametrize("seed", range(8))
def test_a_clamp_of_joined_tensors_runs_on_integers(seed: int) -> None:
    """Operands of drawn types and scales, whose clamped and joined numbers are quantised once."""
    random = np.random.default_rng(seed)
    b = ModelBuilder()
    types = [str(name) for name in random.choice(["uint8", "int8"], int(random.integers(3, 6)))]
    scales = random.uniform(0.01, 0.1, len(types))
    inputs = {
        f"x{place}": random.integers(0, 256, SHAPE).astype(name)
        for place, name in enumerate(types[1:])
    }
    parts = [
        b.dequantize(b.input(name, SHAPE, dtype), scale, ZERO[dtype], dtype)
        for name, dtype, scale in zip(inputs, types[1:], scales[1:], strict=True)
    ]
    limits = [b.constant(limit, "float32") for limit in (-0.5, 2)] if seed % 2 else []
    clamped = b.node("Clip" if limits else "Relu", b.node("Concat", *parts, axis=1), *limits)
    b.quantize(clamped, scales[0], ZERO[types[0]], types[0], result="y")
    b.output("y", types[0])
    model = infer_shapes(b.model())
    before, after = (
        OnnxRuntimeSession(each, optimised=False).run(["y"], inputs)["y"]
        for each in (model, apply(passes(model), model))
    )
    np.testing.assert_array_equal(after, before)
    assert {placed.on for placed in experiments.run(model).report.placement} == {"dla"}
