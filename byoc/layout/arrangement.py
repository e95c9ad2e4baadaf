"""Layout assignment in banked memory: chooses the layout of every tensor of a region and inserts copies.

A convolution needs channels of positions, a matrix product needs positions of channels, and a product per head
needs images of them (:class:`byoc.operators.operator.Layout`). A tensor keeps its producer's layout. Movements and
element-wise operations write the layout that the next consumer needs. A consumer that needs another layout reads a
copy; the copy is made once and shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Value
from byoc.operators.matmul import on_plane
from byoc.operators.movement import Alias, copies, filled_byte, fills
from byoc.operators.nest import NOTHING, Dim, Piece, find_pieces, merged
from byoc.operators.operator import Operand, Operator
from byoc.operators.packing import boundary_layouts, default_layout, map_shape
from isa.layout import Layout
from isa.ops.packed import NARROW

MOST_PIECES = 256
"""Most copies of a movement in one step; with more, it is compiled as unpack, move, pack."""
MIN_PADDING = 4096
"""Minimum padding in bytes of a region output that is stored as a copy in narrower atoms."""
BYTES_OF_A_RUN = 4
"""Number of tensor bytes that cost as much as one contiguous run of a movement."""
Places = NDArray[np.int64]


def arranged(
    operations: Iterable[Operator],
    values: Mapping[str, Value],
    edges: Iterable[str],
    atom: int,
    fits: Callable[[Operator], bool] = lambda _: True,
) -> tuple[tuple[Operator, ...], dict[str, Layout]]:
    """Choose a layout for every tensor of a region and insert the copies that consumers need.

    Region inputs and outputs get one of :func:`byoc.operators.packing.boundary_layouts`: inputs the layout that their
    consumers need, which may have narrow atoms; outputs the producer's layout or one of few bytes. Layout changes
    and movements become copies of bytes.

    Args:
        operations: the region's operations in execution order.
        values: shapes and types by tensor name.
        edges: names of the region's inputs and outputs.
        atom: channels stored together, one byte each.
        fits: whether an operation has a tiling in the scratchpad.

    Returns:
        The operations including inserted copies, and the layout of each tensor.
    """
    listed, edges = tuple(operations), tuple(edges)
    arrangement = _Arrangement(listed, values, edges, atom, fits)
    made = {operation.output.value for operation in listed}
    readers: dict[str, list[Operator]] = {}
    for operation in listed:
        for operand in operation.inputs:
            readers.setdefault(operand.value, []).append(operation)
    for name in edges:
        if name not in made:
            arrangement.fix(name, readers.get(name, ()))
    for group in _grouped(listed):
        name = group[0].output.value
        if name in edges and name not in arrangement.home:
            arrangement.fix_result(group)
        arrangement.add(group)
    return tuple(arrangement.found), arrangement.home


def _grouped(operations: Iterable[Operator]) -> Iterator[tuple[Operator, ...]]:
    """Yield the operations in order; consecutive movements into one tensor form one group."""

    def key(numbered: tuple[int, Operator]) -> tuple[bool, object]:
        number, operation = numbered
        return (True, operation.output.value) if operation.traits.moves else (False, number)

    return (tuple(one for _, one in group) for _, group in groupby(enumerate(operations), key))


def _slice(home: Layout, offset: int, want: Layout) -> Layout | None:
    """Return ``want`` placed at element ``offset`` of a tensor with layout ``home``.

    Return None if the elements there have another layout.
    """
    if home.atom != want.atom:
        return None
    image, rest = divmod(offset, home.channels * home.positions)
    if want._replace(begin=0).canonical == home._replace(begin=0).canonical and not offset:
        return want._replace(begin=home.begin)
    same = (home.channels, home.positions, home.by_row) == (want.channels, want.positions, want.by_row)
    if same and not rest and image + want.images <= home.images:
        return want._replace(begin=home.before(offset))
    if home.by_row or want.by_row or home.positions != want.positions or rest % home.positions:
        return None
    first = rest // home.positions
    ends = want.channels % want.atom == 0 or first + want.channels == home.channels
    inside = want.images == 1 and first + want.channels <= home.channels
    return want._replace(begin=home.before(offset)) if inside and ends and first % want.atom == 0 else None


class _Slice(NamedTuple):
    """Elements of a tensor: the first, and their number."""

    value: str
    offset: int
    elements: int


def _narrowed(lies: Layout) -> Layout:
    """Return the layout of one large plane of few channels in atoms of at most half the size; others unchanged."""
    atom = max(NARROW, 1 << (lies.channels - 1).bit_length())
    large = lies.images == 1 and lies.positions * (lies.atom - atom) >= MIN_PADDING
    return lies._replace(atom=atom) if atom < lies.atom and large else lies


def _cost(lies: Layout, moved: Iterable[tuple[Places, Places]]) -> float:
    """Return the cost of a tensor with layout ``lies``: its bytes, and the contiguous runs of ``moved`` elements.

    ``moved`` has the places of elements in their tensors, and their numbers in this one.
    """
    size = prod(lies.stored)
    cost = size / BYTES_OF_A_RUN
    for sources, elements in moved:
        index = np.full(size, NOTHING, np.int64)
        index[lies.places(elements)] = sources
        targets = np.flatnonzero(index != NOTHING)
        cost += np.count_nonzero(np.diff(index[targets]) != np.diff(targets))
    return cost


def _of(operand: Operand) -> _Slice:
    return _Slice(operand.value, operand.offset, operand.elements)


class _Arrangement:
    """Layouts of tensors, and the operations ``found`` so far."""

    def __init__(
        self,
        operations: tuple[Operator, ...],
        values: Mapping[str, Value],
        edges: tuple[str, ...],
        atom: int,
        fits: Callable[[Operator], bool] = lambda _: True,
    ) -> None:
        self.found: list[Operator] = []
        self._atom, self._values, self._fits = atom, values, fits
        self._elements: dict[str, int] = {}
        for operation in operations:
            for operand in (*operation.inputs, operation.output):
                known = values.get(operand.value)
                most = max(self._elements.get(operand.value, 0), operand.offset + operand.elements)
                self._elements[operand.value] = most if known is None else known.elements
        self.home: dict[str, Layout] = {}
        self._wishes: dict[str, Layout] = {}
        self._copies: dict[tuple[_Slice, Layout], str] = {}
        self._filled: set[str] = set()
        self._known: set[str] = set()
        self._leaving = {*edges}  # and tensors used only to compute region outputs element by element
        for operation in reversed(operations):
            self._wish(operation)

    # Preferred layouts of consumers.

    def _wish(self, operation: Operator) -> None:
        names = {operand.value for operand in operation.inputs}
        if operation.elementwise and operation.output.value in self._leaving and not names & self._known:
            self._leaving |= names
        else:
            self._leaving -= names
        self._known |= names
        if operation.elementwise or _keeps(operation, self._elements):
            wanted = self._wishes.get(operation.output.value)
            if wanted is not None:
                for operand in operation.inputs:
                    if self._elements[operand.value] == wanted.elements:
                        self._wishes[operand.value] = wanted
        for operand in operation.inputs:
            if operand.assigned is not None and operand.value not in operation.constant_operands:
                whole = self._whole(_of(operand), operand.assigned)
                if whole is not None:
                    self._wishes[operand.value] = whole

    def _whole(self, part: _Slice, lies: Layout) -> Layout | None:
        """Return the layout of a tensor as images of a part with layout ``lies``; None if one would be incomplete."""
        images, rest = divmod(self._elements[part.value], max(part.elements, 1))
        if rest or not part.elements or part.offset % part.elements:
            return None
        return lies._replace(images=lies.images * images, begin=0).canonical

    def _default(self, name: str) -> Layout:
        value = self._values.get(name)
        return default_layout((self._elements[name],) if value is None else value.shape, self._atom)

    def fix(self, name: str, readers: Sequence[Operator]) -> None:
        """Choose the layout of a region input.

        It is dense if all ``readers`` are movements and padding costs more than contiguous runs save.
        """
        found, wish = self._default(name), self._wishes.get(name)
        dense = Layout(found.elements, 1, self._atom)
        if all(one.traits.moves for one in readers):
            padded, plain = (self._move_cost(name, lies, readers) for lies in (found, dense))
            found, wish = (dense, None) if plain < padded else (found, wish)
        if wish is not None and wish.atom != self._atom:
            found = found._replace(atom=wish.atom)
        self.home[name] = wish if wish in boundary_layouts(self._values[name].shape, self._atom) else found

    def _move_cost(self, name: str, home: Layout, readers: Iterable[Operator]) -> float:
        """Return the cost of storing a region input with layout ``home`` and moving it."""
        cost = prod(home.stored) / BYTES_OF_A_RUN
        for operation in readers:
            result = operation.output.value
            shape = self._values[result].shape if result in self._values else ()
            options = boundary_layouts(shape, self._atom) if result in self._leaving else (self._wishes.get(result),)
            moved = [both for value, *both in _moved(operation, operation.slices) if value == name]
            cost += min(
                _cost(lies or self._default(result), [(home.places(a), b) for a, b in moved]) for lies in options
            )
        return cost

    def fix_result(self, group: tuple[Operator, ...]) -> None:
        """Choose the layout of a region output: its producer's layout, or the cheapest for movements."""
        result = group[0].output
        options = boundary_layouts(self._values[result.value].shape, self._atom)
        if group[0].traits.moves:
            self.home[result.value] = self._cheapest(group, options)
            return
        want = result.assigned
        if want is None:  # element-wise: the layout of an operand
            homes = [self.home[one.value] for one in group[0].inputs if one.value in self.home and self._is_whole(one)]
            want = homes[0]._replace(atom=self._atom) if homes else None
        whole = None if want is None else self._whole(_of(result), want)
        home = whole if whole in options else options[0]
        narrow, shape = _narrowed(home), self._values[result.value].shape
        able = result.assigned is not None and result.value not in self._known
        self.home[result.value] = narrow if able and narrow in boundary_layouts(shape, narrow.atom) else home

    def _cheapest(self, group: tuple[Operator, ...], options: Iterable[Layout]) -> Layout:
        """Return the layout with the fewest bytes and contiguous runs for the movements into a tensor."""
        moved = []
        for operation in group:
            constants = operation.constant_operands
            for value, sources, targets in _moved(operation, operation.slices):
                home = Layout(self._elements[value], 1, self._atom) if value in constants else self.home[value]
                moved.append((home.places(sources), targets))
        return min(options, key=lambda lies: _cost(lies, moved))

    # Operations.

    def add(self, group: tuple[Operator, ...]) -> None:
        """Lay out an operation, or the movements into one tensor."""
        first = group[0]
        if first.traits.moves:
            self._move(group)
        elif first.elementwise:
            self._one_by_one(first)
        else:
            for operation in self._by_image(first):
                self._as_wanted(operation)

    def _by_image(self, operation: Operator) -> tuple[Operator, ...]:
        """Split an operation on all positions of a tensor of several images into one operation per image."""
        source, result = operation.inputs[0], operation.output
        home, want = self.home.get(source.value), source.assigned
        if not operation.traits.by_position or home is None or want is None or home.images == 1:
            return (operation,)
        if not home.by_row or home.channels != want.channels or source.elements != home.elements:
            return (operation,)
        parts = []
        for number in range(home.images):
            part = [_rows_of(operand, number, home.positions, home.images) for operand in (source, result)]
            parts.append(replace(operation, inputs=(part[0],), output=part[1]))
        return tuple(parts)

    def _as_wanted(self, operation: Operator) -> None:
        home = self.home.get(operation.inputs[0].value)
        flattened = home is not None and home.positions > 1 and home.images == 1 and not home.by_row
        if home is not None and flattened and home.atom == self._atom and self._is_whole(operation.inputs[0]):
            window = on_plane(operation, home)
            operation = window if window is operation or self._fits(window) else operation
        inputs = []
        for operand in operation.inputs:
            assert operand.assigned is not None
            inputs.append(self._read(operation, operand, operand.assigned))
        assert operation.output.assigned is not None
        self._make(replace(operation, inputs=tuple(inputs)), operation.output.assigned)

    def _one_by_one(self, operation: Operator) -> None:
        """Lay out an element-wise operation, whose operands and result all have the same layout.

        It is the layout that the result must have, or that of most operands.
        """
        name = operation.output.value
        operands = [one for one in operation.inputs if one.value not in operation.constant_operands]
        chosen = Layout(operation.output.elements, 1, self._atom)
        if all(self._is_whole(one) for one in operands):
            homes = Counter(self.home[one.value]._replace(begin=0, atom=self._atom) for one in operands)
            wish = self._wishes.get(name) or self._default(name)
            chosen = homes.most_common(1)[0][0] if homes else wish if self._is_whole(operation.output) else chosen
            if self._is_whole(operation.output):
                chosen = self.home.get(name, wish if wish.atom != self._atom else chosen)
        self._make(
            replace(operation, inputs=tuple(self._read(operation, one, chosen) for one in operation.inputs)), chosen
        )

    def _is_whole(self, operand: Operand) -> bool:
        return _of(operand) == (operand.value, 0, self._elements[operand.value])

    # Operands.

    def _read(self, reader: Operator, operand: Operand, want: Layout) -> Operand:
        """Return the operand in layout ``want``: in place if it has this layout, otherwise copied."""
        if operand.value in reader.constant_operands:
            return replace(operand, assigned=want)
        part, home = _of(operand), self.home[operand.value]
        found = _slice(home, operand.offset, want)
        if found is not None:
            return replace(operand, assigned=found)
        known = (part, want)
        if known not in self._copies:
            name = self._copies[known] = f"{operand.value}~{len(self._copies)}"
            self.home[name], self._elements[name] = want._replace(begin=0), part.elements
            steps = np.arange(part.elements)
            self._copy(reader, name, {operand.value: (operand.offset + steps, steps)})
        name = self._copies[known]
        return replace(operand, value=name, offset=0, assigned=want._replace(begin=0))

    def _make(self, operation: Operator, want: Layout) -> None:
        """Add an operation whose result has layout ``want``; copy the result if its tensor has another layout."""
        result = operation.output
        if result.value not in self.home:
            wish = None if want.by_row or self._is_whole(result) else self._wishes.get(result.value)
            self.home[result.value] = wish or self._whole(_of(result), want) or self._default(result.value)
        found = _slice(self.home[result.value], result.offset, want)
        dense = operation.omits_padding  # without padding after the last channel
        if found is not None and not dense:
            self.found.append(replace(operation, output=replace(result, assigned=found)))
            return
        name = f"{result.value}~{len(self._copies)}"
        self._copies[_of(result), want._replace(images=0) if dense else want] = name
        self.home[name], self._elements[name] = want._replace(begin=0), result.elements
        own = replace(result, value=name, offset=0, assigned=want._replace(begin=0))
        self.found.append(replace(operation, output=own))
        steps = np.arange(result.elements)
        self._copy(operation, result.value, {name: (steps, result.offset + steps)})

    # Movements.

    def _move(self, group: tuple[Operator, ...]) -> None:
        first, name = group[0], group[0].output.value
        if _keeps(first, self._elements) and first.inputs[0].value not in first.constant_operands:
            origin = self.home[first.inputs[0].value]
            if origin.atom == self._atom and self.home.setdefault(name, origin) == origin:
                operand = replace(first.inputs[0], assigned=origin)
                self.found.append(replace(first, inputs=(operand,), output=replace(first.output, assigned=origin)))
                return
        if name not in self.home:
            self.home[name] = self._wishes.get(name) or self._carried(group)
            if self.home[name].atom != self._atom:
                self.home[name] = self._default(name)
        index: dict[str, list[tuple[Places, Places]]] = {}
        constants = {value: data for one in group for value, data in one.constant_operands.items()}
        for operation in group:
            filled = filled_byte(operation)
            if filled is not None:
                self._fill(operation, filled)
            else:
                slices = [both for both in operation.slices if not self._shared(operation, *both)]
                for value, *places in _moved(operation, slices):
                    index.setdefault(value, []).append((places[0], places[1]))
        for value, data in constants.items():
            self.home[value] = Layout(data.size, 1, self._atom)  # dense
        moved = {value: _joined(parts) for value, parts in index.items()}
        pieces = {value: self._pieces(name, value, *places) for value, places in moved.items()}
        if max(map(len, pieces.values()), default=0) > MOST_PIECES:
            self._plainly(group, moved)
            return
        for value, found in pieces.items():
            known = {value: constants[value]} if value in constants else {}
            made = copies(first.name, first.onnx_nodes, value, name, found)
            self.found += [replace(one, constant_operands=known) for one in made] if known else made
        if pieces:
            self._zeros(first, name)

    def _plainly(self, group: tuple[Operator, ...], moved: Mapping[str, tuple[Places, Places]]) -> None:
        """Unpack the sources of a movement, move densely, and pack the result."""
        first, name = group[0], group[0].output.value
        plain, elements = f"{name}~{len(self._copies)}", self._elements[name]
        lies = Layout(elements, 1, self._atom)
        self._copies[_Slice(name, 0, elements), lies] = plain
        self._elements[plain], self.home[plain] = elements, lies
        for value, (sources, targets) in moved.items():
            whole = Operand(value, (self._elements[value],))
            source = self._read(first, whole, lies._replace(channels=whole.elements)).value
            index = np.full(elements, NOTHING, np.int64)
            index[targets] = sources
            shape = self._values[name].shape if name in self._values else index.shape
            self.found += copies(first.name, first.onnx_nodes, source, plain, find_pieces(index.reshape(shape)))
        written = np.unique(np.concatenate([targets for _, targets in moved.values()]))
        self._copy(first, name, {plain: (written, written)})

    def _pieces(self, target: str, source: str, sources: Places, targets: Places) -> tuple[Piece, ...]:
        """Return the copies that move elements of one tensor to places in another, in their layouts."""
        home = self.home[target]
        shape = map_shape(home, self._values[target].shape if target in self._values else ())
        index = np.full(prod(shape), NOTHING, np.int64)
        index[home.places(targets)] = self.home[source].places(sources)
        return find_pieces(index.reshape(shape))

    def _carried(self, group: tuple[Operator, ...]) -> Layout:
        """Return the layout of a moved tensor whose consumers need none: by row if its source is by row."""
        name = group[0].output.value
        sources = [self.home[one.value] for item in group for one in item.inputs if one.value in self.home]
        shape = self._values[name].shape if name in self._values else ()
        if shape and name in self._leaving:
            return self._cheapest(group, boundary_layouts(shape, self._atom))
        if sources and sources[0].by_row and len(shape) > 1:
            return Layout(shape[-1], prod(shape[:-1]), self._atom, by_row=True).canonical
        return self._default(name)

    def _shared(self, operation: Operator, source: Operand, target: Operand) -> bool:
        """Return True, and keep the slice as an alias, if both tensors have the same bytes there."""
        home = self.home[target.value]
        origin = self.home.get(source.value)
        if origin is None or source.value in operation.constant_operands:
            return False
        wholes = [home] if target.elements == self._elements[target.value] else []
        wholes += [origin] if source.elements == self._elements[source.value] else []
        if source.elements % origin.positions == 0:
            wholes.append(Layout(source.elements // origin.positions, origin.positions, self._atom))
        for want in wholes:
            if want.elements != source.elements:
                continue
            both = (
                _slice(origin, source.offset, want._replace(begin=0)),
                _slice(home, target.offset, want._replace(begin=0)),
            )
            if both[0] is not None and both[1] is not None:
                output = Operand(target.value, target.shape, target.offset, target.dtype, both[1])
                alias = Alias(
                    name=operation.name, kind=operation.kind, onnx_nodes=operation.onnx_nodes,
                    inputs=(replace(source, assigned=both[0]),), output=output,
                )  # fmt: skip
                self.found.append(alias)
                return True
        return False

    def _copy(self, operation: Operator, target: str, moved: Mapping[str, tuple[Places, Places]]) -> None:
        """Copy elements between tensors in their layouts; ``moved`` has (source, target) places by source."""
        for name, places in moved.items():
            pieces = self._pieces(target, name, *places)
            self.found += copies(operation.name, operation.onnx_nodes, name, target, pieces)
        self._zeros(operation, target)

    def _fill(self, operation: Operator, byte: int) -> None:
        name, home = operation.output.value, self.home[operation.output.value]
        index = np.full(home.images * home.image_bytes, NOTHING, np.int64)
        targets = Piece(0, operation.output.offset, operation.loops.dims).positions()[1]
        index[home.places(targets)] = 0
        pieces = find_pieces(index.reshape(home.images * home.surfaces, home.positions, home.atom))
        self.found += fills(operation.name, operation.onnx_nodes, name, pieces, byte)

    def _zeros(self, operation: Operator, name: str) -> None:
        """Fill the padding after the last channel of a tensor that is written byte by byte, once."""
        home = self.home[name]
        if name in self._filled or home.channels % home.atom == 0:
            return
        self._filled.add(name)
        whole, behind = divmod(home.channels, home.atom)
        first = home.begin + whole * home.positions * home.atom + behind
        dims = Dim(home.images, 0, home.image_bytes), Dim(home.positions, 0, home.atom), Dim(home.atom - behind, 0, 1)
        self.found += fills(operation.name, operation.onnx_nodes, name, (Piece(0, first, merged(dims)),), 0)


def _moved(operation: Operator, slices: Iterable[tuple[Operand, Operand]]) -> Iterator[tuple[str, Places, Places]]:
    """Yield the elements that an operation copies: source tensor, places in it, and places in the result.

    ``slices`` are the slices of the operation that must be copied.
    """
    if operation.loops.dims and filled_byte(operation) is None and not operation.slices:
        (read,), dims = operation.inputs, operation.loops.dims
        lowest = Piece(0, 0, dims).lowest
        yield read.value, *Piece(read.offset - lowest, operation.output.offset, dims).positions()
    for source, target in slices:
        steps = np.arange(source.elements)
        yield source.value, source.offset + steps, target.offset + steps


def _joined(parts: list[tuple[Places, Places]]) -> tuple[Places, Places]:
    return np.concatenate([sources for sources, _ in parts]), np.concatenate([targets for _, targets in parts])


def _keeps(operation: Operator, elements: Mapping[str, int]) -> bool:
    """Return True if an operation turns one whole tensor into another with the elements in the same order."""
    if not operation.slices or len(operation.inputs) != 1:
        return False
    whole = (_of(one) == (one.value, 0, elements[one.value]) for one in (*operation.inputs, operation.output))
    return all(whole)


def _rows_of(operand: Operand, number: int, rows: int, images: int) -> Operand:
    """Return the rows of one image of an operand of shape (elements, rows), or of a result with one element per row."""
    assert operand.assigned is not None
    width, part = operand.shape[0], operand.assigned
    lies = part._replace(positions=rows) if part.positions > 1 else part._replace(channels=part.channels // images)
    return Operand(operand.value, (width, rows), operand.offset + number * width * rows, operand.dtype, lies.canonical)
