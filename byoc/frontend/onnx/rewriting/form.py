"""Normalise models to the form that all passes expect.

The operator set is current, by onnx's version converter. float32 replaces half precision, because
the quantiser and ONNX Runtime's CPU kernels use float32. No-op nodes and redundant default
attributes are removed, and every node has a name.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper, version_converter

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, look_at, write_operators
from byoc.runtimes.protobuf import (
    ConstantArrays,
    all_graphs,
    all_nodes,
    array_of,
    attributes,
    change_without_large_constants,
    copy_model,
    copy_node,
    make_unused_name,
    names_of,
    opset_of,
    separate_names,
    set_attributes,
    standard,
    use_counts,
)
from byoc.runtimes.session import NEWEST_IR_VERSION
from isa.errors import InputError

OLDEST_OPSET = 9
# from here on per-channel DequantizeLinear exists, and models can be used unconverted
PLAIN_OPSET = 13
TARGET_OPSET = 21
TARGET_IR_VERSION = 10


def convert_opset(model: ModelProto, target: int = TARGET_OPSET) -> ModelProto:
    """Convert the model to at least opset ``target`` and IR version 10.

    Models of opset 9 and above are converted; one of opset 13 or above that the converter cannot
    handle stays unchanged.

    Raises:
        InputError: opset below 9, above what the installed onnx knows, or below 13 and not
            convertible.
    """
    opset = opset_of(model)
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise InputError(
            f"unsupported opset {opset}: export the model with an opset from "
            f"{OLDEST_OPSET} to {newest}"
        )
    result = _convert_opset(model, opset, target) if opset < target else copy_model(model)
    result.ir_version = min(max(result.ir_version, TARGET_IR_VERSION), NEWEST_IR_VERSION)
    return result


def _convert_opset(model: ModelProto, opset: int, target: int) -> ModelProto:
    def convert(light: ModelProto) -> ModelProto:
        # Below IR version 4 the converter only finds initialisers that are also inputs.
        light.ir_version = max(light.ir_version, TARGET_IR_VERSION)
        if opset < PLAIN_OPSET:
            _flatten_rows(light)
        converted = version_converter.convert_version(light, target)
        _place_as_before(light, converted, opset)
        return converted

    try:
        return change_without_large_constants(model, convert)
    # the C++ converter raises RuntimeError and its own classes, without a common base
    except Exception as error:
        if opset >= PLAIN_OPSET:
            return copy_model(model)
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"unsupported opset {opset}: conversion to opset {target} failed ({reason}); use a "
            "newer opset"
        ) from error


def _flatten_rows(model: ModelProto) -> None:
    """Reshape the operand of every Hardmax to a matrix, in place, as opsets before 13 do.

    These opsets flatten all axes from the operator's axis on. The converter does this only for
    Softmax and LogSoftmax.
    """
    taken = {name for graph in all_graphs(model.graph) for name in names_of(graph)}
    for graph in all_graphs(model.graph):
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            if node.op_type != "Hardmax" or not standard(node):
                graph.node.append(node)
                continue
            source = node.input[0]
            result = node.output[0]
            rows, largest, shape = (
                make_unused_name(f"{result}_{label}", taken)
                for label in ("rows", "largest", "shape")
            )
            axis = next((one.i for one in node.attribute if one.name == "axis"), 1)
            graph.node.extend([
                helper.make_node("Flatten", [source], [rows], axis=axis),
                helper.make_node("Hardmax", [rows], [largest], node.name, axis=1),
                helper.make_node("Shape", [source], [shape]),
                helper.make_node("Reshape", [largest, shape], [result]),
            ])  # fmt: skip


_PLACED = 11
"""First opset in which a Resize declares its coordinates; before, the first elements coincide."""


def _place_as_before(old: ModelProto, new: ModelProto, opset: int) -> None:
    """Give every Resize of ``new``, in place, the coordinates of the older opset of ``old``.

    The converter uses today's default instead. For nearest neighbours, ONNX Runtime rounded down
    when enlarging and up otherwise (0 of 200 drawn models differ).
    """
    if opset >= _PLACED:
        return
    scales = ConstantArrays(old.graph, lambda tensor: len(tensor.dims) == 1)
    for node in all_nodes(old.graph):
        if node.op_type == "Constant" and "value" in attributes(node):
            scales[node.output[0]] = array_of(attributes(node)["value"])
    before = {
        node.output[0]: node
        for node in all_nodes(old.graph)
        if node.op_type in ("Resize", "Upsample")
    }
    for node in all_nodes(new.graph):
        if node.op_type != "Resize" or node.output[0] not in before:
            continue
        given = next(
            (scales[name] for name in before[node.output[0]].input[1:] if name in scales), None
        )
        smaller = given is not None and bool((given <= 1).all())
        chosen = {
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "ceil" if smaller else "floor",
        }
        node.attribute.extend(helper.make_attribute(name, text) for name, text in chosen.items())


_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_TYPES = frozenset({"to", "dtype", "output_dtype", "stash_type"})
"""Attributes that name an element type."""


def widen(model: ModelProto) -> ModelProto:
    """Replace float16 and bfloat16 by float32, also in inputs and outputs.

    Returns a model without them unchanged. Constants keep their values. Casts between types that
    are now equal are removed.
    """
    if not _has_half(model):
        return model
    result = copy_model(model)
    for graph in all_graphs(result.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type
            if kind.elem_type in _HALF:
                kind.elem_type = TensorProto.FLOAT
        for tensor in (*graph.initializer, *(item.values for item in graph.sparse_initializer)):
            _widen_tensor(tensor)
        for node in graph.node:
            _widen_attributes(node)
    for function in result.functions:
        for node in function.node:
            _widen_attributes(node)
    _drop_casts(result)
    return result


def _has_half(model: ModelProto) -> bool:
    for graph in all_graphs(model.graph):
        types = {tensor.data_type for tensor in graph.initializer}
        types |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        types |= {item.i for node in graph.node for item in node.attribute if item.name in _TYPES}
        types |= {
            item.t.data_type for node in graph.node for item in node.attribute if item.HasField("t")
        }
        if types & _HALF:
            return True
    return False


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _HALF:
        array: Any = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(array, np.float32), tensor.name))


def _widen_attributes(node: NodeProto) -> None:
    for item in node.attribute:
        if item.name in _TYPES and item.i in _HALF:
            item.i = TensorProto.FLOAT
        if item.HasField("t"):
            _widen_tensor(item.t)
        for tensor in item.tensors:
            _widen_tensor(tensor)


def _drop_casts(model: ModelProto) -> None:
    """Turn every Cast of float32 to float32 into an Identity, in place."""
    typed = change_without_large_constants(model, onnx.shape_inference.infer_shapes)
    known = {
        value.name: value.type.tensor_type.elem_type
        for graph in all_graphs(typed.graph)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    known |= {
        tensor.name: tensor.data_type
        for graph in all_graphs(model.graph)
        for tensor in graph.initializer
    }
    for node in all_nodes(model.graph):
        targets = [item.i for item in node.attribute if item.name == "to"]
        same = targets == [TensorProto.FLOAT] and known.get(node.input[0]) == TensorProto.FLOAT
        if node.op_type == "Cast" and standard(node) and same:
            node.op_type = "Identity"
            del node.attribute[:]


@write_operators("Identity", "Dropout", "Sum", "Where")
def remove_identities(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Remove Identity, inference Dropout and Where that only replaces NaN; rewrite Sum.

    A Sum of one operand is removed; one of several becomes Add nodes in the order in which ONNX
    Runtime adds. A node whose result is a graph output stays, because it gives the output its name.
    The mask of a Dropout that drops nothing is constant.
    """
    if node.op_type == "Sum" and len(node.input) > 1:
        return _add_in_turn(graph, node)
    if node.op_type == "Dropout" and _training(graph, node):
        return None
    if node.op_type == "Where" and not _has_no_effect(graph, node):
        return None
    source = node.input[2 if node.op_type == "Where" else 0]
    _, *masks = node.output
    made = copy_node(node)
    made.op_type = "Identity"
    made.input[:] = [source]
    made.output[:] = node.output[:1]
    del made.attribute[:]
    nodes = [made]
    if masks and (graph.is_shown(masks[0]) or graph.readers(masks[0])):
        if source not in graph.shapes:
            return None
        whole = graph.constant(f"{masks[0]}_whole", np.ones(graph.shapes[source], np.bool_))
        nodes.insert(0, helper.make_node("Identity", [whole], masks))
    return nodes


