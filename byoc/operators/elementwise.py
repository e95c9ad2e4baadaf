"""Element-wise operators: one or two int8 tensors to one, element by element; what they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from math import prod
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from byoc.graph import Graph, Node, Value
from byoc.operators import domain
from byoc.operators.nest import Nest, Tile
from byoc.operators.operator import (
    Finding,
    Geometry,
    Layouts,
    Loops,
    Lying,
    Operand,
    Operator,
    Registers,
    Repeat,
    Traits,
    finding,
    rule,
)
from byoc.operators.sharding import Along, Sharding, element_by_element
from byoc.options import Target


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(Operator):
    """Tiles are lengths: the instruction finds its operands at EX_INPUT_ADDRESS and EX_OPERAND_ADDRESS, EX_LENGTH
    elements, its result at EX_OUTPUT_ADDRESS.
    """

    traits: ClassVar[Traits] = Traits(flat=True, mapping="one-to-one")

    @property
    def loops(self) -> Loops:
        return super().loops._replace(images=True)

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """The result has the shape of every operand."""
        *shapes, result = (graph.values[name].shape for name in (*node.inputs, *node.outputs))
        other = next((shape for shape in shapes if shape != result), result)
        return None if other == result else f"'{node.name}' makes {result} of {other}"

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """Every element by itself."""
        return element_by_element(graph, node, along)


def layer_of(graph: Graph, node: Node, kind: str = "ELTWISE") -> dict[str, Any]:
    """The fields that every operator has, for whole tensors: name, account, operands, result."""
    *sources, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
    shape = domain.elementwise_shape(result.shape)
    inputs: tuple[Operand, ...] = tuple(domain.whole(source, shape) for source in sources)
    return {
        "name": node.name,
        "kind": kind,
        "inputs": inputs,
        "output": domain.whole(result, shape),
        "onnx_nodes": node.onnx_nodes,
    }


@rule("all operands are computed at run time")
def computed_operands(graph: Graph, node: Node) -> Finding | None:
    """No operand is a constant."""
    for name in node.inputs:
        if graph.values[name].constant is not None:
            return finding("input '{name}' is constant", name=name)
    return None


@rule("operands and result have the same element type")
def equal_types(graph: Graph, node: Node) -> Finding | None:
    """All are int8, or all are uint8."""
    types = tuple(graph.values[name].dtype for name in (*node.inputs, *node.outputs))
    listed = ", ".join(f"{{types[{number}]}}" for number in range(len(types)))
    return None if len(set(types)) == 1 else finding(f"element types are {listed}", types=types)


@rule("operands and result have a scale")
def quantised(graph: Graph, node: Node) -> Finding | None:
    """None is a bare integer."""
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
"""What every operator of one operand, of whatever shape, requires whose result has its element type."""


# Two operands that broadcast. ----------------------------------------------------------------------------------------

MOST_SLICES = 1024
"""Commands that one operation may become because its operands repeat in turns along many dimensions."""


class Axis(NamedTuple):
    """A dimension of a result, and along which both operands go alike: ``size``, and whether a or b repeats."""

    size: int
    a: bool
    b: bool


def axes_of(a: tuple[int, ...], b: tuple[int, ...], result: tuple[int, ...]) -> tuple[Axis, ...]:
    """The dimensions of a result that are not 1; neighbours along which both operands go alike are one."""
    first, second = ((1,) * (len(result) - len(shape)) + shape for shape in (a, b))
    every = [Axis(n, x != n, y != n) for n, x, y in zip(result, first, second, strict=True) if n != 1]
    return tuple(Axis(prod(axis.size for axis in group), *key) for key, group in groupby(every, lambda axis: axis[1:]))


def turned(axes: Sequence[Axis]) -> bool:
    """Whether ONNX Runtime swaps the operands of an addition: the first one is a single value to its inner loop.

    Measured on QLinearAdd: 0 of 60 M, ties included, where the order of operands decides on ties.
    """
    return not axes or (axes[-1].a and not axes[-1].b)


class Pairs(Protocol):
    """A record of several pairs."""

    @property
    def pairs(self) -> Sequence[Pair]:
        """All of them."""


@rule("one operand at least is computed at run time")
def any_computed(graph: Graph, node: Node) -> Finding | None:
    """Not all operands are constants."""
    constant = all(graph.values[name].constant is not None for name in node.inputs)
    return finding("all operands are constant") if constant else None


@rule(f"operands repeat in turns along so few dimensions that at most {MOST_SLICES} commands compute it")
def few_slices(record: Pair | Pairs, target: Target) -> Finding | None:
    """Each slice is an operation of its own."""
    count = sum(pair.cuts for pair in _pairs(record))
    return finding("it is cut into {count} slices", count=count) if count > MOST_SLICES else None


@rule("operands that are broadcast run on instructions of their own: use --isa v4")
def instruction_there(record: Pair | Pairs, target: Target) -> Finding | None:
    """Dense operands have one in every variant, or the family names it."""
    for pair in _pairs(record):
        if pair.repeats and pair.mnemonic not in target.instructions:
            return finding("{mnemonic} is not in ISA {isa}", mnemonic=pair.mnemonic, isa=target.isa)
    return None


@rule("channels fit their register")
def channels_fit(record: Pair | Pairs, target: Target) -> Finding | None:
    """Of operands that repeat, the outer dimension is that of channels."""
    most = max((pair.output.shape[0] for pair in _pairs(record) if pair.repeats), default=0)
    return domain.oversized("channels", most, target.channel_limit)


def _pairs(record: Pair | Pairs) -> Sequence[Pair]:
    return (record,) if isinstance(record, Pair) else record.pairs


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(Elementwise):
    """Two tensors of which either may be constant, and may repeat.

    Dense operands are lengths. Where one repeats, the result is (channels, elements), and ``repeats`` says how each
    operand does; it has ``cuts`` slices that are operations of their own, of which ``starts`` are the first elements of
    both operands and of the result, :data:`MOST_SLICES` at most. A family names its instructions: that of ``dense``
    operands and that of operands that repeat, which may be one.
    """

    arity: ClassVar[tuple[int, int]] = (2, 2)
    dense: ClassVar[str] = ""
    repeating: ClassVar[str] = ""
    traits: ClassVar[Traits] = Elementwise.traits._replace(whole_planes=True, along_elements=True)

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """The result has the shape to which its operands broadcast."""
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
                inputs=tuple(replace(item, offset=at) for item, at in zip(record.inputs, (a, b), strict=True)),
                output=replace(record.output, offset=y),
            )
            for a, b, y in record.starts
        )

    @property
    def mnemonic(self) -> str:
        return self.repeating if self.repeats else self.dense

    def fields(self) -> dict[str, int]:
        """How operands repeat, as the instruction has it."""
        if self.dense != self.repeating and not self.repeats:
            return {}
        bits = [repeat.rows + 2 * repeat.channels for repeat in self.repeats or (Repeat(), Repeat())]
        return {"repeat_a": bits[0], "repeat_b": bits[1]}

    @property
    def loops(self) -> Loops:
        """Both alike, each but where it repeats: channels of as many rows as they have elements, each by itself."""
        if not self.repeats:
            return super().loops
        channels, length = self.output.shape
        return Loops(Nest(channels, length, 1, channels, length, 1, groups=channels), repeats=self.repeats)

    def layouts(self, atom: int) -> Layouts | Finding:
        """Channels of positions, each operand of as many as it has where it repeats."""
        nest = self.loops.nest
        each = [(1 if item.channels else nest.channels, 1 if item.rows else nest.rows) for item in self.repeats]
        return tuple(Lying(*shape, atom) for shape in (*each, (nest.channels, nest.rows)))

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """A length, or channels of so many elements."""
        if not geometry.repeats and cls.dense != cls.repeating:
            return super().tile_registers(geometry, tile)
        output = tile.output
        return {"EX_OUTPUT_CHANNELS": output.channels.size, "EX_LENGTH": output.rows.size * output.columns.size}


def pair_of(node: Node, a: Value, b: Value, result: Value) -> dict[str, Any]:
    """The fields that every :class:`Pair` has, for a result that is computed from ``a`` and ``b`` for ``node``."""
    shape = domain.elementwise_shape(result.shape)
    found: dict[str, Any] = {
        "name": node.name,
        "kind": "ELTWISE",
        "inputs": (domain.whole(a, shape), domain.whole(b, shape)),
        "output": domain.whole(result, shape),
        "onnx_nodes": node.onnx_nodes,
        "constant_operands": domain.constants_of((a, b)),
    }
    axes = axes_of(a.shape, b.shape, result.shape)
    if not any(axis.a or axis.b for axis in axes):
        return found
    if len(axes) == 1:  # any cut of it into channels will do: that of the last dimension
        inner = next(n for n in reversed(result.shape) if n != 1)
        axes = (axes[0]._replace(size=axes[0].size // inner), axes[0]._replace(size=inner))
    *outer, channels, length = axes
    repeats = Repeat(channels.a, length.a), Repeat(channels.b, length.b)
    shapes = [(1 if one.channels else channels.size, 1 if one.rows else length.size) for one in repeats]
    starts = _starts(outer, tuple(prod(shape) for shape in shapes), channels.size * length.size)
    return {
        **found,
        "inputs": tuple(domain.whole(value, shape) for value, shape in zip((a, b), shapes, strict=True)),
        "output": domain.whole(result, (channels.size, length.size)),
        "repeats": repeats,
        "starts": tuple(islice(starts, MOST_SLICES)),
        "cuts": prod(axis.size for axis in outer),
    }


def _starts(outer: Sequence[Axis], blocks: tuple[int, ...], block: int) -> Iterator[tuple[int, int, int]]:
    """First elements of a, b and result of each slice; ``blocks`` and ``block`` are the elements of one of them."""
    steps, sizes = [], [*blocks, block]
    for axis in reversed(outer):
        steps.append([0 if still else size for size, still in zip(sizes, (axis.a, axis.b, False), strict=True)])
        sizes = [
            size if still else size * axis.size for size, still in zip(sizes, (axis.a, axis.b, False), strict=True)
        ]
    for place in np.ndindex(*(axis.size for axis in outer)):
        a, b, y = (sum(at * step[n] for at, step in zip(reversed(place), steps, strict=True)) for n in range(3))
        yield a, b, y


PAIR = (any_computed, domain.eight_bit_input, domain.eight_bit_output, domain.not_empty, equal_types)
"""What every :class:`Pair` requires."""
PAIR_CONSTRAINTS = (few_slices, channels_fit, instruction_there)
"""What every :class:`Pair` demands of the machine."""
