"""Run all cases of the lanes in Verilator.

The command is ``python -m tests.dla_sim.rtl.lanes --vectors 1000000 --folder FOLDER [--only
NAME]``. Executables stay in FOLDER.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.dla_sim.rtl.lanes import float_cases, pair_cases, row_cases, sum_cases
from tests.dla_sim.rtl.vectors import compiled

CASES = (*float_cases.CASES, *pair_cases.CASES, *sum_cases.CASES, *row_cases.CASES)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for case in CASES:
        if arguments.only not in case.name:
            continue
        inputs = case.vectors(arguments.seed, arguments.vectors, pipelined=False)
        wrong = case.wrong(inputs, compiled(case.make(False), inputs, arguments.folder))
        print(
            f"{case.name}: {arguments.vectors:,} vectors,",
            "; ".join(wrong) or "0 differences",
            flush=True,
        )


if __name__ == "__main__":
    _main()
