"""Fetches of operands into scratchpad buffers, and the tiles whose computation they may overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byoc.estimate.bus import MemoryBus, registers_of
from byoc.estimate.constants import (
    DISTANCE,
    MARGIN,
    WINDOW,
)
from byoc.scheduling.stream import CommandStep, TileSteps, list_used_buffers
from isa.access import Access, strided, touch


@dataclass(eq=False)
class BufferFetch:
    """Loads of one operand into scratchpad buffer ``buffer`` for the tiles ``tile`` to ``last``.

    ``release``: the first tile whose computation the loads may overlap, because earlier tiles store
    the bytes that they read. ``before``: the previous fetch into the buffer. ``wanted``: the tile
    whose computation they should overlap. ``position``: the tile that was chosen, -1 if none yet.
    ``place``: the buffer that they fill, their own or a copy. ``again``: the next fetch of the same
    constants. ``merged``: an earlier fetch of the same constants serves these tiles too.
    """

    steps: list[CommandStep]
    tile: int
    buffer: int
    before: BufferFetch | None
    last: int
    release: int = 0
    cycles: int = 0
    wanted: int = 0
    position: int = -1
    place: int = -1
    arrival: int = 0
    again: BufferFetch | None = None
    merged: bool = False

    def reset(self) -> None:
        """Clear the tile, the scratchpad buffer and the arrival cycle chosen for the fetch."""
        self.position = self.place = -1
        self.arrival = 0
        self.merged = False


class RepeatedFetch(NamedTuple):
    """Fetches of the same constants, in order, and the bytes of the largest of their buffers."""

    fetches: tuple[BufferFetch, ...]
    nbytes: int

    @property
    def span(self) -> slice:
        """The tiles from the first to the last use."""
        return slice(self.fetches[0].tile, self.fetches[-1].last + 1)

    @property
    def gain(self) -> float:
        """Load cycles that retention saves, for each byte and tile that it takes."""
        saved = sum([fetch.cycles for fetch in self.fetches[1:]])
        tiles = self.fetches[-1].last + 1 - self.fetches[0].tile
        return saved / (self.nbytes * tiles)


def list_fetches(tiles: Sequence[TileSteps], bus: MemoryBus) -> list[BufferFetch]:
    """Group the load steps of all tiles into fetches, in the order of first use."""
    found: list[BufferFetch] = []
    current: dict[int, BufferFetch] = {}
    written: list[tuple[int, Access]] = []
    end = 0
    for number, tile in enumerate(tiles):
        for step in tile.loads:
            buffer = step.pointers["LD_SRAM_ADDRESS"].buffer
            fetch = current.get(buffer)
            if fetch is None or fetch.tile < number:
                fetch = current[buffer] = BufferFetch([], number, buffer, fetch, number)
                found.append(fetch)
            fetch.steps.append(step)
            fetch.cycles += bus.transfer_cycles(step.slots)
            fetch.release = max(fetch.release, _readable(step, number, written, end))
        for buffer in list_used_buffers((*tile.computes, *tile.stores)):
            if buffer in current:
                current[buffer].last = number
        for step in tile.stores:
            target = _dram(step)
            written.append((number, target))
            end = max(end, target.end)
    _link(found, end)
    return found


def _link(fetches: Sequence[BufferFetch], end: int) -> None:
    """Link each fetch to the next one that loads the same bytes to the same places of its buffer.

    Only bytes from address ``end`` on are linked, because no store writes them.
    """
    following: dict[tuple[object, ...], BufferFetch] = {}
    for fetch in reversed(fetches):
        if min([step.registers["LD_DRAM_ADDRESS"] for step in fetch.steps]) >= end:
            key = tuple(
                [
                    (step.pointers["LD_SRAM_ADDRESS"].offset, *sorted(step.registers.items()))
                    for step in fetch.steps
                ]
            )
            fetch.again = following.get(key)
            following[key] = fetch


def _readable(
    step: CommandStep, number: int, written: Sequence[tuple[int, Access]], end: int
) -> int:
    """Return the first tile during which a load of tile ``number`` may run.

    The load must find the bytes of the earlier stores ``written``.
    """
    if step.registers["LD_DRAM_ADDRESS"] >= end:
        return 0
    source = _dram(step)
    for writer, target in reversed(written):
        if writer < number - DISTANCE:
            return number - DISTANCE
        if touch(source, target):
            return writer + 1
    return 0


def want(
    fetches: Sequence[BufferFetch], tiles: Sequence[TileSteps], cycles: Sequence[int], most: int
) -> int:
    """Set for each fetch the last tile whose computation it must overlap to avoid waits.

    The estimate assumes that EX never waits. A fetch is wanted at most ``most`` cycles early, the
    time to load a whole scratchpad, and not before ``_candidates`` can see it. Return the smallest
    ``most`` that does not limit the result.
    """
    starts = [0]
    for duration in cycles:
        starts.append(starts[-1] + duration)
    stores = [sum([step.slots for step in tile.stores]) for tile in tiles]
    deadline = starts[-1]
    number = len(tiles)
    needed = 0
    for index, fetch in reversed(list(enumerate(fetches))):
        while number > fetch.tile:
            number -= 1
            deadline = min(deadline - stores[number], starts[number])
        deadline -= fetch.cycles
        earliest = starts[fetch.tile] - most
        needed = max(needed, starts[fetch.tile] - max(deadline, 0))
        seen = fetches[index - WINDOW].tile if index >= WINDOW else 0
        fetch.wanted = max(
            min(bisect_right(starts, max(deadline, earliest) - MARGIN) - 1, fetch.tile - 1), seen
        )
    return needed


def _dram(step: CommandStep) -> Access:
    """Return the :class:`isa.access.Access` of a DMA step to system memory."""
    registers = step.registers
    address, nbytes, loops = registers_of(step.unit)
    dims = [(registers[count], registers.get(stride, 0)) for count, stride in loops]
    return strided("dram", registers[address], registers[nbytes], *dims)
