"""What a program states about its data: which bytes of which value each command reads and writes, and what is moved.

The compiler states it from operators, layouts and tiles; the sanitizer proves that commands, transfers and buffers do
it. A value is a tensor, or several that share memory, in its layout: byte n of it is the same wherever it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from isa.errors import InputError

CONSTANT, FILL = -1, -2
"""Instead of the number of a value: constants in system memory, by address, and one byte, by its value."""
MAXIMUM_BYTES = 1 << 28
"""Bytes that movements write, and that one operand has, at most."""
Steps = tuple[tuple[int, int], ...]
Moves = tuple[tuple[int, int, int], ...]


class Extent(NamedTuple):
    """Runs of ``nbytes`` bytes of a value from byte ``begin`` on.

    They are repeated along ``dims``: (count, stride), outermost first.
    """

    value: int
    begin: int
    nbytes: int
    dims: Steps = ()


class Movement(NamedTuple):
    """Bytes of ``target`` that are copies of bytes of ``source``, from the first byte of either on.

    ``dims``: (count, stride in the source, stride in the target).
    """

    target: int
    target_begin: int
    source: int
    source_begin: int
    dims: Moves


class Computation(NamedTuple):
    """What command number ``command`` computes: ``reads`` by register of the address, and ``result``.

    Extents are in the order in which the command goes over its operands. ``channels``: of the first operand and of the
    result, 0 where they do not count; ``mapping``: that of the weights.
    """

    command: int
    channels: tuple[int, int]
    mapping: int
    reads: tuple[tuple[str, Extent], ...]
    result: Extent


class Dataflow(NamedTuple):
    """``values``: the bytes of each; ``tensors``: the value and first byte of each tensor of the program."""

    values: tuple[int, ...]
    tensors: tuple[tuple[int, int], ...]
    movements: tuple[Movement, ...]
    computations: tuple[Computation, ...]


def check_dataflow(flow: Dataflow, tensor_bytes: Sequence[int], dram_bytes: int) -> None:
    """Raise InputError unless everything that is stated lies within values and system memory."""
    if len(flow.tensors) != len(tensor_bytes) or min(flow.values, default=0) < 0:
        raise InputError(f"the data flow states {len(flow.tensors)} tensors, the program has {len(tensor_bytes)}")
    written = {one.target for one in flow.movements}
    if sum(flow.values[value] for value in written if 0 <= value < len(flow.values)) > MAXIMUM_BYTES:
        raise InputError(f"the data flow states movements of more than {MAXIMUM_BYTES} bytes")
    made, read = (dict(enumerate(flow.values)) for _ in range(2))
    read[CONSTANT] = dram_bytes
    for extent in _results(flow, tensor_bytes):
        _check_extent(extent, made)
    for extent in _operands(flow):
        _check_extent(extent, read)


def _check_extent(extent: Extent, sizes: Mapping[int, int]) -> None:
    least, size = min((count for count, _ in extent.dims), default=0), sizes.get(extent.value, 0)
    total = extent.nbytes * prod(count for count, _ in extent.dims)
    low = extent.begin + sum(min(0, (count - 1) * stride) for count, stride in extent.dims)
    high = extent.begin + extent.nbytes + sum(max(0, (count - 1) * stride) for count, stride in extent.dims)
    if min(least, extent.nbytes) < 0 or total > MAXIMUM_BYTES or (total and not 0 <= low <= high <= size):
        raise InputError(f"the data flow states bytes {low} to {high} of value {extent.value}, which has {size}")


def _results(flow: Dataflow, tensor_bytes: Sequence[int]) -> Iterator[Extent]:
    """What is stated to be written, or to be a tensor."""
    yield from (Extent(*place, nbytes) for place, nbytes in zip(flow.tensors, tensor_bytes, strict=True))
    yield from (one.result for one in flow.computations)
    for one in flow.movements:
        yield Extent(one.target, one.target_begin, 1, tuple((count, target) for count, _, target in one.dims))


def _operands(flow: Dataflow) -> Iterator[Extent]:
    """What is stated to be read."""
    yield from (extent for one in flow.computations for _, extent in one.reads)
    for one in flow.movements:
        if one.source != FILL:
            yield Extent(one.source, one.source_begin, 1, tuple((count, source) for count, source, _ in one.dims))
