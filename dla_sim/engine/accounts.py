"""Accounts: the cause of every cycle of every unit, and the cycles of a run by kind and by layer.

The causes follow from the commands' times (docs/machine.md, section 7), and with them each layer's
work and stalls. :func:`kind_cycles` gives the cycles by kind alone, which sweeps use, without
building a timeline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.bus import Refresh
from dla_sim.engine.times import CommandTimes, find_executing, find_oldest_unfinished
from dla_sim.engine.workload import EX, LD, ST, TOKEN_QUEUES, UNIT_NAMES, Demands, Int64, Workload
from dla_sim.timing import Timing
from isa.access import sort_distinct
from isa.errors import InputError
from isa.instruction import KINDS, Command, Operands
from isa.program import Provenance

CAUSES = (
    "busy",
    "token_LD",
    "token_EX",
    "token_ST",
    "bus",
    "dram",
    "flash",
    "sram",
    "queue_empty",
    "drained",
)
BUSY = 0
TOKEN = 1
BUS = 4
DRAM = 5
FLASH = 6
SRAM = 7
QUEUE_EMPTY = 8
DRAINED = 9


def causes_of(timing: Timing) -> tuple[str, ...]:
    """Return the causes that a machine's cycles can have; ``flash`` only with a flash."""
    return tuple(cause for cause in CAUSES if cause != CAUSES[FLASH] or timing.flash is not None)


@dataclass(frozen=True, eq=False)
class Causes:
    """Cycles of the commands of a run by cause.

    Attributes:
        commands: int64 (commands, 10): cycles before a command's start and within it, by
            :data:`CAUSES`. ``drained`` is 0 for every command; it is the remainder of a unit's
            cycles after its last command.
        by_unit: numbers of the commands of LD, EX and ST.
        total: cycles of the run.
        names: causes that the machine can have.
    """

    commands: NDArray[np.int64]
    by_unit: tuple[NDArray[np.int64], ...]
    total: int
    names: tuple[str, ...]

    @cached_property
    def units(self) -> dict[str, dict[str, int]]:
        """Cycles by cause for LD, EX and ST.

        Each unit's cycles sum to ``total``, as :func:`explain` asserts.
        """
        tables = {}
        for name, members in zip(UNIT_NAMES, self.by_unit, strict=True):
            sums = self.commands[members].sum(axis=0)
            sums[DRAINED] = self.total - sums.sum()
            by_cause = dict(zip(CAUSES, sums.tolist(), strict=True))
            tables[name] = {cause: by_cause[cause] for cause in self.names}
        return tables


def explain(workload: Workload, times: CommandTimes) -> Causes:
    """Return the cause of every cycle of every unit in a run.

    The function applies the machine's rules again to the times that the engine found.

    Raises:
        AssertionError: the rules do not give the start of a command, a figure is negative, or a sum
            differs from the total.
    """
    columns = workload.columns
    causes = np.zeros((len(workload), len(CAUSES)), dtype=np.int64)
    tokens = _token_times(workload, times)
    for members in workload.demands.by_unit:
        _explain_waits(members, times, tokens, causes)
    beyond = times.end - times.start - columns["lead"] - columns["tail"] - columns["slots"]
    blocked = _count_blocked(workload, times)
    for cause, cycles in count_fixed_causes(columns).items():
        causes[:, cause] = cycles
    causes[:, BUS] = (columns["slots"] > 0) * (beyond - blocked)
    causes[:, DRAM] += blocked
    delayed = list(workload.bank_loads)
    causes[delayed, SRAM] += beyond[delayed]
    _check(workload, times, causes)
    return Causes(causes, workload.demands.by_unit, times.total, causes_of(workload.timing))


def count_fixed_causes(columns: Mapping[str, Int64]) -> dict[int, Int64]:
    """Return the cycles of each command by cause that do not depend on other commands."""
    memory = columns["latency"] + columns["slots"] - columns["beats"] - columns["held"]
    own = columns["lead"] + columns["tail"] + columns["beats"]
    return {
        BUSY: own - columns["latency"] - columns["scratchpad"],
        DRAM: memory * (1 - columns["flash"]),
        FLASH: memory * columns["flash"],
        SRAM: columns["scratchpad"] + columns["held"],
    }


