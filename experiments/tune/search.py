"""Evolution of a schedule: the best one so far, changed at several places, measured, and what of it was better kept.

A measurement says how long each layer took, not only how long the network: places that lie apart are changed at once,
and those that became faster, with their neighbours, are changed in the best schedule, which is measured next.
Everything follows from the seed and from what was measured, so that a search can be taken up where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import numpy as np

from byoc.choices import Choices
from byoc.scheduling.chosen import choice_of
from experiments.tune.model import CostModel
from experiments.tune.moves import PLACES, Moves
from experiments.tune.state import Move, State, Tried, combined, state_of
from experiments.tune.subject import Measurement, Subject
from experiments.tune.transfer import Donor
from experiments.tune.units import Features, Units

POOL, GROUP_POOL = 24, 32
"""Candidates that the model ranks for every layer alone, and for every group."""
BREADTH, PART = 8, 4
"""Places that are changed at once, at most: so many, or one in so many layers where that is more."""
EAGER = 10
"""Measurements in which all that a donor's model promises is tried, as far as places lie apart."""
HOPE = 0.1
"""Share of what sites take beside the least that a move is hoped to save beyond what the model promises."""
TRAINING = 1.15
"""The model is trained again when there are so many times the samples that it knows."""
IDLE = 100
"""Proposals that have all been measured before, after which there is nothing else to try."""

Proposals = Generator[Choices, Measurement, None]


