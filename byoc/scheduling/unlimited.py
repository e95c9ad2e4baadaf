"""Placement of a stream in a scratchpad whose banks have unlimited size.

The planner only adds, aligns and compares addresses, and an address is a number of banks plus some
bytes. While these bytes fit a bank, no comparison depends on the size of the banks. One plan with
its rehearsal therefore holds for every scratchpad whose banks are large enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from byoc.estimate.banks import CommandLoads
from byoc.estimate.constants import UNLIMITED
from byoc.scheduling.pipelining import Pipelined, Spread, pipeline_tiles
from byoc.scheduling.rehearsal import Rehearsed
from byoc.scheduling.stream import Memory, TileSteps
from isa.arch import Arch


@dataclass(frozen=True, eq=False)
class UnlimitedPlan:
    """Plan of a stream in banks of unlimited size; ``arch`` has them.

    ``least_bank`` is the size in bytes from which a bank contains every address that the planner
    has compared. ``shared``: buffers that commands use in part.
    """

    placed: Pipelined
    least_bank: int
    shared: frozenset[int]
    loads: CommandLoads
    arch: Arch

    @cached_property
    def best(self) -> tuple[Pipelined, Rehearsed]:
        """The plan and the faster of its rehearsals."""
        found = self.placed.rehearse_stream(self.shared, self.loads, self.arch)
        return self.placed, min(found, key=lambda one: one.cycles)

    def is_valid_for(self, arch: Arch, most: int) -> bool:
        """Return True if ``arch`` has this plan; its bus fills the SRAM in ``most`` cycles."""
        bank = arch.sram_bytes // arch.sram_banks
        return (
            bank >= self.least_bank and not bank % arch.granule and most >= self.placed.most_ahead
        )

    def resize(self, arch: Arch) -> tuple[int, ...]:
        """Return the addresses of the buffers in the banks of ``arch``."""
        bank = arch.sram_bytes // arch.sram_banks
        return tuple(
            [
                number * bank + rest
                for number, rest in [divmod(one, UNLIMITED) for one in self.placed.addresses]
            ]
        )


def plan_unlimited(
    tiles: Sequence[TileSteps],
    cycles: Sequence[int],
    memory: Memory,
    loads: CommandLoads,
    spread: Spread,
) -> UnlimitedPlan | None:
    """Return the plan of a stream in unlimited banks, or None if its buffers need no own banks.

    The arguments are those of :func:`pipeline_tiles` and :func:`rehearse`.
    """
    arch = memory.arch.model_copy(update={"sram_bytes": memory.arch.sram_banks * UNLIMITED})
    scratchpad = memory.scratch, arch, memory.bus, memory.apart, memory.windows
    placed = pipeline_tiles(tiles, cycles, *scratchpad, spread)
    if not (placed and any(one.beside for one in placed[0].requests)):
        return None
    # A candidate address is the aligned end of a buffer; the planner compares its end, too.
    ends = [
        address % UNLIMITED + request.nbytes
        for request, address in zip(placed[0].requests, placed[0].addresses, strict=True)
    ]
    least = max(ends) + arch.granule + max([nbytes for _, nbytes in memory.scratch])
    return UnlimitedPlan(placed[0], least, memory.shared, loads, arch)
