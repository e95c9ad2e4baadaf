"""Merge chains of copies in banked memory into one copy, by composing byte maps.

A movement is a map of bytes. Consecutive maps are composed to one. An intermediate tensor is not
stored if every consumer reads its sources instead. A movement that would store single bytes goes
through dense copies of its sources, if these take fewer bus slots.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np

from byoc.estimate.movements import movement_slots
from byoc.operators.copies import copies, fills, order_for_words
from byoc.operators.gather import (
    CONSTANT,
    MAX_PIECES_PER_MOVE,
    ByteMap,
    Int64,
    Origins,
    find_moved_pieces,
    to_gather,
)
from byoc.operators.operator import Operator
from byoc.operators.packing import find_packed_pieces
from byoc.operators.pieces import NOTHING, Piece, find_pieces
from isa.layout import Layout

MAX_BYTES = 1 << 25
"""Size of the largest tensor whose map is composed."""
_UNKNOWN = CONSTANT - 1
"""Source number of a byte that no operation writes."""
_NOT_COPIED = CONSTANT - 2
"""Source number of a byte that source and result share, which is not copied."""
_Moves: TypeAlias = "tuple[int, tuple[_Move, ...]]"
"""Bytes of a tensor and the pieces that write it."""


class _Composed(NamedTuple):
    """Origins of a tensor's bytes, and the numbers ``read`` that its sources had before.

    Tensors of which no byte is read are no sources: an image of a batch needs no other image, which
    may be computed later.
    """

    read: tuple[int, ...]
    origins: Origins


@dataclass(frozen=True)
class MoveContext:
    """Constraints on the merging of copies of tensors.

    ``layouts`` by tensor, without tensors that omit padding, because their atoms are incomplete;
    ``word``, bytes of a memory word; ``fits``, true if an operation has a tiling; ``shapes`` of the
    model's tensors; ``composed``, results of earlier compositions.
    """

    layouts: Mapping[str, Layout]
    word: int
    fits: Callable[[Operator], bool]
    shapes: Mapping[str, tuple[int, ...]]
    composed: dict[_Moves, _Composed | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """Byte map of a tensor, the ``operations`` that write it, and the ``aliases`` that are kept.

    Without ``operations``, the tensor keeps its producers, but consumers can read its sources.
    """

    bytes: ByteMap
    operations: tuple[Operator, ...]
    aliases: tuple[Operator, ...]

    @property
    def gathers(self) -> bool:
        """True if a single gather writes the tensor."""
        return len(self.operations) == 1 and self.operations[0].traits.gathers


@dataclass
class _Tensor:
    """Tensor of the region with its size in bytes and the operations that write and read it.

    The operations are in execution order.
    """

    producers: list[Operator] = field(default_factory=list)
    consumers: list[Operator] = field(default_factory=list)
    size: int = 0


def merge_moves(
    operations: Sequence[Operator],
    boundary: Collection[str],
    layouts: Mapping[str, Layout],
    word: int,
    fits: Callable[[Operator], bool],
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> tuple[Operator, ...]:
    """Return the operations of a region with each chain of movements merged into one movement.

    Args:
        operations: the operations in execution order, with layouts.
        boundary: names of the region's inputs and outputs, which are always stored.
        layouts: the layout of each tensor.
        word: bytes of a memory word.
        fits: whether an operation has a tiling in the scratchpad.
        shapes: the shape of each tensor of the model.
    """
    unpadded = {operation.output.value for operation in operations if operation.omits_padding}
    context = MoveContext(
        {name: layout for name, layout in layouts.items() if name not in unpadded},
        word,
        fits,
        shapes,
    )
    tensors = _tensors(operations)
    merges: dict[str, Merge] = {}
    for name, tensor in tensors.items():
        merge = _choose_merge(name, tensor, merges, context)
        if merge is not None:
            merges[name] = merge
    merges, skipped = _drop_unused(merges, tensors, boundary)
    result = list[Operator]()
    for operation in operations:
        name = operation.output.value
        if name in skipped:
            continue
        if name not in merges or operation in merges[name].aliases:
            result.append(operation)
        if name in merges and operation is tensors[name].producers[-1]:
            result += _unpack_if_cheaper(merges[name], name, context)
    return tuple(order_for_words(one, word) for one in _order_after_operands(result, merges.keys()))


def _drop_unused(
    merges: dict[str, Merge], tensors: Mapping[str, _Tensor], boundary: Collection[str]
) -> tuple[dict[str, Merge], set[str]]:
    """Return the merges that are used, and the names of tensors that are not stored.

    A stored tensor whose merge has no operations keeps its producers. They read their own operands,
    so those have to be stored as well.
    """
    while True:
        skipped = {
            name
            for name in merges
            if name not in boundary and _is_skipped(name, tensors[name], merges)
        }
        used = {name: one for name, one in merges.items() if one.operations or name in skipped}
        if len(used) == len(merges):
            return used, skipped
        merges = used


def _unpack_if_cheaper(merge: Merge, name: str, context: MoveContext) -> tuple[Operator, ...]:
    """Return the operations of a merge, or those through dense copies that take fewer bus slots."""
    movement = TensorMovement(name, merge.bytes, merge.operations, context.layouts, context.shapes)
    if merge.gathers or merge.aliases or not movement.is_short:
        return merge.operations
    routes = [
        route
        for route in find_unpacked_routes(movement)
        if len(route) <= MAX_PIECES_PER_MOVE and all(map(context.fits, route))
    ]
    return min((merge.operations, *routes), key=movement_slots)


def _tensors(operations: Sequence[Operator]) -> dict[str, _Tensor]:
    """Return the tensors of a region by name."""
    found: dict[str, _Tensor] = {}
    for operation in operations:
        for operand in (*operation.inputs, operation.output):
            tensor = found.setdefault(operand.value, _Tensor())
            tensor.size = max(tensor.size, operand.start + operand.nbytes)
        for operand in operation.inputs:
            found[operand.value].consumers.append(operation)
        found[operation.output.value].producers.append(operation)
    return found


def _choose_merge(
    name: str, tensor: _Tensor, merges: Mapping[str, Merge], context: MoveContext
) -> Merge | None:
    """Return the merge that writes a tensor, or None if its producers are kept.

    The map reads the sources of earlier merges, unless only the producers' own operands allow a
    gather.
    """
    producers = tensor.producers
    reads_merged = any(operand.value in merges for one in producers for operand in one.inputs)
    only_aliases = all(one.slices for one in producers) and not (
        len(producers) == 1 and reads_merged
    )
    if only_aliases or not all(map(_is_move, producers)) or tensor.size > MAX_BYTES:
        return None
    past = _merge(name, tensor, merges, context)
    if past is not None and (past.gathers or not reads_merged):
        return past
    direct = _merge(name, tensor, {}, context)
    return direct if direct is not None and (past is None or direct.gathers) else past


def _is_move(operation: Operator) -> bool:
    return operation.traits.moves and not operation.constant_operands


def _merge(
    name: str, tensor: _Tensor, merges: Mapping[str, Merge], context: MoveContext
) -> Merge | None:
    """Merge a tensor's movements with its sources' movements, or return None."""
    bytes_moved = _compose(tensor, merges, context.composed)
    if bytes_moved is None:
        return None
    aliases = tuple(
        one for one in tensor.producers if one.slices and one.inputs[0].value not in merges
    )
    operations = _operations(tensor.producers[0], name, bytes_moved, aliases, context)
    if operations is None and not aliases and name in context.layouts:
        # Steps of a recurrent layer: no single move writes a batch, but its map is known.
        images = context.layouts[name].images
        operations = () if 1 < images == len(bytes_moved.sources) else None
    return None if operations is None else Merge(bytes_moved, operations, aliases)


def _is_skipped(name: str, tensor: _Tensor, merges: Mapping[str, Merge]) -> bool:
    """Return whether a merged tensor is not stored because all consumers read its sources."""
    readers = [merges.get(one.output.value) for one in tensor.consumers]
    return bool(readers) and all(
        reader is not None and name not in reader.bytes.sources for reader in readers
    )


class _Move(NamedTuple):
    """Piece of a tensor's bytes, and the number of the tensor that it reads.

    A piece of a merged tensor has the ``past`` origins of that tensor, and the ``numbers`` of their
    sources. If ``source`` is :data:`CONSTANT`, the bytes have ``value``.
    """

    piece: Piece
    source: int
    value: int = 0
    past: Origins | None = None
    numbers: tuple[int, ...] = ()


def _compose(
    tensor: _Tensor, merges: Mapping[str, Merge], composed: dict[_Moves, _Composed | None]
) -> ByteMap | None:
    """Return the byte map of a tensor from unmerged tensors.

    Return None if some byte is never written. ``composed`` caches results, because many tensors of
    a region are moved alike.
    """
    numbers: dict[str, int] = {}
    moves = list[_Move]()
    for operation in tensor.producers:
        for name, piece in find_moved_pieces(operation):
            if isinstance(name, int):
                moves.append(_Move(piece, CONSTANT, name))
            elif name not in merges:
                moves.append(_Move(piece, numbers.setdefault(name, len(numbers))))
            else:
                past = merges[name].bytes
                found = [numbers.setdefault(one, len(numbers)) for one in past.sources]
                moves.append(_Move(piece, CONSTANT, 0, past.origins, tuple(found)))
    key = tensor.size, tuple(moves)
    if key not in composed:
        composed[key] = _find_origins(*key)
    composition = composed[key]
    if composition is None:
        return None
    sources = tuple(numbers)
    return ByteMap(tuple(sources[number] for number in composition.read), composition.origins)


def _find_origins(size: int, moves: tuple[_Move, ...]) -> _Composed | None:
    """Return the origins of a tensor's bytes, or None if some byte is never written."""
    source = np.full(size, _UNKNOWN, np.int32)
    byte = np.zeros(size, np.int64)
    for piece, number, value, past, numbers in moves:
        sources = piece.view_targets(source)
        bytes_read = piece.view_targets(byte)
        if past is not None:
            numbered = np.array([*numbers, CONSTANT], np.int32)
            sources[...] = numbered[piece.view_sources(past.source)]
            bytes_read[...] = piece.view_sources(past.byte)
            continue
        sources[...] = number
        bytes_read[...] = (
            value if number == CONSTANT else piece.source_positions().reshape(sources.shape)
        )
    if (source == _UNKNOWN).any():
        return None
    is_read = np.zeros(source.max(initial=0) + 2, np.bool_)
    is_read[source] = True  # CONSTANT is the last index
    read = np.flatnonzero(is_read[:-1])
    renumbered = np.full(len(is_read), CONSTANT, np.int32)
    renumbered[read] = np.arange(len(read))
    return _Composed(tuple(read.tolist()), Origins(renumbered[source], byte))


