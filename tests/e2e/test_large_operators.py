"""Drawn operators larger than the scratchpad compile, or run on the CPU; their values are right."""

from __future__ import annotations

import numpy as np
import pytest

from tests.byoc.small_models import ModelBuilder
from tests.e2e.large_operators import DrawnOperator, Machine, Outcome, Subject, draw


@pytest.mark.parametrize("isa", [None, "v5"])
@pytest.mark.parametrize("seed", range(6))
def test_drawn_operators_larger_than_the_scratchpad(seed: int, isa: str | None) -> None:
    drawn, machines = draw(seed, isa)
    subject = Subject(drawn, seed)
    for machine in machines:
        found = subject.outcome(machine)
        assert found.good, f"{drawn.text} on {machine}: {found}"


@pytest.mark.parametrize("isa", ["v1", "v3", "v4", "v5"])
def test_a_product_of_more_rows_than_a_region_has_operations(isa: str) -> None:
    """The rows are no batch: the operator behind the product is not cut into one operation a row."""
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
