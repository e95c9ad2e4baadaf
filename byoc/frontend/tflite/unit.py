"""An operator of a TensorFlow Lite model on its way to canonical nodes: operands in any view, results, nodes.

Every value of the graph is a view of one of the model's tensors, so that whatever leaves a region can be compared with
what LiteRT computes, and handed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite.cutting import cut_model
from byoc.frontend.tflite.file import Operator, Tensor, TfliteModel
from byoc.frontend.tflite.views import View, natural, planes, refined
from byoc.graph import Node, Quantization, Value
from byoc.runtimes.litert_process import known_session
from isa.errors import InputError
from isa.numerics import activation_steps, steps

ACTIVATIONS: Mapping[int, tuple[float, float]] = {1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Limits of RELU, RELU_N1_TO_1 and RELU6, by their numbers in the schema."""
_UNROUNDED = frozenset(
    {"MaxPool", "Reshape", "Identity", "Concat", "Slice", "Pad", "Gather", "GatherND", "Tile", "Expand", "Resize"}
    | {"ReverseSequence", "SpaceToDepth", "DepthToSpace", "Transpose", "Min", "Max", "ReduceMax", "ReduceMin"}
    | {"ArgMax", "ArgMin"}
)
"""Canonical operators that round nothing here, so that all kernels of LiteRT and all numerics agree."""
_BY_XNNPACK = frozenset({"Conv", "MatMul"})
"""Those whose rule with numerics onnxruntime is XNNPACK's: 0 of 2.6 M outputs differ. With fixed, every operator's rule
is that of LiteRT's reference kernels.
"""
_OTHERS = {4: "TANH", 5: "SIGN_BIT"}


class Collection:
    """The values and nodes of a graph that is being made, and the views in which each tensor is there."""

    def __init__(self, model: TfliteModel) -> None:
        self.model = model
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self._views: dict[int, dict[View, str]] = {}

    def made(self, number: int, view: View, *, open: bool = False, dtype: str = "") -> str:
        """The name of a value that is tensor ``number`` in this view, which nothing has made yet.

        ``dtype`` where it is not the model's; that of a view that is there already by default.
        """
        known = next(iter(self._views.get(number, {}).values()), None)
        tensor, name = self.model.tensors[number], self._name(number, view)
        dtype = dtype or ("" if known is None else self.values[known].dtype)
        plain, other = view.plain and name == tensor.name, dtype not in ("", tensor.dtype)
        layout = None if plain and not other else view.layout(tensor.name, tensor.dtype if other else "")
        quantization = _moved(tensor.quantization, view)
        self.values[name] = Value(name, view.lies, dtype or tensor.dtype, quantization, open=open, layout=layout)
        return name

    def _name(self, number: int, view: View) -> str:
        """A name for one more view of a tensor: that of the tensor for the first."""
        views, name = self._views.setdefault(number, {}), self.model.tensors[number].name
        if views:
            name = f"{name}:{'x'.join(map(str, view.lies))}:{len(views)}"
        if name in self.values:
            raise InputError(f"a tensor is called '{name}', which is kept for a view of another; rename it")
        views[view] = name
        return name

    def view(self, number: int) -> View:
        """The view in which a computed tensor was made."""
        return next(iter(self._views[number]))

    def value(self, number: int, view: View, reader: str) -> str:
        """The name of tensor ``number`` in a view; nodes that bring it there are added for operator ``reader``."""
        tensor = self.model.tensors[number]
        views = self._views.setdefault(number, {})
        if view in views:
            return views[view]
        if tensor.data is not None:
            return self.constant(number, view)
        have = self.view(number)
        if have.steps == view.steps:
            return views[self._reshaped(number, view, reader)]
        pair = refined(have, view)
        if pair is None:
            plain = _factored(have)
            if have.steps != plain.steps:
                self._transposed(number, have, plain, reader)
            pair = _factored(view), view
        self._transposed(number, *pair, reader)
        return views[self._reshaped(number, view, reader)]

    def constant(self, number: int, view: View) -> str:
        tensor = self.model.tensors[number]
        assert tensor.data is not None
        name = self._name(number, view)
        return self.held(name, view.arranged(tensor.data), _moved(tensor.quantization, view))

    def held(self, name: str, data: NDArray[Any], quantization: Quantization | None) -> str:
        """The name of a constant: ``name``, unless that is the name of another one already."""
        known = self.values.get(name)
        while known is not None and not (known.constant is not None and np.array_equal(known.constant, data)):
            name += "'"
            known = self.values.get(name)
        self.values[name] = Value(name, data.shape, data.dtype.name, quantization, data)
        return name

    def name_as_in_file(self, ends: Mapping[int, str]) -> list[str]:
        """Give the views that are outputs, by their tensors, the names of the tensors; return these names.

        Another view that has the name of the tensor takes that of the output.
        """
        own = {name: self.model.tensors[number].name for number, name in ends.items()}
        names = own | {wanted: name for name, wanted in own.items()}
        self.values = {names.get(name, name): _renamed(value, names) for name, value in self.values.items()}
        for place, node in enumerate(self.nodes):
            inputs, outputs = (tuple(names.get(name, name) for name in side) for side in (node.inputs, node.outputs))
            self.nodes[place] = replace(node, inputs=inputs, outputs=outputs)
        return list(own.values())

    def _reshaped(self, number: int, view: View, reader: str) -> View:
        """``view``, which holds the same elements in the same order as one that is there; from here on it is, too."""
        views = self._views[number]
        if view not in views:
            source = next(name for known, name in views.items() if known.steps == view.steps)
            self._add("Reshape", source, self.made(number, view), {}, reader)
        return view

    def _transposed(self, number: int, have: View, view: View, reader: str) -> None:
        """Makes a tensor whose elements are there in the order of ``have`` in that of ``view``, of the same factors."""
        views = self._views[number]
        source = self._reshaped(number, _unfolded(have), reader)
        result = _unfolded(view)
        if all(known.steps != result.steps for known in views):
            perm = tuple(have.order.index(axis) for axis in view.order)
            self._add("Transpose", views[source], self.made(number, result), {"perm": perm}, reader)

    def _add(self, op_type: str, source: str, result: str, attributes: Mapping[str, Any], reader: str) -> None:
        self.nodes.append(Node(f"layout:{result}", op_type, (source,), (result,), attributes, (reader,), integer=True))


