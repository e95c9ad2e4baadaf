"""Models, inputs and samples passed in memory, where commands have files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import ModelProto

from byoc.package.package import Package
from dla_sim.device import Trace
from isa.errors import InputError
from isa.program import Executor

if TYPE_CHECKING:
    from experiments.report.checks import HardwareCheck

Feeds = dict[str, NDArray[Any]]
Shape = tuple[int, ...]
Wanted = Mapping[str, tuple[Shape, np.dtype[Any]]]
"""Shapes and types of inputs, by name."""


@runtime_checkable
class Exported(Protocol):
    """Exported program that contains an ONNX model, such as ``torch.onnx.ONNXProgram``."""

    @property
    def model_proto(self) -> ModelProto:
        """The ONNX model."""


@runtime_checkable
class Traced(Protocol):
    """Program from ``torch.export.export``, which PyTorch's exporter can write as ONNX."""

    @property
    def graph_signature(self) -> Any:
        """Roles of its tensors: inputs, parameters and outputs."""

    @property
    def example_inputs(self) -> Any:
        """Inputs with which the program was traced."""


Model = str | Path | ModelProto | Package | Exported | Traced
"""Built-in name, an .onnx, .tflite or .dla file, or a model in memory."""
Inputs = str | Path | ArrayLike | Mapping[str, ArrayLike] | Sequence[Mapping[str, ArrayLike]]
"""A file, an array for the only input, arrays by input name, or several of these: a batch."""
Samples = (
    str | Path | ArrayLike | Mapping[str, ArrayLike] | Iterable[ArrayLike | Mapping[str, ArrayLike]]
)
"""A file, arrays with samples along the first axis, or the samples one by one."""


def to_onnx(given: Model) -> str | Path | ModelProto | Package:
    """Return a model in memory as an ONNX model; a program of PyTorch is converted.

    Raises InputError if ``given`` is not a model.
    """
    if isinstance(given, Traced):
        given = import_module("torch").onnx.export(given, verbose=False)
    if isinstance(given, Exported):
        given = given.model_proto
    if not isinstance(given, str | Path | ModelProto | Package):
        raise InputError(
            f"the model is a {type(given).__name__}; give a name, a file, an ONNX "
            "model or a package"
        )
    return given


def model_name(model: ModelProto) -> str:
    """Return the name of a model in memory, as reports show it."""
    return model.graph.name or "model"


class ComparedExecutor(Executor[Trace], Protocol):
    """Executor, such as hardware, whose results are compared with the simulator.

    ``experiments.rtl.hardware.HardwareDevice`` is one.
    """

    @property
    def check(self) -> HardwareCheck:
        """Result of the executor's comparison with the simulator so far."""


@dataclass(frozen=True, eq=False)
class InputBatch:
    """Inputs of one inference or, with ``many``, of several.

    Their arrays were stacked along an additional axis (``stacked``) or concatenated along the first
    axis of the input.
    """

    feeds: tuple[Feeds, ...]
    many: bool = False
    stacked: bool = True

    def join_results(self, results: Sequence[Mapping[str, NDArray[Any]]]) -> Feeds:
        """Join the outputs of all inferences of a batch.

        The outputs of a batch are stacked or concatenated like its inputs.
        """
        if not self.many:
            return dict(results[0])
        return {
            name: self._stack_results([result[name] for result in results], name)
            for name in results[0]
        }

    def _stack_results(self, arrays: list[NDArray[Any]], name: str) -> NDArray[Any]:
        if len({array.shape for array in arrays}) > 1:
            raise InputError(
                f"output '{name}' has another shape for other inputs; run them one at a time"
            )
        one = not self.stacked and arrays[0].shape[:1] == (1,)
        return np.concatenate(arrays) if one else np.stack(arrays)


def batch_of(inputs: Inputs, wanted: Mapping[str, Shape], what: str = "inputs") -> InputBatch:
    """Convert arrays to the feeds of one inference or of several.

    An array of the input's shape is one inference; an array with samples along a first axis is
    several. The first axis is an additional one, or the first axis of the input if that has length
    1. A list of arrays, or of arrays by input name, is a batch as well. Raises InputError if inputs
    have different numbers of samples, or none.
    """
    if isinstance(inputs, list | tuple) and any(
        isinstance(one, Mapping) or hasattr(one, "shape") for one in inputs
    ):
        return InputBatch(tuple(_name_arrays(one, wanted, what) for one in inputs), many=True)
    arrays = _name_arrays(inputs, wanted, what)
    axes = {name: _axis(array, wanted.get(name, ())) for name, array in arrays.items()}
    if not any(axes.values()) or arrays.keys() - wanted.keys():  # the caller names unknown inputs
        return InputBatch((arrays,))
    counts = {name: len(array) if axes[name] else 1 for name, array in arrays.items()}
    if not all(axes.values()) or len(set(counts.values())) > 1 or 0 in counts.values():
        raise InputError(
            f"{what}: the arrays have {counts} samples; give all of them the same "
            "number, at least one"
        )
    samples = range(next(iter(counts.values())))
    feeds = (
        {name: a[n] if axes[name] == "own" else a[n : n + 1] for name, a in arrays.items()}
        for n in samples
    )
    return InputBatch(tuple(feeds), many=True, stacked="own" in axes.values())


