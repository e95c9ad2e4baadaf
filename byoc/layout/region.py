"""Layouts of the tensors inside a region, and of its constants."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Value
from byoc.layout.boundary import to_atoms
from byoc.operators.operator import Operator
from byoc.operators.packing import pack_operation
from byoc.operators.records import Operand
from byoc.operators.rules import Finding
from byoc.options import target_of
from isa.arch import IDEAL, Arch, Memory
from isa.layout import Layout, dense


def lay_out(
    operations: tuple[Operator, ...],
    values: Mapping[str, Value],
    edges: tuple[str, ...],
    memory: Memory,
    fits: Callable[[Operator], bool],
) -> tuple[tuple[Operator, ...], Mapping[str, Layout]]:
    """Return a region's operations after layout assignment, and the layout of each tensor.

    Consecutive movements are merged. In ideal memory every tensor is dense. ``fits``: whether an
    operation can be tiled into the scratchpad.
    """
    if memory == IDEAL:
        return operations, {name: dense(values[name].shape) for name in edges}
    from byoc.layout.assign import assign_layouts  # imported lazily: ideal memory needs no layouts
    from byoc.layout.merging import merge_moves

    shapes = {name: value.shape for name, value in values.items()}
    listed, layouts = assign_layouts(operations, shapes, edges, memory.atom, fits)
    moved = merge_moves(listed, edges, layouts, memory.word, fits, shapes)
    return tuple(part for operation in moved for part in _split_to_fit(operation, fits)), layouts


def _split_to_fit(operation: Operator, fits: Callable[[Operator], bool]) -> tuple[Operator, ...]:
    """Split a movement into parts that each have a tiling.

    Other operations stay whole.
    """
    if not operation.traits.moves or fits(operation):
        return (operation,)
    return tuple(part for half in operation.finer() for part in _split_to_fit(half, fits)) or (
        operation,
    )


def finer_parts(operation: Operator, arch: Arch) -> tuple[Operator, ...]:
    """Divide an operation that does not fit into smaller operations that the machine can run.

    In banked memory, columns are cut if no other division is possible. The result is empty if
    there is none.
    """
    if arch.memory == IDEAL:
        return operation.finer()
    return _pack_parts(operation.finer(), arch) or _pack_parts(operation.cut_columns(), arch)


def _pack_parts(parts: tuple[Operator, ...], arch: Arch) -> tuple[Operator, ...]:
    """Return operations with the layouts they need, or none if the machine cannot run one."""
    packed = [
        part if _has_part_layouts(part) else pack_operation(part, target_of(arch)) for part in parts
    ]
    found = tuple(part for part in packed if not isinstance(part, Finding))
    return found if len(found) == len(parts) else ()


def _has_part_layouts(part: Operator) -> bool:
    """Return True if each operand's layout has exactly the elements that the part accesses."""
    operands = (*part.inputs, part.output)
    return all(
        operand.assigned is not None and operand.assigned.elements == operand.elements
        for operand in operands
    )


def has_stated_layouts(memory: Memory) -> bool:
    """Return whether programs state the tensor bytes that commands read and write.

    Programs for banked memory do.
    """
    return memory != IDEAL


def operand_text(operand: Operand) -> str:
    """Describe the layout of an operand as text, or the operand's size if it has none."""
    layout = operand.assigned
    return f"{operand.nbytes:,} bytes, wherever they lie" if layout is None else layout_text(layout)


def layout_text(layout: Layout) -> str:
    """Return a layout as text: channels, positions and atoms."""
    images = "" if layout.images == 1 else f"{layout.images} images of "
    rows = ", row by row" if layout.by_row else ""
    channels = f"{layout.channels} channel{'s' if layout.channels != 1 else ''}"
    positions = f"{layout.positions} position{'s' if layout.positions != 1 else ''}"
    atom = f"{layout.atom} byte{'s' if layout.atom != 1 else ''}"
    return f"{images}{channels} of {positions} in atoms of {atom}{rows}"


def pack_constants(operation: Operator) -> dict[str, NDArray[np.int8]]:
    """Return the constant operands of an operation in their memory layouts."""
    found = dict(operation.constant_operands)
    for operand in operation.inputs:
        if operand.value in found and operand.assigned is not None:
            found[operand.value] = to_atoms(found[operand.value], operand.assigned).astype(
                np.int8, copy=False
            )
    return found
