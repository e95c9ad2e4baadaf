"""Evolution of schedules: start from the compiler's choices, recombine, mutate, measure.

The compiler's choices are those for several memory sizes.

A measurement gives the cycles of every layer. The search keeps the measurements piece by piece, and
measures next the best schedule combined from pieces of all schedules. Then it changes a schedule
that is about as good in several places at once, which creates new pieces. It can thus find two
groups that pay only together. Everything follows from the seed and the measurements, so a search
can be resumed.
"""

from collections.abc import Callable, Generator, Sequence

import numpy as np

from byoc.options import Choices
from byoc.scheduling.residency import choice_of
from byoc.tuning.measured import MeasuredPieces
from byoc.tuning.moves import PLACES, Moves
from byoc.tuning.subject import (
    SHARES,
    Measurement,
    Move,
    State,
    Tried,
    TuningSubject,
    combine_moves,
    state_of,
)
from byoc.tuning.transfer import Donor
from byoc.tuning.units import Features, Units
from experiments.tune.model import CostModel

POOL = 24
GROUP_POOL = 32
"""Candidates that the model ranks for every single layer, and for every group."""
BREADTH = 8
PART = 4
"""Most places changed at once: ``BREADTH``, or one in ``PART`` layers if that is more."""
EAGER = 10
"""Number of first measurements that try at once everything that pays by a donor's model."""
HOPE = 0.1
"""Share of the excess cycles of its sites that a move may save beyond the model's prediction."""
TRAINING = 1.15
"""Growth of the number of samples after which the model is trained again."""
NOISE = 0.02
"""Standard deviation of the logarithm of the random factor on the cycles of pieces.

The search applies the factor when it draws a base schedule.
"""
SMALLER = tuple(share for share in SHARES if share < 100)
"""Smaller shares of the scratchpad; schedules for them also fit into the whole."""
IDLE = 100
"""Rounds without a new schedule after which the search ends."""

Proposals = Generator[Choices, Measurement, None]


