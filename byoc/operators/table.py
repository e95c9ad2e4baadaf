"""Look-up tables: any element-wise function of one int8 tensor is one table of 256 results.

The importer finds such subgraphs and runs their own nodes on every value
(:mod:`byoc.frontend.onnx.closures`), so a table is exact by construction.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from byoc.operators import domain
from byoc.operators.elementwise import ElementwiseOperator
from byoc.operators.forms import Closes
from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.operator import Operator
from byoc.operators.records import ChannelConstants, Loops, Operand, Registers, Settings, Traits
from byoc.operators.rules import Finding, Requirement, finding, rule
from isa.arch import Arch
from isa.ops.lookup import TABLE_BYTES

TABLE = "Table"
"""Canonical type.

Operands are the data, and a constant of 256 results, or 256 per channel, in byte order.
"""


LOOKING_UP = ("OP_LUT",)
"""Instructions that only look up tables."""
FUNCTIONS = frozenset({
    "Abs", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "LeakyRelu",
    "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin",
    "Softplus", "Softsign",
    "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
})  # fmt: skip
POLYNOMIAL = frozenset({"Add", "Mul", "Sub"})
"""Operators that compute the same numbers from integers as from real numbers."""
AFFINE = POLYNOMIAL | {"BatchNormalization", "Div"}
"""Operators that scale and shift one operand if the others are constant."""
ARITHMETIC = POLYNOMIAL | {"Div", "Max", "Min", "Mod", "Pow"}
CLOSED = FUNCTIONS | ARITHMETIC | {
    "And", "BatchNormalization", "Cast", "Equal", "FastGelu", "Greater", "GreaterOrEqual",
    "Identity", "Less",
    "LessOrEqual", "Not", "Or", "PRelu", "QuickGelu", "Where", "Xor",
}  # fmt: skip
"""Element-wise operators that can be part of a function of one tensor's 256 values."""


def channels_of(shape: tuple[int, ...]) -> int:
    """Return the number of channels of a tensor: its second dimension, or its only one.

    The result is 0 for a scalar.
    """
    return shape[min(len(shape), 2) - 1] if shape else 0


