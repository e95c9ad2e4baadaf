"""``dla tune``: better schedules by measurement; ``dla explain``: the compiler's choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.report.terminal import line, plain_table, print_lines, print_parts
from experiments.running.given import Compiling
from experiments.tune.request import TuneRequest

if TYPE_CHECKING:
    from byoc.options import Choices, GroupChoice, LayerChoice
    from experiments.report.limits import Limit
    from experiments.tune.explain import Explanation, LayerCycles, RegionLayouts
    from experiments.tune.tuning import Tuned


@options.expand_options
def command(wanted: TuneRequest) -> None:
    """Measure schedules of a network, keep them in a log, and name the best.

    Run it again to continue or go further.
    """
    from experiments.tune.tuning import tune_requested

    with options.stoppable(), options.stages() as progress:

        def report(count: int, cycles: int) -> None:
            progress(f"{count} of {wanted.measurements} measurements, {cycles:,} cycles")

        tuned = tune_requested(replace(wanted, stage=progress, report=report))
    _print(tuned, wanted.measurements)
    place = tuned.log.path
    say(f"log in {place}; 'dla run {wanted.model} ... --tuned {place}' runs the best schedule")


def _group_choices(choices: Choices) -> dict[str, str]:
    return {
        name: f"in a group, {group.layers[0]} to {group.layers[-1]}, {group.turns}"
        for group in choices.groups or ()
        for name in group.layers
    }


def _group_line(group: GroupChoice) -> str:
    if not group.rows:
        return f"group: {group.layers[-1]} on every tile of {group.layers[0]}"
    tiles = ", ".join(
        f"{name} {channels} channels{'' if held else ' (constants again in every band)'}"
        for name, channels, held in zip(
            group.layers, group.channels or (), group.held or (), strict=True
        )
    )
    kept = ", ".join(group.kept or ()) or "nothing"
    return f"group: {group.turns}; tiles: {tiles}; kept from band to band: {kept}"


def _tiling(choice: LayerChoice) -> str:
    """Return a layer's tiling as the text of one table cell.

    The text contains output channels x rows, input channels, loop order and buffers.
    """
    depth = f" of {choice.depth}" if choice.depth else ""
    slots = "/".join(map(str, choice.slots or ()))
    return f"{choice.channels} x {choice.rows}{depth} {choice.order} {slots}"


def _print(tuned: Tuned, measurements: int) -> None:

    log = tuned.log
    records = log.records[:measurements]
    best = log.best
    own = records[0].measurement
    fewest = best.measurement
    assert own.cycles is not None
    assert fewest.cycles is not None
    table = plain_table(
        ("layer", "fold"),
        ("cycles", "right"),
        ("tuned", "right"),
        ("tiling", "left"),
        ("tuned", "left"),
    )
    groups = [_group_choices(one.choices) for one in (records[0], best)]
    pairs = zip(records[0].choices.layers, best.choices.layers, strict=True)
    for number, (before, after) in enumerate(pairs):
        tilings = [
            group.get(one.layer, _tiling(one))
            for group, one in zip(groups, (before, after), strict=True)
        ]
        if tilings[0] != tilings[1]:
            table.add_row(
                before.layer, f"{own.sites[number]:,}", f"{fewest.sites[number]:,}", *tilings
            )
    print_parts(table)
    if tuned.donor is not None:
        print_parts(line(f"schedules offered by {tuned.donor}"))
    print_lines(tuned.summary)


LayerName = Annotated[
    str | None,
    typer.Argument(metavar="[LAYER]", help="Layer to explain. Default: list all layers."),
]


@options.expand_options
def explain(
    wanted: Compiling, layer: LayerName = None, json: options.Json = None, csv: options.Csv = None
) -> None:
    """Show the tilings that the compiler considered for a layer, and why the best one won.

    Each tiling has its estimate. Tilings that did not fit are listed, too.

    Without a layer, all layers are listed.
    """
    from experiments.advise.bench import find_layer_limit
    from experiments.running.inference import hardware_of
    from experiments.running.network import load
    from experiments.tune.explain import compare_cycles, compile_package, region_layouts
    from experiments.tune.explain import explain as explain_layer

    machine = hardware_of(wanted)
    choices = wanted.options
    with options.stages() as progress:
        network = load(wanted, progress)
        progress(f"compiling {network.name}")
        if layer is None:
            made = compile_package(network.package, machine.arch, choices, machine.timing)
            layouts = region_layouts(network.package, machine.arch, choices, made, machine.timing)
        else:
            found = explain_layer(network.package, layer, machine.arch, choices, machine.timing)
            limit = find_layer_limit(network.package, machine, choices, found.region, layer)
    if layer is None:
        chosen = [report.choices for _, report in made]
        cycles = [compare_cycles(one, machine.timing) for one in made]
        rows = [
            {"region": region} | asdict(choice) | cycles[region][choice.layer]._asdict()
            for region, one in enumerate(chosen)
            for choice in one.layers
        ]
        for row in rows if layouts else ():
            row |= layouts[row["region"]].layers[row["layer"]].moved._asdict()
        told = [
            {"layers": {name: one.content() for name, one in found.layers.items()}}
            | {"edges": [edge._asdict() for edge in found.edges]}
            for found in layouts
        ]
        more = [{"layouts": one} for one in told] or [{}] * len(chosen)
        results.write_tables(
            json,
            csv,
            [asdict(one) | beside for one, beside in zip(chosen, more, strict=True)],
            rows,
        )
        _list(chosen, cycles)
        _list_layouts(layouts)
    else:
        told_limit = asdict(limit) | {"bound": limit.bound, "sentence": limit.sentence}
        results.write_tables(json, csv, found.content() | {"limit": told_limit}, found.rows())
        _print_explanation(found, limit)


def _list(chosen: Sequence[Choices], cycles: Sequence[Mapping[str, LayerCycles]]) -> None:

    waits = any(one.bank_waits for region in cycles for one in region.values())
    table = plain_table(
        ("layer", "fold"), ("region", "right"), ("tiling", "left"), ("estimate", "right", 1),
        ("cycles", "right", 2),
        *([("waits for banks", "right", 3)] if waits else ()),
    )  # fmt: skip
    for region, choices in enumerate(chosen):
        groups = _group_choices(choices)
        for choice in choices.layers:
            taken = cycles[region][choice.layer]
            figures = [f"{one:,}" for one in (taken if waits else taken[:2])]
            table.add_row(
                choice.layer, str(region), groups.get(choice.layer, _tiling(choice)), *figures
            )
    print_parts(table)
    names = sorted({name for choices in chosen for name in choices.residents or ()})
    if names:
        print_lines(f"in the scratchpad: {', '.join(names)}")


def _list_layouts(found: Sequence[RegionLayouts]) -> None:
    """Print the layouts of tensors, the copies for consumers, and the inputs and outputs.

    Only for banked memory.
    """
    from experiments.tune.layouts import edge_line

    if not found:
        return
    names = (
        ("copied bytes", 1),
        ("cycles of the copies", 2),
        ("direct (cycles)", 3),
        ("as matrices (cycles)", 4),
    )
    table = plain_table(
        ("layer", "fold"),
        ("layout of the result", "fold"),
        *((name, "right", rank) for name, rank in names),
    )
    for region in found:
        for name, one in region.layers.items():
            _, result = one.operations[-1].operands[-1]
            moved = (
                [f"{one.moved.nbytes:,}", f"{one.moved.cycles:,}"]
                if one.moved.commands
                else ["", ""]
            )
            both = (
                ["", ""]
                if one.convolution is None
                else [f"{one.convolution.direct:,}", f"{one.convolution.matrix:,}"]
            )
            table.add_row(name, result, *moved, *both)
    print_parts(table)
    print_lines(
        "copied: by OP_PERMUTE, because the layer needs another layout, or because it moves "
        "elements itself",
        "direct, as matrices: cycles of EX by the formulas, for a direct convolution, and for a "
        "matrix product including its copy (docs/compiler.md)",
        *(edge_line(edge) for region in found for edge in region.edges),
    )


def _print_explanation(found: Explanation, limit: Limit) -> None:
    near = f", {', '.join(found.resident)} in the scratchpad" if found.resident else ""
    print_parts(
        line(
            f"{found.layer} ({found.kind}, region {found.region}): {found.budget_bytes:,} bytes "
            f"for tiles{near}"
        )
    )
    print_lines(f"{found.layer} {limit.sentence}; it takes {limit.cycles:,} cycles")
    unit = "channels" if found.layouts is None else "atoms"
    ranks = {
        "estimated cycles": 0,
        "compute": 3,
        "bytes moved": 1,
        "buffers": 4,
        "tiles": 5,
        "missing": 2,
    }
    table = plain_table(
        ("tiling", "left"), *((name, "right", rank) for name, rank in ranks.items())
    )
    for mark, one in (
        ("* ", found.winner),
        *(("  ", one) for one in (*found.others, *found.misfits)),
    ):
        figures = (
            one.estimated_cycles,
            one.compute_cycles,
            one.moved_bytes,
            one.working_set_bytes,
            one.tiles,
        )
        table.add_row(
            mark + _tiling(one.choice),
            *(f"{figure:,}" for figure in figures),
            f"{one.missing:,}" if one.missing else "",
        )
    print_parts(table)
    print_lines(
        *(() if found.group is None else (_group_line(found.group),)),
        f"*: {found.why}",
        f"in the whole network, {found.estimate:,} cycles are estimated for the layer, and it "
        f"takes {found.cycles:,}; the table has estimates of the layer alone",
        *(
            [f"in {found.bank_waits:,} of them EX waits for banks of the scratchpad"]
            if found.bank_waits
            else ()
        ),
        f"considered: {found.fitting + 1} tilings that fit and {found.unfitting} that do not; "
        "cycles are estimates",
        *(() if found.layouts is None else found.layouts.lines()),
        f"a tiling: output {unit} x rows [of input {unit}], outer loop, buffers of "
        "inputs/constants/outputs",
    )
