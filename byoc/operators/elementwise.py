"""Common parts of element-wise operators, which compute one int8 tensor from one or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from math import prod
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from byoc.graph import Graph, Node, Value
from byoc.operators import domain
from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.operator import Layouts, Operator
from byoc.operators.records import Loops, Operand, Registers, Repeat, Traits
from byoc.operators.rules import Finding, finding, rule
from byoc.operators.sharding import Along, Sharding, element_by_element
from byoc.options import Target
from isa.layout import Layout


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementwiseOperator(Operator):
    """Element-wise operator whose tiles are ranges of elements.

    The instruction reads EX_LENGTH elements at EX_INPUT_ADDRESS and EX_OPERAND_ADDRESS, and writes
    them at EX_OUTPUT_ADDRESS.
    """

    traits: ClassVar[Traits] = Traits(flat=True, mapping="one-to-one")

    @property
    def loops(self) -> Loops:
        return super().loops._replace(images=True)

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if an operand does not have the shape of the result."""
        *shapes, result = (graph.values[name].shape for name in (*node.inputs, *node.outputs))
        other = next((shape for shape in shapes if shape != result), result)
        return None if other == result else f"'{node.name}' makes {result} of {other}"

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """Divide an element-wise node among machines at any element."""
        return element_by_element(graph, node, along)


def layer_of(graph: Graph, node: Node, kind: str = "ELTWISE") -> dict[str, Any]:
    """Return keyword arguments of an operator whose operands and result are whole tensors.

    They are its name, kind, operands, result and ONNX nodes.
    """
    *sources, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
    shape = domain.elementwise_shape(result.shape)
    inputs: tuple[Operand, ...] = tuple(Operand.from_value(source, shape) for source in sources)
    return {
        "name": node.name,
        "kind": kind,
        "inputs": inputs,
        "output": Operand.from_value(result, shape),
        "onnx_nodes": node.onnx_nodes,
    }


