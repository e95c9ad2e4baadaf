"""Data that all plans of a region share: layers, tile searches, and buffers that can be resident.

They hold for all machines that differ only in scratchpad size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate
from typing import NamedTuple

from byoc.estimate.banks import CommandLoads
from byoc.estimate.bus import MemoryBus
from byoc.estimate.constants import DRAM_LATENCY, REMEMBERED_TILES
from byoc.operators.layer import OperatorLayer, Resident, Tiling, align
from byoc.scheduling.fusion import Fusion
from byoc.scheduling.groups import BandedGroup, FusionGraph, fusion_graph
from byoc.scheduling.lowering import Buffer, Lowered
from byoc.scheduling.pipelining import Spread
from byoc.scheduling.stream import Memory, TileSteps
from byoc.scheduling.tile_search import TileSearch
from byoc.scheduling.tiling import Answers
from byoc.scheduling.unlimited import UnlimitedPlan
from isa.arch import Arch


@dataclass(frozen=True)
class LayerPlan:
    """Tiling of every layer, names of resident buffers, and groups of layers.

    The layers of a group are computed together. Tilings of layers in groups are not used, except
    those of layers with a fused element-wise layer.
    """

    tilings: tuple[Tiling, ...]
    residents: tuple[str, ...]
    groups: tuple[BandedGroup, ...] = ()


@dataclass(frozen=True)
class Life:
    """Range of layers during which a resident buffer must stay in the scratchpad."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class RegionContext:
    """Data shared by all plans of a region, for machines that differ only in scratchpad size.

    ``searches`` has one entry per layer. ``plans`` caches plans for the whole scratchpad without
    user choices.
    """

    layers: Sequence[OperatorLayer]
    searches: Sequence[TileSearch]
    lowered: Lowered
    arch: Arch
    bus: MemoryBus
    plans: Answers[float, LayerPlan] = field(default_factory=Answers)

    @cached_property
    def rooms(self) -> Rooms:
        """Buffers that could be resident, with the bytes that they leave each layer."""
        return Rooms(self.layers, self.lowered, self.arch)

    @cached_property
    def streams(self) -> StreamCache:
        """Cache of the streams of plans."""
        return StreamCache()

    @cached_property
    def loads(self) -> CommandLoads:
        """Cache of the cycles and scratchpad accesses of the machine's commands."""
        return CommandLoads(self.arch, self.bus)

    @cached_property
    def shares_constants(self) -> bool:
        """True if several layers have the same constants, as the steps of an LSTM have."""
        return share_constants(self.layers)

    @cached_property
    def shared(self) -> tuple[Hashable, ...]:
        """Key of each layer's constants; equal keys mean equal constants, None means no key."""
        return list_constant_keys(self.layers)

    @cached_property
    def graph(self) -> FusionGraph:
        return fusion_graph(self.layers, self.lowered)

    @cached_property
    def narrower(self) -> tuple[RegionContext, ...]:
        """The region on machines whose array has fewer lanes on one side or on all sides.

        All sides are a half or a quarter as long, or one side is a quarter as long.
        """
        pe = self.arch.pe
        every = ("ic", "oc", "ow")
        arrays = [
            pe.model_copy(update={side: max(1, getattr(pe, side) >> halves) for side in sides})
            for sides, halves in ((every, 1), (every, 2), *(((side,), 2) for side in every))
        ]
        return tuple(
            self._make_context(self.arch.model_copy(update={"pe": array}), self.bus)
            for array in dict.fromkeys(arrays)
            if array != pe
        )

    @cached_property
    def faster(self) -> RegionContext | None:
        """The region on a bus with the default latency and without flash; None on such a bus."""
        bus = replace(self.bus, latency=DRAM_LATENCY, flash=None)
        return self._make_context(self.arch, bus) if bus != self.bus else None

    def _make_context(self, arch: Arch, bus: MemoryBus) -> RegionContext:
        search = cache(lambda geometry: TileSearch(geometry, arch, bus))
        searches = [search(layer.geometry) for layer in self.layers]
        return replace(self, searches=searches, arch=arch, bus=bus, plans=Answers())

    @cached_property
    def fusion(self) -> Fusion:
        return Fusion(self.layers, self.searches, self.graph, self.arch, self.bus)


class PlanStream(NamedTuple):
    """Tiles of a plan with their compute cycles, and the memory that they use.

    ``unlimited``: plans in unlimited banks by spread; None if they do not help.
    """

    tiles: list[TileSteps]
    cycles: list[int]
    memory: Memory
    unlimited: dict[Spread, UnlimitedPlan | None]

    @property
    def has_own_bytes(self) -> bool:
        """True if the scratchpad has room for all buffers without sharing bytes."""
        return sum([nbytes for _, nbytes in self.memory.scratch]) <= self.memory.arch.sram_bytes


