"""Multiply-accumulates of ONNX nodes: of those that a family runs, of others, and of the bodies of control flow.

Whatever runs where, none of a network's work is left out of the account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
import onnx

from byoc.frontend.onnx.reading import build_view
from byoc.frontend.onnx.shapes import tensor_types
from byoc.operators.forms import QLinear, Written
from byoc.operators.onnx_view import OnnxNode, OnnxView
from byoc.operators.registry import installed
from isa.errors import InputError

_FUSED = {"FusedConv": "Conv"}
"""ONNX Runtime's own operators that have the operands of another, whatever else they do."""


def count_macs(view: OnnxView, node: OnnxNode) -> int:
    """MACs of one node, padded taps included: those that its operator family counts, whether it runs there or not."""
    registry, op_type = installed(), _FUSED.get(node.op_type, node.op_type)
    if op_type in registry.integer_forms:
        family, form, integer = registry.integer_forms[op_type]
        positions = [triple[0] for triple in integer.operands] if isinstance(integer, QLinear) else [0, 1]
        operands = tuple(node.input(position) for position in positions)
    elif op_type in registry.forms:
        (family, form), operands = registry.forms[op_type], node.inputs[:2]
    elif op_type in _OTHERS:
        return _OTHERS[op_type](view, node)
    else:
        return _macs_within(view, node)
    if not all(view.shape(name) for name in operands[:2] if name):
        return 0  # an operand without dimensions: no product that anybody can run
    return family.macs(Written(view, node, form, operands, node.outputs[0]))


def _transposed_convolution(view: OnnxView, node: OnnxNode) -> int:
    """Every element of the input with every weight of its channel."""
    return prod(view.shape(node.inputs[0])) * prod(view.shape(node.inputs[1])[1:])


def _recurrent(view: OnnxView, node: OnnxNode) -> int:
    """At every step of every sequence, each weight of input and state once; gates multiply nothing worth counting."""
    steps = prod(view.shape(node.inputs[0])[:2])
    return steps * (prod(view.shape(node.inputs[1])) + prod(view.shape(node.inputs[2])))


def _product(view: OnnxView, node: OnnxNode) -> int:
    """M·K·N of what is called a matrix product."""
    left = view.shape(node.inputs[0])
    depth = left[-2] if node.attributes.get("transA") and len(left) > 1 else left[-1]
    return prod(view.shape(node.outputs[0])) * depth


def _packed_product(view: OnnxView, node: OnnxNode) -> int:
    """Weights of fewer bits, packed."""
    return prod(view.shape(node.outputs[0])) * int(node.attributes.get("K", 0))


_OTHERS: Mapping[str, Callable[[OnnxView, OnnxNode], int]] = {
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _recurrent),
    **dict.fromkeys(("FusedMatMul", "FusedGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), _product),
    "MatMulNBits": _packed_product,
}
"""Operators, ONNX's own and ONNX Runtime's, that no family runs as they are."""


def _macs_within(view: OnnxView, node: OnnxNode) -> int:
    """MACs of the bodies of control flow: of the dearer branch, or of all repetitions where their number is constant.

    0 where the shapes within are not known.
    """
    found = [_macs_of_body(view, node, body) for body in node.attributes.values() if isinstance(body, onnx.GraphProto)]
    return max(found, default=0)


def _macs_of_body(view: OnnxView, node: OnnxNode, body: onnx.GraphProto) -> int:
    """MACs of one body, repeated as the node's operator does: Loop counts, Scan goes along its first axis."""
    states = node.inputs[2:] if node.op_type == "Loop" else node.inputs
    types = {name: (view.shape(name), view.element_type(name)) for name in node.captured if view.element_type(name)}
    repeated = 1
    if node.op_type == "Loop":
        count = view.constants.get(node.input(0))
        repeated = int(count.reshape(-1)[0]) if count is not None and count.size == 1 else 1
        types |= {value.name: ((), kind) for value, kind in zip(body.input, ("int64", "bool"), strict=False)}
    for value, name in zip(body.input[2 if node.op_type == "Loop" else 0 :], states, strict=False):
        types[value.name] = view.shape(name), view.element_type(name)
    if node.op_type == "Scan":
        scanned = body.input[len(states) - int(node.attributes["num_scan_inputs"]) :]
        repeated = types[scanned[0].name][0][0] if scanned else 1
        types |= {value.name: (types[value.name][0][1:], types[value.name][1]) for value in scanned}
    inner = onnx.ModelProto(ir_version=10, opset_import=view.opsets, graph=body)
    inner.graph.ClearField("input")
    inner.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
        for name, (shape, kind) in types.items()
        if name not in view.constants
    )
    constants = ((name, view.constants[name]) for name in node.captured if name in view.constants)
    inner.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in dict(constants).items())
    try:
        within = build_view(inner, *tensor_types(inner))
        return max(repeated, 0) * sum(count_macs(within, each) for each in within.nodes)
    except (InputError, onnx.shape_inference.InferenceError):
        return 0
