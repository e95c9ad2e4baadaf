"""Prepared programs: commands, byte ranges, demands and labels, independent of data and Timing.

The module also provides the two memories, their initial contents, and the checks that no command
leaves them and no two commands collide.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import Labels, label
from dla_sim.engine.times import CommandTimes
from dla_sim.engine.workload import Demands, assign_banks, demands
from isa import memory
from isa.access import MAXIMUM_TRANSFER, SPACE_NAMES, Access, Hulls, Int64, Range, overlap
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Command, Operands, find_overwritten
from isa.program import Program, Provenance, Tensor


def check_addresses(
    program: Program, commands: Sequence[Command], operands: Sequence[Operands]
) -> None:
    """Raise InputError if a command leaves the memories or writes to the command words."""
    limits = {"sram": program.arch.sram_bytes, "dram": program.dram_bytes}
    words = Access("dram", program.command_address, 8 * len(program.words))
    most = min(MAXIMUM_TRANSFER, memory.maximum())
    for command, item in zip(commands, operands, strict=True):
        for access in (*item.reads, *item.writes):
            if access.end > limits[access.space] or access.total > most:
                _check_access(command, access, limits[access.space])
        for access in item.writes:
            if (
                access.space == "dram"
                and access.end > words.address
                and access.total
                and overlap(access, words)
            ):
                raise InputError(
                    f"{command.instruction.mnemonic} at word {command.index} writes bytes "
                    f"{access.address:#x} to "
                    f"{access.end:#x} of system memory, over the command words at "
                    f"{words.address:#x}",
                    words=(command.index,),
                )


def _check_access(command: Command, access: Access, limit: int) -> None:
    """Raise InputError if an access exceeds its memory or the maximum transfer size.

    The memory has ``limit`` bytes.
    """
    name = f"{command.instruction.mnemonic} at word {command.index}"
    if access.total and (access.end > limit or access.total > MAXIMUM_TRANSFER):
        raise InputError(
            f"{name} touches {access.total} bytes from {access.address:#x} to {access.end:#x}; "
            f"the {SPACE_NAMES[access.space]} has {limit} bytes",
            words=(command.index,),
        )
    memory.require(access.total, name)


def highest_byte(operands: Iterable[Operands], space: str) -> int:
    """Return one past the highest byte of ``space`` that any command touches, or 0.

    ``space`` is ``sram`` or ``dram``.
    """
    accesses = (access for item in operands for access in (*item.reads, *item.writes))
    return max(
        (access.end for access in accesses if access.space == space and access.total), default=0
    )


def scratchpad(arch: Arch, highest: int) -> NDArray[np.uint8]:
    """Return a scratchpad of zeros.

    Its size is ``highest`` (one past the highest byte in use), rounded up to a multiple of 64
    bytes, at most that of the machine's scratchpad.
    """
    size = min(arch.sram_bytes, -(-highest // 64) * 64)
    memory.require(size, "the scratchpad")
    return np.zeros(size, dtype=np.uint8)


class SystemMemory:
    """System memory of a program: zeros, its images and its command words.

    Reused from run to run. Only bytes in the ranges ``written`` change.
    """

    def __init__(self, program: Program, operands: Iterable[Operands]) -> None:
        memory.require(program.dram_bytes, f"the system memory of program '{program.name}'")
        self.data: NDArray[np.uint8] = np.zeros(program.dram_bytes, dtype=np.uint8)
        self._images = [(segment.address, segment.data) for segment in program.segments]
        self._images.append((program.command_address, program.words.astype("<u8").view(np.uint8)))
        for address, image in self._images:
            self.data[address : address + image.size] = image
        written = [
            (write.address, write.end)
            for item in operands
            for write in item.writes
            if write.space == "dram"
        ]
        written += [(tensor.address, tensor.address + tensor.nbytes) for tensor in program.tensors]
        self.written = _merge(written)
        self._spoiled = [
            (at, image)
            for at, image in self._images
            if _is_touching(at, at + image.size, self.written)
        ]

    def reset(self) -> None:
        """Undo the writes of a run to system memory.

        The written ranges become zeros or the program's images again.
        """
        for low, high in self.written:
            self.data[low:high] = 0
        for address, image in self._spoiled:
            self.data[address : address + image.size] = image

    def put(self, tensor: Tensor, value: NDArray[Any]) -> None:
        """Write an input tensor to system memory; ``value`` has the tensor's shape and type."""
        self.data[tensor.address : tensor.address + tensor.nbytes] = (
            np.ascontiguousarray(value).view(np.uint8).reshape(-1)
        )

    def take(self, tensor: Tensor) -> NDArray[Any]:
        """Return a copy of a tensor in system memory."""
        raw = self.data[tensor.address : tensor.address + tensor.nbytes].copy()
        value: NDArray[Any] = raw.view(tensor.dtype).reshape(tensor.shape)
        return value


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return byte ranges merged to disjoint ranges in ascending order."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        elif low < high:
            merged.append((low, high))
    return merged


