"""Helpers that the passes on ONNX models share: copies, constants, uses, replacement, dead code.

Every pass on an ``onnx.ModelProto`` takes a model and returns a new one; the argument is never
changed. Names used inside the bodies of ``If``, ``Loop`` and ``Scan`` count as uses and are renamed
with the rest.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from isa.errors import InputError

LARGE_BYTES = 1 << 16
HUGE_BYTES = 1 << 25
REMEDY = "export it again"
SHARED_BYTES = 1 << 20
"""Size in bytes from which models and sessions share a constant instead of copying it."""
_SHARED_TYPES = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8)
_numbers = count()
_arrays: WeakValueDictionary[str, NDArray[Any]] = WeakValueDictionary()
"""Shared constants by the place that models name."""
_Held = dict[str, NDArray[Any]]
_scopes: ContextVar[tuple[_Held, ...]] = ContextVar("scopes", default=())
"""Constants that each open block of :func:`share_constants` keeps, by place."""


def opset_of(model: ModelProto) -> int:
    """Return the version of the default operator set; 0 if the model imports none."""
    return max(
        (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
        default=0,
    )


def copy_fields(source: Any, target: Any, *leave_out: str) -> None:
    """Copy every set field of a protobuf message except those in ``leave_out``."""
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


@contextmanager
def share_constants() -> Iterator[None]:
    """Keep large constants that :func:`make_tensor` makes in the block outside of their models.

    Copies of a model then share the arrays. The end of the block frees them: a model that is needed
    afterwards must go through :func:`embed_constants`. Blocks can be nested.
    """
    token = _scopes.set((*_scopes.get(), {}))
    try:
        yield
    finally:
        _scopes.reset(token)


def _free(held: _Held, models: Iterable[ModelProto], older: Collection[str] = ()) -> None:
    """Remove the constants from ``held`` that none of ``models`` has and that are not ``older``."""
    if len(held) > len(older):
        kept = {_place_of(tensor) for model in models for tensor in model.graph.initializer}
        for place in held.keys() - kept - {*older}:
            del held[place]


def hold_constants(model: ModelProto) -> tuple[ModelProto, list[NDArray[Any]]]:
    """Return what :func:`move_constants` returns, and all arrays that the result shares.

    The result is valid as long as the arrays are.
    """
    token = _scopes.set(({},))
    try:
        shared = move_constants(model)
        return shared, [array_of(one) for one in shared.graph.initializer if _place_of(one)]
    finally:
        _scopes.reset(token)


def free_constants(*models: ModelProto) -> None:
    """Free the shared constants that none of ``models`` has; no other model may be used then."""
    for held in _scopes.get():
        _free(held, models)


def free_new_constants() -> Callable[[ModelProto], None]:
    """Return a function that frees shared constants made after this call that a model lacks."""
    held = next(iter(_scopes.get()[-1:]), {})
    older = frozenset(held)
    return lambda model: _free(held, [model], older)


def _place_of(tensor: TensorProto) -> str:
    """Return the place of a shared constant; empty for one whose data is in the tensor."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return ""
    return next((entry.value for entry in tensor.external_data if entry.value in _arrays), "")


def is_sharable(tensor: TensorProto) -> bool:
    """Return True if models and sessions share the array of an initialiser: it is large."""
    return tensor.data_type in _SHARED_TYPES and byte_size(tensor) >= SHARED_BYTES


def make_tensor(array: NDArray[Any], name: str) -> TensorProto:
    """Return an initialiser of a main graph; :func:`share_constants` keeps a large array outside.

    The array must not change afterwards.
    """
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    result = TensorProto(name=name, data_type=kind, dims=array.shape)
    scopes = _scopes.get()
    if not scopes or not is_sharable(result):
        return numpy_helper.from_array(array, name)
    result.data_location = TensorProto.EXTERNAL
    place = f"shared:{next(_numbers)}"
    result.external_data.add(key="location", value=place)
    scopes[-1][place] = _arrays[place] = shared = np.ascontiguousarray(array).view()
    shared.flags.writeable = False
    return result


def move_constants(model: ModelProto) -> ModelProto:
    """Return a copy of a model whose large constants are shared; the model itself if it has none.

    Only for :func:`share_constants`.
    """
    return _remake(model, lambda one: is_sharable(one) and not _place_of(one), make_tensor)


def embed_constants(model: ModelProto) -> ModelProto:
    """Return a copy of a model with the data of its shared constants; itself if it has none."""
    return _remake(model, lambda one: bool(_place_of(one)), numpy_helper.from_array)


def _remake(
    model: ModelProto,
    wanted: Callable[[TensorProto], bool],
    make: Callable[[NDArray[Any], str], TensorProto],
) -> ModelProto:
    """Return a copy of a model with the ``wanted`` constants made again; itself if it has none."""
    if not any(map(wanted, model.graph.initializer)):
        return model
    result = remove_initializers(model)
    for tensor in model.graph.initializer:
        result.graph.initializer.append(
            make(array_of(tensor), tensor.name) if wanted(tensor) else tensor
        )
    return result