class Evolution:
    """One search. Without a ``model`` nothing is ranked: what is drawn is measured."""

    def __init__(self, subject: Subject, seed: int, model: CostModel | None) -> None:
        self._subject, self._model = subject, model
        self._random = np.random.default_rng(seed)
        self._moves = Moves(subject, self._random)
        self._units = Units(subject)
        self._samples: list[Features] = []
        self._cycles: list[int] = []
        self._trained = 0
        self._seen: set[State] = set()
        self._least = [subject.search(number).cost.least_compute().cycles for number in range(len(subject.sites))]

    def proposals(self, donor: Callable[[Tried], Donor | None] = lambda own: None) -> Proposals:
        """The compiler's schedule, a ``donor``'s or that for less memory, then evolution until nothing is new.

        Each measurement is sent back.
        """
        start = state_of(self._subject.own())
        found = yield self.choices_of(start)
        if found.cycles is None:  # it is what the compiler has just placed
            raise AssertionError("the compiler's own schedule finds no place")
        best = self._learned(start, found)
        assert best is not None
        found_donor = self._moves.donor = donor(best)
        if found_donor is not None and found_donor.whole is not None:
            best = yield from self._try(state_of(found_donor.whole), best)
        for other in self._subject.others() if found_donor is None else ():
            best = yield from self._round(best, self._moves.between(best.state, state_of(other)))
        idle = 0
        while idle < IDLE:
            known = len(self._seen)
            best = yield from self._round(best, self._chosen(best))
            idle = idle + 1 if len(self._seen) == known else 0

    def _try(self, state: State, best: Tried) -> Generator[Choices, Measurement, Tried]:
        """Measure a schedule; the better of it and ``best``."""
        if state in self._seen:
            return best
        tried = self._learned(state, (yield self.choices_of(state)))
        return best if tried is None or tried.cycles >= best.cycles else tried

    def _round(self, best: Tried, moves: Sequence[Move]) -> Generator[Choices, Measurement, Tried]:
        """Measure ``best`` with some moves, then with those that were worth it; the best of all.

        Where they find no place together, half of them, the first ones, are measured instead.
        """
        state = combined(best.state, moves)
        self._moves.make(moves)
        if state in self._seen:
            return best
        tried = self._learned(state, (yield self.choices_of(state)))
        if tried is None:
            return (yield from self._round(best, moves[: len(moves) // 2]))
        gains = [move.gain(best, tried.sites) for move in moves]
        kept = [move for move, gain in zip(moves, gains, strict=True) if gain > 0]
        fewest = min(best, tried, key=lambda one: one.cycles)
        if best.cycles - sum(gain for gain in gains if gain > 0) >= fewest.cycles:
            return fewest
        return (yield from self._try(combined(best.state, kept), fewest))

    def _learned(self, state: State, found: Measurement) -> Tried | None:
        """What was measured of a schedule, after learning from it; None where it found no place."""
        self._seen.add(state)
        self._moves.note(state)
        if found.cycles is None:
            return None
        if self._model is not None:
            for unit in self._units.of(state):
                self._samples.append(unit.features)
                self._cycles.append(sum(found.sites[unit.first : unit.last + 1]))
            if len(self._samples) >= TRAINING * self._trained:
                self._model.train(self._samples, self._cycles)
                self._trained = len(self._samples)
        return Tried(state, found.cycles, found.sites)

    def _chosen(self, best: Tried) -> list[Move]:
        """What to change at once, the most promising first: by what the model promises, or by what there is to gain."""
        moves, weights = self._promising(best) if self._model is not None else self._random_moves(best)
        keys = np.log(np.maximum(np.array(weights), 1.0))
        breadth = len(moves)
        if not self._eager:
            keys += self._random.gumbel(size=len(weights))  # an order drawn by the weights
            breadth = max(BREADTH, len(best.sites) // PART)
        chosen: list[Move] = []
        for number in np.argsort(-keys, kind="stable").tolist():
            if len(chosen) < breadth and all(moves[number].apart(other) for other in chosen):
                chosen.append(moves[number])
        return chosen

    @property
    def _eager(self) -> bool:
        return self._moves.donor is not None and self._model is not None and len(self._seen) < EAGER

    def _random_moves(self, best: Tried) -> tuple[list[Move], list[float]]:
        """A move a place, with what there is to gain at most."""
        moves = [move for pool in self._moves.pools(best.state, 1, 1, 1) for move in pool[:1]]
        slack = [max(taken - least, 1) for taken, least in zip(best.sites, self._least, strict=True)]
        return moves, [sum(slack[move.first : move.last + 1]) / (move.last + 1 - move.first) for move in moves]

    def _promising(self, best: Tried) -> tuple[list[Move], list[float]]:
        """Of every place the move that the model likes best, with the cycles that it saves, 1 at least."""
        pools = [pool for pool in self._moves.pools(best.state, POOL, GROUP_POOL, PLACES) if pool]
        gains = iter(self._promised(best.state, [move for pool in pools for move in pool]))
        ranked = [max((next(gains), -place) for place in range(len(pool))) for pool in pools]
        moves = [pool[-place] for pool, (_, place) in zip(pools, ranked, strict=True)]
        hopes = [(move, gain, self._excess(best, move)) for move, (gain, _) in zip(moves, ranked, strict=True)]
        if self._eager:
            promised = [(move, gain) for move, gain, _ in hopes if gain > 0]
            return [move for move, _ in promised], [gain for _, gain in promised]
        tried = [(move, gain + HOPE * excess) for move, gain, excess in hopes if gain > -excess]
        return [move for move, _ in tried], [weight for _, weight in tried]

    def _excess(self, best: Tried, move: Move) -> float:
        """What the sites of a move take beside the least that they take as they are."""
        units = self._units.of(best.state, move.first, move.last)
        least = sum(unit.least for unit in units if unit.first <= move.last)
        return sum(best.sites[move.first : move.last + 1]) - least

    def _promised(self, base: State, moves: Sequence[Move]) -> list[float]:
        """The cycles that the model takes each move to save."""
        assert self._model is not None
        samples: list[Features] = []
        spans: list[tuple[int, int, int]] = []
        for move in moves:
            start = len(samples)
            samples += [unit.features for unit in self._units.of(base, move.first, move.last)]
            middle = len(samples)
            samples += [unit.features for unit in self._units.of(move.state, move.first, move.last)]
            spans.append((start, middle, len(samples)))
        cycles = self._model.predict(samples) if samples else np.zeros(0)
        return [float(cycles[a:b].sum() - cycles[b:c].sum()) for a, b, c in spans]

    def choices_of(self, state: State) -> Choices:
        """A schedule as data."""
        pairs = zip(self._subject.sites, state.tilings, strict=True)
        chosen = tuple(choice_of(site.name, tiling) for site, tiling in pairs)
        residents = tuple(name for _, name in self._subject.candidates if name in state.residents)
        return Choices(chosen, residents, tuple(group for _, group in state.groups))
