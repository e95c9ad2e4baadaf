"""The oracle: what ONNX Runtime's integer operators say that a network's integer tensors are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from byoc.frontend.onnx.cutting import cut_model
from byoc.graph import Graph
from byoc.host.session import OnnxRuntimeSession
from byoc.package.package import Package

if TYPE_CHECKING:
    import onnx

Tensors = Mapping[str, NDArray[Any]]


class Oracle:
    """Values of chosen tensors of one quantised model on ONNX Runtime, prepared once for any number of inputs.

    ``model`` must have its fused activations as integer clamps, as a package's embedded model has
    (:func:`byoc.frontend.onnx.rewriting.clamps.integer_clamps`). Only the nodes that ``names`` depend on run, and only
    ``names`` are kept.
    """

    def __init__(self, model: onnx.ModelProto, graph: Graph, names: Sequence[str], inputs: Sequence[str] = ()) -> None:
        """``inputs`` are the tensors that :meth:`values` is given, the inputs of the graph by default.

        Starting at the inputs of a region isolates that region: a difference is then its own.
        """
        self.inputs = tuple(inputs or graph.inputs)
        self.names = tuple(dict.fromkeys(names))
        self._session = OnnxRuntimeSession(cut_model(model, graph, self.inputs, self.names)) if self.names else None

    def values(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """The named tensors, in their ONNX element types, for ``tensors``, which holds at least the inputs."""
        if self._session is None:
            return {}
        return self._session.run(self.names, {name: tensors[name] for name in self.inputs})


def oracle_text(package: Package) -> str:
    """What the oracle is, for ``check.oracle`` of the run report."""
    import onnxruntime

    text = f"ONNX Runtime {onnxruntime.__version__}, integer operators"
    count = package.rewritten_activations
    if count == 0:
        return text
    return f"{text}; {count} fused activation{'s' * (count > 1)} rewritten as integer operator and clamp"
