"""The engines equal the tick model to the cycle, per unit and cause, on random legal programs of random machines."""

from __future__ import annotations

from tests.dla_sim.comparison import compare_seeds
from tests.dla_sim.coverage import coverage, format_coverage, missing_rows

SEEDS = range(600)


def test_engines_equal_the_tick_model() -> None:
    """``tests/dla_sim/fuzz_ticks.py`` does the same for ten thousand."""
    table = coverage(compare_seeds(SEEDS))
    print(format_coverage(table))
    assert missing_rows(table) == []
