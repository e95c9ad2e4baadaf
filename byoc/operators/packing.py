"""Operations on a machine of words: which of them find their operands in atoms, and their geometry there.

On such a machine (docs/machine.md, section 12) a channel of a loop nest is an atom: tilings, transfers and planners
count atoms of A bytes where they else count channels of one. Only what an instruction is told is in channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph
from byoc.operators.convolution import Convolution
from byoc.operators.matmul import MatMul
from byoc.operators.movement import Alias, StridedCopy, copies, fills
from byoc.operators.nest import NOTHING, Dim, Nest, Piece, Span, find_pieces, merged
from byoc.operators.operator import (
    ChannelConstants,
    Finding,
    Geometry,
    Lying,
    Operand,
    Operator,
    Packing,
    finding,
    missing_instruction,
)
from byoc.operators.window import Window
from byoc.options import Target
from isa.arch import WORD_KEYS, Arch, Words
from isa.ops.convolution import MAPPING
from isa.ops.packed import COLUMNS, NARROW, RAW, WHOLE_KERNEL, Product, best_mapping, product_places, words_of
from isa.packing import Shape, atoms_of, blocked, depthwise_places

RULE = (
    "on a machine of words tensors are one image of channels, or a matrix, and slices of them begin and end with atoms"
)


def lying(shape: tuple[int, ...], atom: int) -> Lying | None:
    """How a whole tensor lies: (1, C, …) as C channels, a matrix (M, K) as K; None for a batch."""
    if len(shape) <= 1:
        return Lying(prod(shape), 1, atom)
    if len(shape) == 2:
        return Lying(shape[1], shape[0], atom)
    return Lying(shape[1], prod(shape[2:]), atom) if shape[0] == 1 else None


def lying_of(operations: Iterable[Operator], graph: Graph, atom: int) -> dict[str, Lying]:
    """How the values of a region lie."""
    found: dict[str, Lying] = {}
    for operation in operations:
        for operand in (*operation.inputs, operation.output):
            value = graph.values.get(operand.value)
            if operand.lying is not None and operand.start == 0 and value is None:
                found[operand.value] = operand.lying
            lies = None if value is None else lying(value.shape, atom)
            if lies is not None:
                found[operand.value] = lies if not narrow(graph, operand.value) else lies._replace(atom=NARROW)
    return found


def narrow(graph: Graph, name: str) -> bool:
    """Whether a value lies in narrow atoms: it comes from the host and is read by convolutions of one group alone.

    Those take the taps of their kernels side by side (mapping 3), and it need not be loaded four times.
    """
    value = graph.values[name]
    if len(value.shape) < 3 or value.shape[0] != 1 or value.shape[1] > NARROW:
        return False
    readers = [node for node in graph.nodes if name in node.inputs]
    makers = [node for node in graph.nodes if name in node.outputs]
    pictures = all(node.op_type == "Conv" and node.attributes.get("group") == 1 for node in readers if node.integer)
    return pictures and not any(node.integer for node in makers)


def packed_operations(operations: tuple[Operator, ...], graph: Graph, target: Target) -> tuple[Operator, ...] | Finding:
    """The operations of a node on operands in atoms; or what of them cannot be."""
    found = []
    last = {one.output.value: one for one in operations if one.mnemonic in RAW}
    for operation in operations:
        packed = _packed(operation, graph, target)
        if isinstance(packed, Finding):
            moved = _moved(operations, graph, target)
            return packed if moved is None else moved
        found.append(packed)
        if operation in last.values():
            found += _zeros(operation, graph, target.words)
    return tuple(found)


def _zeros(operation: Operator, graph: Graph, words: Words | None) -> tuple[Operator, ...]:
    """What writes the zeros behind the last channel of a result that is written byte by byte."""
    assert words is not None
    name, value = operation.output.value, graph.values.get(operation.output.value)
    lies = lying(operation.output.shape if value is None else value.shape, words.atom)
    assert lies is not None
    first, behind = divmod(lies.channels, lies.atom)
    if not behind:
        return ()
    dims = Dim(lies.positions, 0, lies.atom), Dim(lies.atom - behind, 0, 1)
    piece = Piece(0, first * lies.positions * lies.atom + behind, merged(dims))
    return fills(operation.name, operation.onnx_nodes, name, (piece,), 0)


MOST_PIECES = 256
"""Copies that the movement of a tensor becomes at most."""


def _moved(operations: tuple[Operator, ...], graph: Graph, target: Target) -> tuple[Operator, ...] | Finding | None:
    """Operations that only move elements as copies of bytes where atoms have them; None where others are among them."""
    if StridedCopy.instructions[0] not in target.instructions or target.words is None:
        return None
    if not all(type(one) in (Alias, StridedCopy) and not one.constant_operands for one in operations):
        return None
    atom, result = target.words.atom, graph.values[operations[0].output.value]
    lies = lying(result.shape, atom)
    indices: dict[str, NDArray[np.int64]] = {}
    for operation in operations:
        for name, sources, targets in _positions(operation):
            source = graph.values[name]
            if lies is None or lying(source.shape, atom) is None or narrow(graph, name):
                return finding("'{name}' is a batch, or lies in narrow atoms", name=name)
            empty = np.full(lies.surfaces * lies.positions * atom, NOTHING, np.int64)
            index = indices.setdefault(name, empty)
            index[_in_memory(targets, result.shape, atom)] = _in_memory(sources, source.shape, atom)
    assert lies is not None
    node, found = operations[0], list[Operator]()
    for name, index in indices.items():
        pieces = find_pieces(index.reshape(lies.surfaces, lies.positions, atom))
        if len(found) + len(pieces) > MOST_PIECES:
            return finding("it is cut into more than {most} pieces of atoms", most=MOST_PIECES)
        found += copies(node.name, node.onnx_nodes, name, result.name, pieces)
    return *found, *_zeros(node, graph, target.words)


def _positions(operation: Operator) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """(value, places in it, places in the result) of the elements that an operation moves."""
    begin = operation.output.offset
    if operation.offsets:
        for source, offset in zip(operation.inputs, operation.offsets, strict=True):
            steps = np.arange(source.elements)
            yield source.value, source.offset + steps, begin + offset + steps
        return
    (source,), dims = operation.inputs, operation.loops.dims
    lowest = Piece(0, 0, dims).lowest
    yield source.value, *Piece(source.offset - lowest, begin, dims).positions()


def _in_memory(places: NDArray[np.int64], shape: tuple[int, ...], atom: int) -> NDArray[np.int64]:
    """Where elements of a tensor of ``shape`` lie in its atoms."""
    lies = lying(shape, atom)
    assert lies is not None
    by_row = len(shape) == 2
    channels = places % lies.channels if by_row else places // lies.positions
    positions = places // lies.channels if by_row else places % lies.positions
    found: NDArray[np.int64] = channels // atom * (lies.positions * atom) + positions * atom + channels % atom
    return found


def _packed(written: Operator, graph: Graph, target: Target) -> Operator | Finding:
    operation = _as_planes(written) if type(written) is MatMul else written
    assert target.words is not None
    if operation.mnemonic is not None and operation.mnemonic not in target.instructions:
        return missing_instruction(operation.mnemonic, target.isa)
    if operation.mnemonic in RAW:
        return _bytewise(operation, graph, target.words.atom)
    operands, orders = list[Operand](), set[bool]()
    for operand in (*operation.inputs, operation.output):
        value = graph.values.get(operand.value)
        shape = operand.shape if value is None or operand.value in operation.constant_operands else value.shape
        atom = NARROW if value is not None and operand in operation.inputs and narrow(graph, value.name) else 0
        constant = operation.constant_operands.get(operand.value)
        if constant is not None and constant.size != operand.elements:
            return finding("'{name}' is a part of a constant", name=operand.value)
        placed = _placed(operand, shape, atom or target.words.atom)
        if isinstance(placed, Finding):
            return placed
        operands.append(placed)
        whole = lying(shape, target.words.atom)
        if whole is not None and min(whole[:2]) > 1:
            orders.add(len(shape) == 2)
    *inputs, output = operands
    packed = replace(operation, inputs=tuple(inputs), output=output)
    either = bool(operation.offsets) or operation.traits.flat
    by_row = type(written) is MatMul or (not either and operation.loops.nest.matrix)
    if len(orders) > 1 or (not either and orders - {by_row}):
        return finding("'{name}' reads a matrix as an image, or an image as a matrix", name=operation.name)
    return _misplaced(packed) or packed


def _bytewise(operation: Operator, graph: Graph, atom: int) -> Operator | Finding:
    """What an instruction of bytes finds where they lie plainly: of one position, channels lie side by side."""
    for operand in (*operation.inputs, operation.output):
        value = graph.values.get(operand.value)
        if operand.value in operation.constant_operands or (value is not None and value.constant is not None):
            continue
        lies = lying(operand.shape if value is None else value.shape, atom)
        if lies is None or lies.positions > 1:
            return finding(
                "{mnemonic} finds '{name}' in one position of channels alone",
                mnemonic=operation.mnemonic, name=operand.value,
            )  # fmt: skip
    return operation


def _as_planes(product: MatMul) -> Operator:
    """A product of matrices as a convolution of one tap: K channels of M positions, whose bands lie apart."""
    (source,), result = product.inputs, product.output
    return Convolution(
        name=product.name, kind=product.kind, onnx_nodes=product.onnx_nodes, tables=product.tables,
        inputs=(replace(source, shape=(source.shape[1], source.shape[0], 1)),),
        output=replace(result, shape=(result.shape[1], result.shape[0], 1)),
        weights=product.weights.T[:, :, np.newaxis, np.newaxis], bias=product.bias,
        requantise=product.requantise, input_zero_point=0, groups=1,
    )  # fmt: skip


def _placed(operand: Operand, shape: tuple[int, ...], atom: int) -> Operand | Finding:
    """The operand, a slice of a value of ``shape``, in atoms."""
    whole = lying(shape, atom)
    if whole is None:
        return finding("'{name}' of shape {shape} is a batch", name=operand.value, shape=shape)
    if operand.offset == 0 and operand.elements == prod(shape):
        return replace(operand, lying=whole)
    (first, before), (channels, rest) = (
        divmod(operand.offset, whole.positions),
        divmod(operand.elements, whole.positions),
    )
    ends = channels % atom == 0 or first + channels == whole.channels
    if len(shape) == 2 or before or rest or first % atom or not ends:
        return finding(
            "{elements} elements of '{name}' of shape {shape} from element {offset} on are no whole atoms",
            elements=operand.elements, name=operand.value, shape=shape, offset=operand.offset,
        )  # fmt: skip
    return replace(operand, lying=Lying(channels, whole.positions, atom))


def _misplaced(operation: Operator) -> Finding | None:
    """That an operation does not find its operands' channels where they lie; None where it does."""
    if operation.offsets:
        return _unaligned(operation)
    cutting, nest = operation.loops, operation.loops.nest
    if cutting.second != "alike" or cutting.dims or cutting.single:
        return finding("operands of {mnemonic} are not worked out on words", mnemonic=operation.mnemonic)
    output, inputs = operation.output.lying, [operand.lying for operand in operation.inputs]
    if operation.traits.flat and not nest.grouped:
        same = all(one == output for one in inputs)
        return (
            None if same else finding("'{name}' reads tensors that lie otherwise than its result", name=operation.name)
        )
    if cutting.repeats:
        wanted = [
            (1 if repeat.channels else nest.channels, 1 if repeat.rows else nest.rows) for repeat in cutting.repeats
        ]
        wanted.append((nest.channels, nest.rows))
    else:
        wanted = [(nest.input_channels, nest.input_rows * nest.input_columns)] * len(inputs)
        wanted.append((nest.channels, nest.rows * nest.columns))
    for operand, want in zip((*operation.inputs, operation.output), wanted, strict=True):
        if operand.lying is None or operand.lying[:2] != want:
            return finding(
                "'{name}' is wanted as {channels} channels of {positions} positions, and lies otherwise",
                name=operand.value, channels=want[0], positions=want[1],
            )  # fmt: skip
    if nest.groups > 1 and nest.groups == nest.input_channels and nest.channels != nest.groups:
        return finding("it is depthwise with {count} filters a channel", count=nest.channels // nest.groups)
    return None


def _unaligned(operation: Operator) -> Finding | None:
    """That an input is no whole atoms of the result in which it is placed."""
    whole = operation.output.lying
    assert whole is not None
    for source, offset in zip(operation.inputs, operation.offsets, strict=True):
        lies = source.lying
        assert lies is not None
        first, rest = divmod(offset, whole.positions)
        ends = lies.channels % lies.atom == 0 or first + lies.channels == whole.channels
        same = lies == whole or (lies.positions == whole.positions and ends)
        if not same or rest or first % lies.atom:
            return finding("'{name}' is no whole atoms of '{result}'", name=source.value, result=operation.output.value)
    return None


# Geometry. -----------------------------------------------------------------------------------------------------------


def packed_geometry(plain: Geometry, operation: Operator, arch: Arch) -> Geometry:
    """The geometry of an operation on operands in atoms, which has a ``plain`` one."""
    lies = operation.output.lying
    assert lies is not None
    keys = {key: getattr(arch, key) for key in WORD_KEYS}
    machine = Arch(isa=arch.isa, pe=arch.pe, **keys)
    mapping = dict(plain.fields).get(MAPPING.name, 0)
    packing = Packing(plain, machine, _kernel(operation), mapping)
    atom, nest = lies.atom, plain.nest
    if plain.flat:
        rows = lies.surfaces * lies.positions
        flat = replace(nest, rows=rows, columns=atom, input_rows=rows, input_columns=atom)
        return replace(plain, nest=flat, packing=packing)
    first = operation.inputs[0].lying
    return replace(
        plain, nest=_in_atoms(nest, atom), input_bytes=(first.atom if first else atom) * plain.input_bytes,
        output_bytes=atom * plain.output_bytes, packing=packing,
    )  # fmt: skip


def _kernel(operation: Operator) -> tuple[int, int]:
    return operation.window if isinstance(operation, Window) else (1, 1)


def _in_atoms(nest: Nest, atom: int) -> Nest:
    channels, inputs = -(-nest.channels // atom), -(-nest.input_channels // atom)
    sizes = replace(nest, channels=channels, input_channels=inputs)
    if nest.groups == 1:
        return sizes
    if nest.groups == nest.channels:
        return replace(sizes, groups=channels)
    if nest.group_inputs % atom or nest.group_outputs % atom:
        return replace(sizes, groups=1, whole=True)  # groups share atoms
    return sizes


def mapping_of(operation: Operator, fields: Mapping[str, int], arch: Arch) -> Mapping[str, int]:
    """``fields`` of an operation with the mapping that takes the fewest cycles on a machine of words."""
    if MAPPING.name not in fields:
        return fields
    nest, words = operation.loops.nest, words_of(arch)
    lies = operation.inputs[0].lying
    if lies is not None and lies.atom == NARROW:
        return {**fields, MAPPING.name: WHOLE_KERNEL}
    if operation.mnemonic == "OP_DEPTH_CONV":
        return {**fields, MAPPING.name: 0}
    shape = Shape(nest.groups, nest.group_outputs, nest.group_inputs, *_kernel(operation))
    last = nest.input_channels % words.atom if nest.groups == 1 else 0
    pictures = words.atom <= NARROW or 0 < last <= NARROW  # what a part of the channels would be taken for
    most = COLUMNS if pictures else WHOLE_KERNEL
    return {**fields, MAPPING.name: best_mapping(Product(shape, nest.rows, nest.columns, nest.stride), most, arch)}


def blocked_weights(packing: Packing, constants: ChannelConstants, part: tuple[Span, Span | None]) -> NDArray[np.uint8]:
    """The weights of some atoms of output channels, and of input channels, None: of all, in the order of their use."""
    channels, depth = packing.outputs_in(part[0]), part[1]
    assert constants.weights is not None
    weights = constants.weights[channels.start : channels.stop]
    if depth is not None:
        read = packing.channels(depth, packing.plain.nest.input_channels)
        weights = weights[:, read.start : read.stop]
    plain = np.ascontiguousarray(weights).reshape(-1).view(np.uint8)
    if not packing.plain.record_bytes:
        return plain
    words = packing.words
    if packing.depthwise:
        return blocked(plain, depthwise_places(channels.size, prod(packing.kernel), words.atom, words.word))
    inputs = weights.shape[1] if depth is not None else 0
    return blocked(plain, product_places(packing.product(channels.size, inputs), packing.machine))


def in_atoms(array: NDArray[np.generic], atom: int) -> NDArray[np.generic]:
    """A whole tensor of the model as it lies in memory in atoms of so many bytes: (surfaces, positions, atom)."""
    lies = lying(array.shape, atom)
    assert lies is not None
    tensor = array.T if array.ndim == 2 else array
    return np.ascontiguousarray(atoms_of(tensor.reshape(lies.channels, lies.positions), atom))


def from_atoms(array: NDArray[np.generic], shape: tuple[int, ...]) -> NDArray[np.generic]:
    """The inverse of :func:`in_atoms` for a tensor of ``shape``."""
    lies = lying(shape, array.shape[-1])
    assert lies is not None
    tensor = array.swapaxes(1, 2).reshape(-1, lies.positions)[: lies.channels]
    return np.ascontiguousarray(tensor.T if len(shape) == 2 else tensor).reshape(shape)