def _count_blocked(workload: Workload, times: CommandTimes) -> Int64:
    """Return the cycles of each data phase in which the main memory opens rows or refreshes."""
    if times.missed is None:
        return np.zeros_like(times.start)
    columns = workload.columns
    timing = workload.timing
    refresh = Refresh(timing.dram_refresh_interval, timing.dram_refresh_cycles)
    begin = times.start + columns["lead"]
    end = times.end - columns["tail"]
    intervals = zip(begin.tolist(), end.tolist(), strict=True)
    granted = np.array(
        [refresh.count_slots(after) - refresh.count_slots(before) for before, after in intervals],
        dtype=np.int64,
    )
    return times.missed + np.where(columns["slots"] > 0, end - begin - granted, 0)


def _token_times(workload: Workload, times: CommandTimes) -> NDArray[np.int64]:
    """Return the cycle in which each token that a command pops became available.

    The shape is (commands, 4), one column per token counter; -1 if the command pops no token.
    """
    there = np.full((len(workload), len(TOKEN_QUEUES)), -1, dtype=np.int64)
    for counter in range(len(TOKEN_QUEUES)):
        pushing = workload.demands.pushing[counter]
        popping = workload.demands.popping[counter]
        there[popping, counter] = times.end[pushing[: len(popping)]]
    return there


def _explain_waits(
    members: NDArray[np.int64],
    times: CommandTimes,
    tokens: NDArray[np.int64],
    causes: NDArray[np.int64],
) -> None:
    """Add the cycles that each command of one unit waited before its start, by cause.

    ``members`` are the unit's commands; ``causes`` is changed in place.
    """
    if not len(members):
        return
    arrival = times.arrival[members]
    start = times.start[members]
    free = np.concatenate(([0], times.end[members[:-1]]))
    causes[members, QUEUE_EMPTY] = np.maximum(arrival - free, 0)
    waited = np.maximum(arrival, free)
    # Counters are ordered LD to EX, EX to LD, EX to ST, ST to EX. Only EX pops two, LD's first.
    for counter, (pusher, _) in enumerate(TOKEN_QUEUES):
        there = np.maximum(tokens[members, counter], waited)
        causes[members, TOKEN + pusher] += there - waited
        waited = there
    if not np.array_equal(waited, start):
        raise AssertionError(
            "a command started at a time that its arrival, unit and tokens do not explain"
        )


def _check(workload: Workload, times: CommandTimes, causes: NDArray[np.int64]) -> None:
    """Assert that the cycles of each unit by cause sum to the end of its last command.

    No figure may be negative.
    """
    if causes.min(initial=0) < 0:
        raise AssertionError("an account of cycles is negative")
    for name, members in zip(UNIT_NAMES, workload.demands.by_unit, strict=True):
        last = int(times.end[members].max(initial=0))
        if causes[members].sum() != last or last >= times.total:
            raise AssertionError(f"the cycles of unit {name} do not add up to the total")


# Labels.
# Kind, layer, work and traffic of each command, from its instruction and provenance. Labels do not
# depend on time.

