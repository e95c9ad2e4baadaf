"""Parts of an embedded model on the runtime of its format: the one place that asks which format it is.

ONNX models run on ONNX Runtime, TensorFlow Lite models on LiteRT: there with the kernels that round as the machine's
numerics do, reference ones for ``fixed``, and for ``onnxruntime`` LiteRT's default, XNNPACK where it can. Such parts
are the host's, which have a simple price, and the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from byoc.frontend.onnx.cutting import Cutter
from byoc.frontend.tflite.file import TfliteModel
from byoc.graph import Graph
from byoc.package.package import KNOWN, Count, Model, Package
from byoc.partitioning.partition import HostPart
from byoc.runtimes.litert import Resolver
from byoc.runtimes.protobuf import defined
from byoc.runtimes.session import OnnxRuntimeSession
from isa.errors import InputError
from isa.reading import first_line

Engine = Literal["onnxruntime", "reference"]
Numerics = Literal["onnxruntime", "fixed"]
Tensors = Mapping[str, NDArray[Any]]


class Session(Protocol):
    """A part, ready to run."""

    def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """Its outputs, by name; ``tensors`` holds at least its inputs. All lie as they do in the graph."""


def opener(
    model: Model, graph: Graph, engine: Engine = "onnxruntime", numerics: Numerics = "onnxruntime"
) -> Callable[[Sequence[str], Sequence[str]], Session]:
    """Makes of inputs and outputs the part of ``model`` between these tensors of ``graph``, which came from it.

    It runs on the runtime of the model's format; ``engine`` ``reference``: on onnx's reference evaluator, or LiteRT's
    reference kernels. Raises InputError for a part that the runtime does not take.
    """
    if engine not in ("onnxruntime", "reference"):
        raise InputError(f"host '{engine}' is unknown; use onnxruntime or reference")
    if isinstance(model, TfliteModel):
        from byoc.frontend.tflite.cutting import LitertPart

        resolver = _resolver("fixed" if engine == "reference" else numerics)
        return lambda inputs, outputs: LitertPart(model, graph, inputs, outputs, resolver)
    kind, cutter = _OnnxPart if engine == "onnxruntime" else _ReferencePart, Cutter(model, graph)
    return lambda inputs, outputs: kind(cutter.cut(inputs, outputs), graph, inputs, outputs)


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
        self._inputs, self._values = tuple(inputs), {name: graph.values[name] for name in outputs}
        self._evaluator = ReferenceEvaluator(cut)

    def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """As :class:`Session`."""
        try:
            results = self._evaluator.run(list(self._values), {name: tensors[name] for name in self._inputs})
        except Exception as error:  # whatever an operator of its raises
            raise InputError(
                f"onnx's reference evaluator cannot run a part of it ({first_line(error)}); use --host onnxruntime"
            ) from error
        found = {}
        for (name, value), result in zip(self._values.items(), results, strict=True):
            found[name] = np.asarray(result, dtype=value.dtype)
            if not value.open and found[name].shape != value.shape:
                raise InputError(
                    f"onnx's reference evaluator makes '{name}' of shape {list(found[name].shape)} and not "
                    f"{list(value.shape)}; use --host onnxruntime"
                )
        return found


def vouches(model: Model, numerics: Numerics) -> bool:
    """Whether the runtime of a model's format rounds as ``numerics`` do."""
    return numerics == "onnxruntime" or isinstance(model, TfliteModel)


def runtime_name(model: Model, numerics: Numerics) -> str:
    if not isinstance(model, TfliteModel):
        return f"ONNX Runtime {version('onnxruntime')}, integer operators"
    kernels = {"reference": "reference kernels (BUILTIN_REF)", "default": "default resolver (XNNPACK)"}
    return f"LiteRT {version('ai-edge-litert')}, {kernels[_resolver(numerics)]}"


def definitions(model: Model) -> Mapping[str, str]:
    """Tensors of a model that definitions of instructions compute, and those of the runtime's own float operators."""
    return {} if isinstance(model, TfliteModel) else defined(model)


@dataclass(frozen=True)
class HostCost:
    """A rough CPU: MACs a cycle, bytes moved a cycle, and cycles to start an operator. The numbers are chosen."""

    macs_per_cycle: float = 8.0
    bytes_per_cycle: float = 4.0
    cycles_per_node: float = 1000.0


DEFAULT_COST = HostCost()


