"""Explanation of a layer's tiling: the alternatives, their estimates, and the misfits.

The alternatives are those that the compiler considered; misfits do not fit in memory.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from byoc.compiled import Partition
from byoc.compiler import compile, compile_regions, partition_package
from byoc.emission.region import Compiled, order_layers
from byoc.estimate.account import LayerCost
from byoc.estimate.bus import MemoryBus, bus_of
from byoc.operators.geometry import Geometry
from byoc.operators.layer import OperatorLayer, Resident, Tiling
from byoc.options import Choices, CompileOptions, GroupChoice, LayerChoice, place_groups
from byoc.package.package import Package
from byoc.scheduling.layer_stream import stream_layer
from byoc.scheduling.lowering import Lowered
from byoc.scheduling.region_context import Rooms
from byoc.scheduling.residency import choice_of, tiling_of
from byoc.scheduling.search_pool import SearchPool, sizeless
from byoc.scheduling.stream import count_moved
from byoc.scheduling.tile_search import TileSearch, TilingChoice
from byoc.scheduling.tiling import Budget
from byoc.tuning.subject import bare_memory, kind_of
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from experiments.tune.layouts import Edge, LayerLayouts, edges, layer_layouts
from isa.arch import Arch
from isa.errors import InputError

DEFAULT_TIMING = Timing()
SHOWN = 12
"""Most alternatives that are reported, of those that fit and of those that do not."""


SAME = 0.0005
"""Relative difference below which estimates are reported as equal."""


@dataclass(frozen=True)
class Considered:
    """Tiling with its estimated cycles, moved bytes and size of tile buffers.

    Cycles are total and compute cycles; moved bytes are those of system memory. ``missing`` is the
    number of bytes by which the buffers do not fit next to resident tensors; 0 if they fit.
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
    """Explanation of the tiling of layer ``layer`` in region ``region``.

    ``budget_bytes`` is the scratchpad that resident tensors leave to it. ``estimate`` is the
    compiler's estimate of its cycles among all layers, ``cycles`` the simulated number, and
    ``bank_waits`` those of them in which EX waits for banks of the scratchpad. If the layer is in a
    ``group``, it has the group's bands and tiles, and the other fields describe it outside the
    group.

    ``resident``: its operands and results that stay in the scratchpad. ``others``: the best of the
    ``fitting`` other tilings that were considered and fit. ``misfits``: the best of the
    ``unfitting`` ones, which do not fit. ``layouts``: on banked memory, the layouts of its operands
    and their cost.
    """

    layer: str
    kind: str
    region: int
    resident: tuple[str, ...]
    budget_bytes: int
    estimate: int
    cycles: int
    bank_waits: int
    winner: Considered
    group: GroupChoice | None
    chosen_by: str
    fitting: int
    unfitting: int
    others: tuple[Considered, ...]
    misfits: tuple[Considered, ...]
    layouts: LayerLayouts | None = None

    def content(self) -> dict[str, Any]:
        """Return the explanation of a layer's tiling as JSON values.

        All figures of tilings are estimates, except bytes.
        """
        found = {"schema": "dla-explain/1", **asdict(replace(self, layouts=None)), "why": self.why}
        del found["layouts"]
        return found if self.layouts is None else found | {"layouts": self.layouts.content()}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per considered tiling, the chosen one first.

        ``missing`` is the number of bytes that do not fit.
        """
        found = (self.winner, *self.others, *self.misfits)
        rows = [asdict(one) for one in found]
        return [
            {"chosen": one is self.winner, "fits": not one.missing} | row.pop("choice") | row
            for one, row in zip(found, rows, strict=True)
        ]

    @property
    def why(self) -> str:
        """Reason why the compiler chose the tiling, in one sentence."""
        if self.chosen_by != "compiler":
            return f"chosen by {self.chosen_by}"
        if self.group is not None:
            leads = not self.group.rows and self.layer == self.group.layers[0]
            others = ", ".join(name for name in self.group.layers if name != self.layer)
            return (
                f"computed with {others} {self.group.turns}, estimated to take fewer cycles than "
                "one after another; "
                f"{'tiled so' if leads else 'without the group it would have this tiling'}"
            )
        if not self.others:
            return "it is the only tiling considered that fits"
        other = self.others[0]
        winner = self.winner
        dearer = other.estimated_cycles / max(winner.estimated_cycles, 1) - 1
        if dearer < 0:
            return (
                "another tiling has a lower estimate for the layer alone; the compiler chose this "
                "one by its estimate of the whole region"
            )
        if dearer < SAME:
            return (
                "its estimate is the lowest of all that fit; of others as low it was considered "
                "first, or has more room"
            )
        reasons = {
            "computes longer": other.compute_cycles / max(winner.compute_cycles, 1),
            "moves more bytes": other.moved_bytes / max(winner.moved_bytes, 1),
            "has more tiles": other.tiles / winner.tiles,
        }
        reason = max(reasons, key=lambda name: reasons[name])
        cause = reason if reasons[reason] > 1.0 else "waits for its transfers"
        return (
            f"its estimate is the lowest of all that fit; the next one is {dearer:.1%} higher, "
            f"because that tiling {cause}"
        )


class _WatchedCost(LayerCost):
    """Cost estimator of a layer that records every estimate requested from it."""

    def __init__(self, geometry: Geometry, arch: Arch, bus: MemoryBus) -> None:
        super().__init__(geometry, arch, bus)
        self.asked: dict[tuple[Tiling, Resident], float] = {}

    def estimate(self, tiling: Tiling, resident: Resident) -> float:
        found = self.asked[tiling, resident] = super().estimate(tiling, resident)
        return found


class _WatchedSearch(TileSearch):
    """Tile search that records the scratchpad space for which it was asked."""

    def __init__(self, geometry: Geometry, arch: Arch, bus: MemoryBus) -> None:
        super().__init__(geometry, arch, bus)
        self.cost = self.watched = _WatchedCost(geometry, arch, bus)
        self.rooms: list[tuple[Resident, int, TilingChoice | None]] = []

    def best_beside(self, resident: Resident, budget: Budget, taken: int) -> TilingChoice | None:
        found = super().best_beside(resident, budget, taken)
        self.rooms.append((resident, budget.count_left(taken), found))
        return found

    def find_pinned(self, pin: LayerChoice, resident: Resident, budget: int) -> TilingChoice | None:
        found = super().find_pinned(pin, resident, budget)
        self.rooms.append((resident, budget, found))
        return found


class _WatchingPool(SearchPool[Compiled]):
    """Pool of tile searches that records the search of one layer."""

    def __init__(self, layer: str, bus: MemoryBus) -> None:
        super().__init__(bus)
        self._layer = layer
        self.watched: dict[Geometry, _WatchedSearch] = {}

    def searches(self, layers: Sequence[OperatorLayer], arch: Arch) -> list[TileSearch]:
        found = super().searches(layers, arch)
        for number, layer in enumerate(layers):
            if self._layer == layer.name:
                if layer.geometry not in self.watched:
                    self.watched[layer.geometry] = _WatchedSearch(
                        layer.geometry, sizeless(arch), self.bus
                    )
                found[number] = self.watched[layer.geometry]
        return found


class LayerCycles(NamedTuple):
    """Cycles of a layer: the compiler's estimate for its schedule, and the simulated number.

    ``bank_waits``: the simulated cycles in which EX waits for banks of the scratchpad.
    """

    estimate: int
    cycles: int
    bank_waits: int


def compile_package(
    package: Package, arch: Arch, options: CompileOptions, timing: Timing = DEFAULT_TIMING
) -> tuple[Compiled, ...]:
    _check_explainable(options)
    made = compile(package, arch, options, timing=timing, data=False)
    return tuple((program, made.reports[index]) for index, program in made.programs.items())


def list_chosen_schedules(
    package: Package, arch: Arch, options: CompileOptions, timing: Timing = DEFAULT_TIMING
) -> tuple[Choices, ...]:
    """Return all schedule choices that the compiler made, region by region."""
    return tuple(report.choices for _, report in compile_package(package, arch, options, timing))


class RegionLayouts(NamedTuple):
    """Layouts of a region on banked memory.

    ``layers`` has the layouts by layer name, ``edges`` those of the region's inputs and outputs.
    """

    layers: Mapping[str, LayerLayouts]
    edges: tuple[Edge, ...]


def region_layouts(
    package: Package, arch: Arch, options: CompileOptions, made: Sequence[Compiled], timing: Timing
) -> tuple[RegionLayouts, ...]:
    """Return the layouts of all regions in ``made``, the result of :func:`compile_package`.

    The result is empty without banked memory.
    """
    found = _partition_package(package, arch, options)
    told = list[RegionLayouts]()
    for region, (program, report) in zip(found.regions, made, strict=True):
        lowered, layers = order_layers(region, found.graph.values, arch, report.choices)
        near = tuple(edges(region, lowered, found.graph.values, timing))
        told.append(RegionLayouts(layer_layouts(program, layers, arch, timing), near))
    return tuple(told) if any(one.layers for one in told) else ()


def compare_cycles(compiled: Compiled, timing: Timing) -> Mapping[str, LayerCycles]:
    """Return the estimated and simulated cycles of a region's layers, by name."""
    program, report = compiled
    timed = ProgramTiming(program)
    cycles = timed.layers(timing)
    waits = timed.bank_waits(timing)
    return {
        name: LayerCycles(estimate, cycles.get(name, 0), waits.get(name, 0))
        for name, estimate in report.estimates.items()
    }


