"""Other groups to try: layers that run band by band together, one step away from those that do now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from byoc.choices import GroupChoice
from byoc.operators.nest import allowed_channels
from byoc.tuning.candidates import beside, even_sizes
from byoc.tuning.subject import Grouped, Site, Subject

RIDES = 0.5
"""Share of what could go tile by tile that comes to do so, or no longer does, other than to be taken apart."""
TRIES = 12
"""Steps that are drawn before the groups are left as they are: most layers cannot be in one."""


class Grouping:
    """Draws steps from one set of groups to another."""

    def __init__(self, subject: Subject, random: np.random.Generator) -> None:
        self._subject, self._random = subject, random

    def changed(self, groups: Grouped, place: int) -> Grouped | None:
        """Groups with one thing changed of number ``place``: its ends, band, tiles, or what it keeps; -1: one more.

        None where nothing was found.
        """
        for _ in range(TRIES):
            found = self._added(groups) if place < 0 else self._stepped(groups, place)
            if found is not None and found != groups:
                return found
        return None

    def _added(self, groups: Grouped) -> Grouped | None:
        """Two or three neighbours that are in no group, in one of their own; or two, tile by tile."""
        first = int(self._random.integers(len(self._subject.sites)))
        if self._subject.ridden(first) is not None and self._random.random() < RIDES:
            return self._riding(groups, None, first)
        return self._with(groups, None, first, first + int(self._random.integers(1, 3)))

    def _stepped(self, groups: Grouped, place: int) -> Grouped | None:
        first, group = groups[place]
        last = first + len(group.layers) - 1
        if not group.rows:
            return self._with(groups, place, first, last if self._random.random() < RIDES else first)
        kind = int(self._random.integers(10))
        if kind == 0 and self._random.random() < RIDES and self._subject.ridden(first) is not None:
            return self._riding(groups, place, first)
        if kind == 0:
            return (*groups[:place], *groups[place + 1 :])
        if kind in (1, 2):
            ends = ((first - 1, last), (first + 1, last), (first, last - 1), (first, last + 1))
            return self._with(groups, place, *ends[int(self._random.integers(len(ends)))])
        if kind == 3:
            changed = replace(group, slots=3 - (group.slots or 2))
        elif kind in (4, 5):
            changed = self._banded(group, last)
        else:
            changed = self._tiled(group, first)
        return (*groups[:place], (first, changed), *groups[place + 1 :])

    def _riding(self, groups: Grouped, place: int | None, first: int) -> Grouped | None:
        """Groups in which one, or a new one, is a site with the next one on its tiles."""
        others = tuple(one for number, one in enumerate(groups) if number != place)
        if not _free(others, first, first + 1):
            return None
        names = tuple(site.name for site in self._subject.sites[first : first + 2])
        return with_group(others, first, GroupChoice(names, 0))

    def _banded(self, group: GroupChoice, last: int) -> GroupChoice:
        """Higher or lower bands."""
        rows = self._subject.rows(last)
        return replace(group, rows=beside(self._random, even_sizes(range(1, rows + 1), rows), group.rows))

    def _tiled(self, group: GroupChoice, first: int) -> GroupChoice:
        """Other channel tiles of one layer, its constants loaded once or in every band, or one tensor kept or not."""
        count = len(group.layers)
        member = int(self._random.integers(count))
        sites = self._subject.sites[first : first + count]
        channels = list(group.channels or (site.geometry.nest.channels for site in sites))
        held, kind = list(group.held or (True,) * count), int(self._random.integers(3))
        if kind == 0:
            held[member] = not held[member]
        elif kind == 1:
            nest = sites[member].geometry.nest
            legal = [size for size in range(1, nest.channels + 1) if allowed_channels(nest, size) == size]
            channels[member] = beside(self._random, even_sizes(legal, nest.channels), channels[member])
        elif group.kept:
            dropped = group.kept[int(self._random.integers(len(group.kept)))]
            return replace(group, kept=tuple(name for name in group.kept if name != dropped))
        else:
            return replace(group, kept=None)
        return replace(group, channels=tuple(channels), held=tuple(held))

    def _with(self, groups: Grouped, place: int | None, first: int, last: int) -> Grouped | None:
        """Groups in which one, or a new one, goes from site ``first`` to site ``last``; None where that cannot be."""
        others = tuple(one for number, one in enumerate(groups) if number != place)
        if last <= first:
            return others
        if not _free(others, first, last) or not self._subject.groupable(first, last):
            return None
        sites = self._subject.sites[first : last + 1]
        before = None if place is None or not groups[place][1].rows else groups[place]
        return with_group(others, first, self._made(sites, first, before))

    def _made(self, sites: Sequence[Site], first: int, before: tuple[int, GroupChoice] | None) -> GroupChoice:
        """A group of these sites, as far as they were in one as they were there, else whole and kept."""
        rows = self._subject.rows(first + len(sites) - 1)
        bands = even_sizes(range(1, rows + 1), rows)
        if before is None:
            band = bands[int(self._random.integers(len(bands)))]
            return GroupChoice(tuple(site.name for site in sites), band)
        start, group = before
        channels, held = [], []
        for number, site in enumerate(sites, start=first):
            inside = start <= number < start + len(group.layers)
            channels.append(
                group.channels[number - start] if inside and group.channels else site.geometry.nest.channels
            )
            held.append(group.held[number - start] if inside and group.held else True)
        band = next((size for size in bands if size <= group.rows), bands[-1])
        return GroupChoice(tuple(site.name for site in sites), band, None, tuple(channels), tuple(held))


def _free(groups: Grouped, first: int, last: int) -> bool:
    """Whether sites ``first`` to ``last`` are in none of some groups."""
    return all(other > last or other + len(one.layers) <= first for other, one in groups)


def with_group(groups: Grouped, first: int, group: GroupChoice) -> Grouped:
    """Groups with one more, in place of those of which it takes layers."""
    last = first + len(group.layers) - 1
    others = (one for one in groups if one[0] > last or one[0] + len(one[1].layers) <= first)
    return tuple(sorted((*others, (first, group)), key=lambda one: one[0]))
