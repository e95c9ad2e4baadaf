"""What random programs must have exercised for the equality of the timing models to mean something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from isa.ops import ALL
from tests.dla_sim.program_generator import COMPUTE
from tests.dla_sim.tick import TickResult

OPTIONS = tuple(
    f"{mnemonic} {field.name} = {value}"
    for mnemonic in COMPUTE
    for field in ALL[mnemonic].fields
    for value in range(field.highest + 1)
)
BURSTS = ("bound by burst_gap", "bound by its beats", "with a partial bus word")
EVENTS = (
    "bus: fetch + LD", "bus: fetch + ST", "bus: LD + ST", "bus: fetch + LD + ST",
    *(f"{memory}: burst {what}" for memory in ("dram", "flash") for what in BURSTS),
    *(f"{unit} transfer, {memory}" for unit in ("LD", "ST") for memory in ("dram", "flash")),
    "LD transfer of zero bytes", "ST transfer of zero bytes", "LD transfer of some bytes", "ST transfer of some bytes",
    "transfer of several rows", "command of no cycles, which takes one",
    "command processor waits for a chunk", "chunk requested when a buffer was freed", "OP_END waits",
    "queue of LD full", "queue of EX full", "queue of ST full",
    "token popped in the cycle of its push", "EX waits for both tokens", "several units complete in one cycle",
    "EX command bound by bank conflict", "EX command bound by read ports", "EX command bound by write ports",
    "EX command not bound by the scratchpad", "EX command of zero compute cycles",
    "OP_SYNC on LD", "OP_SYNC on EX", "OP_SYNC on ST", "OP_DMA_READ", "OP_DMA_WRITE", *COMPUTE, *OPTIONS,
)  # fmt: skip
CAUSES = {
    "LD": ("busy", "dram", "flash", "bus", "token_EX", "queue_empty", "drained"),
    "EX": ("busy", "sram", "token_LD", "token_ST", "queue_empty", "drained"),
    "ST": ("busy", "dram", "flash", "bus", "token_EX", "queue_empty", "drained"),
}
"""The causes that each unit can have: no more, and each must occur."""


def coverage(results: Iterable[TickResult]) -> dict[str, tuple[int, int]]:
    """Rows of the coverage table: name -> (programs in which it occurred, how often in all)."""
    programs: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for result in results:
        found = Counter(result.events)
        for unit, causes in result.causes.items():
            found.update({f"cause {unit} {cause}": cycles for cause, cycles in causes.items()})
        times.update(found)
        programs.update(found.keys())
    rows = [*EVENTS, *(f"cause {unit} {cause}" for unit, causes in CAUSES.items() for cause in causes)]
    return {row: (programs[row], times[row]) for row in rows}


def format_coverage(table: dict[str, tuple[int, int]]) -> str:
    """The table as text, a row a line."""
    lines = [f"{'programs':>8} {'times':>10}  what occurred"]
    lines += [f"{programs:8d} {times:10d}  {row}" for row, (programs, times) in table.items()]
    return "\n".join(lines)


def missing_rows(table: dict[str, tuple[int, int]]) -> list[str]:
    """Rows that never occurred."""
    return [row for row, (programs, _) in table.items() if not programs]
