"""Multiply-accumulates of operators that no family runs as they are, so that none of the network's work is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from byoc.operators.onnx_view import OnnxNode, OnnxView


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


MACS: Mapping[str, Callable[[OnnxView, OnnxNode], int]] = {
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _recurrent),
    **dict.fromkeys(("FusedMatMul", "FusedGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), _product),
    "MatMulNBits": _packed_product,
}
"""Of ONNX's own operators and of ONNX Runtime's."""
