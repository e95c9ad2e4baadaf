"""Keep chosen tensors of a quantised model in float, with their products still in integers.

A product with constant weights runs on the accelerator and returns its int32 sums, which the CPU
converts to float. A float operand of such a product becomes two int8 parts with 16 bits together,
each of which is multiplied. Other operators that read or compute a float tensor run in float.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto
from onnx.helper import make_tensor_value_info

from byoc.frontend.onnx.importer import count_macs
from byoc.frontend.onnx.reading import build_view, read_node
from byoc.frontend.onnx.rewriting.shapes import tensor_types
from byoc.operators.onnx_view import (
    ADD,
    CAST,
    CLIP,
    CONVOLUTION,
    INTEGER_PRODUCTS,
    MULTIPLY,
    QUANTIZE,
    SELECT,
    SUBTRACT,
    OnnxView,
)
from byoc.operators.registry import load_installed_families
from byoc.quantisation.float_nodes import find_quantised_closures
from byoc.quantisation.quantize import BoundaryWriter, Scaling, broadcast_along
from isa.numerics import steps
from isa.numerics.requantising import INT8_HIGH, INT8_LOW

_PARTS = np.float32(INT8_HIGH - INT8_LOW - 1)
"""Ratio of the steps of the two int8 parts of a tensor."""
MOST_FLOAT_MACS = 0.1
"""Share of a model's multiply-accumulates that may run in float."""


class WideTensors:
    """Groups of tensors of a float model that can stay in float together.

    ``groups`` has them by their first tensor, in execution order. Operators that only move elements
    connect a group, because a quantised result would undo a float operand. ``sums`` are the nodes
    that can return int32 sums.
    """

    def __init__(self, model: ModelProto) -> None:
        self._view = build_view(model, *tensor_types(model))
        self._nodes = list(model.graph.node)
        self._closures = [
            {node.name for node in closure.nodes} for closure in find_quantised_closures(model)
        ]
        # the variable operands of a node
        self._data = {
            node.name: [name for name in node.input if name and name not in self._view.constants]
            for node in self._nodes
        }
        self.sums = {node.name for node in self._nodes if _has_sums(self._view, node)}
        self._macs = {node.name: count_macs(self._view, node) for node in self._view.nodes}
        self._most = MOST_FLOAT_MACS * sum(self._macs.values())
        first: dict[str, str] = {}
        for node in self._nodes:
            root = first.get(node.input[0], node.input[0]) if node.input else ""
            for name in node.output:
                first[name] = (
                    root if _is_movement(node) and root not in self._view.constants else name
                )
        self.groups: dict[str, set[str]] = {}
        weights = (node.input[1] for node in self._nodes if node.name in self.sums)
        for name in (*self._view.inputs, *first, *weights):
            self.groups.setdefault(first.get(name, name), set()).add(name)

    def list_float_nodes(self, wide: Collection[str]) -> set[str]:
        """Return the names of the nodes that run in float if the tensors ``wide`` are float."""
        found = {
            node.name
            for node in self._nodes
            if node.name not in self.sums
            and not {*self._data[node.name], *node.output}.isdisjoint(wide)
        }
        for inside in self._closures:
            if not inside.isdisjoint(found):
                found |= inside
        return found

    def is_within_budget(self, wide: Collection[str]) -> bool:
        """Return True if few enough multiply-accumulates run in float."""
        return sum(self._macs.get(name, 0) for name in self.list_float_nodes(wide)) <= self._most


def _is_movement(node: NodeProto) -> bool:
    """Return True for a node with one data operand whose elements are its results.

    A clamp counts too, because the quantiser gives its operand the result's range.
    """
    found = load_installed_families().forms.get(node.op_type)
    return (
        found is not None and found[1].operands == 1 and bool(found[1].passive or found[1].clamps)
    )


def _has_sums(view: OnnxView, node: NodeProto) -> bool:
    """Return True for a product with constant weights that can return int32 sums."""
    attributes = read_node(node, node.name).attributes
    return (
        node.op_type in INTEGER_PRODUCTS
        and all(name in view.constants for name in node.input[1:] if name)
        and (node.op_type == CONVOLUTION or len(view.constants[node.input[1]].shape) == 2)
        and not attributes.get("transA", 0)
        and attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0
    )


