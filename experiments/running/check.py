"""How right a run is: every region output and model output against ONNX Runtime's integer operators, and accuracy.

Every element is compared, without tolerance, and the first difference is named. ``numerics = fixed`` computes with
other rounding rules than ONNX Runtime, on purpose; nothing here can vouch for it, so the check then compares nothing
and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.compiler import CompiledNetwork
from byoc.host.oracle import Oracle, oracle_text
from byoc.host.runtime import Runtime
from experiments.report.schema import Accuracy, Check, FirstDifference
from experiments.running.network import Network

Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class WrongElement:
    """One element that differs; ``coordinates`` index the tensor."""

    tensor: str
    coordinates: tuple[int, ...]
    actual: int | float
    expected: int | float


@dataclass(frozen=True)
class TensorComparison:
    """Counts over all tensors, and the first difference in the tensors' order, row-major."""

    tensors: int = 0
    elements: int = 0
    mismatches: int = 0
    max_abs_diff: int | float = 0
    first: WrongElement | None = None


def compare_tensors(actual: Tensors, expected: Tensors) -> TensorComparison:
    """Compare ``actual`` with ``expected``, in the order of ``expected``; equal shapes and types are demanded.

    NaN equals NaN. Raises ValueError when a tensor is missing or has another shape or element type: that is a bug of
    the program, not a difference in values.
    """
    result = TensorComparison()
    for name, wanted in expected.items():
        if name not in actual:
            raise ValueError(f"no value for tensor '{name}'")
        result = _add(result, name, actual[name], wanted)
    return result


def _add(so_far: TensorComparison, name: str, found: NDArray[Any], wanted: NDArray[Any]) -> TensorComparison:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        raise ValueError(
            f"tensor '{name}' is {found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
        )
    differs = found != wanted
    if np.issubdtype(found.dtype, np.floating):
        differs &= ~(np.isnan(found) & np.isnan(wanted))
    count = int(np.count_nonzero(differs))
    largest, first = so_far.max_abs_diff, so_far.first
    if count:
        largest = max(largest, _largest(found[differs], wanted[differs]))
        first = first or _first(name, differs, found, wanted)
    return TensorComparison(so_far.tensors + 1, so_far.elements + found.size, so_far.mismatches + count, largest, first)


def _largest(found: NDArray[Any], wanted: NDArray[Any]) -> int | float:
    if np.issubdtype(found.dtype, np.floating):
        gaps = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        return float(np.nan_to_num(gaps, nan=np.finfo(np.float64).max, posinf=np.finfo(np.float64).max).max())
    return int(np.abs(found.astype(np.int64) - wanted.astype(np.int64)).max())


def _first(name: str, differs: NDArray[np.bool_], found: NDArray[Any], wanted: NDArray[Any]) -> WrongElement:
    position = tuple(int(index) for index in np.unravel_index(int(np.argmax(differs)), differs.shape))
    return WrongElement(name, position, found[position].item(), wanted[position].item())


NO_ORACLE = "none (numerics = fixed rounds otherwise than ONNX Runtime)"


def checked_tensors(network: CompiledNetwork) -> tuple[str, ...]:
    """Region outputs in order of execution, then the model's outputs that are computed."""
    outputs = (name for region in network.partition.regions for name in region.outputs)
    computed = (name for name in network.graph.outputs if network.graph.values[name].constant is None)
    return tuple(dict.fromkeys((*outputs, *computed)))


def check_values(network: CompiledNetwork, inputs: Tensors, values: Tensors) -> Check:
    """Compare ``values``, every boundary tensor of one inference on ``inputs``, with the oracle."""
    if any(program.arch.numerics == "fixed" for program in network.programs.values()):
        return as_check(NO_ORACLE, TensorComparison())
    oracle = Oracle(network.package.model, network.graph, checked_tensors(network))
    return as_check(oracle_text(network.package), compare_tensors(values, oracle.values(inputs)))


def as_check(oracle: str, found: TensorComparison) -> Check:
    """The comparison in the form of the run report."""
    first = found.first and FirstDifference(
        tensor=found.first.tensor,
        coordinates=found.first.coordinates,
        dla=found.first.actual,
        oracle=found.first.expected,
    )
    return Check(
        oracle=oracle,
        tensors=found.tensors,
        elements=found.elements,
        mismatches=found.mismatches,
        max_abs_diff=found.max_abs_diff,
        first=first,
    )


def measure_accuracy(network: Network, compiled: CompiledNetwork, runtime: Runtime[Any]) -> Accuracy | None:
    """Top-1 accuracy over the network's data set, one image at a time; None where no labels are known.

    ``runtime`` runs ``compiled`` on the accelerator. ``differences`` counts images whose outputs differ in any bit
    between int8 on ONNX Runtime and the accelerator.
    """
    dataset = network.builtin.dataset() if network.builtin else None
    if dataset is None:
        return None
    images, labels = dataset
    (name,), output = compiled.graph.inputs, compiled.graph.outputs[0]
    oracle = Oracle(compiled.package.model, compiled.graph, [output])
    feeds = [{name: images[index : index + 1]} for index in range(len(images))]
    integer = [oracle.values(feed)[output] for feed in feeds]
    accelerator = [runtime.run(feed).outputs[output] for feed in feeds]
    return Accuracy(
        float_=None if network.float_model is None else _share(_float_outputs(network.float_model, feeds), labels),
        int8=_share(integer, labels),
        dla=_share(accelerator, labels),
        images=len(labels),
        differences=sum(not np.array_equal(a, b) for a, b in zip(integer, accelerator, strict=True)),
    )


def _float_outputs(model: ModelProto, feeds: Sequence[dict[str, NDArray[Any]]]) -> list[NDArray[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed)[0] for feed in feeds]


def _share(outputs: Sequence[NDArray[Any]], labels: NDArray[np.int64]) -> float:
    """Share of images whose largest output is the label's; the first of equal ones counts."""
    predicted = np.array([int(np.argmax(output)) for output in outputs])
    return float(np.count_nonzero(predicted == labels) / len(labels))
