"""Data flow of a program: the bytes of each value that its commands read, write and move.

The compiler states the data flow from operators, layouts and tiles. The sanitizer proves that
commands, transfers and buffers implement it. A value is a tensor, or several tensors that share
memory, in its layout: byte n of a value is the same wherever it is stored.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from isa.errors import InputError

CONSTANT = -1
FILL = -2
"""Numbers that stand for a source that is no value: constants in system memory, a constant byte.

The source's first byte is then the constant's address, or the value of the byte.
"""
MAXIMUM_BYTES = 1 << 31
"""Maximum bytes of all values, and maximum bytes of one operand."""
Steps = tuple[tuple[int, int], ...]
Moves = tuple[tuple[int, int, int], ...]


class Extent(NamedTuple):
    """Bytes of a value: runs of ``nbytes`` bytes from byte ``begin``, repeated along ``dims``.

    ``dims`` is ((count, stride), ...), outermost first.
    """

    value: int
    begin: int
    nbytes: int
    dims: Steps = ()

    @property
    def total(self) -> int:
        """Number of bytes of the extent, repeated runs included."""
        return self.nbytes * prod(count for count, _ in self.dims) if self.dims else self.nbytes


class ByteMovement(NamedTuple):
    """Copy of bytes from one tensor or constant to another.

    ``source`` is read from byte ``source_begin`` and ``target`` written from byte ``target_begin``.
    ``dims`` is ((count, stride in the source, stride in the target), ...).
    """

    target: int
    target_begin: int
    source: int
    source_begin: int
    dims: Moves


class Computation(NamedTuple):
    """Operands and result of one compute command, as bytes of values.

    ``command`` is its number; ``reads`` are by register of the address.

    The extents are in the order in which the command processes its operands. ``channels`` are those
    of the first operand and the result, 0 if irrelevant. ``mapping`` is that of the weights.
    """

    command: int
    channels: tuple[int, int]
    mapping: int
    reads: tuple[tuple[str, Extent], ...]
    result: Extent


class Dataflow(NamedTuple):
    """Data flow of a program: copies of bytes and operands of computations.

    Attributes:
        values: bytes of each value.
        tensors: value and first byte of each tensor of the program.
        movements: copies between values.
        computations: operands and results of commands.
    """

    values: tuple[int, ...]
    tensors: tuple[tuple[int, int], ...]
    movements: tuple[ByteMovement, ...]
    computations: tuple[Computation, ...]


def check_dataflow(flow: Dataflow, tensor_bytes: Sequence[int], dram_bytes: int) -> None:
    """Raise InputError if an extent of the data flow exceeds its value or the system memory."""
    if len(flow.tensors) != len(tensor_bytes) or min(flow.values, default=0) < 0:
        raise InputError(
            f"the data flow states {len(flow.tensors)} tensors, the program has {len(tensor_bytes)}"
        )
    if sum(flow.values) > MAXIMUM_BYTES:
        raise InputError(
            f"the data flow states values of {sum(flow.values)} bytes; at most {MAXIMUM_BYTES} are "
            "allowed"
        )
    made, read = (dict(enumerate(flow.values)) for _ in range(2))
    read[CONSTANT] = dram_bytes
    for extent in _results(flow, tensor_bytes):
        _check_extent(extent, made)
    for extent in _operands(flow):
        _check_extent(extent, read)


def _check_extent(extent: Extent, sizes: Mapping[int, int]) -> None:
    least = min((count for count, _ in extent.dims), default=0)
    size = sizes.get(extent.value, 0)
    widest = max((abs(stride) for _, stride in extent.dims), default=0)
    low = extent.begin + sum(min(0, (count - 1) * stride) for count, stride in extent.dims)
    high = (
        extent.begin
        + extent.nbytes
        + sum(max(0, (count - 1) * stride) for count, stride in extent.dims)
    )
    if (
        min(least, extent.nbytes) < 0
        or max(extent.total, widest) > MAXIMUM_BYTES
        or (extent.total and not 0 <= low <= high <= size)
    ):
        raise InputError(
            f"the data flow states bytes {low} to {high} of value {extent.value}, which has {size}"
        )


def _results(flow: Dataflow, tensor_bytes: Sequence[int]) -> Iterator[Extent]:
    """Yield the byte extents that a data flow writes, and the extent of each tensor."""
    yield from (
        Extent(*place, nbytes) for place, nbytes in zip(flow.tensors, tensor_bytes, strict=True)
    )
    yield from (one.result for one in flow.computations)
    for one in flow.movements:
        yield Extent(
            one.target, one.target_begin, 1, tuple((count, target) for count, _, target in one.dims)
        )


def _operands(flow: Dataflow) -> Iterator[Extent]:
    """Yield the byte extents that a program's data flow reads."""
    yield from (extent for one in flow.computations for _, extent in one.reads)
    for one in flow.movements:
        if one.source != FILL:
            yield Extent(
                one.source,
                one.source_begin,
                1,
                tuple((count, source) for count, source, _ in one.dims),
            )
