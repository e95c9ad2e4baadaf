"""Where a byte of a command's result is: which element of which shape, at which address, in which tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from experiments.golden.memory import byte_addresses
from isa.instruction import Command, Operands
from isa.program import Program

Axes = tuple[tuple[str, str], ...]
SHAPES: tuple[Axes, ...] = (
    (("channel", "OUTPUT_CHANNELS"), ("row", "OUTPUT_HEIGHT"), ("column", "OUTPUT_WIDTH")),
    (("row", "ROWS"), ("channel", "OUTPUT_CHANNELS"), ("element", "LENGTH")),
    (("row", "ROWS"), ("column", "OUTPUT_CHANNELS")),
    (("element", "LENGTH"),),
    (("box", "COUNT_3"), ("plane", "COUNT_2"), ("row", "COUNT_1"), ("byte", "BYTES")),
)
"""Axes of a result and the registers that say how long they are; the first that a command has all of fits."""


@dataclass(frozen=True)
class Element:
    """One element of a result: ``index`` by axis, byte ``address`` of ``space``, and the tensor it is in, if any."""

    number: int
    size: int
    index: Mapping[str, int]
    space: str
    address: int
    tensor: str | None = None
    coordinates: tuple[int, ...] = ()

    def text(self) -> str:
        """For reports: ``[channel 2, row 0, column 5] (scratchpad 0x1c4)``."""
        inside = ", ".join(f"{axis} {value}" for axis, value in self.index.items())
        memory = "scratchpad" if self.space == "sram" else "system memory"
        tensor = f", tensor '{self.tensor}' {list(self.coordinates)}" if self.tensor is not None else ""
        return f"[{inside}] ({memory} {self.address:#x}{tensor})"


def result_shape(command: Command, nbytes: int) -> tuple[dict[str, int], int]:
    """(length by axis, bytes an element) of a result of ``nbytes`` bytes."""
    unit = command.unit.name
    for axes in SHAPES:
        names = [f"{unit}_{register}" for _, register in axes]
        if all(name in command.registers for name in names):
            lengths = {axis: command[name] for (axis, _), name in zip(axes, names, strict=True)}
            elements = prod(lengths.values())
            if elements and nbytes in (elements, 4 * elements):
                return lengths, nbytes // elements
    return {"byte": nbytes}, 1


def locate(program: Program, command: Command, operands: Operands, offset: int, nbytes: int) -> Element:
    """The element that byte ``offset`` of the ``nbytes`` bytes that ``command`` wrote belongs to."""
    lengths, size = result_shape(command, nbytes)
    number = offset // size
    index = [int(value) for value in np.unravel_index(number, tuple(lengths.values()))]
    space, address = _address(operands, number * size)
    tensor, coordinates = _tensor(program, space, address)
    return Element(number, size, dict(zip(lengths, index, strict=True)), space, address, tensor, coordinates)


def _address(operands: Operands, offset: int) -> tuple[str, int]:
    for access in operands.writes:
        if offset < access.total:
            return access.space, int(byte_addresses(access)[offset])
        offset -= access.total
    return "sram", 0


def _tensor(program: Program, space: str, address: int) -> tuple[str | None, tuple[int, ...]]:
    """The tensor of the program that a byte of system memory belongs to, and the coordinates of the element there."""
    for tensor in program.tensors:
        if space == "dram" and tensor.address <= address < tensor.address + tensor.nbytes:
            element = (address - tensor.address) // np.dtype(tensor.dtype).itemsize
            return tensor.name, tuple(int(i) for i in np.unravel_index(element, tensor.shape))
    return None, ()
