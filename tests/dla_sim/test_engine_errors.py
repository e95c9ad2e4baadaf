"""Programs with wrong tokens: deadlocks, collisions in memory, or wrong data."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dla_sim.device import Device
from dla_sim.engine.accounts import explain
from dla_sim.engine.times import CommandTimes, DeadlockError
from dla_sim.prepared import HazardError, _concurrent
from dla_sim.timing import Timing
from isa.assembler import assemble
from isa.errors import InputError

HEADER = """
.arch {}
.memory 0x4000 commands 0x0
"""
CHAIN = """
.tensor ["x","input","int8",[64],4096]
.tensor ["y","output","int8",[64],6144]
    SET EX_SCALE_A, 0x3f800000
    SET EX_SCALE_Y, 0x3f800000
    SET LD_DRAM_ADDRESS, 0x1000
    SET LD_BYTES, 64
    OP_DMA_READ push.EX
    SET EX_LENGTH, 64
    SET EX_OUTPUT_ADDRESS, 64
    OP_ACT_RELU pop.LD push.ST
    SET ST_DRAM_ADDRESS, 0x1800
    SET ST_SRAM_ADDRESS, 64
    SET ST_BYTES, 64
    OP_DMA_WRITE pop.EX
    OP_END
"""


def chain(*replacements: tuple[str, str]) -> str:
    """A load, a ReLU and a store, with tokens or without."""
    text = CHAIN
    for old, new in replacements:
        text = text.replace(old, new)
    return HEADER + text


X = np.arange(-32, 32, dtype=np.int8)


def test_the_chain_computes() -> None:
    program = assemble(chain())
    result = Device(program.arch, sram_reset=0x55).run(program, {"x": X})
    assert np.array_equal(result.outputs["y"], np.maximum(X, 0))


def test_missing_wait_for_the_load_is_a_collision() -> None:
    program = assemble(chain(("push.EX", ""), ("pop.LD ", "")))
    with pytest.raises(
        HazardError,
        match=re.escape(
            "OP_DMA_READ at word 4 (cycles 120 to 236) and OP_ACT_RELU at word 7 (cycles 123 to "
            "140) both access "
            "scratchpad bytes 0x0 to 0x40 and one of them writes; a token between them is missing"
        ),
    ):
        Device(program.arch).run(program, {"x": X})


def test_missing_wait_that_does_not_collide_gives_wrong_data() -> None:
    """ST is done before EX starts: it stores what the scratchpad held before, not the result."""
    program = assemble(chain(("pop.EX", ""), (" push.ST", ""), ("OP_DMA_READ push.EX", SLOW_LOAD)))
    result = Device(program.arch, sram_reset=0x55).run(program, {"x": X})
    assert np.array_equal(result.outputs["y"], np.full(64, 0x55, dtype=np.int8))


SLOW_LOAD = """OP_DMA_READ
    SET LD_DRAM_ADDRESS, 0x2000
    SET LD_SRAM_ADDRESS, 1024
    SET LD_BYTES, 8192
    OP_DMA_READ push.EX"""


def test_collisions_name_the_layers() -> None:
    text = (
        HEADER
        + """
    SET LD_BYTES, 64
    SET LD_DRAM_ADDRESS, 0x1000
    SET ST_BYTES, 64
    SET ST_DRAM_ADDRESS, 0x1010
    SET ST_SRAM_ADDRESS, 64
.source [6,"conv1","CONV","load",0,[]]
    OP_DMA_READ
.source [7,"conv2","CONV","store",0,[]]
    OP_DMA_WRITE
    OP_END
