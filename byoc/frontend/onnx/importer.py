"""Import a quantised ONNX model as a canonical :class:`~byoc.graph.Graph`.

DequantizeLinear–operator–QuantizeLinear units and QLinear operators become one node each, on
integer tensors. Element-wise subgraphs of one integer tensor become tables. Other nodes (float
operators, quantisation at the edges) become host nodes with their ONNX types. All tensors keep
their names.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from byoc.frontend.onnx.closures import Closure, find_absorbed, integer_closures, tabulate
from byoc.frontend.onnx.reading import build_view
from byoc.frontend.onnx.rewriting.shapes import SEQUENCE, tensor_types
from byoc.frontend.onnx.units import IntegerUnit, Unrecognised, recognise, shape_cause
from byoc.graph import Graph, Node, Quantization, Value, drop_unread
from byoc.operators.activation import clip_bounds
from byoc.operators.forms import Positions, QLinear, Written
from byoc.operators.onnx_view import BOUNDARIES, DEQUANTIZE, QUANTIZE, OnnxNode, OnnxView
from byoc.operators.pieces import NOTHING
from byoc.operators.registry import load_installed_families
from byoc.operators.table import TABLE
from byoc.operators.verify import verify_graph
from byoc.runtimes.protobuf import make_unused_name, names_of
from byoc.runtimes.session import OnnxRuntimeSession
from isa.errors import InputError


def import_graph(model: onnx.ModelProto) -> Graph:
    """Return the canonical graph of a quantised model (QDQ, QOperator or mixed), sorted.

    Every value has a static shape; :class:`isa.errors.InputError` names a tensor without one.
    """
    view = build_view(model, *tensor_types(model))
    builder = _Builder(model, view)
    for node in view.nodes:
        builder.visit(node)
    return builder.finish()


class _Builder:
    """Builder of a canonical graph in one pass over the nodes of an ONNX model."""

    def __init__(self, model: onnx.ModelProto, view: OnnxView) -> None:
        self._model = model
        self._view = view
        self._closures = integer_closures(view)
        self._values: dict[str, Value] = {}
        self._quantizations: dict[str, Quantization] = {}
        self._nodes: list[Node] = []
        self._names: set[str] = set()
        self._made: set[str] = set()
        self._protos = {proto.output[0]: proto for proto in model.graph.node if proto.output}
        self._absorbed = find_absorbed(view, self._closures)
        self._taken = names_of(model.graph)
        self._derived: dict[str, str] = {}

    def visit(self, node: OnnxNode) -> None:
        """Add the canonical node of an ONNX node, unless a unit added earlier contains it."""
        if node.name in self._absorbed:
            return
        closure = self._closures.get(node.outputs[0]) if node.outputs else None
        found = self._table(closure) if closure is not None else recognise(self._view, node)
        written = _write_unit(self._view, found) if isinstance(found, IntegerUnit) else None
        if isinstance(found, IntegerUnit):
            claimed = self._claim(found, written)
            if not isinstance(claimed, Unrecognised):
                self._add_unit(found, written, claimed)
                return
            found = claimed
        for own in (node,) if closure is None else closure.nodes:
            # unless a table covers it
            if own.name not in self._names and not self._made.intersection(own.outputs):
                self._add_host(own, found.remark)

    def _table(self, closure: Closure) -> IntegerUnit:
        """Return a table look-up unit that replaces a closure of element-wise nodes.

        The unit is named after the closure's last operator.
        """
        view = self._view
        ends = closure.nodes[-1]
        last = next(
            (node for node in reversed(closure.nodes) if node.op_type not in BOUNDARIES), ends
        )
        name = last if last.name not in self._names else ends
        readers = (
            node
            for node in closure.nodes
            if node.op_type == DEQUANTIZE and node.inputs[0] == closure.source
        )
        borders = {
            closure.source: next(readers, None),
            closure.result: ends if ends.op_type == QUANTIZE else None,
        }
        quantizations = {
            name: found
            for name, node in borders.items()
            if node is not None and (found := view.quantization_of(node)) is not None
        }
        constant = self._name(f"{closure.result}:table")
        data = tabulate(self._model, view, closure, self._protos)
        result = quantizations.get(closure.result)
        self._values[constant] = Value(constant, data.shape, data.dtype.name, result, data)
        plain = len(quantizations) < len(borders)
        operands = closure.source, constant
        return IntegerUnit(
            name, TABLE, operands, closure.result, quantizations, closure.nodes, plain=plain
        )

    def _claim(self, unit: IntegerUnit, written: Written | None) -> dict[str, Any] | Unrecognised:
        """Return the attributes of an integer unit, or why the unit is rejected.

        A unit is rejected if its attributes cannot be read, or if the rest of the model uses one of
        its tensors with another quantisation.
        """
        for name, quantization in unit.quantizations.items():
            if not self._quantizations.setdefault(name, quantization).same_as(quantization):
                return Unrecognised(
                    f"it uses '{name}' with another quantisation than the rest of the model"
                )
        found: dict[str, Any] | str = {}
        if unit.family is not None and written is not None:
            found = unit.family.attributes(written)
        elif unit.form is not None:
            given = unit.node.attributes
            found = {name: given[name] for name in unit.form.attributes if name in given}
        return Unrecognised(found) if isinstance(found, str) else found

    def _add_unit(self, unit: IntegerUnit, written: Written | None, own: dict[str, Any]) -> None:
        operands = list(unit.operands)
        op_type = unit.op_type if unit.family is None or written is None else written.op_type
        attributes = _canonical_attributes(self._view, unit, own)
        if unit.form is not None and unit.node.attributes.get(unit.form.transposed):
            operands[1] = self._add_transpose(operands[1])
        operands += [self._real(name) for name in unit.parameters]
        self._absorbed.update(node.name for node in unit.covers if node.op_type != DEQUANTIZE)
        self._names.add(unit.node.name)
        self._made.add(unit.result)
        self._nodes.append(
            Node(
                name=unit.node.name,
                op_type=op_type,
                inputs=tuple(operands),
                outputs=(unit.result,),
                attributes=attributes,
                onnx_nodes=tuple(node.name for node in unit.covers),
                remark=shape_cause(self._view, unit),
                macs=count_macs(self._view, unit.node),
                integer=True,
            )
        )
        self._add_values((*operands, unit.result))

    def _name(self, wanted: str) -> str:
        """Return an unused value name close to ``wanted``, the same one at every call."""
        if wanted not in self._derived:
            self._derived[wanted] = make_unused_name(wanted, self._taken)
        return self._derived[wanted]

    def _add_transpose(self, name: str) -> str:
        """Add the transpose of a constant matrix and return its name.

        Constants are transposed at import, so weights are always K × N.
        """
        constant = self._view.constants.get(name)
        derived = self._name(f"{name}:transposed")
        if constant is None or constant.ndim != 2:
            return name
        quantization = self._quantizations.get(name)
        if quantization is not None and quantization.axis is not None:
            quantization = Quantization(
                quantization.scale, quantization.zero_point, 1 - quantization.axis
            )
        data = np.ascontiguousarray(constant.T)
        self._values[derived] = Value(derived, data.shape, data.dtype.name, quantization, data)
        return derived

    def _real(self, name: str) -> str:
        numbers = self._view.real(name)
        derived = self._name(f"{name}:real")
        assert numbers is not None
        self._values[derived] = Value(derived, numbers.shape, "float32", None, numbers)
        return derived

    def _add_host(self, node: OnnxNode, remark: str) -> None:
        view = self._view
        if node.op_type in BOUNDARIES:
            integer = node.outputs[0] if node.op_type == QUANTIZE else node.inputs[0]
            quantization = view.quantization_of(node)
            known = self._quantizations.get(integer, quantization)
            if known is not None and quantization is not None:
                self._quantizations[integer] = known
            if known is not None and (quantization is None or not quantization.same_as(known)):
                remark = (
                    remark
                    or f"it gives '{integer}' another quantisation than the rest of the model does"
                )
        inputs = tuple(name for name in node.reads if name not in view.constants)
        outputs = tuple(name for name in node.outputs if name)
        self._names.add(node.name)
        self._made.update(outputs)
        self._nodes.append(
            Node(
                node.name,
                node.op_type,
                inputs,
                outputs,
                {},
                (node.name,),
                remark,
                count_macs(view, node),
            )
        )
        self._add_values((*inputs, *outputs))

    def _add_values(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._values:
                constant = self._view.constants.get(name)
                shape = self._view.shape(name)
                dtype = constant.dtype.name if constant is not None else self._view.tensors[name][1]
                self._values[name] = Value(
                    name, shape, dtype, constant=constant, open=name in self._view.open
                )

    def finish(self) -> Graph:
        """Return the canonical graph, with quantised values and without unused nodes."""
        view = self._view
        self._add_values((*view.inputs, *view.outputs))
        values = {name: self._quantize_value(value) for name, value in self._values.items()}
        nodes = drop_unread(self._nodes, view.outputs)
        return verify_graph(
            Graph(
                view.name,
                view.inputs,
                view.outputs,
                _find_referenced(values, nodes, view),
                tuple(nodes),
            )
        )

    def _quantize_value(self, value: Value) -> Value:
        if value.quantization is not None or value.name not in self._quantizations:
            return value
        return replace(value, quantization=self._quantizations[value.name])


def _find_referenced(
    values: Mapping[str, Value], nodes: Iterable[Node], view: OnnxView
) -> dict[str, Value]:
    names = dict.fromkeys((*view.inputs, *view.outputs))
    for node in nodes:
        names |= dict.fromkeys((*node.inputs, *node.outputs))
    return {name: values[name] for name in names}


def _canonical_attributes(
    view: OnnxView, unit: IntegerUnit, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the attributes of a unit's canonical node: Python numbers, strings and tuples only.

    These are the family's ``own``, and possibly three more. ``activation`` is absent, ``"Relu"`` or
    ``("Clip", low, high)`` in real numbers. ``plain`` marks operators on bare integers.
    ``zero_points`` are those of both operands of an integer product.
    """
    attributes: dict[str, Any] = {}
    if unit.plain:
        attributes["plain"] = True
    if unit.activation is not None:
        bounds = clip_bounds(view, unit.activation)
        attributes["activation"] = (
            "Relu" if unit.activation.op_type == "Relu" else ("Clip", *(bounds or ()))
        )
    attributes |= own
    if unit.zero_points is not None:
        attributes["zero_points"] = unit.zero_points
    return attributes


