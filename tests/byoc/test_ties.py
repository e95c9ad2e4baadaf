"""Ties explain a difference of one step where rounding was a tie, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from byoc.checking.fidelity import TOLERANCE, compare
from byoc.checking.ties import Tensors, only_ties
from byoc.runtimes.session import OnnxRuntimeSession
from tests.byoc.small_models import ModelBuilder

STEP = 0.5
FACTORS = {"first": 0.25, "second": 1.5}


def _chain() -> onnx.ModelProto:
    """Return two quantisations with a factor before each: half of the first ones are ties.

    The second reads a dequantised copy of its own, as files of quantisers have it.
    """
    b = ModelBuilder()
    x = b.input("x", [1, 64])
    for name, factor in FACTORS.items():
        scaled = b.node("Mul", x, b.constant(factor, "float32"))
        q = b.quantize(scaled, STEP, 3)
        b.output(
            b.node(
                "DequantizeLinear",
                q,
                b.constant(STEP, "float32"),
                b.constant(3, "int8"),
                result=name,
            )
        )
        x = b.dequantize(q, STEP, 3)
    return b.model()


def _run(model: onnx.ModelProto, names: object, feed: Tensors) -> Tensors:
    wanted = [value.name for value in model.graph.output]
    further = [name for name in dict.fromkeys(names) if name not in wanted]  # type: ignore[call-overload]
    inputs = {value.name for value in model.graph.input}
    given = {name: array for name, array in feed.items() if name in inputs}
    return OnnxRuntimeSession(model, optimised=False, further=further).run(
        [*wanted, *further], given
    )


def _explained(change: Callable[[np.ndarray], np.ndarray], wrong: float = 0.0) -> bool:
    """Return True if ties explain a model with a changed first tensor.

    The second tensor follows from the first, plus ``wrong``.
    """
    feed = {"x": np.arange(64, dtype=np.float32).reshape(1, 64)}
    model = _chain()
    first = change(_run(model, [], feed)["first"])
    second = np.rint(first * np.float32(FACTORS["second"]) / STEP).astype(np.float32) * np.float32(
        STEP
    )
    after = {"first": first, "second": second + np.float32(wrong)}

    def differing(before: Tensors) -> set[str]:
        return {
            name for name, array in before.items() if compare(array, after[name]).is_beyond(None)
        }

    return only_ties(model, after, feed, differing, _run, TOLERANCE)


TIES = np.arange(64).reshape(1, 64) % 4 == 1
"""0.25 · x / 0.5 is a half there, and rounded down to an even number."""


@pytest.mark.parametrize(
    ("change", "wrong", "explained"),
    [
        (lambda one: one, 0.0, True),
        (lambda one: np.where(TIES, one + np.float32(STEP), one), 0.0, True),
        (lambda one: np.where(TIES, one + np.float32(2 * STEP), one), 0.0, False),
        (lambda one: one + np.float32(STEP), 0.0, False),
        (lambda one: np.where(TIES, one + np.float32(STEP), one), STEP, False),
    ],
    ids=["equal", "ties", "two steps", "everywhere", "wrong behind ties"],
)
def test_what_ties_explain(
    change: Callable[[np.ndarray], np.ndarray], wrong: float, explained: bool
) -> None:
    """One step at ties is explained.

    Two steps, a step elsewhere and another fault behind the ties are not.
    """
    assert _explained(change, wrong) == explained
