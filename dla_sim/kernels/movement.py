"""``OP_DMA_READ`` and ``OP_DMA_WRITE`` as copies between strided views."""

from __future__ import annotations

from math import prod

import numpy as np

from dla_sim.kernels.scratch import Scratch
from isa.access import Access
from isa.instruction import Command, Machine
from isa.ops.dma import side


def read(command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes an ``OP_DMA_READ``; False, with nothing written, for what is left to the semantics."""
    return _copy(command, machine, "dram", "sram")


def write(command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes an ``OP_DMA_WRITE``; False as `read`."""
    return _copy(command, machine, "sram", "dram")


def _copy(command: Command, machine: Machine, origin: str, target: str) -> bool:
    memories = {"sram": machine.sram, "dram": machine.dram}
    source, destination = memories[origin], memories[target]
    reads, writes = side(command, origin), side(command, target)
    if not reads.dims and not writes.dims:
        if reads.end > source.size or writes.end > destination.size:
            return False
        destination[writes.address : writes.end] = source[reads.address : reads.end]
        return True
    unit = command.unit.name
    counts = tuple(command[f"{unit}_COUNT_{d}"] for d in (3, 2, 1))
    size = (*counts, command[f"{unit}_BYTES"])
    if not prod(size) or reads.end > source.size or writes.end > destination.size or not _nested(writes):
        return False
    strides = {
        space: (*(command[f"{unit}_{space.upper()}_STRIDE_{d}"] for d in (3, 2, 1)), 1) for space in ("sram", "dram")
    }
    np.copyto(
        np.ndarray(size, np.uint8, destination, writes.address, strides[target]),
        np.ndarray(size, np.uint8, source, reads.address, strides[origin]),
    )
    return True


def _nested(access: Access) -> bool:
    """Whether no byte is touched twice because each stride reaches over all that lies within."""
    reach = access.nbytes
    for count, stride in reversed(access.dims):
        if stride < reach:
            return False
        reach += (count - 1) * stride
    return True