def _is_touching(low: int, high: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low < other_high and other_low < high for other_low, other_high in ranges)


def check_inputs(tensors: Sequence[Tensor], inputs: Mapping[str, NDArray[Any]]) -> None:
    """Raise InputError if the arrays ``inputs`` do not fit a program's input tensors.

    An input can be missing or unknown, no array, or differ from its tensor in shape or type.
    """
    names = [tensor.name for tensor in tensors]
    for name in inputs:
        if name not in names:
            raise InputError(
                f"the program has no input '{name}'; its inputs are {', '.join(names) or 'none'}"
            )
    for tensor in tensors:
        wanted = f"{tensor.dtype} {list(tensor.shape)}"
        if tensor.name not in inputs:
            raise InputError(f"input '{tensor.name}' is missing; give {wanted}")
        value = inputs[tensor.name]
        if not isinstance(value, np.ndarray):
            raise InputError(f"input '{tensor.name}' is a {type(value).__name__}; give {wanted}")
        if value.dtype != np.dtype(tensor.dtype) or value.shape != tensor.shape:
            raise InputError(
                f"input '{tensor.name}' is {value.dtype} {list(value.shape)}; give {wanted}"
            )


def split_batch(
    tensors: Sequence[Tensor], inputs: Mapping[str, NDArray[Any]]
) -> list[dict[str, NDArray[Any]]]:
    """Return the inputs of each inference of a batch; empty if ``inputs`` are no batch.

    In a batch, the arrays of all ``tensors`` have one more axis, the first, of the same length.
    """
    ranks = {tensor.name: len(tensor.shape) + 1 for tensor in tensors}
    if any(getattr(value, "ndim", None) != ranks.get(name, -1) for name, value in inputs.items()):
        return []
    lengths = {value.shape[:1] for value in inputs.values()}
    if len(lengths) != 1:
        return []
    ((length,),) = lengths
    return [{name: value[n] for name, value in inputs.items()} for n in range(length)]


# Hazards.
# A command's writes must not overlap, in time and address, any access of another executing command,
# nor operands of its own that it may still have to read (docs/machine.md, section 5). Commands of
# one unit never overlap in time. For two units a vectorised test of address ranges leaves few
# pairs. These are compared exactly, and the result, which does not depend on time, is cached.


_UNIT_PAIRS = ((0, 1), (0, 2), (1, 2))


class HazardError(InputError):
    """Collision in memory of two executing commands (a missing token), or of a command with itself.

    The message names commands, bytes and layers.
    """


