"""Evolution of a schedule: the best one so far, a little changed, measured, and what of it was better kept.

A measurement says how long each layer took, not only how long the network: where a changed schedule is worse as a
whole, those of its layers that became faster, with their neighbours, are taken over into the best one and measured
next. Everything follows from the seed and from what was measured, so that a search can be taken up where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from byoc.choices import Choices
from byoc.operators.operator import Geometry
from byoc.scheduling.chosen import choice_of, tiling_of
from byoc.tiling.tiling import Resident, Tiling
from experiments.tune.candidates import Drawing
from experiments.tune.grouping import Grouping
from experiments.tune.model import CostModel, Features, features
from experiments.tune.subject import Grouped, Measurement, Subject, placed

POOL = 24
"""Candidates that the model ranks for every site."""
REGROUPINGS = 0.25
"""Share of proposals in which layers come to be computed together, or otherwise."""
FLIPS = 0.2
"""Share of the others in which a tensor comes to stay in the scratchpad, or no longer does."""
WIDEST, WIDER, NARROWER = 0.5, 1.25, 0.9
"""Share of the sites that a proposal changes at most, and how that share moves with success and failure."""
TRAINING = 1.15
"""The model is trained again when there are so many times the samples that it knows."""

IDLE = 100
"""Proposals that have all been measured before, after which there is nothing else to try."""

Proposals = Generator[Choices, Measurement, None]


@dataclass(frozen=True)
class State:
    """A complete schedule: the tiling of every site, what stays in the scratchpad, and what is computed in groups.

    Of sites in groups the tilings are those that they would have alone.
    """

    tilings: tuple[Tiling, ...]
    residents: frozenset[str]
    groups: Grouped = ()

    @property
    def alone(self) -> tuple[int, ...]:
        """The sites in no group."""
        together = {first + place for first, group in self.groups for place in range(len(group.layers))}
        return tuple(number for number in range(len(self.tilings)) if number not in together)


@dataclass(frozen=True)
class Tried:
    """A schedule with what it was measured to take."""

    state: State
    cycles: int
    sites: tuple[int, ...]


class Evolution:
    """One search. Without a ``model`` nothing is ranked: what is drawn is measured."""

    def __init__(self, subject: Subject, seed: int, model: CostModel | None) -> None:
        self._subject, self._model = subject, model
        self._random = np.random.default_rng(seed)
        self._grouping = Grouping(subject, self._random)
        self._samples: list[Features] = []
        self._cycles: list[int] = []
        self._trained = 0
        self._share = WIDEST
        self._seen: set[State] = set()
        self._drawings: dict[tuple[Geometry, Resident, int], Drawing] = {}
        self._tested: dict[tuple[int, Resident], set[Tiling]] = {}
        self._least = [subject.search(number).cost.least_compute().cycles for number in range(len(subject.sites))]

    def proposals(self, offers: Callable[[Tried], Iterator[State]] = lambda own: iter(())) -> Proposals:
        """Schedules to measure: the compiler's own, then ``offers``, then evolution until nothing new is found.

        Each measurement is sent back.
        """
        start = state_of(self._subject.own())
        found = yield self.choices_of(start)
        if found.cycles is None:  # it is what the compiler has just placed
            raise AssertionError("the compiler's own schedule finds no place")
        best = self._learned(start, found)
        assert best is not None
        for offer in offers(best):
            best = yield from self._try(offer, best)
        idle = 0
        while idle < IDLE:
            before, known = best, len(self._seen)
            best = yield from self._try(self._changed(best), best)
            idle = idle + 1 if len(self._seen) == known else 0
            wide = self._share * (NARROWER if best is before else WIDER)
            self._share = min(WIDEST, max(wide, 1 / len(self._subject.sites)))

    def _try(self, state: State, best: Tried) -> Generator[Choices, Measurement, Tried]:
        """Measure ``state``; where it is no better, what of it is, in ``best``. The better of all."""
        if state in self._seen:
            return best
        tried = self._learned(state, (yield self.choices_of(state)))
        if tried is None:
            return best
        if tried.cycles < best.cycles:
            return tried
        merged = self._merged(best, tried)
        if merged is None or merged in self._seen:
            return best
        crossed = self._learned(merged, (yield self.choices_of(merged)))
        return crossed if crossed is not None and crossed.cycles < best.cycles else best

    def _merged(self, best: Tried, other: Tried) -> State | None:
        """The best schedule with those sites of another that were faster there; None where there are none."""
        if (other.state.residents, other.state.groups) != (best.state.residents, best.state.groups):
            return None
        tilings = list(best.state.tilings)
        for number, tiling in enumerate(other.state.tilings):
            around = slice(max(number - 1, 0), number + 2)
            if sum(other.sites[around]) < sum(best.sites[around]):
                tilings[number] = tiling
        merged = replace(best.state, tilings=tuple(tilings))
        return None if merged == best.state else merged

    def _learned(self, state: State, found: Measurement) -> Tried | None:
        """What was measured of a schedule, after learning from it; None where it found no place."""
        self._seen.add(state)
        for number in state.alone:
            tiling = state.tilings[number]
            resident, budget = self._room(number, state.residents)
            self._tested.setdefault((number, resident), set()).add(tiling)
            if self._model is not None and found.cycles is not None:
                self._samples.append(self._features(number, tiling, resident, budget))
                self._cycles.append(found.sites[number])
        if self._model is not None and len(self._samples) >= TRAINING * self._trained:
            self._model.train(self._samples, self._cycles)
            self._trained = len(self._samples)
        return None if found.cycles is None else Tried(state, found.cycles, found.sites)

    def _changed(self, best: Tried) -> State:
        """The best schedule with other groups, a resident more or less, or else other tilings at some sites.

        One kind of change at a time, for a tiling that is tried for the first time mostly costs more.
        """
        before = best.state
        groups, residents = before.groups, before.residents
        if self._random.random() < REGROUPINGS:
            groups = self._grouping.changed(groups) or groups
        elif self._subject.candidates and self._random.random() < FLIPS:
            _, name = self._subject.candidates[int(self._random.integers(len(self._subject.candidates)))]
            residents = residents ^ {name}
        fitted = self._refitted(before, residents, groups) or before
        if fitted not in self._seen:
            return fitted
        tilings = list(before.tilings)
        for number, tiling in self._chosen(best, before):
            tilings[number] = tiling
        return replace(before, tilings=tuple(tilings))

    def _refitted(self, state: State, residents: frozenset[str], groups: Grouped) -> State | None:
        """A schedule with other residents and groups: the compiler's tilings where the room is another; None: none."""
        tilings = list(state.tilings)
        for number in State(state.tilings, residents, groups).alone:
            before, (resident, budget) = self._room(number, state.residents), self._room(number, residents)
            search, tiling = self._subject.search(number), tilings[number]
            shape = search.cost.shape(tiling.channels, tiling.rows, tiling.depth)
            if resident == before[0] and search.cost.working_set(shape, tiling, resident) <= budget:
                continue
            found = search.best(resident, budget)
            if found is None:
                return None
            tilings[number] = found.tiling
        return State(tuple(tilings), residents, groups)

    def _chosen(self, best: Tried, state: State) -> Iterator[tuple[int, Tiling]]:
        """Other tilings for some sites: by the gain that the model promises, or by what is left to gain at most."""
        alone = {number: state.tilings[number] for number in state.alone}
        if not alone:
            return
        count = int(self._random.integers(1, max(2, round(self._share * len(alone)) + 1)))
        if self._model is None:
            slack = [max(best.sites[number] - self._least[number], 1) for number in alone]
            for number in self._weighted(list(alone), slack)[:count]:
                found = self._drawn(number, alone[number], state.residents, 1)
                yield from ((number, tiling) for tiling in found)
            return
        offers = {number: self._ranked(number, tiling, state.residents) for number, tiling in alone.items()}
        promising = {number: offer for number, offer in offers.items() if offer is not None}
        gains = [max(gain, 1.0) for _, gain in promising.values()]
        for number in self._weighted(list(promising), gains)[:count]:
            yield number, promising[number][0]

    def _weighted(self, numbers: Sequence[int], weights: Sequence[float]) -> list[int]:
        """All of ``numbers`` in an order drawn by weights: the heavy ones mostly first (keys after Gumbel)."""
        keys = np.log(np.array(weights, np.float64)) + self._random.gumbel(size=len(numbers))
        return [numbers[place] for place in np.argsort(-keys, kind="stable").tolist()]

    def _ranked(self, number: int, known: Tiling, residents: frozenset[str]) -> tuple[Tiling, float] | None:
        """The tiling that the model likes best of some that were never measured there, and the cycles that it saves."""
        assert self._model is not None
        drawn = self._drawn(number, known, residents, POOL)
        if not drawn:
            return None
        resident, budget = self._room(number, residents)
        seen = [self._features(number, tiling, resident, budget) for tiling in (known, *drawn)]
        cycles = self._model.predict(seen)
        place = int(np.argmin(cycles[1:]))
        return drawn[place], float(cycles[0] - cycles[1 + place])

    def _drawn(self, number: int, known: Tiling, residents: frozenset[str], count: int) -> list[Tiling]:
        """Up to ``count`` different tilings of a site that were never measured there."""
        resident, budget = self._room(number, residents)
        key = self._subject.sites[number].geometry, resident, budget
        drawing = self._drawings.get(key)
        if drawing is None:
            drawing = self._drawings[key] = Drawing(key[0], self._subject.arch, resident, budget)
        tested = self._tested.get((number, resident), set())
        found: dict[Tiling, None] = {}
        for _ in range(2 * count):
            tiling = drawing.near(self._random, known)
            if tiling is not None and tiling not in tested:
                found[tiling] = None
            if len(found) == count:
                break
        return list(found)

    def _room(self, number: int, residents: frozenset[str]) -> tuple[Resident, int]:
        return self._subject.room(self._subject.sites[number], residents)

    def _features(self, number: int, tiling: Tiling, resident: Resident, budget: int) -> Features:
        return features(self._subject.search(number).cost, self._subject.sites[number], tiling, resident, budget)

    def choices_of(self, state: State) -> Choices:
        """A schedule as data."""
        pairs = zip(self._subject.sites, state.tilings, strict=True)
        chosen = tuple(choice_of(site.name, tiling) for site, tiling in pairs)
        residents = tuple(name for _, name in self._subject.candidates if name in state.residents)
        return Choices(chosen, residents, tuple(group for _, group in state.groups))


def state_of(choices: Choices) -> State:
    """Complete choices as a schedule."""
    groups = placed([choice.layer for choice in choices.layers], choices.groups or ())
    return State(tuple(map(tiling_of, choices.layers)), frozenset(choices.residents or ()), groups)
