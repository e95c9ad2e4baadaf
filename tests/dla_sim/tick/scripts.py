"""What a command does in each cycle, as a list of symbols: docs/machine.md sections 5 (units), 6 (bursts), 12 (words).

A unit consumes one symbol a cycle. ``busy``, ``dram``, ``flash``, ``sram`` are consumed as they come and name the
cycle's cause; ``BEAT`` and those of ``HELD`` are slots of the bus, consumed only in a cycle in which the bus is granted
to the unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from isa.access import Access
from isa.arch import Arch
from isa.instruction import Command
from isa.program import Program
from tests.dla_sim.tick import words
from tests.dla_sim.tick.constants import TimingConstants

BEAT = "beat"
HELD = {"dram": "held for dram", "flash": "held for flash", "sram": "held for sram"}
SLOT_CAUSE = {BEAT: "busy", **{symbol: cause for cause, symbol in HELD.items()}}


class Memory(NamedTuple):
    """A memory behind the bus: its name as a cause, and its constants of section 2."""

    name: str
    width: int
    burst: int
    latency: int
    outstanding: int


def memory_of(constant: bool, timing: TimingConstants) -> Memory:
    """Where constants and command words lie, or everything else."""
    if constant and timing.flash_bytes > 0:
        return Memory(
            "flash", timing.flash_bytes, timing.flash_burst_bytes, timing.flash_latency, timing.flash_outstanding_bursts
        )
    return Memory("dram", timing.bus_bytes, timing.burst_bytes, timing.dram_latency, timing.outstanding_bursts)


def ceiling(numerator: int, denominator: int) -> int:
    """Smallest integer not below the quotient."""
    return (numerator + denominator - 1) // denominator


def transfer_slots(rows: Iterable[tuple[int, int]], memory: Memory, events: Counter[str]) -> list[str]:
    """The slots of a transfer of half-open byte intervals of a memory, in order (section 6)."""
    burst_beats = memory.burst // memory.width
    gap = ceiling(memory.latency + burst_beats, memory.outstanding)
    slots: list[str] = []
    for start, end in rows:
        while start < end:
            stop = min(end, (start // memory.burst + 1) * memory.burst)
            bus_words = {byte // memory.width for byte in range(start, stop)}
            beats = len(bus_words)
            held = max(0, gap - beats)
            slots += [BEAT] * beats + [HELD[memory.name]] * held
            events[f"{memory.name}: burst bound by burst_gap"] += held > 0
            events[f"{memory.name}: burst bound by its beats"] += held == 0
            events[f"{memory.name}: burst with a partial bus word"] += beats * memory.width != stop - start
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


def _compute(command: Command, arch: Arch, timing: TimingConstants, events: Counter[str]) -> list[str]:
    operands = command.instruction.operands(command, arch)
    compute = command.instruction.cycles(command, arch)
    conflicts = ceiling(_streams_in_busiest_bank((*operands.reads, *operands.writes), arch), timing.bank_ports)
    bounds = {"bank conflict": compute * max(1, conflicts)}
    if timing.sram_read_bytes:
        bounds["read ports"] = ceiling(sum(access.total for access in operands.reads), timing.sram_read_bytes)
    if timing.sram_write_bytes:
        bounds["write ports"] = ceiling(sum(access.total for access in operands.writes), timing.sram_write_bytes)
    longest = max(bounds.values())
    for name, bound in bounds.items():
        events[f"EX command bound by {name}"] += bound == longest > compute
    events["EX command not bound by the scratchpad"] += longest == compute
    events["EX command of zero compute cycles"] += compute == 0
    waiting = longest - compute
    return ["busy"] * timing.ex_fill + ["busy"] * compute + ["sram"] * waiting + ["busy"] * timing.ex_drain


def _compute_on_words(command: Command, arch: Arch, timing: TimingConstants, events: Counter[str]) -> list[str]:
    """Section 12: as long as the array, the busiest bank, or the port that records, sums and tables share takes."""
    assert arch.words is not None
    found = words.count(command, arch, events)
    operands = command.instruction.operands(command, arch)
    bank_bytes = arch.sram_bytes // arch.sram_banks
    banks: dict[int, Counter[str]] = {}
    for access, (name, taken) in zip((*operands.reads, *operands.writes), found.words.items(), strict=True):
        if access.total > 0:
            for number in range(access.address // bank_bytes, (access.end - 1) // bank_bytes + 1):
                banks.setdefault(number, Counter())[name] += taken
    every = arch.words.word // timing.bus_bytes
    longest = found.cycles
    shared = {name: taken for name, taken in found.words.items() if name in words.SHARING}
    for bank in banks.values():
        cycles = _with_bus(bank.total(), every)
        if cycles > longest:
            longest = cycles
            events.update(f"words: EX command bound by a bank with {name}" for name in bank)
            events[f"words: EX command bound by a bank with {'one' if len(bank) == 1 else 'several'}"] += 1
    cycles = _with_bus(sum(shared.values()), every)
    if cycles > longest:
        longest = cycles
        events["words: EX command bound by the port of records, sums and tables"] += 1
    events["words: EX command of operands in several banks"] += len(banks) > 1
    events["EX command not bound by the scratchpad"] += longest == found.cycles
    events["EX command of zero compute cycles"] += found.cycles == 0
    waiting = ["sram"] * (longest - found.cycles)
    return ["busy"] * timing.ex_fill + ["busy"] * found.cycles + waiting + ["busy"] * timing.ex_drain


def _with_bus(taken: int, every: int) -> int:
    """Cycles of a bank that serves EX so many words, every ``every``-th cycle being the bus's."""
    cycles = 0
    while taken > 0:
        cycles += 1
        taken -= cycles % every != 1
    return cycles


