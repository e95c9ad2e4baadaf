"""Schedule: when each command was there, started and ended. What an engine finds out; all else follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError


@dataclass(frozen=True, eq=False)
class Schedule:
    """int64 arrays, one entry a command but for ``OP_END``, and the program's ``total`` cycles.

    ``arrival`` is the first cycle in which the command counts as being in its unit's queue: the one after the command
    processor executed its word. The command executes in the cycles ``[start, end)``.
    """

    arrival: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    total: int


class DeadlockError(InputError):
    """The program stands still: the message names what each unit and the command processor wait for."""
