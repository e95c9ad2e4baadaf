"""No layers take fewer cycles than their bounds, even if windows skip rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import experiments
from byoc.emission.region import compile_region
from byoc.estimate.account import LayerCost
from byoc.estimate.constants import COMMAND_OVERHEAD
from byoc.operators.layer import make_layer
from byoc.options import SCHEDULES
from isa.arch import Arch
from isa.instruction import ceil_div
from tests.byoc import region_cases as cases
from tests.e2e.lower_bounds import bounds, random_layers, random_machine
from tests.rotation import rotate


@pytest.mark.parametrize("seed", rotate(range(5, 9), 4))
def test_random_layers_on_random_machines(seed: int) -> None:
    found = list(bounds(50, seed))
    assert [item.layer for item in found if item.below] == []
    assert len(found) == 50


def test_no_tiling_computes_in_less_than_the_demand() -> None:
    """Every size of tile that the search may choose, by the estimates that it goes by."""
    random = np.random.default_rng(11)
    for _ in range(60):
        arch, _ = random_machine(random)
        layer = random_layers(random)[0]
        geometry = make_layer(layer, arch).geometry
        cost = LayerCost(geometry, arch)
        nest = geometry.nest
        least = cost.compute.least()
        for channels, rows, depth in product(
            *(sizes(random, size) for size in (nest.channels, nest.rows, 1))
        ):
            chunks = (
                sizes(random, nest.input_channels)[:-1] if depth and geometry.splits_depth else []
            )
            for deep in (0, *chunks):
                tiles = ceil_div(nest.channels, channels) * ceil_div(nest.rows, rows)
                tiles *= ceil_div(nest.input_channels, deep) if deep else 1
                commands = nest.channels * ceil_div(nest.rows, rows) if geometry.single else tiles
                compute = cost.shape(channels, rows, deep).compute - COMMAND_OVERHEAD * commands
                assert compute >= least.cycles
                assert commands >= least.commands


def sizes(random: np.random.Generator, most: int) -> list[int]:
    """Some sizes up to ``most``, which is the last."""
    return [*sorted({1, *random.integers(1, most + 1, 4).tolist()} - {most}), most]


def test_fusion_is_part_of_the_demand() -> None:
    """A function of a result costs nothing, whether the schedule fuses it or not."""
    random = np.random.default_rng(0)
    arch = Arch(isa="v4")
    convolution = cases.convolution(random, cases.operand("x", 8, 9, 9), "y", 16)
    follower = cases.unary(convolution.output, "z", "relu")
    found = []
    for layers in ((convolution,), (convolution, follower)):
        region, values = cases.region(layers, ("x",), (layers[-1].output.value,))
        found += [
            compile_region(region, values, arch, schedule)[1].demand for schedule in SCHEDULES
        ]
    assert len(set(found)) == 1
    assert found[0].nbytes == 8 * 9 * 9 + 16 * 7 * 7 + 16 * (8 * 9 + 8)


def test_rows_that_windows_skip_need_not_be_moved() -> None:
    """Kernel 1, stride 3 on 9 rows of 8: rows 0, 3 and 6 of each channel; without strides, all."""
    random = np.random.default_rng(0)
    x = cases.operand("x", 2, 9, 8)
    skipping = cases.convolution(random, x, "y", 4, kernel=(1, 1), strides=(3, 1))
    constants = 4 * 8 + 4 * 2
    for operation, read in ((skipping, 2 * 3 * 8), (replace(skipping, strides=(1, 1)), None)):
        rows = (9 - 1) // operation.strides[0] + 1
        shaped = replace(operation, output=cases.operand("y", 4, rows, 8))
        region, values = cases.region((shaped,), ("x",), ("y",))
        _, report = compile_region(region, values, Arch())
        assert report.compulsory_bytes == (read or 2 * 9 * 8) + 4 * rows * 8 + constants


def test_the_roofline_is_no_lower_than_the_lower_bound() -> None:
    """It was by 16 cycles of 34,872."""
    totals = experiments.run("autoencoder", settings=["sram_bytes=64KiB"]).report.totals
    assert totals.roofline_cycles is not None
    assert totals.roofline_cycles >= totals.lower_bound_cycles


def test_what_two_layers_read_is_counted_once() -> None:
    random = np.random.default_rng(0)
    x = cases.operand("x", 2, 9, 8)
    first = cases.convolution(random, x, "y", 4, kernel=(1, 1), strides=(3, 1))
    second = cases.convolution(random, x, "z", 4, kernel=(1, 1), strides=(2, 1))
    region, values = cases.region((first, second), ("x",), ("y", "z"))
    _, report = compile_region(region, values, Arch())
    rows = {0, 3, 6} | {0, 2, 4, 6, 8}
    constants = 64 + 4 * 8 + 4 * 2  # each packed tile begins at a multiple of 64
    assert report.compulsory_bytes == 2 * len(rows) * 8 + 4 * (3 + 5) * 8 + constants
