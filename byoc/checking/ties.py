"""Detect ties: quantised tensors of two models that differ by one step because a value was halfway.

Sums in another order can round such a tie the other way, which changes all tensors computed from
it. If the tensor is replaced by the other model's, a second comparison shows other differences.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper

from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.runtimes.protobuf import array_of, copy_model, set_items

Tensors = Mapping[str, NDArray[Any]]
Run = Callable[[ModelProto, Collection[str], Tensors], Tensors]
"""Function that runs a model unoptimised.

It returns the outputs and the named tensors for a feed.
"""
MOST_REPLACED = 64
"""Maximum number of tensors that are replaced, one after another."""


def only_ties(
    given: ModelProto,
    after: Tensors,
    feed: Tensors,
    differing: Callable[[Tensors], Collection[str]],
    run: Run,
    tolerance: float,
) -> bool:
    """Return True if ties explain all differences of another model's tensors from ``given``.

    Args:
        given: the model as given, with quantised tensors.
        after: the other model's 8-bit outputs and float32 values, by the names of ``given``.
        feed: the input on which both ran.
        differing: returns the names of a run that differ from ``after`` by more than rounding.
        run: runs a model (:data:`Run`).
        tolerance: share of its range by which a float32 tensor may differ.
    """
    replaced: dict[str, NDArray[Any]] = {}
    for _ in range(MOST_REPLACED):
        model = _expose_inputs(given, replaced)
        sources = {node.output[0]: node for node in model.graph.node}
        names = [name for name in after if name in sources]
        if not names:
            return True
        quantised = [node for node in sources.values() if node.op_type == QUANTIZE]
        real = [node.input[0] for node in quantised if node.input[0] in sources]
        integers = [node.output[0] for node in quantised]
        before = run(model, [*names, *real, *integers], {**feed, **replaced})
        suspects = differing({name: before[name] for name in names})
        first = next((node for node in model.graph.node if node.output[0] in suspects), None)
        if first is None:
            return True
        found = _explain_tensor(first, sources, model, before, after[first.output[0]], tolerance)
        if found is None:
            return False
        replaced |= found
    return False


def _explain_tensor(
    node: NodeProto,
    sources: Mapping[str, NodeProto],
    model: ModelProto,
    before: Tensors,
    after: NDArray[Any],
    tolerance: float,
) -> dict[str, NDArray[Any]] | None:
    """Return a quantised tensor's integers in the other model if ties explain them.

    Returns None if ties do not explain them. Ties explain differences of one step where the value
    before rounding was halfway. All consumers read these integers, including those after other
    DequantizeLinear nodes.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    quantize = sources.get(node.input[0]) if node.op_type == DEQUANTIZE else node
    if quantize is None or quantize.op_type != QUANTIZE or quantize.input[0] not in before:
        return None
    scales = [
        array_of(constants[end.input[1]]) for end in (quantize, node) if end.input[1] in constants
    ]
    if len(scales) < 2 or any(scale.size != 1 or scale != scales[0] for scale in scales):
        return None
    step = float(scales[0].reshape(()))
    real = before[quantize.input[0]].astype(np.float64)
    one = before[node.output[0]].astype(np.float64)
    differs = one != after
    unit = step if node.op_type == DEQUANTIZE else 1.0
    steps = np.rint((after - one) / unit)
    fraction = np.abs(np.abs(real[differs]) / step % 1.0 - 0.5)
    slack = tolerance * float(np.ptp(real)) / step
    if (np.abs(steps) > 1).any() or (fraction > slack).any():
        return None
    integers = before[quantize.output[0]]
    return {quantize.output[0]: (integers + steps).astype(integers.dtype)}


def _expose_inputs(model: ModelProto, replaced: Tensors) -> ModelProto:
    """Return a copy of a model in which the ``replaced`` tensors are inputs."""
    if not replaced:
        return model
    result = copy_model(model)
    kept = [node for node in result.graph.node if node.output[0] not in replaced]
    set_items(result.graph.node, kept)
    for name, array in replaced.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        result.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    left = {name for node in kept for name in node.output} | set(replaced)
    set_items(
        result.graph.output,
        (value for value in result.graph.output if value.name in left - replaced.keys()),
    )
    return result
