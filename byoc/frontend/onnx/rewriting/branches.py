"""Branches that are never taken go: an If whose condition is constant becomes the nodes of its branch.

Exporters write control flow about ranks and sizes that fixed shapes decide: ``If(Shape(x)[0] == 1, Squeeze(x), x)``.
What runs on the accelerator is then seen, and shapes behind it are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from byoc.frontend.onnx.rewriting.constants import fold_constants
from byoc.frontend.onnx.rewriting.edit import (
    all_nodes,
    array_of,
    bodies,
    constants,
    copy_model,
    set_nodes,
    standard,
    unused,
)
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from isa.errors import InputError


def take_branches(model: ModelProto) -> ModelProto:
    """A copy in which every If with a constant condition is replaced by the branch that is taken.

    So are those whose conditions depend on shapes that only then are known. Wants shapes inferred; a model without If
    stays as it is.
    """
    current = model
    while any(node.op_type == "If" for node in current.graph.node):
        folded = fold_constants(current)
        taken = _taken(folded)
        if taken is None:
            break
        current = infer_shapes(taken)
    return current


def fix_inputs(
    model: ModelProto, fixed: Mapping[str, float], shapes: Mapping[str, Sequence[int]] | None = None
) -> ModelProto:
    """A copy in which the inputs that ``fixed`` names are constants, every element of them that number.

    A sampling rate that chooses between two networks, a flag, a length. ``shapes`` are those of inputs whose shape is
    open. Raises InputError for a name that is no input, a shape that is open, a number that the type does not hold.
    """
    if not fixed:
        return model
    result = copy_model(model)
    inputs = {value.name: value for value in result.graph.input}
    for name, number in fixed.items():
        if name not in inputs:
            raise InputError(f"--fix names {name!r}, which is no input: the inputs are {', '.join(inputs)}")
        kind = inputs[name].type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in kind.shape.dim]
        shape = tuple((shapes or {}).get(name, dims))
        if 0 in shape or (not kind.HasField("shape") and name not in (shapes or {})):
            raise InputError(f"--fix {name}={number:g}: the shape of the input is open; fix it as well, with --shape")
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        with np.errstate(all="ignore"):
            array = np.full(shape, number).astype(dtype)
        if not (array == number).all():
            raise InputError(f"--fix {name}={number:g}: the input is {np.dtype(dtype).name}, which does not hold that")
        result.graph.initializer.append(numpy_helper.from_array(array, name))
    kept = [value for value in result.graph.input if value.name not in fixed]
    del result.graph.input[:]
    result.graph.input.extend(kept)
    return result


def _taken(model: ModelProto) -> ModelProto | None:
    """A copy with the decided branches of the outermost graph in place of their nodes; None where there are none."""
    known = constants(model.graph)
    decided = {
        index: bool(array_of(known[node.input[0]]).reshape(-1)[0])
        for index, node in enumerate(model.graph.node)
        if node.op_type == "If" and standard(node) and node.input[0] in known
    }
    if not decided:
        return None
    result = copy_model(model)
    graph = result.graph
    defined = Counter(_definitions(graph))
    taken, labels = set(defined), {node.name for node in all_nodes(graph)}
    nodes: list[NodeProto] = []
    for index, node in enumerate(graph.node):
        if index not in decided:
            nodes.append(node)
            continue
        wanted = "then_branch" if decided[index] else "else_branch"
        (branch,) = (item.g for item in node.attribute if item.name == wanted)
        names = {name: unused(name, taken) for name in _own(branch) if defined[name] > 1}
        inlined = list(_inlined(branch, names, tuple(node.output)))
        for inner in inlined:
            inner.name = unused(f"{node.name}/{inner.name}", labels) if inner.name else ""
        nodes += inlined
        graph.initializer.extend(_renamed_constants(branch, names))
    set_nodes(graph, nodes)
    return result


def _inlined(branch: GraphProto, names: Mapping[str, str], outputs: tuple[str, ...]) -> Iterator[NodeProto]:
    """The branch's nodes with their new names, and an Identity for each result of the If."""
    for node in branch.node:
        _rename(node, names)
        yield node
    for value, output in zip(branch.output, outputs, strict=True):
        if output:
            yield helper.make_node("Identity", [names.get(value.name, value.name)], [output])


def _renamed_constants(branch: GraphProto, names: Mapping[str, str]) -> Iterator[object]:
    for tensor in branch.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
        yield tensor


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Give tensors that a node reads and makes, its bodies included, their new names, in place."""
    for field in (node.input, node.output):
        for index, name in enumerate(field):
            field[index] = names.get(name, name)
    for body in bodies(node):
        for inner in body.node:
            _rename(inner, names)
        for value in (*body.input, *body.output, *body.value_info, *body.initializer):
            value.name = names.get(value.name, value.name)


def _own(graph: GraphProto) -> Iterator[str]:
    """Names of the tensors that a graph makes itself."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _definitions(graph: GraphProto) -> Iterator[str]:
    """Every name once for each time that the graph or a body within makes or takes it."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from (name for name in node.output if name)
        for body in bodies(node):
            yield from _definitions(body)