DMA, ISSUE = KINDS.index("DMA"), KINDS.index("ISSUE")


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of commands as int64 arrays (one entry per command), and properties of each layer.

    Attributes:
        kind: index into :data:`KINDS`.
        layer: index into ``layers``.
        macs: multiply-accumulates.
        read: bytes that LD reads from system memory, all rows included; command fetch is not
            counted.
        write: bytes that ST writes to system memory.
        layers: names of the layers, in order of first appearance.
        onnx_nodes: nodes of each layer.
        tiles: number of computed tiles of each layer.
    """

    kind: NDArray[np.int64]
    layer: NDArray[np.int64]
    macs: NDArray[np.int64]
    read: NDArray[np.int64]
    write: NDArray[np.int64]
    layers: tuple[str, ...]
    onnx_nodes: tuple[tuple[str, ...], ...]
    tiles: tuple[int, ...]


def label(
    commands: Sequence[Command], operands: Sequence[Operands], sources: Sequence[Provenance | None]
) -> Labels:
    """Return the kind, layer, work and traffic of each of ``commands`` (without ``OP_END``).

    The kind is that of the provenance if it has one, so that an emulated depthwise convolution
    counts as DEPTH. DMA and SYNC commands keep their own kind. Words without provenance belong to
    the layer ``""``.

    Raises:
        InputError: a kind does not exist.
    """
    layers: dict[str, dict[str, None]] = {}
    tiles: dict[str, set[int]] = {}
    rows = []
    position = dict[str, int]()
    for command, item, source in zip(commands, operands, sources, strict=True):
        name = source.layer if source is not None else ""
        if name not in position:
            position[name] = len(position)
            layers[name] = {}
            tiles[name] = set()
        if source is not None:
            layers[name].update(dict.fromkeys(source.onnx_nodes))
            if _is_computation(command):
                tiles[name].add(source.tile)
        read = sum([access.total for access in item.reads if access.space == "dram"])
        write = sum([access.total for access in item.writes if access.space == "dram"])
        rows.append(
            (_kind(command, source), position[name], command.instruction.macs(command), read, write)
        )
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


def _is_computation(command: Command) -> bool:
    return command.instruction.kind not in ("DMA", "ISSUE")


def _kind(command: Command, source: Provenance | None) -> int:
    own = command.instruction.kind
    kind = source.kind if source is not None and source.kind and _is_computation(command) else own
    if kind not in KINDS:
        raise InputError(
            f"word {command.index}: provenance kind '{kind}' does not exist; choose one of "
            f"{', '.join(KINDS)}",
            words=(command.index,),
        )
    return KINDS.index(kind)


@dataclass(frozen=True)
class LayerAccount:
    """Account of one layer: its share of the cycles of a run.

    Attributes:
        name: name of the layer.
        onnx_nodes: its nodes.
        kind: kind of most of its EX cycles; ``DMA`` if it has none.
        cycles: its cycles; all layers' cycles sum to the total.
        ex_cycles: cycles in which EX executes a command of the layer.
        macs: multiply-accumulates.
        dram_read_bytes: bytes read from system memory.
        dram_write_bytes: bytes written to system memory.
        tiles: number of tiles with compute.
        stalls: for each unit and each cause but ``busy``, the cycles before and within the unit's
            commands of this layer.
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
    """Accounts of a run: the cycles of the run, of EX and of each layer.

    ``kinds`` are the cycles by kind, whose sum is the total; ``ex_cycles`` are the cycles of EX by
    kind.
    """

    kinds: Mapping[str, int]
    ex_cycles: Mapping[str, int]
    layers: tuple[LayerAccount, ...]


def account(labels: Labels, causes: Causes, times: CommandTimes) -> Accounts:
    """Return the accounts of one run; raise AssertionError if a sum differs from the total."""
    lengths, kind, layer = _timeline(labels, causes.by_unit, times)
    by_kind = np.bincount(kind, weights=lengths, minlength=len(KINDS)).astype(np.int64)
    by_layer = np.bincount(layer, weights=lengths, minlength=len(labels.layers)).astype(np.int64)
    if by_kind.sum() != times.total or by_layer.sum() != times.total:
        raise AssertionError("the cycles by kind or by layer do not add up to the total")
    table = _ex_table(labels, causes, times)
    kinds = by_kind.tolist()
    ex_cycles = table.sum(axis=0).tolist()
    layers = _layers(labels, causes, by_layer, table)
    return Accounts(
        dict(zip(KINDS, kinds, strict=True)), dict(zip(KINDS, ex_cycles, strict=True)), layers
    )


def layer_cycles(labels: Labels, demands: Demands, times: CommandTimes) -> dict[str, int]:
    """Return the cycles of a run by layer; they sum to the total cycles."""
    lengths, _, layer = _timeline(labels, demands.by_unit, times)
    cycles = np.bincount(layer, weights=lengths, minlength=len(labels.layers)).astype(np.int64)
    return dict(zip(labels.layers, cycles.tolist(), strict=True))


