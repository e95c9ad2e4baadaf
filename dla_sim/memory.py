"""The two memories: what is in them at the start of a run, what goes in and out, and that no command leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import memory
from isa.access import MAXIMUM_TRANSFER, SPACE_NAMES, Access, overlap
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Command, Operands
from isa.program import Program, Tensor


def check_addresses(program: Program, commands: Sequence[Command], operands: Sequence[Operands]) -> None:
    """Raises InputError for a command that touches bytes outside the memories or writes on the command words."""
    limits = {"sram": program.arch.sram_bytes, "dram": program.dram_bytes}
    words = Access("dram", program.command_address, 8 * len(program.words))
    most = min(MAXIMUM_TRANSFER, memory.maximum())
    for command, item in zip(commands, operands, strict=True):
        for access in (*item.reads, *item.writes):
            if access.end > limits[access.space] or access.total > most:
                _check_access(command, access, limits[access.space])
        for access in item.writes:
            if access.space == "dram" and access.end > words.address and access.total and overlap(access, words):
                raise InputError(
                    f"{command.instruction.mnemonic} at word {command.index} writes bytes {access.address:#x} to "
                    f"{access.end:#x} of system memory, over the command words at {words.address:#x}",
                    words=(command.index,),
                )


def _check_access(command: Command, access: Access, limit: int) -> None:
    """Raises InputError for an access outside a memory of ``limit`` bytes, or of more than may be taken at once."""
    name = f"{command.instruction.mnemonic} at word {command.index}"
    if access.total and (access.end > limit or access.total > MAXIMUM_TRANSFER):
        raise InputError(
            f"{name} touches {access.total} bytes from {access.address:#x} to {access.end:#x}; "
            f"the {SPACE_NAMES[access.space]} has {limit} bytes",
            words=(command.index,),
        )
    memory.require(access.total, name)


def highest_byte(operands: Iterable[Operands], space: str) -> int:
    """One past the highest byte of ``space`` (``sram`` or ``dram``) that any command touches; 0 if none does."""
    accesses = (access for item in operands for access in (*item.reads, *item.writes))
    return max((access.end for access in accesses if access.space == space and access.total), default=0)


def scratchpad(arch: Arch, highest: int, reset: int) -> NDArray[np.uint8]:
    """The scratchpad at reset: every byte is ``reset``. Only the ``highest`` bytes a program can touch are made."""
    size = min(arch.sram_bytes, -(-highest // 64) * 64)
    memory.require(size, "the scratchpad")
    return np.full(size, reset, dtype=np.uint8) if reset else np.zeros(size, dtype=np.uint8)


class SystemMemory:
    """System memory of one program: zeros, its memory images and its command words; reused from run to run."""

    def __init__(self, program: Program, operands: Iterable[Operands]) -> None:
        memory.require(program.dram_bytes, f"the system memory of program '{program.name}'")
        self.data: NDArray[np.uint8] = np.zeros(program.dram_bytes, dtype=np.uint8)
        self._images = [(segment.address, segment.data) for segment in program.segments]
        self._images.append((program.command_address, program.words.astype("<u8").view(np.uint8)))
        for address, image in self._images:
            self.data[address : address + image.size] = image
        written = [(write.address, write.end) for item in operands for write in item.writes if write.space == "dram"]
        written += [(tensor.address, tensor.address + tensor.nbytes) for tensor in program.tensors]
        self._written = _merge(written)
        self._spoiled = [(at, image) for at, image in self._images if _meets(at, at + image.size, self._written)]

    def reset(self) -> None:
        """Undo what a run can have written: its ranges become zeros, or again the images that lie there."""
        for low, high in self._written:
            self.data[low:high] = 0
        for address, image in self._spoiled:
            self.data[address : address + image.size] = image

    def put(self, tensor: Tensor, value: NDArray[Any]) -> None:
        """Write an input tensor; ``value`` has its shape and type."""
        self.data[tensor.address : tensor.address + tensor.nbytes] = (
            np.ascontiguousarray(value).view(np.uint8).reshape(-1)
        )

    def take(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of a tensor."""
        raw = self.data[tensor.address : tensor.address + tensor.nbytes].copy()
        value: NDArray[Any] = raw.view(tensor.dtype).reshape(tensor.shape)
        return value


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes as disjoint ranges in ascending order."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        elif low < high:
            merged.append((low, high))
    return merged


def _meets(low: int, high: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low < other_high and other_low < high for other_low, other_high in ranges)


def check_inputs(tensors: Sequence[Tensor], inputs: Mapping[str, NDArray[Any]]) -> None:
    """Raises InputError when an input is missing, unknown, or of another shape or type than its tensor."""
    names = [tensor.name for tensor in tensors]
    for name in inputs:
        if name not in names:
            raise InputError(f"the program has no input '{name}'; its inputs are {', '.join(names) or 'none'}")
    for tensor in tensors:
        wanted = f"{tensor.dtype} {list(tensor.shape)}"
        if tensor.name not in inputs:
            raise InputError(f"input '{tensor.name}' is missing; give {wanted}")
        value = inputs[tensor.name]
        if value.dtype != np.dtype(tensor.dtype) or value.shape != tensor.shape:
            raise InputError(f"input '{tensor.name}' is {value.dtype} {list(value.shape)}; give {wanted}")
