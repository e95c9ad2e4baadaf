"""The compiler's own small typed graph: values, nodes and graphs as frozen data.

Every pass takes a :class:`Graph` and returns a new one. Values carry shape, element type, quantisation and, where
known, their constant contents; nodes name their operands and the ONNX nodes they came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Quantization:
    """Affine quantisation ``real = (q - zero_point) * scale``, per tensor or per channel.

    ``scale`` is float32 and ``zero_point`` int32, both of shape ``()`` (per tensor) or ``(channels,)`` (per channel
    along ``axis``). The zero point is that of the ONNX element type: 0..255 for uint8, -128..127 for int8.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.int32]
    axis: int | None = None

    @property
    def per_tensor(self) -> bool:
        """True when one scale and one zero point serve the whole tensor."""
        return self.scale.size == 1

    def same_as(self, other: Quantization) -> bool:
        """True when both give every integer the same real number."""
        return (
            self.scale.shape == other.scale.shape
            and bool((self.scale == other.scale).all())
            and bool((self.zero_point == other.zero_point).all())
            and (self.per_tensor or self.axis == other.axis)
        )


@dataclass(frozen=True)
class Layout:
    """How a tensor of the model lies in the graph, where it does otherwise: a view, which moves nothing by itself.

    ``tensor`` is its name in the model, ``shape`` its shape there. The model's elements as an array of ``factors``,
    transposed by ``order``, are the value's elements in their order. ``dtype`` is the model's where it has another:
    indices of any width are int64 in the graph.
    """

    tensor: str
    shape: tuple[int, ...]
    factors: tuple[int, ...]
    order: tuple[int, ...]
    dtype: str = ""


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor of a graph. ``dtype`` is the NumPy name of the model's element type, ``shape`` is static.

    ``open``: its shape depends on the data, and ``shape`` is what it was once; only the CPU deals with such tensors.
    ``layout`` None: the model's tensor of this name has the same elements in the same order and shape.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    constant: NDArray[Any] | None = None
    open: bool = False
    layout: Layout | None = None

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def in_model(self) -> Value:
        """The tensor as the model has it, under the name that it has here; of a computed tensor."""
        if self.layout is None:
            return self
        return replace(self, shape=self.layout.shape, dtype=self.layout.dtype or self.dtype, layout=None)

    def arranged(self, array: NDArray[Any]) -> NDArray[Any]:
        """What the model's tensor holds as it lies in the graph."""
        if self.layout is None:
            return array
        factors, order = self.layout.factors, self.layout.order
        found = np.ascontiguousarray(array.reshape(factors).transpose(order)).reshape(self.shape)
        return found.astype(self.dtype) if self.layout.dtype else found

    def restored(self, array: NDArray[Any]) -> NDArray[Any]:
        """What lies in the graph as the model's tensor holds it: the inverse of :meth:`arranged`."""
        if self.layout is None:
            return array
        factors, order = self.layout.factors, self.layout.order
        view = array.reshape([factors[axis] for axis in order]).transpose(np.argsort(order))
        found = np.ascontiguousarray(view).reshape(self.layout.shape)
        return found.astype(self.layout.dtype) if self.layout.dtype else found


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a graph.

    A quantised operation (``op_type`` without prefix, integer operands) stands for its whole DequantizeLinear–op–
    QuantizeLinear unit, its QLinear operator, or an operator of another format; ``onnx_nodes`` lists the names of every
    node of the model it covers. A node that the importer did not recognise as an integer unit keeps the model's
    operator type and float operands; its
    ``inputs`` are then only the tensors known at run time (its constants stay in the model), its ``attributes``
    are empty, and ``remark`` says why it was not recognised, where there is more to say than its type. ``macs`` counts
    multiply-accumulates, padded taps included. ``integer`` is True for quantised operations.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    onnx_nodes: tuple[str, ...] = ()
    remark: str = ""
    macs: int = 0
    integer: bool = False


@dataclass(frozen=True, eq=False)
class Graph:
    """A whole network: ``nodes`` in topological order, ``values`` by name, flat ordered ``inputs`` and ``outputs``."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.nodes)} nodes>"


def drop_unread(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """Of nodes in execution order those whose results reach an output."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return kept[::-1]
