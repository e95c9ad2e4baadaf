"""Checks of a run: regions, outputs, and accuracy.

Each region is compared with the integer operators of the model's runtime, on the inputs that it had
in the run: every element of every output, without tolerance. The check names the first difference.
Values that the CPU computed on both sides do not count as checked.

The model's outputs are compared with those of the whole model on its runtime as well. If the CPU
only quantises and dequantises, they must be equal. If it computes in float, the runtime may fuse
operators of the whole model in another way than operators of its parts; such differences are
counted and shown, but they are not the accelerator's.

``numerics = fixed`` deliberately computes with other rounding rules than ONNX Runtime: those of
LiteRT's reference kernels. These kernels are the oracle of a TensorFlow Lite model. An ONNX model
has no oracle for these rules, and its check says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.compiled import CompiledNetwork
from byoc.graph import Graph, Value
from byoc.host.runtime import NetworkRun, Tensors
from byoc.host.sessions import (
    DefinedUnits,
    Numerics,
    Oracle,
    compare_defined_units,
    is_verified_by,
    open_definitions,
    open_file,
    opener,
    oracle_text,
)
from byoc.operators.onnx_view import BOUNDARIES, DEQUANTIZE, QUANTIZE
from byoc.operators.rules import OTHER_ROUNDING
from byoc.package.interface import Interface
from byoc.package.package import Package
from byoc.runtimes.session import OnnxRuntimeSession
from experiments.report.checks import Accuracy, Check, FirstDifference, OutputsCheck, Suspicion
from experiments.running.in_memory import Feeds
from experiments.running.network import Network, read_samples
from isa.errors import InputError
from isa.progress import Progress, report_each, silent


@dataclass(frozen=True)
class TensorComparison:
    """Result of comparing tensors: counts over all of them, and the first difference.

    The order is that of the tensors, and row-major within a tensor.
    """

    tensors: int = 0
    elements: int = 0
    mismatches: int = 0
    max_abs_diff: int | float = 0
    first: FirstDifference | None = None

    def __add__(self, other: TensorComparison) -> TensorComparison:
        """Return the comparison of all tensors of both, with the first difference of ``self``."""
        return TensorComparison(
            self.tensors + other.tensors,
            self.elements + other.elements,
            self.mismatches + other.mismatches,
            max(self.max_abs_diff, other.max_abs_diff),
            self.first or other.first,
        )


def compare_tensors(actual: Tensors, expected: Tensors) -> TensorComparison:
    """Compare tensors by name in the order of ``expected``; NaN equals NaN.

    Raises InputError if a tensor has another shape or element type, because the model then has
    another shape than it declares.
    """
    result = TensorComparison()
    for name, wanted in expected.items():
        if name not in actual:
            raise ValueError(f"no value for tensor '{name}'")
        result += _compare(name, actual[name], wanted)
    return result


def _compare(name: str, found: NDArray[Any], wanted: NDArray[Any]) -> TensorComparison:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        raise InputError(
            f"tensor '{name}' is {found.dtype}{list(found.shape)}, expected "
            f"{wanted.dtype}{list(wanted.shape)}: "
            "the model declares another shape than it has; correct and export it again"
        )
    differs = found != wanted
    if np.issubdtype(found.dtype, np.floating):
        differs &= ~(np.isnan(found) & np.isnan(wanted))
    count = int(np.count_nonzero(differs))
    if not count:
        return TensorComparison(1, found.size)
    largest = _largest(found[differs], wanted[differs])
    return TensorComparison(1, found.size, count, largest, _first(name, differs, found, wanted))


def _largest(found: NDArray[Any], wanted: NDArray[Any]) -> int | float:
    if found.dtype.kind not in "biuf":  # text has no distance
        return 1
    if np.issubdtype(found.dtype, np.floating):
        gaps = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        return float(
            np.nan_to_num(gaps, nan=np.finfo(np.float64).max, posinf=np.finfo(np.float64).max).max()
        )
    return int(np.abs(found.astype(np.int64) - wanted.astype(np.int64)).max())


def _first(
    name: str, differs: NDArray[np.bool_], found: NDArray[Any], wanted: NDArray[Any]
) -> FirstDifference:
    position = tuple(
        int(index) for index in np.unravel_index(int(np.argmax(differs)), differs.shape)
    )
    both = (np.asarray(array[position]).item() for array in (found, wanted))
    ours, expected = (
        value if isinstance(value, int | float) and isfinite(value) else str(value)
        for value in both
    )
    return FirstDifference(tensor=name, coordinates=position, dla=ours, oracle=expected)


NO_ORACLE = "none (numerics = fixed rounds differently from ONNX Runtime)"


def check_values(network: CompiledNetwork, inputs: Tensors, run: NetworkRun[Any]) -> Check:
    """Compare one inference on ``inputs`` with the oracle, as :class:`Checker` does."""
    checker = Checker(network, once=True)
    checker.compare(inputs, run)
    return checker.result


class Checker:
    """Comparison of inferences of a network with the oracle.

    The oracle's sessions serve every inference, unless there is only ``once`` one: then only one
    session is open at a time. With ``carry`` the inferences are steps, and the oracle carries its
    own state from each to the next.
    """

    def __init__(
        self, network: CompiledNetwork, *, carry: bool = False, once: bool = False
    ) -> None:
        self._network = network
        self._carry = carry
        self._state: Tensors = {}
        package = network.package
        graph = package.graph
        self._found = self._whole = TensorComparison()
        self._units: list[tuple[DefinedUnits, ...]] = []
        self._checked = set[int]()
        self._vouched = not network.programs or is_verified_by(
            package.shared_model, network.arch.numerics
        )
        if not self._vouched:
            return
        regions = network.partition.regions
        self._names = [name for name in graph.outputs if graph.values[name].constant is None]
        self._exact = all(
            node.op_type in BOUNDARIES
            for part in network.partition.host_parts
            for node in part.nodes
        )
        self._boundary = (
            {*regions[0].inputs, *regions[0].outputs} - {*graph.inputs}
            if self._exact and len(regions) == 1
            else set()
        )
        numerics = network.arch.numerics
        wanted = [*self._names, *sorted(self._boundary)]
        opened = opener(package.shared_model, graph, numerics)
        self._opened = opened if once else cache(opened)
        self._oracle = Oracle(package.shared_model, graph, wanted, opened=self._opened)
        self._file = open_file(package.shared_model, graph, numerics)
        self._definitions = open_definitions(package, self._opened)

    def compare(self, inputs: Tensors, run: NetworkRun[Any]) -> None:
        """Compare every boundary tensor and every output of a run with the oracle.

        ``run`` is one inference on ``inputs``. The oracle runs the whole model with the inputs and
        outputs of the user's file. If the application exchanges integers, the oracle gets the real
        numbers that they represent, and the real outputs are compared. Tensors are compared in the
        form that the model gives them.
        """
        if not self._vouched:
            return
        graph = self._network.package.graph
        values = run.values
        interface = self._network.interface
        given = {**interface.real(interface.take_arrays(inputs)), **self._state}
        inputs = {name: graph.values[name].arrange(array) for name, array in given.items()}
        made = self._oracle.values(inputs)
        if self._file is not None:
            made |= self._file.run(inputs, carry=self._carry)
        known = {**inputs, **{name: made[name] for name in self._boundary}}
        self._checked.update(run.traces)
        expected = self._compute_region_outputs(run, known)
        found = compare_tensors(
            _restore_tensors(graph, {name: values[name] for name in expected}),
            _restore_tensors(graph, expected),
        )
        wanted = _restore_tensors(graph, {name: made[name] for name in self._names})
        whole = _compare_outputs(graph, interface.real(run.outputs), wanted)
        if self._carry:
            self._state = interface.next_state(given, wanted)
        if self._exact and found.mismatches == 0:
            found = replace(
                found,
                mismatches=whole.mismatches,
                max_abs_diff=whole.max_abs_diff,
                first=whole.first,
            )
        self._found += found
        self._whole += whole
        self._units.append(compare_defined_units(self._network.package, inputs, self._definitions))

    @property
    def result(self) -> Check:
        """Check of all inferences so far."""
        if not self._vouched:
            return Check(oracle=NO_ORACLE, tensors=0, elements=0, mismatches=0, max_abs_diff=0)
        network, found, whole = self._network, self._found, self._whole
        units = _add_units(self._units)
        return Check(
            oracle=oracle_text(network.package, units, network.arch.numerics),
            regions=len(self._checked),
            tensors=found.tensors,
            elements=found.elements,
            mismatches=found.mismatches,
            max_abs_diff=found.max_abs_diff,
            first=found.first,
            outputs=OutputsCheck(
                exact=self._exact,
                tensors=whole.tensors,
                elements=whole.elements,
                differences=whole.mismatches,
                max_abs_diff=whole.max_abs_diff,
            ),
            definitions=units,
        )

    def _compute_region_outputs(
        self, run: NetworkRun[Any], made: Tensors
    ) -> dict[str, NDArray[Any]]:
        """Return the oracle's outputs of the regions that ran, computed from their own inputs.

        ``made`` are the tensors of the oracle for the whole model. A region whose inputs equal the
        oracle's has the oracle's outputs.
        """
        values = run.values
        expected: dict[str, NDArray[Any]] = {}
        for region in self._network.partition.regions:
            if region.index not in run.traces:
                continue
            if made.keys() >= {*region.inputs, *region.outputs} and all(
                np.array_equal(made[name], values[name]) for name in region.inputs
            ):
                expected |= {name: made[name] for name in region.outputs}
            else:
                expected |= self._opened(region.inputs, region.outputs).run(values)
        return expected


def _compare_outputs(
    graph: Graph,
    outputs: Mapping[str, NDArray[Any]],
    wanted: Mapping[str, NDArray[Any]],
) -> TensorComparison:
    """Compare a run's outputs with the oracle's.

    Every element of an output with another shape, which only open shapes permit, is a mismatch.
    """
    elsewhere = {
        name
        for name, array in wanted.items()
        if graph.values[name].open and outputs[name].shape != array.shape
    }
    whole = compare_tensors(
        outputs, {name: array for name, array in wanted.items() if name not in elsewhere}
    )
    more = sum(wanted[name].size or 1 for name in elsewhere)
    return replace(whole, mismatches=whole.mismatches + more)


def _add_units(found: Sequence[Sequence[DefinedUnits]]) -> tuple[DefinedUnits, ...]:
    """Add the numbers of checked elements of several inferences, unit by unit."""
    return tuple(
        DefinedUnits(
            op_type=same[0].op_type,
            units=same[0].units,
            elements=sum(unit.elements for unit in same),
            differences=sum(unit.differences for unit in same),
            max_abs_diff=max(unit.max_abs_diff for unit in same),
        )
        for same in zip(*found, strict=True)
    )


def _restore_tensors(graph: Graph, tensors: Tensors) -> dict[str, NDArray[Any]]:
    return {name: graph.values[name].restore(array) for name, array in tensors.items()}


LEAST_DECIBELS = 10.0
MOST_OUTSIDE = MOST_SATURATED = 0.01
"""Shares of a tensor's elements above which a warning is given."""


