"""One model for every position, made from the models of two positions.

Between positions, only shapes and a few constants of a decoder differ: sizes in Reshape or Slice,
and masks in which all elements are equal. Each is a linear function of the position.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto
from onnx.helper import make_tensor_value_info
from onnx.numpy_helper import from_array

from byoc.runtimes.protobuf import array_of, constants, copy_model, set_items
from isa.errors import InputError


@dataclass(frozen=True, eq=False)
class PositionLine:
    """Integers that are a linear function of the position: ``start + slope * position``."""

    start: NDArray[np.int64]
    slope: NDArray[np.int64]

    def evaluate(self, position: int) -> NDArray[np.int64]:
        return np.asarray(self.start + self.slope * position)


@dataclass(frozen=True, eq=False)
class _PositionConstant:
    """Constant that depends on the position.

    ``line`` gives its elements, or its shape if all elements are ``fill``. ``dtype`` is their type.
    """

    line: PositionLine
    dtype: np.dtype[Any]
    fill: Any = None

    def evaluate(self, position: int) -> NDArray[Any]:
        numbers = self.line.evaluate(position)
        if self.fill is None:
            return np.asarray(numbers, self.dtype)
        return np.full(tuple(numbers), self.fill, self.dtype)


@dataclass(frozen=True, eq=False)
class PositionalModel:
    """Model of a decoder for any number of cached positions.

    ``model`` is that of one position. ``constants`` and ``shapes`` give the constants, and the
    shapes of inputs and outputs, that depend on the position.
    """

    model: ModelProto
    constants: Mapping[str, _PositionConstant]
    shapes: Mapping[str, PositionLine]

    def bind(self, position: int) -> ModelProto:
        """Return the model with ``position`` cached positions, without inferred shapes."""
        result = copy_model(self.model)
        graph = result.graph
        del graph.value_info[:]
        for tensor in graph.initializer:
            if tensor.name in self.constants:
                tensor.CopyFrom(
                    from_array(self.constants[tensor.name].evaluate(position), tensor.name)
                )
        for value in _ports(graph):
            if value.name in self.shapes:
                sizes = self.shapes[value.name].evaluate(position)
                for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=True):
                    dim.dim_value = int(size)
        return result


def join_positions(models: Sequence[ModelProto], positions: Sequence[int]) -> PositionalModel:
    """Return one model for all positions from the models of two ``positions``.

    Raises InputError if they differ in more than linear functions of the position.
    """
    _check_nodes(*models)
    first, second = (constants(model.graph) for model in models)
    varying = {
        name: found
        for name in first
        if (found := _find_constant(first[name], second[name], positions)) is not None
    }
    shapes: dict[str, PositionLine] = {}
    for pair in zip(*(_ports(model.graph) for model in models), strict=True):
        sizes = [
            np.array([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.int64)
            for value in pair
        ]
        if not np.array_equal(sizes[0], sizes[1]):
            shapes[pair[0].name] = _find_line(sizes, positions, pair[0].name)
    return PositionalModel(models[0], varying, shapes)


def find_varying(models: Sequence[ModelProto]) -> tuple[str, ...]:
    """Return the names of the constants that differ between the models of two positions.

    Raises InputError if they differ in more than constants and shapes.
    """
    _check_nodes(*models)
    first, second = (constants(model.graph) for model in models)
    return tuple(name for name in first if not _is_equal(first[name], second[name]))


def make_dynamic(model: ModelProto, varying: Sequence[str]) -> ModelProto:
    """Return a model of one position with free shapes, and constants that vary as inputs."""
    result = copy_model(model)
    graph = result.graph
    del graph.value_info[:]
    tensors = constants(model.graph)
    for name in varying:
        free = [f"{name}:{axis}" for axis in range(len(tensors[name].dims))]
        graph.input.append(make_tensor_value_info(name, tensors[name].data_type, free))
    set_items(
        graph.initializer, (tensor for name, tensor in tensors.items() if name not in varying)
    )
    for value in _ports(graph):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}:{axis}"
    return result


def _ports(graph: GraphProto) -> chain[ValueInfoProto]:
    """Return inputs and outputs of a graph."""
    return chain(graph.input, graph.output)


def _check_nodes(first: ModelProto, second: ModelProto) -> None:
    """Raise InputError unless two models have the same nodes, and constants of the same names."""
    if len(first.graph.node) != len(second.graph.node):
        raise _differ("the number of its operators")
    for one, other in zip(first.graph.node, second.graph.node, strict=True):
        if one != other:
            raise _differ(f"{one.op_type} '{one.name}'")
    names = constants(first.graph).keys() ^ constants(second.graph).keys()
    if names:
        raise _differ(f"constant '{min(names)}'")


def _is_equal(first: TensorProto, second: TensorProto) -> bool:
    return first.dims == second.dims and bool(
        (first.raw_data and first.raw_data == second.raw_data)
        or np.array_equal(array_of(first), array_of(second))
    )


def _find_constant(
    first: TensorProto, second: TensorProto, positions: Sequence[int]
) -> _PositionConstant | None:
    """Return how a constant depends on the position, or None if it does not."""
    if _is_equal(first, second):
        return None
    arrays = [array_of(first), array_of(second)]
    dtype = arrays[0].dtype
    if arrays[0].shape == arrays[1].shape and dtype.kind in "iu":
        return _PositionConstant(_find_line(arrays, positions, first.name), dtype)
    values = {array.flat[0].item() for array in arrays if array.size}
    uniform = len(values) == 1 and all((array == array.flat[0]).all() for array in arrays)
    if not uniform or arrays[0].ndim != arrays[1].ndim:
        raise _differ(f"constant '{first.name}'")
    sizes = [np.array(array.shape, np.int64) for array in arrays]
    return _PositionConstant(_find_line(sizes, positions, first.name), dtype, values.pop())


def _find_line(arrays: Sequence[NDArray[Any]], positions: Sequence[int], name: str) -> PositionLine:
    """Return the linear function through the integers of two positions."""
    first, second = (np.asarray(array, np.int64) for array in arrays)
    slope, rest = np.divmod(second - first, positions[1] - positions[0])
    if rest.any():
        raise _differ(f"'{name}'")
    return PositionLine(first - slope * positions[0], slope)


def _differ(what: str) -> InputError:
    return InputError(
        f"the decoder computes positions in different ways: {what} is not a linear function of the "
        "position; export one whose operators do not depend on the length of the past"
    )
