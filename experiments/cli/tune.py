"""``dla tune``: a better schedule, found by measuring; ``dla explain``: why the compiler chose what it chose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc.options import CompileOptions
from experiments.cli import options
from experiments.literal import literal, say

if TYPE_CHECKING:
    from byoc.choices import LayerChoice
    from experiments.tune.run import Tuned

Measurements = Annotated[int, typer.Option("--measurements", metavar="N", help="Schedules to measure in all.")]
Log = Annotated[Path | None, typer.Option("--log", metavar="FILE.jsonl", help="What was measured; read to go on.")]
SearchSeed = Annotated[int, typer.Option("--search-seed", min=0, help="Seed of the search.")]
Learn = Annotated[
    bool, typer.Option("--model/--no-model", help="Rank candidates by a learned cost model (extra 'tune').")
]
Donors = Annotated[
    list[Path] | None,
    typer.Option("--from", metavar="OTHER.jsonl", help="A log whose schedules are offered first. Repeatable."),
]


@options.expanded
def command(
    model: options.Model,
    hardware: options.Hardware,
    choices: CompileOptions,
    opening: options.Opening,
    calibration: options.Calibration = None,
    seed: options.Seed = 0,
    measurements: Measurements = 200,
    log: Log = None,
    search_seed: SearchSeed = 0,
    learn: Learn = True,
    donors: Donors = None,
) -> None:
    """Measure schedules of a network, keep them in a log, and name the best; run it again to continue or go further."""
    from experiments.running.network import load_network
    from experiments.tune.run import Wanted, tune

    machine = hardware.load()
    wanted = Wanted(measurements, search_seed, learn, tuple(donors or ()))
    with options.stages() as progress:
        progress(f"reading {model}")
        network = load_network(model, opening.shapes, seed, calibration, opening.fixed)
        place = log or Path("runs") / f"{network.name}-tuning.jsonl"

        def report(count: int, cycles: int) -> None:
            progress(f"{count} of {measurements} measurements, {cycles:,} cycles")

        tuned = tune(network, machine, choices, place, wanted, report)
    _print(tuned, measurements)
    say(f"log in {place}; 'dla run {model} ... --tuned {place}' runs the best schedule")


def _tiling(choice: LayerChoice) -> str:
    """A tiling in one cell: channels x rows, of how many input channels, order, buffers."""
    depth = f" of {choice.depth}" if choice.depth else ""
    slots = "/".join(map(str, choice.slots or ()))
    return f"{choice.channels} x {choice.rows}{depth} {choice.order} {slots}"


def _print(tuned: Tuned, measurements: int) -> None:
    from experiments.report.terminal import line, plain_table, report_console

    log = tuned.log
    records, best = log.records[:measurements], log.best
    own, fewest = records[0].measurement, best.measurement
    assert own.cycles is not None
    assert fewest.cycles is not None
    console = report_console()
    table = plain_table(
        ("layer", "fold"), ("cycles", "right"), ("tuned", "right"), ("tiling", "left"), ("tuned", "left")
    )
    for number, site in enumerate(log.header.layers):
        before, after = records[0].choices.layers[number], best.choices.layers[number]
        if before != after:
            cycles = f"{own.sites[number]:,}", f"{fewest.sites[number]:,}"
            table.add_row(literal(site.layer), *cycles, _tiling(before), _tiling(after))
    console.print(table)
    if tuned.donor is not None:
        console.print(line(f"schedules offered by {tuned.donor}"))
    place = log.records.index(best) + 1
    console.print(
        line(
            f"{log.header.network}: {own.cycles:,} cycles by the compiler's choice, {fewest.cycles:,} tuned "
            f"({fewest.cycles / own.cycles - 1:+.2%}), after {place} of {len(log.records)} measurements"
        ),
        soft_wrap=True,
    )