def _write_unit(view: OnnxView, unit: IntegerUnit) -> Written | None:
    """Return an integer unit in the form that families read; None if it has no form."""
    if unit.form is None:
        return None
    positions = trace(view, unit.node, view.shape(unit.operands[0])) if unit.form.traced else None
    return Written(view, unit.node, unit.form, unit.operands, unit.result, positions)


_FUSED = {"FusedConv": "Conv"}
"""ONNX Runtime's fused operators, mapped to the operator with the same operands."""


def count_macs(view: OnnxView, node: OnnxNode) -> int:
    """Return how many multiply-accumulates (MACs) a node computes, padding included.

    They are those that the node's family counts, on whichever device the node runs.
    """
    registry = load_installed_families()
    op_type = _FUSED.get(node.op_type, node.op_type)
    if op_type in registry.integer_forms:
        _, form, integer = registry.integer_forms[op_type]
        positions = (
            [triple[0] for triple in integer.operands] if isinstance(integer, QLinear) else [0, 1]
        )
        operands = tuple(node.input(position) for position in positions)
    elif op_type in registry.forms:
        _, form = registry.forms[op_type]
        operands = node.inputs[:2]
    elif op_type in _OTHERS:
        return _OTHERS[op_type](view, node)
    else:
        return _macs_within(view, node)
    if not all(view.shape(name) for name in operands[:2] if name):
        return 0  # an operand without dimensions: not a valid product
    return Written(view, node, form, operands, node.outputs[0]).macs