def _operations(
    node: Operator, name: str, found: ByteMap, aliases: Sequence[Operator], context: MoveContext
) -> tuple[Operator, ...] | None:
    """Return the operations that write ``name`` by its byte map.

    Bytes that ``aliases`` share are not written.

    Return None if there are more than :data:`MAX_PIECES_PER_MOVE`, one has no tiling, or the layout
    is unknown.
    """
    layout = context.layouts.get(name)
    if layout is None or layout.surfaces * layout.positions * layout.atom != found.source.size:
        return None
    if not aliases:
        gather = to_gather(node, name, found, context.layouts, context.shapes, context.word)
        if gather is not None and context.fits(gather):
            return (gather,)
    source = found.source.copy()
    for operation in aliases:
        for _, piece in find_moved_pieces(operation):
            piece.view_targets(source)[...] = _NOT_COPIED
    shape = context.shapes.get(name, ())
    result = list[Operator]()
    for number, tensor in enumerate(found.sources):
        pieces = find_packed_pieces(np.where(source == number, found.byte, NOTHING), layout, shape)
        result += copies(node.name, node.onnx_nodes, tensor, name, pieces)
    for value in np.unique(found.byte[source == CONSTANT]).tolist():
        index = np.where((source == CONSTANT) & (found.byte == value), 0, NOTHING)
        pieces = find_packed_pieces(index, layout, shape)
        result += fills(node.name, node.onnx_nodes, name, pieces, value)
    return (
        tuple(result)
        if len(result) <= MAX_PIECES_PER_MOVE and all(map(context.fits, result))
        else None
    )


