"""Fetch, processor, queues, tokens and arbiter equal the tick model cycle by cycle.

Programs are random. Scripts of that model replace the units: the tests check which unit starts
when, with which registers, and who gets each slot.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import ClockDomain, DomainRenamer, Module
from amaranth.sim import Simulator

from dla_sim.rtl import building
from dla_sim.rtl.building import verilog_text
from dla_sim.rtl.bus import Arbiter
from dla_sim.rtl.control import REQUESTERS, Control, TokenCounter
from dla_sim.rtl.parameters import Configuration, Limits, strap_values
from dla_sim.rtl.ports import Cause
from dla_sim.rtl.processor import Processor
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.encoding import encode_operation
from isa.errors import InputError
from isa.instruction import Command, Unit
from isa.program import Program
from isa.variants import SET_OPCODE
from tests.dla_sim.cases import DRAM_BYTES, Case, Step, build_program
from tests.dla_sim.program_generator import random_case
from tests.dla_sim.shrink import PLAIN_TIMING
from tests.dla_sim.tick import TickResult, run_ticks
from tests.dla_sim.tick.scripts import SLOT_CAUSE, command_script

LIMITS = Limits(8, 8, 3, 24, 1 << 16, 32, 4, 512, 4)
CYCLES = 700
"""Of the longest program that is tried: Amaranth's simulator takes a millisecond for one."""


class Player:
    """A unit that follows the script of each of its commands."""

    def __init__(self, control: Control, unit: Unit, program: Program, timing: Timing) -> None:
        self.control = control
        self.unit = unit
        self.program = program
        self.timing = timing
        self.ports = control.units[unit]
        self.to_come = [command for command in program.commands[:-1] if command.unit is unit]
        self.script: list[str] = []
        self.spans: list[tuple[int, int]] = []
        self.causes: Counter[int] = Counter()
        self.started = 0

    def begin(self, context: Any, cycle: int) -> bool:
        """Takes the command that starts, if one does.

        Returns whether the unit wants the slot of this cycle.
        """
        if context.get(self.ports.starts):
            command = self.to_come.pop(0)
            self.started = cycle
            self.check(context, command)
            self.script = command_script(command, self.program, self.timing, Counter())
        return bool(self.script) and self.script[0] in SLOT_CAUSE

    def check(self, context: Any, command: Command) -> None:
        """The head of the queue is the command."""
        head = self.control.queues[self.unit].head
        assert context.get(head.word) == int(self.program.words[command.index])
        assert {name: context.get(head.register(name)) for name in command.registers} == dict(
            command.registers
        )

    def act(self, context: Any, granted: bool) -> None:
        """Says what the unit says once the slot is granted, and counts what control makes of it."""
        symbol = self.script[0] if self.script else "busy"
        waits = symbol in SLOT_CAUSE and not granted
        context.set(
            self.ports.cause, Cause["BUS" if waits else SLOT_CAUSE.get(symbol, symbol).upper()]
        )
        context.set(self.ports.done, len(self.script) == 1 and not waits)
        self.script = self.script if waits else self.script[1:]

    def end(self, context: Any, cycle: int) -> None:
        """Counts what control makes of it."""
        self.causes[context.get(self.ports.accounted)] += 1
        if context.get(self.ports.over):
            self.spans.append((self.started, cycle + 1))
            assert not self.script

    def agrees(self, expected: TickResult) -> None:
        """Everything was as in ``expected``."""
        numbers = [
            number
            for number, item in enumerate(self.program.commands[:-1])
            if item.unit is self.unit
        ]
        assert self.spans == [expected.spans[number] for number in numbers]
        causes: Counter[int] = Counter()
        for name, cycles in expected.causes[self.unit.name].items():
            causes[0 if name in ("queue_empty", "drained") else Cause[name.upper()].value] += cycles
        assert +self.causes == +causes


async def run(
    context: Any, control: Control, program: Program, timing: Timing
) -> tuple[int, dict[Unit, Player]]:
    """From the first cycle after reset to the interrupt. Returns its cycle."""
    memory = np.zeros(DRAM_BYTES, np.uint8)
    memory[program.command_address :][: 8 * len(program.words)] = program.words.astype("<u8").view(
        np.uint8
    )
    players = {unit: Player(control, unit, program, timing) for unit in Unit}
    fetch = control.fetch
    for cycle in range(CYCLES + 1):
        if context.get(control.processor.interrupt):
            return cycle, players
        for unit, player in players.items():
            wants = player.begin(context, cycle)
            if unit in REQUESTERS:
                context.set(control.wants[unit], wants)
        for unit, player in players.items():
            player.act(context, unit in REQUESTERS and context.get(control.granted[unit]) == 1)
        for player in players.values():
            player.end(context, cycle)
        beat = memory[context.get(fetch.address) :][: LIMITS.bus_bytes]
        context.set(fetch.read_data, int.from_bytes(beat.tobytes(), "little"))
        changes = context.get(control.active)
        before = (
            context.get(control.fetch.number),
            [context.get(unit.there) for unit in control.units.values()],
        )
        await context.tick()
        after = (
            context.get(control.fetch.number),
            [context.get(unit.there) for unit in control.units.values()],
        )
        assert changes or before == after
    return CYCLES + 1, players


