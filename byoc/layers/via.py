"""Operations on an instruction of their choice: what of the back end's settings it takes, and whether it can at all."""

from __future__ import annotations

from collections.abc import Mapping

from byoc.layers.nest import Nest, make_tile
from byoc.operations import ConvOperation, MatMulOperation, Operation, PoolOperation, Via
from byoc.tile import Span
from isa.errors import InputError
from isa.instruction import Instruction

_PLANES = ("EX_INPUT_PLANE", "EX_OUTPUT_PLANE")


def settings_of(family: Mapping[str, int], own: Mapping[str, int], names: tuple[str, ...]) -> dict[str, int]:
    """What the back end sets for a kind of operation, as far as the instruction has ``names``, and ``own`` on top."""
    return {**{name: value for name, value in family.items() if name in names}, **own}


def prove_via(operation: Operation, via: Via, instruction: Instruction, nest: Nest) -> None:
    """Raises InputError where ``instruction`` lacks a register that the operation needs, or that ``via`` sets."""
    names = {field.name for field in instruction.fields}
    whole = make_tile(nest, Span(0, nest.channels), Span(0, nest.rows))
    wanted = (*needed_registers(operation), *via.registers, *via.tile_registers(whole))
    missing = [name for name in wanted if name not in instruction.registers]
    missing += [f"field {name}" for name in via.fields if name not in names]
    if missing:
        raise InputError(
            f"layer '{operation.name}': {via.mnemonic} does not have {missing[0]}; correct the pattern that names it"
        )


def needed_registers(operation: Operation) -> tuple[str, ...]:
    """The registers without which no instruction can run an operation of this kind: its addresses and planes."""
    constants = isinstance(operation, ConvOperation | MatMulOperation)
    names = ["EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS"]
    names += ["EX_OPERAND_ADDRESS"] if constants or len(operation.inputs) > 1 else []
    names += ["EX_CHANNEL_ADDRESS"] if constants else []
    return (*names, *(_PLANES if isinstance(operation, ConvOperation | PoolOperation) else ()))
