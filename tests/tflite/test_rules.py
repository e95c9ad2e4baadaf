"""The rules of `isa.numerics` equal LiteRT's reference kernels on random cases of every operator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tflite.operators import ROWS, Row

CASES = 25


@pytest.mark.parametrize("row", ROWS, ids=[row.operator for row in ROWS])
def test_a_rule_equals_the_reference_kernel(row: Row) -> None:
    random, elements = np.random.default_rng(1), 0
    for _ in range(CASES):
        case = row.draw(random)
        for found, expected in zip(case.results(row.resolver), case.expected, strict=True):
            np.testing.assert_array_equal(found, expected)
            elements += found.size
    assert elements > CASES
