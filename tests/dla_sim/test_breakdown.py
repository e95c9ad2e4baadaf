"""The breakdown of layers' cycles follows docs/machine.md, section 7, cycle by cycle."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cache
from typing import Literal

import pytest

from dla_sim.device import Device, LoadedProgram
from dla_sim.engine.accounts import CAUSES, explain
from dla_sim.engine.breakdown import break_down
from dla_sim.engine.times import compute_times
from dla_sim.timing import Timing
from isa.assembler import assemble
from isa.instruction import Command, Unit
from isa.program import Program
from tests.dla_sim.cases import build_program
from tests.dla_sim.compiled import COMPILED, compiled_program
from tests.dla_sim.program_generator import COMPUTE, random_case


class CycleByCycle:
    """The rules of the document, one cycle at a time, on the times and causes of a run.

    Commands arrive in order, and each unit starts and ends them in order.
    """

    def __init__(self, program: Program, loaded: LoadedProgram) -> None:
        workload = loaded.workload
        times = compute_times(workload)
        causes = explain(workload, times)
        self.program = program
        self.commands = loaded.prepared.commands
        self.depth = workload.timing.queue_depth
        self.arrival, self.start, self.end = (
            column.tolist() for column in (times.arrival, times.start, times.end)
        )
        self.total = times.total
        self.bus = causes.commands[:, CAUSES.index("bus")].tolist()
        self.scratchpad = causes.commands[:, CAUSES.index("sram")].tolist()
        self.units = [
            [n for n, command in enumerate(self.commands) if command.unit is unit] for unit in Unit
        ]
        self.arrivals, self.starts, self.ends = (
            [[column[n] for n in numbers] for numbers in self.units]
            for column in (self.arrival, self.start, self.end)
        )
        for columns in ([self.arrival], self.starts, self.ends):
            assert all(column == sorted(column) for column in columns)
        self.having = cache(self.list_having)

    def table(self) -> Counter[tuple[str, str]]:
        """(layer, part) -> cycles."""
        cycles: Counter[tuple[str, str]] = Counter()
        last = len(self.commands) - 1
        unfinished = 0
        for time in range(self.total):
            computing = self.executing(Unit.EX, time)
            while unfinished < last and self.end[unfinished] <= time:
                unfinished += 1
            number = unfinished if computing is None else computing
            source = self.program.sources[number]
            cycles[source.layer if source else "", self.part(computing, time)] += 1
        return cycles

    def executing(self, unit: Unit, time: int) -> int | None:
        place = bisect_right(self.starts[unit.value], time) - 1
        running = place >= 0 and time < self.ends[unit.value][place]
        return self.units[unit.value][place] if running else None

    def part(self, computing: int | None, time: int) -> str:
        if computing is not None:
            if self.commands[computing].instruction.unit is None:
                return "issue"
            return (
                "scratchpad"
                if time >= self.end[computing] - self.scratchpad[computing]
                else "compute"
            )
        unit = self.awaited(time)
        number = self.executing(unit, time) if unit is not None else None
        if number is None:
            return "issue"
        return (
            "bus"
            if time >= self.end[number] - self.bus[number]
            else self.moves(self.commands[number])
        )

    def moves(self, command: Command) -> str:
        if command.instruction.unit is None:
            return "issue"
        if command.unit is Unit.ST:
            return "store"
        first = command["LD_DRAM_ADDRESS"]
        constant = any(
            item.address <= first < item.address + item.data.size for item in self.program.segments
        )
        tensor = any(
            item.address <= first < item.address + item.nbytes for item in self.program.tensors
        )
        return "weights" if constant and not tensor else "input"

    def awaited(self, time: int) -> Unit | None:
        """The unit that EX waits for."""
        place = bisect_right(self.starts[Unit.EX.value], time)
        if place == len(self.units[Unit.EX.value]):
            return Unit.LD if self.executing(Unit.ST, time) is None else Unit.ST
        head = self.units[Unit.EX.value][place]
        if self.arrival[head] > time:
            unit = self.commands[bisect_right(self.arrival, time)].unit
            arrived, ended = (
                bisect_right(columns[unit.value], time) for columns in (self.arrivals, self.ends)
            )
            return unit if arrived - ended >= self.depth else None
        return (
            Unit.LD
            if self.token_is_missing(head, "pop_previous", Unit.LD, "push_next", time)
            else Unit.ST
        )

    def token_is_missing(self, head: int, pop: str, giver: Unit, push: str, time: int) -> bool:
        if not getattr(self.commands[head], pop):
            return False
        pops = self.having(Unit.EX, pop)
        pushes = self.having(giver, push)
        return self.end[pushes[pops.index(head)]] > time

    def list_having(self, unit: Unit, token: str) -> list[int]:
        """Return the commands of a unit that pop or push a token."""
        return [n for n in self.units[unit.value] if getattr(self.commands[n], token)]


def broken_down(
    program: Program, timing: Timing
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Return the device's breakdown and that of the rules: (layer, part) -> cycles."""
    loaded = Device(program.arch, timing).load(program)
    times = compute_times(loaded.workload)
    causes = explain(loaded.workload, times)
    labels = loaded.prepared.labels
    parts = break_down(loaded.workload, labels, times, causes)
    found = Counter(
        {
            (name, key): n
            for name, row in zip(loaded.prepared.labels.layers, parts, strict=True)
            for key, n in row.items()
            if n
        }
    )
    return found, CycleByCycle(program, loaded).table()


