"""No layer takes fewer cycles than its lower bound, whatever rows its windows skip."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byoc.emission.region import compile_region
from isa.arch import Arch
from tests.byoc import region_cases as cases
from tests.e2e.lower_bounds import bounds


def test_random_layers_on_random_machines() -> None:
    found = list(bounds(250, 5))
    assert [item.layer for item in found if item.cycles < item.bound] == []
    assert len(found) == 250


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
