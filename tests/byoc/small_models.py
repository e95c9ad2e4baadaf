"""A builder of tiny quantised ONNX models for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper

ELEMENTS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
}
ELEMENTS |= {"int16": TensorProto.INT16, "uint16": TensorProto.UINT16}
ELEMENTS |= {"int32": TensorProto.INT32, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


class ModelBuilder:
    """Collects nodes; every method that adds one returns the name of its result."""

    def __init__(self, opset: int = 21) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> str:
        self.inputs.append(helper.make_tensor_value_info(name, ELEMENTS[dtype], list(shape)))
        return name

    def output(self, name: str, dtype: str = "float32") -> None:
        self.outputs.append(helper.make_tensor_value_info(name, ELEMENTS[dtype], None))

    def constant(self, array: ArrayLike, dtype: str, name: str = "") -> str:
        name = name or f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def node(
        self,
        op_type: str,
        *inputs: str,
        name: str = "",
        result: str = "",
        domain: str = "",
        **attributes: Any,
    ) -> str:
        name = name or f"{op_type.lower()}{len(self.nodes)}"
        result = result or f"{name}.out"
        self.nodes.append(
            helper.make_node(
                op_type, list(inputs), [result], name=name, domain=domain, **attributes
            )
        )
        return result

    def quantize(
        self,
        x: str,
        scale: ArrayLike,
        zero_point: ArrayLike = 0,
        dtype: str = "int8",
        result: str = "",
    ) -> str:
        parameters = self.constant(scale, "float32"), self.constant(zero_point, dtype)
        return self.node("QuantizeLinear", x, *parameters, result=result)

    def dequantize(
        self,
        x: str,
        scale: ArrayLike,
        zero_point: ArrayLike = 0,
        dtype: str = "int8",
        **attributes: Any,
    ) -> str:
        parameters = self.constant(scale, "float32"), self.constant(zero_point, dtype)
        return self.node("DequantizeLinear", x, *parameters, **attributes)

    def weights(
        self,
        array: NDArray[Any],
        scale: ArrayLike,
        zero_point: ArrayLike = 0,
        axis: int = 0,
        name: str = "",
    ) -> str:
        """Dequantised constant weights; a list of scales is one a channel along ``axis``."""
        attributes = {} if np.ndim(scale) == 0 else {"axis": axis}
        dtype = array.dtype.name
        zeros = np.broadcast_to(np.asarray(zero_point, dtype), np.shape(scale))
        return self.dequantize(self.constant(array, dtype, name), scale, zeros, dtype, **attributes)

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "small", self.inputs, self.outputs, self.initializers)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def unary_unit(
    op_type: str,
    shape: Sequence[int],
    dtype: str = "int8",
    before: tuple[float, int] = (0.05, 3),
    after: tuple[float, int] = (0.05, 3),
    extra: Sequence[tuple[ArrayLike, str]] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one operator between two quantised tensors.

    int8 input ``x`` → DequantizeLinear → operator (node ``op``) → QuantizeLinear → int8 output
    ``y``.
    """
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", shape, dtype), *before, dtype)
    constants = [builder.constant(array, kind) for array, kind in extra]
    builder.quantize(
        builder.node(op_type, x, *constants, name="op", **attributes), *after, dtype, result="y"
    )
    builder.output("y", dtype)
    return builder.model()


def convolution_unit(
    weights: NDArray[Any],
    shape: Sequence[int],
    *,
    dtype: str = "int8",
    before: tuple[float, int] = (0.05, 3),
    weight_scale: ArrayLike = 0.02,
    weight_zero_point: ArrayLike = 0,
    bias: NDArray[Any] | None = None,
    bias_scale: ArrayLike | None = None,
    after: tuple[float, int] = (0.1, -7),
    activation: tuple[str, ...] = (),
    bounds: tuple[float, float] = (0.0, 6.0),
    **attributes: Any,
) -> onnx.ModelProto:
    """x → Conv (node ``op``) → y on integers, with an optional bias and a Relu or Clip."""
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", shape, dtype), *before, dtype)
    operands = [x, builder.weights(weights, weight_scale, weight_zero_point, name="w")]
    if bias is not None:
        scale = (
            np.float32(before[0]) * np.asarray(weight_scale, np.float32)
            if bias_scale is None
            else bias_scale
        )
        operands.append(builder.weights(bias, scale, name="b"))
    result = builder.node("Conv", *operands, name="op", **attributes)
    if activation == ("Relu",):
        result = builder.node("Relu", result, name="act")
    if activation == ("Clip",):
        limits = [builder.constant(bound, "float32") for bound in bounds]
        result = builder.node("Clip", result, *limits, name="act")
    builder.quantize(result, *after, dtype, result="y")
    builder.output("y", dtype)
    return builder.model()
