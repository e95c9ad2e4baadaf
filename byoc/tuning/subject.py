"""The network and machine being tuned: layers with choices, and cycles of a schedule.

A complete schedule is a state. A search changes it at one site, or at several separate sites
together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import lcm
from typing import NamedTuple

from byoc.compiled import Region
from byoc.compiler import compile_regions
from byoc.emission.region import Compiled, empty_memory, order_layers
from byoc.estimate.bus import DEFAULT_BUS, MemoryBus
from byoc.graph import Value
from byoc.operators.geometry import Geometry
from byoc.operators.layer import OperatorLayer, Resident, Tiling, align
from byoc.options import NOTHING, Choices, CompileOptions, GroupChoice, PlacedGroups, place_groups
from byoc.scheduling.banding import stream_group
from byoc.scheduling.groups import FusionGraph, fusion_graph, lawful, list_fused_buffers, may_ride
from byoc.scheduling.lowering import Lowered
from byoc.scheduling.pipelining import pipeline_tiles
from byoc.scheduling.region_context import Rooms
from byoc.scheduling.residency import group_at, tiling_of
from byoc.scheduling.search_pool import SearchPool
from byoc.scheduling.stream import Memory, TileSteps, lifetimes
from byoc.scheduling.tile_search import TileSearch
from isa.arch import Arch
from isa.errors import InputError
from isa.program import Program

SHARES = (90, 95, 85, 97, 92, 87, 80, 75, 110, 70, 60, 50, 125)
"""Percentages of the scratchpad for which the compiler's schedules start a search."""


@dataclass(frozen=True, eq=False)
class TilingSite:
    """A layer whose tiling can be chosen.

    ``index`` is its position in its region. ``kind`` is its class as in Gibson 2023, chapter 6: the
    layer's sequence of operators, independent of sizes.
    """

    region: int
    index: int
    name: str
    kind: str
    geometry: Geometry


class ProgramClock(NamedTuple):
    """Timing of programs on the machine, in cycles by layer, and the machine's bus."""

    layers: Callable[[Program], Mapping[str, int]]
    bus: MemoryBus


@dataclass(frozen=True)
class Measurement:
    """Measured cycles of a network and of each of its layers, in order.

    They are None if memory planning failed.
    """

    cycles: int | None
    sites: tuple[int, ...] = ()


class LoneGroupCost(NamedTuple):
    """Cost of a group of layers by itself, without the layers around it.

    ``compute``, ``loading`` and ``storing`` are cycles of EX and of the bus. ``first`` are the bus
    cycles that the first tile waits for. ``nbytes`` is the peak of its buffers and ``budget`` the
    bytes that residents leave to its layers. ``estimate`` is the compiler's estimate in cycles;
    None if the group does not fit.
    """

    compute: int
    loading: int
    storing: int
    transfers: int
    tiles: int
    first: int
    nbytes: int
    budget: int
    estimate: int | None


def bare_memory(
    arch: Arch, lowered: Lowered, residents: Iterable[str], bus: MemoryBus = DEFAULT_BUS
) -> Memory:
    """Return a scratchpad memory with ``residents``, for steps that are never executed."""
    memory = empty_memory(lowered, arch, bus, data=False)()
    for name in residents:
        memory.residents[name] = memory.reserve(name, 0)
    return memory


def kind_of(layer: OperatorLayer) -> str:
    """Return the class of a layer: its instruction and the fused table look-up."""
    return (
        layer.mnemonic
        + {"none": "", "one": "+look_up", "each": "+look_up_each"}[layer.geometry.tables]
    )


def _join_choices(found: Sequence[Choices]) -> Choices:
    residents = tuple(name for one in found for name in one.residents or ())
    groups = tuple(group for one in found for group in one.groups or ())
    return Choices(tuple(layer for one in found for layer in one.layers), residents, groups)


def _peak(sizes: Sequence[int], tiles: Sequence[TileSteps], alignment: int) -> int:
    """Return the largest size in bytes of the buffers in use during any tile."""
    changes = [0] * (len(tiles) + 1)
    for buffer, (first, last) in lifetimes(tiles).items():
        changes[first] += align(sizes[buffer], alignment)
        changes[last + 1] -= align(sizes[buffer], alignment)
    return max(accumulate(changes))


