"""What a run did, from its traces or from the row of a sweep: the same counts either way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from experiments.cost.estimate import Activity, estimate
from experiments.cost.table import CostTable
from isa.arch import Arch, PeArray

if TYPE_CHECKING:
    from dla_sim.trace import Trace

COMMAND_WORD_BYTES = 8
COLUMNS = ("estimated_energy_pj", "estimated_area_um2")
"""Columns that a cost table adds to the rows of a sweep; None in rows that did not end ok."""

Row = Mapping[str, Any]


def run_activity(traces: Iterable[Trace]) -> Activity:
    """What the regions of a run did together."""
    total = Activity(0, 0, 0, 0)
    for trace in traces:
        moved = trace.dram_read_bytes + trace.dram_write_bytes + trace.fetch_bytes
        total += Activity(trace.macs, trace.sram_moved_bytes, moved, trace.register_writes)
    return total


def row_activity(row: Row) -> Activity:
    """What the point of a row (as ``experiments.sweep.frame.flat_rows`` has them) did; its status must be ok."""
    words = row["instructions"] + row["register_writes"]
    return Activity(
        macs=row["macs"],
        sram_bytes=row["sram_moved_bytes"],
        dram_bytes=row["dram_read_bytes"] + row["dram_write_bytes"] + COMMAND_WORD_BYTES * words,
        register_writes=row["register_writes"],
    )


def costed(rows: Iterable[Row], table: CostTable) -> Iterator[dict[str, Any]]:
    """The rows of a sweep with the columns :data:`COLUMNS`: estimates by ``table``."""
    for row in rows:
        found = estimate(table, _arch(row), row_activity(row)) if row["status"] == "ok" else None
        values = (None, None) if found is None else (found.energy_pj.total, found.area_um2.total)
        yield {**row, **dict(zip(COLUMNS, values, strict=True))}


def _arch(row: Row) -> Arch:
    pe = PeArray(**{name: row[f"pe.{name}"] for name in PeArray.model_fields})
    return Arch(pe=pe, sram_bytes=row["sram_bytes"], sram_banks=row["sram_banks"])
