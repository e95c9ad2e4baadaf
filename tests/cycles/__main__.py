"""``python -m tests.cycles``: does everything take the cycles that are recorded?

With ``--bless``: record them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.cycles.cases import all_cases
from tests.cycles.table import FILE, Change, changes, measure, read_table, told, write_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the cycles of all cases on all machines.

    Exit status 1 when they are not as recorded.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.cycles", description=main.__doc__)
    parser.add_argument("--bless", action="store_true", help="record what is measured")
    parser.add_argument(
        "--case", metavar="NAME", action="append", default=[], help="only this case; repeatable"
    )
    parser.add_argument(
        "--fail-fast", action="store_true", help="stop at the first figure that is not as recorded"
    )
    given = parser.parse_args(arguments)
    recorded = read_table(FILE) if FILE.exists() else {}
    found: list[Change] = []
    made = {}
    cases = all_cases()
    if unknown := [name for name in given.case if name not in cases]:
        parser.error(f"no case is called '{unknown[0]}'; choose from {', '.join(cases)}")
    if given.bless and given.case:
        parser.error("all cases are recorded together; leave --case out")
    for name in given.case or cases:
        make = cases[name]
        made[name] = {}
        for machine, cycles in measure(make):
            made[name][machine] = cycles
            if given.fail_fast and recorded.get(name, {}).get(machine) != cycles:
                print(Change(name, machine, recorded.get(name, {}).get(machine), cycles))
                return 1
        found += changes(name, made[name], recorded)
    found += [
        change for name in recorded if name not in cases for change in changes(name, {}, recorded)
    ]
    if given.bless:
        write_table(made, FILE)
    if found:
        print(told(found))
    return 1 if found and not given.bless else 0


if __name__ == "__main__":
    sys.exit(main())
