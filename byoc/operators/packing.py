"""Operand layouts declared by operator families, and the geometry, in banked memory.

In banked memory (docs/machine.md, section 12) a channel of a loop nest is an atom: tilings,
transfers and planners count atoms of A bytes instead of channels of one. Only registers of
instructions count channels.
"""

from dataclasses import replace
from functools import lru_cache
from math import gcd, lcm, prod

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph
from byoc.operators.geometry import Geometry, Packing
from byoc.operators.nest import LoopNest
from byoc.operators.operator import Operator
from byoc.operators.pieces import Piece, find_pieces
from byoc.operators.rules import Finding, finding, make_missing_instruction
from byoc.options import Target
from isa.arch import IDEAL, WORD_KEYS, Arch
from isa.layout import Layout
from isa.ops.convolution import MAPPING
from isa.ops.products import NARROW, pixel_bytes

BLOCKS = range(2, 9)
"""Block sizes of depth-to-space in which the last axis of a byte map is searched."""
RULE = (
    "with banked memory operands are tensors of channels, matrices, or slices of whole images of "
    "them"
)


def find_packed_pieces(
    index: NDArray[np.int64], layout: Layout, shape: tuple[int, ...]
) -> tuple[Piece, ...]:
    """Return few strided pieces of a byte map into a tensor with ``layout`` and ``shape``.

    A dense tensor is searched in its own shape, another tensor in its stored shape. If a dense
    tensor has several pieces, each of :data:`BLOCKS` also divides its last axis: depth-to-space
    writes its columns in blocks, and a block may read two surfaces. The fewest pieces are
    returned.
    """
    dense = (
        layout.positions == 1
        and layout.images == 1
        and prod(shape) == layout.surfaces * layout.atom
    )
    if not dense:
        return find_pieces(index.reshape(layout.stored))
    found = find_pieces(index.reshape(shape))
    for block in BLOCKS:
        if len(found) > 1 and shape[-1] % block == 0 and shape[-1] > block:
            found = min(found, find_pieces(index.reshape(*shape[:-1], -1, block)), key=len)
    return found


def narrow(graph: Graph, name: str) -> bool:
    """Return whether a tensor is an image of few channels, stored in narrow atoms.

    Such a tensor is an image from the host with few channels that only convolutions read. These
    convolutions have one group and put several taps of the kernel on the lanes (mapping 3). A
    rescaling between the host and the convolutions keeps the narrow atoms, so that the bus moves
    fewer bytes.
    """
    producer = graph.producers.get(name)
    while producer is not None and producer.integer and producer.op_type in _RESCALINGS:
        name = producer.inputs[0]
        producer = graph.producers.get(name)
    return (producer is None or not producer.integer) and _is_convolved_image(graph, name)


_RESCALINGS = ("Requantize", "Identity")
"""Operators that keep narrow atoms; Identity changes only the element type."""


def _is_convolved_image(graph: Graph, name: str) -> bool:
    """Return whether a tensor is one image of few channels that only convolutions read.

    A rescaling that only integer operators read may be between the tensor and the convolutions. The
    batch is 1, and there are at most :data:`NARROW` channels.
    """
    shape = graph.values[name].shape
    if len(shape) < 3 or shape[0] != 1 or shape[1] > NARROW:
        return False
    for node in graph.consumers.get(name, ()):
        if not node.integer:
            continue
        convolution = node.op_type == "Conv" and node.attributes.get("group") == 1
        rescaled = node.outputs[0]
        if not convolution and not (
            node.op_type in _RESCALINGS
            and rescaled not in graph.outputs
            and all(one.integer for one in graph.consumers.get(rescaled, ()))
            and _is_convolved_image(graph, rescaled)
        ):
            return False
    return True


def pack_operations(
    operations: tuple[Operator, ...], graph: Graph, target: Target
) -> tuple[Operator, ...] | Finding:
    """Return the operations of a node with the layouts they need in banked memory, or a finding.

    Operations that take any layout get theirs later (:func:`byoc.layout.assign.assign_layouts`).
    """
    if target.memory == IDEAL:
        return operations
    found = []
    for operation in operations:
        packed = pack_operation(operation, target)
        if isinstance(packed, Finding):
            return packed
        found.append(_use_narrow_atoms(packed, graph))
    return tuple(found)


def pack_operation(written: Operator, target: Target) -> Operator | Finding:
    """Return an operation with the layouts it needs in banked memory, or a finding."""
    operation = written.on_channels()
    if not operation.traits.moves:
        operation = _cut_constants(operation)
    if operation.mnemonic is not None and operation.mnemonic not in target.instructions:
        return make_missing_instruction(operation.mnemonic, target.isa)
    for name, constant in operation.constant_operands.items():
        if any(
            operand.value == name and operand.elements != constant.size
            for operand in operation.inputs
        ):
            return finding("'{name}' moves a part of a constant", name=name)
    if operation.traits.moves:
        return operation
    operands = (*operation.inputs, operation.output)
    if operation.elementwise:
        alike = all(operand.elements == operation.output.elements for operand in operands)
        return operation if alike else finding("'{name}' repeats one number", name=operation.name)
    layouts = written.layouts(target.memory.atom)
    if isinstance(layouts, Finding):
        return layouts
    for operand, layout in zip(operands, layouts, strict=True):
        if operand.elements != layout.elements:
            return finding(
                "'{name}' is wanted as {channels} channels of {positions} positions, and is not "
                "that",
                name=operand.value, channels=layout.channels, positions=layout.positions,
            )  # fmt: skip
    *inputs, output = (
        replace(operand, assigned=layout.canonical)
        for operand, layout in zip(operands, layouts, strict=True)
    )
    return replace(operation, inputs=tuple(inputs), output=output)


