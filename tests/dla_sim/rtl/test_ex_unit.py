"""EX takes the time of docs/machine.md section 5 for an engine that only counts steps."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.sim import Simulator

from dla_sim.rtl.building import Library
from dla_sim.rtl.ex.engine import Engine
from dla_sim.rtl.ex.unit import ExUnit
from dla_sim.rtl.parameters import Configuration, Limits, limits_of
from dla_sim.rtl.ports import Cause, CommandView, Stream
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.instruction import Unit, ceil_div

STREAMS = 4
BANK_SHIFT = 8
COMMANDS = 150
PARTS = ("valid", "first", "last", "nbytes")


class Counting(Engine):
    """Takes ``steps`` steps.

    Its streams, the last of which is written, and results are whatever the test sets.
    """

    mnemonics = ("OP_CONV",)

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, library: Library
    ) -> None:
        super().__init__(limits, configuration, command, library)
        self.steps = Signal(16)
        self.count = Signal(16)
        self.results = Signal(16)
        self.settings = {
            (n, part): Signal(32, name=f"{part}_{n}") for n in range(STREAMS) for part in PARTS
        }
        self.streams = [
            Stream(*(self.settings[n, part] for part in PARTS), write=n == STREAMS - 1)
            for n in range(STREAMS)
        ]

    def elaborate(self, platform: object) -> Module:
        """The counter."""
        m = Module()
        m.d.comb += [self.empty.eq(self.steps == 0), self.last.eq(self.count + 1 == self.steps)]
        with m.If(self.advance):
            m.d.sync += self.count.eq(Mux(self.last, 0, self.count + 1))
        return m


def random_command(random_: random.Random, pipelined: bool) -> dict[Any, int]:
    """Values of the engine's signals and of the configuration's."""
    values: dict[Any, int] = {
        "steps": random_.choice([0, 1, 2, random_.randrange(30)]),
        "lanes": random_.choice([1, 3, 64]),
        "ex_fill": random_.choice([0, 1, 5]) + 2 * pipelined,
        "ex_drain": random_.choice([0, 1, 7]) + pipelined,
        "sram_read_bytes": random_.choice([0, 0, 1, 7]),
        "sram_write_bytes": random_.choice([0, 0, 2, 5]),
        "bank_ports": random_.choice([1, 2, 3, 4]),
    }
    values["results"] = random_.choice([0, random_.randrange(80)]) if values["steps"] else 0
    for number in range(STREAMS):
        first = random_.randrange(2048)
        nbytes = random_.choice([0, 1, random_.randrange(600)])
        values |= {
            (number, "valid"): int(nbytes > 0),
            (number, "first"): first,
            (number, "nbytes"): nbytes,
        }
        values[number, "last"] = first + max(0, nbytes - 1)
    return values


def expected(values: dict[Any, int]) -> tuple[int, int]:
    """(cycles of the command, of them waiting for the scratchpad)."""
    compute = max(values["steps"], ceil_div(values["results"], values["lanes"]))
    there = [number for number in range(STREAMS) if values[number, "valid"]]
    hulls = [
        (values[number, "first"] >> BANK_SHIFT, values[number, "last"] >> BANK_SHIFT)
        for number in there
    ]
    banks = Counter(bank for first, last in hulls for bank in range(first, last + 1))
    taken = compute * max(1, ceil_div(max(banks.values(), default=0), values["bank_ports"]))
    written = sum(values[number, "nbytes"] for number in there if number == STREAMS - 1)
    read = sum(values[number, "nbytes"] for number in there) - written
    for nbytes, width in ((read, values["sram_read_bytes"]), (written, values["sram_write_bytes"])):
        taken = max(taken, ceil_div(nbytes, width) if width else 0)
    return max(1, values["ex_fill"] + values["ex_drain"] + taken), taken - compute


@pytest.mark.parametrize("pipelined", [True, False])
def test_commands_take_their_cycles(pipelined: bool) -> None:
    limits = limits_of(Arch(isa="v4"), Timing(), pipelined=pipelined)
    configuration = Configuration(limits)
    command = CommandView(limits.variant, Unit.EX)
    engine = Counting(limits, configuration, command, Library(convert=False))
    unit = ExUnit(limits, configuration, [engine])
    random_ = random.Random(16)
    found = []
    wanted = []

    async def bench(context: Any) -> None:
        context.set(command.word, command.instruction("OP_CONV").opcode << 56)
        context.set(configuration.bank_shift, BANK_SHIFT)
        await context.tick()  # the first cycle has no falling edge
        for _ in range(COMMANDS):
            values = random_command(random_, pipelined)
            for key, value in values.items():
                signal = (
                    engine.settings.get(key)
                    if isinstance(key, tuple)
                    else getattr(engine, key, None)
                )
                context.set(getattr(configuration, key) if signal is None else signal, value)
            wanted.append((*expected(values), values["steps"]))
            found.append(await one_command(context))

    async def one_command(context: Any) -> tuple[int, int, int]:
        cycles = 0
        waits = 0
        steps = 0
        done = False
        context.set(unit.start, 1)
        while not done:
            done = bool(context.get(unit.done))
            waits += context.get(unit.cause) == Cause.SRAM
            steps += context.get(engine.advance)
            cycles += 1
            await context.tick()
            context.set(unit.start, 0)
        return cycles, waits, steps

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == wanted
