"""Fixes dynamic input shapes and infers the shape of every value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from byoc.frontend.onnx.rewriting.edit import attributes, copy_model, shapes_of, without_large_constants
from isa import memory
from isa.errors import InputError

_EXAMPLE = (1, 3, 224, 224)
_COPIES = 2
"""What a run may take for every byte of its values: calibration, host, regions, oracle, comparison. Large ones: 0.3."""


def fix_shapes(model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelProto:
    """A copy whose graph inputs have the static shapes given by ``shapes`` (input name → dimensions).

    Raises:
        InputError: a name that is no input, a shape that contradicts the model's, an input that is still dynamic, an
            output that is no tensor.
    """
    result = copy_model(model)
    constant = {tensor.name for tensor in result.graph.initializer}
    inputs = {value.name: value for value in result.graph.input if value.name not in constant}
    for name, dims in (shapes or {}).items():
        if name not in inputs:
            raise InputError(f"--shape names {name!r}, which is no input: the inputs are {', '.join(inputs)}")
        _set_shape(inputs[name], dims)
    for value in result.graph.output:
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            kind = value.type.WhichOneof("value").removesuffix("_type")
            raise InputError(
                f"output '{value.name}' is no tensor but a {kind}; export the model with tensors as outputs"
            )
    for value in inputs.values():
        if None in _dims(value):
            raise InputError(_dynamic_message(value))
    _require_memory(result.graph.input)
    return result


def infer_shapes(model: ModelProto) -> ModelProto:
    """A copy with the type and shape of every value that onnx can infer, constants' contents included.

    Shapes recorded in the file with symbolic dimensions are dropped first, so that fixed inputs decide. Raises
    InputError for shapes that contradict each other and for values that take more than the limit on memory.
    """
    return without_large_constants(model, _inferred)


def shorten_pools(model: ModelProto) -> ModelProto:
    """A copy in which pools whose size is rounded up have the size that ONNX Runtime gives them, by explicit pads.

    With ``ceil_mode`` a last window that would begin behind the input and its padding does not count; before opset 22
    the standard, and with it shape inference, counts it (onnxruntime/core/providers/cpu/nn/pool_attributes.h). Such a
    pool gets pads at the end that leave that window out, without ``ceil_mode``. Pools for which both agree stay as
    they are. Wants static inputs; shapes are inferred anew behind every pool that changes.
    """
    current = model
    while (shorter := _shorten_first(current)) is not None:
        current = infer_shapes(shorter)
    return current


_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool", "QLinearAveragePool"})


def _shorten_first(model: ModelProto) -> ModelProto | None:
    """A copy in which the first pool with a window too many has lost it; None where there is none."""
    shapes = shapes_of(model.graph)
    for index, node in enumerate(model.graph.node):
        options = attributes(node) if node.op_type in _POOLS else {}
        if options.get("ceil_mode") and node.input[0] in shapes and options.get("auto_pad", b"NOTSET") == b"NOTSET":
            pads = _shorter_pads(options, shapes[node.input[0]][2:])
            if pads is not None:
                result = copy_model(model)
                changed = result.graph.node[index]
                kept = [item for item in changed.attribute if item.name not in ("ceil_mode", "pads")]
                del changed.attribute[:]
                changed.attribute.extend([*kept, onnx.helper.make_attribute("pads", pads)])
                del result.graph.value_info[:]
                for value in result.graph.output:  # what was inferred or declared for the longer one
                    value.type.tensor_type.ClearField("shape")
                return result
    return None


def _shorter_pads(options: Mapping[str, Any], spatial: tuple[int, ...]) -> list[int] | None:
    """Pads with which rounding down gives ONNX Runtime's size; None where rounding up does so, too."""
    kernel = options["kernel_shape"]
    rank = len(kernel)
    strides, dilations = options.get("strides", [1] * rank), options.get("dilations", [1] * rank)
    pads = list(options.get("pads", [0] * (2 * rank)))
    if {len(spatial), len(strides), len(dilations), len(pads) / 2} != {rank} or min(strides, default=1) < 1:
        return None  # no pool that anybody can run
    ends, shorter = pads[rank:], False
    for axis, size in enumerate(spatial):
        begin, reach = pads[axis], dilations[axis] * (kernel[axis] - 1) + 1
        count = -(-(size + begin + ends[axis] - reach) // strides[axis]) + 1
        if (count - 1) * strides[axis] >= size + begin:
            count, shorter = count - 1, True
        ends[axis] = max((count - 1) * strides[axis] + reach - size - begin, 0)
    counts_more = options.get("count_include_pad") and any(
        new > old for new, old in zip(ends, pads[rank:], strict=True)
    )
    return [*pads[:rank], *ends] if shorter and not counts_more else None


def _inferred(model: ModelProto) -> ModelProto:
    plain = copy_model(model)
    _drop_symbolic(plain.graph)
    try:
        result = onnx.shape_inference.infer_shapes(plain, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"the shapes of the model contradict each other ({reason}); export it again") from error
    _require_memory((*result.graph.input, *result.graph.value_info, *result.graph.output))
    return result


def _require_memory(values: Iterable[ValueInfoProto]) -> None:
    """Raises InputError where values of known size, and what is made of them, exceed the limit on memory."""
    sizes = {value.name: _COPIES * _nbytes(value) for value in values}
    if sizes:
        largest = max(sizes, key=sizes.__getitem__)
        memory.require(sum(sizes.values()), f"the values of the network, the largest of them '{largest}'")


def _nbytes(value: ValueInfoProto) -> int:
    """Bytes of a value; 0 where its size or its type is not known."""
    dims, element = _dims(value), value.type.tensor_type.elem_type
    known = [dim for dim in dims if dim is not None]
    if len(known) < len(dims) or element in (TensorProto.UNDEFINED, TensorProto.STRING):
        return 0
    return prod(known) * np.dtype(helper.tensor_dtype_to_np_dtype(element)).itemsize


def _drop_symbolic(graph: GraphProto) -> None:
    static = [value for value in graph.value_info if None not in _dims(value)]
    del graph.value_info[:]
    graph.value_info.extend(static)
    for value in graph.output:
        if value.type.tensor_type.HasField("shape") and None in _dims(value):
            value.type.tensor_type.ClearField("shape")


def _dims(value: ValueInfoProto) -> list[int | None]:
    """Dimensions, None where unknown; an input without any shape counts as one unknown dimension."""
    if not value.type.HasField("tensor_type"):
        return []
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return [None]
    # Exporters write 0 and -1 for "any".
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in kind.shape.dim]


