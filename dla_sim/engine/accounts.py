"""Accounts: why every cycle of every unit went by, command by command, and the cycles of a run by kind and by layer.

The causes follow from the commands' times (docs/machine.md, section 7), with each layer's work and stalls. A sweep
needs the cycles by kind alone, which take no timeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.times import CommandTimes, executing, oldest_unfinished
from dla_sim.engine.workload import EX, LD, ST, TOKEN_QUEUES, UNIT_NAMES, Demands, Workload
from dla_sim.timing import Timing
from isa.errors import InputError
from isa.instruction import KINDS, Command, Operands
from isa.program import Provenance

CAUSES = ("busy", "token_LD", "token_EX", "token_ST", "bus", "dram", "flash", "sram", "queue_empty", "drained")
BUSY, TOKEN, BUS, DRAM, FLASH, SRAM, QUEUE_EMPTY, DRAINED = 0, 1, 4, 5, 6, 7, 8, 9


def causes_of(timing: Timing) -> tuple[str, ...]:
    """The causes that cycles of a machine can have: ``flash`` only where it has one."""
    return tuple(cause for cause in CAUSES if cause != CAUSES[FLASH] or timing.flash is not None)


@dataclass(frozen=True, eq=False)
class Causes:
    """``commands`` int64 (commands, 10): cycles before a command's start and within it, for each of :data:`CAUSES`.

    ``drained`` is 0 for every command; it is what remains of a unit's cycles after its last one. ``names`` are those
    that the machine can have.
    """

    commands: NDArray[np.int64]
    by_unit: tuple[NDArray[np.int64], ...]
    total: int
    names: tuple[str, ...]

    @cached_property
    def units(self) -> dict[str, dict[str, int]]:
        """Cycles by cause of LD, EX and ST; each sums to ``total``, which is asserted where the causes are made."""
        tables = {}
        for name, members in zip(UNIT_NAMES, self.by_unit, strict=True):
            sums = self.commands[members].sum(axis=0)
            sums[DRAINED] = self.total - sums.sum()
            by_cause = dict(zip(CAUSES, sums.tolist(), strict=True))
            tables[name] = {cause: by_cause[cause] for cause in self.names}
        return tables


def explain(workload: Workload, times: CommandTimes) -> Causes:
    """The causes of all cycles of a run.

    The rules of the machine are applied anew to the times that the engine found: a start that they do not explain to
    the cycle, a negative figure or a sum that is not the total is an AssertionError.
    """
    columns = workload.columns
    causes = np.zeros((len(workload), len(CAUSES)), dtype=np.int64)
    tokens = _token_times(workload, times)
    for members in workload.demands.by_unit:
        _explain_waits(members, times, tokens, causes)
    beyond = times.end - times.start - columns["lead"] - columns["tail"] - columns["slots"]
    causes[:, BUS] = (columns["slots"] > 0) * beyond
    memory = columns["latency"] + columns["slots"] - columns["beats"] - columns["held"]
    causes[:, FLASH] = memory * columns["flash"]
    causes[:, DRAM] = memory - causes[:, FLASH]
    causes[:, SRAM] = columns["scratchpad"] + columns["held"]
    delayed = list(workload.bank_loads)
    causes[delayed, SRAM] += beyond[delayed]
    constant = columns["lead"] + columns["tail"] + columns["beats"] - columns["latency"] - columns["scratchpad"]
    causes[:, BUSY] = constant
    _check(workload, times, causes)
    return Causes(causes, workload.demands.by_unit, times.total, causes_of(workload.timing))


def _token_times(workload: Workload, times: CommandTimes) -> NDArray[np.int64]:
    """(commands, 4): the cycle in which the token that a command pops from each counter was there; -1 for no pop."""
    there = np.full((len(workload), len(TOKEN_QUEUES)), -1, dtype=np.int64)
    for counter in range(len(TOKEN_QUEUES)):
        pushing, popping = workload.demands.pushing[counter], workload.demands.popping[counter]
        there[popping, counter] = times.end[pushing[: len(popping)]]
    return there


def _explain_waits(
    members: NDArray[np.int64], times: CommandTimes, tokens: NDArray[np.int64], causes: NDArray[np.int64]
) -> None:
    """Fill in what the commands ``members`` of one unit waited for before they started."""
    if not len(members):
        return
    arrival, start = times.arrival[members], times.start[members]
    free = np.concatenate(([0], times.end[members[:-1]]))
    causes[members, QUEUE_EMPTY] = np.maximum(arrival - free, 0)
    waited = np.maximum(arrival, free)
    # Counters are in the order LD to EX, EX to LD, EX to ST, ST to EX: only EX has two, and LD's comes first.
    for counter, (pusher, _) in enumerate(TOKEN_QUEUES):
        there = np.maximum(tokens[members, counter], waited)
        causes[members, TOKEN + pusher] += there - waited
        waited = there
    if not np.array_equal(waited, start):
        raise AssertionError("a command started at a time that its arrival, unit and tokens do not explain")


def _check(workload: Workload, times: CommandTimes, causes: NDArray[np.int64]) -> None:
    """Assert that no figure is negative and that the cycles up to each unit's last command are all explained."""
    if causes.min(initial=0) < 0:
        raise AssertionError("an account of cycles is negative")
    for name, members in zip(UNIT_NAMES, workload.demands.by_unit, strict=True):
        last = int(times.end[members].max(initial=0))
        if causes[members].sum() != last or last >= times.total:
            raise AssertionError(f"the cycles of unit {name} do not add up to the total")


