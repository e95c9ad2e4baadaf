"""Coverage that random programs must reach before equal timing models mean anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from isa.arch import PACKED
from isa.ops import ALL
from tests.dla_sim.program_generator import COMPUTE, ISA
from tests.dla_sim.tick import TickResult

BURSTS = (
    "bound by burst_gap",
    "bound by its beats",
    "bound by its rate",
    "with a partial bus word",
)
COMMON = (
    "bus: fetch + LD", "bus: fetch + ST", "bus: LD + ST", "bus: fetch + LD + ST",
    *(f"{memory}: burst {what}" for memory in ("dram", "flash") for what in BURSTS),
    "dram: data phase with row misses", "dram: refresh in a data phase",
    *(f"{unit} transfer, {memory}" for unit in ("LD", "ST") for memory in ("dram", "flash")),
    "LD transfer of zero bytes", "ST transfer of zero bytes", "LD transfer of some bytes",
    "ST transfer of some bytes",
    "transfer of several rows", "command of no cycles, which takes one",
    "command processor waits for a chunk", "chunk requested when a buffer was freed",
    "OP_END waits",
    "queue of LD full", "queue of EX full", "queue of ST full",
    "token popped in the cycle of its push", "EX waits for both tokens",
    "several units complete in one cycle",
    "EX command not bound by the scratchpad", "EX command of zero compute cycles",
    "OP_SYNC on LD", "OP_SYNC on EX", "OP_SYNC on ST", "OP_DMA_READ", "OP_DMA_WRITE",
)  # fmt: skip
REQUESTERS = (
    "activations",
    "weights",
    "records",
    "sums",
    "tables",
    "columns",
    "rows",
    "results",
    "a",
    "b",
    "input",
    "one",
    "several",
)
OWN: Mapping[str, tuple[str, ...]] = {
    ISA: tuple("EX command bound by "
               f"{what}" for what in ("bank conflict", "read ports", "write ports")),
    PACKED: (
        *(f"words: EX command bound by a bank with {requester}" for requester in REQUESTERS),
        *(f"words: {what}" for what in (
            "EX command of operands in several banks",
            "EX command bound by the port of records, sums and tables",
            "EX command delayed by LD or ST", "the lanes take longer than the array",
            "a stripe that fills the accumulators", "a block bound by its weights",
            "a block bound by its steps",
            "activations of a step each", "activations in a stream",
            "rows of a stripe in one stream",
            "several words a step",
            "a block in several atoms", "several groups in a block",
            "a block of taps of several rows",
            "streams that share words", "groups with activations of their own",
            "several output columns side by side", "more parts than output columns",
            "fewer output columns than possible",
            "a copy again", "a copy pairs", "a copy in a stream",
            "several windows in a row", "several rows of windows", "several pieces of columns",
            "an array of less than an atom", "divisions bound by the dividers",
            "divisions bound by the lanes",
            "tables of channels", "transfer bound by the words of the scratchpad",
            "transfer bound by its bursts",
        )),
    ),
}  # fmt: skip
"""What machines of one variant alone exercise."""
_REFUSED = {"OP_DEPTH_CONV mapping": (1, 2, 3)}
"""Values of fields that machines of words do not have."""


def events(isa: str = ISA) -> tuple[str, ...]:
    """Return the events that programs of a variant must exercise.

    They are events of every machine, its own ones, instructions and options.
    """
    options = (
        f"{mnemonic} {field.name} = {value}"
        for mnemonic in COMPUTE[isa]
        for field in ALL[mnemonic].fields
        for value in range(field.highest + 1)
        if isa != PACKED or value not in _REFUSED.get(f"{mnemonic} {field.name}", ())
    )
    return (*COMMON, *OWN[isa], *COMPUTE[isa], *options)


CAUSES = {
    "LD": ("busy", "dram", "flash", "bus", "token_EX", "queue_empty", "drained"),
    "EX": ("busy", "sram", "token_LD", "token_ST", "queue_empty", "drained"),
    "ST": ("busy", "dram", "flash", "bus", "token_EX", "queue_empty", "drained"),
}
"""The causes that each unit can have: no more, and each must occur."""


def causes(isa: str = ISA) -> dict[str, tuple[str, ...]]:
    """Those of a variant: where the scratchpad has words LD and ST wait for it, too."""
    more = ("sram",) if isa == PACKED else ()
    return {
        unit: (*names, *(cause for cause in more if cause not in names))
        for unit, names in CAUSES.items()
    }


def coverage(results: Iterable[TickResult], isa: str = ISA) -> dict[str, tuple[int, int]]:
    """Rows of the coverage table: name -> (programs in which it occurred, how often in all)."""
    programs: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for result in results:
        found = Counter(result.events)
        for unit, row in result.causes.items():
            found.update({f"cause {unit} {cause}": cycles for cause, cycles in row.items()})
        times.update(found)
        programs.update(found.keys())
    rows = [
        *events(isa),
        *(f"cause {unit} {cause}" for unit, names in causes(isa).items() for cause in names),
    ]
    return {row: (programs[row], times[row]) for row in rows}


def format_coverage(table: dict[str, tuple[int, int]]) -> str:
    """The table as text, a row a line."""
    lines = [f"{'programs':>8} {'times':>10}  what occurred"]
    lines += [f"{programs:8d} {times:10d}  {row}" for row, (programs, times) in table.items()]
    return "\n".join(lines)


def missing_rows(table: dict[str, tuple[int, int]]) -> list[str]:
    """Rows that never occurred."""
    return [row for row, (programs, _) in table.items() if not programs]
