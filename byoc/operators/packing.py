"""Operations on a machine of words: which of them find their operands in atoms, and their geometry there.

On such a machine (docs/machine.md, section 12) a channel of a loop nest is an atom: tilings, transfers and planners
count atoms of A bytes where they else count channels of one. Only what an instruction is told is in channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph
from byoc.operators.convolution import Convolution
from byoc.operators.matmul import DynamicMatMul, MatMul
from byoc.operators.movement import Alias, Fill, StridedCopy
from byoc.operators.nest import Nest
from byoc.operators.normalisation import ColumnNormalisation, Normalisation
from byoc.operators.operator import (
    Finding,
    Geometry,
    Lying,
    Operator,
    Packing,
    finding,
    missing_instruction,
)
from byoc.operators.reduction import ColumnReduction, Reduction
from byoc.operators.rows import Columns, ColumnSoftmax, Rows, Softmax
from byoc.operators.window import Window
from byoc.options import Target
from isa.arch import IDEAL, WORD_KEYS, Arch
from isa.ops.convolution import MAPPING
from isa.ops.packed import COLUMNS, NARROW, WHOLE_KERNEL, Product, best_mapping, gapless, words_of
from isa.packing import Shape, atoms_of

RULE = "on a machine of words operands are tensors of channels, matrices, or slices of whole images of them"


def lying(shape: tuple[int, ...], atom: int) -> Lying:
    """How a whole tensor lies where nobody says: (N, C, …) as N images of C channels, a matrix (M, K) as K."""
    if len(shape) <= 1:
        return Lying(prod(shape), 1, atom)
    if len(shape) == 2:
        return canonical(Lying(shape[1], shape[0], atom, by_row=True))
    return canonical(Lying(shape[1], prod(shape[2:]), atom, images=shape[0]))


def edge_layouts(shape: tuple[int, ...], atom: int) -> tuple[Lying, ...]:
    """How a whole tensor may lie at the edge of a region: as :func:`lying` says, by rows, or element after element.

    The shape of the tensor there, surfaces by positions by atom, says which, so that of two of one shape the first may.
    """
    found: dict[tuple[int, ...], Lying] = {}
    rows = Lying(shape[-1] if shape else 1, prod(shape[:-1]), atom, by_row=True)
    for lies in (lying(shape, atom), canonical(rows), Lying(prod(shape), 1, atom)):
        found.setdefault(lies.stored, lies)
    return tuple(found.values())


def edge_lying(shape: tuple[int, ...], stored: tuple[int, ...]) -> Lying:
    """How a tensor of the model lies that enters or leaves as one of shape ``stored``."""
    return next(lies for lies in edge_layouts(shape, stored[-1]) if lies.stored == stored)


def canonical(lies: Lying) -> Lying:
    """The same bytes in one way of saying it: images of whole atoms are channels, what has one order has no other."""
    if lies.by_row and 1 in (lies.channels, lies.positions):
        lies = lies._replace(by_row=False)
    if not lies.by_row and lies.images > 1 and lies.channels % lies.atom == 0:
        lies = lies._replace(channels=lies.images * lies.channels, images=1)
    return lies


def narrow(graph: Graph, name: str) -> bool:
    """Return whether a value has narrow atoms: an image of few channels from the host that only convolutions read.

    These convolutions have one group and take the taps of their kernels side by side (mapping 3). A change of scale
    between the host and the convolutions keeps the narrow atoms, so that the bus moves a fourth of the bytes.
    """
    producers = {output: node for node in graph.nodes if node.integer for output in node.outputs}
    origin = name
    while origin in producers and producers[origin].op_type == _REQUANTIZE:
        origin = producers[origin].inputs[0]
    return origin not in producers and _is_convolved_image(graph, origin)


_REQUANTIZE = "Requantize"


def _is_convolved_image(graph: Graph, name: str) -> bool:
    """Return whether a value is one image of few channels whose consumers are convolutions, or changes of its scale."""
    shape = graph.values[name].shape
    if len(shape) < 3 or shape[0] != 1 or shape[1] > NARROW:
        return False
    for node in graph.nodes:
        if not node.integer or name not in node.inputs:
            continue
        rescaled = node.outputs[0] if node.op_type == _REQUANTIZE else ""
        convolution = node.op_type == "Conv" and node.attributes.get("group") == 1
        if not convolution and not (rescaled and _is_inner(graph, rescaled) and _is_convolved_image(graph, rescaled)):
            return False
    return True


def _is_inner(graph: Graph, name: str) -> bool:
    """Return whether only integer operators read a value."""
    return name not in graph.outputs and all(node.integer for node in graph.nodes if name in node.inputs)


def moves(operation: Operator) -> bool:
    """Whether an operation only moves elements, or writes one byte to many places: it takes any layout."""
    return isinstance(operation, (Alias, StridedCopy, Fill))


def across(operation: Operator) -> bool:
    """Whether an operation works on rows whose elements are channels."""
    return isinstance(operation, Columns)


def dense_result(operation: Operator) -> bool:
    """Whether a result lies without zeros behind its last channel."""
    return isinstance(operation, ColumnReduction) and operation.output.elements % _atom(operation) > 0


def _atom(operation: Operator) -> int:
    return operation.output.layout.atom


def flat(operation: Operator) -> bool:
    """Whether an operation takes elements one by one, so that its operands lie alike, however that is."""
    return operation.traits.flat and not operation.loops.nest.grouped


def packed_operations(operations: tuple[Operator, ...], graph: Graph, target: Target) -> tuple[Operator, ...] | Finding:
    """Return the operations of a node with the layouts that they need in banked memory, or what they miss.

    What takes any layout has none yet (:func:`byoc.layout.arrangement.arranged`).
    """
    if target.memory == IDEAL:
        return operations
    found = []
    for operation in operations:
        packed = _packed(operation, graph, target)
        if isinstance(packed, Finding):
            return packed
        found.append(packed)
    return tuple(found)


def _packed(written: Operator, graph: Graph, target: Target) -> Operator | Finding:
    operation = _as_channels(written)
    if operation.mnemonic is not None and operation.mnemonic not in target.instructions:
        return missing_instruction(operation.mnemonic, target.isa)
    for name, constant in operation.constant_operands.items():
        if any(operand.value == name and operand.elements != constant.size for operand in operation.inputs):
            return finding("'{name}' is a part of a constant", name=name)
    if moves(operation):
        return operation
    if flat(operation):
        alike = all(operand.elements == operation.output.elements for operand in operation.inputs)
        return operation if alike else finding("'{name}' repeats one number", name=operation.name)
    wanted = _wanted(operation, written, target.memory.atom)
    if isinstance(wanted, Finding):
        return wanted
    *inputs, output = (
        replace(operand, lying=canonical(lies))
        for operand, lies in zip((*operation.inputs, operation.output), wanted, strict=True)
    )
    for number, operand in enumerate(inputs):
        value = graph.values.get(operand.value)
        if value is not None and value.constant is None and narrow(graph, value.name):
            inputs[number] = replace(operand, lying=operand.layout._replace(atom=NARROW))
    return replace(operation, inputs=tuple(inputs), output=output)


def _as_channels(operation: Operator) -> Operator:
    """The operation of which a row's elements, or what a product sums, are channels."""
    if type(operation) is MatMul:
        return _as_planes(operation)
    across = _ACROSS.get(type(operation))
    if across is None:
        return operation
    (source,), result = operation.inputs, operation.output
    shapes = (replace(operand, shape=operand.shape[::-1]) for operand in (source, result))
    fields = {item.name: getattr(operation, item.name) for item in dataclass_fields(operation)}
    return across(**{**fields, "inputs": (next(shapes),), "output": next(shapes)})


