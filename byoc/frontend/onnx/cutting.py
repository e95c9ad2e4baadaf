"""Cut parts out of an ONNX model by tensor names."""

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper

from byoc.frontend.onnx.reading import list_captured_names
from byoc.graph import Graph, Value
from byoc.runtimes.protobuf import read_defined_results
from isa.errors import InputError


class Cutter:
    """Cutter that extracts parts of an ONNX model between named tensors as models.

    It indexes the model once for any number of parts. Raises InputError if an input's shape differs
    between the package's graph and its model.
    """

    def __init__(
        self, model: onnx.ModelProto, graph: Graph, held: Sequence[NDArray[Any]] = ()
    ) -> None:
        """Index ``model``, from which ``graph`` was imported, and keep its ``held`` constants."""
        self._held = held
        _check_inputs(model, graph)
        self._model = model
        units = {
            own: graph.values[name]
            for name, own in read_defined_results(model).items()
            if name in graph.values
        }
        self._values = {**graph.values, **units}
        self._nodes = list(model.graph.node)
        self._constants = list(model.graph.initializer)
        self._makers = {
            name: place for place, node in enumerate(self._nodes) for name in node.output if name
        }
        self._places = {tensor.name: place for place, tensor in enumerate(self._constants)}

    def cut(self, inputs: Iterable[str], outputs: Iterable[str]) -> onnx.ModelProto:
        """Return the nodes between tensors ``inputs`` and ``outputs``, with constants, as a model.

        The node order is kept, so equal cuts give equal models. Float results that ONNX Runtime
        must not fuse become outputs too.
        """
        model = self._model
        sources = list(inputs)
        results = list(outputs)
        nodes, read = self._find_between(set(sources), results)
        used = (
            self._places[name]
            for name in {*read, *results}.difference(sources)
            if name in self._places
        )
        part = helper.make_graph(
            nodes,
            model.graph.name or "network",
            [self._information(self._values[name], name) for name in sources],
            [self._information(self._values[name], name) for name in results]
            + [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
                for name in self._unfusable(nodes)
            ],
            [self._constants[place] for place in sorted(used)],
        )
        cut = helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
        cut.functions.extend(model.functions)
        return cut

    def _find_between(
        self, sources: set[str], results: Iterable[str]
    ) -> tuple[list[onnx.NodeProto], set[str]]:
        """Return the nodes from ``sources`` to ``results`` and all names that they read."""
        chosen = set[int]()
        read = set[str]()
        waiting = [name for name in results if name not in sources]
        while waiting:
            place = self._makers.get(waiting.pop())
            if place is not None and place not in chosen:
                chosen.add(place)
                names = {*self._nodes[place].input, *list_captured_names(self._nodes[place])}
                waiting += names - sources - read
                read |= names
        return [self._nodes[place] for place in sorted(chosen)], read

    def _unfusable(self, nodes: Iterable[onnx.NodeProto]) -> list[str]:
        """Return float results that ONNX Runtime would fuse into operators that fail to run.

        These are average pooling with dilations, and products with stacks of matrices quantised per
        channel. An operator whose result is an output of the model is not fused.
        """
        dequantized = {node.output[0]: node for node in nodes if node.op_type == "DequantizeLinear"}
        found = []
        for node in nodes:
            if node.op_type == "AveragePool":
                broken = any(
                    a.name == "dilations" and max(a.ints, default=1) > 1 for a in node.attribute
                )
            elif node.op_type == "MatMul" and node.input[1] in dequantized:
                weights, scale = (self._dims(name) for name in dequantized[node.input[1]].input[:2])
                broken = len(weights) > 2 and bool(scale)
            else:
                continue
            if broken and node.input[0] in dequantized:
                found.append(node.output[0])
        return found

    def _dims(self, constant: str) -> Sequence[int]:
        return self._constants[self._places[constant]].dims if constant in self._places else ()

    def _information(self, value: Value, name: str) -> onnx.ValueInfoProto:
        if value.dtype not in _element_types():
            return self._inferred.get(value.name, onnx.ValueInfoProto(name=value.name))
        shape = None if value.open else list(value.shape)
        return helper.make_tensor_value_info(name, _element_types()[value.dtype], shape)

    @cached_property
    def _inferred(self) -> dict[str, onnx.ValueInfoProto]:
        """Tensor types that onnx's shape inference finds, by name; needed for sequences."""
        return {
            found.name: found
            for found in onnx.shape_inference.infer_shapes(self._model).graph.value_info
        }


def _check_inputs(model: onnx.ModelProto, graph: Graph) -> None:
    """Raise InputError if an input's shape differs between a package's graph and its model."""
    for value in model.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        known = graph.values.get(value.name)
        if known is not None and not known.open and list(known.shape) != dims:
            raise InputError(
                f"the package's graph has input '{value.name}' of shape {list(known.shape)}, its "
                f"model of {dims}; compile the model again"
            )


@cache
def _element_types() -> dict[str, int]:
    """Return the ONNX element type of each NumPy type name."""
    elements = [
        number
        for number in onnx.TensorProto.DataType.values()
        if number != onnx.TensorProto.UNDEFINED
    ]
    return {helper.tensor_dtype_to_np_dtype(element).name: element for element in elements}
