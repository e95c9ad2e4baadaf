"""Return what a command does in each cycle as a list of symbols.

The rules are docs/machine.md sections 5 (units), 6 (bursts) and 12 (words). A unit consumes one
symbol a cycle. ``busy``, ``dram``, ``flash``, ``sram`` are consumed as they come and name the
cycle's cause; ``BEAT`` and those of ``HELD`` are slots of the bus, consumed only in a cycle in
which the bus is granted to the unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from isa.access import Access
from isa.arch import Arch
from isa.instruction import Command
from isa.program import Program
from tests.dla_sim.tick import words
from tests.dla_sim.tick.constants import TimingConstants

BEAT = "beat"
HELD = {"dram": "held for dram", "flash": "held for flash", "sram": "held for sram"}
SHARED_PORT = "port of records, sums and tables"
SLOT_CAUSE = {BEAT: "busy", **{symbol: cause for cause, symbol in HELD.items()}}


class Memory(NamedTuple):
    """A memory behind the bus: its name as a cause, and its constants of section 2."""

    name: str
    width: int
    burst: int
    latency: int
    outstanding: int
    rate: Fraction


def memory_of(constant: bool, timing: TimingConstants) -> Memory:
    """Return the memory of constants and command words, or of everything else."""
    if constant and timing.flash_bytes > 0:
        return Memory(
            "flash",
            timing.flash_bytes,
            timing.flash_burst_bytes,
            timing.flash_latency,
            timing.flash_outstanding_bursts,
            _exact(timing.flash_rate or timing.flash_bytes),
        )
    return Memory(
        "dram",
        timing.bus_bytes,
        timing.burst_bytes,
        timing.dram_latency,
        timing.outstanding_bursts,
        _exact(timing.dram_rate or timing.bus_bytes),
    )


def _exact(rate: float | str) -> Fraction:
    """The rate as it is written."""
    return Fraction(f"{rate}")


def serve(nbytes: int, memory: Memory) -> int:
    """Cycles until a memory that serves its rate every cycle has served the bytes."""
    served = Fraction(0)
    cycles = 0
    while served < nbytes:
        served += memory.rate
        cycles += 1
    return cycles


def ceiling(numerator: int, denominator: int) -> int:
    """Smallest integer not below the quotient."""
    return (numerator + denominator - 1) // denominator


def transfer_slots(
    rows: Iterable[tuple[int, int]], memory: Memory, events: Counter[str]
) -> list[str]:
    """The slots of a transfer of half-open byte intervals of a memory, in order (section 6)."""
    gap = ceiling(memory.latency + serve(memory.burst, memory), memory.outstanding)
    slots: list[str] = []
    for start, end in rows:
        while start < end:
            stop = min(end, (start // memory.burst + 1) * memory.burst)
            bus_words = {byte // memory.width for byte in range(start, stop)}
            beats = len(bus_words)
            served = serve(stop - start, memory)
            held = max(beats, served, gap) - beats
            slots += [BEAT] * beats + [HELD[memory.name]] * held
            events[f"{memory.name}: burst bound by burst_gap"] += gap > max(beats, served)
            events[f"{memory.name}: burst bound by its rate"] += served > max(beats, gap)
            events[f"{memory.name}: burst bound by its beats"] += held == 0
            events[f"{memory.name}: burst with a partial bus word"] += (
                beats * memory.width != stop - start
            )
            start = stop
    return slots


def _streams_in_busiest_bank(streams: Iterable[Access], arch: Arch) -> int:
    """*m* of section 5: a stream belongs to every bank that its hull touches."""
    bank_bytes = arch.sram_bytes // arch.sram_banks
    banks: Counter[int] = Counter()
    for stream in streams:
        if stream.total > 0:
            for bank in range(stream.address // bank_bytes, (stream.end - 1) // bank_bytes + 1):
                banks[bank] += 1
    return max(banks.values(), default=0)


def _compute(
    command: Command, arch: Arch, timing: TimingConstants, events: Counter[str]
) -> list[str]:
    operands = command.instruction.operands(command, arch)
    compute = command.instruction.cycles(command, arch)
    conflicts = ceiling(
        _streams_in_busiest_bank((*operands.reads, *operands.writes), arch), timing.bank_ports
    )
    bounds = {"bank conflict": compute * max(1, conflicts)}
    if timing.sram_read_bytes:
        bounds["read ports"] = ceiling(
            sum(access.total for access in operands.reads), timing.sram_read_bytes
        )
    if timing.sram_write_bytes:
        bounds["write ports"] = ceiling(
            sum(access.total for access in operands.writes), timing.sram_write_bytes
        )
    longest = max(bounds.values())
    for name, bound in bounds.items():
        events[f"EX command bound by {name}"] += bound == longest > compute
    events["EX command not bound by the scratchpad"] += longest == compute
    events["EX command of zero compute cycles"] += compute == 0
    waiting = longest - compute
    return (
        ["busy"] * timing.ex_fill
        + ["busy"] * compute
        + ["sram"] * waiting
        + ["busy"] * timing.ex_drain
    )


def _compute_on_words(
    command: Command, arch: Arch, timing: TimingConstants, events: Counter[str]
) -> list[str]:
    """Section 12: what the array takes.

    Cycles that it waits for banks or the shared port come as the machine runs.
    """
    found = words.count(command, arch, events)
    events["EX command of zero compute cycles"] += found.cycles == 0
    return ["busy"] * timing.ex_fill + ["busy"] * found.cycles + ["busy"] * timing.ex_drain


def bank_numbers(access: Access, arch: Arch) -> range:
    """The banks that the hull of an access touches."""
    bank_bytes = arch.sram_bytes // arch.sram_banks
    return range(
        access.address // bank_bytes, (access.end - 1) // bank_bytes + 1 if access.total else 0
    )


def words_by_bank(command: Command, arch: Arch) -> dict[int | str, Counter[str]]:
    """Return the words that each bank and the shared port move for a command of EX.

    Section 12: records, sums and tables share the port.
    """
    found = words.count(command, arch, Counter()).words
    operands = command.instruction.operands(command, arch)
    banks: dict[int | str, Counter[str]] = {}
    for access, (name, taken) in zip(
        (*operands.reads, *operands.writes), found.items(), strict=True
    ):
        for number in bank_numbers(access, arch):
            banks.setdefault(number, Counter())[name] += taken
    banks[SHARED_PORT] = Counter(
        {name: taken for name, taken in found.items() if name in words.SHARING}
    )
    return banks


def command_script(
    command: Command, program: Program, timing: TimingConstants, events: Counter[str]
) -> list[str]:
    """The symbols of ``command``; what it exercises is counted in ``events``."""
    mnemonic = command.instruction.mnemonic
    events[mnemonic] += 1
    if mnemonic == "OP_SYNC":
        events[f"OP_SYNC on {command.unit.name}"] += 1
        script = ["busy"] * timing.sync_cycles
    elif mnemonic in ("OP_DMA_READ", "OP_DMA_WRITE"):
        script = _dma(command, program, timing, events)
    else:
        events.update(f"{mnemonic} {name} = {value}" for name, value in command.fields.items())
        compute = _compute if program.arch.words is None else _compute_on_words
        script = compute(command, program.arch, timing, events)
    return script


def _is_constant(address: int, program: Program) -> bool:
    """Section 6: in a segment of the program and in no tensor."""
    segments = any(one.address <= address < one.address + one.data.size for one in program.segments)
    return segments and not any(
        one.address <= address < one.address + one.nbytes for one in program.tensors
    )


def _dma(
    command: Command, program: Program, timing: TimingConstants, events: Counter[str]
) -> list[str]:
    operands = command.instruction.operands(command, program.arch)
    (side,) = (access for access in (*operands.reads, *operands.writes) if access.space == "dram")
    memory = memory_of(_is_constant(side.address, program), timing)
    slots = transfer_slots(side.runs(), memory, events)
    slots += _held_for_words(command, program.arch, len(slots), timing, events)
    events[f"{command.unit.name} transfer, {memory.name}"] += 1
    events[f"{command.unit.name} transfer of {'zero' if not slots else 'some'} bytes"] += 1
    events["transfer of several rows"] += len(side.dims) > 0 and len(slots) > 0
    setup = ["busy"] * timing.dma_setup
    latency = [memory.name] * memory.latency
    drain = ["busy"] * timing.dma_drain
    if command.instruction.mnemonic == "OP_DMA_READ":
        return setup + latency + slots + drain
    return setup + slots + latency + drain


def main_memory_rows(
    command: Command, program: Program, timing: TimingConstants
) -> list[tuple[int, int]]:
    """Byte intervals in the main memory that a transfer reads or writes, in order."""
    operands = command.instruction.operands(command, program.arch)
    (side,) = (access for access in (*operands.reads, *operands.writes) if access.space == "dram")
    constant = _is_constant(side.address, program)
    return [] if memory_of(constant, timing).name == "flash" else list(side.runs())


def _held_for_words(
    command: Command, arch: Arch, slots: int, timing: TimingConstants, events: Counter[str]
) -> list[str]:
    """Return the slots that the scratchpad's words take beyond those of the bursts.

    See section 12.
    """
    if arch.words is None:
        return []
    wanted = touched_words(command, arch)[0] * (arch.words.word // timing.bus_bytes)
    events["words: transfer bound by the words of the scratchpad"] += wanted > slots
    events["words: transfer bound by its bursts"] += wanted < slots
    return [HELD["sram"]] * max(0, wanted - slots)


def touched_words(command: Command, arch: Arch) -> tuple[int, range]:
    """Return the words that the rows of a transfer touch in the scratchpad, and its banks.

    See section 12.
    """
    assert arch.words is not None
    operands = command.instruction.operands(command, arch)
    (side,) = (access for access in (*operands.reads, *operands.writes) if access.space == "sram")
    touched = sum(
        len({byte // arch.words.word for byte in range(start, end)}) for start, end in side.runs()
    )
    return touched, bank_numbers(side, arch)
