"""``python -m tests.tflite``: compare the rules of `isa.numerics` with LiteRT.

Each operator has many random cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isa.files import write_atomically
from tests.tflite.operators import ROWS, Row

HEADER = "| operator | rule | source | cases | elements | mismatches |"
"""Where the table of the page begins."""


@dataclass(frozen=True)
class Outcome:
    """Number of cases, and of compared and differing elements, of a row."""

    row: Row
    cases: int
    elements: int
    mismatches: int


def measure(row: Row, cases: int, seed: int) -> Outcome:
    """Random cases of a row, by its rule and by LiteRT."""
    random = np.random.default_rng(seed)
    elements = mismatches = 0
    for _ in range(cases):
        case = row.draw(random)
        for found, expected in zip(case.results(), case.expected, strict=True):
            same = (
                found == expected
                if found.shape == expected.shape
                else np.zeros(found.shape, np.bool_)
            )
            elements = elements + found.size
            mismatches = mismatches + int((~same).sum())
    return Outcome(row, cases, elements, mismatches)


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: a line an operator."""
    lines = [HEADER, "|---|---|---|---|---|---|"]
    for one in outcomes:
        row = one.row
        counts = f"{one.cases:,} | {one.elements:,} | {one.mismatches}"
        lines.append(f"| {row.operator} | {row.rule} | {row.source} | {counts} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen operators; exit status 1 at any mismatch."""
    parser = argparse.ArgumentParser(prog="python -m tests.tflite", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="random cases an operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--operator", action="append", choices=sorted({row.operator for row in ROWS})
    )
    parser.add_argument(
        "--output", type=Path, help="a page (docs/numerics.md) whose last table becomes this one"
    )
    chosen = parser.parse_args(arguments)
    rows = [row for row in ROWS if chosen.operator is None or row.operator in chosen.operator]
    outcomes = [measure(row, chosen.cases, chosen.seed) for row in rows]
    print(table(outcomes), end="")
    if chosen.output is not None:
        text = chosen.output.read_text(encoding="utf-8").partition(HEADER)[0]
        write_atomically(chosen.output, text + table(outcomes))
    return int(any(one.mismatches for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