def _set_shape(value: ValueInfoProto, dims: Sequence[int]) -> None:
    known = _dims(value)
    shapeless = not value.type.tensor_type.HasField("shape")
    fits = shapeless or (
        len(known) == len(dims) and all(old in (None, new) for old, new in zip(known, dims, strict=True))
    )
    if not fits or any(dim < 1 for dim in dims):
        given = ",".join(map(str, dims))
        raise InputError(f"--shape {value.name}={given} does not fit: the model's shape is {_shape_text(value)}")
    value.type.tensor_type.ClearField("shape")
    for dim in dims:
        value.type.tensor_type.shape.dim.add().dim_value = dim
    if not dims:
        value.type.tensor_type.shape.SetInParent()


def _shape_text(value: ValueInfoProto) -> str:
    dims = value.type.tensor_type.shape.dim
    known = _dims(value)
    return "(" + ", ".join(str(k or dim.dim_param or "?") for k, dim in zip(known, dims, strict=False)) + ")"


def _dynamic_message(value: ValueInfoProto) -> str:
    known = _dims(value)
    if not value.type.tensor_type.HasField("shape"):
        text, known = "no shape", [None] * 4
    else:
        text = f"the dynamic shape {_shape_text(value)}"
    fill = _EXAMPLE if len(known) == len(_EXAMPLE) else (1,) * len(known)
    example = ",".join(str(dim or default) for dim, default in zip(known, fill, strict=True))
    return f"input {value.name!r} has {text}: fix it, for example with --shape {value.name}={example}"