def layer_bank_waits(labels: Labels, causes: Causes) -> dict[str, int]:
    """Return the cycles by layer in which EX waits for the scratchpad (cause ``sram``)."""
    members = causes.by_unit[EX]
    waits = causes.commands[members, SRAM]
    cycles = np.bincount(labels.layer[members], weights=waits, minlength=len(labels.layers)).astype(
        np.int64
    )
    return dict(zip(labels.layers, cycles.tolist(), strict=True))


def _timeline(
    labels: Labels, by_unit: Sequence[Int64], times: CommandTimes
) -> tuple[Int64, Int64, Int64]:
    """Return the intervals of the run in which no unit changes state.

    The result is (length, kind, layer) of consecutive intervals.
    """
    edges = sort_distinct(np.concatenate([[0, times.total], times.start, times.end]))
    return (np.diff(edges), *label_cycles(labels, by_unit, times, edges[:-1]))


def label_cycles(
    labels: Labels, by_unit: Sequence[Int64], times: CommandTimes, cycles: Int64
) -> tuple[Int64, Int64]:
    """Return the kind and the layer that each of ``cycles`` counts for."""
    if not len(times.end):
        return np.full(len(cycles), ISSUE), np.zeros(len(cycles), dtype=np.int64)
    units = [find_executing(members, times, cycles) for members in by_unit]
    moving = (units[LD] >= 0) | (units[ST] >= 0)
    computing = units[EX] >= 0
    kind = np.where(computing, labels.kind[units[EX]], np.where(moving, DMA, ISSUE))
    oldest = find_oldest_unfinished(times, cycles)
    return kind, labels.layer[np.where(computing, units[EX], oldest)]


def _ex_table(labels: Labels, causes: Causes, times: CommandTimes) -> Int64:
    """Return a table of the cycles in which EX executes, by layer and by kind."""
    members = causes.by_unit[EX]
    table = np.zeros((len(labels.layers), len(KINDS)), dtype=np.int64)
    np.add.at(
        table,
        (labels.layer[members], labels.kind[members]),
        times.end[members] - times.start[members],
    )
    return table


def _layers(
    labels: Labels, causes: Causes, cycles: Int64, table: Int64
) -> tuple[LayerAccount, ...]:
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
            stalls={
                name: _name_causes(stalls[unit, i], causes.names)
                for unit, name in enumerate(UNIT_NAMES)
            },
        )
        for i in range(count)
    )


def _name_causes(cycles: Int64, names: Sequence[str]) -> dict[str, int]:
    """Return the stall cycles of a layer by cause, for the causes in ``names``.

    ``busy`` and ``drained`` are omitted, because they are not stalls of a layer.
    """
    indices = [
        index
        for index, cause in enumerate(CAUSES)
        if cause in names and index not in (BUSY, DRAINED)
    ]
    return {CAUSES[index]: int(cycles[index]) for index in indices}


def kind_cycles(
    labels: Labels, demands: Demands, times: CommandTimes
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the cycles of the run and the cycles in which EX executes, both by kind.

    The figures equal those of :func:`account`. A cycle in which EX executes has the kind of its
    command; of the other cycles, those in which LD or ST executes are DMA.

    Raises:
        AssertionError: the cycles of the run do not sum to the total, or a figure is negative.
    """
    executing = demands.by_unit[EX]
    durations = times.end[executing] - times.start[executing]
    table = np.bincount(labels.kind[executing], weights=durations, minlength=len(KINDS)).astype(
        np.int64
    )
    ex_cycles = dict(zip(KINDS, table.tolist(), strict=True))
    active = _count_covered(times)
    table[DMA] += active - table.sum()
    table[ISSUE] += times.total - active
    if table.sum() != times.total or table.min() < 0:
        raise AssertionError("the cycles by kind do not add up to the total")
    return dict(zip(KINDS, table.tolist(), strict=True)), ex_cycles


def _count_covered(times: CommandTimes) -> int:
    """Return the number of cycles in which any unit executes."""
    order = np.argsort(times.start, kind="stable")
    start = times.start[order]
    end = times.end[order]
    reached = np.maximum.accumulate(end)
    before = np.concatenate(([0], reached[:-1])) if len(end) else reached
    return int(np.maximum(end - np.maximum(start, before), 0).sum())
