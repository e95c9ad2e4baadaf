"""The importer: a quantised ONNX model becomes a canonical :class:`~byoc.graph.Graph`.

DequantizeLinear–operator–QuantizeLinear units and QLinear operators become one node each, on integer tensors, and so
does whatever is computed element by element from one integer tensor: a table. What is
left (float operators, quantisation at the edges) becomes host nodes under their ONNX types. Tensors keep their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from byoc.frontend.onnx.closures import Closure, absorbed, integer_closures, tabulate
from byoc.frontend.onnx.macs import count_macs
from byoc.frontend.onnx.reading import build_view
from byoc.frontend.onnx.shapes import tensor_types
from byoc.frontend.onnx.tracing import trace
from byoc.frontend.onnx.units import Unit, Unrecognised, recognise
from byoc.graph import Graph, Node, Quantization, Value, drop_unread
from byoc.operators.activation import clip_bounds
from byoc.operators.forms import Written
from byoc.operators.onnx_view import BOUNDARIES, DEQUANTIZE, QUANTIZE, OnnxNode, OnnxView
from byoc.operators.table import TABLE
from byoc.operators.verify import verify_graph


def import_graph(model: onnx.ModelProto) -> Graph:
    """Canonical graph of a quantised model (QDQ, QOperator or a mixture), nodes in topological order.

    Every value has a static shape; :class:`isa.errors.InputError` names the tensor that has none.
    """
    view = build_view(model, *tensor_types(model))
    builder = _Builder(model, view)
    for node in view.nodes:
        builder.visit(node)
    return builder.finish()


class _Builder:
    """Collects values and nodes in one walk over the ONNX nodes."""

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
        self._absorbed = absorbed(view, self._closures)

    def visit(self, node: OnnxNode) -> None:
        """Add the canonical node of ``node``, unless a unit before it has absorbed it."""
        if node.name in self._absorbed:
            return
        closure = self._closures.get(node.outputs[0]) if node.outputs else None
        found = self._table(closure) if closure is not None else recognise(self._view, node)
        written = _written(self._view, found) if isinstance(found, Unit) else None
        if isinstance(found, Unit):
            found = self._claim(found, written)
        if isinstance(found, Unit):
            self._add_unit(found, written)
            return
        for own in (node,) if closure is None else closure.nodes:
            if own.name not in self._names and not self._made.intersection(own.outputs):  # by a table inside of it
                self._add_host(own, found.remark)

    def _table(self, closure: Closure) -> Unit:
        """A closure as a unit whose second operand is its table; it goes by the name of its last operator."""
        view = self._view
        ends = closure.nodes[-1]
        last = next((node for node in reversed(closure.nodes) if node.op_type not in BOUNDARIES), ends)
        name = last if last.name not in self._names else ends
        readers = (node for node in closure.nodes if node.op_type == DEQUANTIZE and node.inputs[0] == closure.source)
        borders = {closure.source: next(readers, None), closure.result: ends if ends.op_type == QUANTIZE else None}
        quantizations = {
            name: found
            for name, node in borders.items()
            if node is not None and (found := view.quantization_of(node)) is not None
        }
        constant = f"{closure.result}:table"
        data = tabulate(self._model, view, closure, self._protos)
        result = quantizations.get(closure.result)
        self._values[constant] = Value(constant, data.shape, data.dtype.name, result, data)
        plain = len(quantizations) < len(borders)
        operands = closure.source, constant
        return Unit(name, TABLE, operands, closure.result, quantizations, closure.nodes, plain=plain)

    def _claim(self, unit: Unit, written: Written | None) -> Unit | Unrecognised:
        """``unit``, unless one of its tensors is known with another quantisation, or its attributes cannot be read."""
        for name, quantization in unit.quantizations.items():
            if not self._quantizations.setdefault(name, quantization).same_as(quantization):
                return Unrecognised(f"it uses '{name}' with another quantisation than the rest of the model")
        misshapen = unit.family.misshapen(written) if unit.family is not None and written is not None else ""
        return Unrecognised(misshapen) if misshapen else unit

    def _add_unit(self, unit: Unit, written: Written | None) -> None:
        view = self._view
        op_type, operands = unit.op_type, list(unit.operands)
        if unit.family is not None and written is not None:
            op_type = unit.family.canonical_type(written)
        attributes = _canonical_attributes(view, unit, written)
        if unit.form is not None and unit.node.attributes.get(unit.form.transposed):
            operands[1] = self._transposed(operands[1])
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
                macs=count_macs(view, unit.node),
                integer=True,
            )
        )
        self._add_values((*operands, unit.result))

    def _transposed(self, name: str) -> str:
        """Name of the transpose of a matrix; a constant is transposed here, so that weights are always K × N."""
        constant = self._view.constants.get(name)
        derived = f"{name}:transposed"
        if constant is None or constant.ndim != 2:
            return name
        quantization = self._quantizations.get(name)
        if quantization is not None and quantization.axis is not None:
            quantization = Quantization(quantization.scale, quantization.zero_point, 1 - quantization.axis)
        data = np.ascontiguousarray(constant.T)
        self._values[derived] = Value(derived, data.shape, data.dtype.name, quantization, data)
        return derived

    def _real(self, name: str) -> str:
        """Name of the real numbers of a constant tensor."""
        numbers, derived = self._view.real(name), f"{name}:real"
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
                remark = remark or f"it gives '{integer}' another quantisation than the rest of the model does"
        inputs = tuple(name for name in node.reads if name not in view.constants)
        outputs = tuple(name for name in node.outputs if name)
        self._names.add(node.name)
        self._made.update(outputs)
        self._nodes.append(
            Node(node.name, node.op_type, inputs, outputs, {}, (node.name,), remark, count_macs(view, node))
        )
        self._add_values((*inputs, *outputs))

    def _add_values(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._values:
                constant = self._view.constants.get(name)
                shape = self._view.shape(name)
                dtype = constant.dtype.name if constant is not None else self._view.tensors[name][1]
                self._values[name] = Value(name, shape, dtype, constant=constant, open=name in self._view.open)

    def finish(self) -> Graph:
        """The graph, with the dequantisations of host nodes that nobody needs dropped and quantisations filled in."""
        view = self._view
        self._add_values((*view.inputs, *view.outputs))
        values = {name: self._quantized(value) for name, value in self._values.items()}
        nodes = drop_unread(self._nodes, view.outputs)
        return verify_graph(Graph(view.name, view.inputs, view.outputs, _referenced(values, nodes, view), tuple(nodes)))

    def _quantized(self, value: Value) -> Value:
        if value.quantization is not None or value.name not in self._quantizations:
            return value
        return replace(value, quantization=self._quantizations[value.name])


def _referenced(values: Mapping[str, Value], nodes: Iterable[Node], view: OnnxView) -> dict[str, Value]:
    names = dict.fromkeys((*view.inputs, *view.outputs))
    for node in nodes:
        names |= dict.fromkeys((*node.inputs, *node.outputs))
    return {name: values[name] for name in names}


def _canonical_attributes(view: OnnxView, unit: Unit, written: Written | None) -> dict[str, Any]:
    """Attributes of the canonical node of ``unit``: Python numbers, text and tuples only.

    Those of its family, and: ``activation``, absent, ``"Relu"`` or ``("Clip", low, high)`` in real numbers; ``plain``
    for operators on bare integers; ``zero_points`` of both operands of an integer product.
    """
    attributes: dict[str, Any] = {}
    if unit.plain:
        attributes["plain"] = True
    if unit.activation is not None:
        bounds = clip_bounds(view, unit.activation)
        attributes["activation"] = "Relu" if unit.activation.op_type == "Relu" else ("Clip", *(bounds or ()))
    if unit.family is not None and written is not None:
        attributes |= unit.family.attributes(written)
    if unit.zero_points is not None:
        attributes["zero_points"] = unit.zero_points
    return attributes


def _written(view: OnnxView, unit: Unit) -> Written | None:
    """A unit as the model writes it; None for one of no form."""
    if unit.form is None:
        return None
    positions = trace(view, unit.node, view.shape(unit.operands[0])) if unit.form.traced else None
    return Written(view, unit.node, unit.form, unit.operands, unit.result, positions)
