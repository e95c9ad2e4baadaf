"""Compare the final model with the user's file, run by ONNX Runtime without optimisation.

Both our passes and ONNX Runtime's optimisers can change what a file computes. A result more than
one step of its output's scale away from the file's own is reported with its position and both
values. If ONNX Runtime's own integer operators give that result too, the report names the optimiser
that causes it.
"""

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
from byoc.frontend.onnx.node_checks import REAL
from byoc.frontend.onnx.rewriting.constants import drop_initializer_inputs
from byoc.frontend.onnx.rewriting.shapes import fix_shapes
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.package.package import FileCheck
from byoc.quantisation.calibrate import default_feeds
from byoc.runtimes.protobuf import ConstantArrays, array_of, is_float32
from byoc.runtimes.session import NotRunError, OnnxRuntimeSession
from isa.errors import InputError

SAMPLES = 3
"""Number of inputs on which files are compared."""
STEPS = 255
"""Number of steps in the value range of an output without a scale."""
SLACK = 1.001
"""Largest difference, in steps, that counts as one step in float32."""
OPTIMISERS = (
    "WeightBiasQuantization",
    "QDQSelectorActionTransformer",
    "QDQPropagationTransformer",
    "ConstantFolding",
)
"""Optimisers of ONNX Runtime that change what quantised models compute, most specific first."""

Tensors = Mapping[str, NDArray[Any]]
Outputs = list[list[NDArray[Any]]]
"""For every sample, the outputs by position."""


def check_operators(model: ModelProto) -> None:
    """Raise InputError if a file's operators violate their schemas: operands, attributes or shapes.

    ONNX Runtime has the schemas of ONNX's operators and its own; operators it does not know are not
    checked.
    """
    try:
        OnnxRuntimeSession(model, optimised=False)
    except NotRunError as error:
        if error.inconsistent:
            raise _make_refusal(error, model) from error


def _make_refusal(error: NotRunError, model: ModelProto) -> InputError:
    """Return the error for a user's file that does not run.

    Integers drawn for an input may be values that the model rejects; the message then suggests
    ``--calibration``.
    """
    drawn = any(value.type.tensor_type.elem_type not in REAL for value in model.graph.input)
    remedy = ", or give inputs that it takes with --calibration" if drawn else ""
    return InputError(
        f"ONNX Runtime cannot run the model ({error.detail}); correct or export it again{remedy}"
    )


@contextmanager
def assign_blame(
    model: ModelProto, shapes: Mapping[str, Sequence[int]], seed: int
) -> Iterator[None]:
    """Turn an error in the block into InputError if the user's file causes it.

    If ONNX Runtime does not run the file ``model`` either, InputError rejects the file. Otherwise
    the error is a bug: a model that ONNX Runtime rejects only after passes raises PassError, and
    other errors stay as they are.
    """
    try:
        yield
    except Exception as error:  # any exception type
        if isinstance(error, InputError) and not isinstance(error, NotRunError):
            raise
        static = fix_shapes(drop_initializer_inputs(model), shapes)
        try:
            outputs = [value.name for value in static.graph.output]
            OnnxRuntimeSession(static).run(outputs, next(default_feeds(static, seed)))
        except NotRunError as refused:
            raise _make_refusal(refused, static) from error
        if isinstance(error, NotRunError):
            raise PassError(
                f"ONNX Runtime does not run what passes make of the model ({error.detail}); please "
                "report it with the model"
            ) from error
        raise


