"""The compiler's side of ``dla_e_sub``: ONNX ``Sub`` between quantised tensors, on ``OP_E_SUB``. The second file."""

from __future__ import annotations

from byoc.graph import Graph, Node
from byoc.operations import ElementwiseOperation, Via
from byoc.patterns import elementwise, tensors
from byoc.patterns.base import Pattern, as_parsed
from byoc.target import Target
from isa.numerics import float32_bits


def parse(graph: Graph, node: Node) -> ElementwiseOperation:
    """The operation that a subtraction is, once it meets every requirement."""
    first, second, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
    a, b, y = (tensors.affine(value) for value in (first, second, result))
    low, high = tensors.clamp(node, y)
    shape = tensors.elementwise_shape(result.shape)
    registers = {
        "EX_SCALE_A": float32_bits(a.scale), "EX_SCALE_B": float32_bits(b.scale), "EX_SCALE_Y": float32_bits(y.scale),
        "EX_INPUT_ZERO_POINT": a.stored_zero_point, "EX_OPERAND_ZERO_POINT": b.stored_zero_point,
        "EX_OUTPUT_ZERO_POINT": y.stored_zero_point, "EX_CLAMP_LOW": low, "EX_CLAMP_HIGH": high,
    }  # fmt: skip
    return ElementwiseOperation(
        name=node.name,
        kind="ELTWISE",
        inputs=(tensors.whole(first, shape), tensors.whole(second, shape)),
        output=tensors.whole(result, shape),
        onnx_nodes=node.onnx_nodes,
        via=Via(mnemonic="OP_E_SUB", registers=registers),
    )


def computes_in_float(record: ElementwiseOperation, target: Target) -> str | None:
    """OP_E_SUB computes in float32: choose numerics onnxruntime"""
    return None if target.numerics == "onnxruntime" else f"the machine's numerics are {target.numerics}"


PATTERN: Pattern[ElementwiseOperation] = Pattern(
    name="subtraction",
    op_types=("Sub",),
    requirements=(*elementwise.BINARY, elementwise.quantised, tensors.per_tensor, tensors.usable_scales),
    parse=parse,
    constraints=(computes_in_float,),
    operations=as_parsed,
    instructions=("OP_E_SUB",),
    quantised={"Sub": 2},
)
