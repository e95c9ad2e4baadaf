"""The recorded cycles: a line a case, a column a machine.

How they are measured, compared and written.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.files import write_atomically
from tests.cycles.cases import MACHINES, Compile

FILE = Path(__file__).with_name("cycles.csv")
BLESS = "python -m tests.cycles --bless"
Table = Mapping[str, Mapping[str, int]]
"""Cycles by case and machine."""


@dataclass(frozen=True)
class Change:
    """A difference between the recorded and the found cycles of a case on a machine.

    None: no cycles are recorded, or the case does not run.
    """

    case: str
    machine: str
    recorded: int | None
    found: int | None

    def __str__(self) -> str:
        """Describe case, machine, both figures and their difference in per cent."""
        share = ""
        if self.recorded and self.found is not None:
            share = f" ({(self.found - self.recorded) / self.recorded:+.2%})"
        return (
            f"{self.case} on {self.machine}: {_told(self.recorded)} -> {_told(self.found)}{share}"
        )


def _told(cycles: int | None) -> str:
    return "nothing" if cycles is None else f"{cycles:,}"


def measure(
    make: Callable[[], Compile], machines: Iterable[str] = tuple(MACHINES)
) -> Iterator[tuple[str, int]]:
    """Yield each machine and the cycles of a case on it, under the default Timing."""
    compiled = make()
    for name in machines:
        programs = compiled(MACHINES[name])
        yield name, sum(ProgramTiming(program).run(Timing()).cycles for program in programs)


def changes(case: str, found: Mapping[str, int], recorded: Table) -> list[Change]:
    """Return the differences between a case and its record.

    Fewer cycles are a difference too.
    """
    wanted = recorded.get(case, {})
    both = (
        (machine, wanted.get(machine), found.get(machine))
        for machine in (*MACHINES, *(wanted.keys() - MACHINES))
    )
    return [
        Change(case, machine, before, after) for machine, before, after in both if before != after
    ]


def read_table(file: Path = FILE) -> Table:
    """Read the recorded cycles."""
    with file.open(encoding="utf-8", newline="") as lines:
        return {
            row.pop("case"): {machine: int(cycles) for machine, cycles in row.items()}
            for row in csv.DictReader(lines)
        }


def write_table(table: Table, file: Path = FILE) -> None:
    """Record these."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("case", *MACHINES))
    rows.writerows(
        (case, *(found[machine] for machine in MACHINES)) for case, found in table.items()
    )
    write_atomically(file, text.getvalue())


def told(found: Sequence[Change]) -> str:
    """Describe the changes by name, their number, and the remedy."""
    lines = [str(change) for change in found]
    more = sum(1 for change in found if (change.found or 0) > (change.recorded or 0))
    lines.append(
        f"{len(found)} figures are not as recorded, {more} of them larger; if that is "
        f"meant: {BLESS}"
    )
    return "\n".join(lines)
