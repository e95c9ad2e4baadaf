"""Why a layer is tiled as it is: what the compiler considered, what it took each to cost, and what did not fit."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from byoc.compiler import compile, compile_regions, partition_package
from byoc.emission.region import Compiled, layers_chosen
from byoc.estimate.account import LayerCost
from byoc.estimate.bus import Bus, bus_of
from byoc.operators.layer import Layer, Resident, Tiling
from byoc.operators.operator import Geometry
from byoc.options import Choices, CompileOptions, GroupChoice, LayerChoice, placed
from byoc.package.package import Package
from byoc.partitioning.partition import Partition
from byoc.scheduling.default import SearchPool, sizeless
from byoc.scheduling.lowering import Lowered
from byoc.scheduling.residency import Rooms, choice_of, tiling_of
from byoc.scheduling.stream import moved_by, stream_layer
from byoc.scheduling.tiling import Budget, Choice, TileSearch
from byoc.tuning.subject import bare_memory, kind_of
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from experiments.tune.layouts import Edge, LayerLayouts, edges, layer_layouts
from isa.arch import Arch
from isa.errors import InputError

DEFAULT_TIMING = Timing()
SHOWN = 12
"""Tilings of a kind, those that fit and those that do not, that are told of."""


SAME = 0.0005
"""Estimates that differ by less are told as equal."""


@dataclass(frozen=True)
class Considered:
    """A tiling with its estimates: cycles in all, of computation alone, bytes of system memory moved, tile buffers.

    ``missing``: the bytes by which the buffers do not fit beside what is resident, 0 where they do.
    """

    choice: LayerChoice
    estimated_cycles: int
    compute_cycles: int
    moved_bytes: int
    working_set_bytes: int
    tiles: int
    missing: int


@dataclass(frozen=True)
class Explanation:
    """Why layer ``layer`` of region ``region`` is tiled as it is. ``budget_bytes`` is what residents leave it.

    ``estimate``: the cycles that the compiler expected of it among all layers, ``cycles`` those that it takes.

    Where the layer is in a ``group``, whose bands and tiles it has, all others are about what it would have alone.

    ``resident``: its operands and results that stay in the scratchpad. ``others``: the best of the ``fitting`` other
    tilings that were considered and fit, ``misfits`` the best of those, ``unfitting`` in number, that do not.
    ``layouts``: on a machine of words how its operands lie, and what that costs.
    """

    layer: str
    kind: str
    region: int
    resident: tuple[str, ...]
    budget_bytes: int
    estimate: int
    cycles: int
    winner: Considered
    group: GroupChoice | None
    chosen_by: str
    fitting: int
    unfitting: int
    others: tuple[Considered, ...]
    misfits: tuple[Considered, ...]
    layouts: LayerLayouts | None = None

    def content(self) -> dict[str, Any]:
        """The explanation as JSON has it; every figure of a tiling but its bytes is an estimate."""
        found = {"schema": "dla-explain/1", **asdict(replace(self, layouts=None)), "why": self.why}
        del found["layouts"]
        return found if self.layouts is None else found | {"layouts": self.layouts.content()}

    def rows(self) -> list[dict[str, Any]]:
        """A row a tiling, the one that won first; ``missing`` bytes are those by which one does not fit."""
        found = (self.winner, *self.others, *self.misfits)
        rows = [asdict(one) for one in found]
        return [
            {"chosen": one is self.winner, "fits": not one.missing} | row.pop("choice") | row
            for one, row in zip(found, rows, strict=True)
        ]

    @property
    def together(self) -> str:
        """With which layers this one is computed, and why, in a few words; empty for a layer on its own."""
        if self.group is None:
            return ""
        others = ", ".join(name for name in self.group.layers if name != self.layer)
        return f"computed with {others} {self.group.turns}, estimated to take fewer cycles than one after another"

    @property
    def why(self) -> str:
        """Why the winner won, in one sentence."""
        if self.chosen_by != "compiler":
            return f"chosen by {self.chosen_by}"
        if self.group is not None:
            leads = not self.group.rows and self.layer == self.group.layers[0]
            return f"{self.together}; {'tiled so' if leads else 'alone it would be tiled so'}"
        if not self.others:
            return "it is the only tiling considered that fits"
        other, winner = self.others[0], self.winner
        dearer = other.estimated_cycles / max(winner.estimated_cycles, 1) - 1
        if dearer < 0:
            return "another is cheaper by itself; the compiler prefers this one where it rehearses all of the region"
        if dearer < SAME:
            return (
                "its estimate is the lowest of all that fit; of others as low it was considered first, or has more room"
            )
        reasons = {
            "computes longer": other.compute_cycles / max(winner.compute_cycles, 1),
            "moves more bytes": other.moved_bytes / max(winner.moved_bytes, 1),
            "has more tiles": other.tiles / winner.tiles,
        }
        reason = max(reasons, key=lambda name: reasons[name])
        tail = f": that {reason}" if reasons[reason] > 1.0 else ": that waits for its transfers"
        return f"its estimate is the lowest of all that fit; the next one is {dearer:.1%} dearer{tail}"


class _WatchedCost(LayerCost):
    """Estimates, and which were asked for."""

    def __init__(self, geometry: Geometry, arch: Arch, bus: Bus) -> None:
        super().__init__(geometry, arch, bus)
        self.asked: dict[tuple[Tiling, Resident], float] = {}

    def estimate(self, tiling: Tiling, resident: Resident) -> float:
        found = self.asked[tiling, resident] = super().estimate(tiling, resident)
        return found


class _WatchedSearch(TileSearch):
    """The compiler's search, and what room it was asked about."""

    def __init__(self, geometry: Geometry, arch: Arch, bus: Bus) -> None:
        super().__init__(geometry, arch, bus)
        self.cost = self.watched = _WatchedCost(geometry, arch, bus)
        self.rooms: list[tuple[Resident, int, Choice | None]] = []

    def best_beside(self, resident: Resident, budget: Budget, taken: int) -> Choice | None:
        found = super().best_beside(resident, budget, taken)
        self.rooms.append((resident, budget.left(taken), found))
        return found

    def pinned(self, pin: LayerChoice, resident: Resident, budget: int) -> Choice | None:
        found = super().pinned(pin, resident, budget)
        self.rooms.append((resident, budget, found))
        return found


