"""View of an ONNX model for operators and importer.

It gives nodes with unique names, constants, shapes and quantisations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from byoc.graph import Quantization
from isa.errors import InputError

QUANTIZE = "QuantizeLinear"
DEQUANTIZE = "DequantizeLinear"
ADD = "Add"
CAST = "Cast"
CLIP = "Clip"
CONCAT = "Concat"
CONSTANT_NODE = "Constant"
CONVOLUTION = "Conv"
DIVIDE = "Div"
GATHER = "Gather"
IDENTITY = "Identity"
MULTIPLY = "Mul"
SELECT = "Where"
SUBTRACT = "Sub"
INTEGER_PRODUCTS = {"Conv": "ConvInteger", "Gemm": "MatMulInteger", "MatMul": "MatMulInteger"}
"""For each product of real numbers, the operator that returns the int32 sums of integers."""
MATRIX_PRODUCTS = frozenset({"Gemm", "MatMul"})
"""Products whose weights ONNX Runtime copies in another order."""
UNFUSED = frozenset({ADD, "Sub", "Min", "Max", "Abs", "Neg"})
"""Operators that ONNX Runtime does not fuse with each other."""
BOUNDARIES = frozenset({QUANTIZE, DEQUANTIZE})
"""Operators between integers and real numbers.

One without its counterpart ends the integer part of the network.
"""
CARRIERS = frozenset(
    {"Gather", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Identity"}
)
"""Operators that move elements of their first operand, which all have one scale."""


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """One ONNX node.

    ``name`` is unique and never empty; ``captured`` are outer tensors that its subgraphs read.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    domain: str = ""
    captured: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that the node reads, without duplicates, in order."""
        return tuple(dict.fromkeys(name for name in (*self.inputs, *self.captured) if name))

    @property
    def standard(self) -> bool:
        """True for operators of the default ONNX domain."""
        return self.domain in ("", "ai.onnx")

    def input(self, index: int) -> str:
        """Return the name of an input, or the empty string if an optional one is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True, eq=False)
class OnnxView:
    """Part of an ONNX model that contributes to its outputs.

    ``tensors`` maps every known tensor to its static shape and NumPy element type.

    ``open`` names tensors whose shape depends on the data; their recorded shape is that of one run.
    ``opsets`` are the model's operator sets.
    """

    name: str
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, NDArray[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, tuple[tuple[int, ...], str]]
    producer: Mapping[str, OnnxNode] = field(default_factory=dict)
    consumers: Mapping[str, tuple[OnnxNode, ...]] = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    opsets: tuple[onnx.OperatorSetIdProto, ...] = ()
    opset: int = 21

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Position of each node in execution order, by name."""
        return {node.name: place for place, node in enumerate(self.nodes)}

    @cached_property
    def quantised(self) -> bool:
        """True if any tensor is quantised or dequantised."""
        return any(node.op_type in BOUNDARIES for node in self.nodes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the static shape of a tensor.

        Raise :class:`InputError` if it is unknown.
        """
        if name in self.constants:
            return tuple(self.constants[name].shape)
        if name not in self.tensors:
            raise InputError(
                f"the shape of tensor '{name}' is not known: ONNX cannot infer it, and ONNX "
                "Runtime does not run the "
                "model on zeros; export it with static shapes"
            )
        return self.tensors[name][0]

    def element_type(self, name: str) -> str:
        """Return the NumPy element type of a tensor.

        The result is empty if it is unknown.
        """
        return (
            self.constants[name].dtype.name
            if name in self.constants
            else self.tensors.get(name, ((), ""))[1]
        )

    def is_constant(self, name: str) -> bool:
        """Return True if a tensor is constant, directly or after one DequantizeLinear."""
        source = self.producer.get(name)
        if source is not None and source.op_type == DEQUANTIZE:
            name = source.inputs[0]
        return name in self.constants

    def constant(self, name: str) -> NDArray[Any] | None:
        """Return the constant value of ``name``, or None if it is computed.

        The value may be dequantised by one DequantizeLinear.
        """
        source = self.producer.get(name)
        if source is None or source.op_type != DEQUANTIZE:
            return self.constants.get(name)
        steps = self.constants.get(source.inputs[0])
        quantization = self.quantization_of(source)
        if steps is None or quantization is None:
            return None
        shape = [1] * steps.ndim
        if quantization.axis is not None and not quantization.per_tensor:
            shape[quantization.axis] = -1
        scale, zero_point = (
            part.reshape(shape) for part in (quantization.scale, quantization.zero_point)
        )
        return ((steps.astype(np.int64) - zero_point).astype(np.float32) * scale).astype(np.float32)

    def scalar(self, name: str) -> float | None:
        """Return the value of a constant tensor with one number (see :meth:`constant`).

        The result is None if the tensor is computed or has several numbers.
        """
        found = self.constant(name)
        return float(found.reshape(())) if found is not None and found.size == 1 else None

    def real(self, name: str) -> NDArray[np.float32] | None:
        """Return the values of a constant floating-point tensor (see :meth:`constant`).

        The result is None if the tensor is computed or has integers.
        """
        found = self.constant(name)
        return (
            None
            if found is None or found.dtype.kind != "f"
            else found.astype(np.float32, copy=False)
        )

    def quantization(self, scale: str, zero_point: str, axis: int | None) -> Quantization | None:
        """Return the quantisation with the named scale and zero point, or None.

        The result is None if the parameters are not constant or have an unknown form.
        """
        scales = self.constants.get(scale)
        if (
            scales is None
            or scales.dtype != np.float32
            or scales.ndim > 1
            or (zero_point and zero_point not in self.constants)
        ):
            return None
        zeros = self.constants[zero_point] if zero_point else np.zeros(scales.shape, np.uint8)
        if zeros.dtype.kind not in "iu" or zeros.size != scales.size:
            return None
        if scales.size == 1:
            return Quantization(scales.reshape(()), zeros.astype(np.int32).reshape(()))
        return Quantization(scales, zeros.astype(np.int32), axis)

    def quantization_of(self, node: OnnxNode) -> Quantization | None:
        """Return the quantisation of a QuantizeLinear or DequantizeLinear, or None.

        The result is None if the quantisation is not constant or is blocked.
        """
        if node.attributes.get("block_size"):
            return None
        integer = node.outputs[0] if node.op_type == QUANTIZE else node.inputs[0]
        axis = int(node.attributes.get("axis", 1))
        shape = self.shape(integer)
        axis = axis + len(shape) if axis < 0 else axis
        found = self.quantization(node.input(1), node.input(2), axis)
        if (
            found is None
            or found.per_tensor
            or (0 <= axis < len(shape) and found.scale.shape == (shape[axis],))
        ):
            return found
        return None
