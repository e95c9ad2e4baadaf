"""The rules of `isa.numerics` equal LiteRT's reference kernels on random cases of all operators."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.tflite.operators import ROWS, Row

CASES = 25


@pytest.mark.parametrize("row", ROWS, ids=[row.operator for row in ROWS])
def test_a_rule_equals_the_reference_kernel(row: Row) -> None:
    random = np.random.default_rng(1)
    elements = 0
    for _ in range(CASES):
        case = row.draw(random)
        for found, expected in zip(case.results(), case.expected, strict=True):
            np.testing.assert_array_equal(found, expected)
            elements += found.size
    assert elements > CASES


def test_the_page_is_of_these_rules() -> None:
    """Else run ``python -m tests.tflite --cases 2000 --output docs/numerics.md``."""
    text = (Path(__file__).parents[2] / "docs" / "numerics.md").read_text(encoding="utf-8")
    found = re.findall(
        r"^\| ([A-Z0-9_]+) \| (.+) \| (.+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \|$", text, re.MULTILINE
    )
    assert [line[:3] for line in found] == [(row.operator, row.rule, row.source) for row in ROWS]
    assert {line[5] for line in found} == {"0"}
    assert sum(int(line[4].replace(",", "")) for line in found) > 10_000_000
