"""Compare the engines with the tick model on many seeds.

Run ``python -m tests.dla_sim.fuzz_ticks --count 10000``. It prints the coverage table and exits
with 1 and the shrunk case at the first seed that differs, or if a row was not covered.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

from tests.dla_sim.comparison import compare_seeds
from tests.dla_sim.coverage import coverage, format_coverage, missing_rows
from tests.dla_sim.program_generator import COMPUTE, ISA
from tests.dla_sim.tick import TickResult


def main() -> int:
    """Exit status: 0 all equal and everything covered, 1 otherwise."""
    parser = argparse.ArgumentParser(
        description="Hold the engines to the tick model on random programs."
    )
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument(
        "--isa", choices=tuple(COMPUTE), default=ISA, help="of machines of words or of others"
    )
    parser.add_argument("--count", type=int, default=10_000, help="number of seeds")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.count)
    begun = time.perf_counter()
    cycles = [0]
    try:
        table = coverage(
            _counted(compare_seeds(seeds, arguments.isa), cycles, arguments.count), arguments.isa
        )
    except AssertionError as error:
        print(error)
        return 1
    print(format_coverage(table))
    missing = missing_rows(table)
    seconds = time.perf_counter() - begun
    print(
        f"{arguments.count} programs, {cycles[0]} cycles, all equal, {seconds:.0f} s; rows not "
        f"covered: {missing}"
    )
    return 1 if missing else 0


def _counted(results: Iterable[TickResult], cycles: list[int], count: int) -> Iterator[TickResult]:
    """The results, with progress on a terminal and the cycles summed up."""
    for number, result in enumerate(results, start=1):
        cycles[0] += result.total
        if sys.stderr.isatty() and number % 100 == 0:
            print(f"\r{number}/{count}", end="", file=sys.stderr)
        yield result


if __name__ == "__main__":
    sys.exit(main())
