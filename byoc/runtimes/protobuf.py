"""Small helpers that the passes on ONNX models share: copies, constants, uses, replacement, dead code.

Every pass on an ``onnx.ModelProto`` takes a model and returns a new one; the argument is never changed. Names used
inside the bodies of ``If``, ``Loop`` and ``Scan`` count as uses and are renamed with the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

LARGE_BYTES = 1 << 16
HUGE_BYTES = 1 << 25


def opset_of(model: ModelProto) -> int:
    """Version of the default operator set; 0 when the model imports none."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def copy_fields(source: Any, target: Any, *leave_out: str) -> None:
    """Copies every set field of a protobuf message but those."""
    for field, value in source.ListFields():
        if field.name in leave_out:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, field.name).CopyFrom(value)
        else:
            getattr(target, field.name).extend(value)


def copy_model(model: ModelProto) -> ModelProto:
    result = ModelProto()
    result.CopyFrom(model)
    return result


def copy_node(node: NodeProto) -> NodeProto:
    result: NodeProto = NodeProto.FromString(node.SerializeToString())
    return result


def constants(graph: GraphProto) -> dict[str, TensorProto]:
    return {tensor.name: tensor for tensor in graph.initializer}


def array_of(tensor: TensorProto) -> NDArray[Any]:
    """The contents of an initialiser as a NumPy array."""
    return np.asarray(numpy_helper.to_array(tensor))


def byte_size(tensor: TensorProto) -> int:
    """Size of the contents of an initialiser, from its shape (protobuf's ``ByteSize`` serialises the whole)."""
    return int(np.prod(tensor.dims, dtype=np.int64)) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


class ConstantArrays(Mapping[str, NDArray[Any]]):
    """Contents of a graph's initialisers by name, decoded when asked for, for those that ``wanted`` admits.

    They are kept for the next one who asks, but for the few that are as large as a network.
    """

    def __init__(self, graph: GraphProto, wanted: Callable[[TensorProto], bool]) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer if wanted(tensor)}
        self._arrays: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name in self._arrays:
            return self._arrays[name]
        array = array_of(self._tensors[name])
        if array.nbytes < HUGE_BYTES:
            self._arrays[name] = array
        return array

    def __setitem__(self, name: str, array: NDArray[Any]) -> None:
        self._arrays[name] = array

    def __contains__(self, name: object) -> bool:
        return name in self._arrays or name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors.keys() | self._arrays.keys())

    def __len__(self) -> int:
        return len(self._tensors.keys() | self._arrays.keys())


def is_float32(tensor: TensorProto) -> bool:
    """Whether an initialiser holds float32 numbers."""
    return bool(tensor.data_type == TensorProto.FLOAT)


def add_tensor(graph: GraphProto, name: str, array: NDArray[Any]) -> str:
    """Add an initialiser under ``name``, which nothing in the graph has; that name."""
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array)), name))
    return name


def separate_names(graph: GraphProto, *, name_all: bool = False) -> None:
    """Make node names unique, in place: replace a repeated name with the name of the node's first output.

    ONNX lets nodes go without a name; such a node is named only if ``name_all`` is set.
    """
    taken = {node.name for node in graph.node} | {""}
    seen = {""}
    for node in graph.node:
        if node.name in seen and (node.name or name_all):
            node.name = unused(next((output for output in node.output if output), node.op_type), taken)
        seen.add(node.name)


def names_of(graph: GraphProto) -> set[str]:
    """Every name that a tensor of the graph itself has."""
    names = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    return names | {name for node in graph.node for name in node.output}


def standard(node: NodeProto) -> bool:
    """True for operators of the default ONNX domain: those of others only share names with them."""
    return node.domain in ("", "ai.onnx")


def unused(name: str, taken: set[str]) -> str:
    """``name``, made unique with a number if it is among ``taken``, where it is entered."""
    unique, count = name, 1
    while unique in taken:
        unique, count = f"{name}_{count}", count + 1
    taken.add(unique)
    return unique


_STEP = re.compile(r"@\d+$")


def step_family(name: str) -> str:
    """What a tensor has in common with those that correspond to it in other steps; empty for others."""
    return _STEP.sub("@", name) if _STEP.search(name) else ""


def unused_step(base: str, step: int, taken: set[str]) -> str:
    """A name for what corresponds in all steps: ``base``, made unique among other bases, and the step's number."""
    name, count = f"{base}@{step}", 1
    while name in taken:
        name, count = f"{base}_{count}@{step}", count + 1
    taken.add(name)
    return name


def attributes(node: NodeProto) -> dict[str, Any]:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The subgraphs of a control-flow node."""
    for item in node.attribute:
        if item.type == onnx.AttributeProto.GRAPH:
            yield item.g
        yield from item.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from all_graphs(body)


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from all_nodes(body)


def count_of(graph: GraphProto, op_types: Collection[str]) -> int:
    """How many nodes of the graph itself are of these operators."""
    return sum(node.op_type in op_types for node in graph.node)


def use_counts(graph: GraphProto) -> Counter[str]:
    """How often each name is read by a node (bodies included) or is an output of the graph or of a body."""
    counts = Counter(output.name for output in graph.output)
    for node in graph.node:
        counts.update(use_counts_of(node))
    return counts


def use_counts_of(node: NodeProto) -> Counter[str]:
    """How often a node, bodies included, reads each name; names that bodies make themselves are among them."""
    counts = Counter(name for name in node.input if name)
    for body in bodies(node):
        counts.update(use_counts(body))
    return counts


def set_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Put ``nodes``, of which some may be the graph's, in place of all of its nodes."""
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


