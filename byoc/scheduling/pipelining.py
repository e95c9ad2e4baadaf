"""Software pipelining: loads move ahead of the computation of earlier tiles, as far as memory and data allow.

The stream stays correct when it is executed in order: a load moves neither before the last use of the tile buffer that
it fills nor before a store of bytes that it reads. It moves no further than it must to be there in time, by a coarse
estimate in which EX never waits; at least one tile, so that loading and computing overlap at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from byoc.scheduling.steps import Step
from byoc.scheduling.stream import TileSteps
from byoc.tiling.cost import BUS_BYTES
from isa.access import Access, strided, touch

DISTANCE = 48
"""Tiles that a load may run ahead at most."""
MARGIN = 400
"""Cycles that a load should be complete before it is needed: the latency that the estimate leaves out."""


@dataclass(frozen=True)
class _Load:
    """A load of tile ``tile`` that may accompany the computation of tile ``earliest`` or a later one."""

    step: Step
    tile: int
    earliest: int
    cycles: int


def pipelined(
    tiles: Sequence[TileSteps], cycles: Sequence[int], sizes: Sequence[int], limit: int
) -> list[tuple[int, Step]]:
    """All steps in stream order, each with the number of the tile that it accompanies.

    ``cycles``: estimated cycles of each tile's computation. ``sizes``: bytes of the scratchpad buffers by number; at
    most ``limit`` bytes are live at any tile after moving a load ahead (0: only buffers that are live anyway move).
    """
    used = [frozenset(_buffers(tile)) for tile in tiles]
    loads = _loads(tiles, used)
    profile = _Profile(used, sizes, limit)
    ahead: list[list[Step]] = [[] for _ in tiles]
    own: list[list[Step]] = [[] for _ in tiles]
    for load, wanted in zip(loads, _wanted(loads, tiles, cycles), strict=True):
        position = max(wanted, load.earliest)
        while position < load.tile and not profile.admits(load, position):
            position += 1
        (ahead if position < load.tile else own)[position].append(load.step)
    # A load for later follows the computation: the command processor must not wait for LD's queue before EX has work.
    return [
        (number, step)
        for number, tile in enumerate(tiles)
        for step in (*own[number], *tile.computes, *ahead[number], *tile.stores)
    ]


def _wanted(loads: Sequence[_Load], tiles: Sequence[TileSteps], cycles: Sequence[int]) -> list[int]:
    """For each load the last tile whose computation it must accompany so that no later computation waits."""
    starts = [0]
    for duration in cycles:
        starts.append(starts[-1] + duration)
    stores = [sum(_cycles(step, "ST") for step in tile.stores) for tile in tiles]
    wanted: list[int] = []
    deadline, number = starts[-1], len(tiles)
    for load in reversed(loads):
        while number > load.tile:
            number -= 1
            deadline = min(deadline - stores[number], starts[number])
        deadline = deadline - load.cycles
        wanted.append(min(bisect_right(starts, deadline - MARGIN) - 1, load.tile - 1))
    return [max(position, 0) for position in reversed(wanted)]


def _loads(tiles: Sequence[TileSteps], used: Sequence[frozenset[int]]) -> list[_Load]:
    """The loads in order, with the first tile before which each may stand."""
    found: list[_Load] = []
    last_use: dict[int, int] = {}
    written: list[tuple[int, Access]] = []
    for number, tile in enumerate(tiles):
        for step in tile.loads:
            source = _dram(step, "LD")
            earliest = max(number - DISTANCE, last_use.get(step.pointers["LD_SRAM_ADDRESS"].buffer, -1) + 1, 0)
            for writer, target in reversed(written):
                if writer < earliest:
                    break
                if touch(source, target):
                    earliest = writer + 1
            found.append(_Load(step, number, earliest, _cycles(step, "LD")))
        written += [(number, _dram(step, "ST")) for step in tile.stores]
        last_use |= dict.fromkeys(used[number], number)
    return found


_NAMES = {
    unit: (
        f"{unit}_DRAM_ADDRESS",
        f"{unit}_BYTES",
        [(f"{unit}_COUNT_{n}", f"{unit}_DRAM_STRIDE_{n}") for n in (3, 2, 1)],
    )
    for unit in ("LD", "ST")
}
"""Registers of the DMA units: address and bytes of a row, count and stride of the dimensions, outermost first."""


def _dram(step: Step, unit: str) -> Access:
    """The bytes of system memory that a DMA step reads or writes."""
    registers = step.registers
    address, nbytes, loops = _NAMES[unit]
    dims = [(registers[count], registers.get(stride, 0)) for count, stride in loops]
    return strided("dram", registers[address], registers[nbytes], *dims)


def _cycles(step: Step, unit: str) -> int:
    """Estimated bus cycles of a DMA step."""
    _, nbytes, ((outer, _), (middle, _), (inner, _)) = _NAMES[unit]
    registers = step.registers
    return registers[outer] * registers[middle] * registers[inner] * (registers[nbytes] // BUS_BYTES + 1)


def _buffers(tile: TileSteps) -> Iterator[int]:
    """Scratchpad buffers that a tile's computation and stores use, and those that its loads fill."""
    for step in (*tile.computes, *tile.stores, *tile.loads):
        for pointer in step.pointers.values():
            yield pointer.buffer


class _Profile:
    """Live bytes at every tile, while loads move ahead."""

    def __init__(self, used: Sequence[frozenset[int]], sizes: Sequence[int], limit: int) -> None:
        self._sizes, self._limit = sizes, limit
        self._first: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, buffers in enumerate(used):
            for buffer in buffers:
                self._first.setdefault(buffer, number)
                last[buffer] = number
        self._live = [0] * len(used)
        for buffer, first in self._first.items():
            for number in range(first, last[buffer] + 1):
                self._live[number] += sizes[buffer]

    def admits(self, load: _Load, position: int) -> bool:
        """Whether the load may stand before tile ``position``; its buffer is then live from there on."""
        if position < load.earliest:
            return False
        buffer = load.step.pointers["LD_SRAM_ADDRESS"].buffer
        first, size = self._first[buffer], self._sizes[buffer]
        if any(live + size > self._limit for live in self._live[position:first]):
            return False
        for number in range(position, first):
            self._live[number] += size
        self._first[buffer] = min(first, position)
        return True
