"""Features of a schedule's units (layers with tilings, groups) for the learned model."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from byoc.estimate.bus import MemoryBus
from byoc.operators.layer import Resident, Tiling
from byoc.options import GroupChoice
from byoc.tuning.subject import State, TuningSubject

Features = tuple[float, ...]
LAYER = 30
GROUP = 14
"""Number of features of a layer and of a group; a unit has zeros for the other kind."""
FEATURES = LAYER + GROUP + 7
AMPLE = 4.0
"""Cap for idle cycles and spare bytes, as a multiple of those that the first loads need.

They are the predecessor's.
"""


class ScheduleUnit(NamedTuple):
    """Consecutive layers that run as one, with model features and a lower bound in cycles.

    They are the sites ``first`` to ``last``.
    """

    first: int
    last: int
    features: Features
    least: int


class _Sight(NamedTuple):
    """Features of a schedule's unit regardless of its predecessor, and its bound and estimate.

    Bound and estimate are in cycles. ``idle`` are cycles in which the unit leaves the bus free and
    ``spare`` the bytes that it leaves unused, both for prefetches of its successor. ``first`` are
    the bus cycles of the loads that its first tile waits for.
    """

    features: Features
    least: int
    estimate: float
    idle: int
    spare: int
    first: int


_NOTHING = _Sight((), 1, 1.0, 0, 0, 0)
"""Predecessor of the first unit."""


class Units:
    """Feature extraction for the units of one subject's schedules."""

    def __init__(self, subject: TuningSubject) -> None:
        self._subject = subject
        self._layers: dict[tuple[int, int, Tiling, Resident, int], _Sight] = {}

    def list_units(
        self, state: State, first: int = 0, last: int | None = None
    ) -> Iterator[ScheduleUnit]:
        """Yield the units of a schedule from layer ``first`` to ``last``, and the next unit."""
        spans = state.spans
        end = len(state.tilings) if last is None else last + 1
        wanted = [
            place
            for place, (begin, final, _) in enumerate(spans)
            if final >= first and begin <= end
        ]
        before = self._sight(state, *spans[wanted[0] - 1]) if wanted[0] else _NOTHING
        for place in wanted:
            begin, final, group = spans[place]
            sight = self._sight(state, begin, final, group)
            yield ScheduleUnit(
                begin, final, _add_predecessor(sight, before, self._subject.clock.bus), sight.least
            )
            before = sight

    def _sight(self, state: State, first: int, last: int, group: GroupChoice | None) -> _Sight:
        if group is not None and group.rows:
            return self._group(state, first, group)
        resident, budget = state.room(self._subject, first)
        key = first, last, state.tilings[first], resident, budget
        found = self._layers.get(key)
        if found is None:
            found = self._layers[key] = self._layer_sight(*key)
        return found

    def _layer_sight(
        self, number: int, last: int, tiling: Tiling, resident: Resident, budget: int
    ) -> _Sight:
        """Return the features of a layer and of the next layers that are fused into its tiles."""
        rider = sum(
            self._subject.search(other).cost.compute.least().cycles
            for other in range(number + 1, last + 1)
        )
        cost = self._subject.search(number).cost
        nest = self._subject.sites[number].geometry.nest
        shape = cost.shape_of(tiling)
        slots = tiling.slots
        estimate = max(cost.estimate(tiling, resident) + rider, 1.0)
        working_set = cost.compute_working_set(tiling, resident)
        buffers = shape.buffers
        counts = shape.parts, shape.bands, shape.chunks, shape.tiles
        sizes = (
            nest.channels,
            nest.rows,
            nest.columns,
            nest.input_channels,
            tiling.channels,
            tiling.rows,
            tiling.depth,
        )
        nbytes = sum(buffers.inputs), buffers.constants, buffers.output, buffers.sums, working_set
        own = (
            *(math.log1p(value) for value in (*counts, *sizes, *nbytes, shape.compute)),
            estimate / max(shape.compute, 1),
            working_set / max(budget, 1),
            float(slots.input), float(slots.constants), float(slots.output),
            float(tiling.channels_outer), float(any(resident.inputs)), float(resident.output),
            float(nest.kernel), float(nest.stride), float(nest.groups > 1), float(nest.matrix),
            float(resident.beside),
        )  # fmt: skip
        first = shape.constant_slots + sum(
            cycles
            for cycles, near in zip(shape.input_slots, resident.inputs, strict=False)
            if not near
        )
        traffic = cost.traffic(tiling, resident)
        least = self._least(
            shape.compute + rider, traffic if resident.output else traffic - shape.output_all
        )
        spare = max(budget - working_set, 0)
        return _Sight(
            (*own, *[0.0] * GROUP), least, estimate, max(shape.compute - traffic, 0), spare, first
        )

    def _least(self, compute: int, loading: int) -> int:
        """Return a lower bound for the cycles of a schedule's unit.

        A scratchpad's worth of loads may be prefetched.
        """
        bus = self._subject.clock.bus
        return max(compute, bus.cycles_of(bus.bytes_in(loading) - self._subject.arch.sram_bytes), 1)

    def _group(self, state: State, first: int, group: GroupChoice) -> _Sight:
        found = self._subject.account(first, group, state.residents)
        traffic = found.loading + found.storing
        estimate = float(found.estimate or max(found.compute, traffic))
        counts = (
            found.tiles,
            found.transfers,
            group.rows,
            found.nbytes,
            found.compute,
            found.loading,
            found.storing,
        )
        own = (
            *(math.log1p(value) for value in counts),
            estimate / max(found.compute, 1),
            traffic / max(found.compute, 1),
            found.nbytes / max(found.budget, 1),
            float(len(group.layers)), float(group.slots or 2), float(len(group.kept or ())),
            float(sum(group.held or ())),
        )  # fmt: skip
        least = self._least(found.compute, found.loading)
        spare = max(found.budget - found.nbytes, 0)
        return _Sight(
            (*[0.0] * LAYER, *own),
            least,
            estimate,
            max(found.compute - traffic, 0),
            spare,
            found.first,
        )


def _add_predecessor(sight: _Sight, before: _Sight, bus: MemoryBus) -> Features:
    """Return a unit's features, and the idle bus cycles and free bytes of its predecessor.

    A unit is a layer or group of a schedule. The bytes are scratchpad bytes; the unit's first loads
    can be prefetched into them. The last two features are the logarithms of the unit's bound and
    estimate.
    """
    first = sight.first + 1
    return (
        *sight.features,
        math.log1p(sight.first), math.log1p(before.idle), math.log1p(before.spare),
        min(before.idle / first, AMPLE), min(before.spare / bus.bytes_in(first), AMPLE),
        math.log(sight.least), math.log(sight.estimate),
    )  # fmt: skip
