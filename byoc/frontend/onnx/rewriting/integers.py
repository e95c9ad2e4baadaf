"""Brings what stands between quantised values to integers wherever ONNX Runtime does, and in the same way.

A DequantizeLinear moves down through operators that only move elements, a QuantizeLinear up: those then move integers,
and the operator behind them becomes one on integers. Float biases of quantised products become int32.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    attributes,
    copy_model,
    keep_nodes,
    names_of,
    remove_dead_code,
    set_nodes,
    sort_nodes,
    standard,
    types_of,
    unused,
    use_counts,
    use_counts_of,
)
from byoc.frontend.onnx.rewriting.law import View, Writer, looking_at, written
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from isa.numerics import steps

_MOVERS = frozenset({"DepthToSpace", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_BYTES = (TensorProto.INT8, TensorProto.UINT8)
_COPIERS = frozenset({"Expand", "Pad", "SpaceToDepth", "Tile"})
"""What moves and repeats elements, which ONNX Runtime does in float: integers moved down are the same numbers."""
_BIASED = {"Conv": (2, 0), "Gemm": (2, 1)}
"""Operators with a bias: which input it is, and the axis of the channels of the weights."""


_FUNCTIONS = {"QLinearSigmoid": ("Sigmoid", (0,)), "QLinearWhere": ("Where", (1, 4))}
"""ONNX Runtime's functions of integers: the operators of which it makes them, and where what is quantised begins, each
with its scale and zero point; those of the result come last."""


@written(*_FUNCTIONS, foreign=True)
def write_out_functions(graph: View, node: NodeProto) -> list[NodeProto] | None:
    """Functions of integers between DequantizeLinear and QuantizeLinear nodes.

    Of which ONNX Runtime makes the same functions of integers again.
    """
    op_type, starts = _FUNCTIONS[node.op_type]
    end = starts[-1] + 3
    # Without a zero point QuantizeLinear makes uint8.
    if standard(node) or (not any(node.input[end + 1 :]) and graph.types.get(node.input[starts[0]]) != _BYTES[1]):
        return None
    w, inputs = Writer(graph, node), list(node.input[: starts[0]])
    for start in starts:
        inputs.append(w.add(DEQUANTIZE, *(name for name in node.input[start : start + 3] if name)))
    made = w.add(op_type, *inputs, label=node.name)
    w.add(QUANTIZE, made, *(name for name in node.input[end:] if name))
    return w.finished()


@looking_at(QUANTIZE, DEQUANTIZE)
def move_integers(model: ModelProto) -> ModelProto:
    """A copy in which data movement between a DequantizeLinear and another operator, or an output, moves the integers.

    So it does between an operator, or an input, and a QuantizeLinear. What stands between both is left as it is, but
    for rows that are chosen at run time. Exact: movement hands on what it gets. Integers of 8 bits and scales of
    a whole tensor only, or of weights that are transposed.
    """
    result = copy_model(model)
    graph = result.graph
    _sink(graph)
    _raise(graph)
    remove_dead_code(graph)
    return result


@looking_at("Cast")
def move_casts(model: ModelProto) -> ModelProto:
    """A copy in which data movement behind a Cast of an input of 8 bits to float32 moves the bytes. Exact.

    Networks that take pictures as bytes, row by row, begin so; the Cast then stands before what it is a table with.
    """
    if not any(node.op_type == "Cast" for node in model.graph.node):
        return model
    result = copy_model(model)
    graph = result.graph
    uses, taken = use_counts(graph), names_of(graph)
    bytes_ = {value.name for value in graph.input if value.type.tensor_type.elem_type in _BYTES}
    producers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        cast = producers.get(node.input[0]) if _moves(node) else None
        if cast is None or cast.op_type != "Cast" or cast.input[0] not in bytes_ or uses[cast.output[0]] != 1:
            continue
        if attributes(cast)["to"] == TensorProto.FLOAT:
            moved = unused(f"{node.output[0]}_bytes", taken)
            cast.output[0], node.input[0], node.output[0] = node.output[0], cast.input[0], moved
            cast.input[0] = moved
            bytes_.add(moved)
            producers[cast.output[0]], producers[moved] = cast, node
    sort_nodes(graph)
    return result


def _sink(graph: GraphProto) -> None:
    """Move DequantizeLinear nodes down, in place, in order of execution."""
    constants = ConstantArrays(graph, lambda tensor: True)
    producers = {name: node for node in graph.node for name in node.output}
    readers, taken, types = _readers(graph), names_of(graph), _integer_types(graph)
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        source = producers.get(node.input[0]) if node.input else None
        chooses = _chooses(node, constants)
        if not (_moves(node) or chooses or _copies(node, constants)) or source is None or source.op_type != DEQUANTIZE:
            continue
        if types.get(source.input[0]) not in _BYTES:
            continue  # ONNX Runtime does not move all other integers
        behind = readers.get(node.output[0])
        between = behind and all(reader.op_type == QUANTIZE for reader in behind)
        if between and not chooses:
            continue
        axis = _moved_axis(node, source, constants)
        if axis is None:
            continue
        moved, name = NodeProto(), node.output[0]
        moved.CopyFrom(source)
        node.input[0], node.output[0] = source.input[0], unused(f"{name}_integers", taken)
        if node.op_type == "Pad":
            del node.input[2:]
            node.input.extend(source.input[2:3])
        moved.name = ""
        moved.input[0], moved.output[0] = node.output[0], name
        kept = [item for item in moved.attribute if item.name != "axis"]
        del moved.attribute[:]
        moved.attribute.extend([*kept, *([helper.make_attribute("axis", axis)] if axis >= 0 else [])])
        producers[name] = moved
        types[node.output[0]] = types[source.input[0]]
        nodes.append(moved)
    set_nodes(graph, nodes)


def _integer_types(graph: GraphProto) -> dict[str, int]:
    """Element types by name, with those of what is quantised or dequantised: their zero points', by default uint8."""
    types = types_of(graph)
    for node in graph.node:
        if node.op_type in (QUANTIZE, DEQUANTIZE) and any(node.input[2:]):
            types[node.output[0] if node.op_type == QUANTIZE else node.input[0]] = types.get(node.input[2], 0)
        elif node.op_type == QUANTIZE:
            types[node.output[0]] = attributes(node).get("output_dtype", 0) or TensorProto.UINT8
    return types


