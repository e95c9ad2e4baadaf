"""Drawn operators larger than the scratchpad compile, or run on the CPU; their values are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.byoc.small_models import ModelBuilder
from tests.e2e.large_operators import DrawnOperator, Machine, Outcome, Subject, draw
from tests.rotation import rotate


@pytest.mark.parametrize("isa", [None, "v5"])
@pytest.mark.parametrize("seed", rotate(range(6), 3))
def test_drawn_operators_larger_than_the_scratchpad(seed: int, isa: str | None) -> None:
    drawn, machines = draw(seed, isa)
    subject = Subject(drawn, seed)
    for machine in machines:
        found = subject.outcome(machine)
        assert found.good, f"{drawn.text} on {machine}: {found}"


@pytest.mark.parametrize("isa", ["v1", "v3", "v4", "v5"])
def test_a_product_of_more_rows_than_a_region_has_operations(isa: str) -> None:
    """Rows of a large product are no batch.

    The operator behind the product is not split into one operation a row.
    """
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (10_500, 8), "int8"), 0.1)
    weights = np.random.default_rng(0).integers(-127, 128, (8, 2)).astype(np.int8)
    product = builder.quantize(builder.node("MatMul", x, builder.weights(weights, 0.02)), 0.5)
    read = builder.dequantize(product, 0.5)
    builder.quantize(builder.node("Add", read, read), 0.5, result="y")
    builder.output("y", "int8")
    subject = Subject(DrawnOperator(builder.model(), "rows"), 0)
    machine = Machine(isa, {"sram_bytes": 32_768})
    assert subject.outcome(machine) == Outcome("accelerator", "")


def _reduced() -> ModelBuilder:
    builder = ModelBuilder(opset=18)
    x = builder.dequantize(builder.input("x", (20, 5, 20), "int8"), 0.05)
    axes = builder.constant([1, 2], "int64")
    mean = builder.quantize(builder.node("ReduceMean", x, axes, keepdims=0), 0.05)
    builder.quantize(builder.node("Relu", builder.dequantize(mean, 0.05)), 0.05, result="y")
    return builder


def _added() -> ModelBuilder:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (3, 70, 115), "int8"), 0.05)
    builder.quantize(builder.node("Add", x, x), 0.1, result="y")
    return builder


@pytest.mark.parametrize(("make", "array"), [(_reduced, 8), (_added, 16)])
def test_copies_between_layouts_fit_into_a_small_scratchpad(
    make: Callable[[], ModelBuilder], array: int
) -> None:
    """Copies are cut into parts that tiles can hold.

    An order of images that needs more than that is not chosen.
    """
    builder = make()
    builder.output("y", "int8")
    subject = Subject(DrawnOperator(builder.model(), "copies"), 0)
    machine = Machine("v5", {"pe.ic": array, "pe.oc": array, "sram_bytes": 512, "sram_banks": 4})
    assert subject.outcome(machine) == Outcome("accelerator", "")