def draw_feeds(model: ModelProto, seed: int, count: int = SAMPLES) -> list[Tensors]:
    """Return ``count`` random feeds of a model with static shapes.

    The first feed has the random floats with which calibration starts. Further float inputs are
    uniform over the range to which the input is quantised. Integers that select nothing, and flags,
    are drawn as 0 or 1: small integers are accepted by most consumers.
    """
    generator = np.random.default_rng([seed, 1])
    ranges = _ranges(model)
    found: list[Tensors] = []
    for number, feed in enumerate(default_feeds(model, seed, count)):
        drawn = dict(feed)
        for name, array in feed.items():
            if array.dtype.kind in "biu" and not array.any():
                drawn[name] = generator.integers(0, 2, array.shape).astype(array.dtype)
            elif array.ndim and array.dtype.kind in "iu" and (array == 1).all():
                # a mask that keeps something
                drawn[name] = generator.integers(0, 2, array.shape).astype(array.dtype)
                drawn[name][..., :1] = 1
            elif number and name in ranges:
                drawn[name] = generator.uniform(*ranges[name], array.shape).astype(array.dtype)
        found.append(drawn)
    return found


def _ranges(model: ModelProto) -> dict[str, tuple[float, float]]:
    """Return the quantisation range of each input with one constant scale per tensor."""
    inputs = {value.name for value in model.graph.input}
    numbers = {
        tensor.name: tensor for tensor in model.graph.initializer if math.prod(tensor.dims) == 1
    }
    found = {}
    for node in model.graph.node:
        parameters = [numbers[name] for name in node.input[1:] if name in numbers]
        if node.op_type == QUANTIZE and node.input[0] in inputs and len(parameters) == 2:
            scale, zero = (array_of(tensor).reshape(()) for tensor in parameters)
            if zero.dtype.kind in "iu":
                limits = np.iinfo(zero.dtype)
                low, high = (
                    (limit - int(zero)) * float(scale) for limit in (limits.min, limits.max)
                )
                found[node.input[0]] = low, high
    return found


def outputs_of(
    model: ModelProto, feeds: Sequence[Tensors], *, optimised: bool = False, without: str = ""
) -> Outputs | None:
    """Return a model's outputs for each of ``feeds``, as a list in the model's order.

    Returns None if ONNX Runtime does not run it. Float inputs are converted to the precision of the
    model's inputs. A model that does not run unoptimised runs optimised.
    """
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    names = [value.name for value in model.graph.output]
    given = [
        {name: _to_kind(array, kinds[name]) for name, array in feed.items() if name in kinds}
        for feed in feeds
    ]
    for way in dict.fromkeys((optimised, True)):
        try:
            session = OnnxRuntimeSession(model, optimised=way, without=without)
            return [
                [found[name] for name in names]
                for found in (session.run(names, feed) for feed in given)
            ]
        except InputError:
            continue
    return None


def _to_kind(array: NDArray[Any], kind: int) -> NDArray[Any]:
    return array.astype(tensor_dtype_to_np_dtype(kind)) if array.dtype == np.float32 else array


def compare_outputs(wanted: Outputs, found: Outputs, model: ModelProto) -> FileCheck:
    """Compare the outputs ``found`` of ``model`` with the outputs ``wanted``, by sample.

    The result contains the worst element.
    """
    steps = _steps(model)
    elements = beyond = 0
    most = 0.0
    worst = FileCheck(len(wanted), 0, 0)
    for place, value in enumerate(model.graph.output):
        pairs = [(one[place], other[place]) for one, other in zip(wanted, found, strict=True)]
        step = steps.get(value.name) or _share([one for one, _ in pairs])
        for one, other in pairs:
            elements += one.size
            gaps = _gaps(one, other, step)
            count = int(np.count_nonzero(gaps > SLACK))
            beyond += count
            if count and gaps.max() > most:
                most = float(gaps.max())
                at = tuple(int(n) for n in np.unravel_index(int(gaps.argmax()), gaps.shape))
                same = one.shape == other.shape
                texts = _text(one[at]), _text(other[at]) if same else f"shape {list(other.shape)}"
                worst = FileCheck(len(wanted), 0, 0, value.name, at, *texts, min(most, 1e30))
    return FileCheck(**{**vars(worst), "elements": elements, "beyond": beyond})


