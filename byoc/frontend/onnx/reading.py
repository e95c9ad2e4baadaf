"""Index an ONNX model: live nodes with unique names, constants, producers and consumers.

Also finds tensors that need special samples or ranges: those that select rows of tables, and those
that only a Softmax reads.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import DTypeLike, NDArray
from onnx import numpy_helper

from byoc.operators.onnx_view import DEQUANTIZE, OnnxNode, OnnxView
from byoc.runtimes.protobuf import (
    array_of,
    attributes,
    bodies,
    names_of,
    node_label,
    shapes_of,
    use_counts,
)

Array = NDArray[Any]


def build_view(
    model: onnx.ModelProto,
    tensors: Mapping[str, tuple[tuple[int, ...], str]],
    open_tensors: frozenset[str] = frozenset(),
) -> OnnxView:
    """Index an ONNX model without its unused nodes; ``Constant`` nodes become constants."""
    graph = model.graph
    constants: dict[str, Array] = {tensor.name: array_of(tensor) for tensor in graph.initializer}
    nodes = list(_unique_nodes(graph.node))
    nodes = [node for node in nodes if not _fold(node, constants)]
    outputs = tuple(value.name for value in graph.output)
    nodes = _live(nodes, outputs)
    consumers: dict[str, list[OnnxNode]] = defaultdict(list)
    for node in nodes:
        for name in node.reads:
            consumers[name].append(node)
    return OnnxView(
        name=graph.name or "network",
        nodes=tuple(nodes),
        constants=constants,
        inputs=tuple(value.name for value in graph.input if value.name not in constants),
        outputs=outputs,
        tensors=tensors,
        producer={name: node for node in nodes for name in node.outputs if name},
        consumers={name: tuple(users) for name, users in consumers.items()},
        open=open_tensors,
        opsets=tuple(model.opset_import),
        opset=next(
            (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1
        ),
    )


def _unique_nodes(protos: Iterable[onnx.NodeProto]) -> Iterator[OnnxNode]:
    seen: dict[str, int] = {}
    for proto in protos:
        label = node_label(proto)
        count = seen.get(label, 0)
        seen[label] = count + 1
        yield read_node(proto, label if count == 0 else f"{label}#{count}")


def read_node(proto: onnx.NodeProto, name: str) -> OnnxNode:
    """Convert an ONNX protobuf node to the form that operator families read."""
    return OnnxNode(
        name=name,
        op_type=proto.op_type,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes={a.name: _attribute(a) for a in proto.attribute},
        domain=proto.domain,
        captured=tuple(list_captured_names(proto)),
    )


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """Convert an ONNX attribute to Python: bytes to text, lists to tuples, graphs unchanged."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return tuple(value)
    return value


def list_captured_names(proto: onnx.NodeProto) -> list[str]:
    """Return the names that a control-flow node's subgraphs read from the enclosing graph."""
    names: list[str] = []
    for body in bodies(proto):
        own = names_of(body)
        for node in body.node:
            read = (*node.input, *list_captured_names(node))
            names += [name for name in read if name and name not in own]
        names += [value.name for value in body.output if value.name not in own]
    return names


def _fold(node: OnnxNode, constants: dict[str, Array]) -> bool:
    """Record the output of a ``Constant``, or ``Identity`` of a constant, as a constant.

    Returns True if done.
    """
    if node.op_type == "Constant" and node.standard:
        constants[node.outputs[0]] = _constant_value(node)
        return True
    if node.op_type == "Identity" and node.inputs[0] in constants:
        constants[node.outputs[0]] = constants[node.inputs[0]]
        return True
    return False


_CONSTANT_TYPES: Mapping[str, DTypeLike] = {
    **dict.fromkeys(("value_float", "value_floats"), np.float32),
    **dict.fromkeys(("value_int", "value_ints"), np.int64),
}
"""Element types by the attributes of a Constant that have numbers."""


def _constant_value(node: OnnxNode) -> Array:
    kind, value = next(iter(node.attributes.items()))  # there is exactly one
    if kind == "value":
        return numpy_helper.to_array(value)
    return np.asarray(value, _CONSTANT_TYPES.get(kind))


def _live(nodes: list[OnnxNode], outputs: tuple[str, ...]) -> list[OnnxNode]:
    """Return, in execution order, the nodes that the model's outputs depend on."""
    needed = set(outputs)
    live: list[OnnxNode] = []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            live.append(node)
            needed.update(node.reads)
    return live[::-1]


_INDICES = frozenset(
    {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand", "Cast", "Clip"}
    | {"Gather", "Slice", "Split", "Transpose", "Tile", "Where"}
)
"""Operators that pass on row indices. A Where adds the number of rows to negative ones."""
_SELECTORS = frozenset({"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"})


def rows_to_choose(model: onnx.ModelProto) -> dict[str, int]:
    """Return the number of valid rows for each integer tensor that selects rows of tables.

    Tables may be dequantised, or computed at run time. For several tables, it is the smallest
    number of rows.
    """
    tables: dict[str, Sequence[int]] = dict(shapes_of(model.graph))
    tables |= {tensor.name: tensor.dims for tensor in model.graph.initializer}
    producers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type == DEQUANTIZE and node.input[0] in tables:
            tables[node.output[0]] = tables[node.input[0]]
    found: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type not in _SELECTORS or not tables.get(node.input[0]):
            continue
        count = tables[node.input[0]][attributes(node).get("axis", 0)]
        if node.op_type.endswith("ND"):
            depth = (tables.get(node.input[1]) or (1,))[-1]
            count = min(tables[node.input[0]][:depth], default=1)
        name = node.input[1]
        while name in producers and producers[name].op_type in _INDICES:
            name = producers[name].input[2 if producers[name].op_type == "Where" else 0]
        found[name] = min(count, found.get(name, count))
    return found


def softmax_operands(model: onnx.ModelProto) -> dict[str, int]:
    """Return tensors whose only consumer is a Softmax, each with the Softmax's axis."""
    uses = use_counts(model.graph)
    found = (
        node for node in model.graph.node if node.op_type == "Softmax" and uses[node.input[0]] == 1
    )
    return {node.input[0]: int(attributes(node).get("axis", -1)) for node in found}
