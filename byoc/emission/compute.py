"""Compute commands: register values of every operator family, those of the layer once and those of each tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from byoc.emission.scaling import add_registers, pool_registers, unary_registers
from byoc.emission.steps import Pointer, Source, Step, source_of
from byoc.layers.layer import Layer, weights_offset
from byoc.layers.nest import pool_kernel
from byoc.layers.via import settings_of
from byoc.operations import (
    AddOperation,
    ConvOperation,
    MatMulOperation,
    PoolOperation,
    Requantise,
    RequantiseOperation,
    UnaryOperation,
)
from byoc.tile import Tile
from isa.arch import Arch
from isa.instruction import Unit

_POOL_MODES = {"max": 0, "average": 1, "global_average": 2}


class Operands(NamedTuple):
    """Where a tile's operands lie. The planes are bytes from one channel to the next, 0 where channels lie dense."""

    inputs: tuple[Pointer, ...]
    constants: Pointer | None
    output: Pointer
    input_plane: int = 0
    output_plane: int = 0


class Settings(NamedTuple):
    """Registers and fields that are the same for all tiles of a layer."""

    registers: Mapping[str, int]
    fields: Mapping[str, int]


def layer_settings(layer: Layer, arch: Arch) -> Settings:
    """The settings of a layer's compute commands: those of its kind of operation, and those of its own instruction."""
    settings, via, instruction = _family_settings(layer, arch), layer.operation.via, layer.instruction
    if via is None or instruction is None:
        return settings
    fields = tuple(field.name for field in instruction.fields)
    return Settings(
        settings_of(settings.registers, via.registers, instruction.registers),
        settings_of(settings.fields, via.fields, fields),
    )


def _family_settings(layer: Layer, arch: Arch) -> Settings:
    operation = layer.operation
    registers: dict[str, int] = {}
    fields: dict[str, int] = {}
    if isinstance(operation, ConvOperation | MatMulOperation):
        clamp, fields = _requantise(operation.requantise)
        registers |= clamp
        if isinstance(operation, ConvOperation):
            registers |= _window(operation, operation.weights.shape[2], operation.weights.shape[3])
            registers["EX_INPUT_ZERO_POINT"] = operation.input_zero_point
    elif isinstance(operation, RequantiseOperation):
        requantise = operation.requantise
        registers["EX_OUTPUT_ZERO_POINT"] = requantise.zero_point
        registers |= {"EX_CLAMP_LOW": requantise.low, "EX_CLAMP_HIGH": requantise.high}
    elif isinstance(operation, PoolOperation):
        registers = _window(operation, *pool_kernel(operation)) | pool_registers(operation, arch)
        fields = {"mode": _POOL_MODES[operation.mode], "count_include_pad": int(operation.count_include_pad)}
    elif isinstance(operation, AddOperation):
        registers = add_registers(operation, arch)
    elif isinstance(operation, UnaryOperation):
        registers = unary_registers(operation, arch)
    return Settings(registers, fields)


def _requantise(requantise: Requantise | None) -> tuple[dict[str, int], dict[str, int]]:
    """Registers and fields of fused requantisation; a lower limit at the zero point is the ``relu`` field."""
    if requantise is None:
        return {"EX_OUTPUT_ZERO_POINT": 0, "EX_CLAMP_LOW": -128, "EX_CLAMP_HIGH": 127}, {"requantise": 0, "relu": 0}
    relu = requantise.low == requantise.zero_point
    registers = {
        "EX_OUTPUT_ZERO_POINT": requantise.zero_point,
        "EX_CLAMP_LOW": -128 if relu else requantise.low,
        "EX_CLAMP_HIGH": requantise.high,
    }
    return registers, {"requantise": 1, "relu": int(relu)}


def _window(operation: ConvOperation | PoolOperation, height: int, width: int) -> dict[str, int]:
    return {
        "EX_KERNEL_HEIGHT": height,
        "EX_KERNEL_WIDTH": width,
        "EX_STRIDE_HEIGHT": operation.strides[0],
        "EX_STRIDE_WIDTH": operation.strides[1],
        "EX_DILATION_HEIGHT": operation.dilations[0],
        "EX_DILATION_WIDTH": operation.dilations[1],
        "EX_PAD_LEFT": operation.pads[1],
    }