def _moves(node: NodeProto) -> bool:
    return node.op_type in _MOVERS and standard(node) and len(node.output) == 1


def _copies(node: NodeProto, constants: ConstantArrays) -> bool:
    """Whether a node copies elements; where it pads with a number, with 0, along all dimensions."""
    if node.op_type not in _COPIERS or not standard(node):
        return False
    value, axes = (*node.input[2:], "", "")[:2]
    return node.op_type != "Pad" or (not axes and (not value or (value in constants and not constants[value].any())))


def _chooses(node: NodeProto, constants: ConstantArrays) -> bool:
    """Whether a node takes rows of its operand by integers that are known at run time only."""
    return node.op_type == "Gather" and standard(node) and node.input[1] not in constants


def _moved_axis(node: NodeProto, source: NodeProto, constants: ConstantArrays) -> int | None:
    """The axis of the scales behind ``node``: -1 where there is one scale, None where it cannot move."""
    scale = constants.get(source.input[1])
    if scale is None or attributes(source).get("block_size", 0):
        return None
    if scale.size == 1:
        return -1
    weights = constants.get(source.input[0])
    if node.op_type != "Transpose" or weights is None:
        return None
    order = list(attributes(node).get("perm", range(weights.ndim)[::-1]))
    return order.index(int(attributes(source).get("axis", 1)) % weights.ndim)


def _raise(graph: GraphProto) -> None:
    """Move QuantizeLinear nodes up, in place, where nobody else reads what they quantise."""
    scalars = {tensor.name for tensor in graph.initializer if not tensor.dims or list(tensor.dims) == [1]}
    uses, taken = use_counts(graph), names_of(graph)
    producers = {name: node for node in graph.node for name in node.output}
    inputs, types = {value.name for value in graph.input}, _integer_types(graph)
    for node in graph.node:
        while node.op_type == QUANTIZE and node.input[1] in scalars and types[node.output[0]] in _BYTES:
            mover = producers.get(node.input[0])
            if mover is None or not _moves(mover):
                break
            source = producers.get(mover.input[0])
            if source.op_type == DEQUANTIZE if source is not None else mover.input[0] not in inputs:
                break
            if uses[node.input[0]] != 1 or uses[mover.input[0]] != 1:
                break
            whole = unused(f"{mover.input[0]}_integers", taken)
            mover.output[0], node.input[0], node.output[0] = node.output[0], mover.input[0], whole
            mover.input[0] = whole
            producers[mover.output[0]], producers[whole], types[whole] = mover, node, types[mover.output[0]]
    sort_nodes(graph)


@looking_at("Gather")
def quantise_tables(model: ModelProto) -> ModelProto:
    """A copy in which rows of constant tables, chosen at run time and only quantised, are rows of quantised tables.

    Also where they are moved before they are quantised. Exact. A model without such rows is returned as it is.
    """
    given = ConstantArrays(model.graph, lambda tensor: True)
    if not any(_chooses(node, given) and node.input[0] in given for node in model.graph.node):
        return model
    result = copy_model(model)
    graph = result.graph
    constants, uses, taken = ConstantArrays(graph, lambda tensor: True), use_counts(graph), names_of(graph)
    producers = {name: node for node in graph.node for name in node.output}
    gone: set[str] = set()
    for node in graph.node:
        if node.op_type != QUANTIZE:
            continue
        moved = _moved_rows(node.input[0], producers, uses, constants)
        scale, zero_point = (constants.get(name) for name in (*node.input[1:], "", "")[:2])
        if not moved or scale is None or zero_point is None or scale.size != 1 or scale.dtype != np.float32:
            continue
        if zero_point.dtype.kind not in "iu":
            continue
        table = moved[-1].input[0]
        name = unused(f"{table}_integers", taken)
        one = scale.reshape(()), zero_point.reshape(())
        graph.initializer.append(numpy_helper.from_array(steps(constants[table], *one, zero_point.dtype), name))
        moved[-1].input[0] = name
        for mover, before in pairwise(moved):
            before.output[0] = mover.input[0] = unused(f"{before.output[0]}_integers", taken)
        moved[0].output[0] = node.output[0]
        gone.add(node.name)
    if not gone:
        return model
    keep_nodes(graph, lambda node: node.name not in gone)
    remove_dead_code(graph)
    made = {name for node in graph.node for name in node.output}
    known = [value for value in graph.value_info if value.name in made]
    del graph.value_info[:]
    graph.value_info.extend(known)
    return copy_model(result)  # without the memory of the tables that are gone


