"""Static shapes and element types of every tensor of a model, including those of ONNX Runtime's own operators."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, shape_inference

from byoc.operators.forms import QLinear
from byoc.operators.onnx_view import BOUNDARIES
from byoc.operators.registry import installed
from byoc.session import OnnxRuntimeSession
from isa.errors import InputError

TensorTypes = Mapping[str, tuple[tuple[int, ...], str]]
SEQUENCE = "sequence"
"""The element type of what is no tensor."""

_SMALL = 4096  # elements: larger constants cannot be shapes, so inference does not need their contents
_DROPPED_ATTRIBUTES = {"channels_last", "opset"}


def tensor_types(model: onnx.ModelProto) -> tuple[TensorTypes, frozenset[str]]:
    """Shape and NumPy element type of every tensor, and the names of those whose shape depends on the data.

    ONNX Runtime is asked for what onnx leaves open; of an open tensor the shape is that of one inference.
    """
    types = _collect(shape_inference.infer_shapes(_with_proxies(model), data_prop=True))
    missing = [name for node in model.graph.node for name in node.output if name and name not in types]
    open_tensors: frozenset[str] = frozenset()
    if missing:
        found, open_tensors = _from_onnxruntime(model, missing)
        types |= found
    _reject_dynamic_inputs(model, types)
    return types, open_tensors


def complete_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with the types of the tensors that onnx leaves open, but not of those whose shape depends on the data.

    onnx knows no operators of ONNX Runtime's own, nor what a GroupNormalization makes, and nothing behind them.
    """
    known = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    missing = [name for node in model.graph.node for name in node.output if name and name not in known]
    if not missing:
        return model
    types, open_tensors = tensor_types(model)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for name in missing:
        shape, dtype = types.get(name, ((), SEQUENCE))
        if dtype != SEQUENCE and name not in open_tensors:
            element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            result.graph.value_info.append(helper.make_tensor_value_info(name, element, shape))
    return result


def _reject_dynamic_inputs(model: onnx.ModelProto, types: TensorTypes) -> None:
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name not in types and value.name not in constants:
            dims = [d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in _dims(value)]
            example = ",".join(dim if dim.isdigit() else "1" for dim in dims)
            raise InputError(
                f"input '{value.name}' has a dynamic shape ({', '.join(dims)}); "
                f"give it a static one with --shape {value.name}={example}"
            )


def _with_proxies(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without large constants, with ONNX Runtime's operators replaced by standard ones of the same shape."""
    graph = model.graph
    small = [tensor for tensor in graph.initializer if np.prod(tensor.dims) <= _SMALL]
    large = [tensor for tensor in graph.initializer if np.prod(tensor.dims) > _SMALL]
    declared = {value.name for value in graph.input}
    inputs = list(graph.input) + [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in large
        if tensor.name not in declared
    ]
    copy = helper.make_model(
        helper.make_graph(
            graph.node, graph.name or "network", inputs, graph.output, small, value_info=graph.value_info
        ),
        opset_imports=model.opset_import,
        ir_version=max(model.ir_version, 4),
    )
    for node in copy.graph.node:
        if node.domain != "com.microsoft":
            continue
        if node.op_type in BOUNDARIES:
            node.domain = ""
        elif (proxy := _proxy(node)) is not None and not _channels_last(node):
            _become(node, proxy[0], [node.input[index] for index in proxy[1]])
    return copy


def _proxy(node: onnx.NodeProto) -> tuple[str, tuple[int, ...]] | None:
    """A standard operator of the same shape, and which of the node's inputs it reads; None where nobody knows one."""
    _, form, integer = installed().integer_forms.get(node.op_type, (None, None, None))
    if form is None or not isinstance(integer, QLinear):
        return None
    return form.onnx, tuple(tensor for tensor, _, _ in integer.triples(len(node.input)))


def _channels_last(node: onnx.NodeProto) -> bool:
    return any(a.name == "channels_last" and a.i for a in node.attribute)


def _become(node: onnx.NodeProto, op_type: str, inputs: list[str]) -> None:
    kept = [a for a in node.attribute if a.name not in _DROPPED_ATTRIBUTES]
    node.op_type, node.domain = op_type, ""
    del node.input[:]
    node.input.extend(inputs)
    del node.attribute[:]
    node.attribute.extend(kept)


def _dims(value: onnx.ValueInfoProto) -> list[onnx.TensorShapeProto.Dimension]:
    return list(value.type.tensor_type.shape.dim)


def _collect(model: onnx.ModelProto) -> dict[str, tuple[tuple[int, ...], str]]:
    types: dict[str, tuple[tuple[int, ...], str]] = {}
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        tensor = value.type.tensor_type
        if not tensor.HasField("shape") or not tensor.elem_type:
            continue
        if all(d.HasField("dim_value") and d.dim_value >= 0 for d in tensor.shape.dim):
            shape = tuple(d.dim_value for d in tensor.shape.dim)
            types[value.name] = (shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type).name)
    return types


def _from_onnxruntime(
    model: onnx.ModelProto, missing: list[str]
) -> tuple[dict[str, tuple[tuple[int, ...], str]], frozenset[str]]:
    """Shapes that ``missing`` tensors have when ONNX Runtime runs the model; nothing if it refuses the model.

    What control flow makes has no shape that could be inferred. It runs on zeros and on other numbers: a shape that is
    not the same both times depends on the data, as does all that is made by operators for just that.
    """
    types = _collect(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    if any(name not in types for name in names):
        return {}, frozenset()
    outputs = {value.name for value in model.graph.output}
    runs: list[dict[str, Any]] = []
    with suppress(InputError):
        session = OnnxRuntimeSession(model, optimised=False, further=[name for name in missing if name not in outputs])
        for other in (False, True):
            with suppress(InputError):
                runs.append(session.run(missing, {name: _numbers(*types[name], other=other) for name in names}))
    if not runs:
        return {}, frozenset()
    found = {
        name: (value.shape, value.dtype.name) if isinstance(value, np.ndarray) else ((), SEQUENCE)
        for name, value in runs[-1].items()
    }
    if len(runs) == 1:
        return found, frozenset(missing)
    first, second = ({name: getattr(value, "shape", None) for name, value in one.items()} for one in runs)
    varying = {name for name in missing if first[name] is None or first[name] != second[name]}
    return found, frozenset(varying | _behind(model, varying | _data_dependent(model)) & set(missing))


_VARYING = frozenset({"NonZero", "NonMaxSuppression", "Unique", "Compress", "StringSplit"})
"""Operators whose results are as long as the data say."""


def _data_dependent(model: onnx.ModelProto) -> set[str]:
    """What operators make whose results are as long as the data say, even where that was the same twice."""
    return {name for node in model.graph.node if node.op_type in _VARYING for name in node.output}


def _behind(model: onnx.ModelProto, names: set[str]) -> set[str]:
    """``names``, and everything computed from them."""
    reached = set(names)
    for node in model.graph.node:
        if reached.intersection(node.input):
            reached.update(node.output)
    return reached


def _numbers(shape: tuple[int, ...], dtype: str, *, other: bool) -> NDArray[Any]:
    """Zeros, or numbers of both signs."""
    if not other or np.dtype(dtype).kind not in "fi":
        return np.zeros(shape, dtype)
    return (np.arange(int(np.prod(shape))) % 7 - 3).reshape(shape).astype(dtype)
