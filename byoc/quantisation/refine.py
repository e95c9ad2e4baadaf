"""Narrow the ranges of float tensors: cut rare values if that lowers the error of int8."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.quantisation.calibrate import NO_STATE, Feeds, Pairs, Ranges, share_ranges
from byoc.runtimes.session import OnnxRuntimeSession

Histogram = NDArray[np.float64]
_STEPS = 255
_BINS = 2048
_CUT = 1e-4
"""Share of a tensor's values that a percentile range may cut at each end."""
_FACTORS = np.linspace(1, 0.1, 19)
"""Shares of the low and of the high end that the search for the least mean-square error tries."""
_AT_A_TIME = 32
"""Number of tensors that are observed at a time; for more, the model runs again."""


def refine_ranges(
    model: ModelProto, feeds: Sequence[Feeds], ranges: Ranges, method: str, state: Pairs = NO_STATE
) -> Ranges:
    """Return narrower ranges of a float model's tensors, by a method of ``RANGE_METHODS``.

    ``ranges`` are from minimum to maximum; other methods return them unchanged.
    """
    if method not in RANGE_METHODS:
        return ranges
    found = dict(ranges)
    inputs = [value.name for value in model.graph.input]
    own = {value.name for value in model.graph.output}
    names = list(ranges)
    for start in range(0, len(names), _AT_A_TIME):
        part = names[start : start + _AT_A_TIME]
        made = [name for name in part if name not in inputs]
        further = [name for name in made if name not in own]
        session = OnnxRuntimeSession(model, optimised=False, further=further)
        counts = dict.fromkeys(part, np.zeros(_BINS))
        for feed in feeds:
            values = {**feed, **session.run(made, {name: feed[name] for name in inputs})}
            for name in part:
                low, high = map(float, ranges[name])
                counts[name] = counts[name] + np.histogram(values[name], _BINS, (low, high))[0]
        for name in part:
            if counts[name].sum():
                ends = RANGE_METHODS[method](counts[name], *map(float, ranges[name]))
                found[name] = np.float32(min(ends[0], 0)), np.float32(max(ends[1], 0))
    return share_ranges(model, found, state)


def _percentile(counts: Histogram, low: float, high: float) -> tuple[float, float]:
    """Cut at most _CUT of a tensor's values at each end of its range."""
    edges = np.linspace(low, high, _BINS + 1)
    below = np.cumsum(counts) / counts.sum()
    first, last = np.searchsorted(below, _CUT, side="right"), np.searchsorted(below, 1 - _CUT)
    return float(edges[first]), float(edges[last + 1])


def _least_error(counts: Histogram, low: float, high: float) -> tuple[float, float]:
    """Return the range with the least mean-square error of clipping and rounding to int8."""
    centres = np.linspace(low, high, 2 * _BINS + 1)[1::2]
    errors = {}
    for one in _FACTORS if low < 0 else _FACTORS[:1]:
        for other in _FACTORS if high > 0 else _FACTORS[:1]:
            ends = float(low * one), float(high * other)
            clipped = centres - np.clip(centres, *ends)
            step = (ends[1] - ends[0]) / _STEPS
            rounding = step * step / 12 * counts[clipped == 0].sum()
            errors[ends] = float(clipped * clipped @ counts) + rounding
    return min(errors, key=lambda ends: errors[ends])


RANGE_METHODS: Mapping[str, Callable[[Histogram, float, float], tuple[float, float]]] = {
    "percentile": _percentile,
    "mse": _least_error,
}
"""Function from a tensor's histogram and range to its new range, by method."""