"""
    )
    program = assemble(text)
    with pytest.raises(
        HazardError,
        match=re.escape(
            "OP_DMA_READ at word 5 (layer 'conv1', cycles 114 to 230) and OP_DMA_WRITE at word 6 "
            "(layer 'conv2', "
            "cycles 115 to 237) both access system memory bytes 0x1010 to 0x1040 and one of them "
            "writes; "
            "a token between them is missing"
        ),
    ):
        Device(program.arch).run(program, {}, timing_only=True)


def test_interleaved_rows_do_not_collide() -> None:
    """Hulls that overlap are not enough: the rows of these transfers lie between each other."""
    text = (
        HEADER
        + """
    SET LD_BYTES, 8
    SET LD_COUNT_1, 4
    SET LD_DRAM_ADDRESS, 0x1000
    SET LD_DRAM_STRIDE_1, 8
    SET LD_SRAM_STRIDE_1, 16
    SET ST_BYTES, 8
    SET ST_COUNT_1, 4
    SET ST_DRAM_ADDRESS, 0x2000
    SET ST_DRAM_STRIDE_1, 8
    SET ST_SRAM_STRIDE_1, 16
    SET ST_SRAM_ADDRESS, 8
    OP_DMA_READ
    OP_DMA_WRITE
    OP_END
"""
    )
    program = assemble(text)
    Device(program.arch).run(program, {}, timing_only=True)
    collides = assemble(text.replace("SET ST_SRAM_ADDRESS, 8", "SET ST_SRAM_ADDRESS, 7"))
    with pytest.raises(HazardError, match="scratchpad bytes 0x7 to 0x8"):
        Device(program.arch).run(collides, {}, timing_only=True)


def test_deadlock_names_what_everybody_waits_for() -> None:
    program = assemble(
        HEADER + "    OP_SYNC unit=EX pop.LD pop.ST\n    OP_SYNC unit=ST pop.EX\n    OP_END\n"
    )
    message = (
        "deadlock: OP_END waits until all units are drained; LD is idle; "
        "EX waits at word 0 for a token from LD and ST; ST waits at word 1 for a token from EX; "
        "every pop needs a push earlier in the stream"
    )
    with pytest.raises(DeadlockError, match=f"^{re.escape(message)}$") as caught:
        Device(program.arch).run(program, {}, timing_only=True)
    assert caught.value.words == (0, 1)


def test_deadlock_of_a_full_queue() -> None:
    """A push that comes later in the stream than the queue is long is a deadlock.

    Such a program is legal for no queue depth.
    """
    program = assemble(
        HEADER + "    OP_SYNC unit=EX pop.LD\n" * 3 + "    OP_SYNC unit=LD push.EX\n    OP_END\n"
    )
    message = (
        "deadlock: word 2 waits for room in the queue of EX; LD is idle; EX waits at word 0 for a "
        "token from LD"
    )
    with pytest.raises(DeadlockError, match=re.escape(message)):
        Device(program.arch).run(program, {}, timing_only=True)
    with pytest.raises(DeadlockError):
        Device(program.arch, Timing(queue_depth=8)).run(program, {}, timing_only=True)


def test_wrong_tokens_are_bad_input() -> None:
    assert issubclass(DeadlockError, InputError)
    assert issubclass(HazardError, InputError)


@pytest.mark.parametrize("column", ["start", "end"])
def test_a_schedule_that_breaks_the_rules_does_not_pass(column: str) -> None:
    """The accounts of every run check its engine.

    They notice one cycle too many in a start or an end.
    """
    program = assemble(chain())
    device = Device(program.arch)
    loaded = device.load(program)
    times = device.run(program, {}, timing_only=True).trace.times
    for command in range(len(loaded.prepared.commands)):
        wrong = getattr(times, column).copy()
        wrong[command] += 1
        with pytest.raises(AssertionError):
            explain(loaded.workload, replace(times, **{column: wrong}))


INTERVALS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=8)


@given(INTERVALS, INTERVALS)
def test_concurrent_pairs_are_those_that_intersect(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    spans: list[tuple[int, int]] = []
    for intervals in (first, second):
        now = 0
        for gap, length in intervals:
            spans.append((now + gap, now + gap + length))
            now = spans[-1][1]
    start, end = (np.array([span[side] for span in spans], dtype=np.int64) for side in (0, 1))
    left = np.arange(len(first))
    right = len(first) + np.arange(len(second))
    found = _concurrent(left, right, CommandTimes(start, start, end, 1000))
    expected = [(i, j) for i in left for j in right if start[i] < end[j] and start[j] < end[i]]
    assert list(zip(*(side.tolist() for side in found), strict=True)) == expected
