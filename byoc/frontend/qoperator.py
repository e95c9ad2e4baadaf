"""Recognition of integer operators: QLinear* and *Integer operators, and operators applied to integers directly."""

from __future__ import annotations

from byoc.frontend.units import Unit, Unrecognised, is_standard, make_quantization
from byoc.frontend.view import OnnxNode, OnnxView
from byoc.graph import Quantization

# Canonical operator, (tensor, scale, zero point) input triples of the data operands, (scale, zero point) of the
# result, index of an int32 bias. Sources: the ONNX operator documentation and ONNX Runtime's contrib operators.
Layout = tuple[str, tuple[tuple[int, int, int], ...], tuple[int, int], int | None]
_LAYOUTS: dict[str, Layout] = {
    "QLinearConv": ("Conv", ((0, 1, 2), (3, 4, 5)), (6, 7), 8),
    "QLinearMatMul": ("MatMul", ((0, 1, 2), (3, 4, 5)), (6, 7), None),
    "QGemm": ("Gemm", ((0, 1, 2), (3, 4, 5)), (7, 8), 6),
    "QLinearAdd": ("Add", ((0, 1, 2), (3, 4, 5)), (6, 7), None),
    "QLinearAveragePool": ("AveragePool", ((0, 1, 2),), (3, 4), None),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", ((0, 1, 2),), (3, 4), None),
    "QLinearLeakyRelu": ("LeakyRelu", ((0, 1, 2),), (3, 4), None),
}
_INTEGER_PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
PLAIN_OPERATORS = frozenset(
    {"MaxPool", "GlobalMaxPool", "Min", "Max", "Concat", "Relu", "Clip"}
    | {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Dropout"}
)
_ALL_INPUTS = frozenset({"Min", "Max", "Concat"})
_INTEGER_TYPES = ("int8", "uint8")


def integer_operators(op_type: str) -> tuple[str, ...]:
    """ONNX Runtime's and ONNX's integer operators that become the canonical operator ``op_type``."""
    layouts = [name for name, layout in _LAYOUTS.items() if layout[0] == op_type]
    products = [name for name, target in _INTEGER_PRODUCTS.items() if target == op_type]
    return (*layouts, *products, *(("QLinearConcat",) if op_type == "Concat" else ()))


def recognise_integer(view: OnnxView, node: OnnxNode) -> Unit | Unrecognised | None:
    """The unit of an integer operator, why it is none, or None where ``node`` is not an integer operator at all."""
    if node.op_type in _LAYOUTS:
        return _qlinear(view, node, *_LAYOUTS[node.op_type])
    if node.op_type == "QLinearConcat":
        return _concat(view, node)
    if node.op_type in _INTEGER_PRODUCTS:
        return _integer_product(view, node)
    if is_standard(node) and node.op_type in PLAIN_OPERATORS and view.element_type(node.inputs[0]) in _INTEGER_TYPES:
        return _plain(view, node)
    return None


def _qlinear(
    view: OnnxView,
    node: OnnxNode,
    op_type: str,
    triples: tuple[tuple[int, int, int], ...],
    result: tuple[int, int],
    bias: int | None,
) -> Unit | Unrecognised:
    if node.attributes.get("channels_last"):
        return Unrecognised("its channels are the last dimension; only channels-first tensors run on the accelerator")
    if not node.input(result[0]):
        return Unrecognised("it has no output scale, so its result is float")
    operands: list[str] = []
    quantizations: dict[str, Quantization] = {}
    for tensor, scale, zero_point in triples:
        axis = _channel_axis(op_type, node, view.shape(node.input(tensor))) if tensor == 3 else None
        outcome = _add(view, quantizations, node.input(tensor), node.input(scale), node.input(zero_point), axis)
        if outcome is not None:
            return outcome
        operands.append(node.input(tensor))
    outcome = _add(view, quantizations, node.outputs[0], node.input(result[0]), node.input(result[1]), None)
    if outcome is not None:
        return outcome
    if bias is not None and node.input(bias):
        operands.append(node.input(bias))
    return Unit(node, op_type, tuple(operands), node.outputs[0], quantizations, (node,))


def _channel_axis(op_type: str, node: OnnxNode, shape: tuple[int, ...]) -> int:
    """The axis along which a one-dimensional scale runs: filters, or the columns of the right-hand matrix."""
    if op_type == "Conv" or (op_type == "Gemm" and node.attributes.get("transB", 0)):
        return 0
    return len(shape) - 1


def _add(
    view: OnnxView, found: dict[str, Quantization], tensor: str, scale: str, zero_point: str, axis: int | None
) -> Unrecognised | None:
    """Record the quantisation of ``tensor``; an :class:`Unrecognised` where it is not constant or contradicts."""
    quantization = make_quantization(view, scale, zero_point, axis)
    if quantization is None:
        return Unrecognised(f"scale and zero point of '{tensor}' are not constant")
    channels = 1 if axis is None else view.shape(tensor)[axis]
    if quantization.scale.size not in (1, channels):
        return Unrecognised(f"'{tensor}' has {quantization.scale.size} scales")
    if tensor in found and not found[tensor].same_as(quantization):
        return Unrecognised(f"it reads '{tensor}' with two quantisations")
    found[tensor] = quantization
    return None


def _concat(view: OnnxView, node: OnnxNode) -> Unit | Unrecognised:
    quantizations: dict[str, Quantization] = {}
    outcome = _add(view, quantizations, node.outputs[0], node.input(0), node.input(1), None)
    for index in range(2, len(node.inputs), 3):
        names = node.inputs[index : index + 3]
        outcome = outcome or _add(view, quantizations, names[0], names[1], names[2], None)
    if outcome is not None:
        return outcome
    return Unit(node, "Concat", node.inputs[2::3], node.outputs[0], quantizations, (node,))


def _integer_product(view: OnnxView, node: OnnxNode) -> Unit | Unrecognised:
    for name in filter(None, (node.input(2), node.input(3))):
        if name not in view.constants:
            return Unrecognised(f"its zero point '{name}' is not constant")
    op_type = _INTEGER_PRODUCTS[node.op_type]
    return Unit(node, op_type, node.inputs[:2], node.outputs[0], {}, (node,), plain=True)


def _plain(view: OnnxView, node: OnnxNode) -> Unit | Unrecognised:
    if any(node.outputs[1:]):
        return Unrecognised(f"it has a second output '{node.outputs[1]}'")
    operands = node.inputs if node.op_type in _ALL_INPUTS else node.inputs[:1]
    return Unit(node, node.op_type, operands, node.outputs[0], {}, (node,), plain=True)
