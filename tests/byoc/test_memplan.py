"""The scratchpad plan, and its checker fed with plans that are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byoc.scheduling import memplan
from byoc.scheduling.memplan import Request, check_plan, peak_bytes, plan
from isa.errors import InputError

REQUESTS = st.lists(
    st.builds(
        lambda size, first, length: Request("b", size, first, first + length),
        st.integers(1, 300),
        st.integers(0, 20),
        st.integers(0, 6),
    ),
    max_size=25,
)


@given(REQUESTS, st.sampled_from([1, 8, 64]))
def test_a_plan_passes_the_checker(requests: list[Request], alignment: int) -> None:
    capacity = sum(-(-request.nbytes // alignment) * alignment for request in requests)
    addresses = plan(requests, capacity, alignment)
    assert addresses is not None, "lowest gaps never need more than all buffers side by side"
    check_plan(requests, addresses, capacity, alignment)
    assert peak_bytes(requests, addresses) <= capacity


@given(REQUESTS, st.integers(50, 900))
def test_whatever_fits_a_small_memory_is_sound(requests: list[Request], capacity: int) -> None:
    addresses = plan(requests, capacity, 8)
    if addresses is None:
        roomy = plan(requests, 25 * 304, 8)
        assert roomy is not None
        assert peak_bytes(requests, roomy) > capacity, "given up although the lowest gaps fit"
    else:
        check_plan(requests, addresses, capacity, 8)


def test_memory_is_used_again_after_a_buffer_died() -> None:
    requests = [Request("a", 64, 0, 1), Request("b", 64, 2, 3), Request("c", 64, 1, 2)]
    assert plan(requests, 128, 8) == (0, 0, 64)
    assert plan(requests, 127, 8) is None


def test_an_awkward_order_is_tried_again() -> None:
    """The planner tries another order when the largest-first order leaves 'wide' no room.

    That order places 'long' on top of 'large' although 'large' is dead by then.
    """
    requests = [Request("large", 60, 0, 1), Request("long", 50, 1, 3), Request("wide", 55, 2, 3)]
    addresses = plan(requests, 110, 1)
    assert addresses is not None
    check_plan(requests, addresses, 110, 1)


def test_what_commands_touch_together_lies_in_banks_of_its_own() -> None:
    """Banks of 256 bytes; where there is no room, it lies wherever there is."""
    requests = [
        Request(name, 64, 0, 1, beside=frozenset({0, 1, 2} - {index}))
        for index, name in enumerate("abc")
    ]
    requests.append(Request("d", 64, 0, 1))
    assert plan(requests, 1024, 8, 256) == (0, 256, 512, 64)
    assert plan(requests, 256, 8, 256) == (0, 64, 128, 192)
    apart = [replace(request, first=index, last=index) for index, request in enumerate(requests)]
    assert plan(apart, 1024, 8, 256) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        ((0, 12), "buffer 'b' at 0xc is not aligned to 8 bytes"),
        ((0, 96), "buffer 'b' at 0x60 leaves the 128 bytes of SRAM"),
        ((0, -8), "buffer 'b' at -0x8 leaves the 128 bytes of SRAM"),
        ((0, 24), "buffers 'a' and 'b' are both live at step 3 and share byte 0x18"),
        ((40, 8), "buffers 'a' and 'b' are both live at step 3 and share byte 0x28"),
        ((0,), "the plan has 1 addresses for 2 buffers"),
    ],
)
def test_bad_plans_are_refused(addresses: tuple[int, ...], message: str) -> None:
    requests = [Request("a", 30, 0, 3), Request("b", 40, 3, 4)]
    with pytest.raises(InputError) as error:
        check_plan(requests, addresses, 128, 8)
    assert str(error.value) == message


def test_buffers_that_never_meet_may_share() -> None:
    check_plan([Request("a", 30, 0, 2), Request("b", 40, 3, 4)], (0, 0), 128, 8)


def test_what_shall_be_apart_lies_in_a_bank_that_few_others_use() -> None:
    """A buffer that should be apart gets a bank that few others use.

    Buffers of 16 bytes are in the first bank of 64; 'later' is not live together with the table of
    8 bytes.
    """
    others = [Request(name, 16, 0, 1) for name in "abc"]
    table = Request("table", 8, 0, 1, apart=True)
    later = Request("later", 24, 2, 2)
    assert plan([*others, table, later], 128, 8, bank=64) == (0, 16, 32, 64, 0)
    assert plan([*others[:2], table, later], 128, 8, bank=64) == (0, 16, 64, 0)
    assert plan([*others[:2], table, later], 64, 8, bank=64) == (0, 16, 32, 0)
    assert plan([others[0], table, later], 128, 8, bank=64) == (0, 16, 0)
    assert plan([*others, table, later], 64, 8, bank=64) == (0, 16, 32, 48, 0), "there is one bank"
    assert plan([*others, table, later], 128, 8) == (0, 16, 32, 48, 0)


def test_a_split_buffer_begins_a_bank_with_its_second_operand() -> None:
    """Records of 64 bytes and weights of 192 bytes; banks of 256 bytes.

    Without room, or where no aligned address splits it so, the buffer has the address that it would
    have without a split.
    """
    both = Request("constants", 256, 0, 1, beside=frozenset({1}), split=64)
    other = Request("input", 64, 0, 1, beside=frozenset({0}))
    assert plan([both, other], 1024, 8, 256, one_operand=True) == (192, 512)
    unsplit = [replace(both, split=0), other]
    for capacity, alignment in ((512, 8), (1024, 128)):
        found = plan([both, other], capacity, alignment, 256, one_operand=True)
        assert found is not None
        check_plan([both, other], found, capacity, alignment)
        assert (found[0] + 64) % 256 == 0 or found == plan(
            unsplit, capacity, alignment, 256, one_operand=True
        )
    assert plan([both, other], 1024, 128, 256, one_operand=True) == (0, 256)


def test_banks_may_end_where_no_buffer_may_begin() -> None:
    """A buffer may begin after the end of a bank that is no multiple of the alignment.

    Banks have 100 bytes, and buffers begin at multiples of 32. One began at the end of a bank,
    which was an error.
    """
    requests = [Request("a", 50, 0, 1), Request("b", 40, 0, 1, beside=frozenset({0}))]
    addresses = plan(requests, 800, 32, 100, one_operand=True)
    assert addresses == (0, 128)
    check_plan(requests, addresses, 800, 32)


def test_smaller_buffers_share_no_bank_with_what_shall_be_apart_and_is_larger_than_one() -> None:
    """A buffer of 100 bytes that should be apart reaches into the second bank of 64.

    Buffers that are live with it begin in the third bank, if there is one.
    """
    sums = Request("sums", 100, 0, 1, apart=True)
    other = Request("other", 16, 0, 1)
    assert plan([sums, other], 192, 8, bank=64) == (0, 128)
    assert plan([sums, other], 192, 8) == (0, 104)
    assert plan([sums, replace(other, first=2, last=2)], 192, 8, bank=64) == (0, 0)


def test_smaller_buffers_share_no_bank_with_sums_that_are_smaller_than_one() -> None:
    """Sums of 40 bytes are placed first, and other operands do not share their bank.

    Once, all other operands of their command were placed into that bank.
    """
    sums = Request("sums", 40, 0, 1, apart=True)
    others = [Request(name, 8, 0, 1) for name in "abc"]
    assert plan([sums, *others], 128, 8, bank=64) == (0, 64, 72, 80)
    assert plan([sums, *others], 64, 8, bank=64) == (24, 16, 8, 0), "there is one bank"


def test_planning_ends_where_orders_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three buffers of which two fit are tried in six orders.

    The buffers beside them would allow 25.
    """
    passes = []
    place = memplan._first_fit

    def count(*arguments: Any) -> int | None:
        passes.append(place(*arguments))
        return passes[-1]

    monkeypatch.setattr(memplan, "_first_fit", count)
    large = [Request(name, 400, 0, 3) for name in "abc"]
    small = [Request("small", 8, step, step) for step in range(10, 210)]
    assert plan([*large, *small], 1000, 8) is None
    assert len(passes) == 6
    assert plan([*large[:2], *small], 1000, 8) is not None