def _axis(array: NDArray[Any], shape: Shape) -> str:
    """Return which axis of an array has the samples.

    The result is "own" for an additional axis, "first" for the input's first axis, or "" for one
    sample.
    """
    if array.shape == shape:
        return ""
    if array.ndim and array.shape[1:] == shape:
        return "own"
    return "first" if shape[:1] == (1,) and array.ndim and array.shape[1:] == shape[1:] else ""


def _name_arrays(given: Any, wanted: Mapping[str, object], what: str) -> Feeds:
    """Return arrays by input name from a single array or a mapping."""
    if isinstance(given, Mapping):
        return {name: _array(array, f"{what}, '{name}'") for name, array in given.items()}
    if len(wanted) != 1:
        names = ", ".join(wanted) or "none"
        raise InputError(
            f"{what}: one array, and the network's inputs are {names}; give a dict of arrays"
        )
    return {next(iter(wanted)): _array(given, what)}


def _array(given: Any, what: str) -> NDArray[Any]:
    """Convert an input to an array; raise InputError if it is no array.

    Masked arrays are rejected as well, because a network would use their hidden values.
    """
    parts = given if isinstance(given, list | tuple) else (given,)
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise InputError(
            f"{what}: a masked array, of which no network knows the mask; give array.filled(VALUE)"
        )
    try:
        return np.asarray(given)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"{what}: cannot be made an array ({error}); give numbers in rows of equal length"
        ) from error


def samples_of(
    calibration: Samples, wanted: Wanted, optional: Collection[str] = ()
) -> Iterator[Feeds]:
    """Yield calibration samples one by one, from an array per input or from any iterable.

    An item of an iterable is a sample, a batch (as a data loader gives), or a list of these.
    Samples may lack the ``optional`` inputs. Raises InputError for arrays of other shapes or types,
    and for different numbers of samples.
    """
    what = "calibration"
    required = {name: form for name, form in wanted.items() if name not in optional}
    if isinstance(calibration, Mapping) or hasattr(calibration, "shape"):
        arrays = _name_arrays(calibration, required, what)
        rows: Iterable[Any] = split_samples(arrays, what)
    elif isinstance(calibration, Iterable):
        rows = calibration
    else:
        raise InputError(
            f"{what}: a {type(calibration).__name__}; give arrays, an iterable of "
            "them, or a .npz file"
        )

    def take(part: Any) -> InputBatch:
        taken = wanted if isinstance(part, Mapping) else required
        return batch_of(part, {name: shape for name, (shape, _) in taken.items()}, what)

    parts = (part for row in rows for part in (row if isinstance(row, list | tuple) else (row,)))
    feeds = (feed for part in parts for feed in take(part).feeds)
    for number, feed in enumerate(feeds):
        known = {name: form for name, form in wanted.items() if name in feed or name in required}
        yield check_sample(feed, known, f"{what}, sample {number}")


def split_samples(arrays: Feeds, what: str) -> Iterator[Feeds]:
    """Yield each sample of arrays with samples along the first axis.

    Raises InputError if the arrays have no samples, or different numbers of them.
    """
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if min(counts.values(), default=0) < 1 or len(set(counts.values())) != 1:
        raise InputError(
            f"{what}: the arrays have {counts} samples; give all of them the same number"
        )
    for number in range(min(counts.values())):
        yield {name: array[number] for name, array in arrays.items()}


def check_sample(row: Feeds, wanted: Wanted, what: str) -> Feeds:
    """Return one checked sample; the first axis of an input may be missing if its length is 1."""
    if row.keys() != wanted.keys():
        raise InputError(
            f"{what}: it has {', '.join(row) or 'nothing'}; the inputs are {', '.join(wanted)}"
        )
    found = {}
    for name, (shape, dtype) in wanted.items():
        array = row[name]
        if shape[:1] == (1,) and array.shape == shape[1:]:
            array = array[np.newaxis]
        if array.shape != shape or array.dtype != dtype:
            raise InputError(
                f"{what}: '{name}' is of shape {list(array.shape)} and type {array.dtype}; "
                f"the model wants shape {list(shape)} and type {dtype}"
            )
        found[name] = array
    return found
