"""Cut parts out of a TensorFlow Lite model and run them on LiteRT."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite.file import TfliteModel, TFLiteTensor
from byoc.frontend.tflite.variables import rewrite_model, select_operators
from byoc.graph import Graph, Value
from byoc.runtimes import litert
from byoc.runtimes.litert_process import LiteRTModel, get_session
from isa.errors import InputError

Tensors = Mapping[str, NDArray[Any]]


def cut_model(model: TfliteModel, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """Return a TensorFlow Lite model of the operators between two sets of tensors.

    Tensors keep their indices, and constants are included if something reads them. Equal cuts give
    equal models.
    """
    chosen = operators_between(model, inputs, outputs)
    whole = select_operators(model.content, chosen, inputs, outputs)
    whole.metadata, whole.metadataBuffer = None, None
    read = {number for place in chosen for number in model.operators[place].inputs}
    kept = {
        tensor.buffer
        for number, tensor in enumerate(whole.subgraphs[0].tensors)
        if number in {*read, *outputs}
    }
    kept |= {tensor.buffer for other in whole.subgraphs[1:] for tensor in other.tensors}
    whole.buffers = [
        buffer if place in kept else litert.schema().BufferT()
        for place, buffer in enumerate(whole.buffers)
    ]
    return litert.pack_model(whole)


def operators_between(
    model: TfliteModel, inputs: Iterable[int], outputs: Iterable[int]
) -> list[int]:
    """Return the indices of the operators that ``outputs`` depend on, stopping at ``inputs``."""
    sources = set(inputs)
    needed = set(outputs) - sources
    chosen = []
    for number in reversed(range(len(model.operators))):
        operator = model.operators[number]
        if needed.intersection(operator.outputs):
            chosen.append(number)
            needed.update(set(operator.inputs) - sources)
    return chosen[::-1]


class LitertPart:
    """Part of a TensorFlow Lite model between two sets of values, run by LiteRT.

    With ``reference`` kernels, a part that starts at the model's inputs runs the user's unchanged
    file. The interpreter then keeps every tensor.
    """

    def __init__(
        self,
        model: TfliteModel,
        graph: Graph,
        inputs: Sequence[str],
        outputs: Sequence[str],
        resolver: litert.Resolver,
    ) -> None:
        """Create a LiteRT interpreter for a part of a model.

        Raises InputError if LiteRT rejects the part.
        """
        self._graph = graph
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._numbers = {name: _number(model, graph.values[name]) for name in (*inputs, *outputs)}
        given = list(dict.fromkeys(self._numbers[name] for name in inputs))
        wanted = [
            number
            for number in dict.fromkeys(self._numbers[name] for name in outputs)
            if number not in given
        ]
        whole = resolver == "reference" and set(given) == set(model.inputs)
        self._wanted = wanted
        self._session: LiteRTModel | None = None
        if wanted:
            self._session = LiteRTModel(
                model.content if whole else cut_model(model, given, wanted), resolver, keep=whole
            )

    def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """Run a model part on LiteRT and return its outputs.

        ``tensors`` has at least the part's inputs.
        """
        values = self._graph.values
        numbers = self._numbers
        given = {numbers[name]: values[name].restore(tensors[name]) for name in self._inputs}
        found = given if self._session is None else given | self._session.run(given, self._wanted)
        for name in self._outputs:
            made = found[numbers[name]]
            value = values[name].in_model
            if made.shape != value.shape and not value.open:
                raise InputError(
                    f"the model makes '{name}' of shape {list(made.shape)}, and declares "
                    f"{list(value.shape)}; convert it again"
                )
        return {name: values[name].arrange(found[numbers[name]]) for name in self._outputs}


def read_initial_values(model: TfliteModel) -> dict[int, NDArray[Any]]:
    """Return the values of the variables before the first inference, by tensor index.

    LiteRT runs only the initialisation of the user's file. Raises InputError for a variable that it
    leaves without a value. State inside an operator begins with zeros.
    """
    inside = {one.before: model.tensors[one.inside] for one in model.variables if one.inside >= 0}
    zeros = {number: _zeros(tensor) for number, tensor in inside.items()}
    numbers = [one.before for one in model.variables if one.inside < 0]
    if not numbers:
        return zeros
    chosen = [
        number
        for number, operator in enumerate(model.file.operators)
        if operator.kind in ("CALL_ONCE", "VAR_HANDLE")
        or (operator.kind == "READ_VARIABLE" and operator.outputs[0] in numbers)
    ]
    content = rewrite_model(model.file.content, chosen, (), numbers, {})
    return zeros | get_session(content, "the initial values of the variables").run({}, numbers)


def _zeros(tensor: TFLiteTensor) -> NDArray[Any]:
    """Return the steps that stand for zeros, as LiteRT writes them: only int8 has a zero point."""
    shift = tensor.quantization if tensor.dtype == "int8" else None
    zero = 0 if shift is None else int(np.ravel(shift.zero_point)[0])
    return np.full(tensor.shape, zero, tensor.dtype)


class LitertFile:
    """The user's TensorFlow Lite file on LiteRT, which carries the state itself."""

    def __init__(self, model: TfliteModel, graph: Graph, resolver: litert.Resolver) -> None:
        self._open = partial(LiteRTModel, model.file.content, resolver)
        self._session = self._open()
        self._values = graph.values
        self._inputs = dict(zip(graph.inputs, model.file.inputs, strict=False))
        self._outputs = dict(zip(graph.outputs, model.file.outputs, strict=False))

    def run(self, tensors: Tensors, *, carry: bool) -> dict[str, NDArray[Any]]:
        """Run an inference and return the outputs of the file, in the graph's layout.

        It starts with the initial state, or with ``carry`` with that of the inference before.
        """
        if not carry:
            self._session = self._open()
        values = self._values
        given = {n: values[name].restore(tensors[name]) for name, n in self._inputs.items()}
        found = self._session.run(given, list(self._outputs.values()), carry=True)
        return {name: values[name].arrange(found[n]) for name, n in self._outputs.items()}


def _number(model: TfliteModel, value: Value) -> int:
    name = value.name if value.layout is None else value.layout.tensor
    if name not in model.numbers:
        raise InputError(f"the model has no tensor '{name}'; compile the model again")
    return model.numbers[name]
