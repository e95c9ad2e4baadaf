"""What a command does in each cycle, as a list of symbols: docs/machine.md sections 5 (units) and 6 (bursts).

A unit consumes one symbol a cycle. ``busy``, ``dram``, ``sram`` are consumed as they come and name the cycle's cause;
``BEAT`` and ``HELD`` are slots of the bus, consumed only in a cycle in which the bus is granted to the unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from isa.access import Access
from isa.arch import Arch
from isa.instruction import Command
from tests.dla_sim.tick.constants import TimingConstants

BEAT, HELD = "beat", "held"
SLOT_CAUSE = {BEAT: "busy", HELD: "dram"}


def ceiling(numerator: int, denominator: int) -> int:
    """Smallest integer not below the quotient."""
    return (numerator + denominator - 1) // denominator


def transfer_slots(rows: Iterable[tuple[int, int]], timing: TimingConstants, events: Counter[str]) -> list[str]:
    """The slots of a transfer of half-open byte intervals of system memory, in order (section 6)."""
    burst_beats = timing.burst_bytes // timing.bus_bytes
    gap = ceiling(timing.dram_latency + burst_beats, timing.outstanding_bursts)
    slots: list[str] = []
    for start, end in rows:
        while start < end:
            stop = min(end, (start // timing.burst_bytes + 1) * timing.burst_bytes)
            bus_words = {byte // timing.bus_bytes for byte in range(start, stop)}
            beats = len(bus_words)
            held = max(0, gap - beats)
            slots += [BEAT] * beats + [HELD] * held
            events["burst bound by burst_gap"] += held > 0
            events["burst bound by its beats"] += held == 0
            events["burst with a partial bus word"] += beats * timing.bus_bytes != stop - start
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


def command_script(command: Command, arch: Arch, timing: TimingConstants, events: Counter[str]) -> list[str]:
    """The symbols of ``command``; what it exercises is counted in ``events``. One that takes no cycle takes one."""
    mnemonic = command.instruction.mnemonic
    events[mnemonic] += 1
    if mnemonic == "OP_SYNC":
        events[f"OP_SYNC on {command.unit.name}"] += 1
        script = ["busy"] * timing.sync_cycles
    elif mnemonic in ("OP_DMA_READ", "OP_DMA_WRITE"):
        script = _dma(command, arch, timing, events)
    else:
        events.update(f"{mnemonic} {name} = {value}" for name, value in command.fields.items())
        script = _compute(command, arch, timing, events)
    events["command of no cycles, which takes one"] += not script
    return script or ["busy"]


def _dma(command: Command, arch: Arch, timing: TimingConstants, events: Counter[str]) -> list[str]:
    operands = command.instruction.operands(command, arch)
    (memory,) = (access for access in (*operands.reads, *operands.writes) if access.space == "dram")
    slots = transfer_slots(memory.runs(), timing, events)
    events[f"{command.unit.name} transfer of {'zero' if not slots else 'some'} bytes"] += 1
    events["transfer of several rows"] += len(memory.dims) > 0 and len(slots) > 0
    setup, latency, drain = ["busy"] * timing.dma_setup, ["dram"] * timing.dram_latency, ["busy"] * timing.dma_drain
    if command.instruction.mnemonic == "OP_DMA_READ":
        return setup + latency + slots + drain
    return setup + slots + latency + drain