def explain(
    package: Package,
    layer: str,
    arch: Arch,
    options: CompileOptions,
    timing: Timing = DEFAULT_TIMING,
) -> Explanation:
    """Explain the tiling of one layer.

    Of several layers with this name, it explains the first. Raises InputError if no layer has it.
    """
    partitioned = _partition_package(package, arch, options)
    if options.chosen:
        list_chosen_schedules(
            package, arch, options, timing
        )  # raises InputError for choices that are wrong in any region
    for region in partitioned.regions:
        pool = _WatchingPool(layer, bus_of(timing))
        (compiled,) = compile_regions(
            [region], partitioned.graph.values, arch, options, data=False, searches=pool
        )
        chosen = compiled[1].choices
        if layer in (one.layer for one in chosen.layers):
            lowered, layers = order_layers(region, partitioned.graph.values, arch, chosen)
            account = _Account(layer, region.index, lowered, layers, arch, pool, chosen)
            told = account.explain(options, compare_cycles(compiled, timing)[layer])
            layouts = layer_layouts(compiled[0], layers, arch, timing)
            return replace(told, layouts=layouts.get(layer))
    names = (
        one.layer
        for choices in list_chosen_schedules(package, arch, options, timing)
        for one in choices.layers
    )
    close = difflib.get_close_matches(layer, names, n=1)
    meant = f"did you mean '{close[0]}'?" if close else "'dla explain MODEL' lists them"
    raise InputError(f"no layer of the accelerator is called '{layer}'; {meant}")