def estimate_cycles(graph: Graph, part: HostPart, cost: HostCost = DEFAULT_COST) -> int:
    """An estimate, never a measurement: for every node a start, its MACs, and each operand and result moved once."""
    total = 0
    for node in part.nodes:
        moved = sum(_nbytes(graph, name) for name in (*node.inputs, *node.outputs))
        total += math.ceil(cost.cycles_per_node + node.macs / cost.macs_per_cycle + moved / cost.bytes_per_cycle)
    return total


def _nbytes(graph: Graph, name: str) -> int:
    """Bytes of a tensor; 0 for what has no fixed size (sequences, optional values)."""
    value = graph.values[name]
    try:
        return value.elements * np.dtype(value.dtype).itemsize
    except TypeError:
        return 0


class Oracle:
    """Values of chosen tensors of one quantised model on its runtime, prepared once for any number of inputs.

    An ONNX ``model`` must have its fused activations as integer clamps, as a package's embedded model has
    (:func:`byoc.frontend.onnx.rewriting.definitions.integer_clamps`). Only the nodes that ``names`` depend on run, and
    only ``names`` are kept. Tensors lie as they do in the graph.
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        names: Sequence[str],
        inputs: Sequence[str] = (),
        numerics: Numerics = "onnxruntime",
    ) -> None:
        """``inputs`` are the tensors that :meth:`values` is given, the inputs of the graph by default.

        Starting at the inputs of a region isolates that region: a difference is then its own.
        """
        self.inputs = tuple(inputs or graph.inputs)
        self.names = tuple(dict.fromkeys(names))
        self._session = opener(model, graph, numerics=numerics)(self.inputs, self.names) if self.names else None

    def values(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """The named tensors, in the model's element types, for ``tensors``, which holds at least the inputs."""
        return {} if self._session is None else self._session.run(tensors)


@dataclass(frozen=True)
class DefinedUnits:
    """Units of one operator that are held to the definition of their instruction, and how far ONNX Runtime's own float
    operators, of the same operands, are from it: in ``differences`` of ``elements``, by ``max_abs_diff`` steps at most.
    """

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN

    op_type: Annotated[str, Field(max_length=1 << 16)]
    units: Count
    elements: Count
    differences: Count
    max_abs_diff: Count

    @classmethod
    def counted(cls, op_type: str, pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> DefinedUnits:
        """Of the results of each unit by its definition, and by ONNX Runtime."""
        gaps = [np.abs(ours.astype(np.int64) - own) for ours, own in pairs]
        return cls(
            op_type=op_type,
            units=len(pairs),
            elements=sum(gap.size for gap in gaps),
            differences=sum(int(np.count_nonzero(gap)) for gap in gaps),
            max_abs_diff=max(int(gap.max(initial=0)) for gap in gaps),
        )


def defined_values(package: Package, tensors: Tensors) -> Tensors:
    """Results of units that definitions compute, and ONNX Runtime's own of the same.

    ``tensors`` are the inputs of the network.
    """
    names = definitions(package.model)
    return Oracle(package.model, package.graph, (*names, *names.values())).values(tensors)


def defined_units(package: Package, tensors: Tensors) -> tuple[DefinedUnits, ...]:
    """The units that definitions compute, an entry an operator, on ``tensors``, the inputs of the network."""
    values = defined_values(package, tensors)
    kinds = {name: node.op_type for node in package.graph.nodes for name in node.outputs}
    pairs: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    for name, own in definitions(package.model).items():
        pairs.setdefault(kinds[name], []).append((values[name], values[own]))
    return tuple(DefinedUnits.counted(op_type, found) for op_type, found in pairs.items())


def oracle_text(package: Package, units: Sequence[DefinedUnits] = (), numerics: Numerics = "onnxruntime") -> str:
    """What the oracle is, for ``check.oracle`` of the run report; ``units`` as of :func:`defined_units`."""
    text = runtime_name(package.model, numerics)
    count = package.rewritten_activations
    if count:
        text += f"; {count} fused activation{'s' * (count > 1)} rewritten as integer operator and clamp"
    if units:
        total, differ = (sum(getattr(unit, name) for unit in units) for name in ("units", "differences"))
        elements, many = sum(unit.elements for unit in units), "s" * (total > 1)
        text += f"; {total} unit{many} held to the definition of the instruction, from which ONNX Runtime's float "
        text += f"operator{many} of the same operands {'differ' if many else 'differs'} in {differ:,} of {elements:,} "
        text += "elements" + (f" by at most {max(unit.max_abs_diff for unit in units)}" if differ else "")
    return text
