"""The user's file as it is, run by ONNX Runtime with nothing optimised, beside what becomes of it.

Passes of ours and optimisers of ONNX Runtime both may change what a file computes. A result that is more than a step of
its output's scale away from the file's own is told with its place and both values; where ONNX Runtime's own integer
operators give that result too, the optimiser is named without which they do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.helper import tensor_dtype_to_np_dtype

from byoc.checking.fidelity import TOLERANCE, PassError, values_of
from byoc.checking.ties import only_ties
from byoc.frontend.onnx.file import REAL
from byoc.frontend.onnx.rewriting.constants import drop_initializer_inputs
from byoc.frontend.onnx.rewriting.shapes import fix_shapes
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.package.package import FileCheck
from byoc.quantisation.calibrate import default_feeds
from byoc.runtimes.protobuf import ConstantArrays, array_of, is_float32
from byoc.runtimes.session import NotRunError, OnnxRuntimeSession
from isa.errors import InputError

SAMPLES = 3
"""Inputs on which files are compared."""
STEPS = 255
"""An output without a scale has so many steps in the range of its values."""
SLACK = 1.001
"""Steps that float32 makes of one."""
OPTIMISERS = ("WeightBiasQuantization", "QDQSelectorActionTransformer", "QDQPropagationTransformer", "ConstantFolding")
"""Optimisers of ONNX Runtime that change what quantised models compute, the most particular first."""

Tensors = Mapping[str, NDArray[Any]]
Outputs = list[list[NDArray[Any]]]
"""Of every sample, every output in its place."""


def check_operators(model: ModelProto) -> None:
    """Raises InputError where a file's operators are not as their schemas have them: operands, attributes, shapes.

    ONNX Runtime has those of all operators that it knows, ONNX's and its own; what it does not know is not judged.
    """
    try:
        OnnxRuntimeSession(model, optimised=False)
    except NotRunError as error:
        if error.inconsistent:
            raise _refused(error, model) from error


def _refused(error: NotRunError, model: ModelProto) -> InputError:
    """What is said of a user's file; whole numbers that are drawn for an input may be none that it takes."""
    drawn = any(value.type.tensor_type.elem_type not in REAL for value in model.graph.input)
    remedy = ", or give inputs that it takes with --calibration" if drawn else ""
    return InputError(f"ONNX Runtime cannot run the model ({error.detail}); correct or export it again{remedy}")


@contextmanager
def blamed(model: ModelProto, shapes: Mapping[str, Sequence[int]], seed: int) -> Iterator[None]:
    """Where what is done within fails, the file is refused if ONNX Runtime does not run it either; else it is a bug."""
    try:
        yield
    except Exception as error:  # of whatever kind
        if isinstance(error, InputError) and not isinstance(error, NotRunError):
            raise
        static = fix_shapes(drop_initializer_inputs(model), shapes)
        try:
            outputs = [value.name for value in static.graph.output]
            OnnxRuntimeSession(static).run(outputs, next(default_feeds(static, seed)))
        except NotRunError as refused:
            raise _refused(refused, static) from error
        if isinstance(error, NotRunError):
            raise PassError(
                f"ONNX Runtime does not run what passes make of the model ({error.detail}); please report it with the "
                "model"
            ) from error
        raise


def drawn_feeds(model: ModelProto, seed: int, count: int = SAMPLES) -> list[Tensors]:
    """Inputs of a model with static shapes: the first as a quantiser without samples draws it.

    Others are drawn from all of the range that an input is quantised to. Whole numbers that choose nothing, and flags,
    are drawn as well: of flags either, of whole numbers small ones, which most that read them take.
    """
    generator, ranges = np.random.default_rng([seed, 1]), _ranges(model)
    found: list[Tensors] = []
    for number, feed in enumerate(default_feeds(model, seed, count)):
        drawn = dict(feed)
        for name, array in feed.items():
            if array.dtype.kind in "biu" and not array.any():
                drawn[name] = generator.integers(0, 2, array.shape).astype(array.dtype)
            elif number and name in ranges:
                drawn[name] = generator.uniform(*ranges[name], array.shape).astype(array.dtype)
        found.append(drawn)
    return found


def _ranges(model: ModelProto) -> dict[str, tuple[float, float]]:
    """What an input is quantised to, as far as that is constant and a tensor's."""
    inputs = {value.name for value in model.graph.input}
    numbers = {tensor.name: tensor for tensor in model.graph.initializer if math.prod(tensor.dims) == 1}
    found = {}
    for node in model.graph.node:
        parameters = [numbers[name] for name in node.input[1:] if name in numbers]
        if node.op_type == QUANTIZE and node.input[0] in inputs and len(parameters) == 2:
            scale, zero = (array_of(tensor).reshape(()) for tensor in parameters)
            if zero.dtype.kind in "iu":
                limits = np.iinfo(zero.dtype)
                low, high = ((limit - int(zero)) * float(scale) for limit in (limits.min, limits.max))
                found[node.input[0]] = low, high
    return found


