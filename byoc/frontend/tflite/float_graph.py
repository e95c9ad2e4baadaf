"""ONNX graph that a float TensorFlow Lite model becomes, and its operators during conversion.

Tensors of rank four that a window operator or an element-wise operator after it makes have channels
first. Tensors that do not depend on an input, such as decompressed weights, are computed by LiteRT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, numpy_helper
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
    np_dtype_to_tensor_dtype,
)

from byoc.frontend.tflite.file import TfliteModel, TFLiteOperator
from byoc.runtimes.litert_process import LiteRTModel
from isa.errors import InputError

OPSET = 20
IR_VERSION = 9
CHANNELS_FIRST = (0, 3, 1, 2)
_CHANNELS_LAST = (0, 2, 3, 1)
_ACTIVATIONS: Mapping[int, tuple[str, tuple[float, ...]]] = {
    1: ("Relu", ()),
    2: ("Clip", (-1.0, 1.0)),
    3: ("Clip", (0.0, 6.0)),
}
"""ONNX operator and its constant operands by the number of a fused activation in the schema.

LiteRT's kernels ignore the other activations or reject them.
"""


def find_fixed(model: TfliteModel, given: Iterable[int] = ()) -> set[int]:
    """Return the tensors of a model that do not depend on its inputs, except ``given`` ones."""
    found = {number for number, tensor in enumerate(model.tensors) if tensor.constant} | set(given)
    for operator in model.operators:
        given = [number for number in operator.inputs if number >= 0]
        if operator.kind == "SHAPE" or (given and found.issuperset(given)):
            found.update(operator.outputs)
    return found


class FloatGraph:
    """Nodes and constants of the ONNX model, and the names of tensors in both orders of axes."""

    def __init__(self, model: TfliteModel, given: Mapping[int, NDArray[Any]] | None = None) -> None:
        self.model = model
        self._given = given
        self._fixed = find_fixed(model, given or ())
        self._nodes: list[NodeProto] = []
        self._names: set[str] = set()
        self._constants: dict[str, NDArray[Any]] = {}
        self._natural = {number: model.tensors[number].name for number in model.inputs}
        self._planes: dict[int, str] = {}
        self._taken = set(model.numbers)

    def convert(self, converters: Mapping[str, Callable[[FloatOperation], None]]) -> None:
        """Convert all operators; raise InputError that names those without an ONNX form."""
        computed = [one for one in self.model.operators if not self.is_fixed(one)]
        unsupported = sorted({one.kind for one in computed} - converters.keys())
        if unsupported:
            raise InputError(
                f"it is a float model, and {', '.join(unsupported)} cannot be converted to ONNX; "
                "convert the model with full integer quantisation, or export it as ONNX"
            )
        for one in computed:
            converters[one.kind](FloatOperation(self, one))

    def branch(self, number: int, operands: Sequence[int]) -> FloatGraph:
        """Return the graph of subgraph ``number``, whose nodes become nodes of this graph."""
        model = self.model.others[number - 1]
        values = {
            place: self.value(operand)
            for place, operand in zip(model.inputs, operands, strict=True)
        }
        given = {place: value for place, value in values.items() if value is not None}
        inner = FloatGraph(model, given)
        inner._natural = {
            place: self.natural(operand)
            for place, operand in zip(model.inputs, operands, strict=True)
            if place not in given
        }
        inner._nodes, inner._constants = self._nodes, self._constants
        inner._names, inner._taken = self._names, self._taken | inner._taken
        return inner

    def is_fixed(self, operator: TFLiteOperator) -> bool:
        """Return True if the results of an operator do not depend on the model's inputs."""
        return self._fixed.issuperset(operator.outputs)

    @cached_property
    def _computed(self) -> dict[int, NDArray[Any]]:
        """Return the tensors that LiteRT computes from constants, by number."""
        tensors = self.model.tensors
        given = dict(self._given or {})
        wanted = sorted(n for n in self._fixed - given.keys() if not tensors[n].constant)
        if not wanted:
            return given
        if self._given is not None:
            raise InputError(
                f"subgraph '{self.model.name}' computes '{tensors[wanted[0]].name}' from constants "
                "at run time; convert the model with float32 weights"
            )
        session = LiteRTModel(self.model.content, "builtin", keep=True)
        zeros = {
            number: np.zeros(tensors[number].shape, tensors[number].dtype)
            for number in self.model.inputs
        }
        return session.run(zeros, wanted)

    def value(self, number: int) -> NDArray[Any] | None:
        """Return the elements of a fixed tensor: floats, or integers without a scale."""
        if number not in self._fixed:
            return None
        tensor = self.model.tensors[number]
        data = self._computed.get(number, tensor.data)
        if data is None:
            raise InputError(
                f"constant '{tensor.name}' has elements of {tensor.dtype}; convert the model with "
                "float16 or int8 weights"
            )
        found = tensor.quantization
        if found is None or data.dtype.kind == "f":
            return data.astype(np.float32) if data.dtype == np.float16 else data
        scale = np.asarray(found.scale, np.float32)
        zero = np.asarray(found.zero_point)
        if scale.size > 1:
            shape = [1] * data.ndim
            shape[found.axis or 0] = scale.size
            scale = scale.reshape(shape)
            zero = zero.reshape(shape) if zero.size > 1 else zero
        return ((data.astype(np.float32) - zero.astype(np.float32)) * scale).astype(np.float32)

    def constant(self, array: NDArray[Any]) -> str:
        """Return the name of a new constant of the ONNX model."""
        name = f"constant_{len(self._constants)}"
        while name in self._taken:
            name += "_"
        self._constants[name] = np.ascontiguousarray(array)
        return name

    def node(
        self, kind: str, inputs: Sequence[str], count: int = 1, origin: str = "", **attributes: Any
    ) -> str:
        """Add a node with new result names; return the first, the others are ``NAME_1``, ...

        ``origin`` is the operator of the file that it computes; its first node has its name.
        """
        name = origin if origin and origin not in self._names else f"{kind}_{len(self._nodes)}"
        while name in self._taken:
            name += "_"
        self._names.add(name)
        names = [name, *(f"{name}_{number}" for number in range(1, count))]
        self._nodes.append(make_node(kind, inputs, names, name=name, **attributes))
        return name

    def natural(self, number: int) -> str:
        """Return the name of a tensor with the file's order of axes."""
        if number not in self._natural:
            fixed = self.value(number)
            self._natural[number] = (
                self.node("Transpose", [self._planes[number]], perm=_CHANNELS_LAST)
                if fixed is None
                else self.constant(fixed)
            )
        return self._natural[number]

    def planes(self, number: int) -> str:
        """Return the name of a tensor of rank four with channels first.

        A constant of lower rank has the axes that broadcasting adds.
        """
        if number not in self._planes:
            fixed = self.value(number)
            if fixed is None:
                name = self.node("Transpose", [self.natural(number)], perm=CHANNELS_FIRST)
            else:
                whole = fixed.reshape((1,) * (4 - fixed.ndim) + fixed.shape)
                name = self.constant(whole.transpose(CHANNELS_FIRST))
            self._planes[number] = name
        return self._planes[number]

    def has_planes(self, number: int) -> bool:
        """Return True if a tensor exists with channels first, or is a constant."""
        return number in self._planes or number in self._fixed

    def define(self, number: int, name: str, *, planes: bool) -> None:
        """State that the node result ``name`` is a tensor of the file."""
        (self._planes if planes else self._natural)[number] = name

    def finish(self) -> ModelProto:
        """Return the ONNX model of all nodes that were added."""
        tensors = self.model.tensors
        outputs = dict.fromkeys(self.model.outputs)
        for number in outputs:
            name = self.natural(number)
            self._nodes.append(make_node("Identity", [name], [tensors[number].name]))
        inputs, results = (
            [
                make_tensor_value_info(
                    tensors[number].name,
                    np_dtype_to_tensor_dtype(np.dtype(tensors[number].dtype)),
                    tensors[number].shape,
                )
                for number in numbers
            ]
            for numbers in (self.model.inputs, outputs)
        )
        constants = [numpy_helper.from_array(data, name) for name, data in self._constants.items()]
        graph = make_graph(self._nodes, self.model.name or "model", inputs, results, constants)
        return make_model(graph, opset_imports=[make_opsetid("", OPSET)], ir_version=IR_VERSION)


