"""Tokens: pops that nothing satisfies, tokens left over, and deadlocks with the cycle of waits."""

from __future__ import annotations

from tests.isa.sanitizer_programs import CHAIN, findings


def syncs(*lines: str) -> str:
    return "".join(f"OP_SYNC unit={line}\n" for line in lines)


def token_findings(*lines: str) -> list[str]:
    return [line for line in findings(syncs(*lines)) if "output" not in line]


def test_a_pop_that_nothing_pushes() -> None:
    assert findings(CHAIN, (" push.EX", "")) == [
        "error: token underflow: OP_ACT_RELU at word 5 on EX (layer 'relu', tile 1) waits for a "
        "token from LD that no "
        "command gives; the program would never end"
    ]


def test_a_push_that_nothing_pops() -> None:
    assert findings(CHAIN, (" pop.EX", ""))[0] == (
        "error: tokens left over: 1 tokens from EX to ST are left at the end; the first that "
        "nobody waits for is that "
        "of OP_ACT_RELU at word 5 on EX (layer 'relu', tile 1)"
    )


def test_tokens_of_one_queue_are_taken_in_order() -> None:
    """The second pop takes the second push; the third push is left over."""
    found = token_findings("LD push.EX", "LD push.EX", "LD push.EX", "EX pop.LD", "EX pop.LD")
    assert found == [
        "error: tokens left over: 1 tokens from LD to EX are left at the end; the first that "
        "nobody waits for is that "
        "of OP_SYNC at word 2 on LD"
    ]


def test_a_token_given_later_is_not_legal_even_where_it_does_no_harm() -> None:
    assert token_findings("EX pop.LD", "LD push.EX") == [
        "error: token too late: OP_SYNC at word 0 on EX waits for the token of OP_SYNC at word 1 "
        "on LD, which comes "
        "later in the stream"
    ]


def test_two_units_that_wait_for_each_other() -> None:
    found = token_findings("LD pop.EX push.EX", "EX pop.LD push.LD")
    assert found[0] == (
        "error: deadlock: with queues of any depth: OP_SYNC at word 0 on LD waits for the token of "
        "word 1; OP_SYNC at "
        "word 1 on EX waits for the token of word 0"
    )


def test_a_cycle_through_the_queue_and_the_stream() -> None:
    """EX waits for LD, whose push is behind a second command of EX that has no room.

    The queue has depth 1.
    """
    found = token_findings("EX pop.LD", "EX", "LD push.EX")
    assert found == [
        "error: deadlock: with queues of depth 1: OP_SYNC at word 0 on EX waits for the token of "
        "word 2; OP_SYNC at "
        "word 2 on LD waits behind word 1 in the stream; OP_SYNC at word 1 on EX waits for room in "
        "the queue of EX "
        "behind word 0",
        "error: token too late: OP_SYNC at word 0 on EX waits for the token of OP_SYNC at word 2 "
        "on LD, which comes "
        "later in the stream",
    ]


def test_a_cycle_of_three_units() -> None:
    found = token_findings(
        "LD pop.EX push.EX", "ST pop.EX push.EX", "EX pop.LD pop.ST push.LD push.ST"
    )
    assert "deadlock: with queues of any depth" in found[0]
    assert "word 2 on EX waits for the token of word 0" in found[0]


def test_what_never_runs_does_not_race() -> None:
    """Beyond the underflow there is no order to speak of."""
    found = findings(CHAIN, (" push.ST", ""))
    assert [line.partition(": ")[2].partition(":")[0] for line in found] == ["token underflow"]


def test_the_end_of_the_program_exchanges_no_tokens() -> None:
    found = findings(CHAIN, ("OP_END", "OP_END pop.LD"))
    assert "error: token on OP_END: OP_END at word 10 exchanges tokens; it has no unit" in found