def _count_transposed_convolution(view: OnnxView, node: OnnxNode) -> int:
    """Return the MACs of ConvTranspose: every input element times every weight of its channel."""
    return prod(view.shape(node.inputs[0])) * prod(view.shape(node.inputs[1])[1:])


def _recurrent(view: OnnxView, node: OnnxNode) -> int:
    """Return the MACs of a recurrent layer: at each step, every weight once.

    The MACs of gates are neglected.
    """
    steps = prod(view.shape(node.inputs[0])[:2])
    return steps * (prod(view.shape(node.inputs[1])) + prod(view.shape(node.inputs[2])))


def _product(view: OnnxView, node: OnnxNode) -> int:
    """Return the MACs of a matrix product, M·K·N."""
    left = view.shape(node.inputs[0])
    depth = left[-2] if node.attributes.get("transA") and len(left) > 1 else left[-1]
    return prod(view.shape(node.outputs[0])) * depth


def _count_packed_product(view: OnnxView, node: OnnxNode) -> int:
    """Return the MACs of a product whose weights have less than 8 bits and are packed."""
    return prod(view.shape(node.outputs[0])) * int(node.attributes.get("K", 0))


_OTHERS: Mapping[str, Callable[[OnnxView, OnnxNode], int]] = {
    "ConvTranspose": _count_transposed_convolution,
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _recurrent),
    **dict.fromkeys(
        ("FusedMatMul", "FusedGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), _product
    ),
    "MatMulNBits": _count_packed_product,
}
"""Functions that count the MACs of operators, ONNX's and ONNX Runtime's, without a family."""


def _macs_within(view: OnnxView, node: OnnxNode) -> int:
    """Return how many MACs the bodies of a control-flow node, such as If or Loop, compute.

    They are those of the most expensive branch, or of all iterations if their number is constant.
    The result is 0 if the shapes in the body are unknown.
    """
    found = [
        _macs_of_body(view, node, body)
        for body in node.attributes.values()
        if isinstance(body, onnx.GraphProto)
    ]
    return max(found, default=0)


