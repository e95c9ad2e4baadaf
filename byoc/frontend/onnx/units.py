"""Recognise integer units of an ONNX model, and give the reason for nodes that are none.

A unit is a DequantizeLinear–operator–QuantizeLinear group, an operator with its own quantisations
(``QLinear*``), a product of bare integers (``*Integer``), or an operator applied to integers
directly. Operator families declare the operators and the meaning of their inputs
(:mod:`byoc.operators.forms`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onnx import GraphProto, ModelProto

from byoc.graph import Quantization
from byoc.operators import domain
from byoc.operators.activation import REQUANTISE, clip_bounds
from byoc.operators.forms import Form, IntegerProduct, QLinear
from byoc.operators.onnx_view import BOUNDARIES, CARRIERS, DEQUANTIZE, QUANTIZE, OnnxNode, OnnxView
from byoc.operators.operator import Operator
from byoc.operators.products import explain_unfused, float_reason
from byoc.operators.registry import load_installed_families

_ACTIVATIONS = ("Relu", "Clip")
_CPU_FORMS = {"GridSample": Form("GridSample", operands=2, attributes=("mode",))}
"""Operators without a family that the CPU computes from integers to integers, in one loop."""
NOT_QUANTISED = "is not quantised with constant parameters"
"""End of the remark on a node whose input or output is in float."""


@dataclass(frozen=True, eq=False)
class IntegerUnit:
    """Operator on integer tensors, with the ONNX nodes that quantise and dequantise around it.

    ``quantizations`` are those of operands and result. ``family`` and ``form`` describe the
    operator; both are None for a change of quantisation, whose canonical type is ``op_type``, and
    ``family`` is None for an operator that only the CPU computes.
    ``activation`` is the ONNX Relu or Clip between the operator and its QuantizeLinear. ``plain``
    is True if the operator works on the integers themselves, without scales. ``zero_points`` are
    those of the operands of a product of bare integers. ``covers`` lists every ONNX node of the
    unit. ``parameters`` are tensors of constant real numbers.
    """

    node: OnnxNode
    op_type: str
    operands: tuple[str, ...]
    result: str
    quantizations: Mapping[str, Quantization]
    covers: tuple[OnnxNode, ...]
    family: type[Operator] | None = None
    form: Form | None = None
    activation: OnnxNode | None = None
    plain: bool = False
    zero_points: tuple[tuple[int, ...], ...] | None = None
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unrecognised:
    """Result for a node that is not part of an integer unit; ``remark`` gives the reason."""

    remark: str


def recognise(view: OnnxView, node: OnnxNode) -> IntegerUnit | Unrecognised:
    """Return the integer unit that an ONNX node is part of, or the reason if there is none."""
    registry = load_installed_families()
    if node.op_type in registry.integer_forms:
        family, form, integer = registry.integer_forms[node.op_type]
        if isinstance(integer, QLinear):
            return _qlinear(view, node, family, form, integer)
        return _integer_product(view, node, family, form, integer)
    if node.op_type == QUANTIZE:
        return _rescale(view, node)
    if any(isinstance(value, GraphProto) for value in node.attributes.values()):
        return Unrecognised(_body_reason(view, node))
    if node.standard and node.op_type in _CPU_FORMS:
        found = _find_unit_between(view, node, None, _CPU_FORMS[node.op_type])
        return found if isinstance(found, IntegerUnit) else Unrecognised("")
    if not node.standard or node.op_type not in registry.forms:
        return Unrecognised(
            _table_reason(view, node) if node.op_type in registry.closes.operators else ""
        )
    family, form = registry.forms[node.op_type]
    if form.plain and view.element_type(node.input(form.flags)) in domain.STORED:
        return _plain(node, family, form)
    return _find_unit_between(view, node, family, form)


def _table_reason(view: OnnxView, node: OnnxNode) -> str:
    """Return why an element-wise operator is not replaced by a look-up table."""
    computed = [name for name in node.reads if not view.is_constant(name)]
    other = next(
        (
            name
            for name in computed
            if view.element_type(name) in ("float16", "float64", "int32", "int64")
        ),
        "",
    )
    if other:
        return _explain_unquantised(view, other)
    if len(computed) > 1:
        both = " and ".join(f"'{name}'" for name in computed)
        return f"it is computed from {both}; a table has one operand that is not constant"
    for name in computed:
        source = view.producer.get(name)
        if source is None or source.op_type != DEQUANTIZE or view.quantization_of(source) is None:
            return _explain_unquantised(view, name)
    user = _only_user(view, node)
    if isinstance(user, OnnxNode) and user.op_type == QUANTIZE:
        return _explain_quantisation(view, user)
    return f"its output '{node.outputs[0]}' {NOT_QUANTISED}"


def _body_reason(view: OnnxView, node: OnnxNode) -> str:
    decides = [name for name in node.inputs[:2] if name and view.element_type(name) == "bool"]
    computed = next((name for name in decides if name not in view.constants), "")
    which = f" and its condition cond ('{computed}') is computed at run time" if computed else ""
    return (
        f"it has a body{which}; where an input decides about it, make that a constant with --fix "
        "NAME=VALUE"
    )


_CARRIERS = frozenset({*CARRIERS, "QuantizeLinear", "Clip"})
"""Operators between a constant and its DequantizeLinear that move elements or are folded."""


def is_quantised(model: ModelProto) -> bool:
    """Return True if a model has integer operators on computed tensors.

    These are QDQ, ``QLinear*``, ``*Integer`` and QGemm. Dequantised constants, and rows of them
    selected at run time, are float computations and do not count.
    """
    integer = {*BOUNDARIES, "DynamicQuantizeLinear", *load_installed_families().integer_forms}
    producers = {name: node for node in model.graph.node for name in node.output}
    stored = {tensor.name for tensor in model.graph.initializer}

    def is_constant(name: str) -> bool:
        for _ in range(len(model.graph.node)):
            maker = producers.get(name)
            if maker is None or maker.op_type not in _CARRIERS:
                return (
                    name in stored
                    or not name
                    or (maker is not None and maker.op_type == "Constant")
                )
            name = maker.input[0]
        return False

    found = (
        node
        for node in model.graph.node
        if node.op_type in integer or node.op_type.startswith("QLinear")
    )
    return any(
        node.op_type not in BOUNDARIES or not all(map(is_constant, node.input)) for node in found
    )


# Operators on integers.


def _qlinear(
    view: OnnxView, node: OnnxNode, family: type[Operator], form: Form, integer: QLinear
) -> IntegerUnit | Unrecognised:
    if node.attributes.get("channels_last"):
        return Unrecognised(
            "it has channels_last = 1; only channels-first tensors run on the accelerator"
        )
    if view.element_type(node.outputs[0]).startswith("float"):
        lacking = "y_zero_point" if node.input(integer.result[0]) else "y_scale"
        return Unrecognised(f"it has no {lacking}, so its result is float")
    operands = list(node.inputs[: form.flags])
    quantizations: dict[str, Quantization] = {}
    for number, (tensor, scale, zero_point) in enumerate(integer.triples(len(node.inputs))):
        name = node.input(tensor)
        weights = number == 1 and not integer.repeats
        rank = len(view.shape(name))
        axis = form.channel_axis(node, rank) if weights and rank else None
        outcome = _add(view, quantizations, name, node.input(scale), node.input(zero_point), axis)
        if outcome is not None:
            return outcome
        operands.append(name)
    parameters = [node.input(position) for position in integer.result]
    outcome = _add(view, quantizations, node.outputs[0], parameters[0], parameters[1], None)
    if outcome is not None:
        return outcome
    if integer.bias is not None and node.input(integer.bias):
        operands.append(node.input(integer.bias))
    return IntegerUnit(
        node, form.op_type, tuple(operands), node.outputs[0], quantizations, (node,), family, form
    )


def _add(
    view: OnnxView,
    found: dict[str, Quantization],
    tensor: str,
    scale: str,
    zero_point: str,
    axis: int | None,
) -> Unrecognised | None:
    """Record the scale and zero point of ``tensor``.

    Returns Unrecognised if it is computed or contradictory.
    """
    quantization = view.quantization(scale, zero_point, axis)
    if quantization is None:
        return Unrecognised(_explain_parameter(view, tensor, scale, zero_point))
    channels = 1 if axis is None else view.shape(tensor)[axis]
    if quantization.scale.size not in (1, channels):
        return Unrecognised(f"'{tensor}' has {quantization.scale.size} scales")
    if tensor in found and not found[tensor].same_as(quantization):
        return Unrecognised(f"it reads '{tensor}' with two quantisations")
    found[tensor] = quantization
    return None


def _explain_parameter(view: OnnxView, tensor: str, scale: str, zero_point: str) -> str:
    """Return which scale or zero point is computed or has an invalid type or shape."""
    for name, role in ((scale, "scale"), (zero_point, "zero point")):
        if name and name not in view.constants:
            return f"the {role} '{name}' of '{tensor}' is computed at run time"
    shown = f"{view.element_type(scale)} {list(view.shape(scale))}"
    return (
        f"'{tensor}' has the scale '{scale}' of {shown}; scales are float32, one for all or one a "
        "channel"
    )


def _explain_quantisation(view: OnnxView, node: OnnxNode) -> str:
    """Return why a QuantizeLinear or DequantizeLinear lacks constant parameters."""
    integers = node.outputs[0] if node.op_type == QUANTIZE else node.inputs[0]
    return _explain_parameter(view, integers, node.input(1), node.input(2))


def shape_cause(view: OnnxView, unit: IntegerUnit) -> str:
    """Explain which run-time operand determines the shape of an integer unit's result.

    The text is empty if none does.
    """
    if unit.form is None or unit.form.operands is None or unit.result not in view.open:
        return ""
    decides = (
        name
        for name in unit.node.inputs[unit.form.operands :]
        if name and name not in view.constants
    )
    name = "" if view.open.intersection(unit.operands) else next(decides, "")
    return name and f"the shape of its result depends on '{name}', which is computed at run time"


def _integer_product(
    view: OnnxView, node: OnnxNode, family: type[Operator], form: Form, integer: IntegerProduct
) -> IntegerUnit | Unrecognised:
    names = [node.input(position) for position in integer.zero_points]
    for name in filter(None, names):
        if name not in view.constants:
            return Unrecognised(f"its zero point '{name}' is not constant")
    zero_points = tuple(
        tuple(int(number) for number in view.constants[name].reshape(-1)) if name else (0,)
        for name in names
    )
    operands = node.inputs[:2]
    result = node.outputs[0]
    return IntegerUnit(
        node,
        form.op_type,
        operands,
        result,
        {},
        (node,),
        family,
        form,
        plain=True,
        zero_points=zero_points,
    )


def _plain(node: OnnxNode, family: type[Operator], form: Form) -> IntegerUnit | Unrecognised:
    if any(node.outputs[1:]):
        return Unrecognised(f"it has a second output '{node.outputs[1]}'")
    return IntegerUnit(
        node,
        form.op_type,
        node.inputs[: form.operands],
        node.outputs[0],
        {},
        (node,),
        family,
        form,
        plain=True,
    )


# Operators between DequantizeLinear and QuantizeLinear.


def _find_unit_between(
    view: OnnxView, node: OnnxNode, family: type[Operator] | None, form: Form
) -> IntegerUnit | Unrecognised:
    unit = _find_dequantised_unit(view, node, family, form)
    if isinstance(unit, Unrecognised) or form.bare:
        return unit
    tail = _tail(view, node, form)
    if isinstance(tail, Unrecognised):
        return tail
    activation, quantize = tail
    quantization = view.quantization_of(quantize)
    result = quantize.outputs[0]
    if quantization is None:
        return Unrecognised(_explain_quantisation(view, quantize))
    in_float = explain_unfused(view, form, (*unit.operands[:2], result))
    if in_float:
        return Unrecognised(in_float)
    behind = (quantize,) if activation is None else (activation, quantize)
    quantizations = {**unit.quantizations, result: quantization}
    covers = (*unit.covers, *behind)
    return replace(
        unit, result=result, quantizations=quantizations, covers=covers, activation=activation
    )


def _find_dequantised_unit(
    view: OnnxView, node: OnnxNode, family: type[Operator] | None, form: Form
) -> IntegerUnit | Unrecognised:
    """Return an integer unit that ends at ``node``, with dequantised operands or flags."""
    quantizations: dict[str, Quantization] = {}
    covers: list[OnnxNode] = []
    operands: list[str] = []
    for position, name in enumerate(name for name in node.inputs[: form.operands] if name):
        if position < form.flags:
            operands.append(name)
            continue
        source = view.producer.get(name)
        quantization = None
        if source is not None and source.op_type == DEQUANTIZE:
            quantization = view.quantization_of(source)
        if source is None or quantization is None:
            return Unrecognised(_float_reason(view, node, form, name))
        integer = source.inputs[0]
        if integer in quantizations and not quantizations[integer].same_as(quantization):
            return Unrecognised(f"it reads '{integer}' with two quantisations")
        operands.append(integer)
        quantizations[integer] = quantization
        covers.append(source)
    parameters = tuple(node.input(position) for position in form.parameters if node.input(position))
    for name in parameters:
        if view.real(name) is None:
            return Unrecognised(f"its parameter '{name}' is computed at run time")
    covered = (*dict.fromkeys(covers), node)
    names = tuple(operands), node.outputs[0]
    return IntegerUnit(
        node, form.op_type, *names, quantizations, covered, family, form, parameters=parameters
    )


def _float_reason(view: OnnxView, node: OnnxNode, form: Form, name: str) -> str:
    """Return why an input of ``node`` is in float.

    A cause that no quantiser could remove comes first.
    """
    plain = _explain_unquantised(view, name)
    return (float_reason(view, form, node) or plain) if plain.endswith(NOT_QUANTISED) else plain


def _explain_unquantised(view: OnnxView, name: str) -> str:
    """Return why an operator's operand is not quantised, such as its element type."""
    kind = view.element_type(name)
    source = view.producer.get(name)
    if source is not None and source.op_type == DEQUANTIZE:
        return _explain_quantisation(view, source)
    if kind.startswith(("int", "uint", "bool")):
        return (
            f"its input '{name}' is {kind}, integers that stand for no real numbers: the CPU "
            "computes with them"
        )
    if kind and kind != "float32":
        return (
            f"its input '{name}' is {kind}; only float32 is quantised: export the model in float32"
        )
    return f"its input '{name}' {NOT_QUANTISED}"


