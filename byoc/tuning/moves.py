"""Random changes of one tiling, group or resident tensor of a schedule.

Tilings are drawn from all legal ones, or one step from a known one. Groups are one step from the
current ones.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from byoc.operators.geometry import Geometry
from byoc.operators.layer import Resident, Tiling
from byoc.operators.nest import find_allowed_channels
from byoc.options import GroupChoice, PlacedGroups
from byoc.scheduling.tiling import channel_tiles, depths, list_buffered, row_bands
from byoc.tuning.subject import Move, State, TilingSite, TuningSubject
from byoc.tuning.transfer import Donor
from isa.arch import Arch
from isa.instruction import ceil_div

RIDES = 0.5
"""Probability of grouping two layers tile by tile where possible, or of dissolving such a group."""
GROUP_TRIES = 12
"""Number of draws before the groups are left unchanged; most layers cannot be in a group."""


class Grouping:
    """Generator of random changes to the groups of layers that a schedule runs together."""

    def __init__(self, subject: TuningSubject, random: np.random.Generator) -> None:
        self._subject = subject
        self._random = random

    def change(self, groups: PlacedGroups, place: int) -> PlacedGroups | None:
        """Return a schedule's groups with a property of one group changed, or with a group added.

        ``place`` is the index of the changed group, -1 to add one. A step changes ends, band
        height, tiles or kept tensors. Returns None if no legal change was found.
        """
        for _ in range(GROUP_TRIES):
            found = self._add_group(groups) if place < 0 else self._step_group(groups, place)
            if found is not None and found != groups:
                return found
        return None

    def _add_group(self, groups: PlacedGroups) -> PlacedGroups | None:
        """Return a schedule's groups with a new group of two or three layers, or None.

        The layers were not in a group. Of two layers, the second may be fused into the tiles of the
        first. Returns None if no legal group was found.
        """
        first = int(self._random.integers(len(self._subject.sites)))
        if self._subject.find_excluded(first) is not None and self._random.random() < RIDES:
            return self._fuse_pair(groups, None, first)
        return self._replace_group(groups, None, first, first + int(self._random.integers(1, 3)))

    def _step_group(self, groups: PlacedGroups, place: int) -> PlacedGroups | None:
        first, group = groups[place]
        last = first + len(group.layers) - 1
        if not group.rows:
            return self._replace_group(
                groups, place, first, last if self._random.random() < RIDES else first
            )
        kind = int(self._random.integers(10))
        if (
            kind == 0
            and self._random.random() < RIDES
            and self._subject.find_excluded(first) is not None
        ):
            return self._fuse_pair(groups, place, first)
        if kind == 0:
            return (*groups[:place], *groups[place + 1 :])
        if kind in (1, 2):
            ends = ((first - 1, last), (first + 1, last), (first, last - 1), (first, last + 1))
            return self._replace_group(groups, place, *ends[int(self._random.integers(len(ends)))])
        if kind == 3:
            changed = replace(group, slots=3 - (group.slots or 2))
        elif kind in (4, 5):
            changed = self._change_bands(group, last)
        else:
            changed = self._change_tiles(group, first)
        return (*groups[:place], (first, changed), *groups[place + 1 :])

    def _fuse_pair(
        self, groups: PlacedGroups, place: int | None, first: int
    ) -> PlacedGroups | None:
        """Return a schedule's groups with a layer fused into the tiles of the previous one.

        The pair is a new group, or replaces group ``place``.
        """
        others = tuple(one for number, one in enumerate(groups) if number != place)
        if not _free(others, first, first + 1):
            return None
        names = tuple(site.name for site in self._subject.sites[first : first + 2])
        return insert_group(others, first, GroupChoice(names, 0))

    def _change_bands(self, group: GroupChoice, last: int) -> GroupChoice:
        """Return ``group`` with a random number of rows per band near the present one."""
        rows = self._subject.rows(last)
        return replace(
            group,
            rows=draw_near_size(self._random, even_sizes(range(1, rows + 1), rows), group.rows),
        )

    def _change_tiles(self, group: GroupChoice, first: int) -> GroupChoice:
        """Change one layer's tiles or constant loads in a group, or whether a tensor is kept."""
        count = len(group.layers)
        member = int(self._random.integers(count))
        sites = self._subject.sites[first : first + count]
        channels = list(group.channels or (site.geometry.nest.channels for site in sites))
        held = list(group.held or (True,) * count)
        kind = int(self._random.integers(3))
        if kind == 0:
            held[member] = not held[member]
        elif kind == 1:
            nest = sites[member].geometry.nest
            legal = [
                size
                for size in range(1, nest.channels + 1)
                if find_allowed_channels(nest, size) == size
            ]
            channels[member] = draw_near_size(
                self._random, even_sizes(legal, nest.channels), channels[member]
            )
        elif group.kept:
            dropped = group.kept[int(self._random.integers(len(group.kept)))]
            return replace(group, kept=tuple(name for name in group.kept if name != dropped))
        else:
            return replace(group, kept=None)
        return replace(group, channels=tuple(channels), held=tuple(held))

    def _replace_group(
        self, groups: PlacedGroups, place: int | None, first: int, last: int
    ) -> PlacedGroups | None:
        """Return a schedule's groups with a group of the layers ``first`` to ``last``.

        It is new or replaces the group ``place``. Returns None if the result would be illegal.
        """
        others = tuple(one for number, one in enumerate(groups) if number != place)
        if last <= first:
            return others
        if not _free(others, first, last) or not self._subject.groupable(first, last):
            return None
        sites = self._subject.sites[first : last + 1]
        before = None if place is None or not groups[place][1].rows else groups[place]
        return insert_group(others, first, self._make_group(sites, first, before))

    def _make_group(
        self, sites: Sequence[TilingSite], first: int, before: tuple[int, GroupChoice] | None
    ) -> GroupChoice:
        """Return a group of the layers ``sites``; they keep their settings in the group ``before``.

        Layers that ``before`` does not have compute all channels in one tile, load their constants
        once and keep all rows.
        """
        rows = self._subject.rows(first + len(sites) - 1)
        bands = even_sizes(range(1, rows + 1), rows)
        if before is None:
            band = bands[int(self._random.integers(len(bands)))]
            return GroupChoice(tuple(site.name for site in sites), band)
        start, group = before
        channels = []
        held = []
        for number, site in enumerate(sites, start=first):
            inside = start <= number < start + len(group.layers)
            channels.append(
                group.channels[number - start]
                if inside and group.channels
                else site.geometry.nest.channels
            )
            held.append(group.held[number - start] if inside and group.held else True)
        band = next((size for size in bands if size <= group.rows), bands[-1])
        return GroupChoice(
            tuple(site.name for site in sites), band, None, tuple(channels), tuple(held)
        )


