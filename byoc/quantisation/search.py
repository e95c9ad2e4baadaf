"""Search for the quantisation that keeps the most of a float model's results.

The search compares ways to choose ranges on the calibration samples. If none is accurate enough, it
keeps tensors in float, those first whose rounding to int8 adds the most noise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from onnx import ModelProto

from byoc.frontend.onnx.rewriting.integers import quantise_tables, select_integers
from byoc.operators.onnx_view import ADD, CAST, MULTIPLY, SUBTRACT
from byoc.package.package import QuantisationTrial
from byoc.quantisation.calibrate import Feeds, Ranges
from byoc.quantisation.power_of_two import PowerOfTwoWriter
from byoc.quantisation.quantize import BoundaryWriter, quantise_within
from byoc.quantisation.refine import RANGE_METHODS, refine_ranges
from byoc.quantisation.resemblance import MOST_DECIBELS, compare_pairs, resemblance
from byoc.quantisation.samples import CalibrationSamples
from byoc.quantisation.wide import ProbeWriter, SumsWriter, WideTensors
from byoc.runtimes.protobuf import free_constants
from byoc.runtimes.session import OnnxRuntimeSession
from isa.progress import Progress

TARGET = 25.0
"""Signal-to-noise ratio in decibels below which the search keeps tensors in float."""
GAIN = 12.0
"""Decibels above the first trial that the search then tries to reach."""
LEAST_GAIN = 0.3
"""Decibels by which a group of tensors in float must raise the ratio to stay in float."""
_COUNTS = 1, 2, 4, 8, 16, 32
"""Numbers of groups of tensors in float that the search tries."""
_PROBED = 3
"""Number of samples on which the search measures the noise of one tensor."""
_CONVERSIONS = frozenset({ADD, CAST, MULTIPLY, SUBTRACT})
"""Operators that convert the sums of products to float."""
_LISTED = 10
"""Number of tensors in the list of those that add the most noise."""


@dataclass(frozen=True, eq=False)
class Found:
    """Quantised model, the trials that led to it, and its operators left in float.

    ``noise`` has the signal-to-noise ratio in decibels if only one activation is rounded to int8,
    for the activations that add the most noise.
    """

    model: ModelProto
    trials: tuple[QuantisationTrial, ...] = ()
    in_float: tuple[str, ...] = ()
    noise: Mapping[str, float] | None = None


class QuantisationSearch:
    """Quantisation of a prepared float model, which ``handed`` contains and the object removes.

    ``ranges`` are from minimum to maximum. ``exact`` are the float model's outputs on the samples
    that were kept. The methods other than ``minmax`` use only these samples.
    """

    def __init__(
        self,
        handed: list[ModelProto],
        ranges: Ranges,
        samples: CalibrationSamples,
        exact: Sequence[Feeds],
        on_grids: bool,
        progress: Progress,
    ) -> None:
        self._handed = handed
        self._ranges = ranges
        self._feeds = samples.kept[: len(exact)]
        self._exact = exact
        self._state = samples.state
        self._on_grids = on_grids
        self._progress = progress
        self._trials: list[QuantisationTrial] = []

    def run(self, method: str, weight_bits: Mapping[str, int]) -> Found:
        """Return the model quantised by ``method``; ``auto`` compares those with free scales."""
        # Without a reference, so that the quantiser can free the model.
        if method == "power-of-two":
            writer = partial(PowerOfTwoWriter, weight_bits=weight_bits)
            return Found(self._write(self._handed, self._ranges, writer))
        if method == "minmax" or not self._feeds:
            return Found(self._write(self._handed, self._ranges))
        self._model = self._handed.pop()
        if method != "auto":
            return self._refine(method)
        found = {name: self._refine(name) for name in ("minmax", *RANGE_METHODS)}
        levels = {name: self._try(name, one) for name, one in found.items()}
        noise: dict[str, float] = {}
        if max(levels.values()) < TARGET:
            # With minmax, because a tensor in float does not remove the errors of narrower ranges.
            noise = self._measure_noise()
            tensors = WideTensors(self._model)
            wide = self._find_wide(tensors, list(noise), levels["minmax"])
            if wide:
                name = "minmax + float"
                found[name] = self._keep_float(tensors, wide)
                levels[name] = self._try(name, found[name])
        best = max(levels, key=lambda name: levels[name])
        trials = (replace(one, chosen=one.method == best) for one in self._trials)
        listed = dict(list(noise.items())[:_LISTED])
        return replace(found[best], trials=tuple(trials), noise=listed)

    def _try(self, name: str, found: Found) -> float:
        """Record a trial; return the decibels of its worst output."""
        self._progress(f"comparing {name} with float")
        levels, classes = resemblance(self._exact, found.model, self._feeds)
        level = min(levels.values(), default=MOST_DECIBELS)
        agreement = min(classes.values(), default=None)
        self._trials.append(QuantisationTrial(name, level, agreement, len(found.in_float)))
        return level

    def _refine(self, method: str) -> Found:
        self._progress(f"quantising by {method}")
        given = self._model, self._feeds, self._ranges
        return Found(self._write([self._model], refine_ranges(*given, method, self._state)))

    def _write(
        self,
        handed: list[ModelProto],
        ranges: Ranges,
        writer: Callable[..., BoundaryWriter] = BoundaryWriter,
    ) -> ModelProto:
        """Remove a model from the list and quantise it, with its tables and selections in integers.

        ``ranges`` are those of the model's tensors.
        """
        made = quantise_within(
            handed.pop(), ranges, on_grids=self._on_grids, state=self._state, writer=writer
        )
        free = free_constants if handed is self._handed else lambda model: None
        free(made)  # the float model is gone
        made = select_integers(quantise_tables(made))
        free(made)
        return made

    def _keep_float(self, tensors: WideTensors, wide: Collection[str]) -> Found:
        """Quantise the model but for the tensors ``wide``."""
        in_float = tensors.list_float_nodes(wide)
        writer = partial(SumsWriter, sums=tensors.sums, in_float=in_float, wide=wide)
        made = self._write([self._model], self._ranges, writer)
        given = {node.name for node in self._model.graph.node}
        added = (
            node.name
            for node in made.graph.node
            if node.op_type in _CONVERSIONS and node.name not in given
        )
        return Found(made, in_float=(*sorted(in_float), *added))

    def _find_wide(self, tensors: WideTensors, noisy: list[str], first: float) -> frozenset[str]:
        """Return the tensors to keep in float so that the ratio reaches the target.

        ``first`` is the ratio without them. Groups of tensors are added in the order of ``noisy``,
        twice as many each time. Those that are not needed or gain too little are then removed.
        """
        target = max(TARGET, first + GAIN)

        def join(chosen: Collection[str]) -> frozenset[str]:
            return frozenset(name for one in chosen for name in tensors.groups[one])

        def level_of(chosen: Collection[str]) -> float:
            self._progress(f"comparing {len(chosen)} groups of tensors in float")
            model = self._keep_float(tensors, join(chosen)).model
            levels, _ = resemblance(self._exact, model, self._feeds)
            return min(levels.values(), default=MOST_DECIBELS)

        roots = {name: root for root, group in tensors.groups.items() for name in group}
        order: list[str] = []
        for name in dict.fromkeys(roots[name] for name in noisy if name in roots):
            if len(order) < _COUNTS[-1] and tensors.is_within_budget(join([*order, name])):
                order.append(name)
        chosen, reached = order[:0], first
        for count in _COUNTS:
            if reached < target and len(chosen) < len(order):
                found = level_of(order[:count])
                if found >= reached + LEAST_GAIN:
                    chosen, reached = order[:count], found
        for name in reversed(chosen):
            fewer = [one for one in chosen if one != name]
            found = level_of(fewer) if fewer else first
            if found >= min(reached - LEAST_GAIN, target):
                chosen, reached = fewer, max(found, reached)
        return join(chosen)

    def _measure_noise(self) -> dict[str, float]:
        """Return the decibels of the worst output if one tensor is rounded, lowest first."""
        probe = ProbeWriter(self._model, self._ranges, {}, self._on_grids, self._state)
        session = OnnxRuntimeSession(probe.write_model(), optimised=False)
        pairs = list(zip(self._exact, self._feeds, strict=True))[:_PROBED]
        found = {}
        for number, name in enumerate(probe.switches):
            self._progress(f"measuring the noise of tensor {number + 1} of {len(probe.switches)}")
            on = {switch: np.array(one == name) for one, switch in probe.switches.items()}
            outputs = ((exact, session.run([*exact], {**feed, **on})) for exact, feed in pairs)
            found[name] = min(compare_pairs(outputs)[0].values(), default=0.0)
        return dict(sorted(found.items(), key=lambda each: each[1]))
