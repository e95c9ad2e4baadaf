"""Interface of a network: the tensors that an application passes and gets back.

A quantised network begins and ends with quantisation. If all consumers of a float input quantise it
alike, or a float output is dequantised, the application can pass the integers itself: it may have
pixels as bytes, or need only the index of the largest output. With
:attr:`CompileOptions.integer_io` the application performs these quantisations, and the compiled
graph has integer inputs and outputs. The package is the same for both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Annotation, Graph, Node, Quantization, Value
from byoc.operators import domain
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.operators.rules import Finding, finding
from byoc.options import DEFAULTS, CompileOptions
from byoc.package.package import Package
from isa.errors import InputError
from isa.numerics import steps

Tensors = Mapping[str, NDArray[Any]]
_BYTES = ("int8", "uint8")


@dataclass(frozen=True, eq=False)
class NetworkPort:
    """One input or output of a network.

    ``name`` is the model's name. ``value`` has the model's shape and the element type that the
    application passes, with the quantisation of integers. ``tensors`` are the tensors of the
    compiled graph with these contents, all equal: a model may quantise an input more than once.
    ``integer`` is True if the model's tensor is float but integers are passed. ``reason`` explains
    why integers were requested but are not possible.
    """

    name: str
    value: Value
    tensors: tuple[str, ...]
    integer: bool = False
    reason: Finding | None = None

    @property
    def quantization(self) -> Quantization:
        """Scale and zero point of an ``integer`` port."""
        return _scale(self.value)

    def quantise(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Quantise real numbers: ``clip(rint(x / scale) + zero point)`` in float32, as in ONNX.

        0 of 614,400 drawn numbers, ties included, differ from ONNX Runtime's result.
        """
        how = self.quantization
        return steps(
            np.asarray(numbers, np.float32), how.scale, how.zero_point, np.dtype(self.value.dtype)
        )

    def dequantise(self, integers: NDArray[Any]) -> NDArray[np.float32]:
        """Dequantise integers: ``(q - zero point) * scale`` in float32."""
        numbers: NDArray[np.float32] = (
            integers.astype(np.int32) - self.quantization.zero_point
        ).astype(np.float32)
        return np.asarray(numbers * self.quantization.scale)


@dataclass(frozen=True, eq=False)
class Interface:
    """Ports of a network, and the graph between them with the annotations of its nodes.

    The application's arrays have the names of ports. The arrays of a run have the names of the
    graph's tensors.
    """

    graph: Graph
    annotations: tuple[Annotation, ...]
    inputs: tuple[NetworkPort, ...]
    outputs: tuple[NetworkPort, ...]

    @property
    def ports(self) -> tuple[NetworkPort, ...]:
        """Ports of the network: inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    def take_arrays(self, given: Tensors) -> dict[str, NDArray[Any]]:
        """Return the application's arrays by port, with floats for integer inputs quantised.

        Raises InputError for an input that is missing, unknown, of another shape or type, or not
        finite. The message gives the input's name, what it should be, and what was given.
        """
        names = [port.name for port in self.inputs]
        for name in given:
            if name not in names:
                raise InputError(
                    f"the model has no input '{name}'; its inputs are {', '.join(names)}"
                )
        return {port.name: _take_array(port, given) for port in self.inputs}

    def arrange_arrays(self, passed: Tensors) -> dict[str, NDArray[Any]]:
        """Convert port arrays of the inputs to tensors of the graph."""
        values = self.graph.values
        return {
            name: values[name].arrange(passed[port.name])
            for port in self.inputs
            for name in port.tensors
        }

    def restore_arrays(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """Return the port arrays of the outputs from tensors of the graph."""
        ends = {port.name: port.tensors[0] for port in self.outputs}
        return {
            name: self.graph.values[tensor].restore(tensors[tensor])
            for name, tensor in ends.items()
        }

    def next_state(self, given: Tensors, outputs: Tensors) -> dict[str, NDArray[Any]]:
        """Return the state inputs of the inference after one on ``given``, in the model's types."""
        known = self.real({**given, **outputs})
        return {one.input: known[one.output] for one in self.graph.state}

    def real(self, passed: Tensors) -> dict[str, NDArray[Any]]:
        """Convert the arrays of network ports to the element types of the model.

        Real numbers of integer ports stay as they are.
        """
        integer = {port.name: port for port in self.ports if port.integer}
        return {
            name: integer[name].dequantise(a) if name in integer and a.dtype.kind != "f" else a
            for name, a in passed.items()
        }


