"""Reference results by ONNX Runtime and operands of hand-written commands."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from isa import numerics
from isa.arch import Arch
from isa.ops.requant import ChannelScales, pack_records

BITS = numerics.float32_bits


def onnx_result(
    op: str, inputs: dict[str, NDArray[Any]], domain: str = "", **attributes: Any
) -> NDArray[Any]:
    """Return the result of ONNX Runtime's operator ``op``.

    All inputs but the first are constants.
    """
    names = list(inputs)
    first = inputs[names[0]]
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    constants = [numpy_helper.from_array(inputs[name], name) for name in names[1:]]
    source = helper.make_tensor_value_info(
        names[0], helper.np_dtype_to_tensor_dtype(first.dtype), first.shape
    )
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(first.dtype), None)
    graph = helper.make_graph([node], "g", [source], [output], constants)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    result: NDArray[Any] = session.run(None, {names[0]: first})[0]
    return result


def records(
    bias: NDArray[np.int32], scale: NDArray[np.float32], arch: Arch | None = None
) -> NDArray[np.uint8]:
    return np.frombuffer(
        pack_records(bias, ChannelScales.make_exact(scale), arch or Arch()), np.uint8
    )


def scalar(value: float) -> NDArray[np.float32]:
    return np.array(value, np.float32)


def zero(value: int) -> NDArray[np.int8]:
    return np.array(value, np.int8)
