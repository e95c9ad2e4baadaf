"""``OP_DMA_READ`` and ``OP_DMA_WRITE`` as copies between strided views."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from dla_sim.kernels.attempt import Attempt, Scratch
from isa.access import Access
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.dma import side


def transfer(command: Command, arch: Arch) -> Attempt | None:
    """Prepares a transfer; None for what is left to the semantics: no bytes, or bytes that are written twice."""
    unit = command.unit.name
    reading = command.instruction.mnemonic == "OP_DMA_READ"
    sram, dram = side(command, "sram"), side(command, "dram")
    size = (*(command[f"{unit}_COUNT_{d}"] for d in (3, 2, 1)), command[f"{unit}_BYTES"])
    if not prod(size) or not _nested(sram if reading else dram):
        return None
    if not sram.dims and not dram.dims:
        return _Transfer((sram.nbytes,), sram.address, (1,), sram.end, dram.address, (1,), dram.end, reading).run
    steps = ((*(command[f"{unit}_{name}_STRIDE_{d}"] for d in (3, 2, 1)), 1) for name in ("SRAM", "DRAM"))
    return _Transfer(size, sram.address, next(steps), sram.end, dram.address, next(steps), dram.end, reading).run


@dataclass(frozen=True, eq=False)
class _Transfer:
    """A prepared transfer: rows of ``size`` between two strided boxes; ``reading`` is towards the scratchpad."""

    size: tuple[int, ...]
    sram: int
    sram_strides: tuple[int, ...]
    sram_end: int
    dram: int
    dram_strides: tuple[int, ...]
    dram_end: int
    reading: bool

    def run(self, machine: Machine, scratch: Scratch) -> bool:
        """Executes the command: an attempt."""
        if self.sram_end > machine.sram.size or self.dram_end > machine.dram.size:
            return False
        sram = np.ndarray(self.size, np.uint8, machine.sram, self.sram, self.sram_strides)
        dram = np.ndarray(self.size, np.uint8, machine.dram, self.dram, self.dram_strides)
        if self.reading:
            np.copyto(sram, dram)
        else:
            np.copyto(dram, sram)
        return True


def _nested(access: Access) -> bool:
    """Whether no byte is touched twice because each stride reaches over all that lies within."""
    reach = access.nbytes
    for count, stride in reversed(access.dims):
        if stride < reach:
            return False
        reach += (count - 1) * stride
    return True