_ACROSS: Mapping[type[Operator], type[Operator]] = {
    Softmax: ColumnSoftmax, Reduction: ColumnReduction, Normalisation: ColumnNormalisation,
}  # fmt: skip
"""Operators on dense rows, and those on rows that stand across, as rows of channels do."""


def _as_planes(product: MatMul) -> Operator:
    """A product of matrices as a convolution of one tap: K channels of M positions, whose bands lie apart."""
    (source,), result = product.inputs, product.output
    return Convolution(
        name=product.name, kind=product.kind, onnx_nodes=product.onnx_nodes, tables=product.tables,
        inputs=(replace(source, shape=(source.shape[1], source.shape[0], 1)),),
        output=replace(result, shape=(result.shape[1], result.shape[0], 1)),
        weights=product.weights.T[:, :, np.newaxis, np.newaxis], bias=product.bias,
        requantise=product.requantise, input_zero_point=0, groups=1, shared=product.shared,
    )  # fmt: skip


def _wanted(operation: Operator, written: Operator, atom: int) -> tuple[Lying, ...] | Finding:
    """How an operation wants its operands, the result last."""
    cutting, nest = operation.loops, operation.loops.nest
    if isinstance(operation, DynamicMatMul):
        shapes = (*(operand.shape for operand in operation.inputs), operation.output.shape)
        return tuple(Lying(channels, positions, atom, by_row=True) for positions, channels in shapes)
    if cutting.second != "alike" or cutting.dims or cutting.single:
        return finding("operands of {mnemonic} are not worked out on words", mnemonic=operation.mnemonic)
    if isinstance(operation, Columns):
        rows = nest.rows
        source = Lying(nest.input_channels, rows, atom, by_row=written is not operation)
        return source, Lying(rows, 1, atom) if isinstance(operation, ColumnReduction) else source
    if isinstance(operation, Rows):
        return finding("{mnemonic} has parameters of its own for every row", mnemonic=operation.mnemonic)
    if cutting.repeats:
        each = [(1 if item.channels else nest.channels, 1 if item.rows else nest.rows) for item in cutting.repeats]
        return tuple(Lying(*shape, atom) for shape in (*each, (nest.channels, nest.rows)))
    by_row = type(written) is MatMul or nest.matrix
    source = Lying(nest.input_channels, nest.input_rows * nest.input_columns, atom, by_row)
    result = Lying(nest.channels, nest.rows * nest.columns, atom, by_row)
    lies = (*[source] * len(operation.inputs), result)
    for operand, one in zip((*operation.inputs, operation.output), lies, strict=True):
        if operand.elements != one.elements:
            return finding(
                "'{name}' is wanted as {channels} channels of {positions} positions, and is not that",
                name=operand.value, channels=one.channels, positions=one.positions,
            )  # fmt: skip
    return lies


