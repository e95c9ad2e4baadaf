"""The bytes that a command reads and writes, in the order of its address generation, and their CRC-32."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, row_starts
from isa.instruction import Machine


def touched(accesses: Iterable[Access], machine: Machine) -> bytes:
    """The present bytes of ``accesses``, one after another; a row that repeats is there as often as it repeats."""
    return b"".join(_bytes(access, machine) for access in accesses)


def checksum(accesses: Iterable[Access], machine: Machine) -> int:
    """CRC-32 of :func:`touched`."""
    return zlib.crc32(touched(accesses, machine))


def byte_addresses(access: Access) -> NDArray[np.int64]:
    """The address of every byte of ``access``, in order."""
    return (row_starts(access)[:, None] + np.arange(access.nbytes, dtype=np.int64)).reshape(-1)


def _bytes(access: Access, machine: Machine) -> bytes:
    memory = machine.sram if access.space == "sram" else machine.dram
    if not access.total:
        return b""
    if not access.dims:
        return memory[access.address : access.end].tobytes()
    return memory[byte_addresses(access)].tobytes()