@write_operators("Where")
def guard_divisions(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Divide by 1 where a Where replaces the result of a division by 0.

    `Where(b = 0, c, a / b)` becomes `Where(b = 0, c, a / Where(b = 0, 1, b))`. Exporters write
    div_no_nan as the former, whose quotient is infinite or not a number on silent samples.
    """
    condition, *ways = node.input
    for position, way in enumerate(ways):
        division = graph.maker(way, "Div")
        if division is None or not graph.alone(way, node):
            continue
        divisor = division.input[1]
        if not _is_zero_test(graph, condition, divisor, position == 1):
            continue
        w = NodeWriter(graph, node)
        safe = [divisor, w.constant(1, np.float32)]
        safe = safe[::-1] if position else safe
        ways[position] = w.add("Div", division.input[0], w.add("Where", condition, *safe))
        w.add("Where", condition, *ways, label=node.name)
        return w.finish()
    return None


def _is_zero_test(graph: GraphView, condition: str, divisor: str, holds: bool) -> bool:
    """Return True if a condition is ``holds`` wherever the divisor is 0."""
    asked = graph.maker(condition, "Not", "Equal", "Greater", "GreaterOrEqual", "Less")
    if asked is None:
        return False
    if asked.op_type == "Not":
        return _is_zero_test(graph, asked.input[0], divisor, not holds)
    array = graph.constants.get(asked.input[1])
    if asked.input[0] != divisor or array is None or array.size != 1 or array.dtype != np.float32:
        return False
    number = float(array.reshape(()))
    at_zero = {
        "Equal": number == 0, "Greater": number < 0, "GreaterOrEqual": number <= 0,
        "Less": number > 0,
    }  # fmt: skip
    return at_zero[asked.op_type] == holds


def _add_in_turn(graph: GraphView, node: NodeProto) -> list[NodeProto]:
    first, *others = node.input
    nodes = list[NodeProto]()
    for number, other in enumerate(others, start=2):
        name = node.name
        result = node.output[0]
        if number < len(node.input):
            name, result = (graph.name(f"{text}_{number}") for text in (name, result))
        nodes.append(helper.make_node("Add", [first, other], [result], name))
        first = result
    return nodes


def _has_no_effect(graph: GraphView, node: NodeProto) -> bool:
    """Return True if a Where replaces NaN or infinity in a tensor that is always finite.

    Exporters write attention with it. Quantised values are finite, and calibration rejects Softmax
    rows without a finite maximum.
    """
    condition, _, source = node.input
    shape = graph.shapes.get(source)
    if (
        shape is None
        or shape != graph.shapes.get(node.output[0])
        or not _is_infinity_test(graph, condition, source)
    ):
        return False
    return graph.maker(source, "Softmax", "DequantizeLinear") is not None


def _is_infinity_test(graph: GraphView, condition: str, source: str) -> bool:
    """Return True if a condition holds only where ``source`` is not finite."""
    asked = graph.maker(condition, "IsNaN", "IsInf", "And")
    if asked is not None and asked.op_type == "And":
        return any(_is_infinity_test(graph, name, source) for name in asked.input)
    return asked is not None and asked.input[0] == source


def _training(graph: GraphView, node: NodeProto) -> bool:
    """Return True if a Dropout may drop elements, in training with a ratio other than 0."""
    if len(node.input) < 3 or not node.input[2]:
        return bool(attributes(node).get("is_test", 1) == 0)
    known = [graph.constants.get(node.input[position]) for position in (2, 1)]
    return all(number is None or number.ndim or bool(number) for number in known)


@look_at("AveragePool")
def drop_unit_dilations(model: ModelProto) -> ModelProto:
    """Remove dilations of 1 from AveragePool nodes.

    ONNX Runtime's integer operator rejects them.
    """
    result = copy_model(model)
    for node in result.graph.node:
        if (
            node.op_type == "AveragePool"
            and standard(node)
            and set(attributes(node).get("dilations", ())) <= {1}
        ):
            set_attributes(node, "dilations")
    return result


def drop_unread_outputs(model: ModelProto) -> ModelProto:
    """Remove unused optional outputs at the end of nodes, such as the indices of a MaxPool."""
    if all(len(node.output) < 2 for node in model.graph.node):
        return model
    result = copy_model(model)
    graph = result.graph
    uses = use_counts(graph)
    for node in graph.node:
        while (
            len(node.output) > 1
            and not uses[node.output[-1]]
            and _optional(node, len(node.output) - 1)
        ):
            del node.output[-1]
    return result


def _optional(node: NodeProto, index: int) -> bool:
    """Return True if a standard operator's output is optional and may be omitted.

    Training nodes need their statistics outputs.
    """
    if not standard(node) or not defs.has(node.op_type) or attributes(node).get("training_mode"):
        return False
    outputs = defs.get_schema(node.op_type).outputs
    return (
        index < len(outputs)
        and outputs[index].option == defs.OpSchema.FormalParameterOption.Optional
    )


def separate_outputs(model: ModelProto) -> ModelProto:
    """Insert an Identity before every output that is also an input, and rename the output.

    Quantisers and session builders reject such a model as cyclic. The position of an
    output identifies it, so its name may change.
    """
    inputs = {value.name for value in model.graph.input}
    if inputs.isdisjoint(value.name for value in model.graph.output):
        return model
    result = copy_model(model)
    taken = inputs | {name for node in result.graph.node for name in (*node.input, *node.output)}
    for output in result.graph.output:
        if output.name in inputs:
            source = output.name
            output.name = make_unused_name(f"{output.name}_output", taken)
            result.graph.node.append(helper.make_node("Identity", [source], [output.name]))
    return result


def name_nodes(model: ModelProto) -> ModelProto:
    """Give every node a unique name.

    This is its own name, or its first output's if that is missing or taken.
    Reports, exclusions and provenance identify nodes by name.
    """
    result = copy_model(model)
    separate_names(result.graph, name_all=True)
    return result
