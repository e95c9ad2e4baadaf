"""Random legal programs with bytes that mean something, on random machines: :func:`random_cases`.

Every other one is an instruction of level 10 of the catalogue, loaded and stored, on numbers as
networks have them. The rest are the programs that the timing models are compared with, made legal
in what they compute too: scales are drawn, channel records lie where nobody writes, and a step is
taken out that no instruction defines.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from dla_sim.rtl.parameters import Limits
from dla_sim.rtl.simulator.case import Case, Expectation, Preload, expect
from dla_sim.timing import Timing
from experiments.golden.observe import tensors
from experiments.rtl.hardware import LEAST_PIPELINE
from isa.access import Access, overlap
from isa.arch import Arch
from isa.errors import InputError
from isa.ops import ALL
from isa.program import Program
from tests.dla_sim import cases
from tests.dla_sim.cases import Step, build_program
from tests.dla_sim.program_generator import random_case, random_flash, random_timing
from tests.dla_sim.rtl.small_machines import reduce_to_limits
from tests.golden_cases.level10 import DRAWS, YOUNGER, random_arch

RECORDS = 16


def random_cases(seeds: Iterable[int], largest: Limits) -> Iterator[Case]:
    """Yield the cases of the seeds, for machines with an array and lanes of at most that size.

    A seed always gives the same case.
    """
    for seed in seeds:
        yield _drawn(seed, largest) if seed % 2 else _mixed(seed, largest)


def has_long_pipeline(seed: int) -> bool:
    """Return True if the machine has enough fill and drain for pipeline registers."""
    return seed // 2 % 2 == 1


def _timing(seed: int, given: dict[str, int]) -> Timing:
    rng = random.Random(f"pipeline {seed}")
    half = -(-LEAST_PIPELINE // 2)
    long = {"ex_fill": rng.randint(half, 2 * half), "ex_drain": rng.randint(half, 2 * half)}
    return Timing.model_validate({**given, **(long if has_long_pipeline(seed) else {})})


def _drawn(seed: int, largest: Limits) -> Case:
    """One instruction, on operands that it is made for."""
    rng = np.random.default_rng([seed, 16])
    other = random.Random(f"drawn {seed}")
    draws = {**DRAWS, **YOUNGER}
    name = list(draws)[int(rng.integers(len(draws)))]
    constants = random_timing(other)
    constants |= random_flash(other, constants["bus_bytes"]) if other.random() < 0.3 else {}
    timing = _timing(seed, constants)
    arch = reduce_to_limits(random_arch(rng, "v4"), largest)
    made = draws[name](rng, f"random/{seed}-{name}", arch, timing)
    inputs = tensors(made.program, made.inputs)
    return Case(made.name, made.program, inputs, timing, expect(made.program, inputs, timing))


def _mixed(seed: int, largest: Limits) -> Case:
    """Many commands on all units, on random bytes."""
    rng = np.random.default_rng([seed, 15])
    case = random_case(seed, memories="plain")
    case = replace(case, arch=reduce_to_limits(case.arch, largest))
    drawn = random.Random(f"mixed {seed}")
    timing = _timing(seed, dict(case.timing))
    steps = [_with_numbers(step, case.arch, drawn) for step in case.steps]
    while True:
        program = build_program(replace(case, steps=tuple(steps)))
        before = _before(program, case, np.random.default_rng([seed, 14]))
        inputs = {
            tensor.name: rng.integers(-128, 128, tensor.shape, dtype=np.int8)
            for tensor in program.inputs
        }
        wrong = _wrong(program)
        if wrong is None:
            try:
                with np.errstate(divide="raise", invalid="raise"):
                    expected = expect(program, inputs, timing, before)
            except InputError as error:
                numbers = [
                    number
                    for number, command in enumerate(program.commands)
                    if command.index in error.words
                ]
                wrong = max(numbers)
            else:
                wrong = _undefined(expected)
        if wrong is None:
            return Case(f"random/{seed}", program, inputs, timing, expected, before)
        del steps[wrong]


def _with_numbers(step: Step, arch: Arch, rng: random.Random) -> Step:
    """Return the step with scales, shifts, zero points, limits and channel records."""
    drawn: dict[str, int] = {}
    for name in ALL[step.mnemonic].registers:
        if name.startswith("EX_SCALE"):
            drawn[name] = int(np.float32(rng.uniform(0.01, 0.2)).view(np.int32))
        elif name.startswith("EX_SHIFT"):
            drawn[name] = rng.randint(0, 8)
        elif name.endswith("ZERO_POINT"):
            drawn[name] = rng.choice((0, rng.randint(-128, 127)))
        elif name == "EX_CHANNEL_ADDRESS":
            drawn[name] = _records_at(arch)
    return replace(step, registers={**step.registers, **drawn})


def _records_at(arch: Arch) -> int:
    """The channel records are the last bytes of the scratchpad."""
    return arch.sram_bytes - RECORDS * arch.channel_record_bytes


def _records(
    arch: Arch, rng: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Records as compilers make them: a bias, and a factor of about a hundredth."""
    bias = rng.integers(-2000, 2000, RECORDS).astype(np.int32)
    if arch.numerics == "fixed":
        factor = rng.integers(1 << 30, 1 << 31, RECORDS)
        shift = rng.integers(-9, -4, RECORDS)
        columns = [bias, factor.astype(np.int32), shift.astype(np.int32)]
    else:
        columns = [bias, rng.uniform(0.001, 0.05, RECORDS).astype(np.float32).view(np.int32)]
    return np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint8).reshape(-1)


def _before(program: Program, case: cases.Case, rng: np.random.Generator) -> Preload:
    """Random bytes everywhere but in the command words, and channel records."""
    first = program.command_address
    end = program.command_address + 8 * len(program.words)
    sram = rng.integers(0, 256, case.arch.sram_bytes, dtype=np.uint8)
    low, high = (
        rng.integers(0, 256, size, dtype=np.uint8) for size in (first, program.dram_bytes - end)
    )
    return Preload(
        ((0, sram), (_records_at(case.arch), _records(case.arch, rng))), ((0, low), (end, high))
    )


def _wrong(program: Program) -> int | None:
    """Return a command that overwrites channel records or its own operands.

    A command that would read more records than there are counts too.
    """
    arch = program.arch
    area = Access("sram", _records_at(arch), arch.sram_bytes - _records_at(arch))
    for number, command in enumerate(program.commands[:-1]):
        operands = command.instruction.operands(command, arch)
        kept = [area, *operands.reads]
        written = [access for access in operands.writes if access.total]
        if any(
            overlap(write, access) for write in written for access in kept if access.total
        ) or any(
            access.total and access.end > arch.sram_bytes
            for access in operands.reads
            if access.space == "sram"
        ):
            return number
    return None


def _undefined(expected: Expectation) -> int | None:
    """Return the command with undefined values, if there is one."""
    if expected.until is None:
        return None
    done = [
        number
        for number, start in enumerate(expected.trace.times.start.tolist())
        if start == expected.until
    ]
    return next(number for number in done if not expected.writes[number])
