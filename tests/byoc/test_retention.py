"""Layers that share weights load them once, as far as the scratchpad has room."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from byoc.estimate.bus import DEFAULT_BUS
from byoc.operators.matmul import MatMul
from byoc.operators.nest import RowTransfer, TransferAxis
from byoc.scheduling.fetches import list_fetches
from byoc.scheduling.stream import Pointer, StepSource, TileSteps, load
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from isa.program import Program
from tests.byoc import region_cases as cases

STEPS = 12
WIDTH = 96


def _compile(kib: int, steps: int = STEPS) -> tuple[Program, int]:
    """Return a program of steps that share a matrix, and how many of its results are wrong."""
    first = cases.matmul(np.random.default_rng(5), cases.operand("h0", 1, WIDTH), "h1", WIDTH)
    operations: list[MatMul] = [replace(first, shared=("weights",))]
    for step in range(1, steps):
        (before, target) = operations[-1].output, cases.operand(f"h{step + 1}", 1, WIDTH)
        operations.append(
            replace(operations[0], name=target.value, inputs=(before,), output=target)
        )
    region, values = cases.region(tuple(operations), ("h0",), (f"h{steps}",))
    arch = Arch(isa="v4", pe=PeArray(ic=4, oc=16), sram_bytes=kib << 10)
    program = cases.compile_case(region, values, arch, "default")
    inputs = cases.random_inputs(region, values, 1)
    result = f"h{steps}"
    wanted = cases.expected(region, values, inputs)[result]
    return program, int(np.count_nonzero(cases.execute(program, inputs)[result] != wanted))


def _count_loads(program: Program) -> Counter[int]:
    """Return how often the program loads from each address of its constants."""
    (constants,) = program.segments
    addresses = [
        command.registers["LD_DRAM_ADDRESS"]
        for command in program.commands
        if command.unit.name == "LD"
    ]
    return Counter(address for address in addresses if address >= constants.address)


def _cycles(program: Program) -> int:
    return ProgramTiming(program).run(Timing()).cycles


def test_weights_that_fit_are_loaded_once() -> None:
    program, wrong = _compile(16)
    assert not wrong
    assert set(_count_loads(program).values()) == {1}


def test_a_part_of_weights_that_do_not_fit_is_loaded_once() -> None:
    program, wrong = _compile(10)
    assert not wrong
    counts = sorted(_count_loads(program).values())
    assert counts[0] == 1
    assert counts[-1] == STEPS


def test_more_steps_take_no_more_cycles_a_step() -> None:
    few, many = (_cycles(_compile(16, steps)[0]) / steps for steps in (STEPS, 5 * STEPS))
    assert many <= few


def test_only_equal_loads_into_equal_places_are_repeated() -> None:
    wide, narrow = (RowTransfer(0, 16, (TransferAxis(size, 64, 16),)) for size in (8, 4))
    moved = wide._replace(sram_offset=32)
    tiles = [
        TileSteps(
            (load(4096, Pointer(number), one, StepSource("", "", "", 0, ()), DEFAULT_BUS),), (), ()
        )
        for number, one in enumerate((wide, narrow, moved, wide))
    ]
    fetches = list_fetches(tiles, DEFAULT_BUS)
    assert [one.again for one in fetches] == [fetches[3], None, None, None]