@rule("the data is computed at run time, the table is constant")
def constant_table(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a look-up has constant data or a computed table, or None."""
    data, table = (graph.values[name] for name in node.inputs)
    if data.constant is not None:
        return finding("input '{name}' is constant", name=data.name)
    return (
        finding("table '{name}' is computed", name=table.name) if table.constant is None else None
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class TableOperator(ElementwiseOperator):
    """Look-up of every element of a tensor in one table.

    ``table`` is int8 (256,), the stored result of every stored value in byte order.
    """

    family: ClassVar[str] = "table"
    inner_types: ClassVar[tuple[str, ...]] = (TABLE,)
    closes: ClassVar[Closes] = Closes(
        operators=CLOSED,
        functions=FUNCTIONS,
        arithmetic=ARITHMETIC,
        channel_seconds=frozenset({"Div", "PRelu", "Pow"}),
        channel_floats=frozenset({"Add", "Max", "Min", "Mul", "Sub"}),
        vectors=frozenset({"BatchNormalization"}),
    )
    instructions: ClassVar[tuple[str, ...]] = LOOKING_UP
    arity: ClassVar[tuple[int, int]] = (2, 2)
    requirements: ClassVar[tuple[Requirement, ...]] = (
        constant_table,
        domain.eight_bit_input,
        domain.eight_bit_output,
        domain.not_empty,
        domain.per_tensor,
    )
    traits: ClassVar[Traits] = ElementwiseOperator.traits._replace(constants_name="table")

    table: NDArray[np.int8]

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if the table has a wrong size or type, or the result a wrong shape.

        The result must have the shape of the data.
        """
        data, table, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
        if (
            table.shape not in ((TABLE_BYTES,), (channels_of(data.shape), TABLE_BYTES))
            or table.dtype != result.dtype
        ):
            return (
                f"'{node.name}' has a table of {table.dtype} {table.shape} for results of "
                f"{result.dtype}"
            )
        if data.shape != result.shape:
            return f"'{node.name}' makes {result.shape} of {data.shape}"
        return None

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> tuple[Operator, ...]:
        """Return the table look-ups of a node in the int8 domain.

        There is one look-up, or one per image if channels have their own tables.
        """
        data, table, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
        assert table.constant is not None
        shape = domain.elementwise_shape(result.shape)
        # uint8 values are stored minus 128, which flips the highest bit of their bytes.
        order = np.arange(TABLE_BYTES) ^ (128 if data.dtype == "uint8" else 0)
        stored = domain.to_stored_integers(table.constant[..., order])
        if stored.ndim == 1:
            inputs = (Operand.from_value(data, shape),)
            output = Operand.from_value(result, shape)
            return (
                cls(
                    name=node.name,
                    kind="ACT",
                    inputs=inputs,
                    output=output,
                    onnx_nodes=node.onnx_nodes,
                    table=stored,
                ),
            )
        images = result.shape[0] if len(result.shape) > 1 else 1
        size = result.elements // images
        plane = len(stored), size // len(stored)
        return tuple(
            ChannelTable(
                name=node.name,
                kind="ACT",
                onnx_nodes=node.onnx_nodes,
                inputs=(Operand(data.name, plane, image * size),),
                output=Operand(result.name, plane, image * size),
                table=stored,
            )
            for image in range(images)
        )

    def settings(self, arch: Arch) -> Settings:
        """Return the registers of a look-up in one table."""
        return Settings({"EX_ROWS": 1, "EX_OUTPUT_CHANNELS": 1}, {})

    def constants(self) -> ChannelConstants:
        """Return the table as the weights of the single channel of element-wise operations."""
        return ChannelConstants(weights=self.table[np.newaxis])


def make_look_up(
    node: Node, source: Value, result: Value, table: NDArray[np.int8]
) -> TableOperator:
    """Return the look-up of all of ``source`` in one table, as ``result``, for ``node``."""
    shape = domain.elementwise_shape(source.shape)
    return TableOperator(
        name=node.name,
        kind="ACT",
        inputs=(Operand.from_value(source, shape),),
        output=Operand.from_value(result, shape),
        onnx_nodes=node.onnx_nodes,
        table=table,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ChannelTable(Operator):
    """Look-up of (channels, elements) in one table per channel.

    ``table`` is int8 (channels, 256). Tiles do not divide planes. If a plane does not fit, every
    channel becomes a separate :class:`TableOperator`.
    """

    instructions: ClassVar[tuple[str, ...]] = LOOKING_UP
    traits: ClassVar[Traits] = Traits(constants_name="tables")

    table: NDArray[np.int8]

    def finer(self) -> tuple[Operator, ...]:
        """Return one table look-up per channel.

        Tiles can then have any number of elements.
        """
        (source,) = self.inputs
        _, elements = self.output.shape
        shape = domain.elementwise_shape((elements,))
        return tuple(
            TableOperator(
                name=self.name,
                kind=self.kind,
                onnx_nodes=self.onnx_nodes,
                inputs=(replace(source, shape=shape, offset=source.offset + channel * elements),),
                output=replace(
                    self.output, shape=shape, offset=self.output.offset + channel * elements
                ),
                table=table,
            )
            for channel, table in enumerate(self.table)
        )

    @property
    def loops(self) -> Loops:
        """Loops of a look-up over independent channels, each of them one row."""
        channels, elements = self.output.shape
        return Loops(LoopNest(channels, 1, elements, channels, 1, elements, groups=channels))

    def settings(self, arch: Arch) -> Settings:
        return Settings({"EX_ROWS": 1}, {})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        return {
            "EX_OUTPUT_CHANNELS": tile.output.channels.size,
            "EX_LENGTH": tile.output.columns.size,
        }

    def constants(self) -> ChannelConstants:
        """Return the look-up tables as the weights of the channels."""
        return ChannelConstants(weights=self.table)


def channel_tables(operation: Operator) -> NDArray[np.int8] | None:
    """Return the int8 tables (channels, 256) of a look-up with one table per channel.

    The result is None for other operations.
    """
    return operation.table if isinstance(operation, ChannelTable) else None
