"""Run parts of an embedded model on ONNX Runtime or LiteRT, depending on its format.

No other module of the host side distinguishes the formats.

ONNX models run on ONNX Runtime, TensorFlow Lite models on LiteRT. LiteRT uses kernels that round as
the machine's numerics do: reference kernels for ``fixed``, and for ``onnxruntime`` its default,
XNNPACK where possible. The parts are host parts, which have a simple cost model, and the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from byoc.compiled import HostPart
from byoc.estimate.constants import (
    HOST_BYTES_PER_CYCLE,
    HOST_CYCLES_PER_NODE,
    HOST_MACS_PER_CYCLE,
    MICROCONTROLLER_ELEMENT_CYCLES,
    MICROCONTROLLERS,
)
from byoc.frontend.onnx.cutting import Cutter
from byoc.graph import Graph, Node
from byoc.operators.host_steps import LOOKUPS, count_scalar_steps
from byoc.package.package import KNOWN, Count, Model, Package
from byoc.runtimes.protobuf import hold_constants, read_defined_results
from byoc.runtimes.session import OnnxRuntimeSession

if TYPE_CHECKING:
    from byoc.frontend.tflite.cutting import LitertFile
    from byoc.runtimes.litert import Resolver

Numerics = Literal["onnxruntime", "fixed"]
Tensors = Mapping[str, NDArray[Any]]
OpenPart = Callable[[Sequence[str], Sequence[str]], "PartSession"]
"""Function that opens the part of a model between given inputs and outputs."""


class PartSession(Protocol):
    """Session that runs one part of a model."""

    def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """Run one part of a model and return its outputs by name.

        ``tensors`` has at least its inputs. All have the graph's layout.
        """


def opener(model: Model, graph: Graph, numerics: Numerics = "onnxruntime") -> OpenPart:
    """Return a function that opens the part of ``model`` between given inputs and outputs.

    Inputs and outputs are tensors of ``graph``, which was imported from ``model``. The part runs on
    the runtime of the model's format. All parts share one copy of the large constants. Raises
    InputError for a part that the runtime rejects.
    """
    if not isinstance(model, onnx.ModelProto):
        from byoc.frontend.tflite.cutting import LitertPart

        resolver = _resolver(numerics)
        return lambda inputs, outputs: LitertPart(model, graph, inputs, outputs, resolver)
    shared, held = hold_constants(model)
    cutter = Cutter(shared, graph, held)
    return lambda inputs, outputs: _OnnxPart(cutter.cut(inputs, outputs), inputs, outputs)


def open_file(model: Model, graph: Graph, numerics: Numerics = "onnxruntime") -> LitertFile | None:
    """Return a session of the user's file that carries the file's variables.

    The result is None for a model whose state is only inputs and outputs.
    """
    if isinstance(model, onnx.ModelProto) or not model.variables:
        return None
    from byoc.frontend.tflite.cutting import LitertFile

    return LitertFile(model, graph, _resolver(numerics))


def _resolver(numerics: Numerics) -> Resolver:
    return "reference" if numerics == "fixed" else "default"


class _OnnxPart:
    """Session that runs one part of a model on ONNX Runtime."""

    def __init__(self, cut: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._session = OnnxRuntimeSession(cut)

    def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """Run one part of a model on ONNX Runtime and return its outputs by name.

        See :meth:`PartSession.run`.
        """
        return self._session.run(self._outputs, {name: tensors[name] for name in self._inputs})


def is_verified_by(model: Model, numerics: Numerics) -> bool:
    """Return True if the runtime of a model's format rounds as ``numerics`` do."""
    return numerics == "onnxruntime" or not isinstance(model, onnx.ModelProto)


def runtime_name(model: Model, numerics: Numerics) -> str:
    if isinstance(model, onnx.ModelProto):
        return f"ONNX Runtime {version('onnxruntime')}, integer operators"
    kernels = {
        "reference": "reference kernels (BUILTIN_REF)",
        "default": "default resolver (XNNPACK)",
    }
    return f"LiteRT {version('ai-edge-litert')}, {kernels[_resolver(numerics)]}"


def definitions(model: Model) -> Mapping[str, str]:
    """Return the tensors whose reference values come from the definition of an instruction.

    Each is mapped to the tensor that the runtime's own float operator computes.
    """
    return read_defined_results(model) if isinstance(model, onnx.ModelProto) else {}


def estimate_cycles(graph: Graph, part: HostPart) -> int:
    """Estimate the cycles of a host part, with rates that were chosen and not measured.

    Each node costs its start, its MACs, and the bytes of its operands and results. A look-up reads
    as many bytes of its table as it writes. Searches and sums also cost a cycle for each
    comparison or addition.
    """
    total = 0
    for node in part.nodes:
        moved = sum(_nbytes(graph, name) for name in (*node.inputs, *node.outputs))
        if node.op_type in LOOKUPS and not node.integer:
            table = _nbytes(graph, node.inputs[0]) if len(node.inputs) > 1 else 0
            moved += _nbytes(graph, node.outputs[0]) - table  # the CPU reads what it writes
        total += math.ceil(
            HOST_CYCLES_PER_NODE
            + node.macs / HOST_MACS_PER_CYCLE
            + moved / HOST_BYTES_PER_CYCLE
            + count_scalar_steps(graph, node)
        )
    return total