class SumsWriter(BoundaryWriter):
    """Writer of a quantised model whose tensors ``wide`` are float.

    Products named ``sums`` that read or compute them, or whose weights are among them, return int32
    sums.
    """

    def __init__(self, *given: Any, sums: Collection[str], **wide: Any) -> None:
        self._sums = sums
        super().__init__(*given, **wide)

    def _write(self, node: NodeProto) -> None:
        names = {*node.input[:2], *node.output}
        product = node.name in self._sums and (node.name, 1) in self._plan.scalings
        if not product or names.isdisjoint(self._plan.wide):
            return super()._write(node)
        data, weights = node.input[:2]
        scaling = self._plan.scalings[node.name, 1]
        array = self._plan.constants[weights]
        unit = broadcast_along(self._parameters(node, 1, weights).scale, array, scaling.axis)
        whole = steps(array, unit, 0, np.int8)
        first = self._parameters(node, 0, data)
        integers, zero = self._integers[data], self._write_parameters(first, data)[1]
        sums = [self._product(node, integers, zero, whole, unit * first.scale)]
        if data in self._plan.wide:
            rest = self._new(node, SUBTRACT, data, self._real[data])
            small = np.asarray(first.scale / _PARTS)
            middle = self._tensor(f"{data}_middle", np.array(0, np.int8))
            part = self._new(node, QUANTIZE, rest, self._tensor(f"{data}_step", small), middle)
            sums.append(self._product(node, part, middle, whole, unit * small))
        if weights in self._plan.wide:
            small = np.asarray(unit / _PARTS)
            fine = steps(array - whole * unit, small, 0, np.int8)
            sums.append(self._product(node, integers, zero, fine, small * first.scale))
        for name in filter(None, node.input[2:]):
            bias = self._plan.constants[name]
            shape = (-1, *[1] * (array.ndim - 2)) if node.op_type == CONVOLUTION else (-1,)
            sums.append(self._tensor(f"{name}_exact", bias.reshape(shape)))
        total = sums[0]
        for other in sums[1:]:
            total = self._new(node, ADD, total, other)
        last = self._nodes.pop()
        last.output[0] = node.output[0]
        return super()._write(last)

    def _product(
        self,
        node: NodeProto,
        integers: str,
        zero: str,
        weights: NDArray[np.int8],
        scale: NDArray[np.float32],
    ) -> str:
        """Add an integer product and the conversion of its sums; return the float result."""
        convolution = node.op_type == CONVOLUTION
        turned = read_node(node, node.name).attributes.get("transB", 0)
        shape = (-1, *[1] * (weights.ndim - 2)) if convolution else (-1,)
        array = self._tensor(f"{node.name}_weights", weights.T if turned else weights)
        sums = self._new(node, INTEGER_PRODUCTS[node.op_type], integers, array, zero)
        if convolution:
            self._nodes[-1].attribute.extend(node.attribute)
        real = self._new(node, CAST, sums, to=TensorProto.FLOAT)
        factor = self._tensor(f"{node.name}_scale", scale.astype(np.float32).reshape(shape))
        return self._new(node, MULTIPLY, real, factor)

    def _new(self, node: NodeProto, op_type: str, *inputs: str, **attributes: Any) -> str:
        result = self._name(f"{node.name}_{op_type}")
        self._add(op_type, node.name, inputs, result, **attributes)
        return result


class ProbeWriter(BoundaryWriter):
    """Writer of a quantised model in which each rounding can be switched on.

    ``switches`` has the input that does so, by tensor.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.switches: dict[str, str] = {}

    def _pair(self, name: str, source: str) -> None:
        super()._pair(name, source)
        scale, zero = (
            getattr(self._tensors[self._plan.roots[name]], part) for part in ("scale", "zero_point")
        )
        ends = [
            self._tensor(f"{name}_end", np.asarray((end - zero.astype(np.float32)) * scale))
            for end in (INT8_LOW, INT8_HIGH)
        ]
        exact = self._name(f"{name}_exact")
        self._switch(name, exact)
        self._add(CLIP, name, [source, *ends], exact)

    def _constant(self, name: str, scaling: Scaling) -> str:
        known = (name, scaling) in self._constants
        result = super()._constant(name, scaling)
        if not known:
            self._switch(name, name)
        return result

    def _switch(self, name: str, exact: str) -> None:
        """Let consumers of the last node read its result or the tensor ``exact``."""
        result = self._nodes[-1].output[0]
        self._nodes[-1].output[0] = rounded = self._name(f"{name}_rounded")
        switch = self.switches[name] = self._name(f"{name}_switch")
        self._graph.input.append(make_tensor_value_info(switch, TensorProto.BOOL, []))
        self._add(SELECT, name, [switch, rounded, exact], result)
