"""Plans of a region: resident buffers, tilings of layers, and groups of layers.

A resident buffer stays in the scratchpad from its first producer to its last consumer. Buffers are
chosen greedily in order of production: one becomes resident if every layer in between still has a
tiling and the estimate improves. This module also checks plans that the user chose and converts
plans to such choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from byoc.operators.layer import (
    BufferSlots,
    OperatorLayer,
    Resident,
    Tiling,
    counts,
    find_shortage,
    order_of,
)
from byoc.operators.nest import find_allowed_channels
from byoc.options import NOTHING, Choices, GroupChoice, LayerChoice, place_groups
from byoc.scheduling.fusion import Fusion, Question
from byoc.scheduling.groups import (
    BandedGroup,
    FusionGraph,
    is_needed_after,
    lawful,
    list_fused_buffers,
    may_ride,
    members_of,
)
from byoc.scheduling.region_context import LayerPlan, Life, RegionContext
from byoc.scheduling.tile_search import TileSearch, TilingChoice
from byoc.scheduling.tiling import Budget, may_cut_rows
from isa.arch import Arch
from isa.errors import DoesNotFitError, InputError


class NoTilingError(DoesNotFitError):
    """A layer has no tiling that fits into the scratchpad."""


def plan_layers(
    context: RegionContext,
    arch: Arch,
    capacity: int,
    choices: Choices = NOTHING,
    factor: float = 1.0,
) -> LayerPlan:
    """Return residents, tilings and groups for a scratchpad of ``capacity`` bytes.

    The plan agrees with ``choices``. A capacity of 0 excludes residents and groups. Without
    residents, tilings may use the whole scratchpad. Groups are chosen as if layers alone took
    ``factor`` times their cycles.

    Raises:
        InputError: if a layer has no tiling, or none that agrees with the choices.
    """
    if choices or capacity != arch.sram_bytes:
        room = Budget(capacity) if capacity else None
        return _plan_capacity(context, arch, Budget(arch.sram_bytes), room, choices, factor)
    return context.plans.find(
        factor,
        capacity,
        lambda budget: _plan_capacity(context, arch, budget, budget, choices, factor),
    )


def _plan_capacity(
    context: RegionContext,
    arch: Arch,
    whole: Budget,
    capacity: Budget | None,
    choices: Choices,
    factor: float,
) -> LayerPlan:
    """Return the layer plan for scratchpad size ``whole`` and the budget ``capacity``.

    ``capacity`` is the limit while residents are live.
    """
    planner = _Planner(context, arch, whole, choices)
    if capacity is not None and choices.residents is None:
        planner.choose_residents(capacity)
    if (
        capacity is not None
        and choices.residents is None
        and choices.groups is None
        and len(context.layers) > 1
    ):
        planner.choose_groups(context.fusion, factor)
    return LayerPlan(planner.tilings(), tuple(planner.residents), planner.groups)


class _Planner:
    """Planner of a region: residents chosen so far, and the best tilings with them."""

    def __init__(self, context: RegionContext, arch: Arch, whole: Budget, choices: Choices) -> None:
        layers = context.layers
        self._searches = context.searches
        self._bus = context.bus
        self._arch = arch
        self._chosen = choices
        self._pins = pins_of(choices, layers, arch)
        self._image = len({layer.name for layer in layers})  # layers per image; images share names
        self._rooms = context.rooms
        groups = list_chosen_groups(choices, layers, context.graph) if choices.groups else ()
        dense = {
            name
            for group in groups
            if group.rides
            for name in list_fused_buffers(context.graph, group.last)
        }
        self._lives = {name: life for name, life in self._rooms.lives.items() if name not in dense}
        self.residents = {
            name: self._lives[name] for name in list_chosen_residents(choices, self._lives) or ()
        }
        self._operands = [len(layer.operation.inputs) for layer in layers]
        self._group(groups)
        self._whole = self._capacity = whole
        self._best: dict[tuple[TileSearch, Resident, int], TilingChoice | None] = {}
        self._find_rooms()
        self.choices = [self._get_required(layers[index], index) for index in range(len(layers))]

    def _get_required(self, layer: OperatorLayer, index: int) -> TilingChoice:
        choice = self._choice(index)
        pin = self._pins[index]
        if choice is None:
            if self._chosen and pin is not None:
                raise misfit(self._chosen, layer, pin, self._arch)
            raise NoTilingError(
                f"layer '{layer.operation.name}' does not fit in {self._arch.sram_bytes} bytes of "
                "SRAM in any tiling"
            )
        return choice

    def choose_residents(self, capacity: Budget) -> None:
        """Add residents while the estimate improves.

        Buffers that outlive an image of a batch are tried last, because they take bytes from all
        images.
        """
        self._capacity = capacity
        self._best.clear()
        lives = sorted(
            self._lives.items(), key=lambda item: item[1].last - item[1].first > self._image
        )
        for name, life in lives:
            self.residents[name] = life
            span = slice(life.first, life.last + 1)
            rooms = self._places[span]
            self._places[span] = self._rooms.add_resident(name, rooms, self.residents)
            cycles = sum([choice.cycles for choice in self.choices[span]])
            chosen = self._choose(life)
            if chosen is not None and sum([choice.cycles for choice in chosen]) <= cycles:
                self.choices[span] = chosen
            else:
                del self.residents[name]
                self._places[span] = rooms

    def _choose(self, life: Life) -> list[TilingChoice] | None:
        """Return the choices of the layers at which a buffer is live, or None if one has none."""
        found = []
        for index in range(life.first, life.last + 1):
            choice = self._choice(index)
            if choice is None:
                return None
            found.append(choice)
        return found

    def _find_rooms(self) -> None:
        """Recompute each layer's resident operands and the bytes that residents take."""
        self._places = self._rooms.list_beside(self.residents)

    def _group(self, groups: tuple[BandedGroup, ...]) -> None:
        self.groups = groups
        self._together = {index for group in groups for index in range(group.first, group.last + 1)}
        self._beside = {
            group.first: self._operands[group.last] - 1 for group in groups if group.rides
        }

    def choose_groups(self, fusion: Fusion, factor: float) -> None:
        """Form groups where they save cycles, of layers without user choices."""
        singles = tuple(factor * choice.cycles for choice in self.choices)
        pinned = tuple(pin is not None for pin in self._pins)
        residents = tuple(
            (name, life.first, life.last, life.nbytes) for name, life in self.residents.items()
        )
        self._group(fusion.cover(Question(singles, pinned, residents), self._capacity))
        for group in self.groups:
            inside = [
                n
                for n, life in self.residents.items()
                if group.first <= life.first <= life.last <= group.last
            ]
            for name in inside:
                del self.residents[name]
        self._find_rooms()

    def tilings(self) -> tuple[Tiling, ...]:
        """Return the tiling of every layer of the region.

        Those before a layer that waits for the bus leave bytes free for its prefetches.
        """
        found: list[Tiling] = []
        # bus cycles of later layers' loads that can overlap with this layer and earlier ones
        ahead = 0
        for index in reversed(range(len(self.choices))):
            choice = self.choices[index]
            search = self._searches[index]
            room = self._room(index)
            if index in self._beside and self._pins[index] is None:
                choice = search.best_beside(*room) or choice
            tiling = choice.tiling
            alone = index not in self._together
            if alone and ahead > 0 and self._pins[index] is None:
                tiling = search.thriftiest_beside(choice, *room)
            found.append(tiling)
            waits = (
                search.cost.compute_waits(tiling, room[0])
                if alone
                else -search.estimate_computed(tiling)
            )
            ahead = max(ahead, 0) + waits
            if not self._whole.has_room_for(self._bus.bytes_in(ahead)):
                ahead = self._bus.cycles_of(self._whole.all())
        return tuple(reversed(found))

    def _choice(self, index: int) -> TilingChoice | None:
        search = self._searches[index]
        pin = self._pins[index]
        resident, budget, taken = self._room(index)
        if pin is None:
            # layers of equal geometry share a search, and a region has many layers and residents
            key = search, resident, taken
            if key not in self._best:
                self._best[key] = search.best_beside(resident, budget, taken)
            return self._best[key]
        if index in self._together and None not in vars(pin).values():
            # unused in a group; kept as the choice for the layer alone
            return TilingChoice(tiling_of(pin), 0.0)
        return search.find_pinned(pin, resident, budget.all() - taken)

    def _room(self, index: int) -> tuple[Resident, Budget, int]:
        """Return a layer's resident operands, its scratchpad budget, and the residents' bytes.

        Without live residents, the budget is the whole scratchpad.
        """
        resident, taken = self._places[index]
        beside = self._beside.get(index, 0)
        resident = resident._replace(beside=beside) if beside else resident
        return resident, self._capacity if taken else self._whole, taken


