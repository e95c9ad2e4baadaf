"""Learned cost model: a gradient-boosted regressor of the error of the compiler's estimates.

It learns the logarithm of measured over estimated cycles from features of a site, a tiling and its
room. Measurements of one layer or network therefore help to predict others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from byoc.tuning.units import FEATURES, Features
from isa.errors import InputError, MissingExtraError
from isa.files import write_atomically
from isa.installation import remedy
from isa.reading import read_bytes, text_of

if TYPE_CHECKING:
    import lightgbm

LEAST = 48
"""Fewest samples for training."""
ROUNDS = 120
BLUR = 200.0
"""Offset in cycles that is added to excess cycles before a logarithm.

With it, small differences do not count.
"""
MAXIMUM_BYTES = 1 << 26
_SETTINGS = {
    "objective": "regression",
    "learning_rate": 0.08,
    "num_leaves": 15,
    "min_data_in_leaf": 2,
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
}


def _excess(seen: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each sample's least possible cycles, and the logarithm of the estimated excess.

    The excess is the estimate minus the least cycles, plus :data:`BLUR`.
    """
    least = np.exp(seen[:, -2])
    estimate = np.exp(seen[:, -1])
    return least, np.log(np.maximum(estimate - least, 0.0) + BLUR)


def require_library() -> None:
    """Raise InputError if LightGBM is not installed."""
    try:
        import lightgbm  # noqa: F401
    except (ImportError, OSError) as error:
        raise MissingExtraError(
            "the learned cost model needs LightGBM; search with --no-model, or install it with: "
            f"{remedy('tune')}"
        ) from error


class CostModel:
    """Predictor of cycles; without enough training data it returns the compiler's own estimate."""

    def __init__(self, booster: lightgbm.Booster | None = None) -> None:
        self._booster = self._other = booster

    def train(self, samples: Sequence[Features], cycles: Sequence[int]) -> None:
        """Train the cost model on ``samples`` and their measured cycles.

        Training starts from the model that was taken over, if any.
        """
        import lightgbm

        if len(samples) < LEAST:
            return
        seen, place, often = np.unique(
            np.array(samples), axis=0, return_inverse=True, return_counts=True
        )
        least, estimated = _excess(seen)
        excess = np.bincount(place, np.array(cycles, np.float64)) / often - least
        wanted = np.log(np.maximum(excess, 0.0) + BLUR) - estimated
        data = lightgbm.Dataset(seen, wanted, weight=np.sqrt(often))
        self._booster = lightgbm.train(_SETTINGS, data, ROUNDS, init_model=self._other)

    def predict(self, samples: Sequence[Features]) -> NDArray[np.float64]:
        """Predict the cycles of each sample, never below its least possible cycles."""
        seen = np.array(samples)
        least, found = _excess(seen)
        if self._booster is not None:
            found = found + np.asarray(self._booster.predict(seen, num_threads=1))
        return np.asarray(least + np.maximum(np.exp(found) - BLUR, 0.0), np.float64)

    def take_over(self, other: CostModel) -> None:
        """Start from the trained state of another cost model."""
        self._booster = self._other = other._booster

    def save(self, path: Path) -> None:
        """Write the trained model to a text file; write nothing if it is untrained."""
        if self._booster is not None:
            write_atomically(path, self._booster.model_to_string())


def load_model(path: Path) -> CostModel:
    """Return the model in a file of :meth:`CostModel.save`.

    Raise InputError if the file contains none.
    """
    import lightgbm

    text = text_of(read_bytes(path, MAXIMUM_BYTES, "a cost model"), str(path))
    try:
        booster = lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise InputError(
            f"{path}: no cost model ({error}); remove it, and it is trained again"
        ) from error
    if booster.num_feature() != FEATURES:
        raise InputError(
            f"{path}: a cost model of another version of this tool; remove it, and it "
            "is trained again"
        )
    return CostModel(booster)