class Evolution:
    """One search. Without a ``model``, candidates are not ranked: they are measured as drawn."""

    def __init__(self, subject: TuningSubject, seed: int, model: CostModel | None) -> None:
        self._subject = subject
        self._model = model
        self._random = np.random.default_rng(seed)
        self._moves = Moves(subject, self._random)
        self._units = Units(subject)
        spans = {name: subject.span(region, name) for region, name in subject.candidates}
        self._measured = MeasuredPieces(len(subject.sites), spans)
        self._samples: list[Features] = []
        self._cycles: list[int] = []
        self._trained = 0
        self._seen: set[State] = set()
        self._least = [
            subject.search(number).cost.compute.least().cycles
            for number in range(len(subject.sites))
        ]

    def _state_of(self, choices: Choices) -> State:
        return state_of(choices, self._subject.groupable)

    def proposals(self, donor: Callable[[Tried], Donor | None] = lambda own: None) -> Proposals:
        """Yield schedules to measure, from the compiler's own to new mutations.

        Between them it yields those of a ``donor`` and those for other memory sizes. The caller
        sends each measurement back. The generator ends when mutations give no new schedule.
        """
        start = self._state_of(self._subject.own())
        own = yield from self._try(start)
        if own is None:  # the compiler has just placed it
            raise AssertionError("the compiler's own schedule finds no place")
        found = self._moves.donor = donor(own)
        if found is not None and found.whole is not None:
            yield from self._try(self._state_of(found.whole))
        if self._eager:  # the donor's model predicts which pieces are worth measuring
            for promised in self._subject.others(SMALLER):
                self._expect(self._state_of(promised))
        others = map(self._state_of, self._subject.others(() if self._eager else SHARES))
        idle = 0
        while idle < IDLE:
            known = len(self._seen)
            yield from self._try(self._measured.best().state)
            other = next(others, None)
            if other is not None:
                yield from self._try(other)
            if other is None:
                yield from self._change(self._measured.best(None if self._eager else self._stretch))
            idle = idle + 1 if len(self._seen) == known else 0

    def _expect(self, state: State) -> None:
        """Store the cycles that the model predicts for the pieces of an unmeasured schedule."""
        assert self._model is not None
        self._measured.expect(
            state,
            self._model.predict([unit.features for unit in self._units.list_units(state)]).tolist(),
        )

    def _stretch(self) -> float:
        """Return a random factor near 1 for one piece of a schedule."""
        return float(np.exp(NOISE * self._random.normal()))

    def _try(self, state: State) -> Generator[Choices, Measurement, Tried | None]:
        """Measure a schedule; return None if memory planning fails or it was measured before."""
        if state in self._seen:
            return None
        return self._learn(state, (yield self.choices_of(state)))

    def _change(self, base: Tried) -> Generator[Choices, Measurement, None]:
        """Apply some moves to the schedule ``base`` and measure the result.

        If memory planning fails, retry with the first half of them.
        """
        moves = self._choose_moves(base)
        while moves:
            self._moves.make(moves)
            if (yield from self._try(combine_moves(base.state, moves))) is not None:
                return
            moves = moves[: len(moves) // 2]

    def _learn(self, state: State, found: Measurement) -> Tried | None:
        """Update the search with a measured schedule and return it; None if planning failed."""
        self._seen.add(state)
        self._moves.note(state)
        self._measured.note(state, None if found.cycles is None else found.sites)
        if found.cycles is None:
            return None
        if self._model is not None:
            for unit in self._units.list_units(state):
                self._samples.append(unit.features)
                self._cycles.append(sum(found.sites[unit.first : unit.last + 1]))
            if len(self._samples) >= TRAINING * self._trained:
                self._model.train(self._samples, self._cycles)
                self._trained = len(self._samples)
        return Tried(state, found.cycles, found.sites)

    def _choose_moves(self, best: Tried) -> list[Move]:
        """Return the moves to apply together to the best schedule, the most promising first.

        The model's prediction ranks them or, without a model, the possible gain.
        """
        moves, weights = (
            self._predict_best(best) if self._model is not None else self._random_moves(best)
        )
        keys = np.log(np.maximum(np.array(weights), 1.0))
        breadth = len(moves)
        if not self._eager:
            keys += self._random.gumbel(size=len(weights))  # a random order weighted by promise
            breadth = max(BREADTH, len(best.sites) // PART)
        chosen: list[Move] = []
        for number in np.argsort(-keys, kind="stable").tolist():
            if len(chosen) < breadth and all(
                moves[number].is_apart_from(other) for other in chosen
            ):
                chosen.append(moves[number])
        return chosen

    @property
    def _eager(self) -> bool:
        return self._moves.donor is not None and self._model is not None and len(self._seen) < EAGER

    def _random_moves(self, best: Tried) -> tuple[list[Move], list[float]]:
        """Return one random move per place in a schedule, and each move's largest possible gain."""
        moves = [move for pool in self._moves.pools(best.state, 1, 1, 1) for move in pool[:1]]
        slack = [
            max(taken - least, 1) for taken, least in zip(best.sites, self._least, strict=True)
        ]
        return moves, [
            sum(slack[move.first : move.last + 1]) / (move.last + 1 - move.first) for move in moves
        ]

    def _predict_best(self, best: Tried) -> tuple[list[Move], list[float]]:
        """Return the moves that the model prefers, one per promising place, with weights.

        A weight is the predicted gain in cycles. If an eager search finds no gain, and in a search
        that is not eager, :data:`HOPE` times the cycles above the least is added.
        """
        pools = [pool for pool in self._moves.pools(best.state, POOL, GROUP_POOL, PLACES) if pool]
        gains = iter(self._predict_savings(best.state, [move for pool in pools for move in pool]))
        ranked = [max((next(gains), -place) for place in range(len(pool))) for pool in pools]
        moves = [pool[-place] for pool, (_, place) in zip(pools, ranked, strict=True)]
        hopes = [
            (move, gain, self._excess(best, move))
            for move, (gain, _) in zip(moves, ranked, strict=True)
        ]
        if self._eager:
            promised = [(move, gain) for move, gain, _ in hopes if gain > 0]
            if promised:
                return [move for move, _ in promised], [gain for _, gain in promised]
        tried = [(move, gain + HOPE * excess) for move, gain, excess in hopes if gain > -excess]
        return [move for move, _ in tried], [weight for _, weight in tried]

    def _excess(self, best: Tried, move: Move) -> float:
        """Return the cycles of a move's layers above the minimum for their present tilings."""
        units = self._units.list_units(best.state, move.first, move.last)
        least = sum(unit.least for unit in units if unit.first <= move.last)
        return sum(best.sites[move.first : move.last + 1]) - least

    def _predict_savings(self, base: State, moves: Sequence[Move]) -> list[float]:
        """Return the cycles that the model predicts each move to save."""
        assert self._model is not None
        samples: list[Features] = []
        spans: list[tuple[int, int, int]] = []
        for move in moves:
            start = len(samples)
            samples += [
                unit.features for unit in self._units.list_units(base, move.first, move.last)
            ]
            middle = len(samples)
            samples += [
                unit.features for unit in self._units.list_units(move.state, move.first, move.last)
            ]
            spans.append((start, middle, len(samples)))
        cycles = self._model.predict(samples) if samples else np.zeros(0)
        return [float(cycles[a:b].sum() - cycles[b:c].sum()) for a, b, c in spans]

    def choices_of(self, state: State) -> Choices:
        pairs = zip(self._subject.sites, state.tilings, strict=True)
        chosen = tuple(choice_of(site.name, tiling) for site, tiling in pairs)
        residents = tuple(name for _, name in self._subject.candidates if name in state.residents)
        return Choices(chosen, residents, tuple(group for _, group in state.groups))
