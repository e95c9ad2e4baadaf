"""A network on a machine as tuning sees it: the places where something can be chosen, and what a choice takes.

A complete schedule is a state, which a search changes at one place, or at several that are apart, together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import lcm
from typing import NamedTuple

from byoc.compiler import compile_regions
from byoc.emission.region import Compiled, Region, empty_memory, layers_chosen
from byoc.estimate.bus import DEFAULT_BUS, Bus
from byoc.graph import Value
from byoc.operators.layer import Layer, Resident, Tiling, aligned
from byoc.operators.operator import Geometry
from byoc.options import NOTHING, Choices, CompileOptions, GroupChoice, PlacedGroups, placed
from byoc.scheduling.banding import stream_group
from byoc.scheduling.default import SearchPool
from byoc.scheduling.groups import FusionGraph, fusion_graph, lawful, may_ride, ridden_buffers
from byoc.scheduling.lowering import Lowered
from byoc.scheduling.pipelining import pipelined
from byoc.scheduling.residency import Rooms, group_at, tiling_of
from byoc.scheduling.stream import Memory, TileSteps, lifetimes
from byoc.scheduling.tiling import TileSearch
from isa.arch import Arch
from isa.errors import InputError
from isa.program import Program

SHARES = (90, 95, 85, 97, 92, 87, 80, 75, 110, 70, 60, 50, 125)
"""Per cent of the scratchpad for which the compiler chooses, too: the schedules that a search begins with, in order."""


@dataclass(frozen=True, eq=False)
class Site:
    """A layer whose tiling can be chosen; ``index`` is its place in its region.

    ``kind`` is its class, after Gibson 2023, chapter 6: layers of one sequence of operators, whatever their sizes.
    """

    region: int
    index: int
    name: str
    kind: str
    geometry: Geometry


class Clock(NamedTuple):
    """How long programs take on the machine: cycles by layer; and its bus."""

    layers: Callable[[Program], Mapping[str, int]]
    bus: Bus


@dataclass(frozen=True)
class Measurement:
    """Cycles of a network and of each of its sites, in order; None where the choices find no place."""

    cycles: int | None
    sites: tuple[int, ...] = ()


class GroupAccount(NamedTuple):
    """What a group takes by itself: cycles of computation and of the bus, transfers, tiles, most bytes of buffers.

    ``first``: bus cycles of what its first tile waits for. ``budget``: the bytes that residents leave to its layers.
    ``estimate``: the compiler's clock for it; None where it finds no place in these bytes.
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


def bare_memory(arch: Arch, lowered: Lowered, residents: Iterable[str], bus: Bus = DEFAULT_BUS) -> Memory:
    """A memory for steps that nobody executes, with these buffers resident."""
    memory = empty_memory(lowered, arch, bus, data=False)()
    for name in residents:
        memory.residents[name] = memory.reserve(name, 0)
    return memory


def kind_of(layer: Layer) -> str:
    """The class of a layer: its instruction, and what is fused into it."""
    return layer.mnemonic + {"none": "", "one": "+look_up", "each": "+look_up_each"}[layer.geometry.tables]


def _joined(found: Sequence[Choices]) -> Choices:
    residents = tuple(name for one in found for name in one.residents or ())
    groups = tuple(group for one in found for group in one.groups or ())
    return Choices(tuple(layer for one in found for layer in one.layers), residents, groups)


def _peak(sizes: Sequence[int], tiles: Sequence[TileSteps], alignment: int) -> int:
    """The most bytes of buffers that are in use at a tile."""
    changes = [0] * (len(tiles) + 1)
    for buffer, (first, last) in lifetimes(tiles).items():
        changes[first] += aligned(sizes[buffer], alignment)
        changes[last + 1] -= aligned(sizes[buffer], alignment)
    return max(accumulate(changes))


