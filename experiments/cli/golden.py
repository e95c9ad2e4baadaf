"""``dla golden``: record, check, bless and export golden outputs.

Compare two machines or two versions on a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.extras import require_plotly
from experiments.literal import say
from experiments.running.declared import option, same
from experiments.running.given import MachineChoice, ProgramRequest
from experiments.version import other_checkout
from isa.errors import InputError
from isa.files import write_atomically
from isa.sources import HOME

if TYPE_CHECKING:
    from experiments.rtl.export import ExportSource

app = typer.Typer(help="Record, check, accept and compare golden outputs.", no_args_is_help=True)


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the corpus.")]
Levels = Annotated[
    list[str] | None,
    typer.Option(
        "--level", metavar="L0|L1|L2|L10|networks", help="Use only cases of this level. Repeatable."
    ),
]
Missing = Annotated[
    bool,
    typer.Option(
        "--missing", help="Record only cases missing from DIR; leave existing ones unchanged."
    ),
]
Cases = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="NAME", help="Use only this case. Repeatable."),
]
ProgramFile = Annotated[
    Path, typer.Argument(metavar="PROGRAM", help="Program of dla emit, or assembly text.")
]
CaseName = Annotated[str, typer.Option("--name", metavar="LEVEL/NAME", help="Name the case.")]
TensorFiles = Annotated[list[str] | None, options.get_typer_option(ProgramRequest, "tensor")]
Reason = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="State why the new results are right; the corpus stores the text.",
    ),
]
Installed = Annotated[
    bool,
    typer.Option("--installed", help="Check the installed copy even in a checkout of another."),
]
Details = Annotated[
    bool, typer.Option("--all", help="Show the first difference of every case in full.")
]
JUnit = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE.xml", help="Write the result as JUnit XML."),
    results.Destination(".xml"),
]
FailFast = Annotated[
    bool, typer.Option("--fail-fast", help="Stop after the first case that differs.")
]
Side = Annotated[
    str,
    typer.Argument(
        help="A machine (preset=NAME,isa=v1,schedule=seed,KEY=VALUE; or default), a snapshot, a "
        "run report."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Run this model on the machines: a path or a built-in name.",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the comparison as an HTML page."),
    results.Destination(".html"),
]
OnMachine = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="MACHINE",
        help="Use this machine: preset=NAME,isa=v1,schedule=seed,KEY=VALUE; or default.",
    ),
]


@dataclass(frozen=True)
class Wanted:
    """Options that choose a golden case, or a program with its inputs and settings."""

    case: str = field(
        metadata=option(
            "",
            "A golden case, or a file: a program of dla emit, or assembly.",
            metavar="CASE|PROGRAM",
        )
    )
    corpus: Path | None = field(
        default=None,
        metadata=option(
            "--corpus",
            "Take the case from this corpus. Default: the built-in cases.",
            Path,
            metavar="DIR",
        ),
    )
    tensor: Sequence[str] = field(default=(), metadata=same(ProgramRequest, "tensor"))
    settings: Sequence[str] = field(default=(), metadata=same(MachineChoice, "settings"))


Target = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Write the files to this folder. Default: runs/rtl/CASE.",
    ),
    results.Destination(folder=True),
]


@app.command("record")
@options.limit_command
def record(folder: Folder, level: Levels = None, missing: Missing = False) -> int:
    """Record every case of the catalogue as the corpus in DIR.

    An existing corpus is replaced in one step.
    """
    from experiments.golden.catalogue import catalogue
    from experiments.golden.record import DisagreementError, record_corpus, record_missing
    from experiments.golden.store import check_levels

    check_levels(level or ())
    try:
        with options.stages() as progress:
            if missing:
                names = record_missing(folder, catalogue(level or ()), progress)
            else:
                corpus = record_corpus(folder, catalogue(level or ()), progress)
    except DisagreementError as error:
        return results.report_difference(f"nothing recorded: {error}")
    if missing:
        say(f"{folder}: {len(names)} cases added, the others kept")
        return 0
    say(f"{folder}: {len(corpus.entries)} cases recorded, digest {corpus.digest}")
    return 0


@app.command("add")
@options.limit_command
def add(
    folder: Folder,
    program: ProgramFile,
    name: CaseName,
    tensor: TensorFiles = None,
    settings: options.Settings = None,
) -> int:
    """Record your own program as another case of the corpus in DIR.

    The corpus is created if it is missing.
    """
    from experiments.golden.record import DisagreementError, add_case, own_case

    try:
        corpus = add_case(folder, own_case(program, name, tensor or (), settings or ()))
    except DisagreementError as error:
        return results.report_difference(f"nothing added: {error}")
    say(f"{folder}: case {name} added, {len(corpus.entries)} cases, digest {corpus.digest}")
    return 0


@app.command("check")
@options.limit_command
def check(
    folder: Folder,
    level: Levels = None,
    case: Cases = None,
    fail_fast: FailFast = False,
    installed: Installed = False,
    all: Details = False,
    json: options.Json = None,
    junit: JUnit = None,
) -> int:
    """Run every case and compare it with its record, to the bit and the cycle.

    Exit status 1 at any difference.

    Cases that differ are counted by instruction and aspect. --all shows each of them in full.

    --json and --junit contain all cases.
    """
    there = other_checkout(Path.cwd())
    if there is not None and not installed:
        raise InputError(
            f"dla would check the copy in {HOME}; to check this checkout: pip install -e {there}; "
            "else pass --installed"
        )
    from experiments.golden.check import verify
    from experiments.golden.deviation import format_checked_lines, to_checked_json
    from experiments.golden.store import choose, open_corpus
    from experiments.golden.summary import summary_table, to_junit
    from experiments.report.terminal import print_parts

    corpus = open_corpus(folder)
    names = choose(corpus.entries, level or (), case or ())
    with options.stages() as progress:
        outcomes = verify(corpus, names, progress, fail_fast=fail_fast)
    cases = [to_checked_json(outcome) for outcome in outcomes]
    content = {"schema": "dla-golden-check/1", "digest": corpus.digest, "cases": cases}
    results.write_json(json, content)
    results.write(junit, to_junit(outcomes))
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed if all else ():
        for line in format_checked_lines(outcome):
            say(line)
    if failed:
        print_parts(summary_table(failed))
    if failed and not all:
        say(f"details: --all, or --case {failed[0].name} --all")
    say(
        f"{folder}: {len(outcomes) - len(failed)} of {len(outcomes)} cases as recorded, digest "
        f"{corpus.digest}"
    )
    say(f"checked: {HOME}")
    return (
        results.report_difference(f"{failed[0].name} and {len(failed) - 1} more cases differ")
        if failed
        else 0
    )


@app.command("bless")
@options.limit_command
def bless(folder: Folder, reason: Reason, level: Levels = None, case: Cases = None) -> int:
    """Accept the results of the present version as correct.

    The reason becomes part of the corpus.
    """
    from experiments.golden import record as recording
    from experiments.golden.store import choose, open_corpus

    names = choose(open_corpus(folder).entries, level or (), case or ())
    try:
        with options.stages() as progress:
            done = recording.bless(folder, names, reason, progress)
    except recording.DisagreementError as error:
        return results.report_difference(f"nothing blessed: {error}")
    if not done.changed:
        say(f"{folder}: all {len(names)} cases are as recorded; nothing to bless")
        return 0
    for name in done.changed:
        say(f"blessed {name}")
    say(f"{folder}: {len(done.changed)} cases blessed, digest {done.corpus.digest}: {reason}")
    return 0


@app.command("list")
@options.limit_command
def list_cases(folder: Folder, level: Levels = None) -> None:
    """List the cases of a corpus and its history."""
    from experiments.golden.store import choose, open_corpus

    corpus = open_corpus(folder)
    for name in choose(corpus.entries, level or (), ()):
        say(f"{name:48} {corpus.entries[name].file}")
    for event in corpus.history:
        changed = f", {len(event.changed)} changed" if event.changed else ""
        say(
            f"{event.action} by {event.version}: {event.cases} cases{changed}, digest "
            f"{event.digest} {event.reason}"
        )


@app.command("snapshot")
@options.limit_command
def snapshot(
    model: options.Model, machine: OnMachine = "default", output: options.Output = None
) -> None:
    """Run a network and save a snapshot of every layer for a later diff.

    The snapshot contains values, cycles, instructions and bytes of every layer.
    """
    from experiments.compare.sources import machine_snapshot, save_snapshot

    with options.stages() as progress:
        taken = machine_snapshot(machine, model, progress)
    place = output or Path(f"{Path(model).stem}.snapshot")
    save_snapshot(taken, place)
    say(f"{place}: {len(taken.layers)} layers, {taken.totals['cycles']:,} cycles")


@app.command("diff")
@options.limit_command
def diff(
    a: Side, b: Side, model: ModelOption = None, json: options.Json = None, html: Html = None
) -> int:
    """Compare two machines on a model, or two snapshots or reports.

    Exit status 1 if values differ.
    """
    if html is not None:
        require_plotly()
    from experiments.compare.comparison import compare, comparison_json
    from experiments.compare.presentation import COMPARISON
    from experiments.compare.sources import snapshot_of
    from experiments.report.shown import Document

    with options.stages() as progress:
        found = compare(snapshot_of(a, model, progress), snapshot_of(b, model, progress))
    results.write_json(json, comparison_json(found))
    shown = Document(found, COMPARISON)
    if html is not None:
        write_atomically(html, shown.page())
    shown.show()
    if found.differing:
        first = found.differing[0]
        return results.report_difference(
            f"{len(found.differing)} layers; {first.name}: {first.remark}"
        )
    return 0


@app.command("export")
@options.limit_command
@options.expand_options
def export(wanted: Wanted, output: Target = None) -> int:
    """Write a case as files for an RTL test bench.

    The files, for readmemh, contain memories before and after, command words, and the writes of
    every command.
    """
    from experiments.golden.record import DisagreementError
    from experiments.report.store import DEFAULT_FOLDER
    from experiments.rtl.export import build_export, write_export

    try:
        with options.stages() as progress:
            progress(f"exporting {wanted.case}")
            source = export_source(wanted)
            made = build_export(source)
    except DisagreementError as error:
        return results.report_difference(f"nothing exported: {error}")
    folder = output or Path(DEFAULT_FOLDER) / "rtl" / source.name.replace("/", "-")
    write_export(made, folder)
    stop = f", stops with {made.stopped}" if made.stopped else ""
    say(
        f"{folder}: {source.name}, {len(made.operations)} operations, {made.trace.cycles:,} "
        f"cycles{stop}"
    )
    return 0


def export_source(wanted: Wanted) -> ExportSource:
    """Return a case of a corpus, a built-in case or a program of the user.

    Raise InputError for anything else.
    """
    from experiments.rtl.export import catalogue_source, corpus_source, program_source

    case = wanted.case
    corpus = wanted.corpus
    tensors = wanted.tensor
    settings = wanted.settings
    if corpus is None and Path(case).is_file():
        return program_source(Path(case), tensors, settings)
    if tensors or settings:
        raise InputError(
            f"{case}: a case has its inputs and its timing; --tensor and --set are for programs"
        )
    return catalogue_source(case) if corpus is None else corpus_source(corpus, case)