def drawn(seeds: range) -> list[Case]:
    """Return cases of random programs that are short and whose banks hardware can have."""
    cases = [random_case(seed, memories="plain") for seed in seeds]
    return [
        case
        for case in cases
        if (case.arch.sram_bytes // case.arch.sram_banks).bit_count() == 1
        and len(case.steps) < 12
        and case.timing["dram_latency"] < 30
        and 60 < run_ticks(build_program(case), Timing(**case.timing)).total < CYCLES
    ]


def crowded() -> Case:
    """A queue with several commands behind its head, and as many tokens."""
    loads = [
        Step("OP_DMA_READ", "LD", {"LD_BYTES": 8, "LD_SRAM_ADDRESS": 16 * number})
        for number in range(7)
    ]
    gives = Step("OP_SYNC", "LD", flags=frozenset({"push_next"}))
    takes = Step("OP_SYNC", "EX", flags=frozenset({"pop_previous"}))
    steps = (*loads, *[gives, gives, takes] * 5, *[takes] * 5)
    return Case(
        Arch(isa="v4"),
        {**PLAIN_TIMING, "queue_depth": 4, "sync_cycles": 2, "dram_latency": 5},
        steps,
    )


@pytest.mark.parametrize(
    "draw", [lambda: [crowded()], lambda: drawn(range(40)), lambda: drawn(range(40, 80))]
)
def test_programs(draw: Callable[[], list[Case]]) -> None:
    """Registers, words, starts, ends, causes and totals."""
    cases = draw()
    assert cases
    module = Module()
    configuration = Configuration(LIMITS)
    control = Control(LIMITS, configuration)
    module.domains.sync = domain = ClockDomain("sync")
    module.submodules.control = DomainRenamer({"control": "sync"})(control)

    async def bench(context: Any) -> None:
        for case in cases:
            program = build_program(case)
            timing = Timing(**case.timing)
            expected = run_ticks(program, timing)
            for name, value in strap_values(case.arch, timing).items():
                context.set(getattr(configuration, name), value)
            context.set(control.fetch.command_address, program.command_address)
            context.set(control.fetch.command_words, len(program.words))
            context.set(domain.rst, 1)
            await context.tick()
            context.set(domain.rst, 0)
            total, players = await run(context, control, program, timing)
            assert total == expected.total
            for player in players.values():
                player.agrees(expected)

    simulator = Simulator(module)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_words_of_no_instruction_fault() -> None:
    """Words that the simulator rejects are faults: an unknown opcode or unit."""
    module = Module()
    processor = Processor(LIMITS)
    variant = LIMITS.variant
    module.domains.control = domain = ClockDomain("control")
    module.submodules.processor = processor
    sync = encode_operation(variant.by_mnemonic["OP_SYNC"][0], {"unit": len(Unit) - 1})
    words = {
        opcode << 56: opcode == SET_OPCODE or opcode in variant.by_opcode for opcode in range(256)
    }
    words |= {sync: True, sync + (1 << 50): False}

    async def bench(context: Any) -> None:
        context.set(processor.room, -1)
        context.set(processor.empty, 1)
        for word, defined in words.items():
            context.set(processor.word, word)
            for ready in (0, 1):
                context.set(processor.ready, ready)
                assert context.get(processor.executes) == (ready and defined)
                assert context.get(processor.undefined) == (ready and not defined)
                await context.tick("control")
                assert context.get(processor.fault) == (ready and not defined)
            context.set(domain.rst, 1)
            await context.tick("control")
            context.set(domain.rst, 0)

    simulator = Simulator(module)
    simulator.add_clock(1e-6, domain="control")
    simulator.add_testbench(bench)
    simulator.run()


def test_tokens_are_pushed_and_popped_together() -> None:
    """A counter is the number of pushes less that of pops."""
    counter = TokenCounter()
    random_ = random.Random(1)

    async def bench(context: Any) -> None:
        count = 0
        for _ in range(300):
            push = random_.random() < 0.5
            pop = count > 0 and random_.random() < 0.5
            context.set(counter.push, push)
            context.set(counter.pop, pop)
            assert context.get(counter.there) == (count > 0)
            await context.tick("control")
            count += push - pop

    simulator = Simulator(counter)
    simulator.add_clock(1e-6, domain="control")
    simulator.add_testbench(bench)
    simulator.run()


def test_no_function_has_a_name_of_the_systems() -> None:
    """Icarus takes a function whose name begins with a dollar sign for one of its own."""
    text = verilog_text(Arbiter(3), "arbiter")
    assert "function" in text
    assert "\\$" not in text


def test_a_yosys_that_breaks_off_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> str:
        raise building.YosysError(
            "libc++abi: bad_alloc was thrown\nTraceback (most recent call last):\n ..."
        )

    monkeypatch.setattr(building, "find_yosys", lambda _: SimpleNamespace(run=run))
    message = (
        r"^Yosys breaks off at arbiter \(libc\+\+abi: bad_alloc was thrown\); "
        r".* choose a smaller array .*PATH$"
    )
    with pytest.raises(InputError, match=message):
        verilog_text(Arbiter(3), "arbiter")
