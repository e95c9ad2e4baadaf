"""Breakdown: what each cycle of each layer went into or was spent waiting for (docs/machine.md, section 7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.causes import BUS as BUS_CAUSE
from dla_sim.engine.causes import SRAM, Causes
from dla_sim.engine.demands import EX, LD, ST
from dla_sim.engine.labels import Labels
from dla_sim.engine.roles import BUS, ISSUE, PARTS, SCRATCHPAD
from dla_sim.engine.schedule import Schedule
from dla_sim.engine.timeline import executing, oldest_unfinished
from dla_sim.engine.workload import Workload

Int64 = NDArray[np.int64]


def break_down(
    workload: Workload, labels: Labels, roles: Int64, schedule: Schedule, causes: Causes
) -> tuple[dict[str, int], ...]:
    """For each layer, in the order of ``labels.layers``, its cycles by part, zeros included.

    The layers' sums add up to the total; AssertionError if they do not or if a figure is negative.
    """
    table = np.zeros((len(labels.layers), len(PARTS)), dtype=np.int64)
    members = workload.demands.by_unit[EX]
    waited = causes.commands[members, SRAM]
    layer = labels.layer[members]
    np.add.at(table, (layer, roles[members]), schedule.end[members] - schedule.start[members] - waited)
    np.add.at(table, (layer, np.full(len(members), SCRATCHPAD)), waited)
    if len(workload):
        _add_waits(table, workload, labels, roles, schedule, causes)
        if table.sum() != schedule.total or table.min() < 0:
            raise AssertionError("the parts of the layers' cycles do not add up to the total")
    return tuple(dict(zip(PARTS, row, strict=True)) for row in table.tolist())


def _add_waits(
    table: Int64, workload: Workload, labels: Labels, roles: Int64, schedule: Schedule, causes: Causes
) -> None:
    """Add the stretches of the run in which EX does not execute."""
    lost = causes.commands[:, BUS_CAUSE]
    times = (schedule.start, schedule.end, schedule.arrival, schedule.end - lost)
    edges = np.unique(np.concatenate([[0, schedule.total], *times]))
    begin, length = edges[:-1], np.diff(edges)
    idle = executing(workload.demands.by_unit[EX], schedule, begin) < 0
    begin, length = begin[idle], length[idle]
    command = _awaited(workload, schedule, begin)
    part = np.where(command < 0, ISSUE, np.where(begin >= (schedule.end - lost)[command], BUS, roles[command]))
    np.add.at(table, (labels.layer[oldest_unfinished(schedule, begin)], part), length)


def _awaited(workload: Workload, schedule: Schedule, times: Int64) -> Int64:
    """At times when EX does not execute: the command of LD or ST that it waits for to complete, or -1 for none.

    That is the command which executes on the unit that EX lacks a token of or, if EX lacks a command, on the unit
    whose full queue holds up the command processor; once EX has no more commands, on ST or else LD.
    """
    demands = workload.demands
    loading, storing = (executing(demands.by_unit[unit], schedule, times) for unit in (LD, ST))
    upcoming = np.searchsorted(schedule.start[demands.by_unit[EX]], times, side="right")
    some = upcoming < len(demands.by_unit[EX])
    head = np.where(some, np.append(demands.by_unit[EX], 0)[upcoming], 0)
    arrived = schedule.arrival[head] <= times
    unit = np.select(
        [~some, ~arrived, _missing(demands.pushers[0, head], schedule, times)],
        [np.where(storing >= 0, ST, LD), _held_up(workload, schedule, times), LD],
        ST,
    )
    return np.select([unit == LD, unit == ST], [loading, storing], -1)


def _missing(pushers: Int64, schedule: Schedule, times: Int64) -> NDArray[np.bool_]:
    """Whether a token of ``pushers`` (-1: none is needed) is not there yet."""
    return (pushers >= 0) & (schedule.end[pushers] > times)


def _held_up(workload: Workload, schedule: Schedule, times: Int64) -> Int64:
    """The unit whose queue is full when the next operation of the stream is for it, else -1."""
    following = np.searchsorted(schedule.arrival, times, side="right")
    room = workload.demands.room(workload.timing.queue_depth)
    some = following < len(workload)
    following = np.where(some, following, 0)
    return np.where(some & _missing(room[following], schedule, times), workload.demands.unit[following], -1)
