"""The learned cost model: a gradient-boosted regressor of how far the compiler's estimate is from what was measured.

It learns the logarithm of measured cycles over estimated ones from what describes a site, a tiling and the room that it
has, so that what was measured on one layer, or in one network, says something about others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from byoc.tiling.cost import LayerCost
from byoc.tiling.tiling import Resident, Tiling
from experiments.tune.subject import Site
from isa.errors import InputError
from isa.files import write_atomically
from isa.reading import read_bytes, text_of

if TYPE_CHECKING:
    import lightgbm

Features = tuple[float, ...]
LEAST = 48
"""Samples without which there is nothing to learn from."""
ROUNDS = 120
MAXIMUM_BYTES = 1 << 26
_SETTINGS = {
    "objective": "regression",
    "learning_rate": 0.08,
    "num_leaves": 15,
    "min_data_in_leaf": 6,
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
}


def require_library() -> None:
    """Raises InputError where the library that learns is not installed."""
    try:
        import lightgbm  # noqa: F401
    except (ImportError, OSError) as error:
        raise InputError(
            "the learned cost model needs LightGBM: pip install 'dla-byoc-simulator[tune]', or search with --no-model"
        ) from error


def features(cost: LayerCost, site: Site, tiling: Tiling, resident: Resident, budget: int) -> Features:
    """What the model sees of a tiling, in whatever network; the last is the logarithm of the estimate."""
    shape = cost.shape(tiling.channels, tiling.rows, tiling.depth)
    nest, slots = site.geometry.nest, tiling.slots
    estimate = max(cost.estimate(shape, tiling, resident), 1.0)
    working_set = cost.working_set(shape, tiling, resident)
    counts = shape.parts, shape.bands, shape.chunks, shape.parts * shape.bands * shape.chunks
    sizes = nest.channels, nest.rows, nest.columns, nest.input_channels, tiling.channels, tiling.rows, tiling.depth
    nbytes = sum(shape.input_bytes), shape.constant_bytes, shape.output_bytes, shape.sums_bytes, working_set
    return (
        *(math.log1p(value) for value in (*counts, *sizes, *nbytes, shape.compute)),
        estimate / max(shape.compute, 1),
        working_set / max(budget, 1),
        float(slots.input), float(slots.constants), float(slots.output),
        float(tiling.channels_outer), float(any(resident.inputs)), float(resident.output),
        float(nest.kernel), float(nest.stride), float(nest.groups > 1), float(nest.matrix),
        math.log(estimate),
    )  # fmt: skip


class CostModel:
    """Predicts cycles; what it has not been trained on, or too little, is the compiler's own estimate."""

    def __init__(self, booster: lightgbm.Booster | None = None) -> None:
        self._booster = booster

    def train(self, samples: Sequence[Features], cycles: Sequence[int]) -> None:
        """Learn from ``samples`` and the cycles that each was measured to take, instead of what was learnt before."""
        import lightgbm

        if len(samples) < LEAST:
            return
        seen = np.array(samples)
        wanted = np.log(np.maximum(np.array(cycles, np.float64), 1.0)) - seen[:, -1]
        self._booster = lightgbm.train(_SETTINGS, lightgbm.Dataset(seen, wanted), ROUNDS)

    def predict(self, samples: Sequence[Features]) -> NDArray[np.float64]:
        """Cycles of each sample."""
        seen = np.array(samples)
        found = seen[:, -1]
        if self._booster is not None:
            found = found + np.asarray(self._booster.predict(seen, num_threads=1))
        return np.asarray(np.exp(found), np.float64)

    def take_over(self, other: CostModel) -> None:
        """Begin with what another model has learnt."""
        self._booster = other._booster

    def save(self, path: Path) -> None:
        """Keep what was learnt in a text file; nothing where nothing was."""
        if self._booster is not None:
            write_atomically(path, self._booster.model_to_string())


def load_model(path: Path) -> CostModel:
    """The model that :meth:`CostModel.save` kept; raises InputError for what is none."""
    import lightgbm

    text = text_of(read_bytes(path, MAXIMUM_BYTES, "a cost model"), str(path))
    try:
        booster = lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise InputError(f"{path}: no cost model ({error}); remove it, and it is trained again") from error
    return CostModel(booster)