def _moved_rows(
    name: str, producers: Mapping[str, NodeProto], uses: Mapping[str, int], constants: ConstantArrays
) -> list[NodeProto]:
    """The nodes that make ``name``, last one first, if they are a choice of a constant table's rows, and movement of
    what nobody else reads; else none."""
    found: list[NodeProto] = []
    while uses[name] == 1 and (node := producers.get(name)) is not None:
        found.append(node)
        if _chooses(node, constants):
            table = constants.get(node.input[0])
            return found if table is not None and table.dtype == np.float32 and np.isfinite(table).all() else []
        if not _moves(node):
            break
        name = node.input[0]
    return []


def integer_biases(model: ModelProto) -> ModelProto:
    """A copy in which float biases, one number a channel, of products of dequantised operands are int32 behind a
    DequantizeLinear: ``rint(bias / float32(xs * ws))``, as ONNX Runtime makes them (0 of 9,600 differ).

    It does where one QuantizeLinear alone reads the product, perhaps behind one Relu or Clip; outputs do not count.
    """
    result = copy_model(model)
    graph = result.graph
    constants = ConstantArrays(graph, lambda tensor: len(tensor.dims) <= 1)
    dequantised, taken = {node.output[0]: node for node in graph.node if node.op_type == DEQUANTIZE}, names_of(graph)
    readers = _readers(graph)
    nodes: list[NodeProto] = []
    for node in graph.node:
        position, axis = _BIASED.get(node.op_type, (0, 0))
        operands = [dequantised.get(name) for name in node.input[:2]]
        biased = position and standard(node) and len(node.input) > position and node.input[position] in constants
        if biased and all(operand is not None for operand in operands) and _quantised_alone(node, readers):
            data, weights = (operand for operand in operands if operand is not None)
            if node.op_type == "Gemm" and attributes(node).get("transB", 0):
                axis = 0
            scales = [constants.get(operand.input[1]) for operand in (data, weights)]
            bias = constants[node.input[position]]
            fits = bias.ndim == 1 and bias.dtype == np.float32 and all(scale is not None for scale in scales)
            along = int(attributes(weights).get("axis", 1)) == axis or scales[1] is None or scales[1].size == 1
            if fits and along and scales[0] is not None and scales[1] is not None and scales[0].size == 1:
                source = _integer_bias(graph, node, position, bias, scales[0].reshape(()) * scales[1], taken)
                nodes.append(source)
        nodes.append(node)
    set_nodes(graph, nodes)
    return result


def _readers(graph: GraphProto) -> dict[str, list[NodeProto]]:
    """Every node, bodies included, that reads a tensor, by the tensor's name."""
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in use_counts_of(node):
            readers.setdefault(name, []).append(node)
    return readers


def _quantised_alone(node: NodeProto, readers: Mapping[str, list[NodeProto]]) -> bool:
    """Whether all that reads a node's result is one QuantizeLinear, or a Relu or Clip of which that is so."""
    behind = readers.get(node.output[0], [])
    if len(behind) == 1 and behind[0].op_type in ("Relu", "Clip") and standard(behind[0]):
        behind = readers.get(behind[0].output[0], [])
    return len(behind) == 1 and behind[0].op_type == QUANTIZE


def _integer_bias(
    graph: GraphProto,
    node: NodeProto,
    position: int,
    bias: NDArray[np.float32],
    scale: NDArray[np.float32],
    taken: set[str],
) -> NodeProto:
    """The DequantizeLinear of a bias in the scale of the accumulators, which ``node`` reads from now on."""
    scale = scale.reshape(()) if scale.size == 1 else scale
    name = f"{node.output[0]}_bias"
    operands = [
        add_constant(graph, f"{name}_integers", steps(bias, scale, 0, np.int32)),
        add_constant(graph, f"{name}_scale", scale.astype(np.float32)),
        add_constant(graph, f"{name}_zero_point", np.zeros(scale.shape, np.int32)),
    ]
    node.input[position] = unused(f"{name}_dequantized", taken)
    return helper.make_node(DEQUANTIZE, operands, [node.input[position]], node.input[position], axis=0)
