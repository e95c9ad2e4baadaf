"""Breakdown of each layer's cycles into computing and waiting for a load, a store or the bus.

docs/machine.md, section 7, defines the parts. The part of a cycle is that of the command that EX
executes or waits for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import BUS as BUS_CAUSE
from dla_sim.engine.accounts import SRAM, Causes, Labels, label_cycles
from dla_sim.engine.times import CommandTimes, find_executing
from dla_sim.engine.workload import EX, LD, ST, Demands, Int64, Workload
from isa.access import sort_distinct

PARTS = ("compute", "scratchpad", "weights", "input", "bus", "store", "issue")
"""Parts of a layer's cycles (docs/machine.md, section 7)."""
COMPUTE, SCRATCHPAD, WEIGHTS, INPUT, BUS, STORE, ISSUE = range(len(PARTS))


def roles(demands: Demands) -> Int64:
    """Return the part of the cycle breakdown that each command belongs to.

    The parts are ``COMPUTE``, ``WEIGHTS``, ``INPUT``, ``STORE``, and ``ISSUE`` for ``OP_SYNC``.

    A load has the part ``WEIGHTS`` if its first byte is constant, that is, in a segment of the
    program and in no tensor.
    """
    constant = np.zeros(len(demands.unit), dtype=np.bool_)
    constant[demands.constant] = True
    loaded = np.where(constant, WEIGHTS, INPUT)
    moved = np.where(demands.unit == LD, loaded, STORE)
    return np.where(demands.sync, ISSUE, np.where(demands.unit == EX, COMPUTE, moved))


@dataclass(frozen=True, eq=False)
class Intervals:
    """Consecutive intervals of a run, each with one layer, one kind and one part.

    Attributes:
        edges: begin of each interval, and the end of the last one.
        layer: index into the layers of the labels.
        kind: index into :data:`KINDS`.
        part: index into :data:`PARTS`.
    """

    edges: Int64
    layer: Int64
    kind: Int64
    part: Int64


def attribute_cycles(
    workload: Workload, labels: Labels, times: CommandTimes, causes: Causes
) -> Intervals:
    """Return the layer, the kind and the part of every cycle of a run that has commands.

    The cycles in which an EX command waits for the scratchpad, or a transfer loses the bus, count
    as its last ones.
    """
    computes = workload.demands.unit == EX
    lost = np.where(computes, causes.commands[:, SRAM], causes.commands[:, BUS_CAUSE])
    changes = (times.start, times.end, times.arrival, times.end - lost)
    edges = sort_distinct(np.concatenate([[0, times.total], *changes]))
    begin = edges[:-1]
    kind, layer = label_cycles(labels, workload.demands.by_unit, times, begin)
    executing = find_executing(workload.demands.by_unit[EX], times, begin)
    command = np.where(executing < 0, _find_awaited(workload, times, begin), executing)
    waited = np.where(computes, SCRATCHPAD, BUS)[command]
    part = np.where(begin >= (times.end - lost)[command], waited, roles(workload.demands)[command])
    return Intervals(edges, layer, kind, np.where(command < 0, ISSUE, part))


def break_down(
    workload: Workload, labels: Labels, times: CommandTimes, causes: Causes
) -> tuple[dict[str, int], ...]:
    """Return each layer's cycles by part: computing, and waiting for a load, a store or issue.

    All cycles sum to the total of the run.
    """
    table = np.zeros((len(labels.layers), len(PARTS)), dtype=np.int64)
    if len(workload):
        found = attribute_cycles(workload, labels, times, causes)
        np.add.at(table, (found.layer, found.part), np.diff(found.edges))
    return tuple(dict(zip(PARTS, row, strict=True)) for row in table.tolist())


def _find_awaited(workload: Workload, times: CommandTimes, cycles: Int64) -> Int64:
    """Return for each of ``cycles``, if EX is idle, the LD or ST command it waits for, or -1.

    If EX lacks a token, that is the command executing on the unit that pushes it. If EX lacks a
    command, it is the one on the unit whose full queue blocks the command processor. After the last
    command of EX, it is the one on ST, or on LD if ST is idle.
    """
    demands = workload.demands
    loading, storing = (find_executing(demands.by_unit[unit], times, cycles) for unit in (LD, ST))
    upcoming = np.searchsorted(times.start[demands.by_unit[EX]], cycles, side="right")
    some = upcoming < len(demands.by_unit[EX])
    head = np.where(some, np.append(demands.by_unit[EX], 0)[upcoming], 0)
    arrived = times.arrival[head] <= cycles
    unit = np.select(
        [~some, ~arrived, _is_missing(demands.pushers[0, head], times, cycles)],
        [np.where(storing >= 0, ST, LD), _find_full_unit(workload, times, cycles), LD],
        ST,
    )
    return np.select([unit == LD, unit == ST], [loading, storing], -1)


def _is_missing(pushers: Int64, times: CommandTimes, cycles: Int64) -> NDArray[np.bool_]:
    """Return for each command whether the token that it needs is not yet available.

    ``pushers`` are the commands that push the tokens; -1 means that no token is needed.
    """
    return (pushers >= 0) & (times.end[pushers] > cycles)


def _find_full_unit(workload: Workload, times: CommandTimes, cycles: Int64) -> Int64:
    """Return the unit whose full queue stops the next command of the stream, or -1."""
    following = np.searchsorted(times.arrival, cycles, side="right")
    room = workload.demands.room(workload.timing.queue_depth)
    some = following < len(workload)
    following = np.where(some, following, 0)
    return np.where(
        some & _is_missing(room[following], times, cycles), workload.demands.unit[following], -1
    )
