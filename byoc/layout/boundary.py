"""Layouts of tensors at the boundary of a region, which the host packs and unpacks for banked memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.operators.packing import edge_lying, from_atoms, in_atoms
from isa.arch import IDEAL, Arch
from isa.program import Program, Tensor


def to_stored(array: NDArray[Any], tensor: Tensor, arch: Arch) -> NDArray[Any]:
    """Return a tensor of the model as a program reads it: dense in ideal memory, in atoms in banked memory."""
    if arch.memory == IDEAL:
        return np.ascontiguousarray(array).reshape(tensor.shape)
    return in_atoms(array, edge_lying(array.shape, tensor.shape))


def from_stored(array: NDArray[Any], shape: tuple[int, ...], arch: Arch) -> NDArray[Any]:
    """Return a tensor that a program has written with the elements in the model's order."""
    return array if arch.memory == IDEAL else from_atoms(array, edge_lying(shape, array.shape))


def packed_bytes(programs: Mapping[int, Program]) -> Mapping[tuple[int, str], int]:
    """Return the bytes of every tensor that the host packs or unpacks, by region and name."""
    packed: Iterable[tuple[int, Program]] = (item for item in programs.items() if item[1].arch.memory != IDEAL)
    return {(index, tensor.name): tensor.nbytes for index, program in packed for tensor in program.tensors}
