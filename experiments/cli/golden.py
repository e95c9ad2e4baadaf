"""``dla golden``: record, check and bless golden outputs; compare two machines or two versions on a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import golden_compare, golden_export, options

if TYPE_CHECKING:
    from experiments.golden.deviation import CheckedCase

app = typer.Typer(help="Golden outputs: record, check, bless, compare.", no_args_is_help=True)
for _name, _command in (
    ("snapshot", golden_compare.snapshot),
    ("diff", golden_compare.diff),
    ("export", golden_export.command),
):
    app.command(_name)(_command)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the corpus.")]
Levels = Annotated[
    list[str] | None, typer.Option("--level", metavar="L0|L1|L2|L10|networks", help="Only this level. Repeatable.")
]
Cases = Annotated[list[str] | None, typer.Option("--case", metavar="NAME", help="Only this case. Repeatable.")]
ProgramFile = Annotated[Path, typer.Argument(metavar="PROGRAM", help="A program of dla emit, or assembly text.")]
CaseName = Annotated[str, typer.Option("--name", metavar="LEVEL/NAME", help="What to call the case.")]
TensorFiles = Annotated[
    list[str] | None, typer.Option("--tensor", metavar="NAME=FILE.npy", help="Contents of an input tensor. Repeatable.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why the new results are right; it is stored.")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop after the first case that differs.")]


@app.command("record")
def record(folder: Folder, level: Levels = None) -> int:
    """Record the outcome of every case of the catalogue as the corpus in DIR, replacing the one there in one step."""
    from experiments.golden.catalogue.all import catalogue
    from experiments.golden.record import DisagreementError, record_corpus
    from experiments.golden.store import check_levels

    check_levels(level or ())
    try:
        with options.stages() as progress:
            corpus = record_corpus(folder, catalogue(level or ()), progress)
    except DisagreementError as error:
        return _different(f"nothing recorded: {error}")
    print(f"{folder}: {len(corpus.entries)} cases recorded, digest {corpus.digest}")
    return 0


@app.command("add")
def add(
    folder: Folder,
    program: ProgramFile,
    name: CaseName,
    tensor: TensorFiles = None,
    settings: options.Settings = None,
) -> int:
    """Record one program of your own as a further case of the corpus in DIR, which is made if there is none."""
    from experiments.golden.record import DisagreementError, add_case, own_case

    try:
        corpus = add_case(folder, own_case(program, name, tensor or (), settings or ()))
    except DisagreementError as error:
        return _different(f"nothing added: {error}")
    print(f"{folder}: case {name} added, {len(corpus.entries)} cases, digest {corpus.digest}")
    return 0


@app.command("check")
def check(
    folder: Folder,
    level: Levels = None,
    case: Cases = None,
    fail_fast: FailFast = False,
    json: options.Json = None,
) -> int:
    """Run every case and compare it with its record, to the bit and the cycle; exit status 1 at any difference."""
    from experiments.golden.check import verify
    from experiments.golden.deviation import checked_lines
    from experiments.golden.store import choose, open_corpus

    corpus = open_corpus(folder)
    names = choose(corpus.entries, level or (), case or ())
    with options.stages() as progress:
        outcomes = verify(corpus, names, progress, fail_fast=fail_fast)
    if json is not None:
        _write_json(json, corpus.digest, outcomes)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        print("\n".join(checked_lines(outcome)))
    print(f"{folder}: {len(outcomes) - len(failed)} of {len(outcomes)} cases as recorded, digest {corpus.digest}")
    return _different(f"{failed[0].name} and {len(failed) - 1} more cases differ") if failed else 0


@app.command("bless")
def bless(folder: Folder, reason: Reason, level: Levels = None, case: Cases = None) -> int:
    """Accept what the present version does as the new results; the reason becomes part of the corpus."""
    from experiments.golden import record as recording
    from experiments.golden.store import choose, open_corpus

    names = choose(open_corpus(folder).entries, level or (), case or ())
    try:
        with options.stages() as progress:
            done = recording.bless(folder, names, reason, progress)
    except recording.DisagreementError as error:
        return _different(f"nothing blessed: {error}")
    if not done.changed:
        print(f"{folder}: all {len(names)} cases are as recorded; nothing to bless")
        return 0
    for name in done.changed:
        print(f"blessed {name}")
    print(f"{folder}: {len(done.changed)} cases blessed, digest {done.corpus.digest}: {reason}")
    return 0


@app.command("list")
def list_cases(folder: Folder, level: Levels = None) -> None:
    """List the cases of a corpus and its history."""
    from experiments.golden.store import choose, open_corpus

    corpus = open_corpus(folder)
    for name in choose(corpus.entries, level or (), ()):
        print(f"{name:48} {corpus.entries[name].file}")
    for event in corpus.history:
        changed = f", {len(event.changed)} changed" if event.changed else ""
        print(f"{event.action} by {event.version}: {event.cases} cases{changed}, digest {event.digest} {event.reason}")


def _different(message: str) -> int:
    import sys

    print(f"difference: {message}", file=sys.stderr)
    return 1


def _write_json(place: Path, digest: str, outcomes: list[CheckedCase]) -> None:
    from json import dumps

    from experiments.golden.deviation import checked_json
    from isa.files import write_atomically

    document = {"schema": "dla-golden-check/1", "digest": digest, "cases": [checked_json(item) for item in outcomes]}
    write_atomically(place, dumps(document, indent=1, ensure_ascii=False) + "\n")