def _take_array(port: NetworkPort, given: Tensors) -> NDArray[Any]:
    wanted = f"shape {list(port.value.shape)} and type {port.value.dtype}"
    if port.name not in given:
        raise InputError(f"input '{port.name}' is missing; it has {wanted}")
    array = np.asarray(given[port.name])
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == np.float16 and (port.integer or port.value.dtype == "float32"):
        array = array.astype(np.float32)  # exact: a model in half precision runs in float32
    real = port.integer and array.dtype == np.float32
    if array.shape != port.value.shape or not (real or array.dtype.name == port.value.dtype):
        raise InputError(
            f"input '{port.name}' has shape {list(array.shape)} and type {array.dtype.name}; the "
            f"model wants {wanted}" + ", or float32 to be quantised" * port.integer
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        wrong = np.argwhere(~np.isfinite(array))
        raise InputError(
            f"input '{port.name}' has {len(wrong)} elements that are infinite or no number, the "
            f"first at {wrong[0].tolist()}; correct the input"
        )
    return port.quantise(array) if real else array


def connect(package: Package, options: CompileOptions = DEFAULTS) -> Interface:
    """Return the interface of a package's network, with integer ports if ``options`` say so."""
    graph = package.graph
    if not options.integer_io:
        inputs, outputs = (
            tuple(NetworkPort(name, graph.values[name].in_model, (name,)) for name in names)
            for names in (graph.inputs, graph.outputs)
        )
        return Interface(graph, package.annotations, inputs, outputs)
    readers = graph.consumers
    inputs = tuple(_input(graph, name, readers.get(name, ())) for name in graph.inputs)
    outputs = tuple(_output(graph, name, graph.producers.get(name)) for name in graph.outputs)
    gone = {node.name for port in inputs if port.integer for node in readers[port.name]}
    gone |= {
        graph.producers[port.name].name
        for port in outputs
        if port.integer and port.name not in readers
    }
    kept = [
        pair
        for pair in zip(graph.nodes, package.annotations, strict=True)
        if pair[0].name not in gone
    ]
    between = _cut_graph(graph, tuple(node for node, _ in kept), inputs, outputs)
    return Interface(between, tuple(annotation for _, annotation in kept), inputs, outputs)


def _cut_graph(
    graph: Graph,
    nodes: tuple[Node, ...],
    inputs: Sequence[NetworkPort],
    outputs: Sequence[NetworkPort],
) -> Graph:
    """Return ``graph`` reduced to the given ``nodes``, between the tensors of its ports."""
    ends = [
        tuple(dict.fromkeys(name for port in ports for name in port.tensors))
        for ports in (inputs, outputs)
    ]
    used = {*ends[0], *ends[1], *(name for node in nodes for name in (*node.inputs, *node.outputs))}
    values = {name: value for name, value in graph.values.items() if name in used}
    return replace(graph, inputs=ends[0], outputs=ends[1], values=values, nodes=nodes)


def _input(graph: Graph, name: str, readers: Sequence[Node]) -> NetworkPort:
    """Return the network port of an input tensor with consumers ``readers``."""
    value = graph.values[name]
    reason = _not_float(value) if readers else finding("nothing reads it")
    for node in readers:
        reason = (
            reason
            or _not_by(node, QUANTIZE, "reads")
            or _not_bytes(node, graph.values[node.outputs[0]])
        )
    if reason is not None:
        return _make_plain_port(value, reason)
    first, *others = integers = [graph.values[node.outputs[0]] for node in readers]
    for node, other in zip(readers[1:], others, strict=True):
        if other.dtype != first.dtype or not _scale(other).same_as(_scale(first)):
            return _make_plain_port(
                value,
                finding("'{a}' and '{b}' quantise it differently", a=readers[0].name, b=node.name),
            )
    return NetworkPort(name, first.in_model, tuple(value.name for value in integers), integer=True)


def _output(graph: Graph, name: str, maker: Node | None) -> NetworkPort:
    """Return the network port of the output tensor ``name``, which the node ``maker`` computes."""
    value = graph.values[name]
    reason = _not_float(value)
    if maker is None or not maker.inputs:
        return _make_plain_port(value, reason or finding("it is constant"))
    reason = (
        reason
        or _not_by(maker, DEQUANTIZE, "makes")
        or _not_bytes(maker, graph.values[maker.inputs[0]])
    )
    if reason is not None:
        return _make_plain_port(value, reason)
    return NetworkPort(
        name, graph.values[maker.inputs[0]].in_model, (maker.inputs[0],), integer=True
    )


def _make_plain_port(value: Value, reason: Finding) -> NetworkPort:
    """Return a network port with the model's own type.

    ``reason`` is dropped if that type is 8-bit integers.
    """
    return NetworkPort(
        value.name, value.in_model, (value.name,), reason=None if value.dtype in _BYTES else reason
    )


def _not_float(value: Value) -> Finding | None:
    if value.dtype == "float32":
        return None
    return finding("the model has {dtype}, which is not quantised", dtype=value.dtype)


def _not_by(node: Node, wanted: str, does: str) -> Finding | None:
    if node.op_type == wanted:
        return None
    return finding("{kind} '{node}' {does} it", kind=node.op_type, node=node.name, does=does)


def _not_bytes(node: Node, integers: Value) -> Finding | None:
    """Return why ``node`` lacks 8-bit integers with one constant, positive and finite scale.

    Returns None if ``node`` has such integers.
    """
    if node.remark:
        return finding(
            "{kind} '{node}': {remark}", kind=node.op_type, node=node.name, remark=node.remark
        )
    known = integers.quantization is not None and integers.quantization.per_tensor
    if known and integers.dtype in _BYTES:
        scale = _scale(integers).scale
        text = "{kind} '{node}' has the scale {scale:g}"
        return (
            None
            if domain.usable(scale)
            else finding(text, kind=node.op_type, node=node.name, scale=float(scale))
        )
    text = "{kind} '{node}' has {dtype} of scales that are several, or computed"
    text = text if not known else "{kind} '{node}' has {dtype}, which are not 8 bits"
    return finding(text, kind=node.op_type, node=node.name, dtype=integers.dtype)


def _scale(value: Value) -> Quantization:
    assert value.quantization is not None
    return value.quantization