# Labels --------------------------------------------------------------------------------------------------------------
# Labels: the kind, layer, work and traffic of each command, from instruction and provenance. Independent of time.

DMA, ISSUE = KINDS.index("DMA"), KINDS.index("ISSUE")


@dataclass(frozen=True, eq=False)
class Labels:
    """int64 arrays, one entry a command, and what belongs to each layer, in order of first appearance.

    ``kind`` indexes :data:`KINDS`, ``layer`` indexes ``layers``; ``read`` and ``write`` are bytes of system memory
    moved by LD and ST (all bytes of all rows; command fetch is not in them).
    """

    kind: NDArray[np.int64]
    layer: NDArray[np.int64]
    macs: NDArray[np.int64]
    read: NDArray[np.int64]
    write: NDArray[np.int64]
    layers: tuple[str, ...]
    onnx_nodes: tuple[tuple[str, ...], ...]
    tiles: tuple[int, ...]


def label(commands: Sequence[Command], operands: Sequence[Operands], sources: Sequence[Provenance | None]) -> Labels:
    """The labels of ``commands`` (without ``OP_END``). Words that no provenance covers belong to the layer ``""``.

    The kind is the provenance's where there is one (so an emulated depthwise convolution counts as DEPTH), except that
    DMA and SYNC keep their own. Raises InputError for a kind that does not exist.
    """
    layers: dict[str, dict[str, None]] = {}
    tiles: dict[str, set[int]] = {}
    rows, position = [], dict[str, int]()
    for command, item, source in zip(commands, operands, sources, strict=True):
        name = source.layer if source is not None else ""
        if name not in position:
            position[name], layers[name], tiles[name] = len(position), {}, set()
        if source is not None:
            layers[name].update(dict.fromkeys(source.onnx_nodes))
            if _computes(command):
                tiles[name].add(source.tile)
        read = sum([access.total for access in item.reads if access.space == "dram"])
        write = sum([access.total for access in item.writes if access.space == "dram"])
        rows.append((_kind(command, source), position[name], command.instruction.macs(command), read, write))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Labels(
        kind=columns[0],
        layer=columns[1],
        macs=columns[2],
        read=columns[3],
        write=columns[4],
        layers=tuple(layers),
        onnx_nodes=tuple(tuple(names) for names in layers.values()),
        tiles=tuple(len(found) for found in tiles.values()),
    )


def _computes(command: Command) -> bool:
    return command.instruction.kind not in ("DMA", "ISSUE")


def _kind(command: Command, source: Provenance | None) -> int:
    own = command.instruction.kind
    kind = source.kind if source is not None and source.kind and _computes(command) else own
    if kind not in KINDS:
        raise InputError(
            f"word {command.index}: provenance kind '{kind}' does not exist; choose one of {', '.join(KINDS)}",
            words=(command.index,),
        )
    return KINDS.index(kind)


Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class LayerAccount:
    """One layer's share of the run.

    ``cycles`` of all layers sum to the total; ``ex_cycles`` are those in which EX executes a command of it; ``stalls``
    gives, for each unit and cause but ``busy``, the cycles before and within the unit's commands of this layer.
    ``kind`` is the kind of most of its EX cycles, ``DMA`` without any; ``tiles`` counts tiles with compute.
    """

    name: str
    onnx_nodes: tuple[str, ...]
    kind: str
    cycles: int
    ex_cycles: int
    macs: int
    dram_read_bytes: int
    dram_write_bytes: int
    tiles: int
    stalls: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Accounts:
    """``kinds`` (cycles by kind, summing to the total), ``ex_cycles`` (EX executing, by kind), the layers in order."""

    kinds: Mapping[str, int]
    ex_cycles: Mapping[str, int]
    layers: tuple[LayerAccount, ...]


def account(labels: Labels, causes: Causes, times: CommandTimes) -> Accounts:
    """The accounts of one run. A sum that is not the total is an AssertionError."""
    lengths, kind, layer = _timeline(labels, causes.by_unit, times)
    by_kind = np.bincount(kind, weights=lengths, minlength=len(KINDS)).astype(np.int64)
    by_layer = np.bincount(layer, weights=lengths, minlength=len(labels.layers)).astype(np.int64)
    if by_kind.sum() != times.total or by_layer.sum() != times.total:
        raise AssertionError("the cycles by kind or by layer do not add up to the total")
    table = _ex_table(labels, causes, times)
    kinds, ex_cycles = by_kind.tolist(), table.sum(axis=0).tolist()
    layers = _layers(labels, causes, by_layer, table)
    return Accounts(dict(zip(KINDS, kinds, strict=True)), dict(zip(KINDS, ex_cycles, strict=True)), layers)