def array_of(tensor: TensorProto) -> NDArray[Any]:
    """Return the contents of an initialiser as a read-only NumPy array."""
    place = _place_of(tensor)
    return _arrays[place] if place else np.asarray(numpy_helper.to_array(tensor))


def byte_size(tensor: TensorProto) -> int:
    """Return the byte size of an initialiser from its shape.

    Protobuf's ``ByteSize`` would serialise the tensor.
    """
    return (
        int(np.prod(tensor.dims, dtype=np.int64))
        * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    )


class ConstantArrays(Mapping[str, NDArray[Any]]):
    """Contents by name of the initialisers for which ``wanted`` is true, decoded on first access.

    Decoded arrays are cached, except the few above HUGE_BYTES.
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
    """Return True if an initialiser contains float32 numbers."""
    return bool(tensor.data_type == TensorProto.FLOAT)


def add_tensor(graph: GraphProto, name: str, array: NDArray[Any]) -> str:
    """Add an initialiser under ``name``, which must be unused in the graph, and return the name."""
    graph.initializer.append(
        make_tensor(np.ascontiguousarray(array).reshape(np.shape(array)), name)
    )
    return name


def separate_names(graph: GraphProto, *, name_all: bool = False) -> None:
    """Make node names unique, in place.

    A repeated name is replaced by the name of the node's first output. ONNX allows nodes without a
    name; such a node is named only if ``name_all`` is set.
    """
    taken = {node.name for node in graph.node} | {""}
    seen = {""}
    for node in graph.node:
        if node.name in seen and (node.name or name_all):
            node.name = make_unused_name(
                next((output for output in node.output if output), node.op_type), taken
            )
        seen.add(node.name)


def names_of(graph: GraphProto) -> set[str]:
    """Return the names of all tensors of a graph, without tensors of control-flow bodies."""
    names = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    return names | {name for node in graph.node for name in node.output}


def standard(node: NodeProto) -> bool:
    """Return True for operators of the default ONNX domain; other domains may reuse their names."""
    return node.domain in ("", "ai.onnx")


def node_label(node: NodeProto) -> str:
    """Return a node's own name, or one made of its operator and first output."""
    return node.name or f"{node.op_type}:{next(filter(None, node.output), '')}"


def make_unused_name(name: str, taken: set[str]) -> str:
    """Return ``name``, with a number if it is in ``taken``, and add the result to ``taken``."""
    unique = name
    count = 1
    while unique in taken:
        unique = f"{name}_{count}"
        count = count + 1
    taken.add(unique)
    return unique


_STEP = re.compile(r"@\d+$")


def step_family(name: str) -> str:
    """Return the name shared by tensors that correspond to each other in unrolled loop steps.

    The result is empty for other tensors.
    """
    return _STEP.sub("@", name) if _STEP.search(name) else ""


def make_unused_step_name(base: str, step: int, taken: set[str]) -> str:
    """Return an unused tensor name for one step of an unrolled loop.

    It has a base that no other tensor uses, and the step number.
    """
    name = f"{base}@{step}"
    count = 1
    while name in taken:
        name = f"{base}_{count}@{step}"
        count = count + 1
    taken.add(name)
    return name


def attributes(node: NodeProto) -> dict[str, Any]:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the subgraphs of a control-flow node."""
    for item in node.attribute:
        if item.type == onnx.AttributeProto.GRAPH:
            yield item.g
        yield from item.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from all_graphs(body)


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph or function, each followed by the nodes of its bodies."""
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from all_nodes(body)


def count_of(graph: GraphProto, op_types: Collection[str]) -> int:
    """Return the number of a graph's nodes with given operator types, without bodies."""
    return sum(node.op_type in op_types for node in graph.node)


def use_counts(graph: GraphProto) -> Counter[str]:
    """Count the uses of each name by nodes, bodies included, and as an output."""
    counts = Counter(output.name for output in graph.output)
    for node in graph.node:
        counts.update(use_counts_of(node))
    return counts


def use_counts_of(node: NodeProto) -> Counter[str]:
    """Count how often a node, bodies included, reads each name.

    Names that bodies define are included.
    """
    counts = Counter(name for name in node.input if name)
    for body in bodies(node):
        counts.update(use_counts(body))
    return counts


def set_items(field: Any, items: Iterable[Any]) -> None:
    """Replace the contents of a repeated field with ``items``, which may include its own."""
    kept = list(items)
    del field[:]
    field.extend(kept)


def set_attributes(node: NodeProto, *leave_out: str, **options: Any) -> None:
    """Remove the attributes ``leave_out`` of a node, in place, and set ``options``."""
    kept = [item for item in node.attribute if item.name not in (*leave_out, *options)]
    added = (onnx.helper.make_attribute(name, value) for name, value in options.items())
    set_items(node.attribute, [*kept, *added])


