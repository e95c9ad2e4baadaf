"""Lowering of values to buffers: where free operations can share memory their values become slices of one buffer.

A free operation says that some bytes of two values are the same. Wherever one value (with everything that already lives
in its buffer) fits as a whole into the slice of the other, both share one buffer and the operation disappears;
otherwise a :class:`Copy` takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Value
from byoc.layout.region import lay_out, stored_constants
from byoc.operators.movement import Copy
from byoc.operators.operator import Lying, Operand, Operator
from byoc.operators.products import apart
from isa.arch import IDEAL, Arch, Memory

Role = Literal["input", "output", "intermediate"]


@dataclass(frozen=True)
class Buffer:
    """Dense memory of ``nbytes`` bytes. Inputs and outputs of the region never share a buffer with one another."""

    name: str
    nbytes: int
    role: Role


@dataclass(frozen=True)
class Place:
    """Where a value begins: ``offset`` bytes into the buffer called ``buffer``."""

    buffer: str
    offset: int


@dataclass(frozen=True, eq=False)
class Lowered:
    """Operations that compute or copy, the place of every value, and the buffers in order of first use.

    ``constants``: operands that are constant; each is a place of its own name, and no buffer. ``lying``: the
    layouts of inputs and outputs.
    """

    operations: tuple[Operator, ...]
    places: Mapping[str, Place]
    buffers: tuple[Buffer, ...]
    constants: Mapping[str, NDArray[np.int8]]
    lying: Mapping[str, Lying]

    def place(self, operand: Operand) -> Place:
        """Where the first element of ``operand`` lies."""
        start = self.places[operand.value]
        return Place(start.buffer, start.offset + operand.start)


def value_bytes(value: Value, lying: Lying) -> int:
    """Bytes of a boundary value in the accelerator's memory: int32 stays, every other type is stored as int8."""
    element = np.dtype(np.int32).itemsize if value.dtype == "int32" else 1
    return element * lying.images * lying.image_bytes


def lower(
    operations: Iterable[Operator],
    values: Mapping[str, Value],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    memory: Memory = IDEAL,
    fits: Callable[[Operator], bool] = lambda _: True,
) -> Lowered:
    """Buffers for all values of a region and its operations that compute or copy, order kept.

    ``values`` needs to hold the region's ``inputs`` and ``outputs``; sizes of others come from the operands. ``fits``:
    whether an operation can be tiled into the scratchpad.
    """
    listed, layouts = lay_out(tuple(operations), values, (*inputs, *outputs), memory, fits)
    lying = {name: layouts[name] for name in (*inputs, *outputs)}
    constants = {name: data for operation in listed for name, data in stored_constants(operation).items()}
    sizes = {name: value_bytes(values[name], lies) for name, lies in lying.items()}
    sharing = _Sharing(_sizes(listed, sizes, constants), inputs, outputs)
    kept: list[Operator] = []
    for operation in listed:
        if operation.slices:
            kept += _share_or_copy(operation, sharing)
            kept += _copies_of_constants(operation)
        else:
            kept.append(operation)
    places = sharing.places | {name: Place(name, 0) for name in constants}
    return Lowered(tuple(kept), places, sharing.buffers(), constants, lying)


def _sizes(operations: Iterable[Operator], boundary: Mapping[str, int], constants: Container[str]) -> dict[str, int]:
    """Bytes of every value that is no constant, in order of first mention; those at the ``boundary`` are known."""
    sizes = dict(boundary)
    for operation in operations:
        for operand in (*operation.inputs, operation.output):
            if operand.value in constants:
                continue
            sizes[operand.value] = max(sizes.get(operand.value, 0), operand.start + operand.nbytes)
    return sizes


def _share_or_copy(free: Operator, sharing: _Sharing) -> list[Operator]:
    copies: list[Operator] = []
    variable = [pair for pair in free.slices if pair[0].value not in free.constant_operands]
    for run in _neighbours(variable, sharing):
        whole = sum(source.nbytes for source, _ in run)
        if not sharing.share(*run[0], whole):
            copies += [
                Copy(name=free.name, kind="DMA", inputs=(source,), output=target, onnx_nodes=free.onnx_nodes)
                for source, target in run
                if not sharing.share(source, target, source.nbytes)
            ]
    return copies


def _copies_of_constants(free: Operator) -> list[Operator]:
    return [
        Copy(
            name=free.name, kind="DMA", inputs=(source,), output=target, onnx_nodes=free.onnx_nodes,
            constant_operands={source.value: free.constant_operands[source.value]},
        )
        for source, target in free.slices
        if source.value in free.constant_operands
    ]  # fmt: skip


def _neighbours(pairs: Iterable[tuple[Operand, Operand]], sharing: _Sharing) -> list[list[tuple[Operand, Operand]]]:
    """Slices that lie one behind the other on both sides, as those of a tensor that was split and is joined again."""
    runs: list[list[tuple[Operand, Operand]]] = []
    for pair in pairs:
        places = [sharing.place(operand) for operand in pair]
        behind = [sharing.place(operand, operand.nbytes) for operand in runs[-1][-1]] if runs else []
        if places == behind:
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


class _Sharing:
    """Which values live in one buffer. Every byte of a buffer has one meaning: what shares it is equal by an alias."""

    def __init__(self, sizes: Mapping[str, int], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        self.places = {name: Place(name, 0) for name in sizes}
        self._extents = dict(sizes)
        self._members = {name: [name] for name in sizes}
        self._roles: dict[str, set[Role]] = {name: set() for name in sizes}
        for name in inputs:
            self._roles[name].add("input")
        for name in outputs:
            self._roles[name].add("output")

    def place(self, operand: Operand, offset: int = 0) -> Place:
        """Where the first element of ``operand`` lies, and ``offset`` bytes behind it."""
        start = self.places[operand.value]
        return Place(start.buffer, start.offset + operand.start + offset)

    def share(self, source: Operand, target: Operand, nbytes: int) -> bool:
        """Make ``nbytes`` from the beginning of both slices the same bytes; False where that is impossible."""
        a, b = self.place(source), self.place(target)
        start_a, start_b = a.offset, b.offset
        if a.buffer == b.buffer:
            return start_a == start_b
        if len(self._roles[a.buffer] | self._roles[b.buffer]) > 1:
            return False
        if start_a == 0 and self._extents[a.buffer] == nbytes:
            self._embed(a.buffer, b.buffer, start_b)
        elif start_b == 0 and self._extents[b.buffer] == nbytes:
            self._embed(b.buffer, a.buffer, start_a)
        else:
            return False
        return True

    def _embed(self, guest: str, host: str, offset: int) -> None:
        for name in self._members.pop(guest):
            self.places[name] = Place(host, offset + self.places[name].offset)
            self._members[host].append(name)
        self._roles[host] |= self._roles.pop(guest)
        del self._extents[guest]

    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(
            Buffer(name, nbytes, next(iter(self._roles[name]), "intermediate"))
            for name, nbytes in self._extents.items()
        )


def split(lowered: Lowered, arch: Arch) -> Lowered:
    """``lowered`` with nothing fused, as the published system runs it; what passes between parts gets a buffer."""
    operations = tuple(part for operation in lowered.operations for part in apart(operation, arch))
    places, buffers = dict(lowered.places), list(lowered.buffers)
    for operation in operations:
        if operation.output.value not in places:
            name = operation.output.value
            places[name] = Place(name, 0)
            buffers.append(Buffer(name, operation.output.nbytes, "intermediate"))
    return replace(lowered, operations=operations, places=places, buffers=tuple(buffers))
