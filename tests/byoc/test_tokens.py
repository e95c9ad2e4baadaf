"""Token flags against a brute-force oracle: every conflict is ordered, every program is legal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc.emission import emit
from byoc.emission.emit import Ordered, derive_tokens, touch
from isa.access import Access, overlap, strided
from isa.arch import Arch
from isa.instruction import Command, Instruction, Operands, Unit
from isa.ops.control import OP_SYNC
from tests.byoc.ordering import predecessors, unordered_conflicts
from tests.isa.legality import check_legality

ACCESSES = st.builds(
    lambda space, address, nbytes, count, stride: strided(space, address, nbytes, (count, stride)),
    st.sampled_from(["sram", "sram", "dram"]),
    st.integers(0, 40),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 12),
)


def _operands(unit: Unit, first: Access, second: Access) -> Operands:
    return (
        Operands((first,), (second,))
        if unit is not Unit.EX
        else Operands((first,), (second, first))
    )


def _command(unit: Unit, first: Access, second: Access) -> tuple[Unit, Operands]:
    return unit, _operands(unit, first, second)


COMMANDS = st.lists(st.builds(_command, st.sampled_from(Unit), ACCESSES, ACCESSES), max_size=14)


def _accesses(touched: Operands) -> Callable[[Command, Arch], Operands]:
    return lambda command, arch: touched


def stand_ins(stream: Sequence[Ordered], operands: Sequence[Operands]) -> list[Command]:
    """Commands of a made-up instruction with exactly the accesses given."""
    commands = []
    for number, item in enumerate(stream):
        made = OP_SYNC
        if item.index is not None:
            touches = _accesses(operands[item.index])
            made = Instruction("OP_TEST", 0x7F, Unit(item.unit), "ISSUE", "", operands=touches)
        flags = (
            bool(item.pop_previous),
            bool(item.pop_next),
            bool(item.push_previous),
            bool(item.push_next),
        )
        commands.append(Command(number, made, Unit(item.unit), *flags, {}, {}))
    return commands


@given(COMMANDS)
@settings(deadline=None, max_examples=300)
def test_every_conflict_is_ordered(commands: list[tuple[Unit, Operands]]) -> None:
    operands = [touched for _, touched in commands]
    stream = stand_ins(derive_tokens([unit for unit, _ in commands], operands), operands)
    check_legality(stream)
    assert unordered_conflicts(stream, Arch()) == []


@given(COMMANDS)
@settings(deadline=None, max_examples=100)
def test_a_store_waits_for_a_load_that_it_shares_no_byte_with(
    commands: list[tuple[Unit, Operands]],
) -> None:
    """Every store waits for the first load of the stream."""
    units = [unit for unit, _ in commands]
    operands = [touched for _, touched in commands]
    first = units.index(Unit.LD) if Unit.LD in units else len(units)
    stores = [number for number, unit in enumerate(units) if unit is Unit.ST and number > first]
    found = derive_tokens(units, operands, store_waits=dict.fromkeys(stores, first))
    stream = stand_ins(found, operands)
    check_legality(stream)
    assert unordered_conflicts(stream, Arch()) == []
    places = {item.index: place for place, item in enumerate(found)}
    before = predecessors(stream)
    assert all(places[first] in before[places[store]] for store in stores)


@given(COMMANDS)
@settings(deadline=None, max_examples=60)
def test_strict_order_is_total(commands: list[tuple[Unit, Operands]]) -> None:
    operands = [touched for _, touched in commands]
    stream = stand_ins(
        derive_tokens([unit for unit, _ in commands], operands, strict=True), operands
    )
    check_legality(stream)
    for number, before in enumerate(predecessors(stream)):
        assert before >= {
            other for other in range(number) if stream[other].instruction is not OP_SYNC
        }


@given(ACCESSES, ACCESSES)
@settings(max_examples=500)
def test_touch_is_overlap(first: Access, second: Access) -> None:
    assert touch(first, second) == (overlap(first, second) is not None)
    assert touch(first, second) == touch(second, first)


DIMS = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([0, 1, 3, 4, 6, 7, 12, 20])),
    min_size=1,
    max_size=3,
)


@given(DIMS, DIMS, st.integers(0, 60), st.integers(1, 3))
@settings(max_examples=500)
def test_touch_of_more_dimensions_is_overlap(
    dims: list[tuple[int, int]], others: list[tuple[int, int]], address: int, nbytes: int
) -> None:
    first = strided("sram", 30, 2, *dims)
    second = strided("sram", address, nbytes, *others)
    assert touch(first, second) == (overlap(first, second) is not None)


def test_touch_of_many_steps_is_overlap() -> None:
    first = strided("sram", 0, 1, (100, 700), (99, 14), (98, 6))
    for address in (1, 2, 28001):
        second = strided("sram", address, 1, (97, 1010), (70, 34), (60, 4))
        assert touch(first, second) == (overlap(first, second) is not None)


def _sram(address: int, nbytes: int = 8) -> Access:
    return strided("sram", address, nbytes)


def _dram(address: int, nbytes: int = 8) -> Access:
    return strided("dram", address, nbytes)


def flags(stream: Sequence[Ordered]) -> list[str]:
    """``LD push.next`` and so on, one text a command."""
    texts = []
    for item in stream:
        names = ("pop_previous", "pop_next", "push_previous", "push_next")
        texts.append(
            " ".join([Unit(item.unit).name, *(name for name in names if getattr(item, name))])
        )
    return texts


def test_load_compute_store_in_a_chain() -> None:
    stream = derive_tokens(
        [Unit.LD, Unit.EX, Unit.ST],
        [
            Operands((_dram(0),), (_sram(0),)),
            Operands((_sram(0),), (_sram(8),)),
            Operands((_sram(8),), (_dram(64),)),
        ],
    )
    assert flags(stream) == ["LD push_next", "EX pop_previous push_next", "ST pop_previous"]


def test_a_load_of_what_was_stored_goes_through_the_command_that_waits_anyway() -> None:
    """EX writes again what ST reads, so it waits for ST; the load then only waits for EX."""
    stream = derive_tokens(
        [Unit.EX, Unit.ST, Unit.EX, Unit.LD],
        [
            Operands((), (_sram(8),)),
            Operands((_sram(8),), (_dram(0),)),
            Operands((), (_sram(8),)),
            Operands((_dram(0),), (_sram(16),)),
        ],
    )
    assert flags(stream) == [
        "EX push_next",
        "ST pop_previous push_previous",
        "EX pop_next push_previous",
        "LD pop_next",
    ]


def test_without_such_a_command_a_sync_is_inserted() -> None:
    stream = derive_tokens(
        [Unit.LD, Unit.ST],
        [Operands((_dram(0),), (_sram(0),)), Operands((_sram(0),), (_dram(64),))],
    )
    assert flags(stream) == ["LD push_next", "EX pop_previous push_next", "ST pop_previous"]
    assert [item.index for item in stream] == [0, None, 1]
    assert stream[1].serves == 1


def test_what_is_known_is_not_waited_for_again() -> None:
    """Two computations on one load: the second knows it is there.

    In-order units need no tokens among themselves.
    """
    read = Operands((_sram(0),), (_sram(8),))
    stream = derive_tokens(
        [Unit.LD, Unit.EX, Unit.EX, Unit.EX], [Operands((_dram(0),), (_sram(0),)), read, read, read]
    )
    assert flags(stream) == ["LD push_next", "EX pop_previous", "EX", "EX"]


def test_independent_commands_exchange_no_tokens() -> None:
    stream = derive_tokens(
        [Unit.LD, Unit.EX, Unit.ST],
        [
            Operands((_dram(0),), (_sram(0),)),
            Operands((_sram(8),), (_sram(16),)),
            Operands((_sram(24),), (_dram(8),)),
        ],
    )
    assert flags(stream) == ["LD", "EX", "ST"]


def test_double_buffering_lets_the_second_load_run_ahead() -> None:
    """Only the third of three loads into alternating buffers waits for a computation.

    It fills the first buffer again.
    """
    units = []
    operands = []
    for tile in range(3):
        units += [Unit.LD, Unit.EX]
        buffer = _sram(8 * (tile % 2))
        operands += [Operands((_dram(8 * tile),), (buffer,)), Operands((buffer,), (_sram(64),))]
    counted = Counter(
        text for text in flags(derive_tokens(units, operands)) if text.startswith("LD")
    )
    assert counted == {"LD push_next": 2, "LD pop_next push_next": 1}


def test_reading_the_same_bytes_is_no_conflict() -> None:
    def waits(first: Operands, second: Operands) -> bool:
        return flags(derive_tokens((Unit.LD, Unit.EX), (first, second))) != flags(
            derive_tokens((Unit.LD, Unit.EX), (Operands(), Operands()))
        )

    first, second = Operands((_sram(0),), (_sram(8),)), Operands((_sram(0),), (_sram(16),))
    assert not waits(first, second)
    assert waits(first, Operands((), (_sram(4, 2),)))
    assert waits(Operands((), (_sram(4, 2),)), first)
    assert waits(first, Operands((), (_sram(12, 1),)))


def test_rows_that_interleave_are_no_conflict() -> None:
    """Bands of one tensor: rows of 4 bytes, 16 apart, and the same shifted by 4."""
    band, other = (strided("dram", address, 4, (100, 16)) for address in (0, 4))
    assert not touch(band, other)
    assert touch(band, strided("dram", 14, 4, (3, 16)))
    assert np.array_equal(
        [touch(band, strided("dram", shift, 4)) for shift in range(16)],
        [s < 4 or s > 12 for s in range(16)],
    )


def test_the_work_of_tokens_grows_with_the_commands_alone(monkeypatch):
    """The work of deriving tokens grows only with the number of commands.

    Loads to new places are not compared with commands of EX that use other places.
    """
    tried = []
    monkeypatch.setattr(
        emit, "_meet", lambda first, second, meet=emit._meet: tried.append(1) or meet(first, second)
    )

    def comparisons(count: int) -> int:
        tried.clear()
        units = []
        operands = []
        for index in range(count):
            constants = Access("sram", (1 << 16) + 64 * index, 64)
            units += [Unit.LD, Unit.EX]
            operands += [
                Operands((Access("dram", 64 * index, 64),), (constants,)),
                Operands((Access("sram", 0, 512), constants), (Access("sram", 1024, 512),)),
            ]
        emit.derive_tokens(units, operands)
        return len(tried)

    assert comparisons(1600) < 2.2 * comparisons(800)
