"""Flags: comparisons of any two tensors, logic, choices by them, numbers of them.

Exact in any tiling.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from byoc.importing import import_model
from byoc.operators.arithmetic import RELATIONS
from byoc.operators.onnx_view import BOUNDARIES
from isa.arch import Arch
from tests.byoc.oracle_check import random_feeds
from tests.byoc.small_models import ModelBuilder
from tests.byoc.test_pairs import SHAPES, SMALL, TINY, V4, exact, mnemonics
from tests.e2e.harness import Comparison, compare
from tests.rotation import rotate_parts

COMPARISONS = tuple(name for name in RELATIONS if name != "Xor")
MACHINES = (V4, "default"), (TINY, "default"), (SMALL, "seed")
Shape = tuple[int, ...]


def _numbers(rng: np.random.Generator, dtype: str) -> tuple[float, int]:
    """A scale that is often a simple multiple of others, and any zero point."""
    scale = float(rng.choice([0.25, 0.5, 0.75, rng.uniform(0.01, 1)])) * 10.0 ** int(
        rng.integers(-8, 8)
    )
    return scale, int(rng.integers(-128, 128)) + (128 if dtype == "uint8" else 0)


def _operand(
    builder: ModelBuilder, name: str, shape: Shape, dtype: str, rng: Any, constant: bool = False
) -> str:
    if constant:
        name = builder.constant(rng.integers(0, 256, shape, np.uint8).view(dtype), dtype, name)
    else:
        name = builder.input(name, shape, dtype)
    return builder.dequantize(name, *_numbers(rng, dtype), dtype)


def _comparison(
    op_type: str, shapes: tuple[Shape, ...], dtype: str, seed: int, constant: int = -1
) -> onnx.ModelProto:
    builder = ModelBuilder()
    rng = np.random.default_rng(seed)
    operands = [
        _operand(builder, name, shape, dtype, rng, number == constant)
        for number, (name, shape) in enumerate(zip("ab", shapes, strict=True))
    ]
    builder.node(op_type, *operands, name="op", result="y")
    builder.output("y", "bool")
    return builder.model()


@pytest.mark.parametrize(
    ("op_type", "dtype"), rotate_parts([*product(COMPARISONS, ["int8", "uint8"])], 3)
)
def test_every_pair_of_values_is_compared_as_in_float(op_type: str, dtype: str) -> None:
    every = np.arange(256, dtype=np.uint8).view(dtype)
    feeds = {"a": every[:, np.newaxis], "b": every[np.newaxis]}
    for seed in range(6):
        package = import_model(_comparison(op_type, ((256, 1), (1, 256)), dtype, seed), "pairs")
        assert compare(package, feeds, V4).mismatches == 0


@pytest.mark.parametrize("case", rotate_parts([*SHAPES], 4))
def test_operands_of_any_shapes_are_compared(case: str) -> None:
    """Both computed, and either constant."""
    turns = case == "in turns"
    for seed, op_type in enumerate(COMPARISONS[: 2 if turns else None]):
        machines = ((V4, "default"), (SMALL, "default")) if turns else MACHINES
        model = _comparison(op_type, SHAPES[case], ("int8", "uint8")[seed % 2], seed, seed % 3 - 1)
        assert exact(model, *machines) <= {"OP_E_SUB", "OP_LUT"}


def test_numbers_far_apart_are_refused_and_so_are_two_scales_of_integers_alone() -> None:
    def reason(scales: tuple[float, float], **settings: Any) -> str | None:
        builder = ModelBuilder()
        a, b = (
            builder.dequantize(builder.input(n, (5,), "int8"), s)
            for n, s in zip("ab", scales, strict=True)
        )
        builder.node("Greater", a, b, name="op", result="y")
        builder.output("y", "bool")
        model = builder.model()
        found = compare(
            import_model(model, "far"), random_feeds(model, 0), Arch(isa="v4", **settings)
        )
        assert found.mismatches == 0
        return next(
            place.reason for place in found.partition.placement if place.op_type == "Greater"
        )

    assert "the scale of 'b' is 1e-20; the scales of the compared tensors are" in str(
        reason((0.1, 1e-20))
    )
    assert reason((0.1, 0.1), numerics="fixed") is None
    assert "both compared tensors have the same scale" in str(reason((0.1, 0.2), numerics="fixed"))


@pytest.mark.parametrize("op_type", ["And", "Or", "Xor", "Equal"])
@pytest.mark.parametrize("case", ["equal", "value a channel", "row", "outer product", "in turns"])
def test_logic(case: str, op_type: str) -> None:
    builder = ModelBuilder()
    a, b = (
        builder.input(name, shape, "bool") for name, shape in zip("ab", SHAPES[case], strict=True)
    )
    builder.node("Not", builder.node(op_type, a, b, name="op"), name="not", result="y")
    builder.output("y", "bool")
    model = builder.model()
    for arch, schedule in (V4, "default"), (SMALL, "default"), (SMALL, "seed"):
        found = compare(import_model(model, "logic"), random_feeds(model, 1), arch, schedule)
        assert found.mismatches == 0
        assert [place.on for place in found.partition.placement] == ["dla", "dla"]


CHOICES: dict[str, tuple[Shape, Shape, Shape]] = {
    "equal": ((2, 3, 7, 11),) * 3,
    "row chooses": ((40,), (9, 40), (9, 40)),
    "channel of others": ((1, 6, 4, 5), (6, 1, 1), (1, 6, 4, 5)),
    "one number": ((3, 7, 30), (3, 7, 30), ()),
    "outer product": ((6, 1, 1), (1, 5, 1), (1, 1, 4)),
    "plane for all": ((1, 1, 9, 9), (2, 3, 9, 9), ()),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("constant", ["", "c", "x", "y", "cy", "xy"])
@pytest.mark.parametrize("case", CHOICES)
def test_choices(case: str, constant: str, dtype: str) -> None:
    """Any of the three constant, scales apart or alike."""
    builder = ModelBuilder()
    rng = np.random.default_rng(len(case) + len(constant))
    shapes = dict(zip("cxy", CHOICES[case], strict=True))
    flags = np.asarray(rng.random(shapes["c"]) < 0.5)
    condition = (
        builder.constant(flags, "bool")
        if "c" in constant
        else builder.input("c", shapes["c"], "bool")
    )
    numbers = (0.25, 100)
    operands = []
    for name in "xy":
        data = rng.integers(0, 256, shapes[name], np.uint8).view(dtype)
        stored = (
            builder.constant(data, dtype)
            if name in constant
            else builder.input(name, shapes[name], dtype)
        )
        operands.append(
            builder.dequantize(stored, *(numbers if name == "x" else (0.11, 17)), dtype)
        )
    builder.quantize(
        builder.node("Where", condition, *operands, name="op"), *numbers, dtype, result="z"
    )
    builder.output("z", dtype)
    used = exact(builder.model(), *MACHINES)
    assert used <= {"OP_LUT", "OP_C_MIN", "OP_C_MAX", "OP_B_MIN", "OP_ACT_LRELU"}


@pytest.mark.parametrize("constant", [False, True])
def test_a_choice_that_carries_its_quantisations(constant: bool) -> None:
    builder = ModelBuilder()
    rng = np.random.default_rng(0)
    stored = builder.constant(rng.integers(0, 256, (5, 1)), "uint8")
    operands = [builder.input("c", (5, 9), "bool")]
    for name, scale, zero in (("x", 0.05, 3), ("y", 0.02, 200)):
        data = stored if constant and name == "y" else builder.input(name, (5, 9), "uint8")
        operands += [data, builder.constant(scale, "float32"), builder.constant(zero, "uint8")]
    operands += [builder.constant(0.07, "float32"), builder.constant(100, "uint8")]
    builder.node("QLinearWhere", *operands, name="op", domain="com.microsoft", result="z")
    builder.output("z", "uint8")
    exact(builder.model(), *MACHINES)


def test_bare_integers_are_compared_and_chosen() -> None:
    builder = ModelBuilder()
    a, b = (builder.input(name, (3, 40), "uint8") for name in "ab")
    larger = builder.node("Greater", a, b)
    builder.node("Where", larger, a, b, result="y")
    builder.output("y", "uint8")
    model = builder.model()
    found = compare(import_model(model, "bare"), random_feeds(model, 0), V4)
    assert (found.mismatches, {place.on for place in found.partition.placement}) == (0, {"dla"})


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_whether_any_or_all_of_a_row_are_set(op_type: str, dtype: str) -> None:
    """And the extremes of bare integers."""
    builder = ModelBuilder()
    builder.node(
        op_type,
        builder.input("x", (3, 2, 5), dtype),
        builder.constant([1], "int64"),
        name="op",
        result="y",
    )
    builder.output("y", dtype)
    exact(builder.model(), *MACHINES)


def _quantised(
    builder: ModelBuilder, feeds: dict[str, NDArray[Any]], arch: Arch = V4
) -> Comparison:
    found = compare(import_model(builder.model(), "float", calibration=[feeds]), feeds, arch)
    assert found.mismatches == 0
    return found


def _on_the_cpu(found: Comparison) -> set[str]:
    return {place.op_type for place in found.partition.placement if place.on == "cpu"} - BOUNDARIES


def test_flags_of_one_tensor_are_one_table_wherever_they_go() -> None:
    """Out of the accelerator, into a choice, into numbers."""
    builder = ModelBuilder()
    rng = np.random.default_rng(0)
    x = builder.input("x", (2, 50))
    y = builder.input("y", (2, 50))
    low = builder.constant(-0.5, "float32")
    high = builder.constant(0.5, "float32")
    inside = builder.node(
        "And", builder.node("Greater", x, low), builder.node("Less", x, high), result="inside"
    )
    builder.node("Where", inside, y, x, result="z")
    builder.node(
        "Mul", builder.node("Cast", inside, to=onnx.TensorProto.FLOAT), high, result="half"
    )
    for name, dtype in (("inside", "bool"), ("z", "float32"), ("half", "float32")):
        builder.output(name, dtype)
    feeds = {name: rng.standard_normal((2, 50)).astype(np.float32) for name in "xy"}
    found = _quantised(builder, feeds)
    assert _on_the_cpu(found) == set()
    assert [node.op_type for node in found.network.graph.nodes if node.integer].count("Table") == 2


@pytest.mark.parametrize("least", [-np.inf, -1e9])
def test_what_hides_scores_leaves_them_their_range(least: float) -> None:
    """The large negative number of an attention mask does not widen the range of the scores.

    It is clamped to where the result of softmax is zero.
    """
    builder = ModelBuilder()
    rng = np.random.default_rng(0)
    x = builder.node(
        "MatMul",
        builder.input("x", (1, 12, 8)),
        builder.constant(rng.standard_normal((8, 12)), "float32"),
    )
    mask = builder.constant(np.tri(12, dtype=bool), "bool")
    hidden = builder.node("Where", mask, x, builder.constant(least, "float32"), name="hide")
    builder.node("Softmax", hidden, result="y")
    builder.output("y")
    found = _quantised(builder, {"x": rng.standard_normal((1, 12, 8)).astype(np.float32)})
    assert _on_the_cpu(found) == set()
    node = next(node for node in found.network.graph.nodes if node.op_type == "Where")
    result = found.network.graph.values[node.outputs[0]].quantization
    assert result is not None
    assert result.scale < 0.2


def test_flags_between_operators_of_the_cpu_stay_there() -> None:
    builder = ModelBuilder()
    rng = np.random.default_rng(0)
    x = builder.input("x", (1, 3, 6, 6))
    made = builder.node("Conv", x, builder.constant(rng.standard_normal((3, 3, 1, 1)), "float32"))
    hard = builder.node("Hardmax", made, axis=1)
    flags = builder.node("Cast", hard, to=onnx.TensorProto.BOOL)
    both = builder.node(
        "And", flags, builder.node("Cast", builder.node("Hardmax", made), to=onnx.TensorProto.BOOL)
    )
    builder.node("Not", both, result="y")
    builder.output("y", "bool")
    found = _quantised(builder, {"x": rng.standard_normal((1, 3, 6, 6)).astype(np.float32)})
    assert {"And", "Table"} <= _on_the_cpu(found)  # the table is that of Not
    assert "OP_LUT" not in mnemonics(found)
