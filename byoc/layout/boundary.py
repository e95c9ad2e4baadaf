"""Layouts of region inputs and outputs, and the host's conversion into them and back."""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.arch import IDEAL, Arch, Memory
from isa.layout import Layout
from isa.packing import atoms_of
from isa.program import Program, Tensor


def default_layout(shape: tuple[int, ...], atom: int) -> Layout:
    """Return the default layout of a tensor.

    A tensor (N, C, …) is stored as N images of C channels, a matrix (M, K) as K channels.
    """
    if len(shape) <= 1:
        return Layout(prod(shape), 1, atom)
    if len(shape) == 2:
        return Layout(shape[1], shape[0], atom, by_row=True).canonical
    return Layout(shape[1], prod(shape[2:]), atom, images=shape[0]).canonical


def boundary_layouts(shape: tuple[int, ...], atom: int) -> tuple[Layout, ...]:
    """Return the layouts that a region input or output may have: the default, by row, and dense.

    The stored shape (surfaces, positions, atom) identifies the layout; of layouts with equal stored
    shape only the first is allowed.
    """
    found: dict[tuple[int, ...], Layout] = {}
    rows = Layout(shape[-1] if shape else 1, prod(shape[:-1]), atom, by_row=True)
    for layout in (default_layout(shape, atom), rows.canonical, Layout(prod(shape), 1, atom)):
        found.setdefault(layout.stored, layout)
    return tuple(found.values())


@lru_cache(maxsize=1024)
def boundary_layout(shape: tuple[int, ...], stored: tuple[int, ...]) -> Layout:
    """Return the layout of a region input or output that is stored with shape ``stored``.

    ``shape`` is its shape in the model.
    """
    return next(layout for layout in boundary_layouts(shape, stored[-1]) if layout.stored == stored)


def to_atoms(array: NDArray[np.generic], layout: Layout) -> NDArray[np.generic]:
    """Return a tensor of the model in its memory layout: (images · surfaces, positions, atom)."""
    if layout.by_row:
        images = array.reshape(layout.images, layout.positions, layout.channels).swapaxes(1, 2)
    else:
        images = array.reshape(layout.images, layout.channels, layout.positions)
    return np.ascontiguousarray(np.concatenate([atoms_of(image, layout.atom) for image in images]))


def from_atoms(array: NDArray[np.generic], layout: Layout) -> NDArray[np.generic]:
    """Return the elements of a stored tensor in row-major order of the model's tensor.

    This is the inverse of :func:`to_atoms`.
    """
    images = array.reshape(layout.images, layout.surfaces, layout.positions, layout.atom).swapaxes(
        2, 3
    )
    channels = images.reshape(layout.images, -1, layout.positions)[:, : layout.channels]
    return np.ascontiguousarray(channels.swapaxes(1, 2) if layout.by_row else channels).reshape(-1)


def compute_stored_shape(shape: tuple[int, ...], layout: Layout, memory: Memory) -> tuple[int, ...]:
    """Return the shape of a region input or output in memory: the model's shape in ideal memory.

    Raises AssertionError if the shape would not tell the host the ``layout``.
    """
    if memory == IDEAL:
        return shape
    if boundary_layout(shape, layout.stored) != layout:
        raise AssertionError(f"{layout.stored} does not identify the layout {layout} of {shape}")
    return layout.stored


def to_stored(array: NDArray[Any], tensor: Tensor, arch: Arch) -> NDArray[Any]:
    """Return an array with its elements in the memory order that a program reads.

    The tensor is dense in ideal memory and consists of atoms in banked memory.
    """
    if arch.memory == IDEAL:
        return np.ascontiguousarray(array).reshape(tensor.shape)
    return to_atoms(array, boundary_layout(array.shape, tensor.shape))


def from_stored(array: NDArray[Any], shape: tuple[int, ...], arch: Arch) -> NDArray[Any]:
    """Return a tensor that a program has written, with its elements in the model's order."""
    return array if arch.memory == IDEAL else from_atoms(array, boundary_layout(shape, array.shape))


def get_boundary_layout(shape: tuple[int, ...], tensor: Tensor, arch: Arch) -> Layout:
    """Return the layout of a program's input or output that has ``shape`` in the model."""
    if arch.memory == IDEAL:
        return Layout(1, prod(shape), 1)
    return boundary_layout(shape, tensor.shape)


def count_packed_bytes(programs: Mapping[int, Program]) -> Mapping[tuple[int, str], int]:
    """Return the bytes of every tensor that the host packs or unpacks, by region and name."""
    return {
        (index, tensor.name): tensor.nbytes
        for index, program in programs.items()
        for tensor in program.tensors
        if program.arch.memory != IDEAL
    }
