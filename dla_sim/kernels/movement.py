"""``OP_DMA_READ``, ``OP_DMA_WRITE`` and ``OP_PERMUTE`` as copies between strided views."""

from dataclasses import dataclass
from math import prod

import numpy as np

from dla_sim.kernels.attempt import Attempt, Workspace
from isa.access import Access
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops import movement
from isa.ops.dma import side


def transfer(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for a DMA transfer; None if the kernel cannot execute the command.

    The kernel executes no transfers of no bytes, and none that write bytes twice.
    """
    unit = command.unit.name
    reading = command.instruction.mnemonic == "OP_DMA_READ"
    sram = side(command, "sram")
    dram = side(command, "dram")
    size = (*(command[f"{unit}_COUNT_{d}"] for d in (3, 2, 1)), command[f"{unit}_BYTES"])
    if not prod(size) or not _is_nested(sram if reading else dram):
        return None
    if not sram.dims and not dram.dims:
        return _Transfer(
            (sram.nbytes,), sram.address, (1,), sram.end, dram.address, (1,), dram.end, reading
        ).run
    steps = (
        (*(command[f"{unit}_{name}_STRIDE_{d}"] for d in (3, 2, 1)), 1) for name in ("SRAM", "DRAM")
    )
    return _Transfer(
        size, sram.address, next(steps), sram.end, dram.address, next(steps), dram.end, reading
    ).run


@dataclass(frozen=True, eq=False)
class _Transfer:
    """Prepared transfer of ``size`` bytes between two strided boxes.

    With ``reading`` it copies from system memory to the scratchpad.
    """

    size: tuple[int, ...]
    sram: int
    sram_strides: tuple[int, ...]
    sram_end: int
    dram: int
    dram_strides: tuple[int, ...]
    dram_end: int
    reading: bool

    def run(self, machine: Machine, scratch: Workspace) -> bool:
        """Execute a prepared DMA transfer; return False if it exceeds a memory."""
        if self.sram_end > machine.sram.size or self.dram_end > machine.dram.size:
            return False
        sram = np.ndarray(self.size, np.uint8, machine.sram, self.sram, self.sram_strides)
        dram = np.ndarray(self.size, np.uint8, machine.dram, self.dram, self.dram_strides)
        if self.reading:
            np.copyto(sram, dram)
        else:
            np.copyto(dram, sram)
        return True


def permutation(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a copy within the scratchpad; None if the kernel cannot execute the command.

    This is the case if there are no bytes or if bytes are written twice. Results may overlap
    sources: NumPy handles that.
    """
    source, target = (movement.side(command, name) for name in ("INPUT", "OUTPUT"))
    read, written = (movement.find_touched(command, name) for name in ("INPUT", "OUTPUT"))
    fill = command["EX_INPUT_ZERO_POINT"] & 0xFF if command.fields["fill"] else None
    if not written.total or written.total != movement.count(command) or not _is_nested(written):
        return None
    size = tuple(number for number, _ in target.dims)
    source_strides, target_strides = (
        tuple(stride for _, stride in access.dims) for access in (source, target)
    )
    end = written.end if fill is not None else max(read.end, written.end)

    def attempt(machine: Machine, scratch: Workspace) -> bool:
        if end > machine.sram.size:
            return False
        result = np.ndarray(size, np.uint8, machine.sram, target.address, target_strides)
        if fill is not None:
            result[...] = fill
        else:
            np.copyto(
                result, np.ndarray(size, np.uint8, machine.sram, source.address, source_strides)
            )
        return True

    return attempt


def _is_nested(access: Access) -> bool:
    """Return True if each stride of a box exceeds the extent of its inner dimensions.

    Then no byte is accessed twice.
    """
    reach = access.nbytes
    for count, stride in reversed(access.dims):
        if stride < reach:
            return False
        reach += (count - 1) * stride
    return True
