"""Lowering of tensors to buffers: operations that copy nothing make tensors slices of one buffer.

A free operation states that some bytes of two tensors are equal. If one tensor, with every tensor
that already shares its buffer, fits as a whole into the slice of the other, both share one buffer
and the operation disappears. Otherwise a :class:`Copy` replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from byoc.estimate.constants import COPIED
from byoc.graph import Value
from byoc.layout.region import lay_out, pack_constants
from byoc.operators.copies import Copy
from byoc.operators.operator import Operator
from byoc.operators.products import separate_requantisation
from byoc.operators.records import Operand
from isa.arch import IDEAL, Arch, Memory
from isa.layout import Layout

Role = Literal["input", "output", "intermediate"]


@dataclass(frozen=True)
class Buffer:
    """Dense memory buffer of ``nbytes`` bytes that holds one or more tensors.

    Inputs and outputs of the region never share a buffer.
    """

    name: str
    nbytes: int
    role: Role


@dataclass(frozen=True)
class TensorStart:
    """Start of a tensor: ``offset`` bytes into the buffer ``buffer``."""

    buffer: str
    offset: int


@dataclass(frozen=True, eq=False)
class Lowered:
    """Lowered region: operations that compute or copy, buffers, and the tensors in them.

    The buffers are in order of first use. ``constants``: constant operands by name; the place of
    each has its own name, and no buffer exists for it. ``layouts``: the layouts of inputs and
    outputs.
    """

    operations: tuple[Operator, ...]
    places: Mapping[str, TensorStart]
    buffers: tuple[Buffer, ...]
    constants: Mapping[str, NDArray[np.int8]]
    layouts: Mapping[str, Layout]

    def place(self, operand: Operand) -> TensorStart:
        """Return the buffer and offset of the first element of ``operand``."""
        start = self.places[operand.value]
        return TensorStart(start.buffer, start.offset + operand.start)


def value_bytes(value: Value, layout: Layout) -> int:
    """Return the size in bytes of a boundary tensor in accelerator memory.

    Int32 stays, other types become int8.
    """
    element = np.dtype(np.int32).itemsize if value.dtype == "int32" else 1
    return element * layout.images * layout.image_bytes


def lower(
    operations: Iterable[Operator],
    values: Mapping[str, Value],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    memory: Memory = IDEAL,
    fits: Callable[[Operator], bool] = lambda _: True,
) -> Lowered:
    """Return a region's operations that compute or copy, and buffers for all its tensors.

    The operations keep their order.

    Args:
        operations: the region's operations in execution order.
        values: the region's inputs and outputs by name; sizes of other tensors come from the
            operands.
        inputs: names of the region's inputs.
        outputs: names of the region's outputs.
        memory: the scratchpad.
        fits: predicate, true if an operation can be tiled into the scratchpad.
    """
    listed, assigned = lay_out(tuple(operations), values, (*inputs, *outputs), memory, fits)
    layouts = {name: assigned[name] for name in (*inputs, *outputs)}
    constants = {
        name: data for operation in listed for name, data in pack_constants(operation).items()
    }
    sizes = {name: value_bytes(values[name], layout) for name, layout in layouts.items()}
    sharing = _Sharing(_sizes(listed, sizes, constants), inputs, outputs)
    kept: list[Operator] = []
    for operation in listed:
        if operation.slices:
            kept += _share_or_copy(operation, sharing)
            kept += _copies_of_constants(operation)
        else:
            kept.append(operation)
    places = sharing.places | {name: TensorStart(name, 0) for name in constants}
    return Lowered(tuple(kept), places, sharing.buffers(), constants, layouts)


def order_copies(lowered: Lowered, has_room_for: Callable[[int], bool]) -> Lowered:
    """Return a region whose copies run where few of their bytes wait in the scratchpad.

    The copies of an unrolled recurrent layer cut its inputs into steps and join its results. A copy
    to an output of the region runs just after its source is complete. The other copies run just
    before the first operation that needs them, if all of their results would fill more than
    1/``COPIED`` of the scratchpad. Otherwise they run early, while EX waits for the first weights.
    """
    outputs = {buffer.name for buffer in lowered.buffers if buffer.role == "output"}
    places = [
        (
            [lowered.place(operand).buffer for operand in one.inputs],
            lowered.place(one.output).buffer,
        )
        for one in lowered.operations
    ]
    written: dict[str, int] = {}
    used: dict[str, int] = {}  # last reader of a buffer, or writer that is no copy to an output
    following: dict[int, list[int]] = {}  # copies to outputs, by the operation before them
    for number, (sources, target) in enumerate(places):
        is_early = lowered.operations[number].traits.moves and target in outputs and sources
        before = max(used.get(target, -1), *[written.get(name, -1) for name in sources], -1)
        written[target] = number
        used |= dict.fromkeys(sources if is_early else [*sources, target], number)
        following.setdefault(before if is_early and before >= 0 else number, []).append(number)
    copies = [one for one in lowered.operations if one.traits.moves and one.inputs]
    delays = not has_room_for(COPIED * sum([one.output.nbytes for one in copies]))
    ordered: list[int] = []
    waiting: dict[str, int] = {}  # delayed copies by the buffer that they write
    results: dict[str, list[str]] = {}  # buffers that copies of each buffer write
    for number in chain.from_iterable(following[one] for one in sorted(following)):
        sources, target = places[number]
        for name in (*sources, target, *results.pop(target, ())):
            if name in waiting:
                ordered.append(waiting.pop(name))
        is_copy = lowered.operations[number].traits.moves and sources
        if delays and is_copy and target not in outputs:
            waiting[target] = number
            for source in sources:
                results.setdefault(source, []).append(target)
        else:
            ordered.append(number)
    numbers = (*ordered, *waiting.values())
    return replace(lowered, operations=tuple(lowered.operations[one] for one in numbers))


def _sizes(
    operations: Iterable[Operator], boundary: Mapping[str, int], constants: Container[str]
) -> dict[str, int]:
    """Return the size in bytes of each non-constant tensor, in order of first mention.

    ``boundary`` has the bytes of the region's inputs and outputs.
    """
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
                Copy(
                    name=free.name,
                    kind="DMA",
                    inputs=(source,),
                    output=target,
                    onnx_nodes=free.onnx_nodes,
                )
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


def _neighbours(
    pairs: Iterable[tuple[Operand, Operand]], sharing: _Sharing
) -> list[list[tuple[Operand, Operand]]]:
    """Group pairs of tensor slices that are contiguous in both buffers.

    For example, they are the parts of a tensor that is split and concatenated.
    """
    runs: list[list[tuple[Operand, Operand]]] = []
    for pair in pairs:
        places = [sharing.place(operand) for operand in pair]
        behind = (
            [sharing.place(operand, operand.nbytes) for operand in runs[-1][-1]] if runs else []
        )
        if places == behind:
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


class _Sharing:
    """Assignment of tensors to shared buffers.

    Tensors that share a byte are equal there because of an alias.
    """

    def __init__(
        self, sizes: Mapping[str, int], inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        self.places = {name: TensorStart(name, 0) for name in sizes}
        self._extents = dict(sizes)
        self._members = {name: [name] for name in sizes}
        self._roles: dict[str, set[Role]] = {name: set() for name in sizes}
        for name in inputs:
            self._roles[name].add("input")
        for name in outputs:
            self._roles[name].add("output")

    def place(self, operand: Operand, offset: int = 0) -> TensorStart:
        """Return the buffer position ``offset`` bytes after the start of ``operand``."""
        start = self.places[operand.value]
        return TensorStart(start.buffer, start.offset + operand.start + offset)

    def share(self, source: Operand, target: Operand, nbytes: int) -> bool:
        """Let the first ``nbytes`` bytes of two operands share one buffer.

        Return False if impossible.
        """
        a = self.place(source)
        b = self.place(target)
        start_a = a.offset
        start_b = b.offset
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
            self.places[name] = TensorStart(host, offset + self.places[name].offset)
            self._members[host].append(name)
        self._roles[host] |= self._roles.pop(guest)
        del self._extents[guest]

    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(
            Buffer(name, nbytes, next(iter(self._roles[name]), "intermediate"))
            for name, nbytes in self._extents.items()
        )


def split(lowered: Lowered, arch: Arch) -> Lowered:
    """Return the lowered region without fusion, as the published system runs it.

    Tensors between the parts of a fused operation get buffers of their own.
    """
    operations = tuple(
        part
        for operation in lowered.operations
        for part in separate_requantisation(operation, arch)
    )
    places = dict(lowered.places)
    buffers = list(lowered.buffers)
    for operation in operations:
        if operation.output.value not in places:
            name = operation.output.value
            places[name] = TensorStart(name, 0)
            buffers.append(Buffer(name, operation.output.nbytes, "intermediate"))
    return replace(lowered, operations=operations, places=places, buffers=tuple(buffers))
