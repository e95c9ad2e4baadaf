"""Workload: the timing-relevant properties of a program's commands; the input of every engine.

:class:`Demands` is the part that is the same for all Timings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.banks import BankLoad, PassingWords
from dla_sim.memory import (
    Hull,
    Streams,
    TimingColumns,
    count_crowds_of,
    count_in_bank,
    hulls_of,
    list_contended_hulls,
    operand_bytes,
    scratchpad_cycles,
    streams_of,
)
from dla_sim.timing import MemoryTiming, Timing
from isa.access import Access
from isa.arch import Arch
from isa.instruction import Command, Operands, Unit
from isa.packing import get_cycles
from isa.program import Program

# Slots and beats of transfers on the bus (docs/machine.md, section 6), without a loop over rows or
# bursts. Only an address's offset in its burst block matters, so rows are counted by offset once a
# burst size. For a bus and its burst gap all groups of rows are then costed together.

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of equal memory rows of transfers, as int64 arrays.

    ``owner`` is the transfer and ``count`` the number of rows. ``first`` and ``last`` are the beats
    of the first and last burst, ``between`` the bursts in between. ``last`` is 0 if there is one
    burst. A row of ``nbytes`` begins ``start`` bytes into a burst block.
    """

    owner: Int64
    count: Int64
    first: Int64
    last: Int64
    between: Int64
    start: Int64
    nbytes: Int64

    def slots(self, memory: MemoryTiming) -> Int64:
        """Return the bus slots that each group of rows takes.

        A group has a first burst, whole bursts, and a last burst unless ``last`` is 0.
        """
        gap = memory.burst_gap
        first = np.maximum(self.first, gap)
        last = np.maximum(self.last, gap)
        if memory.rate is not None:
            left = memory.burst_bytes - self.start
            rest = (self.nbytes - left) % memory.burst_bytes
            rest[rest == 0] = memory.burst_bytes
            first = np.maximum(first, memory.data_cycles(np.minimum(self.nbytes, left)))
            last = np.maximum(last, memory.data_cycles(rest))
        whole = max(memory.burst_cycles, gap)
        return (first + self.between * whole + np.where(self.last > 0, last, 0)) * self.count


class TransferTable:
    """Table of the system-memory accesses of transfers, with dense dimensions merged.

    Computes their slots and beats.
    """

    def __init__(self, accesses: Sequence[Access]) -> None:
        self.accesses = tuple(accesses)
        self._groups: dict[tuple[int, int], _Groups] = {}

    def cost(self, memory: MemoryTiming) -> tuple[Int64, Int64]:
        """Return the bus slots and the beats of each transfer when ``memory`` serves it."""
        width = memory.width
        burst = memory.burst_bytes
        if (width, burst) not in self._groups:
            self._groups[width, burst] = _group_accesses(self.accesses, width, burst)
        groups = self._groups[width, burst]
        beats = (groups.first + groups.between * memory.burst_beats + groups.last) * groups.count
        return self._sum_by_owner(groups.owner, groups.slots(memory)), self._sum_by_owner(
            groups.owner, beats
        )

    def _sum_by_owner(self, owner: Int64, values: Int64) -> Int64:
        sums = np.zeros(len(self.accesses), dtype=np.int64)
        np.add.at(sums, owner, values)
        return sums


def row_slots(starts: Int64, nbytes: Int64, memory: MemoryTiming) -> Int64:
    """Return the bus slots of separate rows of ``nbytes`` > 0 bytes at addresses ``starts``."""
    burst = memory.burst_bytes
    none = np.zeros_like(starts)
    return _split_into_beats(none, starts % burst, none + 1, nbytes, memory.width, burst).slots(
        memory
    )


def _group_accesses(accesses: Sequence[Access], bus: int, burst: int) -> _Groups:
    rows = []
    for owner, access in enumerate(accesses):
        if access.total:
            dims = tuple((count, stride % burst) for count, stride in access.dims)
            for start, count in _places(access.address % burst, dims, burst):
                rows.append((owner, start, count, access.nbytes))
    owners, starts, counts, sizes = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return _split_into_beats(owners, starts, counts, sizes, bus, burst)


