"""Base class of operators: one class per family.

An instance is one operation of the family on the accelerator.

All numbers are in the accelerator's int8 domain: uint8 ONNX tensors have been shifted by 128
(values and zero points), unless a family states that it computes with the original zero point and
an ``offset``. Tensors are dense, CHW or row-major, without a batch dimension: a batch or a group
becomes several operations on slices.

A node that breaks a rule of its family is rejected. Findings are stored as data and formatted as
text last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators.definition import Definition
from byoc.operators.forms import Kinds, Reading
from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.pieces import Piece
from byoc.operators.records import (
    MANY,
    NUMBERS,
    ChannelConstants,
    CommandPart,
    Loops,
    Operand,
    Registers,
    Settings,
    Traits,
    Whole,
)
from byoc.operators.rules import Constraint, Finding, Requirement, finding
from byoc.operators.rules import rule as rule  # plug-ins written for 0.1 import it from here
from byoc.operators.sharding import Along, Sharding
from byoc.options import Target
from isa.arch import Arch
from isa.layout import Layout

Layouts = tuple[Layout, ...]
"""Layouts of an operation's inputs, then of its output."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator(Reading):
    """Base class of operator families, whose instances are single operations.

    An instance is one operation: layer ``name``, made from ``onnx_nodes``. Reports count its cycles
    under ``kind``.

    A family declares: ``family``, its name; ``forms``, the ways models write it; ``requirements``,
    rules on graph and node alone. If all hold, ``parse`` makes the record that ``constraints``
    (rules that may depend on the target) and ``operations`` use. ``instructions``: the target must
    have all of them. ``arity``: minimum and maximum number of operands of its nodes.
    ``inner_types``: canonical types of nodes without an ONNX operator. Families of external
    packages are subclasses like the project's own.
    """

    family: ClassVar[str] = ""
    inner_types: ClassVar[tuple[str, ...]] = ()
    requirements: ClassVar[tuple[Requirement, ...]] = ()
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    instructions: ClassVar[tuple[str, ...]] = ()
    arity: ClassVar[tuple[int, int]] = (1, MANY)
    traits: ClassVar[Traits] = Traits()
    kinds: ClassVar[Kinds] = {}
    """Kinds of all attributes of its canonical nodes."""
    numbers: ClassVar[frozenset[str]] = NUMBERS
    """Registers and fields that cycle formulas do not read and that estimates do not get."""

    name: str
    kind: str
    inputs: tuple[Operand, ...]
    output: Operand
    onnx_nodes: tuple[str, ...] = ()
    tables: NDArray[np.int8] | None = None
    """Look-up tables applied to the results, or None.

    The shape is (1, 256) or (output channels, 256).
    """
    constant_operands: Mapping[str, NDArray[np.int8]] = field(default_factory=dict)
    """Constant operands by tensor name, in the accelerator's int8 domain."""
    offsets: tuple[int, ...] = ()
    """First output element of each input, if the operation only places its inputs unchanged."""

    @property
    def slices(self) -> tuple[tuple[Operand, Operand], ...]:
        """Pairs of an input operand and the slice of the output that contains it unchanged.

        Pairs exist only if the operation places its inputs unchanged. Such an operation needs no
        instruction if buffers can be shared.
        """
        pairs = zip(self.inputs, self.offsets, strict=False)
        return tuple((source, self.output.part(source, offset)) for source, offset in pairs)

    # From a canonical node to operations.

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if a node's shapes violate what its requirements assume.

        Otherwise return None. The graph may be malformed.
        """
        return None

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Any:
        """Return the data of a node that meets every requirement, for its later operations."""
        raise NotImplementedError(f"{cls.__name__} does not say how its nodes are read")

    @classmethod
    def operations(cls, record: Any, target: Target) -> tuple[Operator, ...]:
        """Return the operations for a node's record that meets every constraint.

        By default, the record is the operation or a tuple of operations.
        """
        return record if isinstance(record, tuple) else (record,)

    @classmethod
    def definition(cls, graph: Graph, node: Node) -> Definition | None:
        """Return ONNX nodes that define the result of the node's instruction, or None.

        A definition is needed if ONNX Runtime computes the node in float with other bits. Return
        None otherwise.
        """
        return None

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """Return how several machines divide a node among them, or why they cannot.

        The node meets every requirement. They divide its channels or its rows, as ``along`` says.
        The reason is a few words, and is the default.
        """
        return (
            "its channels are not independent"
            if along == "channels"
            else "its rows depend on all rows"
        )

    def rows_read(self) -> NDArray[np.bool_] | None:
        """Return a mask of the input rows that an operation reads in each plane.

        None means that all elements are read.
        """
        loops = self.loops
        dims = loops.dims
        if not dims or not self.inputs:
            return loops.nest.rows_read
        read = np.zeros(self.inputs[0].elements, np.bool_)
        read[Piece(-Piece(0, 0, dims).lowest, 0, dims).positions()[0]] = True
        return None if read.all() else read

    # Layouts in banked memory.

    @property
    def elementwise(self) -> bool:
        """True if the operation is element-wise.

        Its operands and result then share one layout of any kind.
        """
        return self.traits.flat and not self.loops.nest.grouped

    @property
    def omits_padding(self) -> bool:
        """True if the result has no padding after a last channel that does not fill an atom."""
        return self.traits.dense_result and self.output.elements % self.output.layout.atom > 0

    def layouts(self, atom: int) -> Layouts | Finding:
        """Return the layouts that operands and result need in banked memory, or why there are none.

        Not called for operations that take any layout. By default operands are channels of
        positions, or matrices, as in the loop nest. ``atom``: bytes per atom.
        """
        loops = self.loops
        nest = self.loops.nest
        if loops.second != "alike" or loops.dims or loops.single:
            return finding(
                "operands of {mnemonic} are not worked out on words", mnemonic=self.mnemonic
            )
        source = Layout(
            nest.input_channels, nest.input_rows * nest.input_columns, atom, nest.matrix
        )
        result = Layout(nest.channels, nest.rows * nest.columns, atom, nest.matrix)
        return (*[source] * len(self.inputs), result)

    def on_channels(self) -> Operator:
        """Return an equivalent operation on operands in :meth:`layouts`; by default itself."""
        return self

    # From an operation to commands.

    @property
    def mnemonic(self) -> str | None:
        """Name of the instruction that computes the operation; None if nothing is computed."""
        return self.traits.mnemonic or (self.instructions[0] if self.instructions else None)

    @property
    def loops(self) -> Loops:
        """Loop nest and tiling of operands; by default one channel with one row per element."""
        elements = self.output.elements
        return Loops(LoopNest(1, elements, 1, 1, elements, 1))

    def settings(self, arch: Arch) -> Settings:
        """Return the registers and instruction fields that are the same for all tiles."""
        return Settings({}, {})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the registers that depend on a tile's shape.

        Addresses and planes are not included.
        """
        return {"EX_LENGTH": tile.output.elements}

    def commands(
        self, geometry: Geometry, tile: Tile, registers: Registers, whole: Whole
    ) -> tuple[CommandPart, ...]:
        """Return the commands that compute one tile.

        ``registers`` has the registers of layer and tile, with planes.
        """
        return (CommandPart(registers, {}),)

    def constants(self) -> ChannelConstants | None:
        """Return the channel records and weights of an operation, or None."""
        return None

    def finer(self) -> tuple[Operator, ...]:
        """Return equivalent operations that allow smaller tiles, to fit in memory.

        The result is empty if there are none.
        """
        return ()

    def cut_columns(self) -> tuple[Operator, ...]:
        """Return equivalent operations on halves of the columns, and the copies that they need.

        The result is empty if there are none.
        """
        return ()
