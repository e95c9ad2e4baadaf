"""Search loop: propose points, evaluate them in batches, and report results to the sampler.

The loop stops at the trial budget. Optuna proposes points. Its proposals depend only on the axes,
the seed and the reported results, never on the machine or the time. An interrupted search needs
only the results file of its sweep: when restarted it repeats the same steps, reads the stored rows,
and continues.
"""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.sweep.request import SamplerName
from experiments.sweep.results import FlatRow, Pair
from isa.errors import MissingExtraError
from isa.installation import remedy
from isa.progress import silent

if TYPE_CHECKING:
    from optuna import Trial


Axes = Mapping[str, tuple[Any, ...]]
Places = tuple[int, ...]
"""A point of the grid: the index of its value on every axis."""

POPULATION = 8
"""Population of NSGA-II, and number of random trials before TPE.

Larger ones converged more slowly (docs/sweeps.md).
"""
TRIES = 100
"""Neighbours that are tried to find a new one."""


class Proposer:
    """Sampler that proposes machine configurations to evaluate, none of them twice.

    At least one of ``axes`` has two or more values; less is better in both objectives.

    Raises InputError if Optuna is not installed.
    """

    def __init__(self, axes: Axes, sampler: SamplerName, seed: int) -> None:
        optuna = _optuna()
        self._axes = {name: values for name, values in axes.items() if len(values) > 1}
        self._orders = {name: _order(values) for name, values in self._axes.items()}
        self._sampler = sampler
        self._seed = seed
        self._number = 0
        self._seen: set[Places] = set()
        with _silently():
            self._study = optuna.create_study(directions=["minimize", "minimize"])

    @property
    def exhausted(self) -> bool:
        """True if every combination of values has been proposed."""
        return len(self._seen) == math.prod(len(values) for values in self._axes.values())

    def ask(self, count: int) -> list[tuple[Trial, dict[str, Any]]]:
        """Propose ``count`` configurations as (trial, values of the varying axes) pairs."""
        return [self._ask() for _ in range(count)]

    def tell(self, trial: Trial, costs: Pair | None, excluded: bool) -> None:
        """Report the objectives of an evaluated trial to the sampler.

        ``costs`` is None if the trial has none. ``excluded`` is True if the grid does not contain
        the point. A proposal that is known or excluded is not evaluated; a new neighbour of it is
        proposed soon.
        """
        from optuna.trial import TrialState

        places = self._places(trial)
        known = places in self._seen
        self._seen.add(places)
        with _silently():
            if costs is None:
                self._study.tell(trial, state=TrialState.FAIL)
            else:
                self._study.tell(trial, costs)
            if known or excluded:
                self._enqueue_neighbour(trial.number, places)

    def _ask(self) -> tuple[Trial, dict[str, Any]]:
        # A new sampler for every trial: proposals then depend on the study alone, not on a
        # sampler's state.
        self._study.sampler = _sampler(
            self._sampler, random.Random(f"{self._seed} {self._number}").getrandbits(31)
        )
        self._number += 1
        trial = self._study.ask()
        for name, order in self._orders.items():
            if order is None:
                trial.suggest_categorical(name, list(range(len(self._axes[name]))))
            else:
                trial.suggest_int(name, 0, len(order) - 1)
        values = zip(self._axes.items(), self._places(trial), strict=True)
        return trial, {name: values[place] for (name, values), place in values}

    def _places(self, trial: Trial) -> Places:
        chosen = (trial.params[name] for name in self._orders)
        return tuple(
            place if order is None else order[place]
            for place, order in zip(chosen, self._orders.values(), strict=True)
        )

    def _enqueue_neighbour(self, number: int, places: Places) -> None:
        """Queue a new configuration that differs in one axis from the one at ``places``.

        It differs in more axes if no new neighbour is found.
        """
        lengths = [len(values) for values in self._axes.values()]
        generator = random.Random(f"{self._seed} {number} neighbour")
        for attempt in range(TRIES):
            moved = list(places)
            for axis in generator.sample(range(len(lengths)), min(1 + attempt // 10, len(lengths))):
                moved[axis] = generator.randrange(lengths[axis])
            if tuple(moved) not in self._seen:
                self._enqueue(tuple(moved))
                return

    def _enqueue(self, places: Places) -> None:
        parameters = {
            name: place if order is None else order.index(place)
            for (name, order), place in zip(self._orders.items(), places, strict=True)
        }
        self._study.enqueue_trial(parameters, skip_if_exists=True)


def _order(values: Sequence[Any]) -> list[int] | None:
    """Return the indices that sort numeric values, or None if not all values are numbers.

    Close values are neighbours in this order.
    """
    if any(type(value) not in (int, float) for value in values):
        return None
    return sorted(range(len(values)), key=lambda place: values[place])


def _sampler(name: SamplerName, seed: int) -> Any:
    from optuna.samplers import NSGAIISampler, RandomSampler, TPESampler

    if name == "nsga2":
        return NSGAIISampler(seed=seed, population_size=POPULATION)
    if name == "tpe":
        return TPESampler(seed=seed, n_startup_trials=POPULATION)
    return RandomSampler(seed=seed)


def _optuna() -> Any:
    try:
        with warnings.catch_warnings():
            # tqdm, an import of Optuna, warns in notebooks without widgets
            warnings.simplefilter("ignore")
            import optuna
    except ImportError as error:
        raise MissingExtraError(
            f"dla explore needs Optuna; install it with: {remedy('explore')}"
        ) from error
    return optuna


@contextlib.contextmanager
def _silently() -> Iterator[None]:
    """Suppress Optuna's log on standard error; its level is a setting of the whole process."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


Proposal = dict[str, Any]
"""A value for every axis."""
Evaluate = Callable[[Sequence[Proposal]], list[FlatRow | None]]
"""Evaluation of proposals: their rows, None for a proposal that the constraints exclude."""
Costs = Callable[[FlatRow], Pair | None]
"""The two objectives of a row, less being better; None if it has none."""

TOGETHER = 8
"""Points proposed at once.

It does not depend on the number of workers, so every machine runs the same search.
"""
ATTEMPTS = 10
"""Proposals allowed per requested point, because proposals may be known or excluded."""


@dataclass(frozen=True)
class EvaluatedPoint:
    """An evaluated configuration: its row of results, and its two objectives if it ended ok."""

    row: FlatRow
    costs: Pair | None


def search(
    axes: Axes,
    evaluate: Evaluate,
    costs: Costs,
    *,
    points: int,
    sampler: SamplerName = "nsga2",
    seed: int = 0,
    report: Callable[[int], None] = silent,
) -> list[EvaluatedPoint]:
    """Search for the best configurations and return up to ``points`` evaluated ones, in order.

    Fewer are returned if the grid has no more, or if the sampler proposes nothing new. ``report``
    is called with the number of points found so far. Raises InputError if Optuna is not installed.
    """
    known: dict[str, EvaluatedPoint] = {}
    first = {name: values[0] for name, values in axes.items()}
    if all(len(values) == 1 for values in axes.values()):
        return [EvaluatedPoint(row, costs(row)) for row in evaluate([first]) if row is not None]
    proposer = Proposer(axes, sampler, seed)
    for _ in range(0, ATTEMPTS * points, TOGETHER):
        trials = proposer.ask(TOGETHER)
        rows = evaluate([first | choice for _, choice in trials])
        for (trial, _), row in zip(trials, rows, strict=True):
            found = None if row is None else EvaluatedPoint(row, costs(row))
            proposer.tell(trial, None if found is None else found.costs, excluded=found is None)
            if found is not None and len(known) < points:
                known.setdefault(found.row["key"], found)
        report(len(known))
        if len(known) >= points or proposer.exhausted:
            break
    return list(known.values())