def pins_of(
    choices: Choices, layers: Sequence[OperatorLayer], arch: Arch
) -> list[LayerChoice | None]:
    """Return the user's choice for each layer, None for a layer without a choice.

    Raises InputError for a choice that no tiling of the layer can meet.
    """
    found = choices.list_for([layer.name for layer in layers])
    for layer, choice in zip(layers, found, strict=True):
        if choice is not None:
            _check(choices, layer, choice)
    return found


def list_chosen_residents(choices: Choices, candidates: Iterable[str]) -> tuple[str, ...] | None:
    """Return the residents that the user chose from ``candidates``, or None if unchosen."""
    wanted = choices.residents
    return None if wanted is None else tuple(name for name in candidates if name in wanted)


def choice_of(name: str, tiling: Tiling) -> LayerChoice:
    """Return a layer choice that fixes every parameter of a tiling."""
    order = order_of(tiling)
    slots = tiling.slots
    return LayerChoice(name, tiling.channels, tiling.rows, tiling.depth, order, (*slots,))


def tiling_of(choice: LayerChoice) -> Tiling:
    """Return the tiling that a complete layer choice describes."""
    assert choice.channels is not None
    assert choice.rows is not None
    assert choice.depth is not None
    assert choice.slots is not None
    return Tiling(
        choice.channels,
        choice.rows,
        choice.order == "channels",
        BufferSlots(*choice.slots),
        choice.depth,
    )