def _macs_of_body(view: OnnxView, node: OnnxNode, body: onnx.GraphProto) -> int:
    """Return the MACs of one iteration of a loop's body times the number of iterations.

    Loop has a count, Scan runs along its first axis.
    """
    states = node.inputs[2:] if node.op_type == "Loop" else node.inputs
    types = {
        name: (view.shape(name), view.element_type(name))
        for name in node.captured
        if view.element_type(name)
    }
    repeated = 1
    if node.op_type == "Loop":
        count = view.constants.get(node.input(0))
        repeated = int(count.reshape(-1)[0]) if count is not None and count.size == 1 else 1
        types |= {
            value.name: ((), kind)
            for value, kind in zip(body.input, ("int64", "bool"), strict=False)
        }
    for value, name in zip(body.input[2 if node.op_type == "Loop" else 0 :], states, strict=False):
        types[value.name] = view.shape(name), view.element_type(name)
    if node.op_type == "Scan":
        scanned = body.input[len(states) - int(node.attributes["num_scan_inputs"]) :]
        repeated = types[scanned[0].name][0][0] if scanned else 1
        types |= {value.name: (types[value.name][0][1:], types[value.name][1]) for value in scanned}
    if SEQUENCE in {kind for _, kind in types.values()}:
        return 0
    inner = onnx.ModelProto(ir_version=10, opset_import=view.opsets, graph=body)
    inner.graph.ClearField("input")
    inner.graph.input.extend(
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape
        )
        for name, (shape, kind) in types.items()
        if name not in view.constants
    )
    constants = ((name, view.constants[name]) for name in node.captured if name in view.constants)
    inner.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in dict(constants).items()
    )
    try:
        within = build_view(inner, *tensor_types(inner))
        return max(repeated, 0) * sum(count_macs(within, each) for each in within.nodes)
    except (InputError, onnx.shape_inference.InferenceError):
        return 0


_SOURCE = "numbers"
_RESULT = "moved"
LARGEST = 1 << 23
"""Size limit of a tensor whose positions, and as many other numbers, float32 distinguishes."""


def trace(view: OnnxView, node: OnnxNode, shape: tuple[int, ...]) -> Positions | str:
    """Return, for each element of a data movement's result, the position it is copied from.

    Returns a text with the reason if that is unknown: a parameter is computed at run time, or the
    operator does more than copy. The operator runs twice, on the positions and on permuted, offset
    positions. A result equal in both runs is a constant; a result that matches neither is computed.
    """
    parameters = {}
    for name in filter(None, node.inputs[1:]):
        found = view.constant(name)
        if found is None:
            return f"its parameter '{name}' is computed at run time"
        # values mixed into the elements, such as Pad's
        same = found.dtype.name == view.element_type(node.inputs[0])
        parameters[name] = found.astype(np.float32) if same else found
    count = math.prod(shape)
    if count >= LARGEST:
        return (
            f"its operand has {count:,} elements; data movement is worked out for less than "
            f"{LARGEST:,}"
        )
    again = np.random.default_rng(0).permutation(count)
    alone = _session(view.opset, node, parameters, shape)
    results = [
        alone.run([_RESULT], {_SOURCE: numbers.reshape(shape).astype(np.float32)})[_RESULT]
        for numbers in (np.arange(count), again + count)
    ]
    same = results[0] == results[1]
    index = np.where(same, NOTHING, results[0]).astype(np.int64)
    moved = index[~same]
    fills = results[0][same]
    positions = (moved == results[0][~same]) & (moved >= 0) & (moved < count)
    copied = positions.all() and (results[1][~same] == again[moved] + count).all()
    if not copied or (fills.size and fills.min() != fills.max()):
        return f"it computes what is between elements; {node.op_type} moves them only"
    return Positions(index, float(fills[0]) if fills.size else None)


def _session(
    opset: int, node: OnnxNode, parameters: dict[str, NDArray[Any]], shape: tuple[int, ...]
) -> OnnxRuntimeSession:
    """Return an ONNX Runtime session that runs a data movement operator alone on floats."""
    part = helper.make_graph(
        [
            helper.make_node(
                node.op_type,
                [_SOURCE, *node.inputs[1:]],
                [_RESULT],
                domain=node.domain,
                **node.attributes,
            )
        ],
        "movement",
        [helper.make_tensor_value_info(_SOURCE, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(_RESULT, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    model = helper.make_model(part, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return OnnxRuntimeSession(model, optimised=False)
