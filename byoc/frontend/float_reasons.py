"""Why an operator was not quantised: what about it no quantiser could mend, else simply that it was not."""

from __future__ import annotations

from byoc.frontend.view import OnnxNode, OnnxView

_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})


def float_reason(view: OnnxView, node: OnnxNode, name: str) -> str:
    """The reason that input ``name`` of ``node`` is in float: the operator's own, where it has one."""
    kind = view.element_type(name)
    if kind and kind != "float32":
        return f"its input '{name}' is {kind}; only float32 is quantised: export the model in float32"
    if node.op_type in _PRODUCTS:
        return _product_reason(view, node) or _plain(name)
    return _plain(name)


def _product_reason(view: OnnxView, node: OnnxNode) -> str:
    """What keeps a product in float: computed weights, or a bias that is not one number a channel. Empty: neither."""
    weights, bias = node.input(1), node.input(2)
    if not _is_constant(view, weights):
        return f"its operand '{weights}' is computed; only constant weights run on the accelerator"
    if bias and not _is_constant(view, bias):
        return f"its bias '{bias}' is computed; only a constant bias runs on the accelerator"
    shape = view.shape(bias) if bias else ()
    if len(shape) > 1 and shape[0] > 1:
        return f"its bias '{bias}' has shape {shape}; only one number a channel runs on the accelerator"
    return ""


def _is_constant(view: OnnxView, name: str) -> bool:
    """Whether a tensor is constant, looking through one DequantizeLinear."""
    source = view.producer.get(name)
    if source is not None and source.op_type == "DequantizeLinear":
        name = source.inputs[0]
    return name in view.constants


def _plain(name: str) -> str:
    return f"its input '{name}' is not quantised with constant parameters"
