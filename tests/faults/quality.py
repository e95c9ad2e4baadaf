"""``python -m tests.faults.quality``: seed faults into the compiler's choices.

Faults are in estimates, schedules and quantisation. Programs stay right and take more cycles, or
models lose bits. The recorded cycles (:mod:`tests.cycles`) or the tests that a fault names must
detect them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.compiler import write_markdown
from isa.errors import InputError
from tests.faults.fault import CHOICES, WORDS, Fault, choose_faults, seeded_faults
from tests.faults.run import SECONDS, Finding, copied_packages, missed_text

ROOT = Path(__file__).parents[2]
MUTANTS = (
    # Those that quick tests once did not see.
    "least-is-a-sum", "constants-kept-one-late", "inputs-never-kept", "groups-at-any-price",
    "ahead-forgets-what-was", "kernel-odd-zero-point",
    # Tiling.
    "search-takes-the-last", "sums-cut-though-good", "one-loop-order", "channels-not-by-lanes",
    # Scheduling.
    "nothing-stays", "groups-though-dearer", "deadline-without-stores", "loads-not-moved-ahead",
    # Numerics.
    "requantise-half-up", "requantise-zero-point-before-rounding", "high-multiply-truncates",
    "divide-ties-up", "shift-even-is-odd", "saturates-at-126",
    # The engine.
    "token-not-taken", "drain-forgotten", "bus-favours-fetch", "burst-not-split",
)  # fmt: skip
"""A sample from all packages, which ``--mutants`` seeds. A quick test must detect each."""
CYCLES = "cycles"
"""The level of what the recorded cycles see."""

MARKS = ("<!-- tests.faults.quality -->", "<!-- end -->")
_HEAD = """## Faults in the compiler's choices

This section shows which seeded faults in the compiler's choices the tests detect. With such a fault
the compiler's results stay correct but become worse: programs take more cycles, or tensors get
other quantisation scales. `python -m tests.faults.quality -o docs/faults.md` writes the section; do
not edit it.

A seeded fault replaces one piece of source text in a copy of the packages; `tests/faults/*.toml`
contains the texts. One of two checks must detect each fault in the compiler's choices, except the
equivalent faults below:

- **Recorded cycles.** `python -m tests.cycles` compiles programs for several machines and compares
  their cycles with a record. Fewer cycles are a difference too. The table shows the first case and
  machine that differ, with the cycles before and after the fault. The cycles in a row are from the
  run that wrote the row; with a later version of the compiler they may be others.
- **A quick test.** For faults in the quantisation, a fast test of the project must fail. The table
  shows the name of the test.
"""


def mutants() -> tuple[Fault, ...]:
    """The faults of :data:`MUTANTS`."""
    return choose_faults(MUTANTS, (*seeded_faults(CHOICES), *seeded_faults()))


def seed_all(faults: Sequence[Fault], jobs: int) -> Iterator[Finding]:
    """The finding of each fault, in order, ``jobs`` at a time.

    Raises InputError for a fault that fits no source.
    """
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(seed, faults)


def seed(fault: Fault) -> Finding:
    """Check ``fault`` in a copy of the packages, in a process of its own."""
    with copied_packages() as folder:
        fault.apply(folder)
        (folder / "tests").symlink_to(ROOT / "tests")
        (folder / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
        if fault.tests:
            return _tested(fault, folder)
        first = ["--case", fault.case] if fault.case else []
        return _timed(fault, folder, ["-m", "tests.cycles", "--fail-fast", *first])


def _timed(fault: Fault, folder: Path, words: Sequence[str]) -> Finding:
    done = _run(folder, words)
    if done is None:
        return Finding(fault, "hang")
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == 0:
        return Finding(fault)
    if not done.stdout:
        return Finding(fault, "import", message=last)
    difference = done.stdout.splitlines()[0]
    return Finding(fault, CYCLES, difference.partition(":")[0], message=difference)


def _tested(fault: Fault, folder: Path) -> Finding:
    words = [
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *fault.tests,
    ]
    done = _run(folder, words)
    if done is None:
        return Finding(fault, "hang")
    if done.returncode == 0:
        return Finding(fault)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return Finding(
        fault, "test", failed[1].split("[")[0] if failed else "", message=done.stdout[-2000:]
    )


def _run(folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """None where it does not end."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *words]
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return None


def page(findings: Sequence[Finding]) -> str:
    """The section of docs/faults.md; equal findings give equal text."""
    caught = [finding for finding in findings if finding.caught]
    equivalent = [finding.fault for finding in findings if finding.fault.equivalent]
    areas = Counter(finding.fault.area for finding in findings)
    lines = [
        _HEAD,
        f"The tests detect {len(caught)} of {len(findings)} faults seeded into the compiler's "
        f"choices: {', '.join(f'{count} in {area}' for area, count in areas.items())}. "
        f"Equivalent faults, which change no result: {len(equivalent)}. " + missed_text(findings),
    ]
    lines += ["", "| fault | file | detected by | cycles before -> after |", "|---|---|---|---|"]
    for finding in findings:
        figures = finding.message.partition(": ")[2] if finding.level == CYCLES else ""
        seen = (
            finding.case
            or finding.level
            or ("nothing: equivalent" if finding.fault.equivalent else "MISSED")
        )
        lines.append(f"| `{finding.fault.name}` | `{finding.fault.file}` | {seen} | {figures} |")
    if equivalent:
        lines += [
            "",
            "### Equivalent faults",
            "",
            "The following faults in the compiler's choices change no result, so no check can "
            "detect them.",
            "",
        ]
        lines += [f"- `{fault.name}`: {fault.equivalent}." for fault in equivalent]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Seed each fault, one at a time; exit status 1 if one is missed, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.quality", description=main.__doc__
    )
    parser.add_argument(
        "--fault", metavar="NAME", action="append", default=[], help="only this fault; repeatable"
    )
    parser.add_argument("--mutants", action="store_true", help="a sample of all packages")
    parser.add_argument("--words", action="store_true", help="the faults for banked memory")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="checks at a time")
    parser.add_argument(
        "--output", "-o", metavar="FILE.md", type=Path, help="write the section of docs/faults.md"
    )
    given = parser.parse_args(arguments)
    findings = []
    try:
        known = mutants() if given.mutants else seeded_faults(WORDS if given.words else CHOICES)
        for finding in seed_all(choose_faults(given.fault, known), max(1, given.jobs)):
            findings.append(finding)
            seen = (
                finding.message
                if finding.level == CYCLES
                else finding.case or finding.level or "not caught"
            )
            print(
                f"{'ok ' if finding.right else 'MISSED'} {finding.fault.name}: {seen}", flush=True
            )
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.output is not None:
        write_markdown(given.output, [page(findings)], MARKS)
    missed = [finding.fault.name for finding in findings if not finding.right]
    print(f"{len(findings) - len(missed)} of {len(findings)} faults as they should be")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
