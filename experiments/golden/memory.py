"""The bytes that a command reads and writes, in the order of its address generation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from experiments.debug.commit_log import access_bytes
from isa.access import Access, row_starts
from isa.instruction import Machine


def touched(accesses: Iterable[Access], machine: Machine) -> bytes:
    """The present bytes of ``accesses``, one after another; a row that repeats is there as often as it repeats."""
    return b"".join(access_bytes(access, machine) for access in accesses)


def byte_addresses(access: Access) -> NDArray[np.int64]:
    """The address of every byte of ``access``, in order."""
    return (row_starts(access)[:, None] + np.arange(access.nbytes, dtype=np.int64)).reshape(-1)
