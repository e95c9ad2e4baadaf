"""Calibration data of the user's own: inputs that quantisation of a float model observes the ranges on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError

if TYPE_CHECKING:
    from onnx import ModelProto

Feeds = dict[str, NDArray[Any]]


def load_calibration(path: Path, model: ModelProto) -> list[Feeds]:
    """One feed a sample from a ``.npz`` with an array for every input of ``model``, samples along an extra first axis.

    Raises InputError: no such file, not a .npz, an input missing or unknown, sample counts that differ, wrong shapes.
    """
    arrays = _read(path)
    wanted = {value.name: value.type.tensor_type for value in model.graph.input}
    for name in sorted(arrays.keys() ^ wanted.keys()):
        state = "has no array for" if name in wanted else "has an array for something that is no input:"
        raise InputError(f"--calibration {path}: it {state} '{name}'; the inputs are {', '.join(wanted)}")
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if min(counts.values(), default=0) < 1 or len(set(counts.values())) != 1:
        raise InputError(f"--calibration {path}: the arrays have {counts} samples; give all of them the same number")
    for name, tensor in wanted.items():
        _check(path, name, arrays[name], tuple(dim.dim_value for dim in tensor.shape.dim), tensor.elem_type)
    return list(_samples(arrays, next(iter(counts.values()))))


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"--calibration {path}: no such file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # numpy and zipfile raise a dozen kinds for damaged files
        raise InputError(f"--calibration {path}: not a readable .npz file of plain numbers") from error


def _check(path: Path, name: str, array: NDArray[Any], shape: tuple[int, ...], element: int) -> None:
    from onnx.helper import tensor_dtype_to_np_dtype

    dtype = np.dtype(tensor_dtype_to_np_dtype(element))
    if array.shape[1:] != shape or array.dtype != dtype:
        raise InputError(
            f"--calibration {path}: '{name}' has samples of shape {list(array.shape[1:])} and type {array.dtype}; "
            f"the model wants shape {list(shape)} and type {dtype}"
        )


def _samples(arrays: dict[str, NDArray[Any]], count: int) -> Iterator[Feeds]:
    for sample in range(count):
        yield {name: array[sample] for name, array in arrays.items()}
