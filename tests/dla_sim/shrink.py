"""Shrink a failing case to smaller ones that still fail, until no simplification does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from isa.arch import PACKED, Arch, PeArray
from isa.plugins import variant
from tests.dla_sim.cases import NO_FLASH, NO_ROWS, Case, Step, legal_steps

PLAIN_TIMING = {
    "bus_bytes": 8, "burst_bytes": 64, "dram_latency": 0, "outstanding_bursts": 16,
    "dram_rate": None,
    "queue_depth": 4,
    "fetch_bytes": 512, "fetch_buffers": 4, "dma_setup": 1, "dma_drain": 0, "ex_fill": 1,
    "ex_drain": 0,
    "sync_cycles": 1, "sram_read_bytes": 0, "sram_write_bytes": 0, "bank_ports": 4,
    **NO_ROWS, **NO_FLASH,
}  # fmt: skip
PLAIN_ARCH = Arch(isa="v4", pe=PeArray(ic=8, oc=8, ow=1), alignment=1)
PLAIN_WORDS = Arch(isa=PACKED, pe=PLAIN_ARCH.pe)
RESET = variant(PLAIN_ARCH.isa).register_file.reset


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A case that fails and none of whose simplifications does.

    ``fails`` must be True of ``case``.
    """
    case = replace(case, steps=legal_steps(case.steps))
    while True:
        smaller = next((candidate for candidate in simplifications(case) if fails(candidate)), None)
        if smaller is None:
            return case
        case = smaller


def simplifications(case: Case) -> Iterator[Case]:
    """Cases that are one simplification away from ``case``, the boldest first."""
    yield from _fewer_steps(case)
    plain = PLAIN_ARCH if case.arch.words is None else PLAIN_WORDS
    if case.arch != plain and (
        plain.words is None or case.timing["bus_bytes"] <= plain.words.word // 2
    ):
        yield replace(case, arch=plain)
    if case.command_address != 1 << 17:
        yield replace(case, command_address=1 << 17)
    for name in ("segments", "tensors"):
        ranges = getattr(case, name)
        for number in range(len(ranges)):
            yield replace(case, **{name: (*ranges[:number], *ranges[number + 1 :])})
    for name, value in PLAIN_TIMING.items():
        timing = {**case.timing, name: value}
        if case.timing[name] != value and _is_machine(timing, case.arch):
            yield replace(case, timing=timing)
    for number, step in enumerate(case.steps):
        for simpler in _simpler_steps(step):
            steps = (*case.steps[:number], simpler, *case.steps[number + 1 :])
            yield replace(case, steps=legal_steps(steps))


def _is_machine(timing: Mapping[str, Any], arch: Arch) -> bool:
    """Return True if every burst has a beat, and flash and bus are narrow enough.

    The flash is no wider than the bus, and the bus no wider than half a word.
    """
    if arch.words is not None and timing["bus_bytes"] > arch.words.word // 2:
        return False
    burst, bus, flash_burst, flash = (
        timing[name] for name in ("burst_bytes", "bus_bytes", "flash_burst_bytes", "flash_bytes")
    )
    rates = (Fraction(timing["dram_rate"] or bus), Fraction(timing["flash_rate"] or flash))
    return (
        burst >= bus >= flash
        and flash_burst >= flash
        and bus >= rates[0]
        and (not timing["dram_row_bytes"] or timing["dram_row_bytes"] >= burst)
        and not 0 < timing["dram_refresh_interval"] <= timing["dram_refresh_cycles"]
        and (flash >= rates[1] or not flash)
    )


def _fewer_steps(case: Case) -> Iterator[Case]:
    """The case without a run of its steps: all of them first, single steps last."""
    length = len(case.steps)
    while length:
        for first in range(0, len(case.steps), length):
            steps = case.steps[:first] + case.steps[first + length :]
            yield replace(case, steps=legal_steps(steps))
        length //= 2


def _simpler_steps(step: Step) -> Iterator[Step]:
    """The step without a flag, without padding or layer, or with a smaller register."""
    for flag in sorted(step.flags):
        yield replace(step, flags=step.flags - {flag})
    if step.padding:
        yield replace(step, padding=0)
        yield replace(step, padding=step.padding - 1)
    if step.layer:
        yield replace(step, layer="", kind="")
    for name, value in step.registers.items():
        smallest = RESET[name]
        for smaller in sorted({smallest, smallest + (value - smallest) // 2, value - 1}):
            if smallest <= smaller < value:
                yield replace(step, registers={**step.registers, name: smaller})