class _WatchingPool(SearchPool[Compiled]):
    """A pool that watches the search of one layer, or of all (None)."""

    def __init__(self, layer: str | None, bus: Bus) -> None:
        super().__init__(bus)
        self._layer = layer
        self.watched: dict[Geometry, _WatchedSearch] = {}

    def searches(self, layers: Sequence[Layer], arch: Arch) -> list[TileSearch]:
        found = super().searches(layers, arch)
        for number, layer in enumerate(layers):
            if self._layer in (None, layer.name):
                if layer.geometry not in self.watched:
                    self.watched[layer.geometry] = _WatchedSearch(layer.geometry, sizeless(arch), self.bus)
                found[number] = self.watched[layer.geometry]
        return found


class Taken(NamedTuple):
    """Cycles of a layer: those that the compiler expected of its schedule, and those that it takes."""

    estimate: int
    cycles: int


def compiled_regions(
    package: Package, arch: Arch, options: CompileOptions, timing: Timing = DEFAULT_TIMING
) -> tuple[Compiled, ...]:
    _check_explainable(options)
    made = compile(package, arch, options, timing=timing, data=False)
    return tuple((program, made.reports[index]) for index, program in made.programs.items())


def chosen_schedules(
    package: Package, arch: Arch, options: CompileOptions, timing: Timing = DEFAULT_TIMING
) -> tuple[Choices, ...]:
    """What the compiler chooses, region by region, nothing of it open."""
    return tuple(report.choices for _, report in compiled_regions(package, arch, options, timing))