def keep_nodes(graph: GraphProto, keep: Callable[[NodeProto], bool]) -> None:
    """Remove the nodes for which ``keep`` is false, in place."""
    set_items(graph.node, (node for node in graph.node if keep(node)))


def sort_nodes(graph: GraphProto) -> None:
    """Sort the nodes in place so that each follows the producers of its operands.

    Tensors that its bodies read count as operands. The order is stable: of the nodes that could
    come next, the first in the old order does.
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
    set_items(graph.node, order)


def _operands(
    graph: GraphProto, reads: Callable[[NodeProto], Iterable[str]]
) -> tuple[list[set[str]], dict[str, list[int]]]:
    """Return each node's computed operands, and for each name the indices of consumers."""
    made = {name for node in graph.node for name in node.output if name}
    operands = [{name for name in reads(node) if name in made} for node in graph.node]
    readers: dict[str, list[int]] = {}
    for index, names in enumerate(operands):
        for name in names:
            readers.setdefault(name, []).append(index)
    return operands, readers


def sort_nodes_in_waves(graph: GraphProto) -> None:
    """Sort the nodes in place by the time at which their operands become available.

    The order is first come, first served. Branches then advance together. Nodes that depend on no
    other node start in the order of their operands' names.
    """
    nodes = list(graph.node)
    waiting, readers = _operands(graph, lambda node: node.input)
    first = (index for index, names in enumerate(waiting) if not names)
    order = sorted(first, key=lambda index: max(nodes[index].input, default=""))
    for index in order:  # the list grows during the loop
        for name in nodes[index].output:
            for reader in readers.get(name, ()):
                waiting[reader].discard(name)
                if not waiting[reader]:
                    order.append(reader)
    set_items(graph.node, (nodes[index] for index in order))
    sort_nodes(graph)  # bodies add dependencies that the waves ignore


def remove_dead_code(graph: GraphProto) -> None:
    """Remove nodes whose results are unused, and unused initialisers, in place."""
    used = set(use_counts(graph))
    while any(used.isdisjoint(node.output) for node in graph.node):
        set_items(graph.node, (node for node in graph.node if not used.isdisjoint(node.output)))
        used = set(use_counts(graph))
    # Deleting one by one from the end avoids copying the weights that stay.
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in used:
            del graph.initializer[index]


def shapes_of(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the static shapes of inputs, outputs, inferred values and initialisers, by name."""
    result = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.input, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            result[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    return result


def types_of(graph: GraphProto) -> dict[str, int]:
    """Return the ONNX element types of inputs, outputs, values and initialisers, by name."""
    result = {tensor.name: tensor.data_type for tensor in graph.initializer}
    values = (*graph.value_info, *graph.input, *graph.output)
    return result | {value.name: value.type.tensor_type.elem_type for value in values}


def remove_initializers(model: ModelProto) -> ModelProto:
    """Return a copy of a model without constants, which make up most of its size."""
    result = ModelProto()
    copy_fields(model, result, "graph")
    copy_fields(model.graph, result.graph, "initializer")
    return result


def change_without_large_constants(
    model: ModelProto, change: Callable[[ModelProto], ModelProto]
) -> ModelProto:
    """Return ``change(model)``, computed without initialisers above 64 KiB.

    Inputs of the same type replace them meanwhile. onnx's C++ functions take a serialised model;
    this avoids copying weights of hundreds of megabytes there.
    """
    skeleton = remove_initializers(model)
    large = []
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if byte_size(tensor) <= LARGE_BYTES or tensor.name in inputs:
            skeleton.graph.initializer.append(tensor)
        else:
            large.append(tensor)
            value = onnx.helper.make_tensor_value_info(
                tensor.name, tensor.data_type, tuple(tensor.dims)
            )
            skeleton.graph.input.append(value)
    result = change(skeleton)
    names = {tensor.name for tensor in large}
    set_items(
        result.graph.input, (value for value in result.graph.input if value.name not in names)
    )
    for tensor in large:  # extending the list by a message would serialise and parse it
        result.graph.initializer.add().CopyFrom(tensor)
    return result


OWN_KEY = "onnxruntime:"
"""Prefix of metadata keys that name a unit's result; the value names ONNX Runtime's own result."""


def read_defined_results(model: ModelProto) -> dict[str, str]:
    """Return results of units that definitions compute.

    They are mapped to ONNX Runtime's own results of the same units.
    """
    own = (entry for entry in model.metadata_props if entry.key.startswith(OWN_KEY))
    return {entry.key.removeprefix(OWN_KEY): entry.value for entry in own}


def parse_model(content: bytes, source: str, remedy: str = REMEDY) -> ModelProto:
    """Parse a model without checking it; ``source`` is its name in messages."""
    wrong = InputError(f"{source}: not an ONNX model, or a truncated one; {remedy}")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's DecodeError has no type information to catch it by
        raise wrong from error
    if not model.HasField("graph") or not model.graph.node or not model.opset_import:
        raise wrong
    return model
