"""What compilations can share: tile searches, and programs of machines that differ in the scratchpad's size alone.

Everything here is found by all that it depends on: a compilation with a pool gives what it gives without.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from byoc.estimate.constants import REMEMBERED_PLANS
from byoc.lowering import Lowered
from byoc.operators.layer import Layer
from byoc.operators.operator import Geometry
from byoc.scheduling.residency import Ground, ground_of
from byoc.scheduling.schedule import Scheduled
from byoc.tiling.budget import Answers, Budget
from byoc.tiling.search import TileSearch
from isa.arch import Arch

Compiled = TypeVar("Compiled")
"""What emission makes of a schedule: the pool keeps it and does not look."""
Shared = TypeVar("Shared")
ONE_SIZE = {"sram_bytes": Arch.model_fields["sram_bytes"].default}
"""What makes machines equal that differ in the scratchpad's size alone."""


@dataclass(frozen=True, eq=False)
class _Kept:
    """A schedule that every scratchpad of at least ``sram_bytes`` gets, for nothing in it was held back."""

    sram_bytes: int
    scheduled: Scheduled


class SearchPool(Generic[Compiled]):
    """The searches of layers on machines, made when first asked for, and schedules with what was made of them.

    The size of the scratchpad is a question to a search, not a part of it: machines that differ in nothing else share
    their searches. A pool grows with every layer shape and machine that it meets; drop it when these change.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Arch, Geometry], TileSearch] = {}
        self._schedules: dict[Hashable, _Kept] = {}
        self._compiled: dict[Scheduled, Compiled | None] = {}
        self._once: dict[Hashable, Any] = {}
        self._grounds = Answers[tuple[Hashable, Arch], Ground]()

    def schedule(self, subject: Hashable, plan: Hashable, arch: Arch) -> Scheduled | None:
        """A schedule kept for this subject and plan that serves ``arch`` too."""
        kept = self._schedules.get((subject, plan, sizeless(arch)))
        return kept.scheduled if kept is not None and kept.sram_bytes <= arch.sram_bytes else None

    def keep(self, subject: Hashable, plan: Hashable, arch: Arch, scheduled: Scheduled) -> None:
        """Remember a schedule that the size of the scratchpad has not influenced beyond the plan."""
        if len(self._schedules) < REMEMBERED_PLANS:
            self._schedules[subject, plan, sizeless(arch)] = _Kept(arch.sram_bytes, scheduled)
            self._compiled[scheduled] = None

    def compiled(self, scheduled: Scheduled) -> Compiled | None:
        """What was made of a kept schedule, for whatever machine it was made."""
        return self._compiled.get(scheduled)

    def add_compiled(self, scheduled: Scheduled, compiled: Compiled) -> None:
        """Remember what was made of a schedule, if that is kept."""
        if scheduled in self._compiled:
            self._compiled[scheduled] = compiled

    def once(self, key: Hashable, make: Callable[[], Shared]) -> Shared:
        """What ``make`` makes of all that is in ``key``, made once."""
        if key not in self._once:
            self._once[key] = make()
        found: Shared = self._once[key]
        return found

    def ground(
        self, subject: Hashable, arch: Arch, make: Callable[[Budget], tuple[Lowered, Sequence[Layer]]]
    ) -> Ground:
        """The ground of a subject on a machine; ``make`` makes its layers, asking of a budget what decides on them."""
        machine = sizeless(arch)

        def made(budget: Budget) -> Ground:
            lowered, layers = make(budget)
            return ground_of(layers, self.searches(layers, machine), lowered, machine)

        return self._grounds.find((subject, machine), arch.sram_bytes, made)

    def searches(self, layers: Sequence[Layer], arch: Arch) -> list[TileSearch]:
        """A search for every layer."""
        machine = sizeless(arch)
        found: list[TileSearch] = []
        for layer in layers:
            key = machine, layer.geometry
            if key not in self._known:
                self._known[key] = TileSearch(layer.geometry, machine)
            found.append(self._known[key])
        return found


def sizeless(arch: Arch) -> Arch:
    """The machine with a scratchpad of one size: equal where machines differ in nothing else.

    It keeps its banks: copies of bytes that lie apart take as many at a time.
    """
    return arch.model_copy(update=ONE_SIZE)
