"""Cut the float parts out of a partly quantised model, and put them back once they are quantised.

All float parts of a model become one float model. Its inputs and outputs are the tensors at the
borders to the quantised parts, which keep their scales and their integers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from byoc.frontend.onnx.importer import count_macs, import_graph
from byoc.frontend.onnx.reading import build_view, list_captured_names
from byoc.frontend.onnx.rewriting.form import convert_opset, name_nodes
from byoc.frontend.onnx.rewriting.shapes import tensor_types
from byoc.operators.onnx_view import BOUNDARIES, CLIP, CONSTANT_NODE, DEQUANTIZE, QUANTIZE
from byoc.operators.registry import load_installed_families
from byoc.package.package import QuantisedTensors
from byoc.quantisation.calibrate import Feeds, Ranges
from byoc.quantisation.quantize import GivenScale
from byoc.runtimes.protobuf import (
    ConstantArrays,
    add_tensor,
    bodies,
    copy_model,
    count_of,
    keep_nodes,
    make_unused_name,
    names_of,
    remove_dead_code,
    separate_names,
    set_attributes,
    set_items,
    sort_nodes,
    types_of,
)
from byoc.runtimes.session import OnnxRuntimeSession
from isa.numerics.requantising import INT8_HIGH, INT8_LOW

_BYTES = np.dtype(np.int8), np.dtype(np.uint8)
_WIDE = frozenset({TensorProto.INT16, TensorProto.UINT16})


@dataclass(frozen=True, eq=False)
class Gaps:
    """Float parts of a partly quantised model.

    ``whole`` is the model and ``parts`` the model of its float parts. ``given`` are the scales of
    tensors at the borders; float nodes read those in ``shared`` too, without the quantisation.
    ``inside`` are the names of the nodes that ``parts`` replaces.
    """

    whole: ModelProto
    parts: ModelProto
    given: Mapping[str, GivenScale]
    shared: frozenset[str]
    inside: frozenset[str]

    def find_scales(self, ranges: Ranges) -> dict[str, GivenScale]:
        """Return the given scales, except those that saturate a tensor with float consumers."""

        def can_hold(name: str) -> bool:
            scale, zero = self.given[name]
            ends = (np.array([INT8_LOW, INT8_HIGH]) - float(zero) + [-0.5, 0.5]) * float(scale)
            return bool(ends[0] <= ranges[name][0] and ranges[name][1] <= ends[1])

        wide = {name for name in self.shared if name in ranges and not can_hold(name)}
        return {name: scale for name, scale in self.given.items() if name not in wide}

    def observe_borders(self, feeds: Iterable[Feeds]) -> Iterator[Feeds]:
        """Yield the inputs of the float parts for each inference of the whole model."""
        inputs = [value.name for value in self.whole.graph.input]
        names = [value.name for value in self.parts.graph.input]
        computed = [name for name in names if name not in inputs]
        session = OnnxRuntimeSession(self.whole, optimised=False, further=computed)
        for feed in feeds:
            given = {name: feed[name] for name in inputs}
            found = session.run(computed, given) if computed else {}
            yield {name: found[name] if name in found else feed[name] for name in names}

    def fill(self, quantised: ModelProto) -> ModelProto:
        """Return the whole model with ``quantised`` in place of its float parts."""
        result = copy_model(self.whole)
        graph = result.graph
        keep_nodes(graph, lambda node: node.name not in self.inside)
        ends = {value.name for value in (*quantised.graph.input, *quantised.graph.output)}
        taken = names_of(self.whole.graph) | names_of(quantised.graph)
        own = names_of(quantised.graph) & names_of(self.whole.graph) - ends
        renamed = {name: make_unused_name(f"{name}_gap", taken) for name in sorted(own)}
        for node in quantised.graph.node:
            made = graph.node.add()
            made.CopyFrom(node)
            made.input[:] = [renamed.get(name, name) for name in node.input]
            made.output[:] = [renamed.get(name, name) for name in node.output]
        for tensor in quantised.graph.initializer:
            stored = graph.initializer.add()
            stored.CopyFrom(tensor)
            stored.name = renamed.get(tensor.name, tensor.name)
        separate_names(graph, name_all=True)
        sort_nodes(graph)
        del graph.value_info[:]
        remove_dead_code(graph)
        return result


@dataclass(frozen=True, eq=False)
class _Floats:
    """Nodes that compute with float tensors, apart from constants and quantisations.

    ``tensors`` are shape and type of every tensor, ``constants`` the names of all constant ones.
    ``products`` are the names of nodes with multiply-accumulates.
    """

    nodes: list[NodeProto]
    tensors: Mapping[str, tuple[tuple[int, ...], str]]
    constants: set[str]
    products: set[str]


def find_gaps(model: ModelProto) -> Gaps | None:
    """Return the float parts of a prepared, partly quantised model that are worth quantising.

    These are parts with a product, and parts between two quantised ones. Others are the ends of the
    network, which the file leaves in float. Returns None if there is no such part.
    """
    model = name_nodes(convert_opset(model))
    floats = _find_floats(model)
    chosen = _choose(model, floats)
    if not chosen:
        return None
    given = _find_given_scales(model, floats)
    quantised = {node.output[0] for node in model.graph.node if node.op_type == DEQUANTIZE}
    read = {name for node in floats.nodes for name in node.input}
    read.update(value.name for value in model.graph.output)
    shared = frozenset(name for name in given if name in read and name not in quantised)
    return Gaps(model, _cut(model, chosen, floats), given, shared, frozenset(chosen))


def _find_floats(model: ModelProto) -> _Floats:
    tensors, _ = tensor_types(model)
    view = build_view(model, tensors)
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        fixed = all(name in constants for name in _reads(node) if name)
        if node.op_type == CONSTANT_NODE or (node.input and fixed):
            constants.update(node.output)
    units = {name for node in import_graph(model).nodes if node.integer for name in node.onnx_nodes}
    nodes = list[NodeProto]()
    made = set[str]()
    for node in model.graph.node:
        names = [name for name in (*node.input, *node.output) if name]
        floats = any(tensors[name][1].startswith("float") for name in names if name in tensors)
        own = node.name not in units and node.op_type not in BOUNDARIES and not any(bodies(node))
        if own and (floats or made.intersection(names)) and not constants.intersection(node.output):
            nodes.append(node)
            made.update(node.output)
    computed = {node.name for node in nodes}
    products = {n.name for n in view.nodes if n.name in computed and count_macs(view, n)}
    return _Floats(nodes, tensors, constants, products)


def _reads(node: NodeProto) -> list[str]:
    return [*node.input, *list_captured_names(node)]


def _connect(nodes: list[NodeProto]) -> list[list[NodeProto]]:
    """Divide nodes into parts that share no tensor that one of them computes."""
    parts: dict[str, list[NodeProto]] = {}
    for node in nodes:
        joined = {id(part): part for name in node.input if (part := parts.get(name)) is not None}
        largest = max(joined.values(), key=len, default=list[NodeProto]())
        for part in joined.values():
            if part is not largest:
                largest += part
                parts |= {name: largest for each in part for name in each.output}
        largest.append(node)
        parts |= dict.fromkeys(node.output, largest)
    return list({id(part): part for part in parts.values()}.values())


def _choose(model: ModelProto, floats: _Floats) -> set[str]:
    """Return the names of the nodes in parts with a product, or between quantised tensors.

    Tensors that another such part reads are quantised too. A single node without a product stays as
    it is if the file quantises all its tensors: it is a quantised operator that no rule covers.
    """
    dequantised = {node.output[0] for node in model.graph.node if node.op_type == DEQUANTIZE}
    after = {node.input[0] for node in model.graph.node if node.op_type == QUANTIZE}
    before = dequantised - floats.constants
    waiting = [
        part
        for part in _connect(floats.nodes)
        if len(part) > 1
        or part[0].name in floats.products
        or after.isdisjoint(part[0].output)
        or not dequantised.issuperset(_list_operands(part[0]))
    ]
    chosen = set[str]()
    while True:
        found = [
            part
            for part in waiting
            if not floats.products.isdisjoint(node.name for node in part)
            or (
                any(not before.isdisjoint(node.input) for node in part)
                and any(not after.isdisjoint(node.output) for node in part)
            )
        ]
        if not found:
            return chosen
        taken = set(map(id, found))
        waiting = [part for part in waiting if id(part) not in taken]
        for node in (node for part in found for node in part):
            chosen.add(node.name)
            before.update(name for name in node.input if name not in floats.constants)


def _list_operands(node: NodeProto) -> list[str]:
    """Return the inputs that a quantised operator has in integers; none for an unknown operator."""
    form = load_installed_families().forms.get(node.op_type)
    return [] if form is None else [name for name in node.input[: form[1].operands] if name]


def _cut(model: ModelProto, chosen: Collection[str], floats: _Floats) -> ModelProto:
    """Return the model of the nodes ``chosen``, with the constants that they read."""
    inside = [node for node in model.graph.node if node.name in chosen]
    made = {name for node in inside for name in node.output}
    outside = {
        name for node in model.graph.node if node.name not in chosen for name in _reads(node)
    }
    outside |= {value.name for value in model.graph.output}
    needed = {name for node in inside for name in node.input if name}
    kept = set(chosen)
    for node in reversed(model.graph.node):
        if needed.intersection(node.output) and floats.constants.intersection(node.output):
            kept.add(node.name)
            needed.update(_reads(node))
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [name for name in sorted(needed - made) if name not in floats.constants]

    def declare(name: str) -> Any:
        shape, dtype = floats.tensors[name]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)

    result = copy_model(model)
    graph = result.graph
    keep_nodes(graph, lambda node: node.name in kept)
    outputs = (name for node in inside for name in node.output if name in outside)
    set_items(graph.input, map(declare, inputs))
    set_items(graph.output, map(declare, outputs))
    del graph.value_info[:]
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in needed & stored:
            del graph.initializer[index]
    return result


def _find_given_scales(model: ModelProto, floats: _Floats) -> dict[str, GivenScale]:
    """Return scale and zero point of every computed tensor that the file quantises in 8 bits.

    They are those of int8 steps; uint8 ones are 128 lower.
    """
    arrays = ConstantArrays(model.graph, lambda tensor: True)
    found: dict[str, GivenScale] = {}
    for node in model.graph.node:
        integers = (node.output if node.op_type == QUANTIZE else node.input)[0]
        if node.op_type not in BOUNDARIES or integers not in floats.tensors:
            continue
        dtype = np.dtype(floats.tensors[integers][1])
        scale = arrays.get(node.input[1])
        zero = arrays.get("".join(node.input[2:]), np.zeros((), dtype))
        if dtype in _BYTES and scale is not None and scale.size == 1 and zero.size == 1:
            name = (node.input if node.op_type == QUANTIZE else node.output)[0]
            shift = 0 if dtype == np.int8 else INT8_LOW
            moved = np.asarray(int(zero.reshape(())) + shift, np.int8)
            found.setdefault(name, (scale.reshape(()).astype(np.float32), moved))
    return found


def drop_rounding(model: ModelProto) -> ModelProto:
    """Remove rounding that quantisation in 8 bits replaces.

    This is the quantisation of computed tensors to 16 bits, which the accelerator does not have,
    and the reduced accuracy that MatMulNBits allows. The range of the 16 bits remains as a Clip.
    """
    arrays = ConstantArrays(model.graph, lambda tensor: len(tensor.dims) < 2)
    types = types_of(model.graph)
    wide = {
        node.output[0]: node
        for node in model.graph.node
        if node.op_type == QUANTIZE
        and np.size(arrays.get(node.input[1], ())) == 1
        and types.get("".join(node.input[2:])) in _WIDE
        and node.input[2] in arrays
    }
    if not wide and not count_of(model.graph, {"MatMulNBits"}):
        return model
    result = copy_model(model)
    taken = names_of(model.graph)
    for node in result.graph.node:
        if node.op_type == DEQUANTIZE and node.input[0] in wide:
            source, scale, zero = wide[node.input[0]].input
            limits = np.iinfo(arrays[zero].dtype)
            ends = (np.array([limits.min, limits.max]) - float(arrays[zero].item())) * arrays[scale]
            names = (make_unused_name(f"{node.output[0]}_{end}", taken) for end in ("low", "high"))
            made = zip(names, ends.astype(np.float32), strict=True)
            node.op_type = CLIP
            node.input[:] = [source, *(add_tensor(result.graph, *pair) for pair in made)]
            del node.attribute[:]
        set_attributes(node, "accuracy_level")
    remove_dead_code(result.graph)
    return result


def count_quantised(model: ModelProto) -> QuantisedTensors:
    """Count the tensors of a model that are quantised to 8 bits or less.

    Biases, tables of one dimension and 16-bit tensors do not count.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    narrow = {"INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2"}
    weights = sum(
        TensorProto.DataType.Name(tensor.data_type) in narrow and len(tensor.dims) > 1
        for tensor in stored.values()
    )
    activations = {
        node.output[0]
        for node in model.graph.node
        if node.op_type.startswith("QLinear")
        or (
            node.op_type == QUANTIZE
            and node.input[0] not in stored
            and stored.get("".join(node.input[2:]), TensorProto()).data_type not in _WIDE
        )
    }
    return QuantisedTensors(len(activations), weights)
