"""Live bytes of the scratchpad equal a calculation by hand and a count byte by byte.

The count is made for random programs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from dla_sim.device import Device
from dla_sim.engine.times import CommandTimes, completion_order, compute_times
from dla_sim.inspection import live_bytes
from dla_sim.timing import Timing
from isa.access import Access, strided
from isa.instruction import Operands
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import random_case


def _times(ends: Sequence[int]) -> CommandTimes:
    end = np.array(ends, dtype=np.int64)
    return CommandTimes(end - 5, end - 5, end, max(ends) + 1)


def _as_list(
    operands: Sequence[Operands], order: Sequence[int], times: CommandTimes
) -> list[tuple[int, int]]:
    cycles, counts = live_bytes(operands, order, times)
    return list(zip(cycles.tolist(), counts.tolist(), strict=True))


def test_bytes_live_from_their_write_to_their_last_read() -> None:
    operands = [
        Operands(writes=(Access("sram", 0, 16),)),  # all read at 20, half of them again at 40
        # no command reads its result
        Operands(reads=(Access("sram", 0, 16),), writes=(Access("sram", 100, 4),)),
        Operands(writes=(Access("dram", 0, 64),)),  # not the scratchpad
        # in place
        Operands(reads=(strided("sram", 0, 4, (2, 8)),), writes=(strided("sram", 0, 4, (2, 8)),)),
        Operands(reads=(Access("sram", 0, 4),)),
    ]
    times = _times([10, 20, 30, 40, 50])
    assert _as_list(operands, range(5), times) == [(10, 16), (20, 8), (40, 4), (50, 0)]


def test_nothing_is_live_without_commands() -> None:
    assert _as_list([], [], _times([1])) == []


@pytest.mark.parametrize("seed", range(40))
def test_counts_are_those_of_single_bytes(seed: int) -> None:
    case = random_case(seed)
    program = build_program(case)
    timing = Timing(**case.timing)
    loaded = Device(program.arch, timing).load(program)
    times = compute_times(loaded.workload)
    operands = [
        command.instruction.operands(command, program.arch) for command in loaded.prepared.commands
    ]
    order = completion_order(loaded.workload, times)
    assert _as_list(operands, order, times) == _byte_by_byte(operands, order, times)


def _byte_by_byte(
    operands: Sequence[Operands], order: Sequence[int], times: CommandTimes
) -> list[tuple[int, int]]:
    lives: dict[int, list[list[int]]] = defaultdict(list)
    for number in order:
        end = int(times.end[number])
        for byte in _bytes(operands[number].reads):
            if lives[byte]:
                lives[byte][-1][1] = end
        for byte in _bytes(operands[number].writes):
            lives[byte].append([end, end])
    deltas: dict[int, int] = defaultdict(int)
    for born, last in (life for found in lives.values() for life in found):
        deltas[born] += 1
        deltas[last] -= 1
    counts = []
    live = 0
    for cycle in sorted(cycle for cycle, delta in deltas.items() if delta):
        live += deltas[cycle]
        counts.append((cycle, live))
    return counts


def _bytes(accesses: Sequence[Access]) -> set[int]:
    return {
        b
        for access in accesses
        if access.space == "sram"
        for low, high in access.runs()
        for b in range(low, high)
    }
