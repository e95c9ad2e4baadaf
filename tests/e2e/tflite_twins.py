"""The ONNX twin of a TensorFlow Lite network: the same layers in NCHW, with its weights and scales.

Twins are for cycles: their integers are those of the network, its rounding rules are ONNX
Runtime's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.graph import Graph, Node, Value


class _Twin:
    """The ONNX model that is being written."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, data: np.ndarray) -> str:
        """The name of a constant."""
        self.constants.setdefault(name, numpy_helper.from_array(np.array(data, order="C"), name))
        return name

    def scaled(self, name: str) -> list[str]:
        """A tensor, its scale and its zero point."""
        value = self.graph.values[name]
        assert value.quantization is not None
        if value.constant is not None:
            self.constant(name, value.constant)
        zero = value.quantization.zero_point.astype(value.dtype)
        return [
            name,
            self.constant(f"{name}:scale", value.quantization.scale),
            self.constant(f"{name}:zero", zero),
        ]

    def add(
        self, op_type: str, inputs: list[str], node: Node, domain: str = "", **attributes: object
    ) -> None:
        """A node that makes the result of a canonical one."""
        self.nodes.append(
            helper.make_node(
                op_type, inputs, list(node.outputs), node.name, domain=domain, **attributes
            )
        )


def _window(node: Node) -> dict[str, object]:
    names = {
        "kernel": "kernel_shape",
        "strides": "strides",
        "dilations": "dilations",
        "pads": "pads",
        "group": "group",
    }
    return {names[key]: found for key, found in node.attributes.items() if key in names}


def _conv(twin: _Twin, node: Node) -> None:
    x, w = (twin.scaled(name) for name in node.inputs[:2])
    y = twin.scaled(node.outputs[0])
    bias = [twin.constant(name, twin.graph.values[name].constant) for name in node.inputs[2:]]
    twin.add("QLinearConv", [*x, *w, *y[1:], *bias], node, **_window(node))


def _gemm(twin: _Twin, node: Node) -> None:
    x, w = (twin.scaled(name) for name in node.inputs[:2])
    y = twin.scaled(node.outputs[0])
    bias = [twin.constant(name, twin.graph.values[name].constant) for name in node.inputs[2:]] or [
        ""
    ]
    twin.add("QGemm", [*x, *w, *bias, *y[1:]], node, "com.microsoft", alpha=1.0)


def _pair(kind: str) -> Callable[[_Twin, Node], None]:
    def write(twin: _Twin, node: Node) -> None:
        a, b = (twin.scaled(name) for name in node.inputs)
        twin.add(kind, [*a, *b, *twin.scaled(node.outputs[0])[1:]], node, "com.microsoft")

    return write


def _between(kind: str) -> Callable[[_Twin, Node], None]:
    """A float operator between DequantizeLinear and QuantizeLinear."""

    def write(twin: _Twin, node: Node) -> None:
        (x, *_) = (twin.scaled(name) for name in node.inputs)
        y = twin.scaled(node.outputs[0])
        real = f"{node.name}:real"
        result = f"{node.name}:result"
        twin.nodes.append(helper.make_node("DequantizeLinear", x, [real], real))
        attributes = {key: found for key, found in node.attributes.items() if key == "axis"}
        operands = [real]
        if kind == "Softmax":
            attributes = {"axis": node.attributes["axes"][0]}
        elif kind == "ReduceMean":
            operands.append(
                twin.constant(f"{real}:axes", np.array(node.attributes["axes"], np.int64))
            )
            attributes = {"keepdims": int(len(twin.graph.values[node.outputs[0]].shape) == 4)}
        elif kind == "AveragePool":
            attributes = {key: found for key, found in _window(node).items() if key != "dilations"}
        twin.nodes.append(helper.make_node(kind, operands, [result], node.name, **attributes))
        twin.nodes.append(
            helper.make_node("QuantizeLinear", [result, *y[1:]], list(node.outputs), f"{result}:q")
        )

    return write


def _reshape(twin: _Twin, node: Node) -> None:
    shape = twin.constant(
        f"{node.name}:shape", np.array(twin.graph.values[node.outputs[0]].shape, np.int64)
    )
    twin.add("Reshape", [node.inputs[0], shape], node)


def _pad(twin: _Twin, node: Node) -> None:
    """Add a padding of rows and columns by one, with the zero point.

    The networks have no other paddings.
    """
    before, after = (twin.graph.values[name].shape for name in (node.inputs[0], node.outputs[0]))
    sizes = [(b - a) // 2 for a, b in zip(before, after, strict=True)]
    zero = twin.scaled(node.inputs[0])[2]
    twin.add(
        "Pad",
        [
            node.inputs[0],
            twin.constant(f"{node.name}:pads", np.array([*sizes, *sizes], np.int64)),
            zero,
        ],
        node,
    )


def _quantisation(twin: _Twin, node: Node) -> None:
    integer = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    twin.add(node.op_type, [node.inputs[0], *twin.scaled(integer)[1:]], node)


WRITERS: dict[str, Callable[[_Twin, Node], None]] = {
    "Conv": _conv,
    "MatMul": _gemm,
    "Add": _pair("QLinearAdd"),
    "Reshape": _reshape,
    "Pad": _pad,
    "AveragePool": _between("AveragePool"),
    "ReduceMean": _between("ReduceMean"),
    "Softmax": _between("Softmax"),
    "QuantizeLinear": _quantisation,
    "DequantizeLinear": _quantisation,
}
"""What writes a canonical node."""


def twin_of(graph: Graph) -> onnx.ModelProto:
    """The ONNX model of a canonical graph; KeyError for a node that no twin has needed yet."""
    twin = _Twin(graph)
    for node in graph.nodes:
        WRITERS[node.op_type](twin, node)

    def declared(value: Value) -> onnx.ValueInfoProto:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
        return helper.make_tensor_value_info(value.name, element, value.shape)

    inputs, outputs = (
        [declared(graph.values[name]) for name in names] for names in (graph.inputs, graph.outputs)
    )
    written = helper.make_graph(twin.nodes, "twin", inputs, outputs, list(twin.constants.values()))
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(written, opset_imports=imports, ir_version=10)
