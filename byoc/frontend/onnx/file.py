"""Read ONNX files and check them completely before any pass sees them.

Each error is one clear line.
"""

import graphlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)
from onnx.inliner import inline_local_functions

from byoc.frontend.onnx.node_checks import (
    DEFAULT_DOMAIN,
    RUNTIME_DOMAIN,
    check_loops,
    check_nodes,
    check_parameters,
    check_scales,
    constants_of,
)
from byoc.runtimes.protobuf import REMEDY, all_nodes, bodies, node_label, parse_model
from isa import memory
from isa.errors import InputError, PluginError
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

_BITS = {
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 32),
    **dict.fromkeys(
        ("UINT8", "INT8", "BOOL", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"),
        8,
    ),
    **dict.fromkeys(("UINT16", "INT16", "FLOAT16", "BFLOAT16"), 16),
    **dict.fromkeys(("INT64", "UINT64", "DOUBLE", "COMPLEX64"), 64),
    **dict.fromkeys(("UINT4", "INT4", "FLOAT4E2M1"), 4),
    **dict.fromkeys(("UINT2", "INT2"), 2),
    "COMPLEX128": 128,
}
"""Bits of an element in ``raw_data``, by type name; strings have none."""
_LISTS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_PACKED = {
    **dict.fromkeys(("COMPLEX64", "COMPLEX128"), 2),
    **dict.fromkeys(("UINT4", "INT4", "FLOAT4E2M1"), 0.5),
    **dict.fromkeys(("UINT2", "INT2"), 0.25),
}
"""Entries of a list that one element takes, for types with other than one."""
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
        raise InputError(
            "the model is an empty text; give a file, or a name that 'dla models' lists"
        )
    check_file(file, "'dla models' lists the built-in names")
    memory.require(2 * file.stat().st_size, str(file))
    model = parse_model(file.read_bytes(), str(file), "export or copy it again")
    _check_text(model, str(file))
    folder = file.resolve().parent
    memory.require(
        sum(_external_bytes(tensor, folder) for tensor in _list_stored_tensors(model)),
        f"{file}: its external data",
    )
    try:
        onnx.load_external_data_for_model(model, str(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise InputError(
            f"{file}: external data cannot be read ({first_line(error)}); keep it beside the model"
        ) from error
    check_model(model, str(file))
    if not {value.name for value in model.graph.input} - {
        tensor.name for tensor in model.graph.initializer
    }:
        raise InputError(
            f"{file}: the model has no input, its outputs are constants; there is nothing to run"
        )
    return open_dimensions(model)


def open_dimensions(model: ModelProto) -> ModelProto:
    """Replace dimensions of -1 in an ONNX model by unknown dimensions.

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
    graphs = _list_graphs(model)
    declared = chain(*((*graph.input, *graph.output, *graph.value_info) for graph in graphs))
    for value in chain(declared, *(function.value_info for function in model.functions)):
        yield from value.type.tensor_type.shape.dim


def _list_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Return the nodes of a model's graph, its control-flow bodies and its functions."""
    return chain(all_nodes(model.graph), *map(all_nodes, model.functions))


def _list_graphs(model: ModelProto) -> list[GraphProto]:
    """Return a model's graph and the bodies of all its control-flow nodes."""
    return [model.graph, *(body for node in _list_nodes(model) for body in bodies(node))]


def _list_stored_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every constant of a model: of graphs, bodies, functions and attributes."""
    for graph in _list_graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in _list_nodes(model):
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t


def check_model(model: ModelProto, source: str) -> None:
    """Raise InputError unless the model is consistent and complete, without data in other files.

    Text must be UTF-8. Constants must have a known type and as much data as their shape needs.
    Operator sets must be imported once. Every value must be computed once and before it is read. No
    loop may run endlessly. Inputs and outputs must have a type of NumPy or
    bfloat16. The model must also pass onnx's own checker.
    """
    import onnx

    if model.ByteSize() >= MAXIMUM_CHECKED_BYTES:
        raise InputError(
            f"{source}: the model has {model.ByteSize()} bytes; models of 2 GiB and more are not "
            "supported"
        )
    _check_text(model, source)
    try:
        _check_opsets(model)
        for tensor in _list_stored_tensors(model):
            _check_tensor(tensor)
        for value in model.graph.input:
            if value.type.tensor_type.elem_type == TensorProto.UNDEFINED:
                raise InputError(f"input '{value.name}' is no tensor of a known type")
        _Scopes().check(model.graph, frozenset())
        check_scales(model.graph)
        for function in model.functions:
            _check_function(function)
        _check_calls(model)
        check_nodes(_list_nodes(model))
        check_loops(model.graph.node, constants_of(model.graph), 1)
        check_parameters((inline_local_functions(model) if model.functions else model).graph, {})
    except PluginError:
        raise  # the model is not at fault
    except InputError as error:
        raise InputError(f"{source}: inconsistent ONNX model ({error}); {REMEDY}") from error
    constants = constants_of(model.graph)
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.tensor_type.elem_type
        if value.name in constants or not kind:
            continue
        is_half = kind == TensorProto.BFLOAT16  # becomes float32
        if not is_half and helper.tensor_dtype_to_np_dtype(kind).isbuiltin != 1:
            raise InputError(
                f"{source}: '{value.name}' has type {TensorProto.DataType.Name(kind)}, and inputs "
                "and outputs must have a type of NumPy; convert it with a Cast in the model"
            )
    try:
        onnx.checker.check_model(_checkable(model))
    except onnx.checker.ValidationError as error:
        raise InputError(
            f"{source}: inconsistent ONNX model ({first_line(error)}); {REMEDY}"
        ) from error


def has_external_data(content: bytes, source: str) -> bool:
    """Return True if the model in ``content`` has data in external files."""
    return any(
        tensor.data_location == TensorProto.EXTERNAL
        for tensor in _list_stored_tensors(parse_model(content, source))
    )


def _check_text(message: Any, source: str) -> None:
    """Raise InputError if a text field of an ONNX file is not UTF-8 or a name is too long."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in (value,) if hasattr(value, "ListFields") else value:
                _check_text(item, source)
        elif field.type == field.TYPE_STRING:
            try:
                longest = max(
                    len(item.encode()) for item in ((value,) if isinstance(value, str) else value)
                )
            except (UnicodeDecodeError, UnicodeEncodeError, AttributeError) as error:
                raise InputError(
                    f"{source}: {field.full_name} is not text in UTF-8; {REMEDY}"
                ) from error
            if longest > MAXIMUM_NAME and field.name in _NAMES:
                raise InputError(
                    f"{source}: {field.full_name} has {longest} bytes; names have at "
                    f"most {MAXIMUM_NAME}"
                )


def _external_bytes(tensor: TensorProto, folder: Path) -> int:
    """Return the size of a tensor's external data in bytes.

    The result is 0 if the file is missing, which loading rejects.
    """
    if tensor.data_location != TensorProto.EXTERNAL:
        return 0
    entries = {entry.key: entry.value for entry in tensor.external_data}
    length = entries.get("length", "")
    place = folder / entries.get("location", "")
    present = place.stat().st_size if place.is_file() else 0
    return min(int(length), present) if length.isdecimal() and len(length) < 20 else present


def _check_tensor(tensor: TensorProto) -> None:
    name = tensor.name
    kinds = {number: kind for kind, number in TensorProto.DataType.items()}
    kind = kinds.get(tensor.data_type, "UNDEFINED")
    if kind == "UNDEFINED" or (kind != "STRING" and kind not in _BITS):
        raise InputError(
            f"constant '{name}' has element type {tensor.data_type}, which is not known"
        )
    if any(dim < 0 for dim in tensor.dims) or len(tensor.dims) > MAXIMUM_RANK:
        raise InputError(f"constant '{name}' has shape {list(tensor.dims)[:MAXIMUM_RANK]}")
    if tensor.data_location == TensorProto.EXTERNAL or tensor.HasField("segment"):
        raise InputError(f"the data of constant '{name}' is not in the model")
    count = prod(tensor.dims)
    if kind == "STRING":
        found = len(tensor.string_data)
        wanted = count
    elif tensor.HasField("raw_data"):
        found = len(tensor.raw_data)
        wanted = -(-count * _BITS[kind] // 8)
    else:
        found = sum(len(getattr(tensor, each)) for each in _LISTS)
        wanted = -int(-count * _PACKED.get(kind, 1) // 1)
    if found != wanted:
        raise InputError(
            f"constant '{name}' of shape {list(tensor.dims)} has {found} of {wanted} "
            "bytes or entries"
        )
    if kind != "STRING":
        try:
            numpy_helper.to_array(tensor)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"constant '{name}' holds no values of its type {kind}") from error


def _check_opsets(model: ModelProto) -> None:
    imported = Counter(
        "" if entry.domain in DEFAULT_DOMAIN else entry.domain for entry in model.opset_import
    )
    for domain, count in imported.items():
        if count > 1:
            raise InputError(f"operator set '{domain or 'ai.onnx'}' is imported {count} times")
    for domain in sorted({node.domain for node in all_nodes(model.graph)}):
        if ("" if domain in DEFAULT_DOMAIN else domain) not in imported:
            raise InputError(f"operator set '{domain or 'ai.onnx'}' is used and not imported")


class _Scopes:
    """Checker that every tensor in an ONNX graph is produced once, and before it is read."""

    def check(self, graph: GraphProto, outer: frozenset[str]) -> None:
        """Check the names in a graph; ``outer`` has the tensor names of enclosing graphs."""
        check_values((*graph.input, *graph.output, *graph.value_info))
        check_unique((value.name for value in graph.input), "input")
        check_unique((value.name for value in graph.output), "output")
        sparse = [item.values.name for item in graph.sparse_initializer]
        constants = [*(tensor.name for tensor in graph.initializer), *sparse]
        check_unique(constants, "constant")
        known = {*outer, *constants, *(value.name for value in graph.input)}
        own = known - outer
        for node in graph.node:
            self._node(node, known)
            for name in node.output:
                if name and name in own:
                    raise InputError(
                        f"value '{name}' is made twice, the second time by node "
                        f"'{node_label(node)}'"
                    )
                own.add(name)
            known.update(node.output)
        for value in graph.output:
            if value.name not in known:
                raise InputError(f"output '{value.name}' is made by no node")

    def _node(self, node: NodeProto, known: set[str]) -> None:
        for name in node.input:
            if name and name not in known:
                raise InputError(
                    f"node '{node_label(node)}' reads '{name}', which nothing before it makes"
                )
        check_unique(
            (attribute.name for attribute in node.attribute),
            f"attribute of node '{node_label(node)}',",
        )
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise InputError(
                    f"attribute {attribute.name} of node '{node_label(node)}' is that of a "
                    "function, not here"
                )
        for body in bodies(node):
            self.check(body, frozenset(known))


def _check_function(function: FunctionProto) -> None:
    known = set(function.input)
    for node in function.node:
        for name in node.input:
            if name and name not in known:
                raise InputError(
                    f"in function '{function.name}', '{name}' is read before it is made"
                )
        known.update(node.output)


def _check_calls(model: ModelProto) -> None:
    """Raise InputError if inlining function calls never ends or gives too many nodes."""
    inside = {(one.domain, one.name): list(all_nodes(one)) for one in model.functions}
    calls = {key: [call for node in nodes if (call := (node.domain, node.op_type)) in inside]
             for key, nodes in inside.items()}  # fmt: skip
    counts: dict[tuple[str, str], int] = {}
    try:
        order = list(graphlib.TopologicalSorter(calls).static_order())
    except graphlib.CycleError as error:
        raise InputError(f"function '{error.args[1][0][1]}' calls itself") from error
    for key in order:
        counts[key] = len(inside[key]) + sum(counts[call] for call in calls[key])
    total = sum(counts.get((node.domain, node.op_type), 0) for node in all_nodes(model.graph))
    if total > MAXIMUM_CALLED:
        raise InputError(
            f"functions that call one another make {total:,} nodes, and "
            f"{MAXIMUM_CALLED:,} are allowed"
        )


def check_values(values: Iterable[ValueInfoProto]) -> None:
    """Check the element types and dimensions of an ONNX model's declared values."""
    for value in values:
        if not value.type.HasField("tensor_type"):
            continue
        tensor = value.type.tensor_type
        if tensor.elem_type not in TensorProto.DataType.values():
            raise InputError(
                f"value '{value.name}' has element type {tensor.elem_type}, which is not known"
            )
        if len(tensor.shape.dim) > MAXIMUM_RANK:
            raise InputError(f"value '{value.name}' has {len(tensor.shape.dim)} dimensions")
        sizes = [dim.dim_value for dim in tensor.shape.dim if dim.HasField("dim_value")]
        if (
            min(sizes, default=0) < ANY_SIZE
            or prod(max(size, 1) for size in sizes) >= MAXIMUM_ELEMENTS
        ):
            raise InputError(f"value '{value.name}' has the shape {sizes}")


def check_unique(names: Iterable[str], what: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{what} '{name}' is there {count} times")
        if not name:
            raise InputError(f"{what} without a name")


def _checkable(model: ModelProto) -> ModelProto:
    """Return the model without details that onnx's checker rejects but ONNX Runtime accepts.

    Inputs and outputs without a shape are common, and shapes are inferred later. Some operators of
    ONNX Runtime are in ONNX's own domain, where the checker does not know them.
    """
    values = (*model.graph.input, *model.graph.output)
    shaped = all(
        value.type.tensor_type.HasField("shape")
        for value in values
        if value.type.HasField("tensor_type")
    )
    foreign = [
        index for index, node in enumerate(model.graph.node) if _only_in_onnxruntime(node, model)
    ]
    if shaped and not foreign:
        return model
    result = ModelProto()
    result.CopyFrom(model)
    for value in (*result.graph.input, *result.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    for index in foreign:
        result.graph.node[index].domain = RUNTIME_DOMAIN
    if foreign and all(entry.domain != RUNTIME_DOMAIN for entry in result.opset_import):
        result.opset_import.add(domain=RUNTIME_DOMAIN, version=1)
    return result


def _only_in_onnxruntime(node: NodeProto, model: ModelProto) -> bool:
    """Return True if a node in ONNX's domain has an operator that only ONNX Runtime knows.

    The model's opset lacks it.
    """
    if node.domain not in DEFAULT_DOMAIN or node.op_type not in _RUNTIME_OPERATORS:
        return False
    opset = max(
        (entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAIN), default=0
    )
    return opset < _RUNTIME_OPERATORS[node.op_type]