class TuningSubject:
    """Regions of a network on one machine, with a cache of their cycles for each schedule."""

    def __init__(
        self,
        regions: Sequence[Region],
        values: Mapping[str, Value],
        arch: Arch,
        clock: ProgramClock,
    ) -> None:
        self.arch = arch
        self.clock = clock
        self._regions = tuple(regions)
        self._values = values
        self._pool = SearchPool[Compiled](clock.bus)
        self._known: dict[tuple[int, Choices], tuple[int, Mapping[str, int]] | None] = {}
        self._own: list[Choices] = []
        self._rooms: list[Rooms] = []
        self._firsts: list[int] = []
        self._graphs: list[FusionGraph] = []
        self._lowered: list[tuple[Lowered, tuple[OperatorLayer, ...]]] = []
        self._searches: list[TileSearch] = []
        self._accounts: dict[tuple[int, GroupChoice, tuple[str, ...]], LoneGroupCost] = {}
        sites: list[TilingSite] = []
        for number, region in enumerate(self._regions):
            own = self._compile_site(number, NOTHING)[1].choices
            lowered, layers = order_layers(region, values, arch, own)
            self._own.append(own)
            self._lowered.append((lowered, layers))
            self._rooms.append(Rooms(layers, lowered, arch))
            self._graphs.append(fusion_graph(layers, lowered))
            self._firsts.append(len(sites))
            self._searches += self._pool.searches(layers, arch)
            sites += [
                TilingSite(number, index, layer.name, kind_of(layer), layer.geometry)
                for index, layer in enumerate(layers)
            ]
        self.sites = tuple(sites)
        self.names = tuple(site.name for site in sites)

    @property
    def candidates(self) -> tuple[tuple[int, str], ...]:
        """Every tensor that could be resident in the scratchpad, with the index of its region."""
        return tuple(
            (number, name) for number, rooms in enumerate(self._rooms) for name in rooms.lives
        )

    def span(self, region: int, name: str) -> range:
        """Return the range of layers during which a tensor of a region would be resident."""
        life = self._rooms[region].lives[name]
        first = self._firsts[region]
        return range(first + life.first, first + life.last + 1)

    def groupable(self, first: int, last: int) -> bool:
        """Return True if layers ``first`` to ``last`` can be computed together in bands."""
        if (
            first < 0
            or last >= len(self.sites)
            or self.sites[first].region != self.sites[last].region
        ):
            return False
        ends = self.sites[first].index, self.sites[last].index
        return lawful(self._graphs[self.sites[first].region], *ends)

    def count_loaded_beside(self, number: int) -> int:
        """Count the operands that a fused next layer loads in addition to a layer's own.

        The next site then uses the site's tiles.
        """
        return len(self._layer(number + 1).operation.inputs) - 1

    def find_excluded(self, number: int) -> frozenset[str] | None:
        """Return tensors that cannot be resident if the next layer is fused into a layer's tiles.

        Returns None if the next layer cannot be fused into the tiles.
        """
        site = self.sites[number]
        graph = self._graphs[self.sites[number].region]
        layers = self._lowered[site.region][1]
        if site.index + 1 >= len(layers) or not may_ride(layers, graph, site.index + 1):
            return None
        return frozenset(list_fused_buffers(graph, site.index + 1))

    def _layer(self, number: int) -> OperatorLayer:
        site = self.sites[number]
        return self._lowered[site.region][1][site.index]

    def rows(self, number: int) -> int:
        """Return the number of output rows of a groupable layer, which are divided into bands."""
        site = self.sites[number]
        graph = self._graphs[site.region]
        member = graph.members[site.index]
        assert member is not None
        return graph.planes[member.writes.buffer].rows

    def account(self, first: int, group: GroupChoice, residents: Collection[str]) -> LoneGroupCost:
        """Return the cost of a group of layers that starts at layer ``first``.

        The tensors ``residents`` are resident.
        """
        site = self.sites[first]
        lives = self._rooms[site.region].lives.items()
        last = site.index + len(group.layers) - 1
        here = [
            name
            for name, life in lives
            if name in residents and life.first <= last and site.index <= life.last
        ]
        key = first, group, tuple(here)
        found = self._accounts.get(key)
        if found is None:
            found = self._accounts[key] = self._estimate_cost(site, group, here)
        return found

    def _estimate_cost(
        self, site: TilingSite, group: GroupChoice, residents: Sequence[str]
    ) -> LoneGroupCost:
        lowered, layers = self._lowered[site.region]
        graph = self._graphs[site.region]
        rooms = self._rooms[site.region]
        # Several layers may have the same name, so the index of the first layer identifies the
        # group.
        chosen = group_at(site.index, group, Choices(groups=(group,)), layers, graph)
        costs = [search.cost for search in self._pool.searches(layers, self.arch)]
        memory = bare_memory(self.arch, lowered, residents, self.clock.bus)
        timed = stream_group(chosen, layers, graph, costs, memory)
        members = range(chosen.first, chosen.last + 1)
        budget = min(
            rooms.find_resident(index, residents, self.arch.sram_bytes)[1] for index in members
        )
        tiles = [one.steps for one in timed]
        cycles = [one.cycles for one in timed]
        smaller = self.arch.model_copy(update={"sram_bytes": budget})
        clocked = pipeline_tiles(
            tiles, cycles, memory.scratch, smaller, memory.bus, memory.apart, memory.windows
        )
        loads = [step for tile in tiles for step in tile.loads]
        stores = [step for tile in tiles for step in tile.stores]
        return LoneGroupCost(
            compute=sum(cycles),
            loading=sum([step.slots for step in loads]),
            storing=sum([step.slots for step in stores]),
            transfers=len(loads) + len(stores),
            tiles=len(tiles),
            first=sum([step.slots for step in tiles[0].loads]),
            nbytes=_peak([nbytes for _, nbytes in memory.scratch], tiles, self.arch.granule),
            budget=budget,
            estimate=clocked[0].cycles if clocked else None,
        )

    def room(self, site: TilingSite, residents: Collection[str]) -> tuple[Resident, int]:
        """Return which operands of a layer are resident, and the scratchpad bytes left for it."""
        rooms = self._rooms[site.region]
        return rooms.find_resident(
            site.index, [name for name in rooms.lives if name in residents], self.arch.sram_bytes
        )

    def search(self, number: int) -> TileSearch:
        """Return the compiler's tile search of a layer, with its estimates."""
        return self._searches[number]

    def own(self) -> Choices:
        """Return the complete schedule that the compiler chooses."""
        return _join_choices(self._own)

    def others(self, shares: Sequence[int] = SHARES) -> Iterator[Choices]:
        """Yield the schedules that the compiler chooses for other scratchpad sizes.

        The sizes are legal: equal banks and a multiple of the buffer alignment. A schedule with
        other layers is skipped, for example one in which a tensor is moved in more pieces.
        """
        whole = lcm(self.arch.sram_banks, self.arch.granule)
        for share in shares:
            size = self.arch.sram_bytes * share // 100
            resized = self.arch.model_copy(update={"sram_bytes": size - size % whole})
            try:
                compiled = compile_regions(
                    self._regions, self._values, resized, data=False, searches=self._pool
                )
            except InputError:  # a layer has no tiling that fits
                continue
            found = _join_choices([layers.choices for _, layers in compiled])
            if tuple(choice.layer for choice in found.layers) == self.names:
                yield found

    def measure(self, choices: Choices) -> Measurement:
        """Compile the network with these choices and measure its cycles."""
        total = 0
        sites = list[int]()
        for number in range(len(self._regions)):
            found = self._measure_site(number, self._part(number, choices))
            if found is None:
                return Measurement(None)
            total += found[0]
            sites += [found[1].get(site.name, 0) for site in self.sites if site.region == number]
        return Measurement(total, tuple(sites))

    def _part(self, number: int, choices: Choices) -> Choices:
        here = [site.region == number for site in self.sites]
        return Choices(
            tuple(one for one, own in zip(choices.layers, here, strict=True) if own),
            tuple(name for name in choices.residents or () if name in self._rooms[number].lives),
            tuple(one for first, one in self.place(choices) if here[first]),
        )

    def place(self, choices: Choices) -> PlacedGroups:
        """Return the chosen groups, each with the number of its first site."""
        return place_groups(self.names, choices.groups or (), self.groupable)

    def _measure_site(self, number: int, choices: Choices) -> tuple[int, Mapping[str, int]] | None:
        key = number, choices
        if key not in self._known:
            try:
                program, _ = self._compile_site(number, choices)
            except InputError:  # a schedule that does not fit is recorded as a measurement
                self._known[key] = None
            else:
                layers = self.clock.layers(program)
                self._known[key] = sum(layers.values()), layers
        return self._known[key]

    def _compile_site(self, number: int, choices: Choices) -> Compiled:
        regions = self._regions[number : number + 1]
        options = CompileOptions(chosen=choices)
        (compiled,) = compile_regions(
            regions, self._values, self.arch, options, data=False, searches=self._pool
        )
        return compiled


