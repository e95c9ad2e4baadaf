"""Layers: an operation on one machine, with everything that scheduling and emission ask about it, worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc.operators.nest import Nest, Span, make_tile
from byoc.operators.operator import Geometry, Operator
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Instruction
from isa.ops.lookup import EX_TABLE_ADDRESS, LOOK_UP
from isa.plugins import variant


@dataclass(frozen=True, eq=False)
class Layer:
    """One operation on one machine: its geometry, and the registers and fields that all of its tiles share."""

    operation: Operator
    geometry: Geometry
    registers: Mapping[str, int]
    fields: Mapping[str, int]

    @property
    def name(self) -> str:
        """The layer's name in reports."""
        return self.operation.name

    @property
    def nest(self) -> Nest:
        """The loop nest."""
        return self.geometry.nest

    @property
    def mnemonic(self) -> str:
        """The instruction's mnemonic, COPY where there is none."""
        instruction = self.geometry.instruction
        return "COPY" if instruction is None else instruction.mnemonic


def make_layer(operation: Operator, arch: Arch) -> Layer:
    """The layer of an operation.

    Raises InputError for an instruction that the machine's ISA lacks, and for a register or field that the operator
    sets and the instruction lacks.
    """
    mnemonic = operation.mnemonic
    isa = variant(arch.isa)
    if mnemonic is not None and mnemonic not in isa.mnemonics:
        raise InputError(
            f"layer '{operation.name}' needs {mnemonic}, which ISA {arch.isa} does not have; choose another ISA"
        )
    registers, fields = operation.settings(arch)
    if operation.tables is not None:
        fields = {**fields, LOOK_UP.name: 1 if len(operation.tables) == 1 else 2}
    constants = operation.constants()
    weights = constants.weights if constants is not None else None
    records = constants is not None and constants.bias is not None
    weight_bytes, nest, apart = (
        0 if weights is None else weights[0].size,
        operation.nest(),
        operation.cutting.second != "alike",
    )
    if apart:
        weight_bytes = operation.inputs[1].nbytes // nest.channels
    geometry = Geometry(
        operator=type(operation),
        instruction=isa.by_mnemonic[mnemonic][0] if mnemonic is not None else None,
        nest=nest,
        inputs=1 if apart else len(operation.inputs),
        weight_bytes=weight_bytes,
        record_bytes=arch.channel_record_bytes if records else 0,
        input_bytes=operation.inputs[0].element_bytes if operation.inputs else 1,
        output_bytes=operation.output.element_bytes,
        single=operation.single,
        registers=tuple((name, value) for name, value in registers.items() if name not in operation.numbers),
        fields=tuple((name, value) for name, value in fields.items() if name not in operation.numbers),
        second=operation.cutting.second,
        tables="none" if operation.tables is None else "one" if len(operation.tables) == 1 else "each",
        repeats=operation.cutting.repeats,
        dims=operation.cutting.dims,
    )
    layer = Layer(operation, geometry, registers, fields)
    if geometry.instruction is not None:
        _prove_settings(layer, geometry.instruction)
    return layer


def _prove_settings(layer: Layer, instruction: Instruction) -> None:
    """Raises InputError where ``instruction`` lacks a register or field that the operator sets."""
    geometry, nest = layer.geometry, layer.nest
    whole = make_tile(nest, Span(0, nest.channels), Span(0, nest.rows))
    shaped = geometry.operator.tile_registers(geometry, whole)
    wanted = (*address_registers(geometry), *layer.registers, *shaped)
    missing = [name for name in wanted if name not in instruction.registers]
    declared = {field.name for field in instruction.fields}
    missing += [f"field {name}" for name in layer.fields if name not in declared]
    if missing:
        raise InputError(
            f"layer '{layer.name}': {instruction.mnemonic} does not have {missing[0]}; "
            f"correct the operator {type(layer.operation).__name__}"
        )


def address_registers(geometry: Geometry) -> tuple[str, ...]:
    """The registers that say where a tile's operands are: without them no instruction can compute it."""
    names = ["EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS"]
    names += ["EX_OPERAND_ADDRESS"] if geometry.weight_bytes or geometry.inputs > 1 else []
    names += ["EX_CHANNEL_ADDRESS"] if geometry.record_bytes else []
    names += [EX_TABLE_ADDRESS.name] if geometry.tables != "none" else []
    return (*names, *(("EX_INPUT_PLANE", "EX_OUTPUT_PLANE") if geometry.operator.planes else ()))
