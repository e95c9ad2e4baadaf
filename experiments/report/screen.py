"""One screen of a run: is it right, how fast is it, what limits it, which layers cost most."""

from collections.abc import Iterator
from itertools import islice
from textwrap import shorten

from rich.text import Text

from experiments.cost.estimate import cost_lines
from experiments.report.limits import LARGE, MOST_LAYERS, layer_limit, whole
from experiments.report.schema import HostLayer, Layer, RunReport
from experiments.report.sensitivity import sensitivity_tables
from experiments.report.tables import (
    end_to_end_line,
    facts_table,
    list_in_order,
    machine_line,
    name_part,
    total_lines,
)
from experiments.report.terminal import Printed, ReportTable, line, plain_table

SCREEN_COLUMNS = 80
SCREEN_LINES = 40
"""Most lines of the screen of any run."""
MOST_WARNINGS = 2
LONGEST_NAME = 26
"""Most characters of a layer's name in the table."""
LONGEST_TEXT = 120
"""Most characters of a text, so that it takes at most two lines."""
LONGEST_LIMIT = 185
"""The same for the sentence about the limiter, which takes at most three lines."""
_CORRECT = ("check", "hardware", "batch")
_SAMPLES = ("calibration", "quantised", "accuracy")
_SPEED = ("machine", "cycles", "MACs")
WEIGHTS = {
    "trained": "trained",
    "random": "random, drawn from the seed: outputs and accuracy mean nothing",
    None: "as in the model given",
}


def screen(report: RunReport) -> Iterator[Printed]:
    """Yield the lines and the table of a run's screen, at most :data:`SCREEN_LINES` lines.

    The tables of the sensitivity are further lines. The console must have
    :data:`SCREEN_COLUMNS` columns.
    """
    title = f"{report.model} on {machine_line(report)}"
    if report.machine is not None or len(title) <= SCREEN_COLUMNS:
        yield line(title, style="bold")
    else:
        sizes, _, program = title.rpartition(", ISA ")
        yield line(f"{_end_of(sizes, SCREEN_COLUMNS - 1)},", style="bold")
        yield line(f"ISA {program}", style="bold")
    yield facts_table(_facts(report))
    if report.layers or report.host.layers:
        yield expensive_table(report)
    if report.sensitivity is not None:
        yield from sensitivity_tables(report.sensitivity)


def _facts(report: RunReport) -> Iterator[tuple[str, str | Text]]:
    told = list(total_lines(report))
    yield from ((name, _cut(text)) for name, text in told if name in _CORRECT)
    yield "weights", WEIGHTS[report.weights]
    yield from _warnings(report)
    yield from ((name, _cut(text)) for name, text in told if name in _SAMPLES)
    yield "end to end", end_to_end_line(report.end_to_end)
    if report.steps is not None:
        yield "steps", shorten(report.steps.message(), LONGEST_LIMIT, placeholder=" ...")
    for branch in report.branches:
        yield "branch", _cut(branch.message())
    yield "time", time_line(report)
    yield from (one for one in told if one[0] in _SPEED)
    if report.cost is not None:
        costs = (
            f"{name.partition(' (')[0]} {text.partition(' by ')[0]}"
            for name, text in cost_lines(report.cost)
        )
        yield "cost", f"{', '.join(islice(costs, 2))}, estimates without bus and CPU"
    yield "limit", shorten(limit_line(report), LONGEST_LIMIT, placeholder=" ...")


def _warnings(report: RunReport) -> Iterator[tuple[str, Text]]:
    more = len(report.warnings) - MOST_WARNINGS
    for number, suspicion in enumerate(report.warnings[:MOST_WARNINGS], start=1):
        last = f" (and {more} more: --all)" if more > 0 and number == MOST_WARNINGS else ""
        text = shorten(suspicion.message(), LONGEST_TEXT - len(last), placeholder=" ...")
        yield "warning", Text(text + last, style="yellow")


def time_line(report: RunReport) -> str:
    """Return the milliseconds of an inference and the inferences a second.

    They include the CPU and the transfers, which are estimates.
    """
    clock = report.clock_hz
    cycles = report.end_to_end.cycles
    if not cycles:
        return "no cycles"
    rate = f"{clock / cycles:,.0f}" if clock >= 100 * cycles else f"{clock / cycles:.3g}"
    return (
        f"~{cycles / clock * 1e3:,.4g} ms end to end, ~{rate} inferences a second at "
        f"{clock / 1e6:g} MHz"
    )


def limit_line(report: RunReport) -> str:
    """Return a sentence that explains what limits a run, with its figures."""
    found = report.end_to_end
    text = f"the accelerator {whole(report).sentence}"
    if found.share(found.cpu_cycles) >= LARGE:
        return f"the CPU takes {found.share(found.cpu_cycles):.0%} of the time; {text}"
    return text


def expensive_table(report: RunReport) -> ReportTable:
    """Return the most expensive layers and CPU nodes, most cycles first, with their limiters.

    Ties keep the order of the network.
    """
    total = report.end_to_end.cycles
    ranked = sorted(list_in_order(report), key=lambda one: -_cycles_of(one))
    table = plain_table(
        ("layer", "left"),
        ("cycles", "right"),
        ("share", "right"),
        ("util.", "right"),
        ("limit", "left"),
    )
    for one in ranked[:MOST_LAYERS]:
        cycles = _cycles_of(one)
        share = f"{cycles / total:.1%}" if total else ""
        if isinstance(one, HostLayer):
            cells = (_end_of(one.node), f"~{cycles:,}", share, "", "on the CPU")
        else:
            known = one.macs and one.utilization is not None
            full = f"{one.utilization:.1%}" if known else ""
            cells = (_end_of(one.name), f"{cycles:,}", share, full, _part_of(one))
        table.add_row(*cells)
    return table


def _cycles_of(one: Layer | HostLayer) -> int:
    return one.estimated_cycles if isinstance(one, HostLayer) else one.cycles


def _part_of(layer: Layer) -> str:
    """Return the largest part of a layer's cycles, with its share."""
    parts = layer_limit(layer).parts
    return f"{name_part(parts[0][0], layer)} {parts[0][1] / layer.cycles:.0%}" if parts else ""


def _end_of(name: str, most: int = LONGEST_NAME) -> str:
    """Return a text of at most ``most`` characters: the end, in which layers' names differ."""
    return name if len(name) <= most else "..." + name[3 - most :]


def _cut(text: str | Text) -> str | Text:
    if isinstance(text, Text):
        return Text(shorten(text.plain, LONGEST_TEXT, placeholder=" ..."), style=text.style)
    return shorten(text, LONGEST_TEXT, placeholder=" ...")
