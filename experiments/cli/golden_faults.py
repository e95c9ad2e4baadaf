"""``dla golden faults``: seed faults into copies of the packages and see whether the corpus finds them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the corpus.")]
Names = Annotated[list[str] | None, typer.Option("--fault", metavar="NAME", help="Only this fault. Repeatable.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Checks at a time.")]


def command(folder: Folder, fault: Names = None, jobs: Jobs = 2, output: options.Output = None) -> int:
    """Seed each known fault, one at a time, and check the corpus with it; -o FILE.md writes the table."""
    from experiments.cli.progress import stages
    from experiments.golden.faults.run import seed_all
    from experiments.golden.faults.seeded import choose_faults
    from experiments.golden.faults.table import faults_markdown
    from experiments.golden.store import open_corpus
    from isa.files import write_atomically

    open_corpus(folder)
    findings = []
    with stages() as progress:
        for finding in seed_all(folder, choose_faults(tuple(fault or ())), jobs, progress):
            findings.append(finding)
            where = finding.case or finding.level or "not caught"
            print(f"{'ok ' if finding.right else 'MISSED'} {finding.fault.name}: {where}", flush=True)
    if output is not None:
        write_atomically(output, faults_markdown(findings))
    missed = [finding.fault.name for finding in findings if not finding.right]
    print(f"{folder}: {len(findings) - len(missed)} of {len(findings)} faults as they should be")
    if missed:
        print(f"difference: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0
