"""The compiler's side of ``dla_e_mean``: ONNX ``Mean`` between quantised tensors, on ``OP_E_MEAN``.

The second file.
"""

from __future__ import annotations

from dataclasses import dataclass

from byoc.graph import Graph, Node
from byoc.operators import domain, elementwise
from byoc.operators.domain import Affine
from byoc.operators.elementwise import ElementwiseOperator, layer_of
from byoc.operators.forms import Form
from byoc.operators.records import Settings
from byoc.operators.rules import Finding, finding, rule
from byoc.options import Target
from isa.arch import Arch
from isa.numerics import float32_bits


@rule("the mean is of two tensors of one shape")
def two_alike(graph: Graph, node: Node) -> Finding | None:
    """The instruction has two operands, and goes along both alike."""
    shapes = [graph.values[name].shape for name in node.inputs]
    found = finding("operands have the shapes {shapes}", shapes=shapes)
    return None if len(shapes) == 2 and len(set(shapes)) == 1 else found


@rule("OP_E_MEAN computes in float32: choose numerics onnxruntime")
def computes_in_float(record: Averaging, target: Target) -> Finding | None:
    """The machine computes as ONNX Runtime does."""
    found = finding("the machine's numerics are {numerics}", numerics=target.numerics)
    return None if target.numerics == "onnxruntime" else found


@dataclass(frozen=True, eq=False, kw_only=True)
class Averaging(ElementwiseOperator):
    """The mean of two operands, each with its quantisation; ``limits`` clamp the result."""

    family = "averaging"
    forms = (Form("Mean", operands=None, activation=True),)
    instructions = ("OP_E_MEAN",)
    requirements = (
        two_alike,
        *(*elementwise.UNARY, elementwise.equal_types, elementwise.quantised),
        *(domain.per_tensor, domain.usable_scales),
    )
    constraints = (computes_in_float,)

    affines: tuple[Affine, Affine, Affine]
    limits: tuple[int, int]

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Averaging:
        a, b, y = (domain.affine(graph.values[name]) for name in (*node.inputs, *node.outputs))
        return cls(**layer_of(graph, node), affines=(a, b, y), limits=domain.clamp(node, y))

    def settings(self, arch: Arch) -> Settings:
        registers = dict(zip(("EX_CLAMP_LOW", "EX_CLAMP_HIGH"), self.limits, strict=True))
        for affine, scale, zero in zip(
            self.affines, "ABY", ("INPUT", "OPERAND", "OUTPUT"), strict=True
        ):
            registers[f"EX_SCALE_{scale}"] = float32_bits(affine.scale)
            registers[f"EX_{zero}_ZERO_POINT"] = affine.stored_zero_point
        return Settings(registers, {})