def _renamed(value: Value, names: Mapping[str, str]) -> Value:
    """Return the value under its new name, without a layout where its bytes are in the model's own order."""
    name, layout = names.get(value.name, value.name), value.layout
    if layout == natural(value.shape).layout(name, ""):
        layout = None
    return replace(value, name=name, layout=layout)


def _unfolded(view: View) -> View:
    """A view as an array of its factors."""
    return replace(view, lies=tuple(view.factors[axis] for axis in view.order))


def _factored(view: View) -> View:
    """A tensor in the model's order, as an array of a view's factors."""
    return replace(view, order=tuple(range(len(view.factors))), lies=view.factors, axes=None)


def _moved(quantization: Quantization | None, view: View) -> Quantization | None:
    """The quantisation of a tensor in a view; of several scales where the view has their axis."""
    if quantization is None or quantization.per_tensor or view.axes is None:
        return quantization
    return replace(quantization, axis=view.axis(quantization.axis or 0))


class KeptOnCpuError(Exception):
    """Why the CPU runs an operator."""


class Unit:
    """One operator, for its reader, which makes nodes through it.

    ``wanted``: tensors of which planes are wanted; ``delegated``: XNNPACK takes the operator over.
    """

    def __init__(self, collection: Collection, operator: Operator, wanted: frozenset[int], delegated: bool) -> None:
        self.operator = operator
        self.options = operator.options
        self._collection = collection
        self._wanted = wanted
        self._delegated = delegated
        self._model = collection.model

    # Operands. ------------------------------------------------------------------------------------------------------

    def number(self, position: int) -> int:
        """The number of the tensor of an operand; -1 of one that is not there."""
        inputs = self.operator.inputs
        return inputs[position] if position < len(inputs) else -1

    def tensor(self, position: int) -> Tensor:
        return self._model.tensors[self.number(position)]

    def given(self, position: int) -> bool:
        return self.number(position) >= 0

    def known(self, position: int) -> NDArray[Any] | None:
        """What a constant operand holds; None where it is computed, or not there."""
        return self.tensor(position).data if self.given(position) else None

    def parameter(self, position: int, what: str, verb: str = "is") -> NDArray[Any]:
        """What a constant operand holds; raises KeptOnCpuError for one that is computed."""
        found = self.known(position)
        if found is None:
            raise KeptOnCpuError(f"its {what} '{self.tensor(position).name}' {verb} computed at run time")
        return found

    def shape(self, position: int) -> tuple[int, ...]:
        return self.tensor(position).shape

    def view(self, position: int) -> View:
        """How an operand lies: a computed one as it was made, a constant as in the model."""
        if self.tensor(position).data is not None:
            return natural(self.shape(position))
        return self._collection.view(self.number(position))

    def axes_view(self, position: int) -> View:
        """How an operand lies, and at least with axes of its own: else as in the model."""
        view = self.view(position)
        return view if view.axes is not None else natural(view.shape)

    def alone(self, operand: int) -> Callable[[NDArray[Any]], list[NDArray[Any]]]:
        """The operator on LiteRT with another array for one operand: makes its results."""
        number, outputs = self.number(operand), self.operator.outputs
        made = known_session(cut_model(self._model, [number], outputs), self.operator.name)

        def run(array: NDArray[Any]) -> list[NDArray[Any]]:
            return list(made.run({number: array}, outputs).values())

        return run

    def value(self, position: int, view: View) -> str:
        return self._collection.value(self.number(position), view, self.operator.name)

    def held(self, position: int, label: str, data: NDArray[Any], quantization: Quantization | None) -> str:
        """The name of ``data``, made of a constant operand."""
        return self._collection.held(f"{self.tensor(position).name}:{label}", data, quantization)

    def together(self, positions: Sequence[int]) -> View:
        """A view with axes in which operands of one rank meet: planes where one of them lies so."""
        views = [self.axes_view(position) for position in positions if self.tensor(position).data is None]
        return next((view for view in views if view.moved), views[0])

    # Results. -------------------------------------------------------------------------------------------------------

    def result(self, index: int = 0) -> Tensor:
        return self._model.tensors[self.operator.outputs[index]]

    def free_view(self, index: int = 0) -> View:
        """How a result is best made that can be made in any view."""
        number = self.operator.outputs[index]
        shape = self._model.tensors[number].shape
        return planes(shape) if number in self._wanted else natural(shape)

    def node(
        self,
        op_type: str,
        inputs: Iterable[str],
        view: View,
        attributes: Mapping[str, Any] | None = None,
        index: int = 0,
        macs: int = 0,
        dtype: str = "",
    ) -> None:
        """A canonical node that makes result ``index`` in a view, of ``dtype`` where not of the model's."""
        operator = self.operator
        name = operator.name if len(operator.outputs) == 1 else f"{operator.name}:{index}"
        result = self._collection.made(operator.outputs[index], view, dtype=dtype)
        same = op_type in _UNROUNDED or (op_type in _BY_XNNPACK and self._delegated)
        rule = {} if same else {"numerics": "fixed"}
        nodes, all_attributes = (operator.name,), {**rule, **(attributes or {})}
        found = Node(name, op_type, tuple(inputs), (result,), all_attributes, nodes, macs=macs, integer=True)
        self._collection.nodes.append(found)

    def activation(self) -> dict[str, Any]:
        """Attributes of a fused activation; raises KeptOnCpuError for one that cannot be fused."""
        number = getattr(self.options, "fusedActivationFunction", 0)
        if number in ACTIVATIONS:
            return limits(self.result(), ACTIVATIONS[number])
        if number:
            raise KeptOnCpuError(f"its activation is {_OTHERS.get(number, number)}")
        return {}


def limits(result: Tensor, bounds: tuple[float, float]) -> dict[str, Any]:
    """Attributes that clamp a result to real ``bounds`` as LiteRT's reference kernels do.

    Those round bound / scale in float32, ties away from zero (CalculateActivationRangeQuantized); XNNPACK rounds ties
    to even, so that only one of the two is meant where they differ.
    """
    quantization = result.quantization
    if quantization is None or not quantization.per_tensor:
        return {}
    scale = np.float32(quantization.scale)
    attributes: dict[str, Any] = {}
    ends = []
    for bound, away in zip(bounds, activation_steps(bounds, scale), strict=True):
        if np.isfinite(bound) and away != steps(np.float32(bound), scale, 0, np.int32):
            attributes["numerics"] = "fixed"
        ends.append(away * float(scale) if np.isfinite(bound) else bound)
    return {**attributes, "activation": "Relu" if bounds == ACTIVATIONS[1] else ("Clip", *ends)}


Reader = Callable[[Unit], None]
"""Makes the canonical nodes of an operator; or makes none and raises KeptOnCpuError."""
