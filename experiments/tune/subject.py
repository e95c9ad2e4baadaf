"""A network on a machine as tuning sees it: the places where something can be chosen, and what a choice takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from byoc.choices import NOTHING, Choices, GroupChoice
from byoc.emission.region import Compiled, Region, compile_region, layers_chosen
from byoc.graph import Value
from byoc.operators.layer import Layer
from byoc.operators.operator import Geometry
from byoc.scheduling.groups import Fabric, fabric_of, lawful
from byoc.scheduling.pool import SearchPool
from byoc.scheduling.residency import Rooms
from byoc.tiling.search import TileSearch
from byoc.tiling.tiling import Resident
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.errors import InputError

Grouped = tuple[tuple[int, GroupChoice], ...]
"""Groups in order, each with the number of its first layer."""


def placed(names: Sequence[str], groups: Sequence[GroupChoice]) -> Grouped:
    """Groups in their order, each with the number of its first layer among ``names``, as the compiler finds them."""
    wanted, found, at = list(groups), list[tuple[int, GroupChoice]](), 0
    while at < len(names):
        group = next((one for one in wanted if tuple(names[at : at + len(one.layers)]) == one.layers), None)
        if group is None:
            at += 1
            continue
        wanted.remove(group)
        found.append((at, group))
        at += len(group.layers)
    return tuple(found)


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


@dataclass(frozen=True)
class Measurement:
    """Cycles of a network and of each of its sites, in order; None where the choices find no place."""

    cycles: int | None
    sites: tuple[int, ...] = ()


def kind_of(layer: Layer) -> str:
    """The class of a layer: its instruction, and what is fused into it."""
    return layer.mnemonic + {"none": "", "one": "+look_up", "each": "+look_up_each"}[layer.geometry.tables]


class Subject:
    """Regions of a network on one machine; remembers how long each takes with the choices that it has met."""

    def __init__(self, regions: Sequence[Region], values: Mapping[str, Value], arch: Arch, timing: Timing) -> None:
        self.arch, self.timing = arch, timing
        self._regions, self._values = tuple(regions), values
        self._pool = SearchPool[Compiled]()
        self._known: dict[tuple[int, Choices], tuple[int, dict[str, int]] | None] = {}
        self._own: list[Choices] = []
        self._rooms: list[Rooms] = []
        self._fabrics: list[Fabric] = []
        self._searches: list[TileSearch] = []
        sites: list[Site] = []
        for number, region in enumerate(self._regions):
            own = self._compiled(number, NOTHING)[1].choices
            lowered, layers = layers_chosen(region, values, arch, own)
            self._own.append(own)
            self._rooms.append(Rooms(layers, lowered, arch))
            self._fabrics.append(fabric_of(layers, lowered))
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
        """The layers of a region, by index, beside which a tensor would stay."""
        life = self._rooms[region].lives[name]
        return range(life.first, life.last + 1)

    def groupable(self, first: int, last: int) -> bool:
        """Whether the sites from number ``first`` to ``last`` may be computed together, band by band."""
        if first < 0 or last >= len(self.sites) or self.sites[first].region != self.sites[last].region:
            return False
        ends = self.sites[first].index, self.sites[last].index
        return lawful(self._fabrics[self.sites[first].region], *ends)

    def room(self, site: Site, residents: Collection[str]) -> tuple[Resident, int]:
        """Which operands of a site are resident, and the bytes that residents leave it."""
        rooms = self._rooms[site.region]
        return rooms.of(site.index, [name for name in rooms.lives if name in residents], self.arch.sram_bytes)

    def search(self, number: int) -> TileSearch:
        """The compiler's own search for tilings of a site, with its estimates."""
        return self._searches[number]

    def own(self) -> Choices:
        """What the compiler chooses by itself, nothing of it open."""
        found = self._own
        residents = tuple(name for one in found for name in one.residents or ())
        groups = tuple(group for one in found for group in one.groups or ())
        return Choices(tuple(layer for one in found for layer in one.layers), residents, groups)

    def measure(self, choices: Choices) -> Measurement:
        """The cycles of the network with these choices, by the timing-only engine, everything compiled anew."""
        total, sites = 0, list[int]()
        for number in range(len(self._regions)):
            found = self._measured(number, self._part(number, choices))
            if found is None:
                return Measurement(None)
            total += found[0]
            sites += [found[1].get(site.name, 0) for site in self.sites if site.region == number]
        return Measurement(total, tuple(sites))

    def _part(self, number: int, choices: Choices) -> Choices:
        """What of complete choices is about one region."""
        here = [site.region == number for site in self.sites]
        return Choices(
            tuple(one for one, own in zip(choices.layers, here, strict=True) if own),
            tuple(name for name in choices.residents or () if name in self._rooms[number].lives),
            tuple(one for first, one in placed(self.names, choices.groups or ()) if here[first]),
        )

    def _measured(self, number: int, choices: Choices) -> tuple[int, dict[str, int]] | None:
        key = number, choices
        if key not in self._known:
            try:
                program, _ = self._compiled(number, choices)
            except InputError:  # they find no place: that is what was measured
                self._known[key] = None
            else:
                layers = ProgramTiming(replace(program, segments=())).layers(self.timing)
                self._known[key] = sum(layers.values()), layers
        return self._known[key]

    def _compiled(self, number: int, choices: Choices) -> Compiled:
        region = self._regions[number]
        return compile_region(region, self._values, self.arch, data=False, pool=self._pool, choices=choices)
