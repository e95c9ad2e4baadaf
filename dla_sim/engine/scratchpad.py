"""What the scratchpad's ports and banks cost EX (docs/machine.md, section 5, "Scratchpad")."""

from __future__ import annotations

from dla_sim.timing import Timing
from isa.access import Access
from isa.arch import Arch
from isa.instruction import Operands, ceil_div


def scratchpad_cycles(compute: int, operands: Operands, arch: Arch, timing: Timing) -> tuple[int, int]:
    """(compute cycles c, further cycles x that EX waits for the scratchpad)."""
    streams = [access for access in (*operands.reads, *operands.writes) if access.total]
    accesses = max(1, ceil_div(_crowd(streams, arch.sram_bytes // arch.sram_banks), timing.bank_ports))
    needed = compute * accesses
    if timing.sram_read_bytes:
        needed = max(needed, ceil_div(sum(access.total for access in operands.reads), timing.sram_read_bytes))
    if timing.sram_write_bytes:
        needed = max(needed, ceil_div(sum(access.total for access in operands.writes), timing.sram_write_bytes))
    return compute, needed - compute


def _crowd(streams: list[Access], bank_bytes: int) -> int:
    """The largest number of streams in one bank; a stream belongs to every bank that its hull touches."""
    banks = [(access.address // bank_bytes, (access.end - 1) // bank_bytes) for access in streams]
    # A bank with the most streams is always the first bank of one of them.
    return max((sum(low <= bank <= high for low, high in banks) for bank, _ in banks), default=0)
