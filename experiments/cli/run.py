"""``dla run``: from a model to a checked report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from experiments.cli import options, results
from experiments.extras import require_amaranth, require_plotly
from experiments.literal import say
from experiments.running.declared import option
from experiments.running.given import RunRequest
from isa.errors import InputError
from isa.files import write_atomically

if TYPE_CHECKING:
    from experiments.report.schema import RunReport
    from experiments.running.result import Result

MOST_INSTRUCTIONS = 1_000
"""Most instructions of a run that ends with advice, because advice times several machines."""


@dataclass(frozen=True)
class RunEnding:
    """Options of ``dla run`` for its last lines and its page."""

    advice: bool = field(
        default=True,
        metadata=option(
            "--advice/--no-advice",
            "End with the two changes, of a few measured, that save the most cycles.",
            bool,
            panel="Results",
        ),
    )
    html: bool = field(
        default=False,
        metadata=option(
            "--html",
            "Also write the page of 'dla report', in the folder <name>-report next to the report.",
            bool,
            panel="Results",
        ),
    )


@options.expand_options
def command(
    wanted: RunRequest,
    json: options.Json = None,
    csv: options.Csv = None,
    all: options.All = False,
    summary: options.Summary = False,
    engine: options.Engine = options.EngineChoice.simulator,
    *,
    ending: RunEnding,
) -> int:
    """Compile and simulate a model, check the results, and print one screen about them.

    The model is quantised if needed. The results are checked against the CPU. The screen says
    whether they are right, how fast the network is, what limits it, and which layers cost most.
    """
    if all and summary:
        raise InputError("--all prints the tables and --summary omits them; give one of the two")
    if ending.html:
        require_plotly()
    with options.pause_collection():
        from experiments.report.schema import report_json
        from experiments.report.screen import SCREEN_COLUMNS
        from experiments.report.store import default_path, page_path
        from experiments.report.tables import layer_rows
        from experiments.report.terminal import report_console
        from experiments.running.inference import run_requested

    if engine is options.EngineChoice.rtl:
        wanted = _use_hardware(wanted)
    with options.stages() as progress:
        done = run_requested(replace(wanted, progress=progress))
    report = done.report
    text = report_json(report)
    place = json or default_path(report, text)
    results.write(place, text)
    results.write_csv(csv, layer_rows(report))
    if all or summary:
        done.show(form="brief" if summary else "tables")
    else:
        done.show(report_console(SCREEN_COLUMNS), "screen")
        if ending.advice and _can_advise(report) and place != results.STANDARD_OUTPUT:
            done = _advise(wanted, done)
            results.write(place, report_json(done.report))
        if not options.is_quiet():
            say("more: --all (every table), dla advise MODEL, dla report FILE, dla help TERM")
    if ending.html:
        beside = default_path(report, text) if place == results.STANDARD_OUTPUT else place
        page = page_path(beside, beside.stem)
        write_atomically(page, done.page())
        say(f"page written to {page}")
    say(
        f"report written to {place}"
        + (f", timeline to {wanted.timeline}" if wanted.timeline else "")
    )
    return _status(report)


def _can_advise(report: RunReport) -> bool:
    """Return whether a run is right, simulated and short enough to time it on other machines."""
    return (
        report.check.mismatches == 0
        and report.hardware is None
        and report.machine is None
        and (report.totals.instructions or 0) <= MOST_INSTRUCTIONS
    )


def _advise(wanted: RunRequest, done: Result) -> Result:
    """Print gain and command of the best of a few changes, and add them to the run's report."""
    from experiments.report.schema import MeasuredChange
    from experiments.running.answers import find_advice, is_cacheable
    from experiments.running.inference import hardware_of, settle_request

    wanted, _ = settle_request(wanted)  # a preset that --machine names
    cycles = done.report.totals.cycles + done.report.host.estimated_cycles

    def make() -> list[tuple[float, str]]:
        from experiments.advise.advice import measure_first_changes

        with options.stages() as progress:
            return measure_first_changes(wanted, done.package, cycles, progress)

    run = f"{done.report.command}, {cycles} cycles"
    known = (
        find_advice(done.package, hardware_of(wanted), wanted.options, run, make)
        if is_cacheable(wanted)
        else make()
    )
    found = tuple(MeasuredChange(saves=saves, command=command) for saves, command in known)
    for change in found:
        say(f"{change.saves:.1%} fewer cycles: {change.command}")
    return replace(done, report=done.report.model_copy(update={"advice": found}))


def _use_hardware(wanted: RunRequest) -> RunRequest:
    """Return the run request with the simulated hardware (RTL) as its engine."""
    require_amaranth()
    from experiments.rtl.hardware import HardwareDevice

    return replace(wanted, engine=HardwareDevice)


def _status(report: RunReport) -> int:
    """Return the exit status of a run, and print the first difference if its results are wrong.

    The status is 1 if accelerator and oracle differ. The difference goes to standard error.
    """
    from experiments.report.checks import find_difference

    difference = find_difference(report.check, report.hardware, report.accuracy)
    return results.report_difference(difference) if difference else 0
