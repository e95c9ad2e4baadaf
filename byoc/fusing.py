"""Fusion of last steps: a function of one int8 tensor becomes a table in which the operation before looks its results
up, where nobody else needs what that made without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from byoc.operators.layer import make_layer
from byoc.operators.operator import Operand, Operator
from byoc.operators.table import LOOKING_UP, Table, channel_tables
from isa.arch import Arch
from isa.instruction import Command, Machine, Unit
from isa.ops.lookup import LOOK_UP, TABLE_BYTES
from isa.plugins import variant

Tables = NDArray[np.int8]


def fuse(
    operations: Iterable[Operator], outputs: Collection[str], arch: Arch, fits: Callable[[Operator], bool]
) -> tuple[Operator, ...]:
    """The operations of a region, order kept, with functions of one tensor as last steps of what makes that.

    ``outputs`` are the values that leave the region; ``fits`` says whether a fused operation can be tiled. An
    operation goes on under its own name, for the ONNX nodes of both.
    """
    listed = tuple(operations)
    if not variant(arch.isa).mnemonics.issuperset(Table.instructions):
        return listed
    kept: list[Operator | None] = list(listed)
    makers, readers = _uses(listed)
    for index, operation in enumerate(kept):
        tables = None if operation is None else _function(operation, arch)
        if operation is None or tables is None:
            continue
        source = operation.inputs[0]
        before = [(number, kept[number]) for number in makers.get(source.value, ())]
        made = [(number, maker) for number, maker in before if maker is not None]
        alone = source.value not in outputs and readers[source.value] == [index]
        if not made or not alone or not _covered(source, [maker for _, maker in made]):
            continue
        fused = [_followed(maker, operation, tables, arch) for _, maker in made]
        chosen = [maker for maker in fused if maker is not None and fits(maker)]
        if len(chosen) < len(made):
            continue
        for (number, _), maker in zip(made, chosen, strict=True):
            kept[number] = maker
        kept[index] = None
        makers[operation.output.value] = [
            *(number for number in makers[operation.output.value] if number != index),
            *(number for number, _ in made),
        ]
    return tuple(operation for operation in kept if operation is not None)


def _uses(operations: Sequence[Operator]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The operations that make and that read each value, by their positions."""
    makers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    for index, operation in enumerate(operations):
        makers.setdefault(operation.output.value, []).append(index)
        for name in dict.fromkeys(operand.value for operand in operation.inputs):
            readers.setdefault(name, []).append(index)
    return makers, readers


def _covered(source: Operand, makers: Sequence[Operator]) -> bool:
    """Whether ``source`` is all that ``makers`` make."""
    ends = [maker.output.offset + maker.output.elements for maker in makers]
    return source.offset == 0 and max(ends) == source.elements == sum(maker.output.elements for maker in makers)


def _followed(maker: Operator, operation: Operator, tables: Tables, arch: Arch) -> Operator | None:
    """``maker`` that does what ``operation``, of these ``tables``, does as well; None where its instruction cannot."""
    own = _function(maker, arch)
    place, names = (
        operation.output.offset + maker.output.offset,
        dict.fromkeys((*maker.onnx_nodes, *operation.onnx_nodes)),
    )
    output = Operand(operation.output.value, maker.output.shape, place)
    if own is not None and len(own) == len(tables) == 1:
        return Table(
            name=maker.name, kind="ACT", inputs=maker.inputs, output=output, onnx_nodes=tuple(names),
            table=_composed(own, tables)[0],
        )  # fmt: skip
    if len(tables) > 1 and not _has_channels(maker, len(tables), operation.output.elements):
        return None
    if maker.slices() or maker.mnemonic is None or maker.output.element_bytes != 1:
        return None
    instruction = variant(arch.isa).by_mnemonic[maker.mnemonic][0]
    if LOOK_UP not in instruction.fields:
        return None
    composed = tables if maker.tables is None else _composed(maker.tables, tables)
    return replace(maker, output=output, tables=composed, onnx_nodes=tuple(names))


def _has_channels(maker: Operator, channels: int, elements: int) -> bool:
    """Whether ``maker`` computes all ``elements``, in so many channels that lie one behind the other.

    Those of a matrix of several rows are its columns, which a function of channels does not mean.
    """
    nest = maker.nest()
    dense = not maker.single and not maker.flat and (not nest.matrix or nest.rows == 1)
    return dense and nest.channels == channels and maker.output.elements == elements


def _composed(first: Tables, second: Tables) -> Tables:
    """The tables of one look-up after another."""
    channels = max(len(first), len(second))
    entries = np.broadcast_to(first, (channels, TABLE_BYTES)).view(np.uint8)
    return np.take_along_axis(np.broadcast_to(second, (channels, TABLE_BYTES)), entries.astype(np.int64), axis=1)


def _function(operation: Operator, arch: Arch) -> Tables | None:
    """The results of every int8 value, in the order of their bytes, where that is all that an operation computes.

    (1, 256), or (channels, 256) where it is another function in every channel.
    """
    if operation.mnemonic in LOOKING_UP and (several := channel_tables(operation)) is not None:
        return several
    whole = operation.flat and len(operation.inputs) == 1 and operation.mnemonic is not None
    if not whole or operation.inputs[0].element_bytes != 1 or operation.output.element_bytes != 1:
        return None
    layer = make_layer(operation, arch)
    instruction, constants = layer.geometry.instruction, operation.constants()
    if instruction is None or operation.tables is not None:
        return None
    weights = 2 * TABLE_BYTES  # behind the operand and the result
    sram = np.zeros(weights + TABLE_BYTES, np.uint8)
    sram[:TABLE_BYTES] = np.arange(TABLE_BYTES)
    if constants is not None and constants.weights is not None:
        sram[weights:] = constants.weights.reshape(-1).view(np.uint8)
    reset = variant(arch.isa).register_file.reset
    registers = {name: reset[name] for name in instruction.registers} | dict(layer.registers)
    registers |= {"EX_OUTPUT_ADDRESS": TABLE_BYTES, "EX_LENGTH": TABLE_BYTES}
    if "EX_OPERAND_ADDRESS" in registers:
        registers["EX_OPERAND_ADDRESS"] = weights
    command = Command(0, instruction, Unit.EX, False, False, False, False, layer.fields, registers)
    instruction.semantics(command, Machine(arch, sram, np.zeros(0, np.uint8)))
    return sram[TABLE_BYTES : 2 * TABLE_BYTES].view(np.int8)[np.newaxis].copy()
