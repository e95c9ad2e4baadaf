"""Functions of one quantised tensor: Relu, Clip, LeakyRelu, Abs, and a change of quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from byoc.operators import domain, elementwise
from byoc.operators.elementwise import ElementwiseOperator, layer_of
from byoc.operators.forms import Form, Kinds, QLinear, Written, numeric, several
from byoc.operators.onnx_view import OnnxNode, OnnxView
from byoc.operators.records import Operand, Settings
from byoc.operators.rules import Constraint, Finding, Requirement, finding, rule
from byoc.options import Target
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits

Function = Literal["relu", "leaky_relu", "abs"]
REQUANTISE = "Requantize"
"""Canonical type of a DequantizeLinear that feeds a QuantizeLinear with other parameters."""
_MNEMONICS: dict[Function, str] = {
    "relu": "OP_ACT_RELU",
    "leaky_relu": "OP_ACT_LRELU",
    "abs": "OP_E_ABS",
}


def clip_bounds(view: OnnxView, node: OnnxNode) -> tuple[float, float] | None:
    """Return the real lower and upper bound of a Relu or Clip, or None.

    The result is None if the bounds are not constant numbers.
    """
    if node.op_type == "Relu":
        return 0.0, float("inf")
    bounds = []
    for index, key, default in ((1, "min", -np.inf), (2, "max", np.inf)):
        name = node.input(index)
        number = view.scalar(name) if name else float(node.attributes.get(key, default))
        if number is None or np.isnan(number):
            return None
        bounds.append(number)
    return bounds[0], bounds[1]


@rule("the bounds of a Clip are constant")
def constant_bounds(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a Clip has bounds that are computed at run time, or None."""
    missing = node.op_type == "Clip" and "bounds" not in node.attributes
    return finding("its bounds are computed at run time") if missing else None


