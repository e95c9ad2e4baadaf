"""Steps: commands before the scratchpad is planned. Operands in the scratchpad are named by buffer and offset."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from byoc.operators.layer import Layer
from byoc.operators.nest import Tile, Transfer
from byoc.operators.operator import Whole
from byoc.operators.pieces import Dim
from isa.instruction import Instruction, Unit
from isa.ops.convolution import ACCUMULATE, EX_PARTIAL_ADDRESS, REQUANTISE
from isa.ops.dma import OP_DMA_READ, OP_DMA_WRITE, Side, side_registers
from isa.ops.lookup import EX_TABLE_ADDRESS, LOOK_UP
from isa.ops.movement import DIMENSIONS, OP_PERMUTE


class Pointer(NamedTuple):
    """Byte ``offset`` of scratchpad buffer number ``buffer``."""

    buffer: int
    offset: int = 0

    def moved(self, offset: int) -> Pointer:
        """The pointer ``offset`` bytes further."""
        return Pointer(self.buffer, self.offset + offset)


class Source(NamedTuple):
    """Where a step comes from: fields of :class:`isa.program.Provenance`."""

    layer: str
    kind: str
    operation: str
    tile: int
    onnx_nodes: tuple[str, ...]


class Step(NamedTuple):
    """One command: ``registers`` are known values, ``pointers`` registers that wait for the scratchpad plan."""

    instruction: Instruction
    unit: Unit
    registers: Mapping[str, int]
    pointers: Mapping[str, Pointer]
    source: Source
    fields: Mapping[str, int] = MappingProxyType({})


def source_of(layer: Layer, tile: int) -> Source:
    """The source of the steps of tile number ``tile`` of a layer."""
    operation = layer.operation
    return Source(operation.name, operation.kind, layer.mnemonic, tile, operation.onnx_nodes)


def load(address: int, pointer: Pointer, transfer: Transfer, source: Source) -> Step:
    """LD copies ``transfer`` of the tensor at byte ``address`` of system memory to ``pointer``."""
    return Step(OP_DMA_READ, Unit.LD, _dma(_LOADING, address, transfer), _placed(_LOADING, pointer, transfer), source)


def store(address: int, pointer: Pointer, transfer: Transfer, source: Source) -> Step:
    """ST copies the bytes at ``pointer`` to ``transfer`` of the tensor at byte ``address`` of system memory."""
    return Step(OP_DMA_WRITE, Unit.ST, _dma(_STORING, address, transfer), _placed(_STORING, pointer, transfer), source)


def copy_planes(source: Pointer, target: Pointer, nbytes: int, dims: Sequence[Dim], origin: Source) -> Step:
    """EX copies runs of ``nbytes`` bytes, along at most three dimensions of so many bytes from run to run."""
    registers = {}
    loops = (Dim(nbytes, 1, 1), *reversed(dims), *[Dim(1, 0, 0)] * len(DIMENSIONS))
    for number, loop in zip(DIMENSIONS, loops, strict=False):
        registers[f"EX_COUNT_{number}"] = loop.size
        registers[f"EX_INPUT_STRIDE_{number}"] = loop.source
        registers[f"EX_OUTPUT_STRIDE_{number}"] = loop.target
    pointers = {"EX_INPUT_ADDRESS": source, "EX_OUTPUT_ADDRESS": target}
    return Step(OP_PERMUTE, Unit.EX, registers, pointers, origin, {"fill": 0})


_LOADING, _STORING = (tuple(side_registers(unit, space) for space in ("dram", "sram")) for unit in (Unit.LD, Unit.ST))
"""Registers of both sides of a transfer: of system memory, of the scratchpad."""


def _placed(sides: Sequence[Side], pointer: Pointer, transfer: Transfer) -> dict[str, Pointer]:
    return {sides[1][0]: pointer.moved(transfer.sram_offset)}


def _dma(sides: Sequence[Side], address: int, transfer: Transfer) -> dict[str, int]:
    (start, nbytes, far), (_, _, near) = sides
    registers = {start: address + transfer.offset, nbytes: transfer.nbytes} | {count: 1 for count, _ in reversed(far)}
    loops = zip(reversed(far), reversed(near), strict=True)
    for axis, ((count, stride), (_, beside)) in zip(transfer.dims, loops, strict=False):
        # Strides of a single row mean nothing and keep their values.
        registers[count], registers[stride], registers[beside] = axis.size, axis.tensor, axis.buffer
    return registers


def moved_by(step: Step) -> int:
    """Bytes that a step of LD or ST moves."""
    _, nbytes, loops = (_LOADING if step.unit is Unit.LD else _STORING)[0]
    return step.registers[nbytes] * math.prod(step.registers[count] for count, _ in loops)


_UNFINISHED = {REQUANTISE.name: 0, LOOK_UP.name: 0}
"""Fields of a command whose sums a later one completes."""


class Operands(NamedTuple):
    """Where a tile's operands lie. The planes are bytes from one channel to the next, 0 where channels lie dense.

    ``input_whole``, ``output_whole``: the (first) operand, the result, lies in the scratchpad as a whole tensor.
    ``sums``: the int32 sums to which tiles of some input channels only add up.
    """

    inputs: tuple[Pointer, ...]
    constants: Pointer | None
    output: Pointer
    input_plane: int = 0
    output_plane: int = 0
    tables: Pointer | None = None
    input_whole: bool = False
    output_whole: bool = False
    sums: Pointer | None = None


def compute_steps(layer: Layer, tile: Tile, operands: Operands, source: Source) -> tuple[Step, ...]:
    """The commands that compute a tile; none for a copy."""
    geometry = layer.geometry
    if geometry.instruction is None:
        return ()
    registers = {**layer.registers, **geometry.operator.tile_registers(geometry, tile)}
    pointers = {"EX_INPUT_ADDRESS": operands.inputs[0]} if operands.inputs else {}
    pointers["EX_OUTPUT_ADDRESS"] = operands.output
    if len(operands.inputs) > 1:
        pointers["EX_OPERAND_ADDRESS"] = operands.inputs[1]
    if operands.constants is not None and geometry.record_bytes:
        pointers["EX_CHANNEL_ADDRESS"] = operands.constants
    if operands.constants is not None and geometry.weight_bytes:
        weights = operands.constants.moved(geometry.weights_offset(tile.output.channels.size))
        pointers["EX_OPERAND_ADDRESS"] = weights
    fields = layer.fields
    if operands.sums is not None:
        fields = {**fields, ACCUMULATE.name: int(not tile.first), **({} if tile.last else _UNFINISHED)}
        if not tile.first:
            pointers[EX_PARTIAL_ADDRESS.name] = operands.sums
    if operands.tables is not None:
        pointers[EX_TABLE_ADDRESS.name] = operands.tables
    if geometry.operator.planes:
        registers["EX_INPUT_PLANE"] = operands.input_plane
        registers["EX_OUTPUT_PLANE"] = operands.output_plane
    elif geometry.operator.whole_planes and not geometry.nest.matrix and tile.output.channels.size > 1:
        assert operands.input_plane == operands.output_plane == 0, f"'{layer.name}' finds no channels that lie apart"
    steps = []
    whole = Whole(operands.input_whole, operands.output_whole)
    for part in layer.operation.commands(geometry, tile, registers, whole):
        moved = {name: pointers[name].moved(offset) for name, offset in part.moved.items()}
        there = {**moved, **pointers, **moved}  # what moves is written first: programs keep their bytes
        steps.append(Step(geometry.instruction, Unit.EX, part.registers, there, source, fields))
    return tuple(steps)