# Geometry. -----------------------------------------------------------------------------------------------------------


def packed_geometry(plain: Geometry, operation: Operator, arch: Arch) -> Geometry:
    """Return the geometry of an operation on operands in atoms; the ``plain`` one where operands are dense."""
    lies = operation.output.lying
    if lies is None:
        return plain
    keys = {key: getattr(arch, key) for key in WORD_KEYS}
    machine = Arch(isa=arch.isa, pe=arch.pe, **keys)
    mapping = dict(plain.fields).get(MAPPING.name, 0)
    packing = Packing(
        plain=plain, atom=arch.memory.atom, piece=arch.memory.word, machine=machine, kernel=_kernel(operation),
        mapping=mapping,
    )  # fmt: skip
    atom, nest = lies.atom, plain.nest
    if plain.flat:
        rows = lies.images * lies.surfaces * lies.positions
        flat = replace(nest, rows=rows, columns=atom, input_rows=rows, input_columns=atom)
        return replace(plain, nest=flat, packing=packing)
    first = operation.inputs[0].lying
    found = replace(
        plain, nest=_in_atoms(nest, atom), input_bytes=(first.atom if first else atom) * plain.input_bytes,
        output_bytes=atom * plain.output_bytes, packing=packing,
    )  # fmt: skip
    if isinstance(operation, ColumnReduction):
        return replace(found, output_bytes=plain.output_bytes)  # results lie dense
    if plain.second == "alike":
        return found
    each = nest.input_channels * atom  # an atom of outputs, of all that is summed
    return replace(found, second="rows", weight_bytes=each, packing=replace(packing, second_bytes=each))


def _kernel(operation: Operator) -> tuple[int, int]:
    return operation.window if isinstance(operation, Window) else (1, 1)


def _in_atoms(nest: Nest, atom: int) -> Nest:
    channels, inputs = -(-nest.channels // atom), -(-nest.input_channels // atom)
    sizes = replace(nest, channels=channels, input_channels=inputs, matrix=False)
    if nest.groups == 1:
        return sizes
    if nest.groups == nest.channels == nest.input_channels:
        return replace(sizes, groups=channels)
    if nest.group_inputs % atom or nest.group_outputs % atom:
        return replace(sizes, groups=1, whole=True)  # groups share atoms
    return sizes


def mapping_of(operation: Operator, fields: Mapping[str, int], arch: Arch) -> Mapping[str, int]:
    """Return ``fields`` of an operation with the mapping of operands in atoms that takes the fewest cycles."""
    if MAPPING.name not in fields or operation.output.lying is None:
        return fields
    nest, words = operation.loops.nest, words_of(arch)
    if operation.inputs[0].layout.atom == NARROW:
        return {**fields, MAPPING.name: WHOLE_KERNEL}
    if operation.mnemonic == "OP_DEPTH_CONV":
        return {**fields, MAPPING.name: 0}
    shape = Shape(nest.groups, nest.group_outputs, nest.group_inputs, *_kernel(operation))
    last = nest.input_channels % words.atom if nest.groups == 1 else 0
    pictures = words.atom <= NARROW or 0 < last <= NARROW  # what a part of the channels would be taken for
    most = COLUMNS if pictures else WHOLE_KERNEL
    strides = operation.strides if isinstance(operation, Window) else (1, 1)
    follow = gapless(nest.columns, nest.input_columns, *strides)
    product = Product(shape, nest.rows, nest.columns, strides[1], gapless=follow)
    return {**fields, MAPPING.name: best_mapping(product, most, arch)}


def in_atoms(array: NDArray[np.generic], lies: Lying) -> NDArray[np.generic]:
    """A tensor of the model as it lies in memory: (images · surfaces, positions, atom)."""
    images = array.reshape(lies.images, lies.positions, lies.channels) if lies.by_row else array
    ordered = images.swapaxes(1, 2) if lies.by_row else array.reshape(lies.images, lies.channels, lies.positions)
    return np.ascontiguousarray(np.concatenate([atoms_of(image, lies.atom) for image in ordered]))


def from_atoms(array: NDArray[np.generic], lies: Lying) -> NDArray[np.generic]:
    """The inverse of :func:`in_atoms`: the elements in their order."""
    images = array.reshape(lies.images, lies.surfaces, lies.positions, lies.atom).swapaxes(2, 3)
    channels = images.reshape(lies.images, -1, lies.positions)[:, : lies.channels]
    return np.ascontiguousarray(channels.swapaxes(1, 2) if lies.by_row else channels).reshape(-1)
