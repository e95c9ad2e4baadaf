"""Memory map of a run report: the tensors and tiles in the scratchpad over time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.report.parts import LARGEST_COUNT, Count, Fraction, Part

MEMORY_BLOCKS = 500
"""Maximum number of blocks on the memory map."""


class MemoryBlock(Part):
    """Scratchpad bytes ``[address, address + bytes)`` that hold one tensor or tile for some time.

    A block is resident in the cycles ``[begin, end)``: from the start of its first write to the end
    of its last read. ``role`` says what the layer with the index ``layer`` in ``layers`` uses or
    computes. ``tile`` is the number of the first tile. Rows of a tensor can have other bytes
    between them.
    """

    layer: Annotated[int, Field(ge=-1, le=LARGEST_COUNT)]
    role: Literal["weights", "input", "result"]
    tile: Count
    address: Count
    bytes: Count
    begin: Count
    end: Count

    @property
    def byte_cycles(self) -> int:
        """Bytes times cycles."""
        return self.bytes * (self.end - self.begin)


class MemoryMap(Part):
    """Tensors and tiles in the scratchpad over the run, regions one after another.

    At most :data:`MEMORY_BLOCKS` blocks are listed, those with the most bytes times cycles.
    ``omitted`` counts the others. ``share`` is the share of all blocks' bytes times cycles that the
    listed ones have.
    """

    blocks: tuple[MemoryBlock, ...] = Field(max_length=MEMORY_BLOCKS)
    omitted: Count
    share: Fraction

    def check(self, cycles: int, top: int, layers: int) -> None:
        """Raise ValueError for a block outside of the run, the scratchpad or the layers."""
        for block in self.blocks:
            inside = block.begin < block.end <= cycles and 0 < block.bytes <= top - block.address
            if not inside or block.layer >= layers:
                raise ValueError(
                    f"{block!r} is not within the run's {cycles:,} cycles, {top:,} bytes and "
                    f"{layers:,} layers"
                )
