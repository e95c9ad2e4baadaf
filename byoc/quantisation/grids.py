"""Find the integers again from which a file computes its constants."""

import numpy as np
from numpy.typing import NDArray

GRID = 1e-3
"""Largest distance from a multiple of a step, in steps, of a number that was an integer."""


def find_step(row: NDArray[np.float32], otherwise: np.float32) -> np.float32:
    """Return the largest step that divides each number of a row into at most 128 whole steps.

    Returns ``otherwise`` if there is no such step.
    """
    top = row[np.abs(row).argmax()].astype(np.float64)
    counts = np.arange(1, 129 if top < 0 else 128)
    found = abs(top) / counts if top else np.empty(0)
    for part in (row[:16], row[:256], row):
        multiples = part.astype(np.float64) / found[:, np.newaxis]
        near = (np.abs(multiples - np.rint(multiples)) < GRID).all(1)
        found = found[near]
        if not found.size:
            return otherwise
    return np.float32(found[0])
