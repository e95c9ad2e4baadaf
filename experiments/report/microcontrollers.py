"""A network on microcontrollers, alone and with the accelerator: estimated cycles as a table."""

from collections.abc import Iterable
from typing import NamedTuple

from byoc.compiled import Partition
from byoc.estimate.constants import MICROCONTROLLERS
from byoc.host.sessions import estimate_microcontroller_cycles
from experiments.report.schema import EndToEnd
from experiments.report.terminal import ReportTable, plain_table


class MicrocontrollerEntry(NamedTuple):
    """Estimated cycles of one inference, whose parts run one after another at one clock.

    ``transfer_cycles`` is None if the machine's description does not count transfers.
    """

    microcontroller: str
    accelerator: bool
    cpu_cycles: int
    dla_cycles: int
    transfer_cycles: int | None
    cycles: int


def compare_microcontrollers(
    partition: Partition, whole: EndToEnd
) -> tuple[MicrocontrollerEntry, ...]:
    """Return the cycles on every microcontroller, alone and with the accelerator of ``whole``."""
    graph = partition.graph
    left = [node for part in partition.host_parts for node in part.nodes]
    entries = []
    for cpu in MICROCONTROLLERS:
        alone = estimate_microcontroller_cycles(graph, graph.nodes, cpu)
        rest = estimate_microcontroller_cycles(graph, left, cpu)
        moved = whole.transfer_cycles
        total = rest + whole.dla_cycles + (moved or 0)
        entries += [
            MicrocontrollerEntry(cpu, False, alone, 0, 0, alone),
            MicrocontrollerEntry(cpu, True, rest, whole.dla_cycles, moved, total),
        ]
    return tuple(entries)


def microcontroller_table(entries: Iterable[MicrocontrollerEntry]) -> ReportTable:
    """Return the table of ``dla partition --microcontrollers``."""
    names = ("CPU", "accelerator", "transfers", "end to end")
    columns = (("estimated cycles on", "left"), *((name, "right") for name in names))
    rows = (
        (
            f"{entry.microcontroller} and accelerator" * entry.accelerator
            or f"{entry.microcontroller} alone",
            *("not counted" if cycles is None else f"{cycles:,}" for cycles in entry[2:]),
        )
        for entry in entries
    )
    return plain_table(*columns, rows=rows)
