"""``python -m tests.faults DIR``: seed faults into copies of the packages.

Does the corpus in DIR find them?
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compiler import write_markdown
from experiments.golden.case import LEVELS
from experiments.golden.store import open_corpus
from isa.errors import InputError
from tests.faults.fault import choose_faults, seeded_faults
from tests.faults.run import Finding, missed_text, seed_all

MARKS = ("<!-- tests.faults -->", "<!-- end -->")
_HEAD = """## Faults in the machine

The golden corpus is a set of recorded programs with exact results and cycles ([golden
outputs](verification.md#golden-outputs)). This section shows which seeded faults in the machine the
corpus detects. `python -m tests.faults tests/golden --output docs/faults.md` writes the section; do
not edit it.

A seeded fault replaces one piece of source text in a copy of the packages; `tests/faults/*.toml`
contains the texts. Each copy has one fault. `python -m tests.faults` checks the golden corpus with
each copy.

The golden corpus has five levels of cases. The table of faults shows the first level with a
difference, in the order L0, L1, L2, L10, networks; later levels may differ too. The table also
shows what differs in the first case of that level:

| difference | meaning |
|---|---|
| encoding | output of the assembler |
| decoding | output of the decoder |
| reference | results of single commands, by the reference implementation |
| kernels | results of single commands, by the fast kernels |
| device | outputs of a whole run |
| cycles | cycles of the SimPy engine |
| recurrence | cycles of the engine without SimPy |
| totals | totals of work and traffic |
| refusal | an engine rejects a valid program, accepts an invalid one, or gives another error |
"""


def faults_markdown(findings: Sequence[Finding]) -> str:
    """The section of docs/faults.md; equal findings give equal text."""
    caught = [finding for finding in findings if finding.caught]
    equivalent = [finding for finding in findings if finding.fault.equivalent]
    lines = [
        _HEAD,
        f"The golden corpus detects {len(caught)} of {len(findings)} faults seeded into the "
        f"machine. Equivalent faults, which change no result: {len(equivalent)}. "
        + missed_text(findings),
    ]
    lines += ["", "| level | faults |", "|---|---|"]
    levels = Counter(finding.level for finding in caught)
    lines += [
        f"| {level} | {levels[level]} |"
        for level in dict.fromkeys((*LEVELS, *levels))
        if levels[level]
    ]
    lines += [
        "",
        "| fault | area | file | level | first case | difference |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(finding) for finding in findings]
    lines += [
        "",
        "### Equivalent faults",
        "",
        "The following faults in the machine change no result, so no check can detect them.",
        "",
    ]
    lines += [f"- `{finding.fault.name}`: {finding.fault.equivalent}." for finding in equivalent]
    return "\n".join(lines)


def _row(finding: Finding) -> str:
    fault = finding.fault
    level = finding.level or ("none: equivalent" if fault.equivalent else "MISSED")
    case = finding.case.partition("/")[2]
    return (
        f"| `{fault.name}` | {fault.area} | `{fault.file}` | {level} | {case} | "
        f"{', '.join(finding.aspects)} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Seed each fault, one at a time, and check the corpus with it.

    Exit status 1 if one is missed, 2 for bad input.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=main.__doc__)
    parser.add_argument("corpus", metavar="DIR", type=Path, help="the folder of the corpus")
    parser.add_argument(
        "--fault", metavar="NAME", action="append", default=[], help="only this fault; repeatable"
    )
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="checks at a time")
    parser.add_argument(
        "--output", "-o", metavar="FILE.md", type=Path, help="write the table of docs/faults.md"
    )
    given = parser.parse_args(arguments)
    try:
        return _seed(given.corpus, tuple(given.fault), max(1, given.jobs), given.output)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _seed(corpus: Path, names: tuple[str, ...], jobs: int, output: Path | None) -> int:
    open_corpus(corpus)
    findings = []
    for finding in seed_all(corpus, choose_faults(names, seeded_faults()), jobs):
        findings.append(finding)
        where = finding.case or finding.level or "not caught"
        print(f"{'ok ' if finding.right else 'MISSED'} {finding.fault.name}: {where}", flush=True)
    if output is not None:
        write_markdown(output, [faults_markdown(findings)], MARKS)
    missed = [finding.fault.name for finding in findings if not finding.right]
    print(f"{corpus}: {len(findings) - len(missed)} of {len(findings)} faults as they should be")
    if missed:
        print(f"difference: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