def layer_cycles(labels: Labels, demands: Demands, times: CommandTimes) -> dict[str, int]:
    """Cycles of the run by layer, as :func:`account` has them: they sum to the total."""
    lengths, _, layer = _timeline(labels, demands.by_unit, times)
    cycles = np.bincount(layer, weights=lengths, minlength=len(labels.layers)).astype(np.int64)
    return dict(zip(labels.layers, cycles.tolist(), strict=True))


def _timeline(labels: Labels, by_unit: Sequence[Int64], times: CommandTimes) -> tuple[Int64, Int64, Int64]:
    """(length, kind, layer) of stretches of the run, in order, in each of which nothing changes."""
    edges = np.unique(np.concatenate([[0, times.total], times.start, times.end]))
    begin = edges[:-1]
    if not len(times.end):
        return np.diff(edges), np.full(len(begin), ISSUE), np.zeros(len(begin), dtype=np.int64)
    units = [executing(members, times, begin) for members in by_unit]
    moving = (units[LD] >= 0) | (units[ST] >= 0)
    computing = units[EX] >= 0
    kind = np.where(computing, labels.kind[units[EX]], np.where(moving, DMA, ISSUE))
    layer = np.where(computing, labels.layer[units[EX]], labels.layer[oldest_unfinished(times, begin)])
    return np.diff(edges), kind, layer


def _ex_table(labels: Labels, causes: Causes, times: CommandTimes) -> Int64:
    """(layers, kinds): cycles in which EX executes."""
    members = causes.by_unit[EX]
    table = np.zeros((len(labels.layers), len(KINDS)), dtype=np.int64)
    np.add.at(table, (labels.layer[members], labels.kind[members]), times.end[members] - times.start[members])
    return table


def _layers(labels: Labels, causes: Causes, cycles: Int64, table: Int64) -> tuple[LayerAccount, ...]:
    count = len(labels.layers)
    sums = np.zeros((3, count), dtype=np.int64)
    for row, column in enumerate((labels.macs, labels.read, labels.write)):
        np.add.at(sums[row], labels.layer, column)
    stalls = np.zeros((len(UNIT_NAMES), count, len(CAUSES)), dtype=np.int64)
    for unit, members in enumerate(causes.by_unit):
        np.add.at(stalls[unit], labels.layer[members], causes.commands[members])
    return tuple(
        LayerAccount(
            name=labels.layers[i],
            onnx_nodes=labels.onnx_nodes[i],
            kind=KINDS[int(table[i].argmax())] if table[i].any() else KINDS[DMA],
            cycles=int(cycles[i]),
            ex_cycles=int(table[i].sum()),
            macs=int(sums[0, i]),
            dram_read_bytes=int(sums[1, i]),
            dram_write_bytes=int(sums[2, i]),
            tiles=labels.tiles[i],
            stalls={name: _named(stalls[unit, i], causes.names) for unit, name in enumerate(UNIT_NAMES)},
        )
        for i in range(count)
    )


def _named(cycles: Int64, names: Sequence[str]) -> dict[str, int]:
    """Cycles by those causes, without ``busy`` and ``drained``, which are no stalls of a layer."""
    indices = [index for index, cause in enumerate(CAUSES) if cause in names and index not in (BUSY, DRAINED)]
    return {CAUSES[index]: int(cycles[index]) for index in indices}


def kind_cycles(labels: Labels, demands: Demands, times: CommandTimes) -> tuple[dict[str, int], dict[str, int]]:
    """(cycles of the run by kind, cycles in which EX executes by kind), as :func:`account` has them.

    Where EX executes the cycle is its command's; of the others those in which LD or ST executes are DMA. A sum of the
    first that is not the total, or a negative figure, is an AssertionError.
    """
    executing = demands.by_unit[EX]
    durations = times.end[executing] - times.start[executing]
    table = np.bincount(labels.kind[executing], weights=durations, minlength=len(KINDS)).astype(np.int64)
    ex_cycles = dict(zip(KINDS, table.tolist(), strict=True))
    active = _covered(times)
    table[DMA] += active - table.sum()
    table[ISSUE] += times.total - active
    if table.sum() != times.total or table.min() < 0:
        raise AssertionError("the cycles by kind do not add up to the total")
    return dict(zip(KINDS, table.tolist(), strict=True)), ex_cycles


def _covered(times: CommandTimes) -> int:
    """Cycles in which any unit executes."""
    order = np.argsort(times.start, kind="stable")
    start, end = times.start[order], times.end[order]
    reached = np.maximum.accumulate(end)
    before = np.concatenate(([0], reached[:-1])) if len(end) else reached
    return int(np.maximum(end - np.maximum(start, before), 0).sum())