@pytest.mark.parametrize("isa", COMPUTE)
def test_random_programs(isa: str) -> None:
    everything: Counter[str] = Counter()
    for seed in range(150):
        case = random_case(seed, isa)
        found, expected = broken_down(build_program(case), Timing(**case.timing))
        if case.steps:
            assert found == expected, f"seed {seed}"
        for (_, part), cycles in found.items():
            everything[part] += cycles
    assert set(everything) == {"compute", "scratchpad", "weights", "input", "bus", "store", "issue"}


def test_a_compiled_network() -> None:
    found, expected = broken_down(compiled_program("digits-cnn", "default"), Timing())
    assert found == expected
    assert sum(cycles for (_, part), cycles in found.items() if part == "weights") > 0


@pytest.mark.parametrize(("network", "schedule"), COMPILED)
def test_parts_add_up(network: str, schedule: Literal["seed", "default"]) -> None:
    program = compiled_program(network, schedule)
    for timing in (
        Timing(),
        Timing(bus_bytes=1, sram_read_bytes=4),
        Timing(queue_depth=1, fetch_bytes=8),
    ):
        trace = Device(program.arch, timing).run(program, {}, timing_only=True).trace
        assert [sum(parts.values()) for parts in trace.breakdown] == [
            layer.cycles for layer in trace.layers
        ]
        assert min(min(parts.values()) for parts in trace.breakdown) >= 0
        executing = sum(parts["compute"] + parts["scratchpad"] for parts in trace.breakdown)
        assert executing == sum(trace.ex_cycles.values()) - trace.ex_cycles["ISSUE"]


def test_a_chain_by_hand() -> None:
    """Worked out from the document: a load of weights, one of input, a computation, a store."""
    text = """
.arch {}
.memory 0x4000 commands 0x0
.tensor ["x","input","int8",[64],8192]
.tensor ["y","output","int8",[64],12288]
    SET LD_DRAM_ADDRESS, 0x2000     # word 0
    SET LD_BYTES, 64                # word 1
    OP_DMA_READ push.EX             # word 2
    SET EX_LENGTH, 64               # word 3
    SET EX_OUTPUT_ADDRESS, 64       # word 4
    SET EX_SCALE_A, 0x3f800000      # word 5
    SET EX_SCALE_Y, 0x3f800000      # word 6
    OP_ACT_RELU pop.LD push.ST      # word 7
    SET ST_DRAM_ADDRESS, 0x3000     # word 8
    SET ST_SRAM_ADDRESS, 64         # word 9
    SET ST_BYTES, 64                # word 10
    OP_DMA_WRITE pop.EX             # word 11
    OP_END                          # word 12
"""
    program = assemble(text)
    trace = Device(program.arch).run(program, {}, timing_only=True).trace
    # Fetch: 13 words, bursts of 8 and 5 beats, 8 + 7 = 15 slots from 100 on: ready at 115. Word 2
    # executes at 117: the load is there and starts at 118, takes 4 + 100 + 8 + 4 = 116 cycles, to
    # 234. EX executes 8 + 1 + 8 = 17 cycles, to 251, ST 116, to 367, and OP_END in 367. EX's
    # command is in the queue from 123 on, until then commands are all that it waits for: 123 issue.
    # From 123 to 234 it waits for the load: 111 input. Then ST: 116 store. OP_END: issue.
    assert trace.cycles == 368
    (parts,) = trace.breakdown
    assert {name: cycles for name, cycles in parts.items() if cycles} == {
        "compute": 17,
        "input": 111,
        "store": 116,
        "issue": 124,
    }