def find_warnings(
    network: CompiledNetwork, inputs: Tensors, run: NetworkRun[Any]
) -> tuple[Suspicion, ...]:
    """Return warnings, with figures, about results that are bit-exact but suspicious."""
    found = find_value_warnings(network.package, network.interface, inputs, run)
    return (*found, *_check_cpu_nodes(network))


def find_value_warnings(
    package: Package, interface: Interface, inputs: Tensors, run: NetworkRun[Any]
) -> tuple[Suspicion, ...]:
    """Return warnings about the quantisation of a network, and about inputs and outputs."""
    graph = package.graph
    fidelity = package.fidelity
    found: list[Suspicion] = []
    if fidelity is not None and fidelity.calibration is not None and fidelity.calibration.random:
        figures = {"samples": float(fidelity.calibration.samples)}
        found.append(Suspicion(kind="uncalibrated", tensor="", figures=figures))
    if fidelity is not None:
        quiet = {name: level for name, level in fidelity.noise.items() if level < LEAST_DECIBELS}
        found += [
            Suspicion(kind="noise", tensor=name, figures={"decibels": level})
            for name, level in quiet.items()
        ]
        file = fidelity.file
        if file is not None and file.beyond and not file.ties:
            figures = {
                "beyond": float(file.beyond),
                "elements": float(file.elements),
                "steps": file.steps,
            }
            found.append(Suspicion(kind="file", tensor=file.tensor, figures=figures))
    for node in graph.nodes:
        # Nodes that quantise or dequantise a constant have no inputs.
        given = inputs.get(node.inputs[0]) if node.op_type == QUANTIZE and node.inputs else None
        if given is not None and given.dtype == np.float32:  # integers cannot be outside the range
            found += _check_range(node.inputs[0], given, graph.values[node.outputs[0]])
    for name, output in interface.real(run.outputs).items():
        found += _same_everywhere(name, output)
        maker = graph.producers.get(name)
        stored = (
            maker.inputs[0]
            if maker is not None and maker.inputs and maker.op_type == DEQUANTIZE
            else name
        )
        if stored in run.values:
            found += _check_saturation(name, run.values[stored], graph.values[stored])
    return tuple(found)