def _rescale(view: OnnxView, node: OnnxNode) -> IntegerUnit | Unrecognised:
    """Read DequantizeLinear followed by QuantizeLinear as a change of scale or an identity."""
    source = view.producer.get(node.inputs[0])
    if source is None or source.op_type != DEQUANTIZE:
        return Unrecognised("")
    before = view.quantization_of(source)
    after = view.quantization_of(node)
    if before is None or after is None:
        return Unrecognised("")
    operand = source.inputs[0]
    result = node.outputs[0]
    types = view.element_type(operand), view.element_type(result)
    same = before.same_as(after) and types[0] == types[1]
    # int8 and uint8 integers that differ by 128 are stored alike
    if set(types) == set(domain.INT8):
        signed, unsigned = (before, after) if types[0] == "int8" else (after, before)
        moved = replace(unsigned, zero_point=unsigned.zero_point - 128)
        same = signed.per_tensor and signed.same_as(moved)
    op_type = "Identity" if same else REQUANTISE
    return IntegerUnit(
        node, op_type, (operand,), result, {operand: before, result: after}, (source, node)
    )


def _tail(
    view: OnnxView, node: OnnxNode, form: Form
) -> tuple[OnnxNode | None, OnnxNode] | Unrecognised:
    """Return the optional activation and the QuantizeLinear that follow an operator."""
    if any(node.outputs[1:]):
        return Unrecognised(f"it has a second output '{node.outputs[1]}'")
    user = _only_user(view, node)
    if isinstance(user, Unrecognised):
        return user
    if user.op_type == QUANTIZE:
        return None, user
    if user.op_type in _ACTIVATIONS and user.standard and form.activation:
        last = _only_user(view, user)
        if (
            isinstance(last, OnnxNode)
            and last.op_type == QUANTIZE
            and clip_bounds(view, user) is not None
        ):
            return user, last
    return Unrecognised(
        f"its output '{node.outputs[0]}' goes in float to {user.op_type} '{user.name}'"
    )


def _only_user(view: OnnxView, node: OnnxNode) -> OnnxNode | Unrecognised:
    name = node.outputs[0]
    users = view.consumers.get(name, ())
    if name in view.outputs:
        return Unrecognised(f"its output '{name}' is a float output of the model")
    if len(users) != 1:
        return Unrecognised(f"its output '{name}' is used in float by {len(users)} nodes")
    return users[0]
