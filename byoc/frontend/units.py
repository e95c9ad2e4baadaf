"""Recognition of integer units: DequantizeLinear–operator–QuantizeLinear groups, read as one operator on integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from byoc.frontend.float_reasons import float_reason
from byoc.frontend.view import OnnxNode, OnnxView
from byoc.graph import Quantization
from byoc.patterns.registry import installed


@dataclass(frozen=True, eq=False)
class Unit:
    """One operator on integer tensors. ``operands`` and ``result`` are ONNX tensor names; quantisations go with them.

    ``activation`` is the ONNX Relu or Clip between the operator and its QuantizeLinear; ``plain`` says that the
    operator works on the integers themselves, without scales; ``covers`` lists every ONNX node of the unit.
    """

    node: OnnxNode
    op_type: str
    operands: tuple[str, ...]
    result: str
    quantizations: Mapping[str, Quantization]
    covers: tuple[OnnxNode, ...]
    activation: OnnxNode | None = None
    plain: bool = False


@dataclass(frozen=True)
class Unrecognised:
    """Why a node is not an integer unit."""

    remark: str


# Float operators that form units, and how many of their first inputs are quantised (the rest are parameters).
QUANTISED_OPERANDS: dict[str, int | None] = {
    "Conv": 3,
    "MatMul": 2,
    "Gemm": 3,
    "Add": 2,
    "Relu": 1,
    "Clip": 1,
    "LeakyRelu": 1,
    "Abs": 1,
    "Min": None,
    "Max": None,
    "MaxPool": 1,
    "AveragePool": 1,
    "GlobalAveragePool": 1,
    "GlobalMaxPool": 1,
    "Concat": None,
    "Reshape": 1,
    "Flatten": 1,
    "Squeeze": 1,
    "Unsqueeze": 1,
    "Identity": 1,
    "Transpose": 1,
    "Dropout": 1,
}
FUSES_ACTIVATION = frozenset({"Conv", "MatMul", "Gemm", "Add", "AveragePool", "GlobalAveragePool"})
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


def is_standard(node: OnnxNode) -> bool:
    """True for operators of the default ONNX domain."""
    return node.domain in ("", "ai.onnx")


def make_quantization(view: OnnxView, scale: str, zero_point: str, axis: int | None) -> Quantization | None:
    """Quantisation from the names of constant parameters; None where they are not constant or have an unknown form."""
    scales = view.constants.get(scale)
    if (
        scales is None
        or scales.dtype != np.float32
        or scales.ndim > 1
        or (zero_point and zero_point not in view.constants)
    ):
        return None
    zeros = view.constants[zero_point] if zero_point else np.zeros(scales.shape, np.uint8)
    if zeros.dtype.kind not in "iu" or zeros.size != scales.size:
        return None
    if scales.size == 1:
        return Quantization(scales.reshape(()), zeros.astype(np.int32).reshape(()))
    return Quantization(scales, zeros.astype(np.int32), axis)


def linear_quantization(view: OnnxView, node: OnnxNode) -> Quantization | None:
    """Quantisation of a QuantizeLinear or DequantizeLinear node, None where it is not constant or is blocked."""
    if node.attributes.get("block_size"):
        return None
    integer = node.outputs[0] if node.op_type == QUANTIZE else node.inputs[0]
    axis = int(node.attributes.get("axis", 1))
    shape = view.shape(integer)
    axis = axis + len(shape) if axis < 0 else axis
    found = make_quantization(view, node.input(1), node.input(2), axis)
    if found is None or found.per_tensor or (axis < len(shape) and found.scale.shape == (shape[axis],)):
        return found
    return None


def quantised_operands() -> Mapping[str, int | None]:
    """``QUANTISED_OPERANDS`` and what the families of installed packages want."""
    return {**installed().quantised, **QUANTISED_OPERANDS}


def recognise(view: OnnxView, node: OnnxNode) -> Unit | Unrecognised:
    """The integer unit around a float operator, or why there is none."""
    if node.op_type == QUANTIZE:
        return _rescale(view, node)
    known = quantised_operands()
    if not is_standard(node) or node.op_type not in known:
        return Unrecognised("")
    names = [name for name in node.inputs[: known[node.op_type]] if name]
    quantizations: dict[str, Quantization] = {}
    covers: list[OnnxNode] = []
    operands: list[str] = []
    for name in names:
        source = view.producer.get(name)
        quantization = None
        if source is not None and source.op_type == DEQUANTIZE:
            quantization = linear_quantization(view, source)
        if source is None or quantization is None:
            return Unrecognised(float_reason(view, node, name))
        integer = source.inputs[0]
        if integer in quantizations and not quantizations[integer].same_as(quantization):
            return Unrecognised(f"it reads '{integer}' with two quantisations")
        operands.append(integer)
        quantizations[integer] = quantization
        covers.append(source)
    tail = _tail(view, node)
    if isinstance(tail, Unrecognised):
        return tail
    activation, quantize = tail
    result = linear_quantization(view, quantize)
    if result is None:
        return Unrecognised(f"its output '{node.outputs[0]}' is not quantised with constant parameters")
    quantizations[quantize.outputs[0]] = result
    middle = (node,) if activation is None else (node, activation)
    covered = tuple(dict.fromkeys((*covers, *middle, quantize)))
    return Unit(node, node.op_type, tuple(operands), quantize.outputs[0], quantizations, covered, activation)


def _rescale(view: OnnxView, node: OnnxNode) -> Unit | Unrecognised:
    """A DequantizeLinear that goes straight into a QuantizeLinear: a change of scale, or nothing at all."""
    source = view.producer.get(node.inputs[0])
    if source is None or source.op_type != DEQUANTIZE:
        return Unrecognised("")
    before, after = linear_quantization(view, source), linear_quantization(view, node)
    if before is None or after is None:
        return Unrecognised("")
    operand, result = source.inputs[0], node.outputs[0]
    same = before.same_as(after) and view.element_type(operand) == view.element_type(result)
    op_type = "Identity" if same else "Requantize"
    return Unit(node, op_type, (operand,), result, {operand: before, result: after}, (source, node))


def _tail(view: OnnxView, node: OnnxNode) -> tuple[OnnxNode | None, OnnxNode] | Unrecognised:
    """The activation, if any, and the QuantizeLinear that end a unit."""
    if any(node.outputs[1:]):
        return Unrecognised(f"it has a second output '{node.outputs[1]}'")
    user = _only_user(view, node)
    if isinstance(user, Unrecognised):
        return user
    if user.op_type == QUANTIZE:
        return None, user
    if user.op_type in ("Relu", "Clip") and is_standard(user) and node.op_type in FUSES_ACTIVATION:
        last = _only_user(view, user)
        if isinstance(last, OnnxNode) and last.op_type == QUANTIZE and clip_bounds(view, user) is not None:
            return user, last
    return Unrecognised(f"its output '{node.outputs[0]}' goes in float to {user.op_type} '{user.name}'")


def _only_user(view: OnnxView, node: OnnxNode) -> OnnxNode | Unrecognised:
    name = node.outputs[0]
    users = view.consumers.get(name, ())
    if name in view.outputs:
        return Unrecognised(f"its output '{name}' is a float output of the model")
    if len(users) != 1:
        return Unrecognised(f"its output '{name}' is used in float by {len(users)} nodes")
    return users[0]


def clip_bounds(view: OnnxView, node: OnnxNode) -> tuple[float, float] | None:
    """Lower and upper bound of a Relu or Clip in real numbers; None where they are not constant."""
    if node.op_type == "Relu":
        return 0.0, float("inf")
    bounds = []
    for index, key, default in ((1, "min", -np.inf), (2, "max", np.inf)):
        name = node.input(index)
        if not name:
            bounds.append(float(node.attributes.get(key, default)))
            continue
        number = _real_constant(view, name)
        if number is None:
            return None
        bounds.append(number)
    return bounds[0], bounds[1]


def _real_constant(view: OnnxView, name: str) -> float | None:
    """The scalar that ``name`` holds, looking through one DequantizeLinear."""
    source = view.producer.get(name)
    if source is not None and source.op_type == DEQUANTIZE and source.inputs[0] in view.constants:
        quantization = linear_quantization(view, source)
        steps = view.constants[source.inputs[0]]
        if quantization is None or steps.size != 1:
            return None
        return float(np.float32(int(steps.reshape(())) - int(quantization.zero_point)) * quantization.scale)
    constant = view.constants.get(name)
    return float(constant.reshape(())) if constant is not None and constant.size == 1 else None