def _same_everywhere(name: str, output: NDArray[Any]) -> Iterator[Suspicion]:
    """Warn if all numbers of an output tensor are equal; equal texts are not suspicious."""
    if output.dtype.kind not in "biuf" or output.size < 2 or not (output == output.flat[0]).all():
        return
    if np.isfinite(output.flat[0]):
        figures = {"elements": output.size, "value": float(output.flat[0])}
        yield Suspicion(kind="constant", tensor=name, figures=figures)
    else:
        yield Suspicion(kind="infinite", tensor=name, figures={"elements": output.size})


def _check_cpu_nodes(network: CompiledNetwork) -> Iterator[Suspicion]:
    """Warn about CPU nodes that may wrap around or that other numerics accelerate.

    Sums of the first kind may wrap around; ``numerics = fixed`` would accelerate the second kind.
    """
    placement = network.partition.placement
    wide = [place.node for place in placement if place.rule == "accumulators_fit"]
    if wide:
        yield Suspicion(kind="wraps", tensor=wide[0], figures={"nodes": len(wide)})
    nodes = sum(place.rule == OTHER_ROUNDING for place in placement)
    # Such a node runs on the accelerator only with ONNX Runtime's rounding: numerics = fixed is no
    # advice then.
    alone = any(node.attributes.get("numerics") == "onnxruntime" for node in network.graph.nodes)
    if nodes and network.arch.numerics != "fixed" and not alone:
        yield Suspicion(kind="rounding", tensor="", figures={"nodes": nodes, "all": len(placement)})


