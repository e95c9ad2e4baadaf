"""What the scratchpad's ports and banks cost EX (docs/machine.md, section 5, "Scratchpad")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from isa.access import Access

Int64 = NDArray[np.int64]


def crowd(streams: Sequence[Access], bank_bytes: int) -> int:
    """The largest number of streams in one bank; a stream belongs to every bank that its hull touches."""
    banks = [(access.address // bank_bytes, (access.end - 1) // bank_bytes) for access in streams]
    # A bank with the most streams is always the first bank of one of them.
    return max((sum(low <= bank <= high for low, high in banks) for bank, _ in banks), default=0)


def scratchpad_cycles(compute: Int64, streams: Int64, reads: Int64, writes: Int64, timing: Timing) -> Int64:
    """The further cycles x that EX waits for the scratchpad, command by command.

    ``streams`` is the largest number of streams in one bank, ``reads`` and ``writes`` are bytes.
    """
    needed = compute * np.maximum(1, -(-streams // timing.bank_ports))
    if timing.sram_read_bytes:
        needed = np.maximum(needed, -(-reads // timing.sram_read_bytes))
    if timing.sram_write_bytes:
        needed = np.maximum(needed, -(-writes // timing.sram_write_bytes))
    return needed - compute
