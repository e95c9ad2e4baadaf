"""Calls of the bundle's C functions, as the plan of a network lists them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Value
from isa.errors import InputError

C_TYPES = {
    "int8": "DLA_INT8", "uint8": "DLA_UINT8", "bool": "DLA_BOOL", "int16": "DLA_INT16",
    "uint16": "DLA_UINT16", "int32": "DLA_INT32", "int64": "DLA_INT64", "float32": "DLA_FLOAT32",
}  # fmt: skip
"""Element types that the C functions know, by NumPy name."""


@dataclass(frozen=True)
class BufferArgument:
    """Pointer argument: byte ``offset`` of the buffer ``name`` in the arena.

    ``target`` is the C type that it points to.
    """

    name: str
    target: str = "uint8_t"
    written: bool = False
    offset: int = 0


@dataclass(frozen=True, eq=False)
class ConstantArgument:
    """Pointer argument to constant bytes; ``target`` is the C type that it points to."""

    data: NDArray[np.uint8]
    target: str = "uint8_t"


@dataclass(frozen=True)
class DimensionsArgument:
    """Pointer argument to an array of (count, step of ``from``, step of ``to``)."""

    dims: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class StructArgument:
    """Pointer argument to a structure of C; ``fields`` are its members in order."""

    name: str
    fields: tuple[int, ...]


CArgument = str | BufferArgument | ConstantArgument | DimensionsArgument | StructArgument


@dataclass(frozen=True, eq=False)
class CCall:
    """Call of a C function.

    A ``checked`` function returns a value other than 0 for an index out of range.
    """

    function: str
    arguments: tuple[CArgument, ...]
    checked: bool = False

    @property
    def buffers(self) -> tuple[BufferArgument, ...]:
        return tuple(one for one in self.arguments if isinstance(one, BufferArgument))


def c_type(value: Value) -> str:
    """Return the ``enum dla_type`` of a tensor; raise InputError for other element types."""
    if value.open or value.dtype not in C_TYPES:
        what = "a size that depends on data" if value.open else f"type {value.dtype}"
        raise InputError(
            f"tensor '{value.name}' has {what}, which a bare-metal bundle does not support; "
            f"use one of {', '.join(C_TYPES)} and fixed shapes"
        )
    return C_TYPES[value.dtype]


def count_bytes(value: Value) -> int:
    """Return the size of a tensor of a known type in bytes."""
    c_type(value)
    return value.elements * np.dtype(value.dtype).itemsize


def c_float(number: float) -> str:
    """Return a float32 number as a C99 literal without rounding."""
    return f"{float(np.float32(number)).hex()}f"


def to_bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Return the bytes of an array, little-endian and in row-major order."""
    ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return np.frombuffer(ordered.tobytes(), np.uint8)
