"""Evaluate what is known before a model runs: fold constants, fix inputs, resolve If nodes.

An If with a constant condition becomes the nodes of its branch. Exporters write control flow about
ranks and sizes that static shapes decide, such as ``If(Shape(x)[0] == 1, Squeeze(x), x)``. Without
it, later passes see the operators and their shapes.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    helper,
    numpy_helper,
)

from byoc.frontend.onnx.rewriting.form import TARGET_OPSET
from byoc.frontend.onnx.rewriting.law import look_at
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.operators.registry import load_installed_families
from byoc.runtimes.protobuf import (
    ConstantArrays,
    all_graphs,
    all_nodes,
    array_of,
    attributes,
    bodies,
    byte_size,
    constants,
    copy_model,
    keep_nodes,
    make_tensor,
    make_unused_name,
    set_items,
    shapes_of,
    standard,
    types_of,
    use_counts,
)
from isa import memory
from isa.errors import InputError
from isa.numerics import steps

MAXIMUM_BYTES = 1 << 30
_SMALL = 1024
"""Maximum elements of a constant that is passed to shape inference."""

# Quantised constants stay behind their DequantizeLinear; random numbers stay random.
_NEVER = frozenset(
    {"DequantizeLinear", "DynamicQuantizeLinear", "RandomNormal", "RandomUniform"}
    | {"RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)


PARAMETERS = ("Constant", "ConstantOfShape", "Shape")
"""Operators without data operands, which a branch may have too."""


def drop_initializer_inputs(model: ModelProto) -> ModelProto:
    """Remove initialisers from the graph inputs, where files of IR version 3 list every weight."""
    result = copy_model(model)
    names = {tensor.name for tensor in result.graph.initializer}
    inputs = result.graph.input
    set_items(inputs, (value for value in inputs if value.name not in names))
    # earlier IR versions require every initialiser to be an input
    result.ir_version = max(result.ir_version, 4)
    return result


def write_out_sparse(model: ModelProto) -> ModelProto:
    """Convert sparse constants, also in bodies, to dense ones with the same names.

    Returns the model itself if there are none.
    """
    if not any(graph.sparse_initializer for graph in all_graphs(model.graph)):
        return model
    result = copy_model(model)
    for graph in all_graphs(result.graph):
        graph.initializer.extend(_dense(sparse) for sparse in graph.sparse_initializer)
        del graph.sparse_initializer[:]
    return result


def _dense(sparse: SparseTensorProto) -> TensorProto:
    """Convert a sparse ONNX tensor, with flat or coordinate indices, to a dense one."""
    values = array_of(sparse.values)
    places = array_of(sparse.indices)
    memory.require(
        prod(sparse.dims) * values.itemsize, f"sparse constant '{sparse.values.name}', written out"
    )
    array = np.zeros(prod(sparse.dims), values.dtype)
    if (places < 0).any() or (places >= (array.size if places.ndim == 1 else sparse.dims)).any():
        raise InputError(
            f"sparse constant '{sparse.values.name}' has a place outside of its shape "
            f"{[*sparse.dims]}"
        )
    array[
        places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), tuple(sparse.dims))
    ] = values
    return numpy_helper.from_array(array.reshape(sparse.dims), sparse.values.name)


def fold_constants(model: ModelProto) -> ModelProto:
    """Turn nodes with only constant operands into initialisers.

    ``Shape`` and ``Size`` of static shapes are folded too. Nodes stay if they dequantise, draw
    random numbers, contain bodies, come from other domains, or would give a constant above 1 GiB.
    Needs inferred shapes.
    """
    result = copy_model(model)
    graph = result.graph
    shapes = shapes_of(graph)
    known = ConstantArrays(graph, lambda tensor: byte_size(tensor) <= MAXIMUM_BYTES)
    outputs = {output.name for output in graph.output}
    folded: set[str] = set()
    for node in graph.node:
        values = _fold(node, known, shapes) if outputs.isdisjoint(node.output) else None
        if values is not None:
            for name, value in zip(node.output, values, strict=True):
                known[name] = value
            folded.update(node.output)
    if not folded:
        return model
    _replace(graph, folded, known)
    return result


def _replace(graph: GraphProto, folded: set[str], known: ConstantArrays) -> None:
    keep_nodes(graph, lambda node: folded.isdisjoint(node.output))
    used = {name for node in graph.node for name in node.input}
    if any(True for node in graph.node for _ in bodies(node)):
        used = folded  # a body may read any tensor of the outer graph
    graph.initializer.extend(make_tensor(known[name], name) for name in sorted(folded & used))


def _fold(
    node: NodeProto, known: ConstantArrays, shapes: dict[str, tuple[int, ...]]
) -> list[NDArray[Any]] | None:
    """Compute the results of a node with constant operands; None if it must not be folded."""
    if (
        node.op_type in _NEVER
        or node.domain not in ("", "ai.onnx")
        or any(True for _ in bodies(node))
    ):
        return None
    if node.op_type == "Shape" and node.input[0] in shapes:
        options = attributes(node)
        dims = shapes[node.input[0]][options.get("start", 0) : options.get("end")]
        return [np.array(dims, np.int64)]
    if node.op_type == "Size" and node.input[0] in shapes:
        return [np.array(prod(shapes[node.input[0]]), np.int64)]
    if any(name and name not in known for name in node.input):
        return None
    if node.op_type == "ConstantOfShape":
        return _constant_of_shape(node, known)
    if (
        node.op_type == "QuantizeLinear"
        and (quantised := _quantise_constant(node, known)) is not None
    ):
        return [quantised]
    return None if _is_too_large(node, known) else evaluate(node, known)


def _quantise_constant(node: NodeProto, known: ConstantArrays) -> NDArray[Any] | None:
    """Quantise a constant as a QuantizeLinear node in ONNX Runtime does.

    Returns None for blocks and other types.
    """
    data = known[node.input[0]]
    scale = known[node.input[1]]
    options = attributes(node)
    zero_point = (
        known[name] if (name := "".join(node.input[2:])) else np.zeros(scale.shape, np.uint8)
    )
    unknown = options.get("block_size") or (not name and options.get("output_dtype"))
    if zero_point.dtype not in (np.int8, np.uint8) or unknown or data.dtype != np.float32:
        return None
    if scale.ndim == 1 and scale.size > 1:
        around = [1] * data.ndim
        around[options.get("axis", 1)] = scale.size
        scale = scale.reshape(around)
        zero_point = zero_point.reshape(around)
    return steps(data, scale, zero_point, zero_point.dtype)


def _is_too_large(node: NodeProto, known: ConstantArrays) -> bool:
    """Return True if the results of a node are too large to be stored as constants."""
    operands = {name: known[name] for name in node.input if name}
    types = {
        name: helper.make_tensor_type_proto(
            helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in operands.items()
    }
    small = {
        name: numpy_helper.from_array(array)
        for name, array in operands.items()
        if array.size <= _SMALL
    }
    try:
        schema = onnx.defs.get_schema(node.op_type, TARGET_OPSET)
        results = onnx.shape_inference.infer_node_outputs(schema, node, types, small)
    except Exception:  # C++ exceptions without a common base; the evaluator may reject the node
        return False
    for result in results.values():
        dims = result.tensor_type.shape.dim
        if 8 * prod(dim.dim_value for dim in dims if dim.HasField("dim_value")) > MAXIMUM_BYTES:
            return True
    return False


def _constant_of_shape(node: NodeProto, known: ConstantArrays) -> list[NDArray[Any]] | None:
    dims = [int(dim) for dim in known[node.input[0]]]
    tensor = attributes(node).get("value")
    fill = np.zeros(1, np.float32) if tensor is None else array_of(tensor)
    if fill.itemsize * int(np.prod(dims, dtype=np.float64)) > MAXIMUM_BYTES:
        return None
    return [np.full(dims, fill.reshape(-1)[0], fill.dtype)]


def evaluate(node: NodeProto, known: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]] | None:
    """Run one node on onnx's reference evaluator.

    Returns None if it cannot or the result is not a plain array.
    """
    from onnx.reference import ReferenceEvaluator

    feeds = {name: known[name] for name in node.input if name}
    alone = NodeProto()
    alone.CopyFrom(node)  # an evaluator is in a reference cycle that would keep the model alive
    try:
        results = ReferenceEvaluator(alone).run(None, feeds)
    except Exception:  # a node that the evaluator cannot run simply stays
        return None
    plain = all(isinstance(value, (np.ndarray, np.generic)) for value in results)
    if not plain or sum(np.asarray(value).nbytes for value in results) > MAXIMUM_BYTES:
        return None
    return [np.asarray(value) for value in results]


@look_at("If")
def take_branches(model: ModelProto) -> ModelProto:
    """Replace every If node with a constant condition by the branch that is taken.

    Needs inferred shapes.
    Conditions that depend on shapes which become known this way are resolved too. A model without
    If is returned unchanged.
    """
    current = model
    while any(node.op_type == "If" for node in current.graph.node):
        folded = fold_constants(current)
        taken = _take_branches(folded)
        if taken is None:
            break
        current = infer_shapes(taken)
    return current


def fix_inputs(
    model: ModelProto, fixed: Mapping[str, float], shapes: Mapping[str, Sequence[int]] | None = None
) -> ModelProto:
    """Turn model inputs into constants that have one given number in every element.

    Examples are a sampling rate that selects one of two networks, a flag, or a length. ``shapes``
    gives the shapes of inputs with dynamic ones. Raises InputError for a name that is no input, an
    unknown shape, or a number that the type cannot represent.
    """
    if not fixed:
        return model
    result = copy_model(model)
    inputs = {value.name: value for value in result.graph.input}
    for name, number in fixed.items():
        if name not in inputs:
            raise InputError(
                f"--fix names {name!r}, which is no input: the inputs are {', '.join(inputs)}"
            )
        kind = inputs[name].type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in kind.shape.dim]
        shape = tuple((shapes or {}).get(name, dims))
        if 0 in shape or (not kind.HasField("shape") and name not in (shapes or {})):
            raise InputError(
                f"--fix {name}={number:g}: the shape of the input is open; fix it as "
                "well, with --shape"
            )
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        # The array is float64 first.
        memory.require(
            prod(shape) * (8 + np.dtype(dtype).itemsize), f"--fix {name}={number:g}, written out"
        )
        with np.errstate(all="ignore"):
            array = np.full(shape, number).astype(dtype)
            held = (array == number).all() and np.isfinite(array).all()
        if not held:
            raise InputError(
                f"--fix {name}={number:g}: the input is {np.dtype(dtype).name}, which "
                "does not hold that"
            )
        result.graph.initializer.append(numpy_helper.from_array(array, name))
    set_items(
        result.graph.input, (value for value in result.graph.input if value.name not in fixed)
    )
    return result


def _take_branches(model: ModelProto) -> ModelProto | None:
    """Replace If nodes of the main graph that have a constant condition by their branch.

    Returns None if there are none.
    """
    known = constants(model.graph)
    decided = {
        index: (_BRANCHES[not array_of(known[node.input[0]]).reshape(-1)[0]],)
        for index, node in enumerate(model.graph.node)
        if node.op_type == "If" and standard(node) and node.input[0] in known
    }
    return _inline_branches(model, decided) if decided else None


_BRANCHES = ("then_branch", "else_branch")


@look_at("If")
def select_branches(model: ModelProto) -> ModelProto:
    """Compute both branches of an If with a run-time condition, and select one by Where.

    Exact, because these branches have no side effects and results of equal shape. An If stays if a
    branch has an operator that no family knows, or one whose result can be infinite or not a
    number: it could fail for inputs of the other branch, which no range holds.
    """
    families = load_installed_families()
    able = {*families.forms, *families.closes.operators, *PARAMETERS}
    current = model
    while True:
        decided = {
            index: _BRANCHES
            for index, node in enumerate(current.graph.node)
            if node.op_type == "If" and standard(node) and _can_select(current, node, able)
        }
        if not decided:
            return current
        current = infer_shapes(_inline_branches(current, decided))


def _can_select(model: ModelProto, node: NodeProto, able: Collection[str]) -> bool:
    """Return True if both branches of an If have known operators and results of equal shapes."""
    results = list[list[tuple[int, tuple[int, ...]]]]()
    kinds = types_of(model.graph)
    shapes = shapes_of(model.graph)
    for branch in bodies(node):
        if not _can_always_run(branch, able, constants(model.graph).keys()):
            return False
        defined = set(_definitions(branch))
        if any(name not in shapes for name in use_counts(branch).keys() - defined):
            return False
        types = {**kinds, **types_of(branch)}
        known = {**shapes, **shapes_of(branch)}
        names = [value.name for value in branch.output]
        results.append([(types.get(name, 0), known.get(name, (-1,))) for name in names])
    first, second = results
    return first == second and all(-1 not in shape and shape for _, shape in first)


def _can_always_run(branch: GraphProto, able: Collection[str], fixed: Set[str]) -> bool:
    """Return True if a branch, with the branches in it, has known operators and finite results."""
    fixed = fixed | constants(branch).keys()
    return all(
        standard(node)
        and (
            all(_can_always_run(body, able, fixed) for body in bodies(node))
            if node.op_type == "If"
            else node.op_type in able and _is_total(node, fixed)
        )
        for node in branch.node
    )


def _is_total(node: NodeProto, fixed: Collection[str]) -> bool:
    """Return True if a node has finite results for all inputs but the constants ``fixed``."""
    if node.op_type in ("Div", "Mod"):
        return node.input[1] in fixed
    return node.op_type not in ("Log", "Pow", "Reciprocal", "Sqrt")


def _inline_branches(model: ModelProto, decided: Mapping[int, Sequence[str]]) -> ModelProto:
    """Replace If nodes by the nodes of one branch, or of both with a Where for each result.

    ``decided`` has the names of the branches by the number of the node.
    """
    result = copy_model(model)
    graph = result.graph
    defined = Counter(_definitions(graph))
    taken = set(defined)
    labels = {node.name for node in all_nodes(graph)}
    nodes: list[NodeProto] = []
    for index, node in enumerate(graph.node):
        if index not in decided:
            nodes.append(node)
            continue
        both = len(decided[index]) > 1
        ends = list[tuple[str, ...]]()
        for wanted in decided[index]:
            (branch,) = (item.g for item in node.attribute if item.name == wanted)
            names = {
                name: make_unused_name(name, taken) for name in _own(branch) if defined[name] > 1
            }
            ends.append(
                tuple(make_unused_name(f"{name}_{wanted}", taken) for name in node.output)
                if both
                else tuple(node.output)
            )
            inlined = list(_inline_branch(branch, names, ends[-1]))
            for inner in inlined:
                inner.name = (
                    make_unused_name(f"{node.name}/{inner.name}", labels) if inner.name else ""
                )
            nodes += inlined
            graph.initializer.extend(_rename_constants(branch, names))
        for output, *ways in zip(node.output, *ends, strict=True) if both else ():
            nodes.append(helper.make_node("Where", [node.input[0], *ways], [output]))
    set_items(graph.node, nodes)
    return result


def _inline_branch(
    branch: GraphProto, names: Mapping[str, str], outputs: tuple[str, ...]
) -> Iterator[NodeProto]:
    """Yield the renamed nodes of an If's branch, and an Identity for each result of the If."""
    for node in branch.node:
        _rename(node, names)
        yield node
    for value, output in zip(branch.output, outputs, strict=True):
        if output:
            yield helper.make_node("Identity", [names.get(value.name, value.name)], [output])


def _rename_constants(branch: GraphProto, names: Mapping[str, str]) -> Iterator[object]:
    for tensor in branch.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
        yield tensor


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename, in place, the tensors that a node and its bodies read and produce."""
    for field in (node.input, node.output):
        for index, name in enumerate(field):
            field[index] = names.get(name, name)
    for body in bodies(node):
        for inner in body.node:
            _rename(inner, names)
        for value in (*body.input, *body.output, *body.value_info, *body.initializer):
            value.name = names.get(value.name, value.name)


def _own(graph: GraphProto) -> Iterator[str]:
    """Yield the names of constants and node results that a graph defines outside its bodies."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _definitions(graph: GraphProto) -> Iterator[str]:
    """Yield every tensor name once for each time that the graph or a nested body defines it."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from (name for name in node.output if name)
        for body in bodies(node):
            yield from _definitions(body)