def tile_registers(layer: Layer, tile: Tile) -> dict[str, int]:
    """The registers that a tile's shape sets (addresses and planes apart)."""
    registers, via = _family_tile_registers(layer, tile), layer.operation.via
    if via is None or layer.instruction is None:
        return registers
    return settings_of(registers, via.tile_registers(tile), layer.instruction.registers)


def _family_tile_registers(layer: Layer, tile: Tile) -> dict[str, int]:
    output, source = tile.output, tile.input
    if layer.family == "matmul":
        return {
            "EX_ROWS": output.rows.size,
            "EX_INPUT_CHANNELS": source.channels.size,
            "EX_OUTPUT_CHANNELS": output.channels.size,
        }
    if layer.family == "requantise":
        rows, length = (output.rows.size, 1) if layer.nest.matrix else (1, output.rows.size * output.columns.size)
        return {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": output.channels.size, "EX_LENGTH": length}
    if layer.flat:
        return {"EX_LENGTH": output.elements}
    return {
        "EX_INPUT_CHANNELS": source.channels.size,
        "EX_INPUT_HEIGHT": source.rows.size,
        "EX_INPUT_WIDTH": source.columns.size,
        "EX_OUTPUT_CHANNELS": output.channels.size,
        "EX_OUTPUT_HEIGHT": output.rows.size,
        "EX_OUTPUT_WIDTH": output.columns.size,
        "EX_PAD_TOP": tile.pad_top,
    }


def compute_steps(layer: Layer, settings: Settings, tile: Tile, operands: Operands, number: int) -> tuple[Step, ...]:
    """The commands that compute a tile: one, or one an output channel for emulated depthwise; none for a copy."""
    if layer.instruction is None:
        return ()
    source = source_of(layer.operation, layer.instruction.mnemonic, number)
    registers = {**settings.registers, **tile_registers(layer, tile)}
    pointers = {"EX_INPUT_ADDRESS": operands.inputs[0], "EX_OUTPUT_ADDRESS": operands.output}
    if len(operands.inputs) > 1:
        pointers["EX_OPERAND_ADDRESS"] = operands.inputs[1]
    if operands.constants is not None:
        pointers["EX_CHANNEL_ADDRESS"] = operands.constants
        if layer.weight_bytes:
            weights = operands.constants.moved(weights_offset(layer, tile.output.channels.size))
            pointers["EX_OPERAND_ADDRESS"] = weights
    if "EX_INPUT_HEIGHT" in registers:
        registers["EX_INPUT_PLANE"] = operands.input_plane
        registers["EX_OUTPUT_PLANE"] = operands.output_plane
    if layer.family == "emulated":
        return _one_filter_at_a_time(layer, settings, tile, registers, pointers, source)
    return (Step(layer.instruction, Unit.EX, registers, pointers, source, settings.fields),)


def _one_filter_at_a_time(
    layer: Layer,
    settings: Settings,
    tile: Tile,
    registers: Mapping[str, int],
    pointers: Mapping[str, Pointer],
    source: Source,
) -> tuple[Step, ...]:
    """Depthwise on OP_CONV: every output channel is a convolution of one input channel."""
    assert layer.instruction is not None
    input_plane = registers["EX_INPUT_PLANE"] or tile.input.rows.size * tile.input.columns.size
    output_plane = registers["EX_OUTPUT_PLANE"] or (
        tile.output.rows.size * tile.output.columns.size * layer.output_bytes
    )
    single = {**registers, "EX_INPUT_CHANNELS": 1, "EX_OUTPUT_CHANNELS": 1, "EX_INPUT_PLANE": 0, "EX_OUTPUT_PLANE": 0}
    group = tile.output.channels.size // tile.input.channels.size
    steps = []
    for channel in range(tile.output.channels.size):
        moved = {
            "EX_INPUT_ADDRESS": pointers["EX_INPUT_ADDRESS"].moved(channel // group * input_plane),
            "EX_OPERAND_ADDRESS": pointers["EX_OPERAND_ADDRESS"].moved(channel * layer.weight_bytes),
            "EX_CHANNEL_ADDRESS": pointers["EX_CHANNEL_ADDRESS"].moved(channel * layer.record_bytes),
            "EX_OUTPUT_ADDRESS": pointers["EX_OUTPUT_ADDRESS"].moved(channel * output_plane),
        }
        steps.append(Step(layer.instruction, Unit.EX, single, moved, source, settings.fields))
    return tuple(steps)