class Subject:
    """Regions of a network on one machine; remembers how long each takes with the choices that it has met."""

    def __init__(self, regions: Sequence[Region], values: Mapping[str, Value], arch: Arch, clock: Clock) -> None:
        self.arch, self.clock = arch, clock
        self._regions, self._values = tuple(regions), values
        self._pool = SearchPool[Compiled](clock.bus)
        self._known: dict[tuple[int, Choices], tuple[int, Mapping[str, int]] | None] = {}
        self._own: list[Choices] = []
        self._rooms: list[Rooms] = []
        self._firsts: list[int] = []
        self._graphs: list[FusionGraph] = []
        self._lowered: list[tuple[Lowered, tuple[Layer, ...]]] = []
        self._searches: list[TileSearch] = []
        self._accounts: dict[tuple[int, GroupChoice, tuple[str, ...]], GroupAccount] = {}
        sites: list[Site] = []
        for number, region in enumerate(self._regions):
            own = self._compiled(number, NOTHING)[1].choices
            lowered, layers = layers_chosen(region, values, arch, own)
            self._own.append(own)
            self._lowered.append((lowered, layers))
            self._rooms.append(Rooms(layers, lowered, arch))
            self._graphs.append(fusion_graph(layers, lowered))
            self._firsts.append(len(sites))
            self._searches += self._pool.searches(layers, arch)
            sites += [
                Site(number, index, layer.name, kind_of(layer), layer.geometry) for index, layer in enumerate(layers)
            ]
        self.sites = tuple(sites)
        self.names = tuple(site.name for site in sites)

    @property
    def candidates(self) -> tuple[tuple[int, str], ...]:
        """Every tensor that could stay in the scratchpad, with the number of its region."""
        return tuple((number, name) for number, rooms in enumerate(self._rooms) for name in rooms.lives)

    def span(self, region: int, name: str) -> range:
        """The sites, by number, beside which a tensor of a region would stay."""
        life, first = self._rooms[region].lives[name], self._firsts[region]
        return range(first + life.first, first + life.last + 1)

    def groupable(self, first: int, last: int) -> bool:
        """Whether the sites from number ``first`` to ``last`` may be computed together, band by band."""
        if first < 0 or last >= len(self.sites) or self.sites[first].region != self.sites[last].region:
            return False
        ends = self.sites[first].index, self.sites[last].index
        return lawful(self._graphs[self.sites[first].region], *ends)

    def beside(self, number: int) -> int:
        """Operands that are loaded beside those of a site when the next one is computed on its tiles."""
        return len(self._layer(number + 1).operation.inputs) - 1

    def ridden(self, number: int) -> frozenset[str] | None:
        """The tensors that cannot stay when the next site is computed on a site's tiles; None where it cannot be."""
        site, graph = self.sites[number], self._graphs[self.sites[number].region]
        layers = self._lowered[site.region][1]
        if site.index + 1 >= len(layers) or not may_ride(layers, graph, site.index + 1):
            return None
        return frozenset(ridden_buffers(graph, site.index + 1))

    def _layer(self, number: int) -> Layer:
        site = self.sites[number]
        return self._lowered[site.region][1][site.index]

    def rows(self, number: int) -> int:
        """The rows of the planes that a site makes which can be in groups: its bands are of these."""
        site = self.sites[number]
        graph = self._graphs[site.region]
        member = graph.members[site.index]
        assert member is not None
        return graph.planes[member.writes.buffer].rows

    def account(self, first: int, group: GroupChoice, residents: Collection[str]) -> GroupAccount:
        """What a group that begins with site number ``first`` takes, beside ``residents``."""
        site = self.sites[first]
        lives, last = self._rooms[site.region].lives.items(), site.index + len(group.layers) - 1
        here = [name for name, life in lives if name in residents and life.first <= last and site.index <= life.last]
        key = first, group, tuple(here)
        found = self._accounts.get(key)
        if found is None:
            found = self._accounts[key] = self._accounted(site, group, here)
        return found

    def _accounted(self, site: Site, group: GroupChoice, residents: Sequence[str]) -> GroupAccount:
        lowered, layers = self._lowered[site.region]
        graph, rooms = self._graphs[site.region], self._rooms[site.region]
        # Several layers may have the same name, so the group is found by the number of its first layer.
        chosen = group_at(site.index, group, Choices(groups=(group,)), layers, graph)
        costs = [search.cost for search in self._pool.searches(layers, self.arch)]
        memory = bare_memory(self.arch, lowered, residents, self.clock.bus)
        timed = stream_group(chosen, layers, graph, costs, memory)
        members = range(chosen.first, chosen.last + 1)
        budget = min(rooms.of(index, residents, self.arch.sram_bytes)[1] for index in members)
        tiles, cycles = [one.steps for one in timed], [one.cycles for one in timed]
        smaller = self.arch.model_copy(update={"sram_bytes": budget})
        clocked = pipelined(tiles, cycles, memory.scratch, smaller, memory.bus, memory.apart, memory.windows)
        loads = [step for tile in tiles for step in tile.loads]
        stores = [step for tile in tiles for step in tile.stores]
        return GroupAccount(
            compute=sum(cycles),
            loading=sum([step.slots for step in loads]),
            storing=sum([step.slots for step in stores]),
            transfers=len(loads) + len(stores),
            tiles=len(tiles),
            first=sum([step.slots for step in tiles[0].loads]),
            nbytes=_peak([nbytes for _, nbytes in memory.scratch], tiles, self.arch.granule),
            budget=budget,
            estimate=None if clocked is None else clocked.cycles,
        )

    def room(self, site: Site, residents: Collection[str]) -> tuple[Resident, int]:
        """Which operands of a site are resident, and the bytes that residents leave it."""
        rooms = self._rooms[site.region]
        return rooms.of(site.index, [name for name in rooms.lives if name in residents], self.arch.sram_bytes)

    def search(self, number: int) -> TileSearch:
        """The compiler's own search for tilings of a site, with its estimates."""
        return self._searches[number]

    def own(self) -> Choices:
        """What the compiler chooses by itself, nothing of it open."""
        return _joined(self._own)

    def others(self, shares: Sequence[int] = SHARES) -> Iterator[Choices]:
        """What the compiler would choose, had the scratchpad other sizes: other residents, groups and tilings.

        Sizes are such as scratchpads have: equal banks, and an end where a buffer may end. Those of which other layers
        come out, as of a tensor that is moved in more pieces, say nothing of these.
        """
        whole = lcm(self.arch.sram_banks, self.arch.granule)
        for share in shares:
            size = self.arch.sram_bytes * share // 100
            resized = self.arch.model_copy(update={"sram_bytes": size - size % whole})
            try:
                compiled = compile_regions(self._regions, self._values, resized, data=False, searches=self._pool)
            except InputError:  # a layer has no tiling that is so small
                continue
            found = _joined([layers.choices for _, layers in compiled])
            if tuple(choice.layer for choice in found.layers) == self.names:
                yield found

    def measure(self, choices: Choices) -> Measurement:
        """The cycles of the network with these choices, by the clock, everything compiled anew."""
        total, sites = 0, list[int]()
        for number in range(len(self._regions)):
            found = self._measured(number, self._part(number, choices))
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
            tuple(one for first, one in placed(self.names, choices.groups or ()) if here[first]),
        )

    def _measured(self, number: int, choices: Choices) -> tuple[int, Mapping[str, int]] | None:
        key = number, choices
        if key not in self._known:
            try:
                program, _ = self._compiled(number, choices)
            except InputError:  # they find no place: that is what was measured
                self._known[key] = None
            else:
                layers = self.clock.layers(program)
                self._known[key] = sum(layers.values()), layers
        return self._known[key]

    def _compiled(self, number: int, choices: Choices) -> Compiled:
        regions, options = self._regions[number : number + 1], CompileOptions(chosen=choices)
        (compiled,) = compile_regions(regions, self._values, self.arch, options, data=False, searches=self._pool)
        return compiled


