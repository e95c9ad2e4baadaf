"""Print one table of ratios to ONNX Runtime, bare imports and the roofline.

    python -m benchmarks [--only inference|start|compiler] [--record]

A row names the script that measures it. ``--record`` keeps the rows of this processor in
``benchmarks/ratios.csv`` and writes the table of docs/performance.md from that file.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks import measuring

SCRIPTS = ("inference", "start", "compiler")
RECORD = Path(__file__).with_name("ratios.csv")
PAGE = Path(__file__).parents[1] / "docs/performance.md"
MARKS = "<!-- benchmarks -->", "<!-- /benchmarks -->"
COLUMNS = ("processor", "script", "measured", "reference", "ratio")
Row = dict[str, str]


def measure(script: str) -> Iterator[measuring.RatioRow]:
    """Measure and yield the ratios of a script."""
    yield from import_module(f"benchmarks.{script}").ratios()


def to_row(script: str, ratio: measuring.RatioRow) -> Row:
    """Return a measured ratio of this processor as a row of the record."""
    figures = {**ratio._asdict(), "ratio": f"{ratio.ratio:.2f}"}
    return {"processor": measuring.processor(), "script": script, **figures}


def read_record(path: Path = RECORD) -> list[Row]:
    """Return the recorded rows; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def write_record(rows: Iterable[Row], path: Path = RECORD) -> None:
    """Write rows into the record in place of those of the same processors and scripts."""
    new = list(rows)
    fresh = {(row["processor"], row["script"]) for row in new}
    old = [row for row in read_record(path) if (row["processor"], row["script"]) not in fresh]
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(sorted(old + new, key=lambda row: SCRIPTS.index(row["script"])))


def make_table(rows: Iterable[Row]) -> str:
    """Return the Markdown table: one line for each ratio, one column for each processor."""
    listed = list(rows)
    processors = list(dict.fromkeys(row["processor"] for row in listed))
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in listed:
        key = row["measured"], row["reference"], f"`benchmarks.{row['script']}`"
        lines.setdefault(key, {})[row["processor"]] = row["ratio"]
    heads = ("measured", "reference", "script", *processors)
    cells = ((*key, *(line.get(name, "") for name in processors)) for key, line in lines.items())
    return "\n".join(
        (f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}",
         *(f"| {' | '.join(line)} |" for line in cells))
    )  # fmt: skip


def write_page(page: str, rows: Iterable[Row]) -> str:
    """Return the text of docs/performance.md with its table updated."""
    before, begin, rest = page.partition(f"{MARKS[0]}\n")
    _, end, after = rest.partition(f"\n{MARKS[1]}")
    assert begin
    assert end
    return f"{before}{begin}\n{make_table(rows)}\n{end}{after}"


def main() -> None:
    """Measure the ratios, print the table, and record it if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SCRIPTS, action="append", help="measure with this script")
    parser.add_argument("--record", action="store_true", help="keep the rows and write the page")
    options = parser.parse_args()
    print(measuring.settings(), end="\n\n")
    rows = [to_row(name, ratio) for name in options.only or SCRIPTS for ratio in measure(name)]
    print(make_table(rows))
    if options.record:
        write_record(rows)
        page = write_page(PAGE.read_text(encoding="utf-8"), read_record())
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