def group_choice_of(names: Sequence[str], group: BandedGroup) -> GroupChoice:
    """Return a complete choice that describes a layer group by the names of its layers."""
    named = tuple(names[group.first : group.last + 1])
    if group.rides:
        return GroupChoice(named, 0)
    return GroupChoice(named, group.rows, group.kept, group.channels, group.held, group.slots)


def to_choices(layers: Sequence[OperatorLayer], chosen: LayerPlan) -> Choices:
    """Return choices that fix every tiling, resident and group of a plan."""
    tilings = tuple(
        choice_of(layer.name, tiling) for layer, tiling in zip(layers, chosen.tilings, strict=True)
    )
    groups = tuple(
        group_choice_of([layer.name for layer in layers], group) for group in chosen.groups
    )
    return Choices(tilings, chosen.residents, groups)


def list_chosen_groups(
    choices: Choices, layers: Sequence[OperatorLayer], graph: FusionGraph
) -> tuple[BandedGroup, ...]:
    """Return the layer groups that the user's choices state for a region.

    A group whose layers are not consecutive here belongs to another region.

    Raises:
        InputError: if a chosen group is impossible.
    """
    names = [layer.name for layer in layers]
    found = place_groups(names, choices.groups or (), partial(lawful, graph))
    return tuple(group_at(at, choice, choices, layers, graph) for at, choice in found)


def group_at(
    first: int,
    choice: GroupChoice,
    choices: Choices,
    layers: Sequence[OperatorLayer],
    graph: FusionGraph,
) -> BandedGroup:
    """Return the group that a user's choice describes, from layer number ``first`` on.

    Raises InputError if impossible.
    """
    last = first + len(choice.layers) - 1
    count = len(choice.layers)
    named = f"{choices.source}: group '{choice.layers[0]}' to '{choice.layers[-1]}'"
    if not lawful(graph, first, last):
        raise InputError(
            f"{named}: bands of rows cannot pass all of these layers; 'dla explain "
            "MODEL' shows what can"
        )
    if not choice.rows:
        return _make_fused_group(choices, named, layers, graph, first, last)
    members = members_of(graph, first, last)
    rows = graph.planes[members[-1].writes.buffer].rows
    if choice.rows > rows:
        raise InputError(f"{named}: rows is {choice.rows}; it is 1 to {rows}")
    channels = choice.channels or tuple(layer.nest.channels for layer in layers[first : last + 1])
    held = choice.held or (True,) * count
    for key, listed in (("channels", channels), ("held", held)):
        if len(listed) != count:
            raise InputError(f"{named}: {key} has {len(listed)} entries for {count} layers")
    for layer, size in zip(layers[first : last + 1], channels, strict=True):
        _check_channels(choices, layer, size)
    read = tuple(dict.fromkeys(piece.buffer for member in members for piece in member.reads))
    made = {member.writes.buffer for member in members}
    always = [name for name in read if name in made and is_needed_after(graph.planes[name], last)]
    wanted = read if choice.kept is None else (name for name in choice.kept if name in read)
    kept = tuple(dict.fromkeys((*wanted, *always)))
    return BandedGroup(first, last, choice.rows, kept, channels, held, choice.slots or 2)


