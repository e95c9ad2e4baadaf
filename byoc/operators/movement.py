"""Data movement: free if elements keep their order, otherwise copied with strides.

A map of positions says where each element comes from, independent of the values. The importer
obtains it by running the host's own operator, so it is exact by construction. The canonical node
contains it as strided pieces (:mod:`byoc.operators.pieces`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from byoc.operators import domain, elementwise
from byoc.operators.activation import rescale, unscalable
from byoc.operators.copies import _unroll_dims, fills, make_copies
from byoc.operators.forms import (
    Carried,
    Form,
    Kinds,
    Limits,
    Positions,
    Written,
    integer,
    numeric,
    several,
)
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import Operator
from byoc.operators.pieces import NOTHING, Dim, Piece, find_pieces, merge_dims
from byoc.operators.records import Loops, Operand, Traits
from byoc.operators.rules import Constraint, Finding, Requirement, finding, rule
from byoc.options import Target
from isa.numerics import steps

MOST_COMMANDS = 512
"""Maximum number of copies per movement."""
_FAR = 1 << 48
"""Number of elements that every tensor stays below."""


# Canonical nodes

_KEEPERS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_MOVERS: Mapping[str, Carried] = {
    **dict.fromkeys(("Slice", "DepthToSpace"), "integers"),
    **dict.fromkeys(("Pad", "SpaceToDepth", "Tile", "Expand"), "reals"),
    **dict.fromkeys(
        ("CenterCropPad", "ReverseSequence", "Trilu", "Gather", "GatherElements", "GatherND"), ""
    ),
}
_TAKER = "Slice"
RESIZE = "Resize"
"""Operator that another family reads from models; it is a movement if it only copies elements."""
FORMS = (
    *(
        Form(name, plain=True, passive=True, ranges="first", carried="integers")
        for name in _KEEPERS
    ),
    Form("Identity", plain=True, quantise=False, carried="integers"),
    Form("Dropout", plain=True, quantise=False),
    Form(
        "Transpose",
        plain=True,
        passive=True,
        ranges="first",
        attributes=("perm",),
        carried="integers",
    ),
    *(
        Form(name, plain=True, passive=True, ranges="first", traced=True, carried=how)
        for name, how in _MOVERS.items()
    ),
)


def node_pieces(graph: Graph, node: Node) -> tuple[Piece, ...]:
    """Return the strided pieces that a data movement copies, from the node's attributes.

    The attributes are ``pieces`` or ``perm``. Without them, all elements are copied in order.
    """
    if "pieces" in node.attributes:
        return tuple(_decode_piece(numbers) for numbers in node.attributes["pieces"])
    shape = graph.values[node.inputs[0]].shape
    order = node.attributes.get("perm", range(len(shape)))
    dims: list[Dim] = []
    for axis in reversed(order):
        dims.append(
            Dim(shape[axis], math.prod(shape[axis + 1 :]), math.prod(dim.size for dim in dims))
        )
    return (Piece(0, 0, merge_dims(reversed(dims))),)


def _decode_piece(numbers: Sequence[int]) -> Piece:
    source, target, *rest = numbers
    return Piece(source, target, tuple(Dim(*rest[at : at + 3]) for at in range(0, len(rest), 3)))


def _encode_piece(piece: Piece) -> tuple[int, ...]:
    return (piece.source, piece.target, *(number for dim in piece.dims for number in dim))


def movement_attributes(positions: Positions, count: int) -> dict[str, Any]:
    """Return the attributes of a node that moves elements of an operand of ``count`` elements.

    Pieces are omitted if all elements are moved in order.
    """
    pieces = find_pieces(positions.index)
    attributes: dict[str, Any] = {} if positions.fill is None else {"fill": positions.fill}
    whole = (
        len(pieces) == 1 and pieces[0].dense and pieces[0].elements == count == positions.index.size
    )
    return (
        attributes
        if whole
        else {**attributes, "pieces": tuple(_encode_piece(piece) for piece in pieces)}
    )


@dataclass(frozen=True, eq=False)
class MovementRecord:
    """Data of a movement node: the strided pieces that are copied, and those that are filled.

    ``fill`` is the stored byte of the filled pieces. ``rescaled``: operand and result have
    different quantisations.
    """

    node: Node
    source: Value
    result: Value
    pieces: tuple[Piece, ...]
    filled: tuple[Piece, ...]
    fill: int
    rescaled: bool

    @property
    def dense(self) -> bool:
        """True if the result of a movement is one dense slice of the operand."""
        return not self.filled and len(self.pieces) == 1 and self.pieces[0].dense


def check_permutation(copies: int, target: Target) -> Finding | None:
    """Return a finding if an operation needs ``copies`` strided copies that the ISA lacks.

    Returns None if ``copies`` is 0 or the ISA has OP_PERMUTE.
    """
    if not copies or "OP_PERMUTE" in target.instructions:
        return None
    return finding(
        "{copies} strided copies need OP_PERMUTE, which is not in ISA {isa}",
        isa=target.isa,
        copies=copies,
    )


@rule(
    "a result that is not one contiguous slice of the operand is copied by OP_PERMUTE: use --isa v4"
)
def permutation_available(record: MovementRecord, target: Target) -> Finding | None:
    """Return a finding if a movement needs strided copies and the ISA has none, or None."""
    return check_permutation(0 if record.dense else len(record.pieces) + len(record.filled), target)


@rule(f"a data movement takes at most {MOST_COMMANDS} copies")
def few_copies(record: MovementRecord, target: Target) -> Finding | None:
    """Return a finding if a data movement needs too many copies, or None."""
    pieces = (*record.pieces, *record.filled)
    copies = sum(math.prod(dim.size for dim in _unroll_dims(piece.dims)[1]) for piece in pieces)
    return finding("it takes {copies} copies", copies=copies) if copies > MOST_COMMANDS else None


@rule(domain.FIXED)
def scales_in_int32(record: MovementRecord, target: Target) -> Finding | None:
    """Return a finding if the rescaling of a data movement overflows int32, or None."""
    return unscalable(record.source, record.result, target) if record.rescaled else None


class Movement(Operator):
    """Data movement, compiled to an alias for a dense slice, otherwise to copies and fills.

    Each piece has one copy or fill. Fills write elements of the result that come from no element of
    the operand.
    """

    family = "movement"
    forms = FORMS
    inner_types = (RESIZE,)
    arity = (1, 1)
    kinds: ClassVar[Kinds] = {
        "perm": several(integer(0)),
        "pieces": several(several(integer(-_FAR))),
        "fill": lambda found: numeric(found) and found == found,
    }
    requirements: ClassVar[tuple[Requirement, ...]] = (
        elementwise.computed_operands,
        domain.eight_bit_input,
        domain.eight_bit_output,
        domain.per_tensor,
        domain.not_empty,
        domain.usable_scales,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (
        few_copies,
        permutation_available,
        scales_in_int32,
    )

    @classmethod
    def useful(
        cls, node: OnnxNode, position: int, ranges: Sequence[Limits | None], result: Limits
    ) -> Limits | None:
        """Return the range of a movement's result, which is also the range of its data."""
        return result if position == 0 else None

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Return True for movements that interpolate or whose positions are computed.

        Movements of constants also return True.
        """
        if node.op_type not in (*_MOVERS, RESIZE):
            return False
        chosen = all(name in constants for name in node.inputs[1:] if name)
        return (
            node.attributes.get("mode") in ("linear", "cubic")
            or node.inputs[0] in constants
            or not chosen
        )

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Return the permutation of a Transpose, or the strided pieces of other data movements.

        There are no pieces if all elements are moved in order. ``fill`` is the real number of
        elements without a source, or the integer itself for bare integers.
        """
        found = written.positions
        if isinstance(found, str):
            return found
        if "perm" in written.form.attributes:
            rank = len(written.operand_shape())
            return {
                "perm": tuple(written.node.attributes.get("perm", tuple(reversed(range(rank)))))
            }
        return (
            {} if found is None else movement_attributes(found, math.prod(written.operand_shape()))
        )

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if a movement does not write every result element exactly once.

        Pieces that exceed a tensor give a message too.
        """
        source, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
        if "perm" in node.attributes and sorted(node.attributes["perm"]) != list(
            range(len(source.shape))
        ):
            return f"'{node.name}' permutes {source.shape} by {node.attributes['perm']}"
        written = node.attributes.get("pieces", ())
        if any(
            len(numbers) % 3 != 2 or min((*numbers[2::3], *numbers[4::3]), default=1) < 1
            for numbers in written
        ):
            return f"'{node.name}' has pieces of a wrong form"
        pieces = node_pieces(graph, node)
        total = sum(piece.elements for piece in pieces)
        inside = all(piece.lowest >= 0 and piece.highest < source.elements for piece in pieces)
        if not inside or total > result.elements:
            return f"'{node.name}' moves what '{source.name}' of shape {source.shape} does not have"
        filled = total == result.elements or "fill" in node.attributes
        if not filled or not _is_written_once(pieces if written else (), result.elements):
            return f"'{node.name}' does not make every element of '{result.name}' once"
        return None

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> MovementRecord:
        source, result = graph.ends(node)
        pieces = node_pieces(graph, node)
        filled: tuple[Piece, ...] = ()
        fill = 0
        if "fill" in node.attributes:
            index = np.zeros(result.elements, np.int64)
            for piece in pieces:
                index[piece.positions()[1]] = NOTHING
            filled = find_pieces(index.reshape(result.shape))
            fill = _compute_stored_fill(node, result)
        rescaled = not node.attributes.get("plain") and not domain.same_steps(source, result)
        return MovementRecord(node, source, result, pieces, filled, fill, rescaled)

    @classmethod
    def operations(cls, record: MovementRecord, target: Target) -> tuple[Operator, ...]:
        """Return the operations of a data movement: an alias, or copies and fills.

        A change of scale precedes them if needed.
        """
        node = record.node
        source = record.source
        result = record.result
        if record.dense and record.rescaled:
            output = Operand.from_value(result, domain.elementwise_shape(result.shape))
            return (rescale(node, source, result, output, record.pieces[0].source),)
        if record.dense:
            return (_alias(record),)
        scaled = Operand(
            f"{result.name}:scaled" if record.rescaled else source.name, (source.elements,)
        )
        changes = (rescale(node, source, result, scaled),) if record.rescaled else ()
        copies = make_copies(node, scaled.value, result.name, record.pieces)
        filled = fills(node.name, node.onnx_nodes, result.name, record.filled, record.fill)
        return (*changes, *copies, *filled)


def _is_written_once(pieces: Iterable[Piece], elements: int) -> bool:
    """Return True if strided pieces are inside a tensor and write no element twice.

    The tensor has ``elements`` elements.
    """
    written = np.zeros(elements, np.bool_)
    count = 0
    for piece in pieces:
        targets = piece.positions()[1]
        if targets.size and (targets.min() < 0 or targets.max() >= elements):
            return False
        written[targets] = True
        count += targets.size
    return bool(np.count_nonzero(written) == count)


def _compute_stored_fill(node: Node, result: Value) -> int:
    """Return the stored int8 byte of a movement's fill value.

    It is the byte that QuantizeLinear computes.
    """
    real = node.attributes["fill"]
    if node.attributes.get("plain"):
        return int(
            np.clip(np.float32(real) - np.float32(128 if result.dtype == "uint8" else 0), -128, 127)
        )
    affine = domain.affine(result)
    return int(steps(np.float32(real), affine.scale, affine.stored_zero_point, np.int8))


# Aliases


@dataclass(frozen=True, eq=False, kw_only=True)
class Alias(Operator):
    """Operation whose inputs are, unchanged, dense slices of its output.

    ``offsets`` gives the first output element of each input. It costs nothing if both tensors can
    share a buffer; otherwise lowering inserts a :class:`Copy`.
    """

    traits: ClassVar[Traits] = Traits(moves=True)

    offsets: tuple[int, ...] = (0,)

    @property
    def loops(self) -> Loops:
        """Loops of an alias, over images if it has one input."""
        return super().loops._replace(images=len(self.inputs) == 1)


def _alias(record: MovementRecord) -> Alias:
    shape = domain.elementwise_shape(record.result.shape)
    return Alias(
        name=record.node.name,
        kind="DMA",
        inputs=(Operand(record.source.name, shape, record.pieces[0].source),),
        output=Operand.from_value(record.result, shape),
        onnx_nodes=record.node.onnx_nodes,
    )


def make_gather(value: Value, result: str, positions: Positions) -> Node:
    """Return a node that gathers the elements of ``value`` at ``positions`` into ``result``."""
    attributes = {**domain.plain_attribute(value), **movement_attributes(positions, value.elements)}
    return Node(f"{result} taken", _TAKER, (value.name,), (result,), attributes, integer=True)
