"""Layers: an operation with everything that tiling, scheduling and emission ask about it, worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from byoc.layers.nest import Nest, band_rows, nest_of
from byoc.layers.transfer import Transfer, matrix_transfer, plane_transfer
from byoc.layers.via import prove_via
from byoc.operations import (
    AddOperation,
    ConvOperation,
    CopyOperation,
    ElementwiseOperation,
    MatMulOperation,
    MinMaxOperation,
    Operation,
    PoolOperation,
    RequantiseOperation,
    UnaryOperation,
)
from byoc.tile import Tile
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Instruction
from isa.plugins import variant

Family = Literal[
    "convolution",
    "depthwise",
    "emulated",
    "matmul",
    "requantise",
    "pool",
    "add",
    "unary",
    "minmax",
    "copy",
    "elementwise",
]

_UNARY = {"relu": "OP_ACT_RELU", "leaky_relu": "OP_ACT_LRELU", "abs": "OP_E_ABS"}
_MNEMONICS = {
    "convolution": "OP_CONV",
    "depthwise": "OP_DEPTH_CONV",
    "emulated": "OP_CONV",
    "matmul": "OP_MAT_MUL",
    "requantise": "OP_REQUANT",
    "pool": "OP_POOL",
    "add": "OP_E_ADD",
}


@dataclass(frozen=True, eq=False)
class Layer:
    """One operation on one machine.

    ``instruction`` None: a copy, which has no computation. ``weight_bytes`` and ``record_bytes`` are those of one
    output channel; ``input_bytes`` and ``output_bytes`` those of one element.
    """

    operation: Operation
    family: Family
    nest: Nest
    instruction: Instruction | None
    weight_bytes: int
    record_bytes: int
    input_bytes: int
    output_bytes: int

    @property
    def flat(self) -> bool:
        """Whether the layer works on elements without channels, so that tiles are lengths."""
        return self.family in ("add", "unary", "minmax", "copy", "elementwise")

    @property
    def in_place(self) -> bool:
        """Whether a tile's result takes the place of its (only) operand in the scratchpad."""
        return self.family in ("requantise", "copy")

    @property
    def has_constants(self) -> bool:
        """Whether there are weights or channel records to load."""
        return bool(self.weight_bytes or self.record_bytes)

    def constant_bytes(self, channels: int) -> int:
        """Bytes of the packed constants of ``channels`` output channels: records, padding to 8 bytes, weights."""
        return weights_offset(self, channels) + channels * self.weight_bytes

    def input_tile_bytes(self, channels: int, rows: int) -> int:
        """Bytes of the input box of a tile of so many output channels and rows, where it is largest."""
        nest = self.nest
        depth = -(-channels // nest.group_outputs) * nest.group_inputs
        return depth * band_rows(nest, rows) * nest.input_columns * self.input_bytes

    def output_tile_bytes(self, channels: int, rows: int) -> int:
        """Bytes of the output box of a tile."""
        return channels * rows * self.nest.columns * self.output_bytes

    def input_transfer(self, tile: Tile) -> Transfer:
        """The tile's input box as a transfer from the dense operand."""
        nest = self.nest
        if nest.matrix:
            return matrix_transfer(tile.input, nest.input_channels, self.input_bytes)
        return plane_transfer(tile.input, nest.input_rows, nest.input_columns, self.input_bytes)

    def output_transfer(self, tile: Tile, plane: int = 0) -> Transfer:
        """The tile's output box as a transfer to the dense result; ``plane`` as in :func:`plane_transfer`."""
        nest = self.nest
        if nest.matrix:
            return matrix_transfer(tile.output, nest.channels, self.output_bytes)
        return plane_transfer(tile.output, nest.rows, nest.columns, self.output_bytes, plane)


def weights_offset(layer: Layer, channels: int) -> int:
    """Where the weights begin behind the channel records of a packed constant tile."""
    return -(-channels * layer.record_bytes // 8) * 8


def make_layer(operation: Operation, arch: Arch, emulate_depthwise: bool) -> Layer:
    """The layer of an operation; raises InputError for an instruction that the machine's ISA lacks."""
    family = _family(operation, emulate_depthwise)
    mnemonic = _mnemonic(operation, family)
    isa = variant(arch.isa)
    if mnemonic is not None and mnemonic not in isa.mnemonics:
        raise InputError(
            f"layer '{operation.name}' needs {mnemonic}, which ISA {arch.isa} does not have; choose another ISA"
        )
    nest = nest_of(operation)
    instruction = isa.by_mnemonic[mnemonic][0] if mnemonic is not None else None
    if operation.via is not None and instruction is not None:
        prove_via(operation, operation.via, instruction, nest)
    weights, records = 0, 0
    if isinstance(operation, ConvOperation | MatMulOperation):
        channels = operation.bias.size
        weights, records = operation.weights.size // channels, arch.channel_record_bytes
    elif isinstance(operation, RequantiseOperation):
        records = arch.channel_record_bytes
    return Layer(
        operation,
        family,
        nest,
        instruction,
        weights,
        records,
        operation.inputs[0].element_bytes,
        operation.output.element_bytes,
    )


def _family(operation: Operation, emulate_depthwise: bool) -> Family:
    if isinstance(operation, ConvOperation):
        if operation.depthwise and operation.via is None:
            return "emulated" if emulate_depthwise else "depthwise"
        return "convolution"
    families: dict[type[Operation], Family] = {
        MatMulOperation: "matmul",
        RequantiseOperation: "requantise",
        PoolOperation: "pool",
        AddOperation: "add",
        UnaryOperation: "unary",
        MinMaxOperation: "minmax",
        CopyOperation: "copy",
        ElementwiseOperation: "elementwise",
    }
    if type(operation) not in families:
        raise TypeError(f"{type(operation).__name__} '{operation.name}' cannot be compiled to commands")
    return families[type(operation)]


def _mnemonic(operation: Operation, family: Family) -> str | None:
    if operation.via is not None:
        return operation.via.mnemonic
    if isinstance(operation, UnaryOperation):
        return _UNARY[operation.function]
    if isinstance(operation, MinMaxOperation):
        return "OP_C_MIN" if operation.function == "min" else "OP_C_MAX"
    return _MNEMONICS.get(family)