def _split_into_beats(
    owner: Int64, start: Int64, count: Int64, nbytes: Int64, bus: int, burst: int
) -> _Groups:
    """Return the groups of beats of ``count`` rows of ``nbytes`` > 0 bytes.

    Each row begins ``start`` bytes into a burst block.
    """
    final = start + nbytes - 1
    bursts = final // burst + 1
    single = bursts == 1
    first = np.where(single, final // bus - start // bus + 1, burst // bus - start // bus)
    last = np.where(single, 0, final % burst // bus + 1)
    return _Groups(owner, count, first, last, np.maximum(bursts - 2, 0), start, nbytes)


@lru_cache(maxsize=65536)
def _places(
    residue: int, dims: tuple[tuple[int, int], ...], burst: int
) -> tuple[tuple[int, int], ...]:
    """Return how many rows start at each offset in a burst block, as (offset, rows) pairs.

    The first row is at ``residue``.
    """
    if not dims:
        return ((residue, 1),)
    rows = np.zeros(burst, dtype=np.int64)
    rows[residue] = 1
    for count, stride in dims:
        rows = _repeat(rows, count, stride)
    places = np.flatnonzero(rows)
    return tuple(zip(places.tolist(), rows[places].tolist(), strict=True))


def _repeat(rows: Int64, count: int, stride: int) -> Int64:
    """Return the rows per offset in a burst after ``count`` repeats, ``stride`` bytes apart.

    ``rows`` are the rows per offset before the repeats.
    """
    burst = len(rows)
    period = burst // gcd(stride, burst) if stride else 1
    whole, rest = divmod(count, period)
    repeated = np.zeros_like(rows)
    for step in range(min(count, period)):
        repeated += np.roll(rows, step * stride % burst) * (whole + (step < rest))
    return repeated


LD, EX, ST = (unit.value for unit in (Unit.LD, Unit.EX, Unit.ST))
UNIT_NAMES = tuple(unit.name for unit in Unit)
TOKEN_QUEUES: tuple[tuple[int, int], ...] = ((LD, EX), (EX, LD), (EX, ST), (ST, EX))
"""(pushing unit, popping unit) of each token counter, by counter number."""

NOTHING = -2
AT_ONCE = -1
"""Substitutes for a command number: an event that never happens, and one that needs no command."""


@dataclass(frozen=True, eq=False)
class Demands:
    """Properties of a program's commands that determine its cycles under any Timing.

    ``OP_END`` is not included.

    Entries are per command, int64 except the bool ``sync``.

    Attributes:
        unit: unit of the command.
        word: index of its command word.
        sync: True for ``OP_SYNC``.
        compute: compute cycles of EX.
        crowd: streams of EX in its fullest bank. In banked memory the words in the fullest bank, or
            at a port of several operands.
        reads: scratchpad bytes that EX reads, in banked memory bytes of whole words.
        writes: scratchpad bytes that EX writes, likewise.
        moving: numbers of the DMA commands.
        touched: words that the rows of each of ``moving`` touch.
        hulls: bank ranges of each command with their words, without words for DMA commands.
        transfers: system-memory sides of ``moving``.
        constant: numbers of the DMA commands to or from constants.
        pops: token counters that each command pops, the previous unit's first.
        pushes: token counters that each command pushes, the previous unit's first.
        word_count: number of command words.
        command_address: address of the first one.
        word_bytes: bytes of a memory word; 0 for ideal memory.
    """

    unit: Int64
    word: Int64
    sync: NDArray[np.bool_]
    compute: Int64
    crowd: Int64
    reads: Int64
    writes: Int64
    moving: Int64
    touched: Int64
    hulls: tuple[tuple[Hull, ...], ...]
    transfers: TransferTable
    constant: Int64
    pops: tuple[tuple[int, ...], ...]
    pushes: tuple[tuple[int, ...], ...]
    word_count: int
    command_address: int
    word_bytes: int

    @property
    def ex_bytes(self) -> int:
        """Scratchpad bytes that EX reads and writes; whole words of banked memory.

        Each operand and result counts once.
        """
        return int(self.reads.sum()) + int(self.writes.sum())

    @cached_property
    def by_unit(self) -> tuple[Int64, ...]:
        """Numbers of the commands of each of the units LD, EX and ST, in order."""
        return tuple(np.flatnonzero(self.unit == number) for number in (LD, EX, ST))

    @cached_property
    def pushing(self) -> tuple[Int64, ...]:
        """Numbers of the commands that push each token counter, in order."""
        return _include_counter(self.pushes)

    @cached_property
    def popping(self) -> tuple[Int64, ...]:
        """Numbers of the commands that pop each token counter, in order.

        The n-th pop takes the token of the n-th push.
        """
        return _include_counter(self.pops)

    @cached_property
    def pushers(self) -> Int64:
        """Array (2, commands) of the commands that push the tokens which each command pops.

        ``AT_ONCE`` marks no pop, ``NOTHING`` a missing push.
        """
        found = np.full((2, len(self.unit)), AT_ONCE, dtype=np.int64)
        for counter, (pushing, popping) in enumerate(zip(self.pushing, self.popping, strict=True)):
            row = int(TOKEN_QUEUES[counter] == (ST, EX))
            found[row, popping] = NOTHING
            satisfied = popping[: len(pushing)]
            found[row, satisfied] = pushing[: len(satisfied)]
        return found

    def room(self, depth: int) -> Int64:
        """Return for each command the earlier one whose end makes room for it in the queue.

        Both are commands of one unit. The queue holds ``depth`` commands. ``AT_ONCE`` marks the
        first commands, which always find room.
        """
        found = np.full(len(self.unit), AT_ONCE, dtype=np.int64)
        for members in self.by_unit:
            found[members[depth:]] = members[:-depth]
        return found


@lru_cache(maxsize=16)
def list_bank_loads(demands: Demands, word_cycles: int) -> dict[int, BankLoad]:
    """Return the EX commands that LD and ST may delay in banked memory.

    The bus moves a memory word in ``word_cycles`` cycles.
    """
    if not demands.hulls or not len(demands.moving):
        return {}
    least = np.maximum(demands.compute, demands.crowd)
    # LD and ST take at most one word per word_cycles slots of a bank, plus the ends of their shares
    most = least // word_cycles + 2
    found = {}
    for number in np.flatnonzero((demands.crowd > 0) & (demands.crowd + most > least)).tolist():
        hulls = demands.hulls[number]
        enough = int(least[number] - most[number])
        banks = {bank for low, high, _ in hulls for bank in range(low, high + 1)}
        words = [(bank, count_in_bank(hulls, bank)) for bank in sorted(banks)]
        delayed = tuple((bank, count) for bank, count in words if count > enough)
        if delayed:
            found[number] = BankLoad(int(least[number]), delayed)
    return found


def _include_counter(counters: Sequence[tuple[int, ...]]) -> tuple[Int64, ...]:
    queues = range(len(TOKEN_QUEUES))
    return tuple(
        np.array([i for i, c in enumerate(counters) if queue in c], dtype=np.int64)
        for queue in queues
    )


def demands(commands: Sequence[Command], operands: Sequence[Operands], program: Program) -> Demands:
    """Return the properties of ``commands`` that determine their cycles under any Timing.

    ``commands`` are all commands of ``program`` except ``OP_END``.
    """
    arch = program.arch
    streams = streams_of(commands, operands, arch)
    parts = zip(commands, operands, streams, strict=True)
    columns = np.array([_row(*part, arch) for part in parts], dtype=np.int64).reshape(-1, 6).T
    unit = columns[0]
    sync = columns[2].astype(np.bool_)
    moving = np.flatnonzero((unit != EX) & ~sync)
    loading = [(operands[number], unit[number] == LD) for number in moving.tolist()]
    sides = [item.reads[0] if load else item.writes[0] for item, load in loading]
    addresses = np.array([side.address for side in sides], dtype=np.int64)
    touched = _count_touched(
        [item.writes[0] if load else item.reads[0] for item, load in loading], arch
    )
    hulls = hulls_of(operands, streams, arch)
    tokens = [
        _tokens(one.unit.value, one.pop_previous, one.pop_next, one.push_previous, one.push_next)
        for one in commands
    ]
    return Demands(
        unit=unit, word=columns[1], sync=sync, compute=columns[3], reads=columns[4],
        writes=columns[5],
        crowd=count_crowds_of(operands, streams, hulls, arch), moving=moving, touched=touched,
        hulls=list_contended_hulls(hulls, arch),
        transfers=TransferTable(sides), constant=moving[is_constant_address(program, addresses)],
        pops=tuple(pops for pops, _ in tokens), pushes=tuple(pushes for _, pushes in tokens),
        word_count=len(program.words), command_address=program.command_address,
        word_bytes=arch.memory.word,
    )  # fmt: skip


def continue_demands(head: Demands, whole: Demands, stop: int) -> Demands:
    """Append the demands of ``whole`` from command ``stop`` on to the demands of ``head``.

    The result describes a program at the address of ``head``. Combining demands avoids decoding its
    commands again.
    """
    words = head.word_count - 1
    begun = int(whole.word[stop - 1]) + 1 if stop else 0
    later = len(head.unit) - stop

    def columns(name: str) -> Int64:
        return np.concatenate([getattr(head, name), getattr(whole, name)[stop:]])

    def numbers(name: str) -> Int64:
        mine: Int64 = getattr(whole, name)
        return np.concatenate([getattr(head, name), mine[mine >= stop] + later])

    moved = np.searchsorted(whole.moving, stop)
    return Demands(
        unit=columns("unit"), word=np.concatenate([head.word, whole.word[stop:] - begun + words]),
        sync=np.concatenate([head.sync, whole.sync[stop:]]), compute=columns("compute"),
        crowd=columns("crowd"),
        reads=columns("reads"), writes=columns("writes"), moving=numbers("moving"),
        touched=np.concatenate([head.touched, whole.touched[moved:]]),
        hulls=(*head.hulls, *whole.hulls[stop:]),
        transfers=TransferTable((*head.transfers.accesses, *whole.transfers.accesses[moved:])),
        constant=numbers("constant"), pops=(*head.pops, *whole.pops[stop:]),
        pushes=(*head.pushes, *whole.pushes[stop:]), word_count=words + whole.word_count - begun,
        command_address=head.command_address, word_bytes=head.word_bytes,
    )  # fmt: skip


def is_constant_address(program: Program, addresses: Int64) -> NDArray[np.bool_]:
    """Return True for each address that holds a constant.

    A constant is in a segment of the program and in no tensor.
    """
    segments = _is_within(
        addresses, [(segment.address, segment.data.size) for segment in program.segments]
    )
    return segments & ~_is_within(
        addresses, [(tensor.address, tensor.nbytes) for tensor in program.tensors]
    )


def _is_within(addresses: Int64, ranges: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return True for each address within one of the ranges (address, bytes)."""
    start, size = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    offset = addresses[:, None] - start
    return np.asarray(((offset >= 0) & (offset < size)).any(axis=1), dtype=np.bool_)


def _row(command: Command, operands: Operands, streams: Streams, arch: Arch) -> tuple[int, ...]:
    """Return a command's properties as (unit, word, sync, compute, reads, writes)."""
    unit = command.unit.value
    sync = command.instruction.unit is None
    if sync or unit != EX:
        return unit, command.index, sync, 0, 0, 0
    compute = get_cycles(command, arch)
    return unit, command.index, sync, compute, *operand_bytes(operands, streams, arch)


def assign_banks(
    found: Demands, commands: Sequence[Command], operands: Sequence[Operands], arch: Arch
) -> Demands:
    """Return the demands ``found`` with the scratchpad banks of ``arch``.

    Returns ``found`` itself if nothing changes.
    """
    streams = streams_of(commands, operands, arch)
    hulls = hulls_of(operands, streams, arch)
    crowd = count_crowds_of(operands, streams, hulls, arch)
    kept = list_contended_hulls(hulls, arch)
    same = np.array_equal(crowd, found.crowd) and kept == found.hulls
    return found if same else replace(found, crowd=crowd, hulls=kept)


def _count_touched(sides: Sequence[Access], arch: Arch) -> Int64:
    """Return the memory words touched by the rows of each of ``sides``; 0 for ideal memory."""
    word_bytes = arch.memory.word
    if not word_bytes:
        return np.zeros(len(sides), dtype=np.int64)
    return TransferTable(sides).cost(MemoryTiming(word_bytes, word_bytes, 0, 1))[1]


@cache
def _tokens(
    unit: int, pop_previous: bool, pop_next: bool, push_previous: bool, push_next: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the token counters that a command pops and pushes by its flags.

    The previous unit's counter comes first.
    """
    pops = [(unit - 1, unit)] * pop_previous + [(unit + 1, unit)] * pop_next
    pushes = [(unit, unit - 1)] * push_previous + [(unit, unit + 1)] * push_next
    return tuple(map(TOKEN_QUEUES.index, pops)), tuple(map(TOKEN_QUEUES.index, pushes))


@dataclass(frozen=True, slots=True)
class CommandCost:
    """Cycles and tokens of a command.

    A command takes ``lead`` cycles, the data phase if ``slots`` > 0, and ``tail`` cycles.

    ``pops`` and ``pushes`` are numbers of token counters, the previous unit's first. ``passing``
    are the words of the data phase. With a ``load``, EX computes between ``lead`` and ``tail`` for
    as long as the banks require.
    """

    unit: int
    word: int
    lead: int
    slots: int
    tail: int
    pops: tuple[int, ...]
    pushes: tuple[int, ...]
    passing: PassingWords | None
    load: BankLoad | None


def serve_transfers(demands: Demands, main: MemoryTiming, flash: MemoryTiming | None) -> Int64:
    """Return an array (3, transfers): bus slots, beats, and 1 if the flash serves the transfer."""
    served = np.zeros((3, len(demands.moving)), dtype=np.int64)
    served[:2] = demands.transfers.cost(main)
    if flash is not None:
        served[2] = np.isin(demands.moving, demands.constant)
        served[:2] = np.where(served[2], demands.transfers.cost(flash), served[:2])
    return served


def command_columns(
    demands: Demands, timing: Timing | TimingColumns, served: Int64, word_cycles: int
) -> dict[str, Int64]:
    """Return the columns of :attr:`Workload.columns` for one Timing or for several.

    For several, ``served`` is (3, timings, transfers) and each column (timings, commands).
    """
    moving = demands.moving
    loading = demands.unit[moving] == LD
    scratchpad = scratchpad_cycles(
        demands.compute, demands.crowd, demands.reads, demands.writes, demands.word_bytes, timing
    )
    lead = demands.compute + scratchpad + (timing.ex_fill + timing.ex_drain)
    lead[..., demands.sync] = timing.sync_cycles
    tail, slots, beats, held, latency, flash = (np.zeros_like(lead) for _ in range(6))
    waiting = np.where(served[2], timing.flash_latency, timing.dram_latency)
    slots[..., moving] = most = np.maximum(served[0], demands.touched * word_cycles)
    beats[..., moving] = served[1]
    held[..., moving] = most - served[0]
    flash[..., moving] = served[2]
    latency[..., moving] = waiting
    lead[..., moving] = timing.dma_setup + waiting * loading
    tail[..., moving] = timing.dma_drain + waiting * ~loading
    lead[lead + slots + tail == 0] = 1
    return {
        "lead": lead, "slots": slots, "beats": beats, "held": held, "tail": tail,
        "latency": latency, "scratchpad": scratchpad, "flash": flash,
    }  # fmt: skip


def chunk_slots(demands: Demands, memory: MemoryTiming, fetch_bytes: int) -> list[int]:
    """Return the bus slots that each chunk of command words takes."""
    first = demands.command_address
    end = first + 8 * demands.word_count
    starts = np.arange(first, end, fetch_bytes, dtype=np.int64)
    nbytes = np.minimum(starts + fetch_bytes, end) - starts
    return [int(slots) for slots in row_slots(starts, nbytes, memory)]


@dataclass(frozen=True, eq=False)
class Workload:
    """A program's :class:`Demands` together with a Timing; the input of an engine."""

    demands: Demands
    timing: Timing

    def __len__(self) -> int:
        """Return the number of commands without ``OP_END``."""
        return len(self.demands.unit)

    @property
    def word_count(self) -> int:
        """Number of words in the command stream of a program."""
        return self.demands.word_count

    @cached_property
    def columns(self) -> dict[str, Int64]:
        """Cycles of each command as int64 arrays (docs/machine.md, section 5).

        - ``lead``, ``slots``, ``tail``: as in :class:`CommandCost`.
        - ``beats``: slots that move data; ``held``: slots that wait for the scratchpad.
        - ``latency``: cycles of lead and tail that wait for system memory.
        - ``scratchpad``: cycles of lead that wait for the scratchpad.
        - ``flash``: 1 if the system memory is the flash.
        """
        served = serve_transfers(self.demands, self.timing.main, self.timing.flash)
        word_cycles = self.timing.word_cycles(self.demands.word_bytes)
        return command_columns(self.demands, self.timing, served, word_cycles)

    @cached_property
    def bank_loads(self) -> dict[int, BankLoad]:
        """EX commands that LD and ST may delay in banked memory.

        Others take their ``lead``.
        """
        return list_bank_loads(self.demands, self.timing.word_cycles(self.demands.word_bytes))

    @cached_property
    def passing_words(self) -> dict[int, PassingWords]:
        """Words that DMA commands move through the banks, if they may delay an EX command."""
        if not self.bank_loads:
            return {}
        demands = self.demands
        moving = self.demands.moving
        slots = self.columns["slots"][moving]
        ahead = (slots - 1) * (demands.unit[moving] == ST)
        rows = zip(
            *(column.tolist() for column in (moving, demands.touched, slots, ahead)), strict=True
        )
        return {
            number: PassingWords(*demands.hulls[number][0][:2], *row)
            for number, *row in rows
            if row[0]
        }

    @cached_property
    def phases(self) -> dict[str, Int64]:
        """Columns lead, slots and tail around what others can delay, as in :class:`CommandCost`."""
        found = {name: self.columns[name].copy() for name in ("lead", "slots", "tail")}
        loaded = list(self.bank_loads)
        found["lead"][loaded] = self.timing.ex_fill
        found["tail"][loaded] = self.timing.ex_drain
        return found

    @cached_property
    def fetch_latency(self) -> int:
        """Latency of the memory of command words in cycles."""
        return self.timing.constants.latency

    @cached_property
    def costs(self) -> tuple[CommandCost, ...]:
        """Cycles and tokens of each command as a :class:`CommandCost`, for the event engine."""
        demands = self.demands
        columns = (demands.unit, demands.word, *self.phases.values())
        lists = (column.tolist() for column in columns)
        numbers = range(len(self))
        passing = map(self.passing_words.get, numbers)
        loads = map(self.bank_loads.get, numbers)
        return tuple(map(CommandCost, *lists, demands.pops, demands.pushes, passing, loads))

    @cached_property
    def chunk_slots(self) -> list[int]:
        """Bus slots that each chunk of command words takes."""
        timing = self.timing
        return chunk_slots(self.demands, timing.constants, timing.fetch_bytes)
