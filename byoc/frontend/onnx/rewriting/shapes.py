"""Infer static shapes and element types from fixed inputs, with onnx and ONNX Runtime."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    TensorProto,
    ValueInfoProto,
    helper,
    shape_inference,
)

from byoc.frontend.onnx.rewriting.law import look_at
from byoc.operators.forms import QLinear
from byoc.operators.onnx_view import BOUNDARIES
from byoc.operators.registry import load_installed_families
from byoc.runtimes.protobuf import (
    all_graphs,
    all_nodes,
    array_of,
    attributes,
    change_without_large_constants,
    copy_model,
    set_attributes,
    set_items,
    shapes_of,
)
from byoc.runtimes.session import OnnxRuntimeSession
from isa import memory
from isa.errors import InputError

_EXAMPLE = (1, 3, 224, 224)
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool", "QLinearAveragePool"})
_COPIES = 2
"""Bytes that a run may need per byte of the model's values.

A run is calibration, host parts, regions, oracle and comparison. Measured for large networks: 0.3.
"""
_SAMPLES = 24
"""Bytes that a run may need per byte of the model's inputs and outputs.

Samples of calibration and comparison are drawn and compared in float64. Measured: 24.
"""


def fix_shapes(model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelProto:
    """Set the static shapes of graph inputs given by ``shapes`` (input name → dimensions).

    Raises:
        InputError: a name that is no input, a shape that contradicts the model's, an input that is
            still dynamic, an output that is not a tensor.
    """
    result = copy_model(model)
    constant = {tensor.name for tensor in result.graph.initializer}
    inputs = {value.name: value for value in result.graph.input if value.name not in constant}
    for name, dims in (shapes or {}).items():
        if name not in inputs:
            raise InputError(
                f"--shape names {name!r}, which is no input: the inputs are {', '.join(inputs)}"
            )
        _set_shape(inputs[name], dims)
    for value in result.graph.output:
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            kind = value.type.WhichOneof("value").removesuffix("_type")
            raise InputError(
                f"output '{value.name}' is no tensor but a {kind}; export the model with tensors "
                "as outputs"
            )
    for value in inputs.values():
        if None in _dims(value):
            raise InputError(_dynamic_message(value))
    held = (*inputs, *(value.name for value in result.graph.output))
    _require_memory(inputs.values(), held)
    made = change_without_large_constants(result, _infer_undeclared).graph
    _require_memory((*made.value_info, *made.output), held)
    return result


def set_batch(
    model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, tuple[int, ...]]:
    """Add a shape with a batch of 1 to ``shapes`` for each input with an open first dimension.

    All other dimensions of such an input are known.

    An input whose open dimension has the same name as that of an input in ``shapes`` gets the same
    number.
    """
    found = {name: tuple(dims) for name, dims in (shapes or {}).items()}
    constant = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constant]
    known = {_batch_name(one): found[one.name][0] for one in inputs if found.get(one.name)}
    for value in inputs:
        dims = _dims(value)
        only_first = dims[:1] == [None] and None not in dims[1:]
        if only_first and value.name not in found and value.type.tensor_type.HasField("shape"):
            name = _batch_name(value)
            found[value.name] = (known.get(name, 1) if name else 1, *(dim or 1 for dim in dims[1:]))
    return found


def _batch_name(value: ValueInfoProto) -> str:
    dims = value.type.tensor_type.shape.dim
    return dims[0].dim_param if dims else ""


def infer_shapes(model: ModelProto) -> ModelProto:
    """Infer the type and shape of every value, as far as onnx can.

    Contents of constants are used too. Shapes recorded in the file with symbolic dimensions are
    dropped first, so that fixed inputs take effect. Raises InputError for contradictory shapes and
    for values that exceed the memory limit.
    """
    return change_without_large_constants(model, _infer_once)


@look_at(*_POOLS)
def shorten_pools(model: ModelProto) -> ModelProto:
    """Add explicit pads so that pools with ceil_mode have ONNX Runtime's result size.

    With ``ceil_mode``, ONNX Runtime drops a last window that would start after the input and its
    first padding. Before opset 22 the standard, and shape inference, count it
    (onnxruntime/core/providers/cpu/nn/pool_attributes.h). Such a pool gets end pads that exclude
    the window, without ``ceil_mode``. Pools for which both agree stay unchanged. Needs static
    inputs; shapes are inferred again after every changed pool.
    """
    current = model
    while (shorter := _shorten_first(current)) is not None:
        current = infer_shapes(shorter)
    return current


def _shorten_first(model: ModelProto) -> ModelProto | None:
    """Return a copy of the model without the extra window of the first pool that has one.

    Returns None if there is none.
    """
    shapes = shapes_of(model.graph)
    for index, node in enumerate(model.graph.node):
        options = attributes(node) if node.op_type in _POOLS else {}
        if (
            options.get("ceil_mode")
            and node.input[0] in shapes
            and options.get("auto_pad", b"NOTSET") == b"NOTSET"
        ):
            pads = _shorter_pads(options, shapes[node.input[0]][2:])
            if pads is not None:
                result = copy_model(model)
                changed = result.graph.node[index]
                set_attributes(changed, "ceil_mode", pads=pads)
                del result.graph.value_info[:]
                # shapes inferred or declared for the longer result
                for value in result.graph.output:
                    value.type.tensor_type.ClearField("shape")
                return result
    return None


def _shorter_pads(options: Mapping[str, Any], spatial: tuple[int, ...]) -> list[int] | None:
    """Return pads with which a pool that rounds down has ONNX Runtime's result size.

    Returns None if rounding up gives it too.
    """
    kernel = options["kernel_shape"]
    rank = len(kernel)
    strides = options.get("strides", [1] * rank)
    dilations = options.get("dilations", [1] * rank)
    pads = list(options.get("pads", [0] * (2 * rank)))
    if {len(spatial), len(strides), len(dilations), len(pads) / 2} != {rank} or min(
        strides, default=1
    ) < 1:
        return None  # not a valid pool
    ends = pads[rank:]
    shorter = False
    for axis, size in enumerate(spatial):
        begin = pads[axis]
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        count = -(-(size + begin + ends[axis] - reach) // strides[axis]) + 1
        if (count - 1) * strides[axis] >= size + begin:
            count = count - 1
            shorter = True
        ends[axis] = max((count - 1) * strides[axis] + reach - size - begin, 0)
    counts_more = options.get("count_include_pad") and any(
        new > old for new, old in zip(ends, pads[rank:], strict=True)
    )
    return [*pads[:rank], *ends] if shorter and not counts_more else None


def _infer_once(model: ModelProto) -> ModelProto:
    plain = copy_model(model)
    _drop_symbolic(plain.graph)
    try:
        result = onnx.shape_inference.infer_shapes(plain, data_prop=_has_end(plain.graph))
    except onnx.shape_inference.InferenceError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"the shapes of the model contradict each other ({reason}); export it again"
        ) from error
    _require_memory((*result.graph.input, *result.graph.value_info, *result.graph.output))
    return result


def _infer_undeclared(model: ModelProto) -> ModelProto:
    """Return a model with the shapes that onnx infers, ignoring those in the file.

    The copy has no shapes if inference fails.
    """
    plain = copy_model(model)
    del plain.graph.value_info[:]
    for value in plain.graph.output:
        value.type.tensor_type.ClearField("shape")
    with suppress(onnx.shape_inference.InferenceError):
        return onnx.shape_inference.infer_shapes(plain, data_prop=_has_end(plain.graph))
    return plain


def _has_end(graph: GraphProto) -> bool:
    """Return True if onnx's data propagation ends, which large Slice steps prevent.

    It keeps Slice steps in 32 bits, where 2^32 is 0. Computed steps are not known to be small.
    """
    steps = {
        node.input[4]
        for node in all_nodes(graph)
        if node.op_type == "Slice" and len(node.input) > 4
    } - {""}
    if not steps:
        return True
    known = {tensor.name: tensor for part in all_graphs(graph) for tensor in part.initializer}
    made = {
        node.output[0]: attributes(node) for node in all_nodes(graph) if node.op_type == "Constant"
    }
    known |= {name: given["value"] for name, given in made.items() if "value" in given}
    arrays = [array_of(known[name]) for name in steps if name in known]
    return len(arrays) == len(steps) and all(np.all(np.abs(array / 2**31) < 1) for array in arrays)


def _require_memory(values: Iterable[ValueInfoProto], held: Collection[str] = ()) -> None:
    """Raise InputError if tensors of known size, and their copies, exceed the memory limit.

    ``held`` names inputs and outputs, of which all samples are in memory at the same time.
    """
    sizes = {
        value.name: (_SAMPLES if value.name in held else _COPIES) * _nbytes(value)
        for value in values
    }
    if sizes:
        largest = max(sizes, key=sizes.__getitem__)
        memory.require(
            sum(sizes.values()), f"the values of the network, the largest of them '{largest}'"
        )


def _nbytes(value: ValueInfoProto) -> int:
    """Return the size of a tensor in bytes; 0 if its shape or type is unknown."""
    dims = _dims(value)
    element = value.type.tensor_type.elem_type
    known = [dim for dim in dims if dim is not None]
    if len(known) < len(dims) or element in (TensorProto.UNDEFINED, TensorProto.STRING):
        return 0
    return prod(known) * np.dtype(helper.tensor_dtype_to_np_dtype(element)).itemsize


def _drop_symbolic(graph: GraphProto) -> None:
    set_items(graph.value_info, (value for value in graph.value_info if None not in _dims(value)))
    for value in graph.output:
        if value.type.tensor_type.HasField("shape") and None in _dims(value):
            value.type.tensor_type.ClearField("shape")


def _dims(value: ValueInfoProto) -> list[int | None]:
    """Return the dimensions of a declared tensor, None where unknown.

    An input without a shape counts as one unknown dimension.
    """
    if not value.type.HasField("tensor_type"):
        return []
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return [None]
    # Exporters write 0 and -1 for unknown sizes.
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
        for dim in kind.shape.dim
    ]


def _set_shape(value: ValueInfoProto, dims: Sequence[int]) -> None:
    known = _dims(value)
    shapeless = not value.type.tensor_type.HasField("shape")
    fits = shapeless or (
        len(known) == len(dims)
        and all(old in (None, new) for old, new in zip(known, dims, strict=True))
    )
    if not fits or any(dim < 1 for dim in dims):
        given = ",".join(map(str, dims))
        raise InputError(
            f"--shape {value.name}={given} does not fit: the model's shape is {_shape_text(value)}"
        )
    value.type.tensor_type.ClearField("shape")
    for dim in dims:
        value.type.tensor_type.shape.dim.add().dim_value = dim
    if not dims:
        value.type.tensor_type.shape.SetInParent()


def _shape_text(value: ValueInfoProto) -> str:
    dims = value.type.tensor_type.shape.dim
    known = _dims(value)
    return (
        "("
        + ", ".join(str(k or dim.dim_param or "?") for k, dim in zip(known, dims, strict=False))
        + ")"
    )


def _dynamic_message(value: ValueInfoProto) -> str:
    known = _dims(value)
    if not value.type.tensor_type.HasField("shape"):
        text = "no shape"
        known = [None] * 4
    else:
        text = f"the dynamic shape {_shape_text(value)}"
    fill = _EXAMPLE if len(known) == len(_EXAMPLE) else (1,) * len(known)
    example = ",".join(str(dim or default) for dim, default in zip(known, fill, strict=True))
    return (
        f"input {value.name!r} has {text}: fix it, for example with --shape {value.name}={example}"
    )


TensorTypes = Mapping[str, tuple[tuple[int, ...], str]]
SEQUENCE = "sequence"
"""Element type of values that are not tensors."""

# elements; larger constants cannot be shapes, so inference does not need their contents
_SMALL = 4096


def tensor_types(model: onnx.ModelProto) -> tuple[TensorTypes, frozenset[str]]:
    """Return shape and NumPy type of every tensor, and the names with data-dependent shapes.

    ONNX Runtime provides what onnx cannot infer. The shape of a data-dependent tensor is that of
    one inference.
    """
    types = _collect(
        shape_inference.infer_shapes(_replace_by_proxies(model), data_prop=_has_end(model.graph))
    )
    missing = [
        name for node in model.graph.node for name in node.output if name and name not in types
    ]
    open_tensors: frozenset[str] = frozenset()
    if missing:
        found, open_tensors = _from_onnxruntime(model, missing)
        types |= found
    _reject_dynamic_inputs(model, types)
    return types, open_tensors


def complete_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Add the types of tensors that onnx cannot infer, except those with data-dependent shapes.

    onnx does not know ONNX Runtime's own operators or the result of GroupNormalization, and infers
    nothing after them.
    """
    known = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    missing = [
        name for node in model.graph.node for name in node.output if name and name not in known
    ]
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
            dims = [
                d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?")
                for d in _dimensions(value)
            ]
            example = ",".join(dim if dim.isdigit() else "1" for dim in dims)
            raise InputError(
                f"input '{value.name}' has a dynamic shape ({', '.join(dims)}); "
                f"give it a static one with --shape {value.name}={example}"
            )


