"""Restore ONNX operators in models that ONNX Runtime optimised and saved.

These are convolutions and products with activations, operators with channels last, and root mean
square normalisations. Tensors in a processor's blocked layout are restored only if no weights have
that layout.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, defs

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, look_at, write_operators
from byoc.frontend.onnx.rewriting.shapes import complete_types, infer_shapes
from byoc.runtimes.protobuf import standard
from isa.errors import InputError

MICROSOFT = "com.microsoft"
BLOCKED = "com.microsoft.nchwc"
_PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
"""Attributes of an activation, in the order of a FusedConv's parameters."""
_CHANNELS_LAST = ("QLinearConv", "QLinearAveragePool", "QLinearGlobalAveragePool", "NhwcMaxPool")
_BLOCKED_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
_ROOT_MEAN_SQUARES = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")


def _alike(
    w: NodeWriter,
    op_type: str,
    operands: Sequence[str],
    *dropped: str,
    result: str = "",
    domain: str = "",
) -> str:
    """Add a node with the replaced node's attributes, except ``dropped``; return its result."""
    kept = {name: value for name, value in w.options.items() if name not in dropped}
    return w.add(op_type, *operands, result=result, label=w.node.name, domain=domain, **kept)


def _activate(w: NodeWriter, name: str, activation: str, options: Mapping[str, Any]) -> None:
    """Add the activation function of a fused operator after tensor ``name``.

    Limits of a Clip become operands, known options attributes.
    """
    limits = [w.constant(options[key], np.float32, key) for key in ("min", "max") if key in options]
    known = defs.get_schema(activation).attributes if defs.has(activation) else ()
    others = {
        key: value for key, value in options.items() if key in known and key not in ("min", "max")
    }
    w.add(activation, name, *limits, **others)


def _convolution(w: NodeWriter) -> bool:
    """Write a FusedConv as a convolution, a sum if it has a fourth operand, and an activation."""
    activation = w.options.get("activation", b"").decode()
    parameters = w.options.get("activation_params", ())
    keys = ("min", "max") if activation == "Clip" else _PARAMETERS.get(activation, ())
    if len(parameters) < len(keys):
        return False
    operands = [name for name in w.node.input[:3] if name]
    made = _alike(w, "Conv", operands, "activation", "activation_params")
    if w.input(3):
        made = w.add("Add", made, w.input(3))
    if activation:
        _activate(w, made, activation, dict(zip(keys, parameters, strict=False)))
    return True


def _product(w: NodeWriter) -> bool:
    """Write a FusedGemm as a product and an activation."""
    prefix = "activation_"
    own = {key: value for key, value in w.options.items() if key.startswith(prefix)}
    made = _alike(w, "Gemm", [name for name in w.node.input if name], "activation", *own)
    if w.options.get("activation"):
        options = {key.removeprefix(prefix): value for key, value in own.items()}
        _activate(w, made, w.options["activation"].decode(), options)
    return True


def _rank(w: NodeWriter) -> int:
    """Return the number of dimensions of a node's first operand; 0 if it is unknown."""
    kernel = w.options.get("kernel_shape")
    weights = w.graph.shapes.get(w.input(3)) if w.node.op_type == "QLinearConv" else None
    return len(kernel) + 2 if kernel else len(weights or w.graph.shapes.get(w.input(0), ()))


def _write_channels_last(w: NodeWriter) -> bool:
    """Write a channels-last operator as a channels-first one between Transposes."""
    op_type = w.node.op_type.removeprefix("Nhwc")
    last = op_type != w.node.op_type or bool(w.options.get("channels_last"))
    standardised = op_type in ("QLinearConv", "MaxPool")
    rank = _rank(w)
    if (last and not rank) or not (last or standardised):
        return False
    first = [0, rank - 1, *range(1, rank - 1)]
    back = [0, *range(2, rank), 1]
    domain = "" if standardised else MICROSOFT
    source = w.add("Transpose", w.input(0), perm=first) if last else w.input(0)
    made = _alike(w, op_type, [source, *w.node.input[1:]], "channels_last", domain=domain)
    if last:
        w.add("Transpose", made, perm=back)
    return True


def _root_mean_square(w: NodeWriter) -> bool:
    """Write a root mean square normalisation as elementary operators.

    Later passes recognise them.
    """
    skipping = w.node.op_type.startswith("Skip")
    source = w.input(0)
    gain = w.input(2 if skipping else 1)
    if (
        any(w.output(index) for index in ((1, 2) if skipping else (1,)))
        or w.options.get("axis", -1) != -1
    ):
        return False
    for name in (w.input(1), w.input(3)) if skipping else ():
        source = w.add("Add", source, name) if name else source
    if w.output(3):
        w.add("Identity", source, result=w.output(3))
    axes: dict[str, Any] = {"axes": [-1]} if w.graph.opset < 18 else {}
    operands = () if axes else (w.constant([-1], np.int64, "axes"),)
    mean = w.add("ReduceMean", w.add("Mul", source, source), *operands, keepdims=1, **axes)
    epsilon = w.constant(
        w.options.get("epsilon", 1e-5 if not skipping else 1e-12), np.float32, "epsilon"
    )
    quotient = w.add("Div", source, w.add("Sqrt", w.add("Add", mean, epsilon)))
    w.add("Mul", quotient, gain, label=w.node.name)
    return True


