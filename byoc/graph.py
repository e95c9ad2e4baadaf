"""The compiler's own small typed graph: values, nodes and graphs as frozen data.

Every pass takes a :class:`Graph` and returns a new one. Values carry shape, element type, quantisation and, where
known, their constant contents; nodes name their operands and the ONNX nodes they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor of a graph. ``dtype`` is the NumPy name of the ONNX element type, ``shape`` is static.

    ``open``: its shape depends on the data, and ``shape`` is what it was once; only the CPU deals with such tensors.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    constant: NDArray[Any] | None = None
    open: bool = False

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a graph.

    A quantised operation (``op_type`` without prefix, integer operands) stands for its whole DequantizeLinear–op–
    QuantizeLinear unit or its QLinear operator; ``onnx_nodes`` lists the names of every ONNX node it covers. A node
    that the importer did not recognise as an integer unit keeps its ONNX operator type and float operands; its
    ``inputs`` are then only the tensors known at run time (its constants stay in the ONNX model), its ``attributes``
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
