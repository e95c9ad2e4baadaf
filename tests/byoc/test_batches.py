"""Batches run image by image or layer by layer, exactly.

An image of a batch moves fewer bytes than an image alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc.compiled import Region
from byoc.graph import Value
from byoc.operators.convolution import Convolution
from byoc.operators.operator import Operator
from byoc.scheduling.fusing import order_by_image
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from isa.program import Program
from tests.byoc import region_cases as cases

PLANE = 12 * 12


def _network(images: int) -> tuple[Region, dict[str, Value]]:
    """Return a network of two convolutions whose images become rows of the last product.

    It adds the results of the convolutions, takes their maxima and multiplies these by weights.
    """
    random = np.random.default_rng(5)
    first = cases.convolution(random, cases.operand("x", 4, 12, 12), "a", 8, pads=(1, 1, 1, 1))
    second = cases.convolution(random, first.output, "b", 8, pads=(1, 1, 1, 1))
    a, b = (cases.operand(name, 8 * images, 12, 12) for name in "ab")
    total = cases.add(a, b, "c")
    pool = cases.pool(total.output, "d", "max", kernel=(12, 12))
    rows = cases.operand("rows", images, 8)
    operations: tuple[Operator, ...] = (
        *(_shifted(first, image, 4 * PLANE) for image in range(images)),
        *(_shifted(second, image, 8 * PLANE) for image in range(images)),
        total, pool, cases.alias((pool.output,), rows), cases.matmul(random, rows, "y", 5),
    )  # fmt: skip
    region, values = cases.region(operations, ("x",), ("y",))
    values["x"] = Value("x", (images, 4, 12, 12), "int8")
    return region, values


def _shifted(one: Convolution, image: int, source: int) -> Convolution:
    (read,) = one.inputs
    return replace(
        one,
        inputs=(replace(read, offset=image * source),),
        output=replace(one.output, offset=image * 8 * PLANE),
    )


def _moved(program: Program) -> int:
    """Bytes that LD and ST move."""
    moves = [
        (command.registers, command.unit.name)
        for command in program.commands
        if command.unit.name != "EX"
    ]
    return sum(
        registers[f"{unit}_BYTES"]
        * int(np.prod([registers[f"{unit}_COUNT_{axis}"] for axis in (1, 2, 3)]))
        for registers, unit in moves
    )


def _cycles(program: Program) -> int:
    return ProgramTiming(program).run(Timing()).cycles


def test_images_follow_one_another_up_to_the_product_of_all() -> None:
    region, values = _network(3)
    found = order_by_image(region.operations, values, ("x", "y"))
    assert [operation.output.value for operation in found] == [
        *(name for image in range(3)
          for name in (f"a[{image}]", f"b[{image}]", f"c[{image}]", f"d[{image}]", "rows")),
        "y",
    ]  # fmt: skip
    assert [
        operation.inputs[0].offset for operation in found if operation.inputs[0].value == "x"
    ] == [0, 576, 1152]
    single, values = _network(1)
    assert order_by_image(single.operations, values, ("x", "y")) == single.operations


def test_many_rows_of_a_product_are_no_images_of_the_operator_behind_it() -> None:
    """A product whose rows look like images is not split into images.

    The region has only boundary tensors and the result of the whole product.
    """
    rows = cases.operand("rows", 500, 8)
    product = cases.matmul(np.random.default_rng(5), rows, "product", 3)
    region, values = cases.region(
        (product, cases.add(product.output, product.output, "y")), ("rows",), ("y",)
    )
    assert order_by_image(region.operations, values, ("rows", "y")) == region.operations


def test_an_order_of_too_many_operations_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    region, values = _network(3)
    monkeypatch.setattr("byoc.scheduling.fusing.MAX_OPERATIONS", 15)
    assert order_by_image(region.operations, values, ("x", "y")) == region.operations


@pytest.mark.parametrize("sram_bytes", [1536, 4096, 8192, 65_536])
def test_batches_are_exact_and_take_no_longer_an_image(sram_bytes: int) -> None:
    """Nor do they move more, where there is room to choose.

    Where all weights fit they are loaded once: an image then moves its input and its row of
    results.
    """
    arch = Arch(pe=PeArray(ic=4, oc=8, ow=1), sram_bytes=sram_bytes, sram_banks=1)
    alone = cases.compile_case(*_network(1), arch, "default")
    for images in (2, 5):
        region, values = _network(images)
        program = cases.compile_case(region, values, arch, "default")
        inputs = cases.random_inputs(region, values, images)
        wanted = cases.expected(region, values, inputs)
        np.testing.assert_array_equal(cases.execute(program, inputs)["y"], wanted["y"])
        assert _cycles(program) <= images * _cycles(alone)
        assert _moved(program) <= images * _moved(alone) or sram_bytes == 1536
        if sram_bytes == 65_536:
            assert _moved(program) == _moved(alone) + (images - 1) * (4 * PLANE + 5)
