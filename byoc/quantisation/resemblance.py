"""Compare the outputs of a quantised model with the outputs of its float model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.quantisation.calibrate import Feeds
from byoc.runtimes.pieces import Run, find_unfused, run_in_pieces
from byoc.runtimes.session import OnnxRuntimeSession

MOST_DECIBELS = 200.0
"""Ratio reported for an output without any noise."""


def outputs_of(model: ModelProto, feeds: Iterable[Feeds]) -> list[Feeds]:
    """Return the outputs of a float model for each of ``feeds``."""
    names = [value.name for value in model.graph.output]
    session = OnnxRuntimeSession(model, optimised=False)
    return [session.run(names, feed) for feed in _inputs_only(model, feeds)]


def _inputs_only(model: ModelProto, feeds: Iterable[Feeds]) -> list[Feeds]:
    return [{value.name: feed[value.name] for value in model.graph.input} for feed in feeds]


def resemblance(
    outputs: Sequence[Feeds], integer_model: ModelProto, feeds: Iterable[Feeds]
) -> tuple[dict[str, float], dict[str, float]]:
    """Compare a quantised model with the float model's ``outputs`` on the same ``feeds``.

    Returns two mappings by output name. The first is the signal-to-noise ratio of every float
    output over all feeds, in decibels. The second is for outputs with class scores, one row per
    sample: the share of rows in which both have their first maximum at the same position.
    """
    names = list(outputs[0])
    run = run_in_pieces(integer_model, names, find_unfused(integer_model.graph), _make_run)
    given = _inputs_only(integer_model, feeds)
    return compare_pairs((wanted, run(feed)) for wanted, feed in zip(outputs, given, strict=True))


def _make_run(model: ModelProto) -> Run:
    """Return a function that runs a quantised model on ONNX Runtime's fastest operators."""
    names = [value.name for value in model.graph.output]
    return partial(OnnxRuntimeSession(model, quick=True).run, names)


def compare_pairs(
    pairs: Iterable[tuple[Feeds, Feeds]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Return decibels and the share of equal classes by output, for pairs of exact and other ones.

    :func:`resemblance` describes both.
    """
    signals: dict[str, float] = defaultdict(float)
    errors: dict[str, float] = defaultdict(float)
    equal: dict[str, list[NDArray[np.bool_]]] = {}
    levels: dict[str, float] = {}
    for wanted, found in pairs:
        for name in (name for name in wanted if wanted[name].dtype == np.float32):
            signals[name] += float(np.square(wanted[name], dtype=np.float64).sum())
            errors[name] += _error(wanted[name], found[name])
            levels[name] = _decibels(signals[name], errors[name])
            if _has_class_scores(wanted[name]):
                rows = (
                    array.reshape(array.shape[:2]).argmax(1)
                    for array in (wanted[name], found[name])
                )
                equal.setdefault(name, []).append(np.equal(*rows))
    return levels, {name: float(np.concatenate(rows).mean()) for name, rows in equal.items()}


def _has_class_scores(array: NDArray[Any]) -> bool:
    """Return True if an output has one row of scores per sample.

    Further dimensions of size 1 are ignored.
    """
    return (
        array.ndim >= 2 and array.shape[1] > 1 and 0 < array.size == array.shape[0] * array.shape[1]
    )


def _error(signal: NDArray[Any], found: NDArray[Any]) -> float:
    """Return the sum of squared differences between two outputs.

    If a data-dependent output has another shape, the result is the signal's own sum of squares.
    """
    differs = (
        signal.astype(np.float64) - found
        if signal.shape == found.shape
        else signal.astype(np.float64)
    )
    return float(np.square(differs).sum())


def _decibels(power: float, error: float) -> float:
    if not np.isfinite((power, error)).all():
        return -MOST_DECIBELS
    if not error:
        return MOST_DECIBELS
    ratio = max(power / error, 10 ** (-MOST_DECIBELS / 10))
    return round(min(10 * float(np.log10(ratio)), MOST_DECIBELS), 1)
