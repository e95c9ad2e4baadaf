"""``dla golden snapshot`` and ``dla golden diff``: a network on two machines, or with two versions of the project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options

Side = Annotated[
    str,
    typer.Argument(
        help="A machine (preset=NAME,isa=v1,schedule=seed,KEY=VALUE; or default), a snapshot, a run report, a corpus."
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="What machines run: a path or a built-in name.")
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the comparison as a page.")]
Machine = Annotated[
    str, typer.Option("--on", metavar="MACHINE", help="preset=NAME,isa=v1,schedule=seed,KEY=VALUE; or default.")
]


def snapshot(model: options.Model, machine: Machine = "default", output: options.Output = None) -> None:
    """Run a network and keep values, cycles, instructions and bytes of every layer, for a later diff."""
    from experiments.compare.snapshot_file import save_snapshot
    from experiments.compare.sources import machine_snapshot

    with options.stages() as progress:
        taken = machine_snapshot(machine, model, progress)
    place = output or Path(f"{Path(model).stem}.snapshot")
    save_snapshot(taken, place)
    print(f"{place}: {len(taken.layers)} layers, {taken.totals['cycles']:,} cycles")


def diff(a: Side, b: Side, model: ModelOption = None, json: options.Json = None, html: Html = None) -> int:
    """Compare two machines on a model, or two snapshots, reports or corpora; exit status 1 when values differ."""
    from json import dumps

    from experiments.compare.comparison import compare, comparison_json
    from experiments.compare.page import comparison_page
    from experiments.compare.sources import snapshot_of
    from experiments.compare.tables import print_comparison
    from experiments.report.terminal import report_console
    from isa.files import check_distinct, write_atomically

    check_distinct(json=json, html=html)
    with options.stages() as progress:
        found = compare(snapshot_of(a, model, progress), snapshot_of(b, model, progress))
    if json is not None:
        write_atomically(json, dumps(comparison_json(found), indent=1, ensure_ascii=False) + "\n")
    if html is not None:
        write_atomically(html, comparison_page(found))
    print_comparison(found, report_console())
    if found.differing:
        first = found.differing[0]
        print(f"difference: {len(found.differing)} layers; {first.name}: {first.remark}", file=sys.stderr)
    return 1 if found.differing else 0