def _make_fused_group(
    choices: Choices,
    named: str,
    layers: Sequence[OperatorLayer],
    graph: FusionGraph,
    first: int,
    last: int,
) -> BandedGroup:
    if last != first + 1 or not may_ride(layers, graph, last):
        raise InputError(
            f"{named}: rows is 0, tile by tile; that is for a convolution or pool and an "
            "element-wise layer that alone "
            "reads what it makes"
        )
    stuck = sorted(list_fused_buffers(graph, last) & set(choices.residents or ()))
    if stuck:
        raise InputError(
            f"{named}: rows is 0, tile by tile, so that '{stuck[0]}' is no resident; leave one of "
            "both out"
        )
    return BandedGroup(first, last, 0, (), (), ())


def misfit(choices: Choices, layer: OperatorLayer, choice: LayerChoice, arch: Arch) -> InputError:
    """Return the error for a user's choice that no fitting tiling agrees with."""
    geometry = layer.geometry
    nest = geometry.nest
    channels = choice.channels or find_allowed_channels(nest, 1)
    rows = choice.rows or (1 if may_cut_rows(geometry, channels) else nest.rows)
    smallest = Tiling(
        channels,
        rows,
        choice.order == "channels",
        BufferSlots(*(choice.slots or (1, 1, 1))),
        choice.depth or 0,
    )
    shortage = find_shortage(geometry, smallest, arch)
    why = (
        f"does not fit in {arch.sram_bytes} bytes of SRAM beside what is resident"
        if shortage is None
        else shortage
    )
    parts, bands = counts(geometry, smallest)
    remedy = "choose fewer residents" if shortage is None else "choose smaller tiles or fewer slots"
    return _make_refusal(
        choices, layer, f"the tiling chosen ({parts} x {bands} tiles) {why}; {remedy}"
    )


def _check(choices: Choices, layer: OperatorLayer, choice: LayerChoice) -> None:
    geometry = layer.geometry
    nest = layer.nest
    if choice.channels is not None:
        _check_channels(choices, layer, choice.channels)
    if choice.rows is not None:
        banded = may_cut_rows(geometry, choice.channels or find_allowed_channels(nest, 1))
        if choice.rows > nest.rows or (choice.rows < nest.rows and not banded):
            wanted = (
                f"it is 1 to {nest.rows}" if banded else f"its rows cannot be cut, take {nest.rows}"
            )
            raise _make_refusal(choices, layer, f"rows is {choice.rows}; {wanted}")
    if choice.depth:
        if not geometry.splits_depth:
            why = (
                "its input channels cannot be cut (ISA v4 and v5 cut those of convolutions and "
                "products), take 0"
            )
            raise _make_refusal(choices, layer, f"depth is {choice.depth}; {why}")
        if choice.depth >= nest.input_channels:
            why = f"it is 1 to {nest.input_channels - 1}, or 0 for all input channels at once"
            raise _make_refusal(choices, layer, f"depth is {choice.depth}; {why}")


def _check_channels(choices: Choices, layer: OperatorLayer, channels: int) -> None:
    nest = layer.nest
    fitting = find_allowed_channels(nest, channels)
    if channels > nest.channels:
        unit = "" if layer.operation.output.assigned is None else " atoms"
        why = f"channels is {channels}; it is 1 to {nest.channels}{unit}"
        raise _make_refusal(choices, layer, why)
    if fitting != channels:
        parts = "" if nest.channel_step else ", or an even part of one"
        why = (
            f"a tile has whole groups{parts}" if nest.grouped else "a tile has all of its channels"
        )
        raise _make_refusal(choices, layer, f"channels is {channels}; {why}: take {fitting}")


def _make_refusal(choices: Choices, layer: OperatorLayer, why: str) -> InputError:
    return InputError(f"{choices.source}: layer '{layer.name}': {why}")