def command_script(command: Command, program: Program, timing: TimingConstants, events: Counter[str]) -> list[str]:
    """The symbols of ``command``; what it exercises is counted in ``events``. One that takes no cycle takes one."""
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
    events["command of no cycles, which takes one"] += not script
    return script or ["busy"]


def _is_constant(address: int, program: Program) -> bool:
    """Section 6: in a segment of the program and in no tensor."""
    segments = any(one.address <= address < one.address + one.data.size for one in program.segments)
    return segments and not any(one.address <= address < one.address + one.nbytes for one in program.tensors)


def _dma(command: Command, program: Program, timing: TimingConstants, events: Counter[str]) -> list[str]:
    operands = command.instruction.operands(command, program.arch)
    (side,) = (access for access in (*operands.reads, *operands.writes) if access.space == "dram")
    memory = memory_of(_is_constant(side.address, program), timing)
    slots = transfer_slots(side.runs(), memory, events)
    slots += _held_for_words(command, program.arch, len(slots), timing, events)
    events[f"{command.unit.name} transfer, {memory.name}"] += 1
    events[f"{command.unit.name} transfer of {'zero' if not slots else 'some'} bytes"] += 1
    events["transfer of several rows"] += len(side.dims) > 0 and len(slots) > 0
    setup, latency, drain = ["busy"] * timing.dma_setup, [memory.name] * memory.latency, ["busy"] * timing.dma_drain
    if command.instruction.mnemonic == "OP_DMA_READ":
        return setup + latency + slots + drain
    return setup + slots + latency + drain


def _held_for_words(
    command: Command, arch: Arch, slots: int, timing: TimingConstants, events: Counter[str]
) -> list[str]:
    """Section 12: the slots that the words of the scratchpad's side take beyond those of the bursts."""
    if arch.words is None:
        return []
    operands, word = command.instruction.operands(command, arch), arch.words.word
    (side,) = (access for access in (*operands.reads, *operands.writes) if access.space == "sram")
    touched = sum(len({byte // word for byte in range(start, end)}) for start, end in side.runs())
    wanted = touched * (word // timing.bus_bytes)
    events["words: transfer bound by the words of the scratchpad"] += wanted > slots
    events["words: transfer bound by its bursts"] += wanted < slots
    return [HELD["sram"]] * max(0, wanted - slots)
