"""Parts of an embedded model on the runtime of its format: the one place that asks which format it is.

ONNX models run on ONNX Runtime, TensorFlow Lite models on LiteRT: there with the kernels that round as the machine's
numerics do, reference ones for ``fixed``, and for ``onnxruntime`` LiteRT's default, XNNPACK where it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray

from byoc.frontend.onnx.cutting import cut_model
from byoc.frontend.onnx.rewriting.definitions import defined
from byoc.frontend.tflite.cutting import LitertPart
from byoc.frontend.tflite.file import TfliteModel
from byoc.graph import Graph
from byoc.litert import Resolver
from byoc.package.package import Model
from byoc.session import OnnxRuntimeSession
from isa.errors import InputError

Engine = Literal["onnxruntime", "reference"]
Numerics = Literal["onnxruntime", "fixed"]
Tensors = Mapping[str, NDArray[Any]]


class Session(Protocol):
    """A part, ready to run."""

    def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """Its outputs, by name; ``tensors`` holds at least its inputs. All lie as they do in the graph."""


def open_session(
    model: Model,
    graph: Graph,
    inputs: Sequence[str],
    outputs: Sequence[str],
    engine: Engine = "onnxruntime",
    numerics: Numerics = "onnxruntime",
) -> Session:
    """The part of ``model`` between tensors of ``graph``, which came from it, on the runtime of its format.

    ``engine`` ``reference``: on onnx's reference evaluator, or LiteRT's reference kernels. Raises InputError for a part
    that the runtime does not take.
    """
    if engine not in ("onnxruntime", "reference"):
        raise InputError(f"host '{engine}' is unknown; use onnxruntime or reference")
    if isinstance(model, TfliteModel):
        resolver = _resolver("fixed" if engine == "reference" else numerics)
        return LitertPart(model, graph, inputs, outputs, resolver)
    cut = cut_model(model, graph, inputs, outputs)
    return (_OnnxPart if engine == "onnxruntime" else _ReferencePart)(cut, graph, inputs, outputs)


def _resolver(numerics: Numerics) -> Resolver:
    return "reference" if numerics == "fixed" else "default"


class _OnnxPart:
    """A part on ONNX Runtime."""

    def __init__(self, cut: onnx.ModelProto, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._session = OnnxRuntimeSession(cut)

    def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """As :class:`Session`."""
        return self._session.run(self._outputs, {name: tensors[name] for name in self._inputs})


class _ReferencePart:
    """A part on onnx's reference evaluator."""

    def __init__(self, cut: onnx.ModelProto, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        from onnx.reference import ReferenceEvaluator

        foreign = sorted({node.domain for node in cut.graph.node if node.domain not in ("", "ai.onnx")})
        if foreign:
            raise InputError(f"--host reference does not know the operators of {foreign[0]}; use --host onnxruntime")
        self._inputs, self._dtypes = tuple(inputs), {name: graph.values[name].dtype for name in outputs}
        self._evaluator = ReferenceEvaluator(cut)

    def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """As :class:`Session`."""
        results = self._evaluator.run(list(self._dtypes), {name: tensors[name] for name in self._inputs})
        made = zip(self._dtypes.items(), results, strict=True)
        return {name: np.asarray(result, dtype=dtype) for (name, dtype), result in made}


def vouches(model: Model, numerics: Numerics) -> bool:
    """Whether the runtime of a model's format rounds as ``numerics`` do."""
    return numerics == "onnxruntime" or isinstance(model, TfliteModel)


def runtime_name(model: Model, numerics: Numerics) -> str:
    """The runtime and its kernels, for reports."""
    if not isinstance(model, TfliteModel):
        return f"ONNX Runtime {version('onnxruntime')}, integer operators"
    kernels = {"reference": "reference kernels (BUILTIN_REF)", "default": "default resolver (XNNPACK)"}
    return f"LiteRT {version('ai-edge-litert')}, {kernels[_resolver(numerics)]}"


def definitions(model: Model) -> tuple[str, ...]:
    """Tensors of a model that definitions of instructions compute, beside the runtime's own float operators."""
    return () if isinstance(model, TfliteModel) else tuple(defined(model))