class FloatOperation:
    """Operator of the file while it is converted: operands, options, and the nodes for it."""

    def __init__(self, converter: FloatGraph, operator: TFLiteOperator) -> None:
        self.add = partial(converter.node, origin=operator.name)
        self.constant = converter.constant
        self.options = operator.options
        self.kind = operator.kind
        self._converter = converter
        self._operator = operator

    @property
    def count(self) -> int:
        """Number of operands."""
        return len(self._operator.inputs)

    @property
    def results(self) -> int:
        """Number of results."""
        return len(self._operator.outputs)

    def is_given(self, position: int) -> bool:
        """Return True if the operand is present."""
        return position < self.count and self._operator.inputs[position] >= 0

    def shape(self, position: int) -> tuple[int, ...]:
        return self._converter.model.tensors[self._operator.inputs[position]].shape

    def result(self, number: int = 0) -> tuple[int, ...]:
        """Return the shape of a result."""
        return self._converter.model.tensors[self._operator.outputs[number]].shape

    def result_dtype(self) -> np.dtype[Any]:
        return np.dtype(self._converter.model.tensors[self._operator.outputs[0]].dtype)

    def natural(self, position: int) -> str:
        return self._converter.natural(self._operator.inputs[position])

    def planes(self, position: int) -> str:
        return self._converter.planes(self._operator.inputs[position])

    def value(self, position: int) -> NDArray[Any] | None:
        """Return the elements of an operand, or None if it depends on the model's inputs."""
        return self._converter.value(self._operator.inputs[position])

    def parameter(self, position: int, what: str) -> NDArray[Any]:
        """Return the elements of an operand; raise InputError if they are not constant."""
        found = self.value(position)
        if found is None:
            raise InputError(
                f"{self._operator.name}: its {what} is computed at run time; only a constant one "
                "can be converted to ONNX"
            )
        return found

    def is_planar(self, positions: Sequence[int]) -> bool:
        """Return True if operands and result should have channels first.

        All computed operands then have rank four, and one of them exists in that order.
        """
        numbers = [self._operator.inputs[position] for position in positions]
        computed = [n for n in numbers if self._converter.value(n) is None]
        return (
            len(self.result()) == 4
            and all(len(self._converter.model.tensors[n].shape) == 4 for n in computed)
            and any(self._converter.has_planes(n) for n in computed)
        )

    def operands(self, positions: Sequence[int], *, planes: bool) -> list[str]:
        take = self.planes if planes else self.natural
        return [take(position) for position in positions]

    def branch(
        self, number: int, converters: Mapping[str, Callable[[FloatOperation], None]]
    ) -> list[str]:
        """Convert a subgraph that reads all operands but the first; return its results' names."""
        graph = self._converter.branch(number, self._operator.inputs[1:])
        graph.convert(converters)
        return [graph.natural(result) for result in graph.model.outputs]

    def activate(self, name: str) -> str:
        """Add the fused activation, if any; raise InputError for an unknown one."""
        number = getattr(self.options, "fusedActivationFunction", 0)
        if not number:
            return name
        if number not in _ACTIVATIONS:
            raise InputError(f"{self._operator.name}: its activation {number} has no ONNX form")
        kind, limits = _ACTIVATIONS[number]
        return self.add(
            kind, [name, *(self.constant(np.array(limit, np.float32)) for limit in limits)]
        )

    def finish(self, name: str, *, planes: bool = False, number: int = 0) -> None:
        """State that ``name`` is a result of the operator."""
        self._converter.define(self._operator.outputs[number], name, planes=planes)