def _order_after_operands(
    operations: Sequence[Operator], merged: Collection[str]
) -> Iterator[Operator]:
    """Yield ``operations`` with consumers of a ``merged`` tensor after the write of all its bytes.

    Before merging, such a tensor was written image by image, with consumers between the images. Now
    it is written at once after the last image. A delayed operation also delays the other producers
    of its result and their consumers.
    """
    left = Counter(one.output.value for one in operations if one.output.value in merged)
    waiting: list[Operator] = []
    for operation in operations:
        waiting.append(operation)
        again = True
        while again:
            again = False
            later = list[Operator]()
            delayed = set[str]()
            for one in waiting:
                name = one.output.value
                if name in delayed or any(
                    left[read.value] or read.value in delayed for read in one.inputs
                ):
                    later.append(one)
                    delayed.add(name)
                    continue
                if name in merged:
                    left[name] -= 1
                    again = again or not left[name]
                yield one
            waiting = later


@dataclass(frozen=True)
class TensorMovement:
    """Tensor that a movement writes: its name and byte map, and the ``operations`` that write it.

    ``layouts`` and ``shapes`` are those of the region's tensors, by name.
    """

    name: str
    bytes: ByteMap
    operations: tuple[Operator, ...]
    layouts: Mapping[str, Layout]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def is_short(self) -> bool:
        """True if several operations write the tensor with more bus slots than it has bytes."""
        slots = movement_slots(self.operations)
        return len(self.operations) > 1 and slots > self.bytes.byte.size

    def copies(self, source: str, result: str, pieces: tuple[Piece, ...]) -> tuple[Operator, ...]:
        """Return the operations that copy ``pieces``, named after the layer that moves the tensor.

        Each piece is a strided copy from ``source`` to ``result``.
        """
        first = self.operations[0]
        return copies(first.name, first.onnx_nodes, source, result, pieces)

    def find_pieces(self, name: str, index: Int64) -> tuple[Piece, ...]:
        """Return the strided copies that write a dense copy of tensor ``name``.

        ``index`` has the source position of each element. If it covers the tensor, the strided
        copies are found along the axes of the tensor's shape.
        """
        shape = self.shapes.get(name, ())
        return find_pieces(index.reshape(shape if prod(shape) == index.size else (-1,)))


