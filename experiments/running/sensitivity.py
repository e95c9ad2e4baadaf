"""Sensitivity of a run's cycles, as an entry of its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dla_sim.device import Trace
from dla_sim.sensitivity import (
    CycleChange,
    find_command_sensitivity,
    find_sensitivity,
    name_step,
    step_value,
)
from dla_sim.timing import Timing
from experiments.report.sensitivity import (
    ChangeEntry,
    CommandEntry,
    ParameterEntry,
    SensitivityEntry,
)
from isa.progress import Progress, report_each


def describe_sensitivity(
    traces: Mapping[int, Trace], timing: Timing, progress: Progress
) -> SensitivityEntry:
    """Return the sensitivity of the cycles of the regions that ran."""
    progress("finding the sensitivity")
    programs = [trace.workload.demands for trace in traces.values()]
    found = find_sensitivity(programs, timing) if programs else ()
    return SensitivityEntry(
        parameters=tuple(
            ParameterEntry(
                name=one.name,
                value=one.value,
                step=name_step(one.name),
                up=_describe(one.up, one.name, one.value, 1),
                down=_describe(one.down, one.name, one.value, -1),
            )
            for one in found
        ),
        commands=tuple(
            entry
            for index in sorted(traces)
            for entry in _list_commands(index, traces[index], timing, progress)
        ),
    )


def _describe(change: CycleChange | None, key: str, value: object, sign: int) -> ChangeEntry | None:
    if change is None:
        return None
    until = step_value(key, value, sign * change.steps) if key else change.steps
    return ChangeEntry(cycles=change.cycles, until=until, final=change.final)


def _list_commands(
    region: int, trace: Trace, timing: Timing, progress: Progress
) -> Iterator[CommandEntry]:
    """Yield the entries of a region's commands in the order of its program."""
    labels = trace.labels
    cycles = (trace.times.end - trace.times.start).tolist()
    found = find_command_sensitivity(trace.workload.demands, timing)
    commands = report_each(trace.commands, "changing the end of commands", progress)
    for number, (command, one) in enumerate(zip(commands, found, strict=True)):
        yield CommandEntry(
            region=region,
            number=number,
            layer=labels.layers[labels.layer[number]],
            instruction=command.instruction.mnemonic,
            cycles=cycles[number],
            later=_describe(one.later, "", 0, 1),
            earlier=_describe(one.earlier, "", 0, -1),
        )