def _limits(value: Value) -> tuple[int, int] | None:
    """Return the integer range of an 8-bit tensor that is quantised per tensor.

    The result is None for other tensors.
    """
    quantization = value.quantization
    if quantization is None or not quantization.per_tensor or value.dtype not in ("int8", "uint8"):
        return None
    kind = np.iinfo(value.dtype)
    return int(kind.min), int(kind.max)


def _check_range(name: str, given: NDArray[Any], value: Value) -> list[Suspicion]:
    """Warn about an input with many elements outside the quantised range."""
    limits = _limits(value)
    quantization = value.quantization
    if limits is None or quantization is None:
        return []
    low, high = (
        (limit - int(quantization.zero_point)) * float(quantization.scale) for limit in limits
    )
    step = float(quantization.scale)
    share = float(np.mean((given < low - step) | (given > high + step)))
    if share <= MOST_OUTSIDE:
        return []
    least = float(given.min())
    most = float(given.max())
    figures = {"share": share, "low": low, "high": high, "least": least, "most": most}
    return [Suspicion(kind="outside", tensor=name, figures=figures)]


def _check_saturation(name: str, stored: NDArray[Any], value: Value) -> list[Suspicion]:
    """Warn about an output with many elements at an end of its range.

    Values were cut off there. The zero point does not count as an end.
    """
    limits = _limits(value)
    quantization = value.quantization
    if limits is None or quantization is None or not stored.size:
        return []
    ends = [limit for limit in limits if limit != int(quantization.zero_point)]
    share = float(np.isin(stored, ends).mean())
    ordinary = 1 / stored.size  # one element defines the end of the range
    if share <= MOST_SATURATED + ordinary:
        return []
    return [Suspicion(kind="saturated", tensor=name, figures={"share": share})]