class Footprints:
    """Memory accesses of a program's commands, checked for collisions.

    ``members[u]`` are the commands of unit u that access memory, in order.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        operands: Sequence[Operands],
        sources: Sequence[Provenance | None],
    ) -> None:
        self._commands = commands
        self._operands = operands
        self._sources = sources
        self._hulls = Hulls([item.reads for item in operands], [item.writes for item in operands])
        units = np.array([command.unit.value for command in commands], dtype=np.int64)
        touching = (
            any(access.total for access in (*item.reads, *item.writes)) for item in operands
        )
        touches = np.fromiter(touching, dtype=np.bool_, count=len(operands))
        self.members = tuple(np.flatnonzero((units == unit) & touches) for unit in range(3))
        self._known: dict[tuple[int, int], tuple[str, int, int] | None] = {}

    def check(self, times: CommandTimes) -> None:
        """Raise HazardError for the first memory collision of commands that run at ``times``.

        Commands that collide with themselves come first, then pairs by unit and stream order.
        """
        if self.self_collision is not None:
            number, (low, high) = self.self_collision
            raise HazardError(
                f"{self._name(number, times)} writes scratchpad bytes {low:#x} to {high:#x} over "
                "an operand of its own "
                "that it may still have to read (docs/machine.md, section 5)",
                words=(self._commands[number].index,),
            )
        for first, second in _UNIT_PAIRS:
            left, right = _concurrent(self.members[first], self.members[second], times)
            for pair in self._hulls.meet(left, right).tolist():
                self._check_pair(int(left[pair]), int(right[pair]), times)

    @cached_property
    def self_collision(self) -> tuple[int, Range] | None:
        """First command whose own accesses collide, and the bytes where they do."""
        for number, (command, item) in enumerate(zip(self._commands, self._operands, strict=True)):
            found = find_overwritten(command, item)
            if found is not None:
                return number, found
        return None

    def find_collisions(self, left: Int64, right: Int64) -> list[tuple[int, int]]:
        """Return the pairs of a command of ``left`` and one of ``right`` whose accesses collide."""
        pairs = [(int(left[pair]), int(right[pair])) for pair in self._hulls.meet(left, right)]
        return [pair for pair in pairs if self._find_collision(pair) is not None]

    def _find_collision(self, pair: tuple[int, int]) -> tuple[str, int, int] | None:
        if pair not in self._known:
            self._known[pair] = _collision(*(self._operands[number] for number in pair))
        return self._known[pair]

    def _check_pair(self, one: int, other: int, times: CommandTimes) -> None:
        found = self._find_collision((one, other))
        if found is not None:
            space, low, high = found
            raise HazardError(
                f"{self._name(one, times)} and {self._name(other, times)} both access {space} "
                "bytes "
                f"{low:#x} to {high:#x} and one of them writes; a token between them is missing",
                words=(self._commands[one].index, self._commands[other].index),
            )

    def _name(self, number: int, times: CommandTimes) -> str:
        command = self._commands[number]
        source = self._sources[number]
        layer = f"layer '{source.layer}', " if source is not None else ""
        cycles = f"cycles {times.start[number]} to {times.end[number]}"
        return (
            f"{command.instruction.mnemonic_for(command.fields)} at word {command.index} "
            f"({layer}{cycles})"
        )


def _concurrent(left: Int64, right: Int64, times: CommandTimes) -> tuple[Int64, Int64]:
    """Return all pairs of a command of ``left`` and one of ``right`` that overlap in time.

    ``left`` and ``right`` are each in time order.
    """
    first = np.searchsorted(times.end[right], times.start[left], side="right")
    last = np.searchsorted(times.start[right], times.end[left], side="left")
    counts = last - first
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(left, counts), right[np.repeat(first, counts) + offsets]


def _collision(one: Operands, other: Operands) -> tuple[str, int, int] | None:
    """Return where a write of one command overlaps an access of the other, or None.

    The result is (memory, first byte, end).
    """
    pairs = [(write, access) for write in one.writes for access in (*other.writes, *other.reads)]
    pairs += [(write, access) for write in other.writes for access in one.reads]
    for write, access in pairs:
        found = overlap(write, access) if write.total and access.total else None
        if found is not None:
            return SPACE_NAMES[write.space], *found
    return None


@dataclass(frozen=True, eq=False)
class PreparedProgram:
    """A program's properties that determine its timing; entries per command exclude ``OP_END``."""

    commands: tuple[Command, ...]
    sources: tuple[Provenance | None, ...]
    operands: tuple[Operands, ...]
    demands: Demands
    labels: Labels
    footprints: Footprints
    sram_peak_bytes: int


def prepare(program: Program) -> PreparedProgram:
    """Decode ``program``, check its addresses and compute its demands, accesses and labels.

    Raises InputError for illegal words, addresses outside the memories and unknown kinds.
    """
    commands = program.commands[:-1]
    sources = program.sources[:-1]
    operands = tuple(command.instruction.operands(command, program.arch) for command in commands)
    check_addresses(program, commands, operands)
    return PreparedProgram(
        commands,
        sources,
        operands,
        demands(commands, operands, program),
        label(commands, operands, sources),
        Footprints(commands, operands, sources),
        highest_byte(operands, "sram"),
    )


def resize_prepared(prepared: PreparedProgram, program: Program) -> PreparedProgram:
    """Prepare ``program``, which differs from the prepared one only in the scratchpad size.

    Expensive results are reused, and all results if the operands keep their banks. Raises
    InputError like :func:`prepare`.
    """
    check_addresses(program, prepared.commands, prepared.operands)
    found = assign_banks(prepared.demands, prepared.commands, prepared.operands, program.arch)
    return prepared if found is prepared.demands else replace(prepared, demands=found)
