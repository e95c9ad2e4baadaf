"""Look-up tables: whatever is computed from one int8 tensor alone, element by element, is one table of 256 results.

The importer finds such subgraphs and runs their own nodes on every value (:mod:`byoc.frontend.onnx.closures`), so a
table is exact by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from byoc.operators import domain
from byoc.operators.elementwise import Elementwise
from byoc.operators.forms import Closes
from byoc.operators.nest import Nest, Tile
from byoc.operators.operator import (
    ChannelConstants,
    Finding,
    Geometry,
    Loops,
    Operand,
    Operator,
    Registers,
    Requirement,
    Settings,
    Traits,
    finding,
    rule,
)
from isa.arch import Arch
from isa.ops.lookup import TABLE_BYTES

TABLE = "Table"
"""Canonical type: operands are the data, and a constant of 256 results, or 256 a channel, in the order of the bytes."""


LOOKING_UP = ("OP_LUT",)
"""Instructions whose only work is to look up in tables."""
FUNCTIONS = frozenset({
    "Abs", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign",
    "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
})  # fmt: skip
POLYNOMIAL = frozenset({"Add", "Mul", "Sub"})
"""What makes of integers the same numbers as of real ones."""
AFFINE = POLYNOMIAL | {"BatchNormalization", "Div"}
"""What is a scale and a shift of one operand where the others are constant."""
ARITHMETIC = POLYNOMIAL | {"Div", "Max", "Min", "Mod", "Pow"}
CLOSED = FUNCTIONS | ARITHMETIC | {
    "And", "BatchNormalization", "Cast", "Equal", "FastGelu", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Not", "Or", "PRelu", "QuickGelu", "Where", "Xor",
}  # fmt: skip
"""What is computed element by element, of which one tensor alone makes a function of its 256 values."""


def channels_of(shape: tuple[int, ...]) -> int:
    """Channels of a tensor: its second dimension, or its only one; 0 of a number."""
    return shape[min(len(shape), 2) - 1] if shape else 0


@rule("the data is computed at run time, the table is constant")
def constant_table(graph: Graph, node: Node) -> Finding | None:
    """The table is known."""
    data, table = (graph.values[name] for name in node.inputs)
    if data.constant is not None:
        return finding("input '{name}' is constant", name=data.name)
    return finding("table '{name}' is computed", name=table.name) if table.constant is None else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(Elementwise):
    """``table``: int8 (256,), the stored result of every stored value in the order of its byte."""

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
    traits: ClassVar[Traits] = Elementwise.traits._replace(constants_name="table")

    table: NDArray[np.int8]

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """A table has 256 entries of the result's type, and the result the shape of the data."""
        data, table, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
        if table.shape not in ((TABLE_BYTES,), (channels_of(data.shape), TABLE_BYTES)) or table.dtype != result.dtype:
            return f"'{node.name}' has a table of {table.dtype} {table.shape} for results of {result.dtype}"
        if data.shape != result.shape:
            return f"'{node.name}' makes {result.shape} of {data.shape}"
        return None

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> tuple[Operator, ...]:
        """The operations that a table is, in the accelerator's int8 domain: one, or one an image of channels."""
        data, table, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
        assert table.constant is not None
        shape = domain.elementwise_shape(result.shape)
        # Stored values of uint8 are moved by 128: their bytes differ in the highest bit.
        order = np.arange(TABLE_BYTES) ^ (128 if data.dtype == "uint8" else 0)
        stored = domain.stored(table.constant[..., order])
        if stored.ndim == 1:
            inputs = (domain.whole(data, shape),)
            output = domain.whole(result, shape)
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
        """One table serves all elements."""
        return Settings({"EX_ROWS": 1, "EX_OUTPUT_CHANNELS": 1}, {})

    def constants(self) -> ChannelConstants:
        """The table, as the weights of the one channel that element-wise operations have."""
        return ChannelConstants(weights=self.table[np.newaxis])


def looked_up(node: Node, source: Value, result: Value, table: NDArray[np.int8]) -> Table:
    """All of ``source``, looked up in one table, as ``result``: a step of ``node``."""
    shape = domain.elementwise_shape(source.shape)
    return Table(
        name=node.name,
        kind="ACT",
        inputs=(domain.whole(source, shape),),
        output=domain.whole(result, shape),
        onnx_nodes=node.onnx_nodes,
        table=table,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ChannelTable(Operator):
    """(channels, elements), looked up in a table a channel; ``table``: int8 (channels, 256). Planes are not cut.

    Where not one fits, every channel is a :class:`Table` of its own.
    """

    instructions: ClassVar[tuple[str, ...]] = LOOKING_UP
    traits: ClassVar[Traits] = Traits(constants_name="tables")

    table: NDArray[np.int8]

    def finer(self) -> tuple[Operator, ...]:
        """A channel after another, of whose elements tiles have any number."""
        (source,), (_, elements) = self.inputs, self.output.shape
        shape = domain.elementwise_shape((elements,))
        return tuple(
            Table(
                name=self.name,
                kind=self.kind,
                onnx_nodes=self.onnx_nodes,
                inputs=(replace(source, shape=shape, offset=source.offset + channel * elements),),
                output=replace(self.output, shape=shape, offset=self.output.offset + channel * elements),
                table=table,
            )
            for channel, table in enumerate(self.table)
        )

    @property
    def loops(self) -> Loops:
        """Every channel by itself, all of its elements in one row."""
        channels, elements = self.output.shape
        return Loops(Nest(channels, 1, elements, channels, 1, elements, groups=channels))

    def settings(self, arch: Arch) -> Settings:
        return Settings({"EX_ROWS": 1}, {})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        return {"EX_OUTPUT_CHANNELS": tile.output.channels.size, "EX_LENGTH": tile.output.columns.size}

    def constants(self) -> ChannelConstants:
        """The tables, as the weights of the channels."""
        return ChannelConstants(weights=self.table)


def channel_tables(operation: Operator) -> NDArray[np.int8] | None:
    """The tables, int8 (channels, 256), of what is looked up in one a channel; None of all else."""
    return operation.table if isinstance(operation, ChannelTable) else None