@dataclass(frozen=True)
class State:
    """A complete schedule: the tiling of every site, what stays in the scratchpad, and what is computed in groups.

    Of sites in groups of bands the tilings are those that they would have alone.
    """

    tilings: tuple[Tiling, ...]
    residents: frozenset[str]
    groups: PlacedGroups = ()

    @cached_property
    def spans(self) -> list[tuple[int, int, GroupChoice | None]]:
        """Sites that run as one, in order: first and last with the group that they are in, or one alone."""
        groups, found, number = dict(self.groups), list[tuple[int, int, GroupChoice | None]](), 0
        while number < len(self.tilings):
            group = groups.get(number)
            last = number if group is None else number + len(group.layers) - 1
            found.append((number, last, group))
            number = last + 1
        return found

    @property
    def tiled(self) -> tuple[tuple[int, int], ...]:
        """The sites that are tiled so, each with the last of those that go tile by tile with it, mostly itself."""
        return tuple((first, last) for first, last, group in self.spans if group is None or not group.rows)

    def room(self, subject: Subject, number: int) -> tuple[Resident, int]:
        """Which operands of a tiled site are resident or loaded beside it, and the bytes that residents leave it."""
        resident, budget = subject.room(subject.sites[number], self.residents)
        ridden = any(first == number and not group.rows for first, group in self.groups)
        return (resident._replace(beside=subject.beside(number)) if ridden else resident), budget


def state_of(choices: Choices) -> State:
    """Complete choices as a schedule."""
    groups = placed([choice.layer for choice in choices.layers], choices.groups or ())
    return State(tuple(map(tiling_of, choices.layers)), frozenset(choices.residents or ()), groups)


@dataclass(frozen=True)
class Tried:
    """A schedule with what it was measured to take."""

    state: State
    cycles: int
    sites: tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """A schedule changed at sites ``first`` to ``last``: ``state`` is what it is with this change alone."""

    first: int
    last: int
    state: State

    def apart(self, other: Move) -> bool:
        """Whether a site at least lies between what both change: neither then changes what runs before the other."""
        return other.first > self.last + 1 or self.first > other.last + 1

    @property
    def content(self) -> Hashable:
        """What is tried at its sites, wherever the rest of the schedule stands."""
        here = [(first, group) for first, group in self.state.groups if self.first <= first <= self.last]
        return self.first, self.state.tilings[self.first : self.last + 1], tuple(here), self.state.residents


def combined(base: State, moves: Sequence[Move]) -> State:
    """``base`` with all of some moves, each of which was made from it and apart from the others."""
    tilings, residents, groups = list(base.tilings), set(base.residents), set(base.groups)
    for move in moves:
        changed = slice(move.first, move.last + 1)
        tilings[changed] = move.state.tilings[changed]
        residents ^= base.residents ^ move.state.residents
        groups ^= set(base.groups) ^ set(move.state.groups)
    return State(tuple(tilings), frozenset(residents), tuple(sorted(groups, key=lambda one: one[0])))
