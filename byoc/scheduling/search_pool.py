"""Cache of tile searches, schedules and programs that several compilations share.

Every entry has all its dependencies as key, so a compilation gives the same result with and without
a pool.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from byoc.estimate.bus import DEFAULT_BUS, MemoryBus
from byoc.estimate.constants import REMEMBERED_PLANS
from byoc.operators.geometry import Geometry
from byoc.operators.layer import OperatorLayer
from byoc.scheduling.lowering import Lowered
from byoc.scheduling.region_context import RegionContext
from byoc.scheduling.stream import Scheduled
from byoc.scheduling.tile_search import TileSearch
from byoc.scheduling.tiling import Answers, Budget
from isa.arch import Arch

Compiled = TypeVar("Compiled")
"""Result of emission for a schedule; the pool stores it unread."""
Shared = TypeVar("Shared")


@dataclass(frozen=True, eq=False)
class _Kept:
    """Cached schedule that is valid for every scratchpad of at least ``sram_bytes`` bytes.

    The scratchpad size did not limit it.
    """

    sram_bytes: int
    scheduled: Scheduled


class SearchPool(Generic[Compiled]):
    """Cache of tile searches on machines with one bus, of schedules and of programs.

    The programs are compiled from the schedules. Scratchpad size is an argument of a search, so
    machines that differ only in it share searches. A pool grows with every layer shape and machine;
    drop it when these change.
    """

    def __init__(self, bus: MemoryBus = DEFAULT_BUS) -> None:
        self.bus = bus
        self._known: dict[tuple[Arch, Geometry], TileSearch] = {}
        self._schedules: dict[Hashable, _Kept] = {}
        self._compiled: dict[Scheduled, Compiled | None] = {}
        self._once: dict[Hashable, Any] = {}
        self._contexts = Answers[tuple[Hashable, Arch], RegionContext]()

    def schedule(self, subject: Hashable, plan: Hashable, arch: Arch) -> Scheduled | None:
        """Return a cached schedule of ``subject`` and ``plan`` valid for ``arch``, or None."""
        kept = self._schedules.get((subject, plan, sizeless(arch)))
        return kept.scheduled if kept is not None and kept.sram_bytes <= arch.sram_bytes else None

    def keep(self, subject: Hashable, plan: Hashable, arch: Arch, scheduled: Scheduled) -> None:
        """Cache a schedule that depends on scratchpad size only through its plan."""
        if len(self._schedules) < REMEMBERED_PLANS:
            self._schedules[subject, plan, sizeless(arch)] = _Kept(arch.sram_bytes, scheduled)
            self._compiled[scheduled] = None

    def get_compiled(self, scheduled: Scheduled) -> Compiled | None:
        """Return the program compiled from a cached schedule, for any machine."""
        return self._compiled.get(scheduled)

    def add_compiled(self, scheduled: Scheduled, compiled: Compiled) -> None:
        """Cache the program compiled from a schedule, if the schedule is cached."""
        if scheduled in self._compiled:
            self._compiled[scheduled] = compiled

    def get_or_make(self, key: Hashable, make: Callable[[], Shared]) -> Shared:
        """Return the cached result of ``make``, which must depend only on ``key``."""
        if key not in self._once:
            self._once[key] = make()
        found: Shared = self._once[key]
        return found

    def context(
        self,
        subject: Hashable,
        arch: Arch,
        make: Callable[[Budget], tuple[Lowered, Sequence[OperatorLayer]]],
    ) -> RegionContext:
        """Return the data shared by all plans of a region on a machine.

        ``make`` returns the lowered region and its layers; it must query its budget for every
        dependency on scratchpad size.
        """
        machine = sizeless(arch)

        def make_context(budget: Budget) -> RegionContext:
            lowered, layers = make(budget)
            return RegionContext(layers, self.searches(layers, machine), lowered, machine, self.bus)

        return self._contexts.find((subject, machine), arch.sram_bytes, make_context)

    def searches(self, layers: Sequence[OperatorLayer], arch: Arch) -> list[TileSearch]:
        return [self.search(layer.geometry, arch) for layer in layers]

    def search(self, geometry: Geometry, arch: Arch) -> TileSearch:
        key = sizeless(arch), geometry
        if key not in self._known:
            self._known[key] = TileSearch(geometry, key[0], self.bus)
        return self._known[key]


@lru_cache
def sizeless(arch: Arch) -> Arch:
    """Return the machine with a default scratchpad size, equal for machines that differ only in it.

    The number of banks stays, because strided copies access as many at a time.
    """
    return arch.model_copy(update={"sram_bytes": Arch.model_fields["sram_bytes"].default})