def estimate_microcontroller_cycles(graph: Graph, nodes: Iterable[Node], cpu: str) -> int:
    """Estimate the cycles of ``nodes`` on a key of ``MICROCONTROLLERS`` that runs CMSIS-NN.

    It assumes int8 operands and weights that the CPU reads without waiting.
    """
    per_mac, per_result, per_grouped_mac = MICROCONTROLLERS[cpu]
    total = 0.0
    for node in nodes:
        results = sum(graph.values[name].elements for name in node.outputs)
        if not node.macs:
            total += results * MICROCONTROLLER_ELEMENT_CYCLES
        elif node.attributes.get("group", 1) > 1:
            total += node.macs * per_grouped_mac
        else:
            total += node.macs * per_mac + results * per_result
    return math.ceil(total)


def _nbytes(graph: Graph, name: str) -> int:
    """Return the size of a tensor in bytes.

    The result is 0 for types without a fixed size (sequences, optional values).
    """
    value = graph.values[name]
    try:
        return value.elements * np.dtype(value.dtype).itemsize
    except TypeError:
        return 0


class Oracle:
    """Reference values of chosen tensors of one quantised model, for any number of inputs.

    An ONNX ``model`` must have its fused activations as integer
    clamps, as a package's embedded model has
    (:func:`byoc.frontend.onnx.rewriting.definitions.integer_clamps`). Only the nodes that ``names``
    depend on run, and only ``names`` are kept. Tensors have the layout of the graph.
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        names: Sequence[str],
        inputs: Sequence[str] = (),
        numerics: Numerics = "onnxruntime",
        opened: OpenPart | None = None,
    ) -> None:
        """Prepare the computation of reference values for the tensors ``names``.

        ``inputs`` are the tensors passed to :meth:`values`, by default the graph's inputs. Starting
        at the inputs of a region isolates that region from errors of earlier ones. ``opened`` opens
        the part at each call of :meth:`values`, by default only at the first.
        """
        self.inputs = tuple(inputs or graph.inputs)
        self.names = tuple(dict.fromkeys(names))
        self._opened = opened or cache(opener(model, graph, numerics))

    def values(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """Return the reference values of the oracle's tensors, in the model's element types.

        ``tensors`` has at least the inputs.
        """
        return self._opened(self.inputs, self.names).run(tensors) if self.names else {}


@dataclass(frozen=True)
class DefinedUnits:
    """Comparison of ONNX Runtime's results with results by the ISA's definitions.

    The units of one operator type are checked against the definition. On the same operands, ONNX
    Runtime's float operators differ in ``differences`` of ``elements``, by at most ``max_abs_diff``
    steps.
    """

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN

    op_type: Annotated[str, Field(max_length=1 << 16)]
    units: Count
    elements: Count
    differences: Count
    max_abs_diff: Count

    @classmethod
    def count_pairs(
        cls, op_type: str, pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]
    ) -> DefinedUnits:
        """Summarise pairs of an operator's results: by its definition, and by ONNX Runtime."""
        gaps = [np.abs(ours.astype(np.int64) - own) for ours, own in pairs]
        return cls(
            op_type=op_type,
            units=len(pairs),
            elements=sum(gap.size for gap in gaps),
            differences=sum(int(np.count_nonzero(gap)) for gap in gaps),
            max_abs_diff=max(int(gap.max(initial=0)) for gap in gaps),
        )


def open_definitions(package: Package, opened: OpenPart | None = None) -> Oracle:
    """Return the oracle of operators' results by definition, and of ONNX Runtime's own ones.

    ``opened`` is as for :class:`Oracle`.
    """
    names = definitions(package.shared_model)
    return Oracle(package.shared_model, package.graph, (*names, *names.values()), opened=opened)


def compare_defined_units(
    package: Package, tensors: Tensors, oracle: Oracle
) -> tuple[DefinedUnits, ...]:
    """Compare results by the ISA's definitions with ONNX Runtime's, by operator type.

    ``tensors`` are network inputs, and ``oracle`` is the result of :func:`open_definitions`.
    """
    values = oracle.values(tensors)
    pairs: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    for name, own in definitions(package.shared_model).items():
        pairs.setdefault(package.graph.producers[name].op_type, []).append(
            (values[name], values[own])
        )
    return tuple(DefinedUnits.count_pairs(op_type, found) for op_type, found in pairs.items())


def oracle_text(
    package: Package, units: Sequence[DefinedUnits] = (), numerics: Numerics = "onnxruntime"
) -> str:
    """Return the text ``check.oracle`` of the run report.

    ``units`` are the result of :func:`compare_defined_units`.
    """
    text = runtime_name(package.shared_model, numerics)
    count = package.rewritten_activations
    if count:
        text += (
            f"; {count} fused activation{'s' * (count > 1)} rewritten as integer operator and clamp"
        )
    if units:
        total, differ = (
            sum(getattr(unit, name) for unit in units) for name in ("units", "differences")
        )
        elements = sum(unit.elements for unit in units)
        many = "s" * (total > 1)
        text += (
            f"; {total} unit{many} held to the definition of the instruction, from which ONNX "
            "Runtime's float "
        )
        text += (
            f"operator{many} of the same operands {'differ' if many else 'differs'} in {differ:,} "
            f"of {elements:,} "
        )
        text += "elements" + (
            f" by at most {max(unit.max_abs_diff for unit in units)}" if differ else ""
        )
    return text
