"""Figures as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.figure import brief, format_figure, measure, size_text

SHOWN: list[tuple[Any, str, str]] = [
    (524288, "bytes", "512 KiB"),
    (1280 << 10, "bytes", "1.25 MiB"),
    (1 << 21, "bytes", "2 MiB"),
    (1000, "bytes", "1,000 bytes"),
    (28224, "bytes", "28,224 bytes"),
    (0, "bytes", "0 bytes"),
    (None, "bytes", ""),
    (1234567, "cycles", "1,234,567"),
    (0.123456, "", "0.1235"),
    (1234567.0, "pJ", "1,234,567"),
    ("seed", "", "seed"),
    (True, "", "True"),
]
BRIEF: list[tuple[float, str, str]] = [
    (28224, "bytes", "27.56 KiB"),
    (1 << 30, "bytes", "1 GiB"),
    (1000.7, "bytes", "1,001 bytes"),
    (15234, "cycles", "15.2k"),
    (4355, "cycles", "4,355"),
    (9242957, "cycles", "9.24M"),
    (3.5e9, "", "3.5G"),
    (0.00381, "", "0.00381"),
    (-20000, "cycles", "-20k"),
    (999999, "", "1,000k"),
]


@pytest.mark.parametrize(("value", "unit", "text"), SHOWN)
def test_in_full(value: Any, unit: str, text: str) -> None:
    assert format_figure(value, unit) == text


@pytest.mark.parametrize(("value", "unit", "text"), BRIEF)
def test_in_few_characters(value: float, unit: str, text: str) -> None:
    assert brief(value, unit) == text


def test_sizes_are_exact_where_they_are_chosen() -> None:
    sizes = [1 << 10, 1025, 1536, 100_000, 100_001, 1 << 20, (1 << 20) + 1, 5 << 18]
    assert len({size_text(size, exact=True) for size in sizes}) == len(sizes)


def test_the_unit_of_an_axis_makes_its_numbers_short() -> None:
    assert measure([]) == measure([2047, -5]) == (1, "bytes")
    assert measure([2048]) == (1024, "KiB")
    assert measure([1 << 20, 5 << 20]) == (1 << 20, "MiB")
