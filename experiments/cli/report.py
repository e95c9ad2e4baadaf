"""``dla report``: a saved run, several runs, a system or a sweep as tables, page and images."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options, results
from experiments.extras import require_plotly
from experiments.literal import say
from experiments.sweep.request import OfSweep
from isa.errors import InputError
from isa.files import write_atomically

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN|SYSTEM|SWEEP.sqlite",
        help="Result of dla run --json, dla system --json or dla sweep; several runs are compared. "
        "Default: the latest run in the folder runs.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR|FILE.html",
        help="Write the report here. Default: the folder <name>-report next to RUN.",
    ),
    results.Destination(folder=True),
]
Pictures = Annotated[
    Path | None,
    typer.Option("--png", metavar="DIR", help="Write the images to this folder."),
    results.Destination(folder=True),
]
Tables = Annotated[bool, typer.Option("--tables", help="Print the tables; write no report.")]
PAGE_ENDINGS = (".html", ".htm")


@options.expand_options
def command(
    files: Files = None,
    output: Output = None,
    png: Pictures = None,
    tables: Tables = False,
    *,
    of_sweep: OfSweep,
    csv: options.Csv = None,
    summary: options.Summary = False,
) -> None:
    """Show saved results, and write them as an HTML page with charts and as PNG images.

    Several runs are compared. Without a file, the latest run in the folder runs is shown.
    """
    from experiments.collection.listing import load_comparison, load_document
    from experiments.report.shown import Document
    from experiments.sweep.results import is_sweep
    from experiments.systems.result import SYSTEM

    if tables and (output is not None or png is not None):
        raise InputError("--tables writes nothing; leave out --output and --png, or --tables")
    if not tables:
        require_plotly()
    files = files or [_find_latest()]
    several = len(files) > 1
    _check(files)
    sweep = not several and is_sweep(files[0])
    if not sweep and of_sweep != OfSweep():
        raise InputError(
            "--x, --y, --where and --cost are for the results of sweeps; leave them out for runs"
        )
    if summary and (sweep or several):
        raise InputError("--summary is for one run; leave it out for sweeps and comparisons")
    document = load_comparison(files) if several else load_document(files[0], of_sweep)
    if summary and isinstance(document, Document) and document.how is SYSTEM:
        raise InputError(
            f"{files[0]}: --summary is for runs of one network; leave it out for systems"
        )
    if csv is not None:
        results.write_csv(csv, document.records())
    document.show(form="brief" if summary else "tables")
    if tables:
        return
    page, pictures = _places(_name(files), files[0], output, png)
    write_atomically(page, document.page())
    say(f"page written to {page}")
    if pictures is not None:
        made = document.pictures(pictures)
        say(f"{len(made)} image{'s' * (len(made) != 1)} written to {pictures}")


def _find_latest() -> Path:
    """Return the latest run in the default folder, and print its name."""
    from experiments.collection.listing import find_latest
    from experiments.report.store import DEFAULT_FOLDER

    found = find_latest(Path(DEFAULT_FOLDER))
    say(f"latest run: {found}")
    return found


def _check(files: list[Path]) -> None:
    """Raise InputError for a file that cannot be read."""
    from isa.reading import check_file

    for file in files:
        sweep_file = file.suffix == ".sqlite"
        maker, what = (
            ("sweep SPEC.toml --output", "results")
            if sweep_file
            else ("run MODEL --json", "a report")
        )
        check_file(file, f"'dla {maker} {file}' makes {what}")


def _name(files: list[Path]) -> str:
    """Return the name of the report of these files."""
    if len(files) > 2:
        return f"{files[0].stem}-and-{len(files) - 1}-more"
    return "-against-".join(file.stem for file in files)


def _places(
    name: str, beside: Path, output: Path | None, pictures: Path | None
) -> tuple[Path, Path | None]:
    """Return the HTML file of a report and the folder of its images, or None for no images.

    ``name`` is the name of the report. ``output`` is a file that ends in .html, or a folder for
    both. With a file, images are drawn only if ``pictures`` is a folder. Without ``output``, both
    go to the folder ``<name>-report`` next to ``beside``.
    """
    from experiments.report.store import page_path

    if output is not None and output.suffix.lower() in PAGE_ENDINGS and not output.is_dir():
        return output, pictures
    page = page_path(beside, name) if output is None else output / f"{name}.html"
    return page, pictures or page.parent