def keep_nodes(graph: GraphProto, keep: Callable[[NodeProto], bool]) -> None:
    """Remove the nodes for which ``keep`` is false, in place."""
    set_nodes(graph, (node for node in graph.node if keep(node)))


def sort_nodes(graph: GraphProto) -> None:
    """Bring the nodes, in place, into an order in which each stands behind what it and its bodies read.

    As they stand where they can: of those that could be next, the first is.
    """
    waiting, readers = _operands(graph, use_counts_of)
    ready = [index for index, names in enumerate(waiting) if not names]
    order: list[NodeProto] = []
    while ready:
        index = heappop(ready)
        order.append(graph.node[index])
        for name in graph.node[index].output:
            for reader in readers.get(name, ()):
                waiting[reader].discard(name)
                if not waiting[reader]:
                    heappush(ready, reader)
    set_nodes(graph, order)


def _operands(
    graph: GraphProto, reads: Callable[[NodeProto], Iterable[str]]
) -> tuple[list[set[str]], dict[str, list[int]]]:
    """Return what each node ``reads`` of what nodes make, and by name the numbers of the nodes that read it."""
    made = {name for node in graph.node for name in node.output if name}
    operands = [{name for name in reads(node) if name in made} for node in graph.node]
    readers: dict[str, list[int]] = {}
    for index, names in enumerate(operands):
        for name in names:
            readers.setdefault(name, []).append(index)
    return operands, readers


def sort_nodes_in_waves(graph: GraphProto) -> None:
    """Bring the nodes, in place, into the order in which their operands are there: first come, first served.

    So branches advance together. Those that wait for no other node begin in the order of what they read, by name.
    """
    nodes = list(graph.node)
    waiting, readers = _operands(graph, lambda node: node.input)
    first = (index for index, names in enumerate(waiting) if not names)
    order = sorted(first, key=lambda index: max(nodes[index].input, default=""))
    for index in order:  # which grows
        for name in nodes[index].output:
            for reader in readers.get(name, ()):
                waiting[reader].discard(name)
                if not waiting[reader]:
                    order.append(reader)
    set_nodes(graph, (nodes[index] for index in order))
    sort_nodes(graph)  # behind what bodies read, too


def remove_dead_code(graph: GraphProto) -> None:
    """Remove, in place, nodes whose results nobody reads, and initialisers without a use."""
    used = set(use_counts(graph))
    while any(used.isdisjoint(node.output) for node in graph.node):
        set_nodes(graph, (node for node in graph.node if not used.isdisjoint(node.output)))
        used = set(use_counts(graph))
    # One by one from the back: extending a list would copy every weight that stays.
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in used:
            del graph.initializer[index]


def shapes_of(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Static shapes by name, of inputs, outputs, inferred values and initialisers."""
    result = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.input, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            result[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    return result


def types_of(graph: GraphProto) -> dict[str, int]:
    """Element types by name, as ONNX numbers them, of inputs, outputs, inferred values and initialisers."""
    result = {tensor.name: tensor.data_type for tensor in graph.initializer}
    values = (*graph.value_info, *graph.input, *graph.output)
    return result | {value.name: value.type.tensor_type.elem_type for value in values}


def without_initializers(model: ModelProto) -> ModelProto:
    """A copy without any constants: those are what is large in a model."""
    result = ModelProto()
    copy_fields(model, result, "graph")
    copy_fields(model.graph, result.graph, "initializer")
    return result


def without_large_constants(model: ModelProto, change: Callable[[ModelProto], ModelProto]) -> ModelProto:
    """``change(model)`` with initialisers above 64 KiB left out of the way, as inputs of the same type.

    onnx's C++ functions take a serialised model; this keeps weights (hundreds of megabytes) from being copied there.
    """
    skeleton = without_initializers(model)
    large = []
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if byte_size(tensor) <= LARGE_BYTES or tensor.name in inputs:
            skeleton.graph.initializer.append(tensor)
        else:
            large.append(tensor)
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims))
            skeleton.graph.input.append(value)
    result = change(skeleton)
    names = {tensor.name for tensor in large}
    kept = [value for value in result.graph.input if value.name not in names]
    del result.graph.input[:]
    result.graph.input.extend(kept)
    for tensor in large:  # to extend the list by a message, protobuf writes and reads it
        result.graph.initializer.add().CopyFrom(tensor)
    return result


OWN_KEY = "onnxruntime:"
"""What a key of a model's metadata begins with: a unit's result, of which the value is ONNX Runtime's own."""


def defined(model: ModelProto) -> dict[str, str]:
    """Results of units that definitions compute, and the names of those that ONNX Runtime makes its own way."""
    own = (entry for entry in model.metadata_props if entry.key.startswith(OWN_KEY))
    return {entry.key.removeprefix(OWN_KEY): entry.value for entry in own}
