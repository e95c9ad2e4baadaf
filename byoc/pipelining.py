"""Software pipelining: every load moves ahead of the computation of earlier tiles, as far as memory and data allow.

The stream stays correct when it is executed in order: a load moves neither before the last use of the tile buffer that
it fills nor before a store of bytes that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from byoc.schedule_stream import TileSteps
from byoc.steps import Step
from byoc.tokens import touch
from isa.access import Access, strided

DISTANCE = 4
"""Tiles that a load may run ahead."""


def pipelined(tiles: Sequence[TileSteps], sizes: Sequence[int], limit: int) -> list[Step]:
    """All steps in stream order. ``sizes``: bytes of the scratchpad buffers by number; at most ``limit`` bytes are
    live at any tile after moving a load ahead. ``limit`` 0 moves only loads of buffers that are live anyway.
    """
    ahead: list[list[Step]] = [[] for _ in tiles]
    used = [frozenset(_buffers(tile)) for tile in tiles]
    profile = _Profile(used, sizes)
    written = [tuple(_dram(step, "ST") for step in tile.stores) for tile in tiles]
    for number, tile in enumerate(tiles):
        for step in tile.loads:
            position = _earliest(step, number, used, written)
            ahead[profile.move(step, number, position, limit)].append(step)
    return [
        step
        for number in range(len(tiles))
        for step in (*ahead[number], *tiles[number].computes, *tiles[number].stores)
    ]


def _earliest(step: Step, number: int, used: Sequence[frozenset[int]], written: Sequence[tuple[Access, ...]]) -> int:
    """The first tile before whose computation the load may stand."""
    source = _dram(step, "LD")
    buffer = step.pointers["LD_SRAM_ADDRESS"].buffer
    for position in range(number, max(0, number - DISTANCE), -1):
        before = position - 1
        if any(touch(source, target) for target in written[before]) or buffer in used[before]:
            return position
    return max(0, number - DISTANCE)


def _dram(step: Step, unit: str) -> Access:
    """The bytes of system memory that a DMA step reads or writes."""
    registers = step.registers
    count = registers[f"{unit}_COUNT_1"], registers.get(f"{unit}_DRAM_STRIDE_1", 0)
    return strided("dram", registers[f"{unit}_DRAM_ADDRESS"], registers[f"{unit}_BYTES"], count)


def _buffers(tile: TileSteps) -> Iterator[int]:
    """Scratchpad buffers that a tile's computation and stores use, and those that its loads fill."""
    for step in (*tile.computes, *tile.stores, *tile.loads):
        for pointer in step.pointers.values():
            yield pointer.buffer


class _Profile:
    """Live bytes at every tile, while loads move ahead."""

    def __init__(self, used: Sequence[frozenset[int]], sizes: Sequence[int]) -> None:
        self._sizes = sizes
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

    def move(self, step: Step, number: int, position: int, limit: int) -> int:
        """The tile before which the load is put, at ``position`` or, if its buffer then has no room, later."""
        buffer = step.pointers["LD_SRAM_ADDRESS"].buffer
        first, size = self._first[buffer], self._sizes[buffer]
        best = min(number, max(position, first))
        while best > position and best <= first and self._live[best - 1] + size <= limit:
            best -= 1
            self._live[best] += size
        self._first[buffer] = min(first, best)
        return best
