"""Fidelity: is the prepared model the model as given? Both run on ONNX Runtime when a model is imported.

The oracle of a run starts from the prepared model; this is what holds the prepared one to the user's file. A float
model may differ by rounding: by :data:`TOLERANCE` of a tensor's range at most, at every output and at every tensor that
has kept its name. A quantised model may not differ at all. Where one does, a pass has a bug, which :class:`PassError`
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto
from onnx.helper import tensor_dtype_to_np_dtype

from byoc.frontend.onnx.rewriting.edit import copy_model
from byoc.host.session import OnnxRuntimeSession
from byoc.package.package import Fidelity

TOLERANCE = 1e-5
"""Share of a tensor's range by which a float tensor may differ."""

MOST_DECIBELS = 200.0
"""What stands for no noise at all."""

Tensors = Mapping[str, NDArray[Any]]
Pass = Callable[[ModelProto], ModelProto]


class PassError(RuntimeError):
    """A bug of ours: a pass has changed what the model computes."""


@dataclass(frozen=True)
class _Drift:
    """The worst tensor of a comparison."""

    tensor: str
    difference: float


def check_fidelity(
    given: ModelProto, prepared: ModelProto, passes: Sequence[Pass], feed: Tensors, *, quantised: bool
) -> Fidelity:
    """Compare ``prepared``, which ``passes`` have made of ``given``, with it on one inference.

    Raises PassError naming the first pass behind which a tensor differs, the tensor and the difference.
    """
    names = [] if quantised else _survivors(given, prepared)
    before = _values(given, names, feed, quantised)
    found, drift = _compare(before, _values(prepared, names, feed, quantised), given, prepared)
    allowed = 0.0 if quantised else TOLERANCE
    if drift.difference <= allowed:
        elements = sum(before[name].size for name in found)
        return Fidelity(quantised, len(found), elements, float(f"{drift.difference:.2g}"))
    current = given
    for change in passes:
        current = change(current)
        _, step = _compare(before, _values(current, names, feed, quantised), given, current)
        if step.difference > allowed:
            drift, name = step, change.__name__
            break
    else:
        name = passes[-1].__name__
    raise PassError(
        f"the pass {name} changes tensor '{drift.tensor}' by {drift.difference:.3g} of its range; please report it "
        "with the model"
    )


def trial_feed(model: ModelProto, seed: int) -> dict[str, NDArray[Any]]:
    """One input of a model with static shapes: standard-normal numbers, any 8-bit integers, zeros of other types."""
    generator = np.random.default_rng(seed)
    feed: dict[str, NDArray[Any]] = {}
    for value in model.graph.input:
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        dtype = np.dtype(tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        if dtype.kind == "f":
            feed[value.name] = generator.standard_normal(shape).astype(dtype)
        elif dtype in (np.int8, np.uint8):
            feed[value.name] = generator.integers(0, 256, shape, np.uint8).view(dtype)
        else:
            feed[value.name] = np.zeros(shape, dtype)
    return feed


def noise(float_model: ModelProto, integer_model: ModelProto, feed: Tensors) -> dict[str, float]:
    """How well a quantised model resembles the float one: signal-to-noise ratio of every float output, in decibels."""
    names = [value.name for value in float_model.graph.output]
    inputs = {name: feed[name] for name in (value.name for value in float_model.graph.input)}
    wanted = OnnxRuntimeSession(float_model, optimised=False).run(names, inputs)
    found = OnnxRuntimeSession(integer_model).run(names, inputs)
    return {name: _decibels(wanted[name], found[name]) for name in names if wanted[name].dtype == np.float32}


def _decibels(signal: NDArray[Any], found: NDArray[Any]) -> float:
    power = float(np.square(signal, dtype=np.float64).sum())
    error = float(np.square(signal.astype(np.float64) - found).sum())
    if not error:
        return MOST_DECIBELS
    return round(min(10 * float(np.log10(power / error)), MOST_DECIBELS), 1) if power else -MOST_DECIBELS


def _survivors(given: ModelProto, prepared: ModelProto) -> list[str]:
    """Float32 results of the prepared model's nodes that nodes of the given one make under the same name."""
    known = {value.name: value for value in prepared.graph.value_info}
    made = {name for node in given.graph.node for name in node.output}
    results = (name for node in prepared.graph.node for name in node.output if name in made and name in known)
    return [name for name in results if known[name].type.tensor_type.elem_type == TensorProto.FLOAT]


def _values(model: ModelProto, names: Sequence[str], feed: Tensors, optimised: bool) -> dict[str, NDArray[Any]]:
    """The outputs of a model, and of ``names`` those that its nodes make."""
    made = {name for node in model.graph.node for name in node.output}
    outputs = list(dict.fromkeys(value.name for value in model.graph.output))
    further = [name for name in names if name in made and name not in outputs]
    observed = copy_model(model)
    observed.graph.output.extend(ValueInfoProto(name=name) for name in further)
    inputs = {value.name for value in model.graph.input}
    session = OnnxRuntimeSession(observed, optimised=optimised)
    return session.run([*outputs, *further], {name: array for name, array in feed.items() if name in inputs})


def _compare(before: Tensors, after: Tensors, given: ModelProto, made: ModelProto) -> tuple[list[str], _Drift]:
    """Names of what was compared, and the worst of it. Outputs correspond by place, other tensors by name."""
    pairs = {
        old.name: new.name for old, new in zip(given.graph.output, made.graph.output, strict=True) if old.name in before
    }
    pairs |= {name: name for name in before if name in after and name not in pairs}
    worst = _Drift("", 0.0)
    for name, other in pairs.items():
        difference = _difference(before[name], after[other])
        if difference > worst.difference:
            worst = _Drift(name, difference)
    return list(pairs), worst


def _difference(before: NDArray[Any], after: NDArray[Any]) -> float:
    """The largest difference of two tensors as a share of the first one's range; infinite for other shapes or types."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return float("inf")
    if np.array_equal(before, after, equal_nan=before.dtype.kind == "f"):
        return 0.0
    if before.dtype.kind != "f":
        return 1.0
    first, second = before.astype(np.float64), after.astype(np.float64)
    if not np.array_equal(np.isfinite(first), np.isfinite(second)):
        return float("inf")
    finite = np.isfinite(first)
    spread = float(np.ptp(first[finite])) or float(np.abs(first[finite]).max()) or 1.0
    return float(np.abs(first[finite] - second[finite]).max()) / spread
