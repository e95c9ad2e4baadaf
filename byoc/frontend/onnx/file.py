"""Read ONNX files and check them completely before any pass sees them.

Each error is one clear line.
"""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    ValueInfoProto,
    numpy_helper,
)
from onnx.inliner import inline_local_functions

from byoc.operators.forms import QLinear
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.operators.registry import installed
from isa import memory
from isa.errors import InputError
from isa.reading import check_file, first_line

MAXIMUM_CHECKED_BYTES = 1 << 31
MAXIMUM_RANK = 32
MAXIMUM_NAME = 4096
MAXIMUM_ELEMENTS = 1 << 60
ANY_SIZE = -1
"""Dimension that PaddlePaddle's exporter writes for an unknown size."""
_NAMES = frozenset({"name", "input", "output", "op_type", "domain"})
MAXIMUM_CALLED = 1 << 17
"""Maximum number of nodes after replacing function calls by their bodies."""
MAXIMUM_TRIPS = 1 << 20
"""Maximum number of iterations of a loop with a constant count, including the loops around it."""
REMEDY = "export it again"

_BITS = {
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 32),
    **dict.fromkeys(("UINT8", "INT8", "BOOL", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"), 8),
    **dict.fromkeys(("UINT16", "INT16", "FLOAT16", "BFLOAT16"), 16),
    **dict.fromkeys(("INT64", "UINT64", "DOUBLE", "COMPLEX64"), 64),
    **dict.fromkeys(("UINT4", "INT4", "FLOAT4E2M1"), 4),
    "COMPLEX128": 128,
}
"""Bits of an element in ``raw_data``, by type name; strings have none."""
_LISTS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_PACKED = {"COMPLEX64": 2, "COMPLEX128": 2, "UINT4": 0.5, "INT4": 0.5, "FLOAT4E2M1": 0.5}
"""Entries of a list that one element takes, for types with other than one."""
REAL = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_DEFAULT_DOMAIN = ("", "ai.onnx")
_RUNTIME_DOMAIN = "com.microsoft"
_RUNTIME_OPERATORS = {"LayerNormalization": 17, "SimplifiedLayerNormalization": 1 << 30}
"""Operators that ONNX Runtime adds to ONNX's domain, and the opset with which ONNX has them too."""


def load_model(path: str | Path) -> ModelProto:
    """Read and check the model in ``path``, and load its external data from the same folder.

    Raises:
        InputError: no such file, a directory, not an ONNX model, a truncated or inconsistent one,
            no external data.
    """
    import onnx

    file = Path(path)
    if not str(path):
        raise InputError("the model is an empty text; give a file, or a name that 'dla models' lists")
    check_file(file, "'dla models' lists the built-in names")
    memory.require(2 * file.stat().st_size, str(file))
    model = parse_model(file.read_bytes(), str(file), "export or copy it again")
    _check_text(model, str(file))
    folder = file.resolve().parent
    memory.require(sum(_external_bytes(tensor, folder) for tensor in _tensors(model)), f"{file}: its external data")
    try:
        onnx.load_external_data_for_model(model, str(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise InputError(
            f"{file}: external data cannot be read ({first_line(error)}); keep it beside the model"
        ) from error
    check_model(model, str(file))
    if not {value.name for value in model.graph.input} - {tensor.name for tensor in model.graph.initializer}:
        raise InputError(f"{file}: the model has no input, its outputs are constants; there is nothing to run")
    return open_dimensions(model)


def open_dimensions(model: ModelProto) -> ModelProto:
    """Replace dimensions of -1 with unknown ones.

    Returns a copy, or the model itself if it has no such dimension.
    """
    if not any(dim.dim_value == ANY_SIZE for dim in _dimensions(model)):
        return model
    result = ModelProto()
    result.CopyFrom(model)
    for dim in _dimensions(result):
        if dim.dim_value == ANY_SIZE:
            dim.ClearField("dim_value")
    return result


def _dimensions(model: ModelProto) -> Iterator[TensorShapeProto.Dimension]:
    """Yield every dimension that the model declares, bodies and functions included."""
    nodes = chain(_nodes(model.graph), *(_nodes_of(function.node) for function in model.functions))
    graphs = [model.graph, *(body for _, body in _graphs(nodes))]
    declared = chain(*((*graph.input, *graph.output, *graph.value_info) for graph in graphs))
    for value in chain(declared, *(function.value_info for function in model.functions)):
        yield from value.type.tensor_type.shape.dim


def parse_model(content: bytes, source: str, remedy: str = REMEDY) -> ModelProto:
    """Parse a model without checking it; ``source`` is its name in messages."""
    import onnx

    wrong = InputError(f"{source}: not an ONNX model, or a truncated one; {remedy}")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's DecodeError has no type information to catch it by
        raise wrong from error
    if not model.HasField("graph") or not model.graph.node or not model.opset_import:
        raise wrong
    return model


def check_model(model: ModelProto, source: str) -> None:
    """Raise InputError unless the model is consistent and complete, without data in other files.

    Text must be UTF-8. Constants must have a known type and as much data as their shape needs.
    Operator sets must be imported once. Every value must be computed once and before it is read. No
    loop may run endlessly. The model must also pass onnx's own checker.
    """
    import onnx

    if model.ByteSize() >= MAXIMUM_CHECKED_BYTES:
        raise InputError(
            f"{source}: the model has {model.ByteSize()} bytes; models of 2 GiB and more are not supported"
        )
    _check_text(model, source)
    try:
        _check_opsets(model)
        for tensor in _tensors(model):
            _check_tensor(tensor)
        for value in model.graph.input:
            if value.type.tensor_type.elem_type == TensorProto.UNDEFINED:
                raise InputError(f"input '{value.name}' is no tensor of a known type")
        _Scopes().check(model.graph, frozenset())
        check_scales(model.graph)
        for function in model.functions:
            _check_function(function)
        _check_calls(model)
        _check_nodes(chain(_nodes(model.graph), *(_nodes_of(function.node) for function in model.functions)))
        _check_loops(model.graph.node, _constants(model.graph), 1)
        _check_parameters((inline_local_functions(model) if model.functions else model).graph, {})
    except InputError as error:
        raise InputError(f"{source}: inconsistent ONNX model ({error}); {REMEDY}") from error
    try:
        onnx.checker.check_model(_checkable(model))
    except onnx.checker.ValidationError as error:
        raise InputError(f"{source}: inconsistent ONNX model ({first_line(error)}); {REMEDY}") from error


def has_external_data(content: bytes, source: str) -> bool:
    """Return True if the model in ``content`` has data in external files."""
    if b"location" not in content:  # key of the file's name
        return False
    return any(tensor.data_location == TensorProto.EXTERNAL for tensor in _tensors(parse_model(content, source)))


def _check_text(message: Any, source: str) -> None:
    """Raise InputError if a text in a message is not UTF-8, or a name is too long."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in (value,) if hasattr(value, "ListFields") else value:
                _check_text(item, source)
        elif field.type == field.TYPE_STRING:
            try:
                longest = max(len(item.encode()) for item in ((value,) if isinstance(value, str) else value))
            except (UnicodeDecodeError, UnicodeEncodeError, AttributeError) as error:
                raise InputError(f"{source}: {field.full_name} is not text in UTF-8; {REMEDY}") from error
            if longest > MAXIMUM_NAME and field.name in _NAMES:
                raise InputError(f"{source}: {field.full_name} has {longest} bytes; names have at most {MAXIMUM_NAME}")


def _graphs(nodes: Iterable[NodeProto]) -> Iterator[tuple[NodeProto, GraphProto]]:
    """Yield the bodies of control-flow nodes, without the bodies nested in them."""
    for node in nodes:
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
            yield from ((node, body) for body in bodies)


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every constant of a model: of graphs, bodies, functions and attributes."""
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
    for _, body in _graphs(nodes):
        yield from _tensors_of_graph(body)


def _external_bytes(tensor: TensorProto, folder: Path) -> int:
    """Return the size of a tensor's external data in bytes.

    The result is 0 if the file is missing, which loading rejects.
    """
    if tensor.data_location != TensorProto.EXTERNAL:
        return 0
    entries = {entry.key: entry.value for entry in tensor.external_data}
    length, place = entries.get("length", ""), folder / entries.get("location", "")
    present = place.stat().st_size if place.is_file() else 0
    return min(int(length), present) if length.isdecimal() and len(length) < 20 else present


def _check_tensor(tensor: TensorProto) -> None:
    name, kinds = tensor.name, {number: kind for kind, number in TensorProto.DataType.items()}
    kind = kinds.get(tensor.data_type, "UNDEFINED")
    if kind == "UNDEFINED" or (kind != "STRING" and kind not in _BITS):
        raise InputError(f"constant '{name}' has element type {tensor.data_type}, which is not known")
    if any(dim < 0 for dim in tensor.dims) or len(tensor.dims) > MAXIMUM_RANK:
        raise InputError(f"constant '{name}' has shape {list(tensor.dims)[:MAXIMUM_RANK]}")
    if tensor.data_location == TensorProto.EXTERNAL or tensor.HasField("segment"):
        raise InputError(f"the data of constant '{name}' is not in the model")
    count = prod(tensor.dims)
    if kind == "STRING":
        found, wanted = len(tensor.string_data), count
    elif tensor.HasField("raw_data"):
        found, wanted = len(tensor.raw_data), -(-count * _BITS[kind] // 8)
    else:
        found, wanted = sum(len(getattr(tensor, each)) for each in _LISTS), -int(-count * _PACKED.get(kind, 1) // 1)
    if found != wanted:
        raise InputError(f"constant '{name}' of shape {list(tensor.dims)} has {found} of {wanted} bytes or entries")
    if kind != "STRING":
        try:
            numpy_helper.to_array(tensor)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"constant '{name}' holds no values of its type {kind}") from error


def _check_opsets(model: ModelProto) -> None:
    imported = Counter("" if entry.domain in _DEFAULT_DOMAIN else entry.domain for entry in model.opset_import)
    for domain, count in imported.items():
        if count > 1:
            raise InputError(f"operator set '{domain or 'ai.onnx'}' is imported {count} times")
    for domain in sorted({node.domain for node in _nodes(model.graph)}):
        if ("" if domain in _DEFAULT_DOMAIN else domain) not in imported:
            raise InputError(f"operator set '{domain or 'ai.onnx'}' is used and not imported")


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    return _nodes_of(graph.node)


def _nodes_of(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield ``nodes`` and the nodes of their bodies."""
    yield from nodes
    for _, body in _graphs(nodes):
        yield from _nodes_of(body.node)


class _Scopes:
    """Check that every value of a graph is computed once, and before it is read."""

    def check(self, graph: GraphProto, outer: frozenset[str]) -> None:
        """Check a graph; ``outer`` are the values of the graphs around it."""
        _check_values((*graph.input, *graph.output, *graph.value_info))
        _only_once((value.name for value in graph.input), "input")
        _only_once((value.name for value in graph.output), "output")
        sparse = [item.values.name for item in graph.sparse_initializer]
        constants = [*(tensor.name for tensor in graph.initializer), *sparse]
        _only_once(constants, "constant")
        known = {*outer, *constants, *(value.name for value in graph.input)}
        own = known - outer
        for node in graph.node:
            self._node(node, known)
            for name in node.output:
                if name and name in own:
                    raise InputError(f"value '{name}' is made twice, the second time by node '{_label(node)}'")
                own.add(name)
            known.update(node.output)
        for value in graph.output:
            if value.name not in known:
                raise InputError(f"output '{value.name}' is made by no node")

    def _node(self, node: NodeProto, known: set[str]) -> None:
        for name in node.input:
            if name and name not in known:
                raise InputError(f"node '{_label(node)}' reads '{name}', which nothing before it makes")
        _only_once((attribute.name for attribute in node.attribute), f"attribute of node '{_label(node)}',")
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise InputError(f"attribute {attribute.name} of node '{_label(node)}' is that of a function, not here")
        for _, body in _graphs([node]):
            self.check(body, frozenset(known))


def check_scales(graph: GraphProto) -> None:
    """Raise InputError for a constant quantisation scale that is not positive and finite.

    Apart from the first operand, which may be data, every real operand is a scale.
    """
    known = _constants(graph)
    for node in graph.node:
        if node.op_type not in (QUANTIZE, DEQUANTIZE) and not node.op_type.startswith(("QLinear", "QGemm")):
            continue
        named = node.input if node.op_type == "QLinearConcat" else node.input[1:]
        for name in (name for name in named if name in known and known[name].data_type in REAL):
            numbers = numpy_helper.to_array(known[name]).astype(np.float64)
            wrong = numbers[~(np.isfinite(numbers) & (numbers > 0))]
            if wrong.size:
                raise InputError(
                    f"scale '{name}' of node '{_label(node)}' is {wrong.flat[0]:g}; scales are positive and finite"
                )
    for _, body in _graphs(graph.node):
        check_scales(body)


def _check_function(function: FunctionProto) -> None:
    known = set(function.input)
    for node in function.node:
        for name in node.input:
            if name and name not in known:
                raise InputError(f"in function '{function.name}', '{name}' is read before it is made")
        known.update(node.output)


def _check_calls(model: ModelProto) -> None:
    """Raise InputError if inlining function calls never ends or gives too many nodes."""
    bodies = {(one.domain, one.name): list(_nodes_of(one.node)) for one in model.functions}
    calls = {key: [call for node in nodes if (call := (node.domain, node.op_type)) in bodies]
             for key, nodes in bodies.items()}  # fmt: skip
    counts: dict[tuple[str, str], int] = {}
    try:
        order = list(graphlib.TopologicalSorter(calls).static_order())
    except graphlib.CycleError as error:
        raise InputError(f"function '{error.args[1][0][1]}' calls itself") from error
    for key in order:
        counts[key] = len(bodies[key]) + sum(counts[call] for call in calls[key])
    total = sum(counts.get((node.domain, node.op_type), 0) for node in _nodes(model.graph))
    if total > MAXIMUM_CALLED:
        raise InputError(f"functions that call one another make {total:,} nodes, and {MAXIMUM_CALLED:,} are allowed")


def _check_nodes(nodes: Iterable[NodeProto]) -> None:
    """Raise InputError for nodes that onnx or ONNX Runtime misread, or that end the process."""
    for node in nodes:
        label = _label(node)
        for item in node.attribute:
            wrong = [axis for axis in (item.i, *item.ints) if not -(1 << 31) <= axis < 1 << 31]
            if wrong and item.name in ("axis", "axes"):
                raise InputError(f"node '{label}': {item.name} has {wrong[0]}, which no tensor has")
            if item.ref_attr_name or node.domain not in (*_DEFAULT_DOMAIN, _RUNTIME_DOMAIN):
                continue  # the number comes from a function call, or the operator is unknown
            if item.name in _WINDOWS and min(item.ints, default=1) < 1:
                raise InputError(f"node '{label}': {item.name} has {min(item.ints)}; windows have positive numbers")
            if (node.op_type, item.name) == ("Split", "num_outputs") and item.i != len(node.output):
                raise InputError(
                    f"node '{label}': num_outputs is {item.i}, and the node has {len(node.output)} outputs"
                )
        least = _LEAST_INPUTS.get(node.op_type, 0)
        if len(node.input) < least:
            raise InputError(f"node '{label}' has {len(node.input)} inputs; ONNX Runtime reads {least}, '' is one")


def _check_parameters(graph: GraphProto, outer: Mapping[str, TensorProto]) -> None:
    """Raise InputError for scales, zero points and frames that end ONNX Runtime's process.

    ``outer`` are the constants of the graphs around it. A constant that is also an input is only a
    default.
    """
    given = {value.name for value in graph.input}
    fixed = {**outer, **{name: tensor for name, tensor in _constants(graph).items() if name not in given}}
    for node in graph.node:
        label, places = f"node '{_label(node)}'", _parameter_places(node)
        names = {place: "".join(node.input[place : place + 1]) for place in places}
        if node.op_type in ("QLinearConcat", "QMoE") and "" in names.values():
            raise InputError(f"{label} lacks a scale or zero point")
        if node.op_type == "QMoE" and any(len(fixed[name].dims) != 3 for name in node.input[2:6:3] if name in fixed):
            raise InputError(f"{label} has weights of other than 3 dimensions")
        empty = next((name for name in names.values() if name in fixed and 0 in fixed[name].dims), None)
        if empty is not None:
            raise InputError(f"{label}: scale or zero point '{empty}' has no elements")
        if node.op_type == "STFT":
            _check_frames(label, (*node.input, "", "")[2:4], fixed)
        if node.op_type == "QLinearWhere" and all(names.get(place) in fixed for place in _RESULT_OF_WHERE):
            computed = next((names[place] for place in _ZEROS_OF_WHERE if names.get(place, "") not in fixed), None)
            if computed is not None:
                raise InputError(f"{label}: ONNX Runtime needs zero point '{computed}' as a constant")
    for _, body in _graphs(graph.node):
        _check_parameters(body, fixed)


def _check_frames(label: str, names: Sequence[str], fixed: Mapping[str, TensorProto]) -> None:
    """Raise InputError for an STFT whose frames are or may be empty.

    ``names`` are window and length.
    """
    window, length = names
    if not window and length not in fixed:
        raise InputError(f"{label}: ONNX Runtime needs a window, or frame_length as a constant")
    empty = window in fixed and 0 in fixed[window].dims
    if empty or (length in fixed and not numpy_helper.to_array(fixed[length]).any()):
        raise InputError(f"{label}: its frames have no samples")


def _parameter_places(node: NodeProto) -> tuple[int, ...]:
    """Return the positions of the scales and zero points among an operator's inputs."""
    *_, form = installed().integer_forms.get(node.op_type, (None,))
    if not isinstance(form, QLinear):
        return (3, 6) if node.op_type == "QMoE" else ()
    return (*form.result, *chain(*(pair for _, *pair in form.triples(len(node.input)))))


_WINDOWS = frozenset({"kernel_shape", "strides", "dilations"})
_LEAST_INPUTS = {"QLinearLeakyRelu": 5, "QLinearSigmoid": 5}
"""Number of inputs that ONNX Runtime reads even if the node has fewer; an empty name suffices."""
_ZEROS_OF_WHERE = (3, 6)
_RESULT_OF_WHERE = (7, 8)
"""Inputs of QLinearWhere.

With constant parameters of the result, ONNX Runtime reads the zero points of the operands at once.
"""


def _check_values(values: Iterable[ValueInfoProto]) -> None:
    """Check the element types and dimensions of declared values."""
    for value in values:
        if not value.type.HasField("tensor_type"):
            continue
        tensor = value.type.tensor_type
        if tensor.elem_type not in TensorProto.DataType.values():
            raise InputError(f"value '{value.name}' has element type {tensor.elem_type}, which is not known")
        if len(tensor.shape.dim) > MAXIMUM_RANK:
            raise InputError(f"value '{value.name}' has {len(tensor.shape.dim)} dimensions")
        sizes = [dim.dim_value for dim in tensor.shape.dim if dim.HasField("dim_value")]
        if min(sizes, default=0) < ANY_SIZE or prod(max(size, 1) for size in sizes) >= MAXIMUM_ELEMENTS:
            raise InputError(f"value '{value.name}' has the shape {sizes}")


def _only_once(names: Iterable[str], what: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{what} '{name}' is there {count} times")
        if not name:
            raise InputError(f"{what} without a name")


def _label(node: NodeProto) -> str:
    return node.name or f"{node.op_type}:{next(iter(node.output), '')}"


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the constants of a graph by name, from initialisers and Constant nodes."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in _DEFAULT_DOMAIN:
            found |= {name: item.t for item in node.attribute if item.name == "value" for name in node.output}
    return found


def _check_loops(nodes: Iterable[NodeProto], constants: dict[str, TensorProto], around: int) -> None:
    """Raise InputError for a loop whose constant count or condition makes it run too long."""
    for node, body in _graphs(nodes):
        known = constants | _constants(body)
        trips = around
        if node.op_type == "Loop" and node.domain in _DEFAULT_DOMAIN:
            trips *= _trips(node, body, known)
            if trips > MAXIMUM_TRIPS:
                raise InputError(f"loop '{_label(node)}' runs more than {MAXIMUM_TRIPS} times, or endlessly")
        _check_loops(body.node, known, trips)


def _trips(node: NodeProto, body: GraphProto, constants: dict[str, TensorProto]) -> int:
    """Return the maximum iterations of a loop; 1 if they depend on data."""
    limit, start = (*node.input, "", "")[:2]
    if _ends_itself(node, body, constants):
        return 1
    if limit in constants:
        count = numpy_helper.to_array(constants[limit])
        return max(int(count.reshape(-1)[0]), 0) if count.size == 1 and count.dtype.kind in "iu" else 1
    return 1 if limit or (start and start not in constants) else MAXIMUM_TRIPS + 1


def _ends_itself(node: NodeProto, body: GraphProto, constants: dict[str, TensorProto]) -> bool:
    """Return True if a loop's condition can become false.

    It cannot if it is passed on unchanged or constant.
    """
    if not body.output or len(body.input) < 2:
        return False
    makers = {name: item for item in body.node for name in item.output}
    condition = body.output[0].name
    while condition in makers and makers[condition].op_type == "Identity" and makers[condition].input:
        condition = makers[condition].input[0]
    return condition in makers and makers[condition].op_type != "Constant"


def _checkable(model: ModelProto) -> ModelProto:
    """Return the model, or a copy without details that only onnx's checker rejects.

    Inputs and outputs without a shape are common, and shapes are inferred later. Some operators of
    ONNX Runtime are in ONNX's own domain, where the checker does not know them.
    """
    values = (*model.graph.input, *model.graph.output)
    shaped = all(value.type.tensor_type.HasField("shape") for value in values if value.type.HasField("tensor_type"))
    foreign = [index for index, node in enumerate(model.graph.node) if _only_in_onnxruntime(node, model)]
    if shaped and not foreign:
        return model
    result = ModelProto()
    result.CopyFrom(model)
    for value in (*result.graph.input, *result.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    for index in foreign:
        result.graph.node[index].domain = _RUNTIME_DOMAIN
    if foreign and all(entry.domain != _RUNTIME_DOMAIN for entry in result.opset_import):
        result.opset_import.add(domain=_RUNTIME_DOMAIN, version=1)
    return result


def _only_in_onnxruntime(node: NodeProto, model: ModelProto) -> bool:
    """Return True if a node's operator in ONNX's domain is only ONNX Runtime's.

    The model's opset lacks it.
    """
    if node.domain not in _DEFAULT_DOMAIN or node.op_type not in _RUNTIME_OPERATORS:
        return False
    opset = max((entry.version for entry in model.opset_import if entry.domain in _DEFAULT_DOMAIN), default=0)
    return opset < _RUNTIME_OPERATORS[node.op_type]
