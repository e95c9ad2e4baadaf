"""Tables of docs/validation.md that attribute errors of ``vta`` and ``ethos-u85-256`` to layers.

The rows of Ethos-U85 come from a record that ``python -m benchmarks.ethos_streams`` writes. Those
of VTA are predicted twice, as declared and with read bursts that take one cycle less.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from pathlib import Path
from unittest.mock import patch

from experiments.machines import vta_figures, vta_tiles
from experiments.machines.discovery import list_machines
from experiments.machines.vta_tiles import VtaConvolution, VtaParameters

STREAMS = Path(__file__).parents[2] / "docs/figures/ethos-u85-streams.csv"
BUDGETS = ("staged", "1536 KiB", "1024 KiB")
CYCLES_PER_MS = 400_000
ETHOS_NETWORK = "inception-v3"
VTA_NETWORK = "resnet50_v2"
MOST_ROWS = 8

Cells = list[tuple[str, ...]]


def read_streams() -> list[dict[str, str]]:
    """Return the groups of layers of each network with our cycles and those of Vela's streams."""
    with STREAMS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def total_streams() -> dict[tuple[str, float], dict[str, float]]:
    """Return milliseconds by network and size of the file, for our machine and each stream."""
    totals: dict[tuple[str, float], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in read_streams():
        for column in ("ours", *BUDGETS):
            key = row["network"], float(row["file in MiB"])
            totals[key][column] += int(row[column]) / CYCLES_PER_MS
    return totals


def list_networks() -> Cells:
    """Return by network the times of our machine, of Vela's streams and of the chip."""
    totals = total_streams()
    published = {
        (one.network, size): one.value
        for one in list_machines()["ethos-u85-256"].published
        for _, size in totals
        if f"{size} MiB" in one.condition
    }
    return [
        (
            network,
            f"{size} MiB",
            f"{published[network, size]:.1f}",
            *(f"{times[column]:.1f}" for column in ("ours", *BUDGETS)),
        )
        for (network, size), times in totals.items()
    ]


def list_layers() -> Cells:
    """Return the groups of layers where our machine and the stream for 1,536 KiB differ most."""
    cells = []
    for row in (row for row in read_streams() if row["network"] == ETHOS_NETWORK):
        ours, staged, limited, least = (
            int(row[column]) / CYCLES_PER_MS for column in ("ours", *BUDGETS)
        )
        cells.append((row["layers"], row["number"], ours, staged - ours, limited - staged, least))
    cells.sort(key=lambda cell: -abs(cell[3] + cell[4]))
    rest = cells[MOST_ROWS:]
    cells[MOST_ROWS:] = [
        ("the others", str(sum(int(cell[1]) for cell in rest)),
         *(sum(cell[index] for cell in rest) for index in (2, 3, 4, 5)))
    ]  # fmt: skip
    return [
        (name, number, f"{ours:.1f}", f"{more:+.1f}", f"{again:+.1f}", f"{least - ours:+.1f}")
        for name, number, ours, more, again, least in cells
    ]


def _count(shape: VtaConvolution, saved: int) -> int:
    """Return the cycles of a convolution on VTA if a read burst takes ``saved`` cycles less."""
    burst = vta_tiles.READ_BURST - saved
    vta_tiles.count_read.cache_clear()
    try:
        with patch.object(vta_tiles, "READ_BURST", burst):
            return vta_figures.count_convolution.__wrapped__(shape, VtaParameters())
    finally:
        vta_tiles.count_read.cache_clear()


def list_vta_layers() -> Cells:
    """Return the convolutions of a network for which a shorter read burst saves most cycles."""
    shapes = Counter(vta_figures.list_convolutions(VTA_NETWORK))
    published = vta_figures.NETWORKS[VTA_NETWORK][3][1]
    cells = []
    for shape, number in shapes.items():
        ours = number * _count(shape, 0)
        name = (
            f"{shape.kernel} x {shape.kernel}, {16 * shape.inputs} to {16 * shape.outputs} "
            f"channels, {shape.rows} x {shape.columns}"
        )
        cells.append((name, number, ours, number * _count(shape, 1) - ours))
    cells.sort(key=lambda cell: cell[3])
    rest = cells[MOST_ROWS:]
    cells[MOST_ROWS:] = [
        ("the others", *(sum(cell[index] for cell in rest) for index in (1, 2, 3)))
    ]
    cells.append(("all", *(sum(cell[index] for cell in cells) for index in (1, 2, 3))))
    error = cells[-1][2] - published
    return [
        (name, str(number), f"{ours:,}", f"{change:+,}", f"{-change / error:.0%}")
        for name, number, ours, change in cells
    ]
