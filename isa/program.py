"""Program: everything that the device needs to run one region.

It has command words, memory images, tensors and provenance.

It also defines Executor, the run-time interface between compiler and device: it executes a Program
on tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from isa.arch import Arch
from isa.dataflow import Dataflow
from isa.encoding import decode
from isa.instruction import Command
from isa.plugins import variant
from isa.variants import Variant

TensorType = Literal["int8", "int32"]


@dataclass(frozen=True)
class Tensor:
    """Input or output of the program: a dense tensor in system memory at byte ``address``."""

    name: str
    role: Literal["input", "output"]
    dtype: TensorType
    shape: tuple[int, ...]
    address: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class Segment:
    """Constant bytes of system memory, such as weights and channel records.

    ``data`` is uint8 and starts at byte ``address``.
    """

    address: int
    data: NDArray[np.uint8]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle an array that repeats one byte without storing every copy of it."""
        if self.data.strides == (0,) and self.data.size:
            return _make_repeated, (self.address, int(self.data[0]), self.data.size)
        return Segment, (self.address, self.data)


def _make_repeated(address: int, byte: int, count: int) -> Segment:
    return Segment(address, np.broadcast_to(np.uint8(byte), (count,)))


@dataclass(frozen=True)
class Provenance:
    """Origin of the words ``[first, last)``: tile ``tile`` of ``layer``.

    ``kind`` is the account in the run report.
    """

    first: int
    last: int
    layer: str
    kind: str
    operation: str
    tile: int
    onnx_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Program:
    """Command stream of one region for one Arch.

    ``words`` is uint64 and is stored at byte ``command_address`` of system memory; ``dram_bytes``
    is the size of the system memory that the program addresses; ``provenance`` is ordered and does
    not overlap. ``dataflow`` contains the compiler's statements about tensors and their commands,
    for machines with packed tensors.
    """

    name: str
    arch: Arch
    words: NDArray[np.uint64]
    tensors: tuple[Tensor, ...]
    segments: tuple[Segment, ...]
    provenance: tuple[Provenance, ...]
    dram_bytes: int
    command_address: int = 0
    dataflow: Dataflow | None = None

    def __repr__(self) -> str:
        return f"<Program {self.name!r}: {len(self.words)} words for {self.arch.digest()}>"

    @property
    def variant(self) -> Variant:
        """ISA variant of the machine that the program is for."""
        return variant(self.arch.isa)

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """Decoded operations of the program with their register snapshots.

        Raises InputError for illegal words.
        """
        return decode(self.words, self.variant)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Input tensors of the program, in order; they are written before a run."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "input")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Output tensors of the program, in order; they are read after a run."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "output")

    @cached_property
    def sources(self) -> tuple[Provenance | None, ...]:
        """Provenance of each command of :attr:`commands`; None if no range covers it."""
        ranges = iter(self.provenance)
        current = next(ranges, None)
        found: list[Provenance | None] = []
        for command in self.commands:
            while current is not None and command.index >= current.last:
                current = next(ranges, None)
            found.append(
                current if current is not None and command.index >= current.first else None
            )
        return tuple(found)


TraceT_co = TypeVar("TraceT_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Execution(Generic[TraceT_co]):
    """Results of one run: output tensors by name, and the executor's trace of the run."""

    outputs: Mapping[str, NDArray[Any]]
    trace: TraceT_co


class Executor(Protocol[TraceT_co]):
    """Interface of executors, which run a program on input tensors on an idle machine.

    Inputs are given by name and must have the exact dtype and shape.
    """

    def run(self, program: Program, inputs: Mapping[str, NDArray[Any]]) -> Execution[TraceT_co]:
        """Run a program on input tensors.

        Raise InputError if it is for another Arch or if an input is missing or does not match.
        """
