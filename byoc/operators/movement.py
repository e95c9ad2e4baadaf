"""Data movement: Reshape and its kin and Transpose that keeps the order, which cost nothing; copies where they must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from byoc.graph import Graph, Node
from byoc.operators import domain, elementwise
from byoc.operators.forms import Form, Written
from byoc.operators.operator import Operand, Operator, Requirement
from byoc.operators.rules import Finding, finding, rule


@rule("only a Transpose that keeps the order of the dimensions longer than 1 costs nothing")
def keeps_order(graph: Graph, node: Node) -> Finding | None:
    """The elements of the result are in the order of the operand's."""
    if "perm" not in node.attributes:
        return None
    shape, permutation = graph.values[node.inputs[0]].shape, node.attributes["perm"]
    long = [axis for axis in permutation if shape[axis] > 1]
    if long == sorted(long):
        return None
    return finding("perm {permutation} reorders shape {shape}", permutation=permutation, shape=shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Alias(Operator):
    """Each input's elements are, unchanged, a dense slice of the output: Reshape, Flatten, free Transpose, Concat.

    ``offsets`` gives for each input its first element in the output. Costs nothing where both can share one buffer;
    where they cannot, lowering inserts a :class:`Copy`.
    """

    family: ClassVar[str] = "movement"
    free: ClassVar[bool] = True
    forms: ClassVar[tuple[Form, ...]] = (
        Form("Reshape", plain=True, passive=True, ranges="first"),
        Form("Flatten", plain=True, passive=True, ranges="first"),
        Form("Squeeze", plain=True, passive=True, ranges="first"),
        Form("Unsqueeze", plain=True, passive=True, ranges="first"),
        Form("Identity", plain=True, quantise=False),
        Form("Dropout", plain=True, quantise=False),
        Form("Transpose", plain=True, passive=True, ranges="first", attributes=("perm",)),
    )
    arity: ClassVar[tuple[int, int]] = (1, 1)
    requirements: ClassVar[tuple[Requirement, ...]] = (
        elementwise.computed_operands,
        domain.eight_bit_input,
        domain.eight_bit_output,
        domain.per_tensor,
        domain.not_empty,
        domain.moves_integers,
        keeps_order,
    )

    offsets: tuple[int, ...] = (0,)

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """The permutation of a Transpose."""
        if written.form.onnx != "Transpose":
            return {}
        rank = len(written.operand_shape())
        return {"perm": tuple(written.node.attributes.get("perm", tuple(reversed(range(rank)))))}

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Alias:
        """The alias that a data movement node is."""
        source, result = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
        return cls(
            name=node.name,
            kind="DMA",
            inputs=(domain.whole(source, domain.elementwise_shape(source.shape)),),
            output=domain.whole(result, domain.elementwise_shape(result.shape)),
            onnx_nodes=node.onnx_nodes,
        )

    def slices(self) -> tuple[tuple[Operand, Operand], ...]:
        """Each input, and where it is in the output."""
        output = self.output
        return tuple(
            (source, Operand(output.value, source.shape, output.offset + offset, source.dtype))
            for source, offset in zip(self.inputs, self.offsets, strict=True)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Copy(Operator):
    """Bytes moved unchanged through the scratchpad by the two DMA units: no ONNX operator and no instruction."""

    flat: ClassVar[bool] = True
    in_place: ClassVar[bool] = True