def find_unpacked_routes(movement: TensorMovement) -> Iterator[tuple[Operator, ...]]:
    """Yield operations that write a tensor's bytes through dense copies of its sources.

    The first sequence copies the dense sources to the tensor. The second first makes a dense copy
    of the tensor too. A dense copy has the elements that the movement reads. Yield nothing if a
    source has no layout, or if these elements are not consecutive: the elements between them may be
    written later.
    """
    found = movement.bytes
    layout = movement.layouts[movement.name]
    plain = f"{movement.name}~dense"  # the names of other copies end in a number
    filled = tuple(one for one in movement.operations if not one.inputs)
    dense: dict[str, Int64] = {}
    unpacked = list[Operator]()
    for number, source in enumerate(found.sources):
        origin = movement.layouts.get(source)
        if origin is None:
            return
        taken = found.source == number
        places = origin.places(np.arange(origin.elements))
        is_read = np.zeros(prod(origin.stored), np.bool_)
        is_read[found.byte[taken]] = True
        needed = is_read[places]
        first, last = needed.argmax(), needed.size - needed[::-1].argmax()
        places = places[first:last]
        if np.count_nonzero(is_read) != places.size or not needed[first:last].all():
            return
        elements = np.zeros(is_read.size, np.int64)
        elements[places] = np.arange(places.size)
        index = np.full(taken.size, NOTHING, np.int64)
        index[taken] = elements[found.byte[taken]]
        name = f"{plain}~{source}"
        dense[name] = index
        unpacked += movement.copies(source, name, movement.find_pieces(source, places))
    shape = movement.shapes.get(movement.name, ())
    written = [
        one
        for name, index in dense.items()
        for one in movement.copies(name, movement.name, find_packed_pieces(index, layout, shape))
    ]
    yield (*unpacked, *written, *filled)
    places = layout.places(np.arange(layout.elements))
    gathered = [
        one
        for name, index in dense.items()
        for one in movement.copies(name, plain, movement.find_pieces(movement.name, index[places]))
    ]
    index = np.full(found.source.size, NOTHING, np.int64)
    moved = (found.source[places] >= 0).nonzero()[0]
    index[places[moved]] = moved
    packed = movement.copies(plain, movement.name, find_packed_pieces(index, layout, shape))
    yield (*unpacked, *gathered, *packed, *filled)