def _free(groups: PlacedGroups, first: int, last: int) -> bool:
    """Return True if no group contains any of the layers ``first`` to ``last``."""
    return all(other > last or other + len(one.layers) <= first for other, one in groups)


def insert_group(groups: PlacedGroups, first: int, group: GroupChoice) -> PlacedGroups:
    """Return a schedule's groups with ``group`` in place of those that contain one of its layers.

    ``first`` is the index of the first layer of ``group``.
    """
    last = first + len(group.layers) - 1
    others = (one for one in groups if one[0] > last or one[0] + len(one[1].layers) <= first)
    return tuple(sorted((*others, (first, group)), key=lambda one: one[0]))


TRIES = 24
"""Number of draws after which a layer gets no tiling; most do not fit in a small scratchpad."""
FRESH = 0.35
REBUFFERED = 0.3
"""Probabilities of a fresh draw, and of a step that changes only buffers and order.

The remaining steps change one size.
"""


class Drawing:
    """Generator of random tilings of one layer geometry within ``budget`` bytes.

    ``resident`` says which operands stay in the scratchpad.
    """

    def __init__(self, geometry: Geometry, arch: Arch, resident: Resident, budget: int) -> None:
        self._geometry = geometry
        self._arch = arch
        self._resident = resident
        self._budget = budget
        self._channels, self._depths = _sizes(geometry, arch, resident)
        self._known: dict[tuple[int, int, int], tuple[Tiling, ...]] = {}

    def fresh(self, random: np.random.Generator) -> Tiling | None:
        """Return a random tiling, with few tiles as likely as many.

        The result is None if no draw fits.
        """
        for _ in range(TRIES):
            channels = _pick(random, self._channels)
            shape = Tiling(
                channels, _pick(random, self._rows(channels)), depth=_pick(random, self._depths)
            )
            found = self._draw_buffered(random, shape)
            if found is not None:
                return found
        return None

    def draw_near(self, random: np.random.Generator, known: Tiling) -> Tiling | None:
        """Return a tiling that usually differs from ``known`` in one property.

        Returns None if no draw fits.
        """
        for _ in range(TRIES):
            kind = random.random()
            if kind < FRESH:
                return self.fresh(random)
            shape = known if kind < FRESH + REBUFFERED else self._step_size(random, known)
            found = self._draw_buffered(random, shape)
            if found is not None and found != known:
                return found
        return None

    def _step_size(self, random: np.random.Generator, known: Tiling) -> Tiling:
        """Return the tiling ``known`` with one of its sizes slightly larger or smaller."""
        axis = ("channels", "rows", "depth")[int(random.integers(3))]
        if axis == "rows":
            return known._replace(
                rows=draw_near_size(random, self._rows(known.channels), known.rows)
            )
        if axis == "depth":
            return known._replace(depth=draw_near_size(random, self._depths, known.depth))
        channels = draw_near_size(random, self._channels, known.channels)
        rows = self._rows(channels)
        return known._replace(channels=channels, rows=known.rows if len(rows) > 1 else rows[0])

    def _draw_buffered(self, random: np.random.Generator, shape: Tiling) -> Tiling | None:
        """Return a tiling with the sizes of ``shape`` and a random loop order and buffering.

        The result is None if no buffering fits.
        """
        key = shape.channels, shape.rows, shape.depth
        found = self._known.get(key)
        if found is None:
            plain = Tiling(*key[:2], depth=shape.depth)
            found = self._known[key] = tuple(
                list_buffered(self._geometry, self._arch, self._resident, self._budget, plain)
            )
        return found[int(random.integers(len(found)))] if found else None

    def _rows(self, channels: int) -> tuple[int, ...]:
        return _bands(self._geometry, channels)