# Accuracy on held-out samples: float, int8 on the model's runtime, and the accelerator.

LABELS = "labels"
"""Array of a file that gives the class of each sample."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled samples for measuring accuracy: a feed for each, and their classes.

    The classes are int64 of shape (samples,).
    """

    feeds: Sequence[Feeds]
    labels: NDArray[np.int64]


def load_labelled_samples(network: Network, file: Path | None) -> Labelled | None:
    """Return the samples of a ``.npz`` file, or the samples of a built-in network.

    The result is None without samples. The file has an array for every input, with samples along an
    extra first axis, and ``labels``. Raises InputError if the file is invalid.
    """
    if file is None:
        dataset = network.builtin.dataset() if network.builtin else None
        if dataset is None:
            return None
        (name,) = network.package.graph.inputs
        images, labels = dataset
        return Labelled([{name: images[place : place + 1]} for place in range(len(images))], labels)
    graph = network.package.graph
    state = graph.initial_state
    values = [graph.values[name].in_model for name in graph.inputs if name not in state]
    wanted = {value.name: (value.shape, np.dtype(value.dtype)) for value in values}
    option = f"--accuracy {file}"
    feeds, (labels,) = read_samples(file, option, wanted, beside=(LABELS,))
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        what = f"is of shape {list(labels.shape)} and type {labels.dtype}"
        raise InputError(f"{option}: '{LABELS}' {what}; give the class of each sample, an integer")
    return Labelled([{**state, **feed} for feed in feeds], labels.astype(np.int64))


def measure_accuracy(
    network: Network,
    interface: Interface,
    run: Callable[[Tensors], Tensors] | None,
    labelled: Labelled,
    progress: Progress = silent,
    numerics: Numerics = "onnxruntime",
) -> Accuracy:
    """Return the top-1 accuracy of the first output over all samples, which run one at a time.

    ``run`` returns the outputs of one inference on the accelerator; None for a described machine
    without values of its own. ``progress`` is called with the number of samples done.
    ``differences`` of the result counts images whose outputs differ in any bit between int8 on the
    model's runtime and the accelerator.
    """
    feeds = labelled.feeds
    labels = labelled.labels
    graph = network.package.graph
    output = graph.outputs[0]
    oracle = Oracle(network.package.shared_model, graph, [output], numerics=numerics)
    integer = [
        oracle.values(feed)[output]
        for feed in report_each(feeds, "measuring accuracy of int8", progress)
    ]
    accelerator = [
        interface.real(run(feed))[output]
        for feed in report_each(feeds, "measuring accuracy of the accelerator", progress)
        if run is not None
    ]
    return Accuracy(
        float_=None
        if network.float_model is None
        else _share(_float_outputs(network.float_model, feeds), labels),
        int8=_share(integer, labels),
        dla=_share(accelerator, labels) if accelerator else None,
        images=len(labels),
        differences=sum(
            not np.array_equal(a, b) for a, b in zip(integer, accelerator, strict=False)
        ),
    )


def _float_outputs(
    model: ModelProto, feeds: Sequence[dict[str, NDArray[Any]]]
) -> list[NDArray[Any]]:
    session = OnnxRuntimeSession(model)
    name = model.graph.output[0].name
    return [session.run([name], feed)[name] for feed in feeds]


def _share(outputs: Sequence[NDArray[Any]], labels: NDArray[np.int64]) -> float:
    """Return the fraction of images whose largest output is at the index of their label.

    Of equal outputs the first counts.
    """
    predicted = np.array([int(np.argmax(output)) for output in outputs])
    return float(np.count_nonzero(predicted == labels) / len(labels))