@rule("all operands are computed at run time")
def computed_operands(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if an operand is constant, or None."""
    for name in node.inputs:
        if graph.values[name].constant is not None:
            return finding("input '{name}' is constant", name=name)
    return None


@rule("operands and result have the same element type")
def equal_types(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if operands and result have different element types, or None."""
    types = tuple(graph.values[name].dtype for name in (*node.inputs, *node.outputs))
    listed = ", ".join(f"{{types[{number}]}}" for number in range(len(types)))
    return None if len(set(types)) == 1 else finding(f"element types are {listed}", types=types)


@rule("operands and result have a scale")
def quantised(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if an operand or result has no scale, or None."""
    for name in (*node.inputs, *node.outputs):
        if graph.values[name].quantization is None:
            return finding("tensor '{name}' has no scale", name=name)
    return None


UNARY = (computed_operands, domain.eight_bit_input, domain.eight_bit_output, domain.not_empty)
SINGLE = (
    domain.variable_input,
    domain.eight_bit_input,
    domain.eight_bit_output,
    equal_types,
    domain.per_tensor,
    domain.usable_scales,
    domain.not_empty,
)
"""Requirements of operators with one operand, of any shape, whose result has its element type."""


# Two operands with broadcasting

MOST_SLICES = 1024
"""Maximum number of commands per operation with alternating dimensions.

Its operands alternate between broadcast and full dimensions.
"""


class BroadcastAxis(NamedTuple):
    """Merged dimension of a result, with a flag for each operand that is broadcast along it."""

    size: int
    a: bool
    b: bool


def axes_of(
    a: tuple[int, ...], b: tuple[int, ...], result: tuple[int, ...]
) -> tuple[BroadcastAxis, ...]:
    """Return a broadcast result's dimensions, merged where the same operands are broadcast.

    Dimensions of size 1 are omitted.
    """
    first, second = ((1,) * (len(result) - len(shape)) + shape for shape in (a, b))
    every = [
        BroadcastAxis(n, x != n, y != n)
        for n, x, y in zip(result, first, second, strict=True)
        if n != 1
    ]
    return tuple(
        BroadcastAxis(prod(axis.size for axis in group), *key)
        for key, group in groupby(every, lambda axis: axis[1:])
    )


def is_turned(axes: Sequence[BroadcastAxis]) -> bool:
    """Return whether ONNX Runtime swaps the operands of an addition.

    It does if its inner loop sees the first operand as a single value.

    Measured on QLinearAdd: 0 of 60 M results differ, including ties, which depend on the order of
    operands.
    """
    return not axes or (axes[-1].a and not axes[-1].b)


class Pairs(Protocol):
    """Record of a node with several binary element-wise operations."""

    @property
    def pairs(self) -> Sequence[Pair]:
        """All binary element-wise operations of the record."""


@rule("at least one operand is computed at run time")
def any_computed(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if all operands are constant, or None."""
    constant = all(graph.values[name].constant is not None for name in node.inputs)
    return finding("all operands are constant") if constant else None


@rule(f"broadcasting divides the operation into at most {MOST_SLICES} commands")
def few_slices(record: Pair | Pairs, target: Target) -> Finding | None:
    """Return a finding if a broadcast operation needs too many slices, or None.

    Each slice is a separate operation.
    """
    count = sum(pair.cuts for pair in _pairs(record))
    return finding("it is cut into {count} slices", count=count) if count > MOST_SLICES else None


@rule("broadcast operands need instructions of their own: use --isa v4")
def instruction_there(record: Pair | Pairs, target: Target) -> Finding | None:
    """Return a finding if the ISA lacks the instruction of broadcast operands, or None.

    Operands that need no broadcast have an instruction in every ISA variant.
    """
    for pair in _pairs(record):
        if pair.repeats and pair.mnemonic not in target.instructions:
            return finding("{mnemonic} is not in ISA {isa}", mnemonic=pair.mnemonic, isa=target.isa)
    return None


@rule("channels fit their register")
def channels_fit(record: Pair | Pairs, target: Target) -> Finding | None:
    """Return a finding if a broadcast result has too many channels, or None.

    The channels must fit the register field of their count.
    """
    most = max((pair.output.shape[0] for pair in _pairs(record) if pair.repeats), default=0)
    return domain.check_size("channels", most, target.channel_limit)


def _pairs(record: Pair | Pairs) -> Sequence[Pair]:
    return (record,) if isinstance(record, Pair) else record.pairs


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(ElementwiseOperator):
    """Element-wise operation on two tensors.

    Either may be constant, and either may be broadcast. Dense operands are lengths. With a
    broadcast operand the result is (channels, elements), and ``repeats`` says how each operand is
    broadcast. The result has ``cuts`` slices, each a separate operation; ``starts`` are the first
    elements of both operands and of the result in each slice, for at most :data:`MOST_SLICES`
    slices. A family with one instruction declares it as ``instructions``; a family with two names
    them: ``dense`` for dense operands and ``repeating`` for broadcast operands.
    """

    arity: ClassVar[tuple[int, int]] = (2, 2)
    dense: ClassVar[str] = ""
    repeating: ClassVar[str] = ""
    traits: ClassVar[Traits] = ElementwiseOperator.traits._replace(
        whole_planes=True, along_elements=True
    )

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if the operands do not broadcast to the shape of the result."""
        *shapes, result = (graph.values[name].shape for name in (*node.inputs, *node.outputs))
        try:
            fits = np.broadcast_shapes(*shapes) == result
        except ValueError:
            fits = False
        return None if fits else f"'{node.name}' makes {result} of {' and '.join(map(str, shapes))}"

    repeats: tuple[Repeat, ...] = ()
    starts: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)
    cuts: int = 1

    @classmethod
    def operations(cls, record: Self, target: Target) -> tuple[Operator, ...]:
        return tuple(
            replace(
                record,
                inputs=tuple(
                    replace(item, offset=at) for item, at in zip(record.inputs, (a, b), strict=True)
                ),
                output=replace(record.output, offset=y),
            )
            for a, b, y in record.starts
        )

    @property
    def mnemonic(self) -> str | None:
        return (self.repeating if self.repeats else self.dense) or super().mnemonic

    def fields(self) -> dict[str, int]:
        """Return the instruction fields that describe the broadcast of each operand."""
        if self.dense != self.repeating and not self.repeats:
            return {}
        bits = [
            repeat.rows + 2 * repeat.channels for repeat in self.repeats or (Repeat(), Repeat())
        ]
        return {"repeat_a": bits[0], "repeat_b": bits[1]}

    @property
    def loops(self) -> Loops:
        """Loops of a binary operation over channels and elements, or over elements if dense.

        Each channel is independent.
        """
        if not self.repeats:
            return super().loops
        channels, length = self.output.shape
        return Loops(
            LoopNest(channels, length, 1, channels, length, 1, groups=channels),
            repeats=self.repeats,
        )

    def on_channels(self) -> Pair:
        """Return the operation with the elements of a single channel as channels.

        A tensor and a broadcast number then take no padding.
        """
        if not self.repeats or self.output.shape[0] != 1:
            return self
        repeats = tuple(Repeat(channels=item.rows) for item in self.repeats)
        inputs = tuple(
            replace(item, shape=(1 if repeat.channels else item.elements, 1))
            for item, repeat in zip(self.inputs, repeats, strict=True)
        )
        output = replace(self.output, shape=(self.output.elements, 1))
        return replace(self, inputs=inputs, output=output, repeats=repeats)

    def layouts(self, atom: int) -> Layouts | Finding:
        """Return layouts in banked memory for the operands and result of a broadcast operation.

        They are layouts of channels by positions. An operand has size 1 where it is broadcast.
        """
        packed = self.on_channels()
        nest = packed.loops.nest
        each = [
            (1 if item.channels else nest.channels, 1 if item.rows else nest.rows)
            for item in packed.repeats
        ]
        return tuple(Layout(*shape, atom) for shape in (*each, (nest.channels, nest.rows)))

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the registers for a tile's size: a length, or channels and elements."""
        if not geometry.repeats and cls.dense != cls.repeating:
            return super().tile_registers(geometry, tile)
        output = tile.output
        return {
            "EX_OUTPUT_CHANNELS": output.channels.size,
            "EX_LENGTH": output.rows.size * output.columns.size,
        }


def pair_of(node: Node, a: Value, b: Value, result: Value) -> dict[str, Any]:
    """Return keyword arguments of a binary operation on the tensors ``a`` and ``b``."""
    shape = domain.elementwise_shape(result.shape)
    found: dict[str, Any] = {
        "name": node.name,
        "kind": "ELTWISE",
        "inputs": (Operand.from_value(a, shape), Operand.from_value(b, shape)),
        "output": Operand.from_value(result, shape),
        "onnx_nodes": node.onnx_nodes,
        "constant_operands": domain.constants_of((a, b)),
    }
    axes = axes_of(a.shape, b.shape, result.shape)
    if not any(axis.a or axis.b for axis in axes):
        return found
    if len(axes) == 1:  # any division into channels works; use the last dimension
        inner = next(n for n in reversed(result.shape) if n != 1)
        axes = (axes[0]._replace(size=axes[0].size // inner), axes[0]._replace(size=inner))
    *outer, channels, length = axes
    repeats = Repeat(channels.a, length.a), Repeat(channels.b, length.b)
    shapes = [
        (1 if one.channels else channels.size, 1 if one.rows else length.size) for one in repeats
    ]
    starts = _starts(outer, tuple(prod(shape) for shape in shapes), channels.size * length.size)
    return {
        **found,
        "inputs": tuple(
            Operand.from_value(value, shape) for value, shape in zip((a, b), shapes, strict=True)
        ),
        "output": Operand.from_value(result, (channels.size, length.size)),
        "repeats": repeats,
        "starts": tuple(islice(starts, MOST_SLICES)),
        "cuts": prod(axis.size for axis in outer),
    }


def _starts(
    outer: Sequence[BroadcastAxis], blocks: tuple[int, ...], block: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the first elements of a, b and the result in each slice of a broadcast operation.

    ``blocks`` and ``block`` are the sizes per slice of the operands and of the result.
    """
    steps = []
    sizes = [*blocks, block]
    for axis in reversed(outer):
        steps.append(
            [
                0 if still else size
                for size, still in zip(sizes, (axis.a, axis.b, False), strict=True)
            ]
        )
        sizes = [
            size if still else size * axis.size
            for size, still in zip(sizes, (axis.a, axis.b, False), strict=True)
        ]
    for place in np.ndindex(*(axis.size for axis in outer)):
        a, b, y = (
            sum(at * step[n] for at, step in zip(reversed(place), steps, strict=True))
            for n in range(3)
        )
        yield a, b, y


PAIR = (
    any_computed,
    domain.eight_bit_input,
    domain.eight_bit_output,
    domain.not_empty,
    equal_types,
)
"""Requirements of every :class:`Pair`."""
PAIR_CONSTRAINTS = (few_slices, channels_fit, instruction_there)
"""Constraints of every :class:`Pair`."""