@lru_cache(maxsize=1024)
def _sizes(
    geometry: Geometry, arch: Arch, resident: Resident
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tile sizes in output and input channels to draw from, from coarse to fine."""
    nest = geometry.nest
    parallel = geometry.parallel_channels(arch)
    channels = even_sizes(channel_tiles(geometry, resident), nest.channels, parallel)
    cuts = depths(geometry, resident)
    return channels, (0, *even_sizes(cuts[1:], nest.input_channels, geometry.parallel_inputs(arch)))


@lru_cache(maxsize=4096)
def _bands(geometry: Geometry, channels: int) -> tuple[int, ...]:
    return even_sizes(row_bands(geometry, channels), geometry.nest.rows)


def even_sizes(sizes: Sequence[int], whole: int, parallel: int = 0) -> tuple[int, ...]:
    """Return the smallest of ``sizes`` for each number of tiles, and the multiples of ``parallel``.

    All are among ``sizes``. The tiles divide a dimension of ``whole`` elements.
    """
    smallest: dict[int, int] = {}
    for size in sizes:
        count = ceil_div(whole, size)
        smallest[count] = min(size, smallest.get(count, size))
    fitting = {size for size in sizes if parallel and size % parallel == 0}
    return tuple(sorted({*smallest.values(), *fitting}, reverse=True))


def _pick(random: np.random.Generator, sizes: Sequence[int]) -> int:
    """Return a random one of ``sizes``; the first, which are coarse, are more likely."""
    return sizes[int(len(sizes) * random.random() ** 2)]


def draw_near_size(random: np.random.Generator, sizes: Sequence[int], known: int) -> int:
    """Return a size that is up to three positions from ``known`` in the list ``sizes``.

    If ``known`` is no size, it counts from the first that is not larger.
    """
    place = next((number for number, size in enumerate(sizes) if size <= known), len(sizes) - 1)
    step = int(random.integers(1, 4)) * (1 if random.random() < 0.5 else -1)
    return sizes[min(max(place + step, 0), len(sizes) - 1)]


PLACES = 64
"""Maximum number of layers, of groups and of tensors at which changes are drawn at a time."""

Item = TypeVar("Item")


class Moves:
    """Generator of changes to a schedule: legal ones that fit in memory, each made once.

    They include a ``donor``'s schedules.
    """

    def __init__(self, subject: TuningSubject, random: np.random.Generator) -> None:
        self._subject = subject
        self._random = random
        self._grouping = Grouping(subject, random)
        self._made: set[Hashable] = set()
        self._tested: dict[tuple[int, Resident], set[Tiling]] = {}
        self._drawings: dict[tuple[Geometry, Resident, int], Drawing] = {}
        self.donor: Donor | None = None

    def make(self, moves: Iterable[Move]) -> None:
        """Mark changes of a schedule as measured, so that they are not drawn again."""
        self._made.update(move.content for move in moves)

    def note(self, state: State) -> None:
        """Record a measured schedule, so that its tilings are not drawn again.

        A tiling of a layer may be drawn again if other operands of the layer are resident.
        """
        for number, _ in state.tiled:
            resident, _ = state.room(self._subject, number)
            self._tested.setdefault((number, resident), set()).add(state.tilings[number])

    def pools(self, base: State, tilings: int, groups: int, flips: int) -> Iterator[list[Move]]:
        """Yield lists of random changes of the schedule ``base``, each for one part of it.

        A list changes the tiling of one layer, one group, or the residency of one tensor.
        ``tilings`` and ``groups`` are the numbers of changes drawn for each layer and group,
        ``flips`` that of tensors whose residency changes.
        """
        for number, last in self._some(base.tiled, PLACES):
            drawn = self._draw_tilings(number, base, tilings)
            yield [Move(number, last, _replace_tiling(base, number, tiling)) for tiling in drawn]
        for place in (-1, *self._some(range(len(base.groups)), PLACES)):
            changed = (self._grouping.change(base.groups, place) for _ in range(groups))
            found = dict.fromkeys(one for one in changed if one is not None)
            yield self._new(base, (self._refit(base, base.residents, one) for one in found))
        for group in () if self.donor is None else self.donor.groups():
            yield self._new(
                base, [self._refit(base, base.residents, insert_group(base.groups, *group))]
            )
        for _, name in self._some(self._subject.candidates, flips):
            yield self._new(base, [self._refit(base, base.residents ^ {name}, base.groups)])

    def _some(self, items: Sequence[Item], most: int) -> Sequence[Item]:
        """Return ``most`` randomly chosen ``items`` in their given order, or all if fewer."""
        if len(items) <= most:
            return items
        chosen = self._random.choice(len(items), most, replace=False)
        return [items[number] for number in sorted(chosen.tolist())]

    def _new(self, base: State, states: Iterable[State | None]) -> list[Move]:
        """Return the changes of ``base`` to each of ``states`` that were not made before."""
        moves = [self._move(base, state) for state in states if state is not None and state != base]
        return [move for move in moves if move.content not in self._made]

    def _move(self, base: State, state: State) -> Move:
        """Return the change that turns one schedule into another.

        It covers all sites whose tiling, group or room differ, extended to whole groups.
        """
        pairs = enumerate(zip(base.tilings, state.tilings, strict=True))
        changed = {number for number, (before, after) in pairs if before != after}
        for first, group in set(base.groups) ^ set(state.groups):
            changed.update(range(first, first + len(group.layers)))
        flipped = base.residents ^ state.residents
        for region, name in self._subject.candidates if flipped else ():
            if name in flipped:
                changed.update(self._subject.span(region, name))
        low = min(changed)
        high = max(changed)
        for first, group in (*base.groups, *state.groups):
            last = first + len(group.layers) - 1
            if first <= high and last >= low:
                low = min(low, first)
                high = max(high, last)
        return Move(low, high, state)

    def _refit(self, state: State, residents: frozenset[str], groups: PlacedGroups) -> State | None:
        """Return a schedule with the given resident tensors and groups.

        Returns None if a layer or group no longer fits. Sites with different residents or less room
        get the compiler's tilings.
        """
        banded = [
            one
            for one in groups
            if one[1].rows and (residents != state.residents or one not in state.groups)
        ]
        for first, group in groups:
            if not group.rows:
                residents -= self._subject.find_excluded(first) or frozenset()
        if any(self._subject.account(*one, residents).estimate is None for one in banded):
            return None
        found = State(state.tilings, residents, groups)
        tilings = list(state.tilings)
        for number, _ in found.tiled:
            before, _ = state.room(self._subject, number)
            resident, budget = found.room(self._subject, number)
            search = self._subject.search(number)
            tiling = tilings[number]
            if resident == before and search.cost.compute_working_set(tiling, resident) <= budget:
                continue
            choice = search.best(resident, budget)
            if choice is None:
                return None
            tilings[number] = choice.tiling
        return replace(found, tilings=tuple(tilings))

    def _draw_tilings(self, number: int, base: State, count: int) -> list[Tiling]:
        """Return up to ``count`` tilings of a layer that are not yet measured with this layer.

        Those of the donor come first.
        """
        resident, budget = base.room(self._subject, number)
        key = self._subject.sites[number].geometry, resident, budget
        drawing = self._drawings.get(key)
        if drawing is None:
            drawing = self._drawings[key] = Drawing(key[0], self._subject.arch, resident, budget)
        tested = self._tested.get((number, resident), set())
        offered = () if self.donor is None else self.donor.tilings(number, resident, budget)
        found = dict.fromkeys(tiling for tiling in offered if tiling not in tested)
        for _ in range(2 * count):
            tiling = drawing.draw_near(self._random, base.tilings[number])
            if tiling is not None and tiling not in tested:
                found[tiling] = None
            if len(found) >= count:
                break
        return list(found)


def _replace_tiling(state: State, number: int, tiling: Tiling) -> State:
    return replace(state, tilings=(*state.tilings[:number], tiling, *state.tilings[number + 1 :]))