def _cut_constants(operation: Operator) -> Operator:
    """Return an operation whose constant operands have only the elements that it reads."""
    constants = dict[str, NDArray[np.int8]]()
    inputs = list(operation.inputs)
    for number, operand in enumerate(inputs):
        whole = operation.constant_operands.get(operand.value)
        if whole is not None and whole.size != operand.elements:
            end = operand.offset + operand.elements
            name = f"{operand.value}@{operand.offset}:{end}"
            constants[name] = whole.reshape(-1)[operand.offset : end]
            inputs[number] = replace(operand, value=name, offset=0)
        elif whole is not None:
            constants[operand.value] = whole
    if constants.keys() == operation.constant_operands.keys():
        return operation
    return replace(operation, inputs=tuple(inputs), constant_operands=constants)


def _use_narrow_atoms(operation: Operator, graph: Graph) -> Operator:
    """Return an operation that reads an image of few channels in narrow atoms.

    Other operations are returned unchanged.
    """
    for number, operand in enumerate(operation.inputs):
        value = graph.values.get(operand.value)
        if value is not None and value.constant is None and narrow(graph, value.name):
            layout = operand.change_layout(atom=pixel_bytes(1, operand.layout.channels))
            inputs = list(operation.inputs)
            inputs[number] = replace(operand, assigned=layout)
            operation = replace(operation, inputs=tuple(inputs))
    return operation


# Geometry.


def make_packed_geometry(plain: Geometry, operation: Operator, arch: Arch) -> Geometry:
    """Return the geometry of an operation on operands in atoms.

    For dense operands, return ``plain``.
    """
    layout = operation.output.assigned
    if layout is None:
        return plain
    first = operation.inputs[0].assigned
    atoms = first.atom if first else layout.atom
    return _pack_geometry(plain, layout, atoms, operation.loops.kernel, _keep_array(arch))


@lru_cache(maxsize=4096)
def _pack_geometry(
    plain: Geometry, layout: Layout, input_atom: int, kernel: tuple[int, int], machine: Arch
) -> Geometry:
    """Return a geometry on operands in atoms.

    Args:
        plain: the geometry on dense operands.
        layout: the layout of the result.
        input_atom: bytes of an atom of the first operand.
        kernel: rows and columns of the window.
        machine: the array and the memory of the machine.
    """
    mapping = dict(plain.fields).get(MAPPING.name, 0)
    packing = Packing(
        plain=plain, atom=machine.memory.atom, piece=machine.memory.word, machine=machine,
        kernel=kernel, mapping=mapping,
    )  # fmt: skip
    atom = layout.atom
    nest = plain.nest
    if plain.flat:
        rows = layout.images * layout.surfaces * layout.positions
        flat = replace(nest, rows=rows, columns=atom, input_rows=rows, input_columns=atom)
        return replace(plain, nest=flat, packing=packing)
    found = replace(
        plain, nest=_split_into_atoms(nest, atom), input_bytes=input_atom * plain.input_bytes,
        output_bytes=atom * plain.output_bytes, packing=packing,
    )  # fmt: skip
    if plain.operator.traits.dense_result:
        return replace(found, output_bytes=plain.output_bytes)  # results have no padding
    if plain.second == "alike":
        return found
    each = nest.input_channels * atom  # bytes per output atom, over all summed inputs
    return replace(
        found, second="rows", weight_bytes=each, packing=replace(packing, second_bytes=each)
    )


@lru_cache(maxsize=64)
def _keep_array(arch: Arch) -> Arch:
    """Return a machine with only the array and the memory sizes of ``arch``."""
    return Arch(isa=arch.isa, pe=arch.pe, **{key: getattr(arch, key) for key in WORD_KEYS})


def _split_into_atoms(nest: LoopNest, atom: int) -> LoopNest:
    channels = -(-nest.channels // atom)
    inputs = -(-nest.input_channels // atom)
    step = -(-nest.channel_step // atom)
    sizes = replace(nest, channels=channels, input_channels=inputs, channel_step=step, matrix=False)
    if nest.groups == 1:
        return sizes
    if nest.groups == nest.channels == nest.input_channels:
        return replace(sizes, groups=channels)
    shared = lcm(*(atom // gcd(count, atom) for count in (nest.group_inputs, nest.group_outputs)))
    # the smallest number of groups that fills whole atoms
    groups, rest = divmod(nest.groups, shared)
    groups = 1 if rest else groups
    return replace(sizes, groups=groups, channel_step=channels // groups if shared > 1 else 0)
