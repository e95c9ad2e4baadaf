"""What a stream loads, in the order of need, and when it should.

A load may move neither before the last use of the bytes that it fills nor before a store of bytes that it reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from byoc.estimate.bus import cycles_of, registers_of, transfer_cycles, transfer_slots
from byoc.estimate.constants import DISTANCE, MARGIN
from byoc.scheduling.steps import Step
from byoc.scheduling.stream import TileSteps
from isa.access import Access, strided, touch


@dataclass(eq=False)
class Fetch:
    """The loads of one operand into scratchpad buffer ``buffer``, which tiles ``tile`` to ``last`` use.

    ``release``: the first tile that they may accompany, for those before store what they read. ``before``: what the
    buffer held before. ``wanted``: the tile that they should accompany; ``position``: the one that they do, -1 as long
    as that is open; ``place``: the buffer that they fill then, a copy's or their own. ``again``: the next fetch of
    the same constants.
    """

    steps: list[Step]
    tile: int
    buffer: int
    before: Fetch | None
    last: int
    release: int = 0
    cycles: int = 0
    wanted: int = 0
    position: int = -1
    place: int = -1
    arrival: int = 0
    again: Fetch | None = None


def fetches_of(tiles: Sequence[TileSteps]) -> list[Fetch]:
    """What is loaded, in the order of need."""
    found: list[Fetch] = []
    current: dict[int, Fetch] = {}
    written: list[tuple[int, Access]] = []
    end = 0
    for number, tile in enumerate(tiles):
        for step in tile.loads:
            buffer = step.pointers["LD_SRAM_ADDRESS"].buffer
            fetch = current.get(buffer)
            if fetch is None or fetch.tile < number:
                fetch = current[buffer] = Fetch([], number, buffer, fetch, number)
                found.append(fetch)
            fetch.steps.append(step)
            fetch.cycles += transfer_cycles(slots_of(step))
            fetch.release = max(fetch.release, _readable(step, number, written, end))
        for buffer in buffers_of((*tile.computes, *tile.stores)):
            if buffer in current:
                current[buffer].last = number
        for step in tile.stores:
            target = _dram(step)
            written.append((number, target))
            end = max(end, target.end)
    _link(found, end)
    return found


def _link(fetches: Sequence[Fetch], end: int) -> None:
    """Let the fetches of the same bytes know of each other, where nothing is ever written: from ``end`` on."""
    following: dict[tuple[tuple[int, int], ...], Fetch] = {}
    for fetch in reversed(fetches):
        key = tuple((step.registers["LD_DRAM_ADDRESS"], step.registers["LD_BYTES"]) for step in fetch.steps)
        if min(key)[0] >= end:
            fetch.again = following.get(key)
            following[key] = fetch


def _readable(step: Step, number: int, written: Sequence[tuple[int, Access]], end: int) -> int:
    """The first tile beside which a load of tile ``number`` reads what tiles before have ``written``, up to ``end``."""
    source = _dram(step)
    if source.address >= end:
        return 0
    for writer, target in reversed(written):
        if writer < number - DISTANCE:
            return number - DISTANCE
        if touch(source, target):
            return writer + 1
    return 0


def want(fetches: Sequence[Fetch], tiles: Sequence[TileSteps], cycles: Sequence[int], capacity: int) -> bool:
    """For each fetch the last tile whose computation it must accompany so that no later computation waits.

    By an estimate in which EX never waits; but not earlier than a whole scratchpad is loaded in. True where this does
    not matter.
    """
    starts = [0]
    for duration in cycles:
        starts.append(starts[-1] + duration)
    stores = [sum(map(slots_of, tile.stores)) for tile in tiles]
    deadline, number, free = starts[-1], len(tiles), True
    for fetch in reversed(fetches):
        while number > fetch.tile:
            number -= 1
            deadline = min(deadline - stores[number], starts[number])
        deadline -= fetch.cycles
        earliest = starts[fetch.tile] - cycles_of(capacity)
        free &= earliest <= max(deadline, 0)
        fetch.wanted = max(min(bisect_right(starts, max(deadline, earliest) - MARGIN) - 1, fetch.tile - 1), 0)
    return free


def _dram(step: Step) -> Access:
    """The bytes of system memory that a DMA step reads or writes."""
    registers = step.registers
    address, nbytes, loops = registers_of(step.unit)
    dims = [(registers[count], registers.get(stride, 0)) for count, stride in loops]
    return strided("dram", registers[address], registers[nbytes], *dims)


def slots_of(step: Step) -> int:
    """Estimated slots of the bus of a DMA step."""
    return transfer_slots(step.registers, step.unit)


def buffers_of(steps: Iterable[Step]) -> Iterator[int]:
    """Scratchpad buffers that steps use."""
    for step in steps:
        for pointer in step.pointers.values():
            yield pointer.buffer