def _text(number: Any) -> str:
    return f"{number:.9g}" if isinstance(number, np.floating) else str(number)[:80]


def _gaps(wanted: NDArray[Any], found: NDArray[Any], step: float) -> NDArray[np.float64]:
    """Return the difference of two outputs, element by element, in quantisation steps.

    It is infinite where only one value is a number.
    """
    if wanted.shape != found.shape or wanted.dtype.kind not in "biuf":
        same = wanted.shape == found.shape and np.array_equal(wanted, found)
        return np.full(wanted.shape, 0.0 if same else np.inf)
    one = wanted.astype(np.float64)
    other = found.astype(np.float64)
    with np.errstate(all="ignore"):
        gaps = np.asarray(np.abs(one - other) / step)
    gaps = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, gaps)
    return np.nan_to_num(gaps, nan=np.inf, posinf=np.inf)


def _share(arrays: Sequence[NDArray[Any]]) -> float:
    """Return the step in which differences of outputs without a scale are counted.

    The step is 1 for integers, and the range divided by :data:`STEPS` for floats.
    """
    if any(array.dtype.kind != "f" for array in arrays):
        return 1.0
    finite = [array[np.isfinite(array)].astype(np.float64) for array in arrays]
    least = min((part.min() for part in finite if part.size), default=0.0)
    most = max((part.max() for part in finite if part.size), default=0.0)
    return float(most - least) / STEPS or max(abs(float(most)) / STEPS, 1e-30)


def _steps(model: ModelProto) -> dict[str, float]:
    """Return the quantisation scale of every dequantised output, by name.

    It is the largest scale if an output has one per channel.
    """
    outputs = {value.name for value in model.graph.output}
    scales = ConstantArrays(model.graph, is_float32)
    ends = [
        node
        for node in model.graph.node
        if node.op_type == DEQUANTIZE and outputs.intersection(node.output)
    ]
    return {
        node.output[0]: float(scales[node.input[1]].max())
        for node in ends
        if node.input[1] in scales
    }


def is_explained_by_ties(file: ModelProto, model: ModelProto, feeds: Sequence[Tensors]) -> bool:
    """Return True if ties explain all differences between an integer model and its file.

    The ``model`` is optimised, the ``file`` is not.
    """
    steps = _steps(file)
    outputs = [value.name for value in file.graph.output]
    ends = dict(zip(outputs, (value.name for value in model.graph.output), strict=True))
    shared = {name for node in model.graph.node if node.op_type == QUANTIZE for name in node.output}
    quantised = [
        name
        for node in file.graph.node
        if node.op_type == QUANTIZE
        for name in node.output
        if name in shared
    ]

    def is_explained(feed: Tensors) -> bool:
        made = values_of(model, quantised, feed, optimised=True)
        after = {name: made[ends.get(name, name)] for name in (*quantised, *outputs)}

        def find_differing(before: Tensors) -> set[str]:
            gaps = {
                name: _gaps(array, after[name], steps.get(name) or _share([array]))
                for name, array in before.items()
            }
            limits = {
                name: SLACK if array.dtype.kind == "f" else 0 for name, array in before.items()
            }
            return {name for name, gap in gaps.items() if (gap > limits[name]).any()}

        return only_ties(file, after, feed, find_differing, values_of, TOLERANCE)

    try:
        return all(is_explained(feed) for feed in feeds)
    except InputError:
        return False


def own_optimiser(
    model: ModelProto, feeds: Sequence[Tensors], wanted: Outputs, final: ModelProto
) -> str:
    """Return the ONNX Runtime optimiser that makes our outputs deviate from the file's.

    The name is "optimisers" if several together cause it.
    """
    for name in OPTIMISERS:
        outputs = outputs_of(model, feeds, optimised=True, without=name)
        if outputs is not None and not compare_outputs(wanted, outputs, final).beyond:
            return name
    return "optimisers"
