"""``python -m tests.tflite``: the rules of `isa.numerics` against LiteRT, many random cases an operator."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tests.tflite.operators import ROWS, Row


@dataclass(frozen=True)
class Outcome:
    """How many elements of how many cases differ."""

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
        for found, expected in zip(case.results(row.resolver), case.expected, strict=True):
            same = found == expected if found.shape == expected.shape else np.zeros(found.shape, np.bool_)
            elements, mismatches = elements + found.size, mismatches + int((~same).sum())
    return Outcome(row, cases, elements, mismatches)


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: a line an operator."""
    lines = ["| operator | rule (`isa.numerics`) | cases | elements | mismatches |", "|---|---|---|---|---|"]
    for one in outcomes:
        lines.append(f"| {one.row.operator} | {one.row.rule} | {one.cases:,} | {one.elements:,} | {one.mismatches} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen operators; exit status 1 at any mismatch."""
    parser = argparse.ArgumentParser(prog="python -m tests.tflite", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="random cases an operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operator", action="append", choices=sorted({row.operator for row in ROWS}))
    chosen = parser.parse_args(arguments)
    outcomes = list(_measured(chosen.operator, chosen.cases, chosen.seed))
    print(table(outcomes))
    return int(any(one.mismatches for one in outcomes))


def _measured(operators: Sequence[str] | None, cases: int, seed: int) -> Iterator[Outcome]:
    for row in ROWS:
        if operators is None or row.operator in operators:
            yield measure(row, cases, seed)


if __name__ == "__main__":
    sys.exit(main())
