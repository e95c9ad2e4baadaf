"""Graph that all compiler passes work on: values, nodes and graphs as frozen data.

Every pass takes a :class:`Graph` and returns a new one. A value has a shape, an element type, a
quantisation and, if known, constant contents. A node names its operands and the ONNX nodes that it
covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import memory


@dataclass(frozen=True, eq=False)
class Quantization:
    """Affine quantisation ``real = (q - zero_point) * scale``, per tensor or per channel.

    ``scale`` is float32 and ``zero_point`` int32. Both have shape ``()`` (per tensor) or
    ``(channels,)`` (per channel along ``axis``). The zero point is in the range of the ONNX element
    type: 0..255 for uint8, -128..127 for int8.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.int32]
    axis: int | None = None

    @property
    def per_tensor(self) -> bool:
        """True if one scale and one zero point apply to the whole tensor."""
        return self.scale.size == 1

    def same_as(self, other: Quantization) -> bool:
        """Return True if both quantisations map every integer to the same real number."""
        return (
            self.scale.shape == other.scale.shape
            and bool((self.scale == other.scale).all())
            and bool((self.zero_point == other.zero_point).all())
            and (self.per_tensor or self.axis == other.axis)
        )


@dataclass(frozen=True)
class ModelView:
    """View from a tensor of the model to its value in the graph, where shape or axis order differ.

    The view copies nothing. ``tensor`` and ``shape`` are the tensor's name and shape in the model.
    Its elements, reshaped to ``factors`` and transposed by ``order``, are the value's elements in
    order. ``dtype`` is the model's element type if it differs from the graph's: indices of any
    width are int64 in the graph.
    """

    tensor: str
    shape: tuple[int, ...]
    factors: tuple[int, ...]
    order: tuple[int, ...]
    dtype: str = ""


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor of a graph.

    ``dtype`` is the NumPy name of the model's element type. ``shape`` is static. If ``open`` is
    True, the true shape depends on the data and ``shape`` is one observed example; only the CPU
    processes such tensors. With ``layout`` None the model's tensor of this name has the same
    elements in the same order and shape.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    constant: NDArray[Any] | None = None
    open: bool = False
    layout: ModelView | None = None

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def in_model(self) -> Value:
        """This computed tensor with the model's shape and type, under its name in the graph."""
        if self.layout is None:
            return self
        return replace(
            self, shape=self.layout.shape, dtype=self.layout.dtype or self.dtype, layout=None
        )

    def arrange(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the model's ``array`` of this tensor in the graph's layout."""
        if self.layout is None:
            return array
        factors = self.layout.factors
        order = self.layout.order
        found = np.ascontiguousarray(array.reshape(factors).transpose(order)).reshape(self.shape)
        return found.astype(self.dtype) if self.layout.dtype else found

    def restore(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return ``array`` in the model's layout: the inverse of :meth:`arrange`."""
        if self.layout is None:
            return array
        factors = self.layout.factors
        order = self.layout.order
        view = array.reshape([factors[axis] for axis in order]).transpose(np.argsort(order))
        found = np.ascontiguousarray(view).reshape(self.layout.shape)
        return found.astype(self.layout.dtype) if self.layout.dtype else found


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a graph.

    A quantised operation (``integer`` True, integer operands) replaces a whole
    DequantizeLinear–op–QuantizeLinear unit, a QLinear operator, or an operator of another format.
    ``onnx_nodes`` lists the names of the model's nodes that it covers.

    A node that the importer does not recognise as an integer unit keeps the model's operator type
    and its float operands. Its ``inputs`` are then only the tensors known at run time (its
    constants stay in the model) and its ``attributes`` are empty. ``remark`` gives the reason if
    the type alone does not explain it. ``macs`` counts multiply-accumulates, including those on
    padding.
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
class StatePair:
    """State of a network: an input whose next value is an output, or an input that stays.

    ``input`` and ``output`` are tensors in the graph. ``initial`` is the value before the first
    inference, in the model's layout. ``name`` is the state's name in reports.
    """

    name: str
    input: str
    output: str
    initial: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Graph:
    """A whole network: ``nodes`` in topological order, ``values`` by name.

    ``inputs`` and ``outputs`` are ordered. They contain those of ``state``.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    state: tuple[StatePair, ...] = ()

    @property
    def initial_state(self) -> dict[str, NDArray[Any]]:
        """Values of the state before the first inference, by input."""
        return {one.input: one.initial for one in self.state}

    def ends(self, node: Node) -> tuple[Value, Value]:
        """Return a node's first operand and its result."""
        return self.values[node.inputs[0]], self.values[node.outputs[0]]

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """Operations by the tensors that they compute."""
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, Sequence[Node]]:
        """Operations by the tensors that they read, in topological order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(node)
        return found

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.nodes)} nodes>"


def pair_state(
    graph: Graph, source: str, result: str, initial: NDArray[Any] | None = None
) -> StatePair:
    """Return the state of an input and an output, with zeros if it has no ``initial`` value."""
    value = graph.values[source].in_model
    zeros = np.zeros(value.shape, value.dtype)
    return StatePair(source, source, result, zeros if initial is None else initial)


def drop_unread(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """Return the nodes that ``outputs`` depend on, in execution order."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return kept[::-1]


@dataclass(frozen=True)
class Annotation:
    """Family that can run a node on some machine, or None with the ``reason`` and its ``rule``."""

    family: str | None
    reason: str | None = None
    rule: str = ""


def verify_size(values: Iterable[Value]) -> None:
    """Raise InputError if all values together are larger than the memory limit."""
    sizes = {value.name: value.elements * _item_bytes(value.dtype) for value in values}
    if sizes:
        largest = max(sizes, key=sizes.__getitem__)
        memory.require(
            sum(sizes.values()), f"the values of the network, the largest of them '{largest}'"
        )


def _item_bytes(dtype: str) -> int:
    try:
        return np.dtype(dtype).itemsize
    except TypeError:  # a type unknown to NumPy, which this project never creates
        return 1
