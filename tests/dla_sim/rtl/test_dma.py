"""LD and ST equal the tick model cycle by cycle, and move the bytes of the semantics."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from dla_sim.rtl.dma import DmaUnit
from dla_sim.rtl.parameters import Configuration, Limits, strap_values
from dla_sim.rtl.ports import Cause, CommandView, WritePort
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.instruction import Command, Machine, Unit
from isa.program import Program
from tests.dla_sim.cases import DRAM_BYTES, NO_FLASH, Case, Step, build_program
from tests.dla_sim.tick.scripts import SLOT_CAUSE, command_script

SRAM_BYTES = 384
DRAM_USED = 1 << 11
BUS_BYTES = (1, 2, 4)
COMMANDS = 40
LIMITS = Limits(4, 4, 1, 4, SRAM_BYTES, max(BUS_BYTES), 2, 64, 2)
MNEMONIC = {Unit.LD: "OP_DMA_READ", Unit.ST: "OP_DMA_WRITE"}


def random_registers(random_: random.Random, unit: Unit) -> dict[str, int]:
    """Draw a transfer within ``SRAM_BYTES`` and ``DRAM_USED``.

    It has dense dimensions, gaps, rows that overlap or repeat, or no rows.
    """
    while True:
        counts = [random_.choice((1, 1, 2, 3, 5)) for _ in range(3)]
        nbytes = random_.choice((1, 1, 2, 3, 8, random_.randint(1, 30)))
        values = {
            "BYTES": nbytes,
            "SRAM_ADDRESS": random_.randrange(SRAM_BYTES),
            "DRAM_ADDRESS": random_.randrange(512),
        }
        ends = {}
        for space in ("DRAM", "SRAM"):
            extent = end = nbytes
            for dimension, count in enumerate(counts, start=1):
                stride = random_.choice(
                    (
                        extent,
                        extent,
                        extent,
                        extent + 1,
                        extent + 16,
                        extent // 2,
                        nbytes,
                        nbytes,
                        0,
                    )
                )
                values |= {f"{space}_STRIDE_{dimension}": stride, f"COUNT_{dimension}": count}
                end += stride * (count - 1)
                # the next may be dense with any stride of this one
                extent = stride * count if count > 1 else extent
            ends[space] = values[f"{space}_ADDRESS"] + end
        if ends["SRAM"] <= SRAM_BYTES and ends["DRAM"] <= DRAM_USED:
            if random_.random() < 0.05:
                values[random_.choice(("BYTES", "COUNT_1", "COUNT_2", "COUNT_3"))] = 0
            return {f"{unit.name}_{name}": value for name, value in values.items()}


def random_timing(random_: random.Random) -> Timing:
    """Any constants of LD and ST, with a flash or without one."""
    bus = random_.choice(BUS_BYTES)
    flash = {
        **NO_FLASH,
        "flash_bytes": random_.choice([width for width in BUS_BYTES if width <= bus]),
    }
    flash |= {"flash_burst_bytes": flash["flash_bytes"] * random_.choice((1, 4, 16))}
    flash |= {
        "flash_latency": random_.choice((0, 1, 9)),
        "flash_outstanding_bursts": random_.choice((1, 2, 8)),
    }
    return Timing(
        bus_bytes=bus, burst_bytes=bus * random_.choice((1, 2, 8)),
        dram_latency=random_.choice((0, 1, 10)),
        outstanding_bursts=random_.choice((1, 2, 16)), dma_setup=random_.choice((0, 1, 4)),
        dma_drain=random_.choice((0, 1, 4)), **(flash if random_.random() < 0.5 else NO_FLASH),
    )  # fmt: skip


def random_program(random_: random.Random, unit: Unit, timing: Timing) -> Program:
    """One transfer, of a constant in half of all cases."""
    registers = random_registers(random_, unit)
    arch = Arch(isa="v4", sram_bytes=SRAM_BYTES, sram_banks=3, alignment=1)
    first = registers[f"{unit.name}_DRAM_ADDRESS"]
    segments = ((first, 1),) if random_.random() < 0.5 else ()
    step = Step(MNEMONIC[unit], unit.name, registers)
    return build_program(Case(arch, timing.model_dump(), (step,), DRAM_BYTES // 2, segments))


class Bench:
    """One unit, driven command after command as its queue and the bus would."""

    def __init__(self, unit: Unit) -> None:
        self.configuration = Configuration(LIMITS)
        self.command = CommandView(LIMITS.variant, unit)
        self.unit = DmaUnit(LIMITS, self.configuration, self.command, unit)
        self.simulator = Simulator(self.unit)
        self.simulator.add_clock(1e-6)

    def set_up(self, ctx: Any, command: Command, program: Program, timing: Timing) -> None:
        """The command at the head of the queue, and the straps."""
        straps = strap_values(program.arch, timing)
        for name, signal in self.configuration.straps.items():
            ctx.set(signal, straps[name])
        for name, signal in self.command.registers.items():
            ctx.set(signal, command.registers[name])
        ctx.set(self.command.word, int(program.words[command.index]))
        constant = any(
            item.address == ctx.get(self.unit.lookup.address) for item in program.segments
        )
        ctx.set(self.unit.lookup.constant, int(constant))

    async def execute(
        self, ctx: Any, script: Sequence[str], machine: Machine, random_: random.Random
    ) -> list[str]:
        """Causes of the cycles of the command, slots that were not granted left out.

        Bytes move in ``machine``.

        Cycles on the bus that are not granted have to say so.
        """
        unit = self.unit
        causes = list[str]()
        done = False
        ctx.set(unit.start, 1)
        while not done:
            wanted = len(causes) < len(script) and script[len(causes)] in SLOT_CAUSE
            assert ctx.get(unit.wants_slot) == wanted
            granted = wanted and random_.random() < 0.7
            ctx.set(unit.granted, int(granted))
            cause = Cause(ctx.get(unit.cause)).name.lower()
            if wanted and not granted:
                assert cause == "bus"
            else:
                causes.append(cause)
            if granted and ctx.get(unit.beat):
                self.move(ctx, machine)
            done = bool(ctx.get(unit.done))
            await ctx.tick()
            ctx.set(unit.start, 0)
            ctx.set(unit.granted, 0)
        return causes

    def move(self, ctx: Any, machine: Machine) -> None:
        """Move a beat between the memory and the scratchpad, byte after byte."""
        port = self.unit.port
        address = ctx.get(self.unit.address)
        count = ctx.get(self.unit.count)
        if isinstance(port, WritePort):
            data = int.from_bytes(machine.dram[address : address + count].tobytes(), "little")
            ctx.set(self.unit.data, data)
            for lane, enable in enumerate(port.enable):
                if ctx.get(enable):
                    machine.sram[ctx.get(port.address[lane])] = ctx.get(port.data[lane])
        else:
            for lane in range(count):
                assert (ctx.get(port.enable) >> lane) & 1
                ctx.set(port.data[lane], int(machine.sram[ctx.get(port.address[lane])]))
            for lane, value in enumerate(
                ctx.get(self.unit.data).to_bytes(LIMITS.bus_bytes, "little")[:count]
            ):
                machine.dram[address + lane] = value


def random_machine(random_: random.Random, arch: Arch) -> Machine:
    """Both memories with random bytes."""
    draw = np.random.default_rng(random_.randrange(1 << 32))
    return Machine(
        arch, *(draw.integers(0, 256, size, dtype=np.uint8) for size in (SRAM_BYTES, DRAM_USED))
    )


@pytest.mark.parametrize("unit", [Unit.LD, Unit.ST])
def test_transfers_have_the_slots_and_move_the_bytes(unit: Unit) -> None:
    random_ = random.Random(unit.value)
    bench = Bench(unit)

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(2)
        for _ in range(COMMANDS):
            timing = random_timing(random_)
            program = random_program(random_, unit, timing)
            command = program.commands[0]
            machine = random_machine(random_, program.arch)
            expected = Machine(program.arch, machine.sram.copy(), machine.dram.copy())
            command.instruction.semantics(command, expected)
            bench.set_up(ctx, command, program, timing)
            script = command_script(command, program, timing, Counter()) or ["busy"]
            causes = await bench.execute(ctx, script, machine, random_)
            assert causes == [SLOT_CAUSE.get(symbol, symbol) for symbol in script]
            assert np.array_equal(machine.sram, expected.sram)
            assert np.array_equal(machine.dram, expected.dram)
            if random_.random() < 0.5:
                await ctx.tick()

    bench.simulator.add_testbench(run)
    bench.simulator.run()