class StreamCache:
    """Cache of the streams of one region by plan. It is emptied when it has many tiles."""

    def __init__(self) -> None:
        self._known: dict[LayerPlan, PlanStream] = {}
        self._tiles = 0

    def get_or_make(self, plan: LayerPlan, make: Callable[[], PlanStream]) -> PlanStream:
        """Return the cached stream of ``plan``, or the result of ``make``."""
        found = self._known.get(plan)
        if found is None:
            found = make()
            if self._tiles + len(found.tiles) > REMEMBERED_TILES:
                self._known.clear()
                self._tiles = 0
            if len(found.tiles) <= REMEMBERED_TILES:
                self._known[plan] = found
                self._tiles += len(found.tiles)
        return found


def share_constants(layers: Sequence[OperatorLayer]) -> bool:
    """Return True if several layers have the same constants."""
    keys = [key for key in list_constant_keys(layers) if key is not None]
    return len(set(keys)) < len(keys)


def list_constant_keys(layers: Sequence[OperatorLayer]) -> tuple[Hashable, ...]:
    """Return the key of each layer's constants, None for a layer without a key."""
    constants = [layer.constants for layer in layers]
    return tuple([None if one is None else one.shared for one in constants])


_Beside = tuple[Resident, int]
"""Which operands of a layer are resident, and the bytes of all residents live at the layer."""


class Rooms:
    """Buffers that could be resident, and the scratchpad bytes that they leave each layer.

    ``lives`` has the buffers in order of production.
    """

    def __init__(self, layers: Sequence[OperatorLayer], lowered: Lowered, arch: Arch) -> None:
        self._uses = [
            (
                tuple(lowered.place(item).buffer for item in layer.operation.inputs),
                lowered.place(layer.operation.output).buffer,
            )
            for layer in layers
        ]
        self.lives = _candidates(layers, self._uses, lowered.buffers, arch)
        self._users: dict[str, list[int]] = {name: [] for name in self.lives}
        for index, (sources, target) in enumerate(self._uses):
            for name in self.lives.keys() & {*sources, target}:
                self._users[name].append(index)

    def find_resident(
        self, index: int, residents: Collection[str], capacity: int
    ) -> tuple[Resident, int]:
        """Return which operands of a layer are resident, and the bytes left for the layer.

        The bytes are those of ``capacity`` that no live resident takes.
        """
        return self.find_operands(index, residents), capacity - self._count_taken(residents)[index]

    def find_operands(self, index: int, residents: Collection[str]) -> Resident:
        """Return which operands of a layer are resident."""
        sources, target = self._uses[index]
        return Resident(
            tuple([name in residents for name in sources]), target in residents, follows=index > 0
        )

    def list_beside(self, residents: Collection[str]) -> list[_Beside]:
        """Return, for each layer, its resident operands and the bytes of all live residents."""
        return [
            (self.find_operands(index, residents), taken)
            for index, taken in enumerate(self._count_taken(residents))
        ]

    def _count_taken(self, residents: Collection[str]) -> list[int]:
        """Return the bytes that residents take at each layer."""
        change = [0] * (len(self._uses) + 1)
        for name in self.lives.keys() & residents:
            life = self.lives[name]
            change[life.first] += life.nbytes
            change[life.last + 1] -= life.nbytes
        return list(accumulate(change[:-1]))

    def add_resident(
        self, name: str, rooms: Sequence[_Beside], residents: Collection[str]
    ) -> list[_Beside]:
        """Return items of :meth:`list_beside` updated after ``name`` joined ``residents``.

        ``rooms`` are the items without ``name``, of the layers at which it is live.
        """
        life = self.lives[name]
        found = [(resident, taken + life.nbytes) for resident, taken in rooms]
        for index in self._users[name]:
            at = index - life.first
            found[at] = self.find_operands(index, residents), found[at][1]
        return found


def _candidates(
    layers: Sequence[OperatorLayer],
    uses: Sequence[tuple[tuple[str, ...], str]],
    buffers: Sequence[Buffer],
    arch: Arch,
) -> dict[str, Life]:
    """Return the buffers that could be resident, in order of production.

    The region writes and reads them, and no copy touches them.
    """
    made: dict[str, int] = {}
    read: dict[str, int] = {}
    excluded = {buffer.name for buffer in buffers if buffer.role == "input"}
    for index, (sources, target) in enumerate(uses):
        made.setdefault(target, index)
        read |= dict.fromkeys(sources, index)
        if layers[index].geometry.instruction is None:
            excluded |= {*sources, target}
    last_made = {target: index for index, (_, target) in enumerate(uses)}
    sizes = {buffer.name: align(buffer.nbytes, arch.granule) for buffer in buffers}
    return {
        name: Life(sizes[name], first, max(read[name], last_made[name]))
        for name, first in made.items()
        if name in read and name not in excluded
    }
