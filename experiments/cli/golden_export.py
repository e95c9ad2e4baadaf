"""``dla golden export``: a golden case, or a program of one's own, as files that hardware is compared with."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options
from isa.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.rtl.export import Source


class Format(StrEnum):
    """What the files are for."""

    readmemh = "readmemh"


What = Annotated[
    str, typer.Argument(metavar="CASE|PROGRAM", help="A golden case, or a file: a program of dla emit, or assembly.")
]
CorpusFolder = Annotated[
    Path | None,
    typer.Option("--corpus", metavar="DIR", help="Take the case from this corpus; else from the built-in ones."),
]
Formats = Annotated[Format, typer.Option("--format", help="readmemh: hexadecimal files, manifest, test bench.")]
TensorFiles = Annotated[
    list[str] | None,
    typer.Option("--tensor", metavar="NAME=FILE.npy", help="Contents of a program's input tensor. Repeatable."),
]
Target = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="The folder to make; default: runs/rtl/CASE.")
]


def command(
    case: What,
    corpus: CorpusFolder = None,
    format: Formats = Format.readmemh,
    tensor: TensorFiles = None,
    settings: options.Settings = None,
    output: Target = None,
) -> int:
    """Write memories before and after, command words, what every command writes, and a test bench that compares."""
    import sys

    from experiments.golden.record import DisagreementError
    from experiments.report.store import DEFAULT_FOLDER
    from experiments.rtl.export import build_export
    from experiments.rtl.readmemh import write_export

    try:
        with options.stages() as progress:
            progress(f"exporting {case}")
            source = _source(case, corpus, tensor or (), settings or ())
            export = build_export(source)
    except DisagreementError as error:
        print(f"difference: nothing exported: {error}", file=sys.stderr)
        return 1
    folder = output or Path(DEFAULT_FOLDER) / "rtl" / source.name.replace("/", "-")
    write_export(export, folder)
    stop = f", stops with {export.stopped}" if export.stopped else ""
    print(f"{folder}: {source.name}, {len(export.operations)} operations, {export.trace.cycles:,} cycles{stop}")
    return 0


def _source(case: str, corpus: Path | None, tensors: Sequence[str], settings: Sequence[str]) -> Source:
    from experiments.rtl.export import catalogue_source, corpus_source, program_source

    if corpus is None and Path(case).is_file():
        return program_source(Path(case), tensors, settings)
    if tensors or settings:
        raise InputError(f"{case}: a case has its inputs and its timing; --tensor and --set are for programs")
    return catalogue_source(case) if corpus is None else corpus_source(corpus, case)