class RegionLayouts(NamedTuple):
    """Of a region on a machine of words: its layers' layouts by name, and what enters and leaves it."""

    layers: Mapping[str, LayerLayouts]
    edges: tuple[Edge, ...]


def region_layouts(
    package: Package, arch: Arch, options: CompileOptions, made: Sequence[Compiled], timing: Timing
) -> tuple[RegionLayouts, ...]:
    """Of all regions that are ``made`` (:func:`compiled_regions`); none for a machine without words."""
    found, told = _partitioned(package, arch, options), list[RegionLayouts]()
    for region, (program, report) in zip(found.regions, made, strict=True):
        lowered, layers = layers_chosen(region, found.graph.values, arch, report.choices)
        near = tuple(edges(region, lowered, found.graph.values, timing))
        told.append(RegionLayouts(layer_layouts(program, layers, arch, timing), near))
    return tuple(told) if any(one.layers for one in told) else ()


def taken(compiled: Compiled, timing: Timing) -> Mapping[str, Taken]:
    """The cycles of a region's layers, by name."""
    program, report = compiled
    measured = ProgramTiming(program).layers(timing)
    return {name: Taken(estimate, measured.get(name, 0)) for name, estimate in report.estimates.items()}


def explain_all(
    package: Package, arch: Arch, options: CompileOptions, timing: Timing = DEFAULT_TIMING
) -> tuple[Explanation, ...]:
    """Why every layer is tiled as it is, with the best of the other tilings alone; of several of one name the first."""
    told: dict[str, Explanation] = {}
    for found in _explanations(_partitioned(package, arch, options), arch, options, timing):
        told.setdefault(found.layer, found)
    return tuple(told.values())


def explain(
    package: Package, layer: str, arch: Arch, options: CompileOptions, timing: Timing = DEFAULT_TIMING
) -> Explanation:
    """Why a layer (of several of one name the first) is tiled as it is; raises InputError where there is none."""
    partitioned = _partitioned(package, arch, options)
    if options.chosen:
        chosen_schedules(package, arch, options, timing)  # which says what is wrong with them in any region
    found = next(_explanations(partitioned, arch, options, timing, layer), None)
    if found is not None:
        return found
    names = (one.layer for choices in chosen_schedules(package, arch, options, timing) for one in choices.layers)
    close = difflib.get_close_matches(layer, names, n=1)
    meant = f"did you mean '{close[0]}'?" if close else "'dla explain MODEL' lists them"
    raise InputError(f"no layer of the accelerator is called '{layer}'; {meant}")


def _explanations(
    found: Partition, arch: Arch, options: CompileOptions, timing: Timing, layer: str | None = None
) -> Iterator[Explanation]:
    """Of every layer, region by region, with the best of the other tilings; of the one that is named with more."""
    for region in found.regions:
        pool = _WatchingPool(layer, bus_of(timing))
        (compiled,) = compile_regions([region], found.graph.values, arch, options, data=False, searches=pool)
        chosen = compiled[1].choices
        names = [name for name in dict.fromkeys(one.layer for one in chosen.layers) if layer in (None, name)]
        if names:
            cycles = taken(compiled, timing)
            lowered, layers = layers_chosen(region, found.graph.values, arch, chosen)
            layouts = layer_layouts(compiled[0], layers, arch, timing)
        for name in names:
            account = _Account(name, region.index, lowered, layers, arch, pool, chosen)
            told = account.explained(options, cycles[name], 1 if layer is None else SHOWN)
            yield replace(told, layouts=layouts.get(name))


def _partitioned(package: Package, arch: Arch, options: CompileOptions) -> Partition:
    _check_explainable(options)
    options.chosen.check_made_for(package.digest, arch.digest())
    return partition_package(package, arch, options)


def _check_explainable(options: CompileOptions) -> None:
    if options.schedule == "seed":
        raise InputError("schedule seed takes the largest tile that fits and considers nothing else; leave it out")