def _partition_package(package: Package, arch: Arch, options: CompileOptions) -> Partition:
    _check_explainable(options)
    options.chosen.check_made_for(package.digest, arch.digest())
    return partition_package(package, arch, options)


def _check_explainable(options: CompileOptions) -> None:
    if options.schedule == "seed":
        raise InputError(
            "schedule seed takes the largest tile that fits and considers nothing "
            "else; leave it out"
        )


class _Account:
    """Layer of a compiled region whose recorded tile search is to be explained."""

    def __init__(
        self,
        layer: str,
        region: int,
        lowered: Lowered,
        layers: Sequence[OperatorLayer],
        arch: Arch,
        pool: _WatchingPool,
        chosen: Choices,
    ) -> None:
        self._region = region
        self._lowered = lowered
        self._arch = arch
        self._chosen = chosen
        index = [one.name for one in layers].index(layer)
        self._layer = layers[index]
        self._choice = chosen.layers[index]
        self._search = pool.watched[self._layer.geometry]
        groups = place_groups([layer.name for layer in layers], chosen.groups or ())
        self._group = next(
            (one for first, one in groups if 0 <= index - first < len(one.layers)), None
        )
        rooms = Rooms(layers, lowered, arch)
        resident, room = rooms.find_resident(index, chosen.residents or (), arch.sram_bytes)
        ridden = self._group is not None and not self._group.rows and layer == self._group.layers[0]
        self._resident = resident._replace(
            beside=len(layers[index + 1].operation.inputs) - 1 if ridden else 0
        )
        self._budget = self._get_asked_budget(room)

    def _get_asked_budget(self, room: int) -> int:
        """Return the scratchpad budget in bytes with which the search found its choice.

        If the search has none, return the room that residents leave.
        """
        tiling = tiling_of(self._choice)
        for resident, budget, found in reversed(self._search.rooms):
            if resident == self._resident and found is not None:
                same = found.tiling[:2] == tiling[:2] and found.tiling.depth == tiling.depth
                if same:
                    return budget
        return room

    def explain(self, options: CompileOptions, cycles: LayerCycles) -> Explanation:
        """Return the explanation of the layer's tiling.

        It has up to ``SHOWN`` alternatives that fit, and as many that do not.
        """
        winner = tiling_of(self._choice)
        asked = [
            tiling for tiling, resident in self._search.watched.asked if resident == self._resident
        ]
        ranked = sorted(
            (self._estimate(tiling), place)
            for place, tiling in enumerate(asked)
            if tiling != winner
        )
        missing = {place: self._count_missing(asked[place]) for _, place in ranked}
        fitting = [asked[place] for _, place in ranked if not missing[place]]
        misfits = [asked[place] for _, place in ranked if missing[place]]
        pinned = options.chosen.list_for([self._layer.name])[0] is not None
        return Explanation(
            layer=self._layer.name,
            kind=kind_of(self._layer),
            region=self._region,
            resident=self._resident_names(),
            budget_bytes=self._budget,
            estimate=cycles.estimate,
            cycles=cycles.cycles,
            bank_waits=cycles.bank_waits,
            winner=self._make_considered(winner),
            group=self._group,
            chosen_by=options.chosen.source if pinned else "compiler",
            fitting=len(fitting),
            unfitting=len(misfits),
            others=tuple(map(self._make_considered, fitting[:SHOWN])),
            misfits=tuple(map(self._make_considered, misfits[:SHOWN])),
        )

    def _resident_names(self) -> tuple[str, ...]:
        operation = self._layer.operation
        names = [self._lowered.place(item).buffer for item in (*operation.inputs, operation.output)]
        return tuple(
            dict.fromkeys(name for name in names if name in (self._chosen.residents or ()))
        )

    def _estimate(self, tiling: Tiling) -> float:
        return self._search.cost.estimate(tiling, self._resident)

    def _count_missing(self, tiling: Tiling) -> int:
        return max(self._search.cost.compute_working_set(tiling, self._resident) - self._budget, 0)

    def _make_considered(self, tiling: Tiling) -> Considered:
        shape = self._search.cost.shape_of(tiling)
        return Considered(
            choice=choice_of(self._layer.name, tiling),
            estimated_cycles=round(self._estimate(tiling)),
            compute_cycles=shape.compute,
            moved_bytes=self._count_moved(tiling),
            working_set_bytes=self._search.cost.compute_working_set(tiling, self._resident),
            tiles=shape.tiles,
            missing=self._count_missing(tiling),
        )

    def _count_moved(self, tiling: Tiling) -> int:
        """Return the bytes that the layer's loads and stores move with a tiling.

        The number is exact, because it comes from the steps of the tiling.
        """
        memory = bare_memory(self._arch, self._lowered, self._chosen.residents or ())
        steps = (
            step
            for tile in stream_layer(self._layer, tiling, memory)
            for step in (*tile.loads, *tile.stores)
        )
        return sum(count_moved(step) for step in steps)