def _replace_by_proxies(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model for shape inference: large constants as inputs, standard operators only.

    A standard operator with the same result shape replaces each operator of ONNX Runtime.
    """
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
            graph.node,
            graph.name or "network",
            inputs,
            graph.output,
            small,
            value_info=graph.value_info,
        ),
        opset_imports=model.opset_import,
        ir_version=max(model.ir_version, 4),
    )
    for node in copy.graph.node:
        if node.domain != "com.microsoft":
            continue
        if node.op_type in BOUNDARIES:
            node.domain = ""
        elif (proxy := _proxy(node)) is not None and not _is_channels_last(node):
            _replace_node(node, proxy[0], [node.input[index] for index in proxy[1]])
    return copy


def _proxy(node: onnx.NodeProto) -> tuple[str, tuple[int, ...]] | None:
    """Return a standard operator with the result shape of an operator of ONNX Runtime.

    The positions of the inputs that it reads are returned too.
    Returns None if there is none.
    """
    _, form, integer = load_installed_families().integer_forms.get(node.op_type, (None, None, None))
    if form is None or not isinstance(integer, QLinear):
        return None
    return form.onnx, tuple(tensor for tensor, _, _ in integer.triples(len(node.input)))


def _is_channels_last(node: onnx.NodeProto) -> bool:
    return any(a.name == "channels_last" and a.i for a in node.attribute)


def _replace_node(node: onnx.NodeProto, op_type: str, inputs: list[str]) -> None:
    node.op_type = op_type
    node.domain = ""
    node.input[:] = inputs
    set_attributes(node, "channels_last", "opset")


def _dimensions(value: onnx.ValueInfoProto) -> list[onnx.TensorShapeProto.Dimension]:
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
    """Run a model in ONNX Runtime to find the shapes of the tensors ``missing``.

    Returns nothing if it rejects the model. Shapes after control flow cannot be inferred. The model
    runs on zeros and on other numbers. A shape that differs between the runs depends on the data,
    as do the results of operators with data-dependent sizes.
    """
    types = _collect(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    if any(name not in types for name in names):
        return {}, frozenset()
    outputs = {value.name for value in model.graph.output}
    runs: list[dict[str, Any]] = []
    with suppress(InputError):
        session = OnnxRuntimeSession(
            model, optimised=False, further=[name for name in missing if name not in outputs]
        )
        for other in (False, True):
            with suppress(InputError):
                runs.append(
                    session.run(
                        missing, {name: _numbers(*types[name], other=other) for name in names}
                    )
                )
    if not runs:
        return {}, frozenset()
    found = {
        name: (value.shape, value.dtype.name) if isinstance(value, np.ndarray) else ((), SEQUENCE)
        for name, value in runs[-1].items()
    }
    if len(runs) == 1:
        return found, frozenset(missing)
    first, second = (
        {name: getattr(value, "shape", None) for name, value in one.items()} for one in runs
    )
    varying = {name for name in missing if first[name] is None or first[name] != second[name]}
    return found, frozenset(
        varying | _find_dependents(model, varying | _data_dependent(model)) & set(missing)
    )


_VARYING = frozenset({"NonZero", "NonMaxSuppression", "Unique", "Compress", "StringSplit"})
"""Operators whose results have data-dependent sizes."""


def _data_dependent(model: onnx.ModelProto) -> set[str]:
    """Return the results of operators, such as NonZero, whose shapes depend on data."""
    return {name for node in model.graph.node if node.op_type in _VARYING for name in node.output}


def _find_dependents(model: onnx.ModelProto, names: set[str]) -> set[str]:
    """Return ``names`` and all tensors computed from them."""
    reached = set(names)
    for node in model.graph.node:
        if reached.intersection(node.input):
            reached.update(node.output)
    return reached


def _numbers(shape: tuple[int, ...], dtype: str, *, other: bool) -> NDArray[Any]:
    """Return an array of zeros to run a model on, or of positive and negative numbers."""
    if not other or np.dtype(dtype).kind not in "fi":
        return np.zeros(shape, dtype)
    return (np.arange(int(np.prod(shape))) % 7 - 3).reshape(shape).astype(dtype)
