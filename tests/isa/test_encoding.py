"""Encodings: every bit used once, exact round trips, and errors with field, width and value."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.encoding import SET_LAYOUT, decode, decode_set, encode_operation, encode_set
from isa.errors import InputError
from isa.instruction import Command, Instruction, Unit
from isa.ops import ALL
from isa.plugins import variant
from isa.registers import (
    REGISTERS,
    Field,
    Register,
    RegisterFile,
    decode_fields,
    encode_fields,
    prove_layout,
)
from isa.variants import VARIANTS

INSTRUCTIONS = sorted(ALL.values(), key=lambda item: item.opcode)


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda item: item.mnemonic)
def test_every_bit_of_a_word_belongs_to_exactly_one_field(instruction: Instruction) -> None:
    covered = [
        bit for field in instruction.layout for bit in range(field.low, field.low + field.width)
    ]
    assert sorted(covered) == list(range(64))


def test_a_layout_with_a_bit_used_twice_or_never_is_refused() -> None:
    with pytest.raises(ValueError, match="bit 3 belongs to both a and b"):
        prove_layout("X", (Field("a", 0, 4), Field("b", 3, 61)))
    with pytest.raises(ValueError, match=r"bits \[63\] belong to no field"):
        prove_layout("X", (Field("a", 0, 63),))


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda item: item.mnemonic)
def test_all_field_values_round_trip(instruction: Instruction) -> None:
    """All field values round-trip; the fields without the opcode have few bits."""
    variable = [field for field in instruction.layout if field.constant is None]
    assert sum(field.width for field in variable) <= 12
    for bits in range(1 << sum(field.width for field in variable)):
        values = {}
        rest = bits
        for field in variable:
            values[field.name] = rest & ((1 << field.width) - 1)
            rest >>= field.width
        if any(values[field.name] > field.highest for field in variable):
            with pytest.raises(InputError, match="which is undefined"):
                encode_operation(instruction, values)
            continue
        word = encode_operation(instruction, values)
        assert decode_fields("x", instruction.layout, word) == values
        assert word >> 56 == instruction.opcode


@pytest.mark.parametrize("register", REGISTERS, ids=lambda item: item.name)
def test_every_register_round_trips_at_its_limits_and_refuses_the_next_value(
    register: Register,
) -> None:
    for value in {register.minimum, register.maximum, register.reset, 0}:
        assert decode_set(encode_set(register.name, value), 0) == (register.name, value)
    for value in (register.minimum - 1, register.maximum + 1):
        with pytest.raises(
            InputError,
            match=rf"{register.name} = {value} does not fit its .* of {register.width} bits",
        ):
            encode_set(register.name, value)


@given(st.sampled_from(REGISTERS), st.data())
def test_set_words_round_trip(register: Register, data: st.DataObject) -> None:
    value = data.draw(st.integers(register.minimum, register.maximum))
    word = encode_set(register.name, value)
    assert decode_fields("SET", SET_LAYOUT, word)["register"] == register.index
    assert decode_set(word, 0) == (register.name, value)


def rebuilt(command: Command) -> int:
    """The word of a decoded command, encoded again."""
    flags = {
        name: int(getattr(command, name))
        for name in ("pop_previous", "pop_next", "push_previous", "push_next")
    }
    return encode_operation(command.instruction, {**command.fields, **flags})


@settings(max_examples=300)
@given(st.integers(0, 2**64 - 1))
def test_any_word_either_round_trips_or_is_refused(word: int) -> None:
    for isa in VARIANTS.values():
        with suppress(InputError):
            commands = decode([word, 0x03 << 56], isa)
            assert [rebuilt(command) for command in commands[:-1]] == [word][: len(commands) - 1]


def test_field_errors_name_field_width_and_value() -> None:
    with pytest.raises(
        InputError, match=r"OP_POOL: mode = 4 does not fit its field of 2 bits \(0 to 3\)"
    ):
        encode_operation(ALL["OP_POOL"], {"mode": 4})
    with pytest.raises(InputError, match="OP_POOL: no field is named speed"):
        encode_operation(ALL["OP_POOL"], {"speed": 1})
    assert encode_fields("x", (Field("s", 0, 4, signed=True),), {"s": -8}) == 8


def test_a_snapshot_holds_the_values_at_the_operation() -> None:
    words = [
        encode_set("EX_LENGTH", 3),
        encode_operation(ALL["OP_E_ABS"], {}),
        encode_set("EX_LENGTH", 5),
    ]
    words += [
        encode_operation(ALL["OP_E_ABS"], {"pop_previous": 1}),
        encode_operation(ALL["OP_END"], {}),
    ]
    first, second, end = decode(np.array(words, dtype=np.uint64), variant("v1"))
    assert (first["EX_LENGTH"], second["EX_LENGTH"]) == (3, 5)
    assert (first.index, second.index, end.index) == (1, 3, 4)
    assert second.pop_previous
    assert not second.pop_next
    assert second.unit is Unit.EX


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "must end with exactly one OP_END: there is no OP_END"),
        ([0x03 << 56, 0x03 << 56], "word 0 is OP_END but 2 words were given"),
        ([0xEE << 56], "word 0: opcode 0xee is not in ISA v1"),
        ([0x21 << 56], "word 0: opcode 0x21 is not in ISA v1"),
        ([(0x20 << 56) | 1], "word 0: OP_CONV: field reserved_0 is 0x1, it must be 0x0"),
        ([(0x01 << 56) | (0xFF << 48)], "word 0: SET of the unknown register 0xff"),
        (
            [(0x10 << 56) | (1 << 55)],
            "word 0: OP_DMA_READ: unit LD has no such neighbour to exchange tokens with",
        ),
        (
            [(0x02 << 56) | (3 << 50)],
            "word 0: OP_SYNC: field unit is 3, which is undefined; 0 LD, 1 EX, 2 ST",
        ),
    ],
)
def test_bad_streams_are_refused(words: list[int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(words, variant("v1"))
    assert message in str(caught.value)


def test_every_variant_adds_instructions_to_the_one_before() -> None:
    assert VARIANTS["v2"].mnemonics - VARIANTS["v1"].mnemonics == {"OP_DEPTH_CONV"}
    assert VARIANTS["v1"].mnemonics < VARIANTS["v2"].mnemonics
    assert VARIANTS["v3"].mnemonics - VARIANTS["v2"].mnemonics == {"OP_GROUP_CONV"}
    assert VARIANTS["v2"].mnemonics < VARIANTS["v3"].mnemonics
    assert VARIANTS["v4"].mnemonics == ALL.keys()
    assert VARIANTS["v3"].mnemonics < VARIANTS["v4"].mnemonics
    with pytest.raises(
        InputError,
        match=r"^unknown ISA variant 'v9'; choose one of v1, v2, v3, v4, v5 "
        r"or install the package that adds it$",
    ):
        variant("v9")


def test_a_register_that_comes_with_an_instruction_exists_only_where_the_instruction_does() -> None:
    words = [
        encode_set("EX_GROUPS", 4, variant("v3").register_file),
        encode_operation(ALL["OP_GROUP_CONV"], {}),
    ]
    words.append(encode_operation(ALL["OP_END"], {}))
    assert decode(words, variant("v3"))[0]["EX_GROUPS"] == 4
    assert decode(words[1:], variant("v3"))[0]["EX_GROUPS"] == 1
    with pytest.raises(InputError, match="word 0: SET of the unknown register 0x42"):
        decode(words, variant("v2"))
    with pytest.raises(InputError, match="SET: unknown register 'EX_GROUPS'"):
        encode_set("EX_GROUPS", 4)


def test_registers_that_share_a_name_or_an_index_are_refused() -> None:
    register = REGISTERS[0]
    with pytest.raises(
        ValueError, match=f"register {register.name} is declared twice, differently"
    ):
        RegisterFile((*REGISTERS, replace(register, index=0x7F)))
    with pytest.raises(
        ValueError, match="register index 0x00 of EX_NEW is taken by LD_DRAM_ADDRESS"
    ):
        RegisterFile((*REGISTERS, replace(register, name="EX_NEW")))
