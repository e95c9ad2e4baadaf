"""Command words: encoding of SET and operations, decoding into commands with register snapshots."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError
from isa.instruction import Command, Instruction, Unit
from isa.registers import COMMON, Field, RegisterFile, decode_fields, encode_fields, prove_layout
from isa.variants import SET_OPCODE, Variant

REMEMBERED = 16384
"""Number of words whose encoding or decoding is cached, because streams repeat the same words."""

SET_LAYOUT = prove_layout(
    "SET",
    (
        Field("opcode", 56, 8, constant=SET_OPCODE),
        Field("register", 48, 8, description="index of the register"),
        Field("reserved_32", 32, 16, constant=0),
        Field("value", 0, 32, description="new value, two's complement or raw float32 bits"),
    ),
)


def encode_set(name: str, value: int, registers: RegisterFile = COMMON) -> int:
    """Return the word ``SET name, value``.

    Raise InputError for an unknown register or a value that does not fit.

    ``registers`` are those of the variant; the default has the registers of every variant.
    """
    return _set_word(name, value, registers)


@lru_cache(maxsize=REMEMBERED)
def _set_word(name: str, value: int, registers: RegisterFile) -> int:
    register = registers.by_name.get(name)
    if register is None:
        raise InputError(f"SET: unknown register '{name}'")
    return (SET_OPCODE << 56) | (register.index << 48) | register.to_raw(value)


def encode_operation(instruction: Instruction, values: Mapping[str, int]) -> int:
    """Return the word of an operation from token flags and fields; absent ones are 0."""
    return _operation_word(instruction, tuple(values.items()))


@lru_cache(maxsize=REMEMBERED)
def _operation_word(instruction: Instruction, values: tuple[tuple[str, int], ...]) -> int:
    return encode_fields(instruction.mnemonic, _layout(instruction), dict(values))


@lru_cache(maxsize=256)
def _layout(instruction: Instruction) -> tuple[Field, ...]:
    return instruction.layout


def decode_set(word: int, index: int, registers: RegisterFile = COMMON) -> tuple[str, int]:
    """Return (register name, value) of a SET word; raise InputError naming the word's position."""
    try:
        return _decode_set(word, registers)
    except InputError as error:
        raise InputError(f"word {index}: {error}", words=(index,)) from error


@lru_cache(maxsize=REMEMBERED)
def _decode_set(word: int, registers: RegisterFile) -> tuple[str, int]:
    fields = decode_fields("SET", SET_LAYOUT, word)
    register = registers.by_index.get(fields["register"])
    if register is None:
        raise InputError(f"SET of the unknown register {fields['register']:#04x}")
    return register.name, register.from_raw(fields["value"])


@lru_cache(maxsize=REMEMBERED)
def _decode_word(
    word: int, variant: Variant
) -> tuple[Instruction, Unit, tuple[bool, bool, bool, bool], Mapping[str, int]]:
    opcode = word >> 56
    instruction = variant.by_opcode.get(opcode)
    if instruction is None:
        raise InputError(f"opcode {opcode:#04x} is not in ISA {variant.name}")
    fields = decode_fields(instruction.mnemonic, _layout(instruction), word)
    pops = bool(fields.pop("pop_previous")), bool(fields.pop("pop_next"))
    tokens = (*pops, bool(fields.pop("push_previous")), bool(fields.pop("push_next")))
    unit = instruction.unit
    if unit is None:
        unit = Unit(fields.get("unit", Unit.EX.value))
    if (unit is Unit.LD and (tokens[0] or tokens[2])) or (
        unit is Unit.ST and (tokens[1] or tokens[3])
    ):
        raise InputError(
            f"{instruction.mnemonic}: unit {unit.name} has no such neighbour to "
            "exchange tokens with"
        )
    return instruction, unit, tokens, fields


def decode_operation(
    word: int, index: int, variant: Variant, registers: Mapping[str, int]
) -> Command:
    """Return the command of an operation word with its snapshot of ``registers``."""
    try:
        instruction, unit, tokens, fields = _decode_word(word, variant)
    except InputError as error:
        raise InputError(f"word {index}: {error}", words=(index,)) from error
    snapshot = {name: registers[name] for name in instruction.registers}
    return Command(index, instruction, unit, *tokens, fields, snapshot)


def decode(words: NDArray[np.uint64] | Sequence[int], variant: Variant) -> tuple[Command, ...]:
    """Decode a command stream into its operations, in order, each with its register snapshot.

    Raises:
        InputError: an opcode is not in the variant, a reserved bit is set, a value does not fit,
            the stream does not end with ``OP_END``, or words follow it. The message names the word.
    """
    file = variant.register_file
    registers = dict(file.reset)
    commands: list[Command] = []
    stream = words.tolist() if isinstance(words, np.ndarray) else [int(word) for word in words]
    for index, word in enumerate(stream):
        if word >> 56 == SET_OPCODE:
            name, value = decode_set(word, index, file)
            registers[name] = value
        else:
            commands.append(decode_operation(word, index, variant, registers))
    _check_end(commands, len(stream))
    return tuple(commands)


def _check_end(commands: list[Command], words: int) -> None:
    ends = [command.index for command in commands if command.instruction.mnemonic == "OP_END"]
    if ends != [words - 1]:
        where = (
            f"word {ends[0]} is OP_END but {words} words were given"
            if ends
            else "there is no OP_END"
        )
        raise InputError(
            f"the command stream must end with exactly one OP_END: {where}", words=ends[:1]
        )
