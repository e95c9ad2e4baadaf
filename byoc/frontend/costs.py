"""Multiply-accumulates of ONNX operators from their shapes, padded taps included."""

from __future__ import annotations

import math

from byoc.frontend.view import OnnxNode, OnnxView

_CONVOLUTIONS = {"Conv": (0, 1), "ConvInteger": (0, 1), "QLinearConv": (0, 3), "FusedConv": (0, 1)}
_PRODUCTS = {"MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3), "Gemm": (0, 1), "QGemm": (0, 3)}


def count_macs(view: OnnxView, node: OnnxNode) -> int:
    """MACs of one node: convolutions OC·OH·OW·IC/group·KH·KW an image, products M·K·N; 0 for everything else."""
    if node.op_type in _CONVOLUTIONS:
        weights = view.shape(node.inputs[_CONVOLUTIONS[node.op_type][1]])
        return math.prod(view.shape(node.outputs[0])) * math.prod(weights[1:])
    if node.op_type == "ConvTranspose":
        weights = view.shape(node.inputs[1])
        return math.prod(view.shape(node.inputs[0])) * math.prod(weights[1:])
    if node.op_type in _PRODUCTS:
        left = view.shape(node.inputs[_PRODUCTS[node.op_type][0]])
        depth = left[0] if node.attributes.get("transA") else left[-1]
        return math.prod(view.shape(node.outputs[0])) * depth
    return 0
