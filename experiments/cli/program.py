"""``dla simulate``, ``dla asm`` and ``dla disasm``: simulation, and programs as text.

``dla simulate`` takes packages and programs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.running.given import ProgramRequest, Wishes
from isa.errors import InputError

if TYPE_CHECKING:
    from experiments.debug.session import Findings
    from experiments.report.schema import Figures
    from experiments.running.simulate import Sanitized

What = Annotated[
    Path, typer.Argument(metavar="DLA|PROGRAM", help="A package (.dla) or a program of dla emit.")
]
Sanitize = Annotated[
    bool,
    typer.Option(
        "--sanitize",
        help="Check the programs for races, deadlocks and wrong addresses first; exit status 1 if "
        "there are any.",
    ),
]


@options.expand_options
def simulate(
    *,
    file: What,
    wanted: ProgramRequest,
    sanitize: Sanitize = False,
    output: options.Output = None,
    json: options.Json = None,
    csv: options.Csv = None,
    summary: options.Summary = False,
    wishes: Wishes,
) -> int:
    """Run a package or a program without checking values.

    Print its cycles, and write its outputs (-o FILE.npz).

    --break and --until stop the run and show the state of the machine. With --against, a difference
      gives exit status 1.
    """
    from experiments.debug import session
    from experiments.report.store import write_arrays
    from experiments.running.network import is_package
    from experiments.running.simulate import (
        sanitize_package,
        sanitize_program,
        simulate_package,
        simulate_program,
    )
    from isa.reading import check_file

    check_file(file, "'dla compile' makes packages and 'dla emit' programs")
    if (output or json or csv) and wishes.stop:
        raise InputError(
            f"{file}: --output, --json and --csv need the whole run; leave out --break and --until"
        )
    package = is_package(file)
    if package and (wanted.tensor or wanted.image):
        raise InputError(
            f"{file}: --tensor and --image are for programs; give a package its --input"
        )
    if sanitize:
        found = sanitize_package(file, wanted) if package else sanitize_program(file, wanted.image)
        if _print_findings(file, found):
            return 1
    with options.stages() as progress:
        progress(f"simulating {file}")
        simulation = simulate_package(file, wanted) if package else simulate_program(file, wanted)
        findings = session.Findings()
        if wishes != Wishes():
            findings = session.debug(file, simulation.hardware, simulation.regions(), wishes)
        finished = None if findings.stopped else simulation.finish()
    if finished is not None:
        outputs, figures = finished
        _present(file, figures, json, csv, summary)
        if output is not None:
            write_arrays(output, outputs)
            say(f"{output}: {', '.join(outputs)}")
    return _tell(findings)


def _print_findings(file: Path, found: dict[str, Sanitized]) -> bool:
    """Print the sanitizer's findings on programs, one per line, and their number.

    Return whether any is an error.
    """
    for name, one in found.items():
        for finding in one.findings:
            say(f"{name}: {finding.text}")
    if any(one.unchecked for one in found.values()):
        say(f"{file}: layouts not checked: the program states no data flow")
    count = sum(len(one.findings) for one in found.values())
    said = f"{count or 'no'} finding{'s' * (count != 1)}"
    say(f"{file}: {said} on {len(found)} command stream{'s' * (len(found) != 1)}")
    return any(finding.level == "error" for one in found.values() for finding in one.findings)


def _tell(findings: Findings) -> int:
    """Print the result of debugging a program and return the command's exit status."""
    for line in findings.lines:
        say(line)
    return 0 if findings.difference is None else results.report_difference(findings.difference)


def _present(
    file: Path, figures: Figures, json: Path | None, csv: Path | None, summary: bool
) -> None:
    """Write the simulated figures of a program to JSON and CSV files, and print them."""
    from experiments.report.tables import figure_rows, kind_table, layer_table, unit_table
    from experiments.report.terminal import print_parts

    rows = figure_rows(figures)
    results.write_tables(json, csv, figures.model_dump(mode="json", by_alias=True), rows)
    if not summary:
        print_parts(layer_table(rows), kind_table(figures), unit_table(figures))
    totals = figures.totals
    say(
        f"{file}: {totals.cycles:,} cycles, {totals.macs:,} MACs, utilisation "
        f"{totals.utilization:.1%}"
    )


Text = Annotated[
    Path, typer.Argument(metavar="TEXT", help="Assembly text, as dla disasm writes it.")
]


def asm(text: Text, output: options.Output = None) -> None:
    """Assemble text into a program."""
    from isa import program_file
    from isa.assembler import load_text

    program = load_text(text)
    program.commands  # noqa: B018 - decoding proves that the words are legal
    place = output or text.with_suffix(".prog")
    program_file.save(program, place)
    say(f"{place}: {len(program.words)} words")


ProgramFile = Annotated[
    Path, typer.Argument(metavar="PROGRAM", help="A program, as dla emit writes it.")
]


def disasm(program: ProgramFile, output: options.Output = None) -> None:
    """Print a program as assembly text.

    Dla asm turns the text into the same program, bit by bit.
    """
    from isa import program_file
    from isa.assembler import disassemble

    results.write_text(output, disassemble(program_file.load(program)))
