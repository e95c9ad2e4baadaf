"""Tracing: which element of a result is a copy of which of the operand, found by running the operator itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from byoc.operators.forms import Positions
from byoc.operators.nest import NOTHING
from byoc.operators.onnx_view import OnnxNode, OnnxView
from byoc.session import OnnxRuntimeSession

_SOURCE, _RESULT = "numbers", "moved"
LARGEST = 1 << 23
"""Elements of a tensor whose positions, and as many more numbers, float32 tells apart."""


def trace(view: OnnxView, node: OnnxNode, shape: tuple[int, ...]) -> Positions | str:
    """What the operator does with positions; text, why that is not known: parameters computed at run time, no copy.

    The operator runs twice: once on the positions themselves, once on them in another order and elsewhere. What is the
    same both times is no copy of an element but a constant; whatever is neither is computed.
    """
    parameters = {}
    for name in filter(None, node.inputs[1:]):
        found = view.constant(name)
        if found is None:
            return f"its parameter '{name}' is computed at run time"
        same = found.dtype.name == view.element_type(node.inputs[0])  # what stands among the elements, as Pad's value
        parameters[name] = found.astype(np.float32) if same else found
    count = math.prod(shape)
    if count >= LARGEST:
        return f"its operand has {count:,} elements; data movement is worked out for less than {LARGEST:,}"
    again, alone = np.random.default_rng(0).permutation(count), _session(view.opset, node, parameters, shape)
    results = [
        alone.run([_RESULT], {_SOURCE: numbers.reshape(shape).astype(np.float32)})[_RESULT]
        for numbers in (np.arange(count), again + count)
    ]
    same = results[0] == results[1]
    index = np.where(same, NOTHING, results[0]).astype(np.int64)
    moved, fills = index[~same], results[0][same]
    positions = (moved == results[0][~same]) & (moved >= 0) & (moved < count)
    copied = positions.all() and (results[1][~same] == again[moved] + count).all()
    if not copied or (fills.size and fills.min() != fills.max()):
        return f"it computes what is between elements; {node.op_type} moves them only"
    return Positions(index, float(fills[0]) if fills.size else None)


def _session(
    opset: int, node: OnnxNode, parameters: dict[str, NDArray[Any]], shape: tuple[int, ...]
) -> OnnxRuntimeSession:
    """The operator, alone and in float."""
    part = helper.make_graph(
        [helper.make_node(node.op_type, [_SOURCE, *node.inputs[1:]], [_RESULT], domain=node.domain, **node.attributes)],
        "movement",
        [helper.make_tensor_value_info(_SOURCE, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(_RESULT, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    model = helper.make_model(part, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return OnnxRuntimeSession(model, optimised=False)