@rule("the slope of a LeakyRelu is finite")
def finite_slope(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the slope of a LeakyRelu is infinite or NaN, or None."""
    alpha = node.attributes.get("alpha", 1.0)
    return None if np.isfinite(alpha) else finding("alpha is {alpha}", alpha=alpha)


@rule(domain.FIXED)
def scales_in_int32(record: Activation, target: Target) -> Finding | None:
    """Return a finding if scaling 255 steps by a slope overflows int32, or None."""
    above, below = record.compute_fixed_slopes()
    return domain.check_int32(255, above, target) or domain.check_int32(255, abs(below), target)


@dataclass(frozen=True, eq=False, kw_only=True)
class Activation(ElementwiseOperator):
    """Relu, LeakyRelu, Abs or Clip of one quantised tensor.

    In float32 it computes ``rint(g((x - zx) * sx) / sy) + zy``. ``alpha`` is the slope of
    LeakyRelu. ``bare`` marks a change of quantisation without a function.
    """

    family: ClassVar[str] = "activation"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("Relu", plain=True, clamps=("low",)),
        Form(
            "LeakyRelu",
            attributes=("alpha",),
            integer=(QLinear("QLinearLeakyRelu", ((0, 1, 2),), (3, 4)),),
        ),
        Form("Abs"),
        Form("Clip", plain=True, clamps=("low", "high")),
    )
    inner_types: ClassVar[tuple[str, ...]] = (REQUANTISE,)
    arity: ClassVar[tuple[int, int]] = (1, 1)
    requirements: ClassVar[tuple[Requirement, ...]] = (
        *elementwise.UNARY,
        domain.per_tensor,
        domain.usable_scales,
        constant_bounds,
        finite_slope,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (scales_in_int32,)
    kinds: ClassVar[Kinds] = {"alpha": numeric, "bounds": several(numeric, 2)}

    # Clip and a change of quantisation are a leaky Relu of slope 1 with limits.
    functions: ClassVar[Mapping[str, Function]] = {
        "Relu": "relu",
        "LeakyRelu": "leaky_relu",
        "Abs": "abs",
        "Clip": "leaky_relu",
        REQUANTISE: "leaky_relu",
    }

    function: Function
    input_scale: float
    output_scale: float
    input_zero_point: int
    output_zero_point: int
    alpha: float = 0.0
    low: int = -128
    high: int = 127
    bare: bool = False

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """Return the slope of a LeakyRelu, or the bounds of a Clip if they are constant."""
        if written.form.onnx == "LeakyRelu":
            return {"alpha": float(np.float32(written.node.attributes.get("alpha", 0.01)))}
        bounds = clip_bounds(written.view, written.node) if written.form.onnx == "Clip" else None
        return {} if bounds is None else {"bounds": bounds}

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Return True for a Clip with computed limits, or with limits that exclude zero.

        A quantised range always contains zero.
        """
        if node.op_type != "Clip":
            return False
        limits = [*node.inputs[1:], "", ""][:2]
        if any(name and name not in constants for name in limits):
            return True
        low, high = (float(constants[name].reshape(())) if name else 0.0 for name in limits)
        return not low <= 0 <= high

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Self:
        before, after = (
            domain.numbers(node, graph.values[name]) for name in (*node.inputs, *node.outputs)
        )
        low, high = domain.quantise_bounds(node.attributes.get("bounds", (-np.inf, np.inf)), after)
        function = cls.functions[node.op_type]
        return cls(
            **layer_of(graph, node, "ELTWISE" if function == "abs" else "ACT"),
            function=function,
            input_scale=float(before.scale),
            output_scale=float(after.scale),
            input_zero_point=before.stored_zero_point,
            output_zero_point=after.stored_zero_point,
            alpha=float(node.attributes.get("alpha", 1.0)) if function == "leaky_relu" else 0.0,
            low=low,
            high=high,
            bare=node.op_type == REQUANTISE,
        )

    @property
    def mnemonic(self) -> str:
        return _MNEMONICS[self.function]

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for the output clamp, zero points and scales of an activation.

        Scales are float32 bits, or multipliers and shifts with numerics ``fixed``.
        """
        registers = {
            "EX_CLAMP_LOW": self.low,
            "EX_CLAMP_HIGH": self.high,
            "EX_INPUT_ZERO_POINT": self.input_zero_point,
            "EX_OUTPUT_ZERO_POINT": self.output_zero_point,
        }
        if arch.numerics == "onnxruntime":
            registers["EX_SCALE_A"] = float32_bits(self.input_scale)
            registers["EX_SCALE_B"] = float32_bits(self.alpha)
            registers["EX_SCALE_Y"] = float32_bits(self.output_scale)
            return Settings(registers, {})
        above, below = map(numerics.quantise_multiplier, self.compute_fixed_slopes())
        registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = above
        registers["EX_SCALE_B"] = below[0] & 0xFFFFFFFF
        registers["EX_SHIFT_B"] = below[1]
        return Settings(registers, {})

    def compute_fixed_slopes(self) -> tuple[float, float]:
        """Return the factors for inputs above and below the zero point with numerics ``fixed``.

        Factors of a change of quantisation are exact; those of functions are rounded to float32, as
        in LiteRT.
        """
        if self.bare:
            ratio = float(numerics.real_multiplier(self.input_scale, 1.0, self.output_scale))
            return ratio, ratio
        slope = self.alpha if self.function == "leaky_relu" else 0.0
        factors = ((self.input_scale,), (self.input_scale, slope))
        above, below = (
            float(numerics.compute_rounded_multiplier(*one, output_scale=self.output_scale))
            for one in factors
        )
        return above, below


def rescale(
    node: Node, source: Value, result: Value, output: Operand, first: int = 0
) -> Activation:
    """Return an operation that converts a tensor to the quantisation of ``result``.

    The operation is a LeakyRelu of slope 1.

    Args:
        node: the node that needs it.
        source: the tensor to convert.
        result: the tensor with the new quantisation.
        output: destination, which gives the number of elements; it may be another tensor than
            ``result``.
        first: first element of ``source``.
    """
    before = domain.affine(source)
    after = domain.affine(result)
    return Activation(
        name=node.name,
        kind="ACT",
        inputs=(Operand(source.name, output.shape, first),),
        output=output,
        onnx_nodes=node.onnx_nodes,
        function="leaky_relu",
        alpha=1.0,
        bare=True,
        input_scale=float(before.scale),
        output_scale=float(after.scale),
        input_zero_point=before.stored_zero_point,
        output_zero_point=after.stored_zero_point,
    )


def unscalable(source: Value, result: Value, target: Target) -> Finding | None:
    """Return a finding if rescaling 255 steps of ``source`` overflows int32, or None.

    The finding is possible only with numerics ``fixed``.
    """
    ratio = float(domain.affine(source).scale) / float(domain.affine(result).scale)
    return domain.check_int32(255, ratio, target)


def rescale_constant(value: Value, result: Value) -> Value:
    assert value.constant is not None
    before = domain.affine(value)
    after = domain.affine(result)
    scales = (float(before.scale), float(after.scale))
    zeros = (before.stored_zero_point, after.stored_zero_point)
    stored = numerics.unary(
        domain.to_stored_integers(value.constant), "leaky_relu", scales, zeros, 1.0
    )
    moved = (stored.astype(np.int64) + after.offset).astype(result.dtype)
    return replace(
        value,
        name=f"{result.name}:of:{value.name}",
        quantization=result.quantization,
        constant=moved,
    )