@dataclass(frozen=True)
class State:
    """Complete schedule: the tiling of every layer, the resident tensors, and the groups.

    Sites in groups of bands keep the tilings that they would have alone.
    """

    tilings: tuple[Tiling, ...]
    residents: frozenset[str]
    groups: PlacedGroups = ()

    @cached_property
    def spans(self) -> list[tuple[int, int, GroupChoice | None]]:
        """Units of a schedule in order: first and last layer with their group, or one layer.

        A layer without a group has None.
        """
        groups = dict(self.groups)
        found = list[tuple[int, int, GroupChoice | None]]()
        number = 0
        while number < len(self.tilings):
            group = groups.get(number)
            last = number if group is None else number + len(group.layers) - 1
            found.append((number, last, group))
            number = last + 1
        return found

    @property
    def tiled(self) -> tuple[tuple[int, int], ...]:
        """Layers whose own tiling applies in this schedule.

        Each comes with the last site that runs on its tiles, usually itself.
        """
        return tuple(
            (first, last) for first, last, group in self.spans if group is None or not group.rows
        )

    def room(self, subject: TuningSubject, number: int) -> tuple[Resident, int]:
        """Return which operands of a tiled layer are resident, and its free scratchpad bytes.

        Operands loaded for the next site on its tiles are included.
        """
        resident, budget = subject.room(subject.sites[number], self.residents)
        ridden = any(first == number and not group.rows for first, group in self.groups)
        return (
            resident._replace(beside=subject.count_loaded_beside(number)) if ridden else resident
        ), budget


