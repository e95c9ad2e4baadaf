"""Token legality: exact messages for a program that would hang and one that leaves tokens."""

from __future__ import annotations

import pytest

from isa.assembler import assemble
from isa.errors import InputError
from isa.instruction import Command
from tests.isa.legality import check_legality

ARCH = '.arch {"isa": "v2"}\n'


def commands(*lines: str) -> tuple[Command, ...]:
    return assemble(ARCH + "\n".join([*lines, "OP_END"]) + "\n").commands


def test_a_chain_through_all_units_is_legal() -> None:
    check_legality(
        commands(
            "OP_SYNC unit=LD push.EX",
            "OP_SYNC unit=EX pop.LD push.ST",
            "OP_SYNC unit=ST pop.EX push.EX",
            "OP_SYNC unit=EX pop.ST push.LD",
            "OP_SYNC unit=LD pop.EX",
        )
    )


def test_tokens_may_wait_in_a_queue() -> None:
    check_legality(commands(*["OP_SYNC unit=LD push.EX"] * 3, *["OP_SYNC unit=EX pop.LD"] * 3))


def test_a_pop_without_a_push_before_it_is_named() -> None:
    with pytest.raises(InputError) as error:
        check_legality(commands("OP_SYNC unit=EX pop.LD", "OP_SYNC unit=LD push.EX"))
    assert str(error.value) == (
        "word 0: OP_SYNC on EX waits for a token from LD, but no earlier command gives one; the "
        "program would never end"
    )


def test_a_command_cannot_wait_for_itself() -> None:
    with pytest.raises(InputError, match="word 0: OP_SYNC on EX waits for a token from ST"):
        check_legality(commands("OP_SYNC unit=EX pop.ST push.ST", "OP_SYNC unit=ST pop.EX push.EX"))


def test_tokens_left_over_are_named() -> None:
    with pytest.raises(InputError) as error:
        check_legality(commands("OP_SYNC unit=ST push.EX", "OP_SYNC unit=ST push.EX"))
    assert str(error.value) == (
        "2 tokens from ST to EX are left over at the end; pushes and pops must balance"
    )


def test_an_empty_program_is_legal() -> None:
    check_legality(commands())
