"""The charts of two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.report.charts.model import Bars, Chart, Series
from experiments.report.charts.style import FASTER, FIRST, SECOND, SLOWER
from experiments.report.comparison import cycles_of

if TYPE_CHECKING:
    from experiments.report.comparison import Comparison


def comparison_charts(found: Comparison) -> tuple[Chart, ...]:
    """All charts; none where neither run has a layer."""
    return (change_chart(found), cycles_chart(found), traffic_chart(found), kinds_chart(found)) if found.layers else ()


def _names(found: Comparison) -> tuple[str, ...]:
    return tuple(pair.name for pair in found.layers)


def change_chart(found: Comparison) -> Bars:
    """How many cycles each layer gained or lost."""
    changes = [pair.change for pair in found.layers]
    series = (
        Series("B is faster", tuple(min(change, 0) for change in changes), FASTER),
        Series("B is slower", tuple(max(change, 0) for change in changes), SLOWER),
    )
    axis = "cycles of B less cycles of A"
    note = "A layer and its requantisation count as one. The changes add up to the change of the total."
    title = "Change of cycles per layer"
    return Bars("layer-changes", title, axis, "cycles", _names(found), series, note=note)


def cycles_chart(found: Comparison) -> Bars:
    """Cycles of each layer in both runs."""
    series = (
        Series("A", tuple(cycles_of(pair.before) for pair in found.layers), FIRST),
        Series("B", tuple(cycles_of(pair.after) for pair in found.layers), SECOND),
    )
    return Bars("layer-cycles", "Cycles per layer", "cycles", "cycles", _names(found), series, grouped=True)


def traffic_chart(found: Comparison) -> Bars:
    """Bytes that each layer read from and wrote to system memory, in both runs."""
    moved = [
        tuple(sums.dram_bytes / 1024 if sums else 0 for sums in (pair.before, pair.after)) for pair in found.layers
    ]
    series = (
        Series("A", tuple(one for one, _ in moved), FIRST),
        Series("B", tuple(other for _, other in moved), SECOND),
    )
    title, axis = "DRAM traffic per layer, read and written", "DRAM traffic (KiB)"
    return Bars("layer-traffic", title, axis, "KiB", _names(found), series, grouped=True)


def kinds_chart(found: Comparison) -> Bars:
    """Cycles of the run by kind, in both runs."""
    labels = tuple(kind for kind, _, _ in found.kinds)
    series = (
        Series("A", tuple(one for _, one, _ in found.kinds), FIRST),
        Series("B", tuple(other for _, _, other in found.kinds), SECOND),
    )
    return Bars("kind-cycles", "Cycles by kind", "cycles", "cycles", labels, series, layers=False, grouped=True)