def state_of(
    choices: Choices, able: Callable[[int, int], bool] = lambda first, last: True
) -> State:
    """Convert choices for every layer to a complete schedule.

    ``able``: whether layers ``first`` to ``last`` can be a group
    (:func:`byoc.options.place_groups`).
    """
    names = [choice.layer for choice in choices.layers]
    groups = place_groups(names, choices.groups or (), able)
    return State(tuple(map(tiling_of, choices.layers)), frozenset(choices.residents or ()), groups)


@dataclass(frozen=True)
class Tried:
    """A schedule with its measured cycles."""

    state: State
    cycles: int
    sites: tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """Change of a schedule at the layers ``first`` to ``last``.

    ``state`` is the schedule with only this change.
    """

    first: int
    last: int
    state: State

    def is_apart_from(self, other: Move) -> bool:
        """Return True if at least one unchanged layer separates two changes of a schedule.

        Neither move then changes what runs immediately before the other's sites.
        """
        return other.first > self.last + 1 or self.first > other.last + 1

    @property
    def content(self) -> Hashable:
        """Key that identifies a change of a schedule, independent of the unchanged layers."""
        here = [
            (first, group) for first, group in self.state.groups if self.first <= first <= self.last
        ]
        return (
            self.first,
            self.state.tilings[self.first : self.last + 1],
            tuple(here),
            self.state.residents,
        )


def combine_moves(base: State, moves: Sequence[Move]) -> State:
    """Return the schedule ``base`` with several changes that do not touch each other."""
    tilings = list(base.tilings)
    residents = set(base.residents)
    groups = set(base.groups)
    for move in moves:
        changed = slice(move.first, move.last + 1)
        tilings[changed] = move.state.tilings[changed]
        residents ^= base.residents ^ move.state.residents
        groups ^= set(base.groups) ^ set(move.state.groups)
    return State(
        tuple(tilings), frozenset(residents), tuple(sorted(groups, key=lambda one: one[0]))
    )