def outputs_of(
    model: ModelProto, feeds: Sequence[Tensors], *, optimised: bool = False, without: str = ""
) -> Outputs | None:
    """What a model makes of each of ``feeds``, by place; None where ONNX Runtime does not run it.

    Real numbers are given in the precision that the model's inputs have. Where nothing runs unoptimised, all does.
    """
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    names = [value.name for value in model.graph.output]
    given = [{name: _as(array, kinds[name]) for name, array in feed.items() if name in kinds} for feed in feeds]
    for way in dict.fromkeys((optimised, True)):
        try:
            session = OnnxRuntimeSession(model, optimised=way, without=without)
            return [[found[name] for name in names] for found in (session.run(names, feed) for feed in given)]
        except InputError:
            continue
    return None


def _as(array: NDArray[Any], kind: int) -> NDArray[Any]:
    return array.astype(tensor_dtype_to_np_dtype(kind)) if array.dtype == np.float32 else array


def compared(wanted: Outputs, found: Outputs, model: ModelProto) -> FileCheck:
    """Outputs ``found`` of ``model`` held to those ``wanted``, sample by sample: the one furthest away is told."""
    steps = _steps(model)
    elements = beyond = 0
    most, worst = 0.0, FileCheck(len(wanted), 0, 0)
    for place, value in enumerate(model.graph.output):
        pairs = [(one[place], other[place]) for one, other in zip(wanted, found, strict=True)]
        step = steps.get(value.name) or _share([one for one, _ in pairs])
        for one, other in pairs:
            elements += one.size
            gaps = _gaps(one, other, step)
            count = int(np.count_nonzero(gaps > SLACK))
            beyond += count
            if count and gaps.max() > most:
                most, at = float(gaps.max()), tuple(int(n) for n in np.unravel_index(int(gaps.argmax()), gaps.shape))
                same = one.shape == other.shape
                texts = _text(one[at]), _text(other[at]) if same else f"shape {list(other.shape)}"
                worst = FileCheck(len(wanted), 0, 0, value.name, at, *texts, min(most, 1e30))
    return FileCheck(**{**vars(worst), "elements": elements, "beyond": beyond})


def _text(number: Any) -> str:
    return f"{number:.9g}" if isinstance(number, np.floating) else str(number)[:80]


def _gaps(wanted: NDArray[Any], found: NDArray[Any], step: float) -> NDArray[np.float64]:
    """How many steps each element is away; infinitely many where only one of both is a number."""
    if wanted.shape != found.shape or wanted.dtype.kind not in "biuf":
        same = wanted.shape == found.shape and np.array_equal(wanted, found)
        return np.full(wanted.shape, 0.0 if same else np.inf)
    one, other = wanted.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        gaps = np.asarray(np.abs(one - other) / step)
    gaps = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, gaps)
    return np.nan_to_num(gaps, nan=np.inf, posinf=np.inf)


def _share(arrays: Sequence[NDArray[Any]]) -> float:
    """A step of numbers without a scale: 1 of whole ones, a part of the range of others."""
    if any(array.dtype.kind != "f" for array in arrays):
        return 1.0
    finite = [array[np.isfinite(array)].astype(np.float64) for array in arrays]
    least = min((part.min() for part in finite if part.size), default=0.0)
    most = max((part.max() for part in finite if part.size), default=0.0)
    return float(most - least) / STEPS or max(abs(float(most)) / STEPS, 1e-30)


def _steps(model: ModelProto) -> dict[str, float]:
    """The scale of every output that is dequantised."""
    outputs, scales = {value.name for value in model.graph.output}, ConstantArrays(model.graph, is_float32)
    ends = [node for node in model.graph.node if node.op_type == DEQUANTIZE and outputs.intersection(node.output)]
    return {node.output[0]: float(scales[node.input[1]].max()) for node in ends if node.input[1] in scales}


def are_ties(file: ModelProto, model: ModelProto, feeds: Sequence[Tensors]) -> bool:
    """Return whether ties explain every difference between an integer ``model``, optimised, and its ``file``."""
    steps, outputs = _steps(file), [value.name for value in file.graph.output]
    ends = dict(zip(outputs, (value.name for value in model.graph.output), strict=True))
    shared = {name for node in model.graph.node if node.op_type == QUANTIZE for name in node.output}
    quantised = [name for node in file.graph.node if node.op_type == QUANTIZE for name in node.output if name in shared]

    def explained(feed: Tensors) -> bool:
        made = values_of(model, quantised, feed, optimised=True)
        after = {name: made[ends.get(name, name)] for name in (*quantised, *outputs)}

        def differing(before: Tensors) -> set[str]:
            gaps = {
                name: _gaps(array, after[name], steps.get(name) or _share([array])) for name, array in before.items()
            }
            limits = {name: SLACK if array.dtype.kind == "f" else 0 for name, array in before.items()}
            return {name for name, gap in gaps.items() if (gap > limits[name]).any()}

        return only_ties(file, after, feed, differing, values_of, TOLERANCE)

    try:
        return all(explained(feed) for feed in feeds)
    except InputError:
        return False


def own_optimiser(model: ModelProto, feeds: Sequence[Tensors], wanted: Outputs, final: ModelProto) -> str:
    """The optimiser of ONNX Runtime without which it gives what the file says; "optimisers" where none alone is it."""
    for name in OPTIMISERS:
        outputs = outputs_of(model, feeds, optimised=True, without=name)
        if outputs is not None and not compared(wanted, outputs, final).beyond:
            return name
    return "optimisers"