class _Account:
    """One layer of a compiled region, whose search was watched."""

    def __init__(
        self,
        layer: str,
        region: int,
        lowered: Lowered,
        layers: Sequence[Layer],
        arch: Arch,
        pool: _WatchingPool,
        chosen: Choices,
    ) -> None:
        self._region, self._lowered, self._arch, self._chosen = region, lowered, arch, chosen
        index = [one.name for one in layers].index(layer)
        self._layer, self._choice = layers[index], chosen.layers[index]
        self._search = pool.watched[self._layer.geometry]
        groups = placed([layer.name for layer in layers], chosen.groups or ())
        self._group = next((one for first, one in groups if 0 <= index - first < len(one.layers)), None)
        rooms = Rooms(layers, lowered, arch)
        resident, room = rooms.of(index, chosen.residents or (), arch.sram_bytes)
        ridden = self._group is not None and not self._group.rows and layer == self._group.layers[0]
        self._resident = resident._replace(beside=len(layers[index + 1].operation.inputs) - 1 if ridden else 0)
        self._budget = self._asked_budget(room)

    def _asked_budget(self, room: int) -> int:
        """The bytes about which the search was asked when it gave what was chosen; else what residents leave."""
        tiling = tiling_of(self._choice)
        for resident, budget, found in reversed(self._search.rooms):
            if resident == self._resident and found is not None:
                same = found.tiling[:2] == tiling[:2] and found.tiling.depth == tiling.depth
                if same:
                    return budget
        return room

    def explained(self, options: CompileOptions, cycles: Taken, shown: int) -> Explanation:
        """The explanation, with so many of the other tilings that fit and of those that do not."""
        winner = tiling_of(self._choice)
        asked = [tiling for tiling, resident in self._search.watched.asked if resident == self._resident]
        ranked = sorted((self._estimate(tiling), place) for place, tiling in enumerate(asked) if tiling != winner)
        missing = {place: self._missing(asked[place]) for _, place in ranked}
        fitting = [asked[place] for _, place in ranked if not missing[place]]
        misfits = [asked[place] for _, place in ranked if missing[place]]
        pinned = options.chosen.of([self._layer.name])[0] is not None
        return Explanation(
            layer=self._layer.name,
            kind=kind_of(self._layer),
            region=self._region,
            resident=self._resident_names(),
            budget_bytes=self._budget,
            estimate=cycles.estimate,
            cycles=cycles.cycles,
            winner=self._considered(winner),
            group=self._group,
            chosen_by=options.chosen.source if pinned else "compiler",
            fitting=len(fitting),
            unfitting=len(misfits),
            others=tuple(map(self._considered, fitting[:shown])),
            misfits=tuple(map(self._considered, misfits[:shown])),
        )

    def _resident_names(self) -> tuple[str, ...]:
        operation = self._layer.operation
        names = [self._lowered.place(item).buffer for item in (*operation.inputs, operation.output)]
        return tuple(dict.fromkeys(name for name in names if name in (self._chosen.residents or ())))

    def _estimate(self, tiling: Tiling) -> float:
        return self._search.cost.estimate(tiling, self._resident)

    def _missing(self, tiling: Tiling) -> int:
        return max(self._search.cost.working_set(tiling, self._resident) - self._budget, 0)

    def _considered(self, tiling: Tiling) -> Considered:
        shape = self._search.cost.shape_of(tiling)
        return Considered(
            choice=choice_of(self._layer.name, tiling),
            estimated_cycles=round(self._estimate(tiling)),
            compute_cycles=shape.compute,
            moved_bytes=self._moved(tiling),
            working_set_bytes=self._search.cost.working_set(tiling, self._resident),
            tiles=shape.tiles,
            missing=self._missing(tiling),
        )

    def _moved(self, tiling: Tiling) -> int:
        """Bytes that the layer's loads and stores move with a tiling, exactly: those of its steps."""
        memory = bare_memory(self._arch, self._lowered, self._chosen.residents or ())
        steps = (step for tile in stream_layer(self._layer, tiling, memory) for step in (*tile.loads, *tile.stores))
        return sum(moved_by(step) for step in steps)
