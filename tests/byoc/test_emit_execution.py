"""Programs of all operator families equal the operations' records to the bit.

They run in stream order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from byoc.compiled import Region
from byoc.emission.region import shortage
from byoc.graph import Value
from byoc.operators.convolution import Convolution
from byoc.operators.operator import Operator
from byoc.options import SCHEDULES, Schedule
from isa.arch import Arch, PeArray
from tests.byoc import region_cases as cases
from tests.byoc.ordering import unordered_conflicts
from tests.isa.legality import check_legality

Case = tuple[Region, dict[str, Value]]


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def single(operation: Operator) -> Case:
    inputs = tuple(dict.fromkeys(item.value for item in operation.inputs))
    return cases.region((operation,), inputs, (operation.output.value,))


X = cases.operand("x", 6, 13, 11)

FAMILIES: dict[str, Callable[[], Operator]] = {
    "convolution": lambda: cases.convolution(rng(), X, "y", 10, pads=(1, 1, 1, 1)),
    "strided": lambda: cases.convolution(
        rng(), X, "y", 5, kernel=(3, 2), strides=(2, 3), pads=(0, 1, 1, 0)
    ),
    "dilated": lambda: cases.convolution(rng(), X, "y", 3, dilations=(2, 1), pads=(2, 0, 2, 0)),
    "pointwise": lambda: cases.convolution(rng(), X, "y", 17, kernel=(1, 1)),
    "accumulators": lambda: cases.convolution(rng(), X, "y", 5, pads=(1, 1, 1, 1), wide=True),
    "depthwise": lambda: cases.convolution(rng(), X, "y", 6, pads=(1, 1, 1, 1), depthwise=True),
    "multiplier": lambda: cases.convolution(
        rng(), X, "y", 24, pads=(1, 0, 1, 0), strides=(2, 1), depthwise=True
    ),
    "matmul": lambda: cases.matmul(rng(), cases.operand("x", 9, 33), "y", 21),
    "gemm": lambda: cases.matmul(rng(), cases.operand("x", 1, 70), "y", 45),
    "wide_matmul": lambda: cases.matmul(rng(), cases.operand("x", 5, 16), "y", 12, wide=True),
    "max_pool": lambda: cases.pool(X, "y", "max", kernel=(3, 3), pads=(1, 1, 1, 1)),
    "average_pool": lambda: cases.pool(
        X, "y", "average", kernel=(3, 2), pads=(1, 0, 1, 1), offset=128
    ),
    "padded_average": lambda: cases.pool(
        X, "y", "average", kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True
    ),
    "global_average": lambda: cases.pool(X, "y", "global_average", offset=128),
    "add": lambda: cases.add(X, cases.operand("z", *X.shape), "y"),
    "add_unsigned": lambda: cases.add(X, cases.operand("z", *X.shape), "y", offset=128),
    "add_itself": lambda: cases.add(X, X, "y"),
    "relu": lambda: cases.unary(X, "y", "relu"),
    "leaky_relu": lambda: cases.unary(X, "y", "leaky_relu"),
    "absolute": lambda: cases.unary(X, "y", "abs"),
    "minimum": lambda: cases.minmax(X, cases.operand("z", *X.shape), "y", "min"),
    "maximum": lambda: cases.minmax(X, cases.operand("z", *X.shape), "y", "max"),
    "copy": lambda: cases.alias((X,), cases.operand("y", 6, 143)),
}


def check(case: Case, arch: Arch, schedule: Schedule) -> None:
    made, values = case
    program = cases.compile_case(made, values, arch, schedule)
    inputs = cases.random_inputs(made, values, seed=3)
    results = cases.execute(program, inputs)
    wanted = cases.expected(made, values, inputs)
    for name in made.outputs:
        np.testing.assert_array_equal(results[name], wanted[name], err_msg=name)
    check_legality(program.commands)
    assert unordered_conflicts(program.commands, arch) == []


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sram", [16 * 1024, 1920, 1024])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_one_operation(family: str, sram: int, schedule: Schedule) -> None:
    arch = Arch(sram_bytes=sram, pe=PeArray(ic=2, oc=4, ow=1))
    operation = FAMILIES[family]()
    if shortage(operation, arch, schedule) is None:
        check(single(operation), arch, schedule)
    else:
        assert sram < 16 * 1024


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("family", ["depthwise", "multiplier"])
def test_emulated_depthwise(family: str, schedule: Schedule) -> None:
    operation = FAMILIES[family]()
    assert isinstance(operation, Convolution)
    check(single(replace(operation, emulated=True)), Arch(isa="v1", sram_bytes=2048), schedule)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_tiles_make_no_difference_under_fixed_numerics(family: str) -> None:
    """The record's reference is ONNX Runtime's numerics; here the untiled program stands for it."""
    made, values = single(FAMILIES[family]())
    inputs = cases.random_inputs(made, values, seed=5)
    machines: list[tuple[int, Schedule]] = [
        (1 << 20, "default"),
        (2048, "default"),
        (1 << 20, "seed"),
    ]
    results = [
        cases.execute(
            cases.compile_case(made, values, Arch(sram_bytes=sram, numerics="fixed"), schedule),
            inputs,
        )["y"]
        for sram, schedule in machines
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def residual_network() -> Case:
    """Return a residual network: convolutions, a shortcut, a concatenation and a classifier.

    Its pool is also an output.
    """
    random = rng()
    first = cases.convolution(random, cases.operand("x", 3, 16, 12), "a", 8, pads=(1, 1, 1, 1))
    second = cases.convolution(random, first.output, "b", 8, pads=(1, 1, 1, 1), depthwise=True)
    third = cases.convolution(random, second.output, "c", 8, kernel=(1, 1))
    total = cases.add(third.output, first.output, "d")
    pooled = cases.pool(total.output, "p", "max")
    left = cases.convolution(random, pooled.output, "l", 4, kernel=(1, 1))
    right = cases.convolution(random, pooled.output, "r", 6, pads=(1, 1, 1, 1))
    joined = cases.alias((left.output, right.output), cases.operand("j", 10, 8, 6), (0, 4 * 48))
    flat = cases.alias((joined.output,), cases.operand("f", 1, 480))
    logits = cases.matmul(random, flat.output, "y", 13)
    operations = (first, second, third, total, pooled, left, right, joined, flat, logits)
    return cases.region(operations, ("x",), ("p", "y"))


def grouped_network() -> Case:
    """Two groups of a convolution read and write slices.

    The result is a slice of a concatenation with the input.
    """
    random = rng()
    x = cases.operand("x", 4, 9, 9)
    halves = [
        cases.convolution(
            random,
            cases.operand("x", 2, 9, 9, offset=162 * index),
            f"g{index}",
            3,
            pads=(1, 1, 1, 1),
        )
        for index in range(2)
    ]
    parts = cases.alias(
        tuple(half.output for half in halves), cases.operand("g", 6, 9, 9), (0, 243)
    )
    joined = cases.alias((cases.operand("g", 6, 9, 9), x), cases.operand("j", 10, 9, 9), (0, 486))
    last = cases.convolution(random, cases.operand("j", 10, 9, 9), "y", 5, kernel=(1, 1))
    return cases.region((*halves, parts, joined, last), ("x",), ("j", "y"))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sram", [1 << 20, 8192, 5120, 4096, 3072])
@pytest.mark.parametrize("network", [residual_network, grouped_network])
def test_networks(network: Callable[[], Case], sram: int, schedule: Schedule) -> None:
    arch = Arch(sram_bytes=sram, pe=PeArray(ic=4, oc=4, ow=1))
    made, values = network()
    if all(shortage(operation, arch, schedule) is None for operation in made.operations):
        check((made, values), arch, schedule)
    else:
        assert schedule == "seed"
        assert sram < 8192