def _write_packed_product(w: NodeWriter) -> bool:
    """Write a product with packed weights of 2, 4 or 8 bits as a product with their real numbers.

    Returns False if the weights are not constant or their columns are permuted.
    """
    arrays = w.graph.constants
    if w.input(4) or any(name and name not in arrays for name in w.node.input[1:4]):
        return False
    columns, depth, block = (int(w.options[key]) for key in ("N", "K", "block_size"))
    bits = int(w.options.get("bits", 4))
    blocks = -(-depth // block)
    integers = _unpack(arrays[w.input(1)].reshape(columns, -1), bits)[:, : blocks * block]
    scales = arrays[w.input(2)].astype(np.float32).reshape(columns, blocks, 1)
    zeros: NDArray[Any] = arrays.get(w.input(3), np.full(scales.shape, 2.0 ** (bits - 1)))
    if zeros.dtype == np.uint8:
        zeros = _unpack(zeros.reshape(columns, -1), bits)[:, :blocks]
    zeros = zeros.astype(np.float32).reshape(scales.shape)
    real = (integers.reshape(columns, blocks, block) - zeros) * scales
    real = real.reshape(columns, -1)[:, :depth].T
    name = w.graph.constant(f"{w.input(1)}_real", real.astype(arrays[w.input(2)].dtype))
    product = w.add("MatMul", w.input(0), name, label=w.node.name)
    if w.input(5):
        w.add("Add", product, w.input(5))
    return True


def _unpack(rows: NDArray[Any], bits: int) -> NDArray[Any]:
    """Return the integers that each row of bytes packs, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    integers: NDArray[Any] = rows[..., np.newaxis] >> shifts & (2**bits - 1)
    return integers.reshape(*rows.shape[:-1], -1)


def _write_packed_rows(w: NodeWriter) -> bool:
    """Write a selection of rows of a table that is quantised in blocks as one of its real numbers.

    The table has int4 or uint4 numbers, or bytes that pack 2, 4 or 8 bits along the last axis.
    Returns False if the table is not constant.
    """
    arrays = w.graph.constants
    names = [w.input(0), w.input(2), *filter(None, [w.input(3)])]
    if any(name not in arrays for name in names):
        return False
    bits = int(w.options.get("bits", 4))
    table, scales, *zeros = (arrays[name] for name in names)
    axis = int(w.options.get("quantize_axis", 1))
    if table.dtype == np.uint8:
        table = _unpack(table, bits)
        middle = np.full(scales.shape, 2 ** (bits - 1))
        zeros = [_unpack(zeros[0], bits)[..., : scales.shape[-1]] if zeros else middle]
    size = int(w.options.get("block_size", 128))
    factors, offsets = (
        np.repeat(each.astype(np.float32), size, axis).take(range(table.shape[axis]), axis)
        for each in (scales, *(zeros or [np.zeros(scales.shape)]))
    )
    real = ((table.astype(np.float32) - offsets) * factors).astype(scales.dtype)
    name = w.graph.constant(f"{names[0]}_real", real)
    w.add("Gather", name, w.input(1), label=w.node.name, axis=w.options.get("gather_axis", 0))
    return True


def _write_without_blocks(w: NodeWriter) -> bool:
    """Replace a pool or layout change of blocked tensors by one of plain tensors.

    The channel order is the same.
    """
    kind = w.node.op_type
    last = bool(w.options.get("channels_last"))
    if kind in _BLOCKED_POOLS:  # the tensor with the old name was in blocks
        w.add("Identity", _alike(w, kind, w.node.input))
    elif kind == "ReorderInput" and last:
        w.add("Identity", w.add("Transpose", w.input(0), perm=[0, 3, 1, 2]))
    elif kind == "ReorderOutput" and last:
        w.add("Transpose", w.input(0), perm=[0, 2, 3, 1])
    elif kind in ("ReorderInput", "ReorderOutput"):
        w.add("Identity", w.input(0))
    else:
        raise InputError(
            f"node '{w.node.name or w.node.output[0]}' is {kind} in a layout of one processor: "
            "ONNX Runtime optimised and saved this model; give the original, or save it with "
            "ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL"
        )
    return True


_KNOWN: Mapping[str, tuple[Callable[[NodeWriter], bool], tuple[str, ...]]] = {
    "FusedConv": (_convolution, (MICROSOFT,)),
    "FusedGemm": (_product, (MICROSOFT,)),
    "MatMulNBits": (_write_packed_product, (MICROSOFT,)),
    "GatherBlockQuantized": (_write_packed_rows, (MICROSOFT,)),
    **dict.fromkeys(_CHANNELS_LAST, (_write_channels_last, (MICROSOFT,))),
    **dict.fromkeys(_ROOT_MEAN_SQUARES, (_root_mean_square, (MICROSOFT, ""))),
    **dict.fromkeys(
        (*_BLOCKED_POOLS, "Conv", "Upsample", "ReorderInput", "ReorderOutput"),
        (_write_without_blocks, (BLOCKED,)),
    ),
}
"""Functions that rewrite each operator, and the domains in which the operator is ONNX Runtime's."""


def _is_known(node: NodeProto) -> bool:
    """Return True if a node is an operator of ONNX Runtime that this module rewrites."""
    domains = _KNOWN[node.op_type][1] if node.op_type in _KNOWN else ()
    return ("" if standard(node) else node.domain) in domains


@write_operators(*_KNOWN, foreign=True)
def _restore(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Replace operators that only ONNX Runtime writes by standard ones, in one pass.

    An operator that needs the rank of its operand stays if the rank is still unknown, as after
    operators of other domains.
    """
    writer = NodeWriter(graph, node)
    return writer.finish() if _is_known(node) and _KNOWN[node.op_type][0](writer) else None


@look_at(*_KNOWN)
def restore_operators(model: ModelProto) -> ModelProto:
    """Replace the operators that ONNX Runtime wrote when it saved the model by ONNX operators.

    Raises:
        InputError: an operator whose weights have the layout of one processor.
    """
    if not any(map(_is_known, model.graph.node)):
        return model
    typed = complete_types(infer_shapes(model))
    made = _restore(typed)
    return model if made is typed else restore_operators(made)
