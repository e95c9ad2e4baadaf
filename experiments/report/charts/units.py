"""What the units of the machine do when, for a picture: the commands of a run without their causes and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dla_sim.engine.workload import UNIT_NAMES
from experiments.report.charts.model import Span, Spans
from experiments.report.charts.style import BLUE, ORANGE, VERMILION, Style
from experiments.report.figures import RegionRun

_STYLES = {"LD": Style(ORANGE), "EX": Style(BLUE), "ST": Style(VERMILION)}
_NOTE = "Each stretch is one layer's commands on a unit, one after another without a gap; regions follow each other."


def unit_spans(runs: Sequence[RegionRun]) -> Spans:
    """A row a unit, and the stretches of time in which it works on a layer."""
    spans = [span for unit in range(len(UNIT_NAMES)) for span in _joined(_spans(runs, unit))]
    rows = tuple((name, _STYLES[name]) for name in UNIT_NAMES)
    total = sum(run.trace.cycles for run in runs)
    return Spans("timeline", "The units over time", rows, tuple(spans), total, _NOTE)


def _spans(runs: Sequence[RegionRun], unit: int) -> Iterator[Span]:
    """A span a command of a unit, in order."""
    offset = 0
    for run in runs:
        starts, ends = run.trace.times.start.tolist(), run.trace.times.end.tolist()
        for command, source, begin, end in zip(run.trace.commands, run.trace.sources, starts, ends, strict=True):
            if UNIT_NAMES[unit] == command.unit.name:
                name = source.layer if source is not None and source.layer else command.instruction.mnemonic
                yield Span(unit, offset + begin, end - begin, name)
        offset += run.trace.cycles


def _joined(spans: Iterator[Span]) -> Iterator[Span]:
    """Spans of one layer that follow each other without a gap as one."""
    last: Span | None = None
    for span in spans:
        if last is not None and last.label == span.label and last.begin + last.cycles == span.begin:
            last = Span(span.row, last.begin, last.cycles + span.cycles, span.label)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last
