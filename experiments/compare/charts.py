"""The charts of a comparison."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.compare.comparison import Comparison
from experiments.report.charts.model import Bars, Chart, Series
from experiments.report.charts.style import FASTER, FIRST, SECOND, SLOWER


def comparison_charts(found: Comparison) -> tuple[Chart, ...]:
    """All charts; none where neither side has a layer, and none of kinds where one side does not know them."""
    if not found.layers:
        return ()
    return (
        change_chart(found),
        cycles_chart(found),
        traffic_chart(found),
        *([kinds_chart(found)] if found.kinds else []),
    )


def _names(found: Comparison) -> tuple[str, ...]:
    return tuple(layer.name for layer in found.layers)


def change_chart(found: Comparison) -> Bars:
    """How many cycles each layer gained or lost."""
    changes = [layer.change for layer in found.layers]
    series = (
        Series("B is faster", tuple(min(change, 0) for change in changes), FASTER),
        Series("B is slower", tuple(max(change, 0) for change in changes), SLOWER),
    )
    axis = "cycles of B less cycles of A"
    note = "A layer and its requantisation count as one. The changes add up to the change of the total."
    title = "Change of cycles per layer"
    return Bars("layer-changes", title, axis, "cycles", _names(found), series, note=note)


def cycles_chart(found: Comparison) -> Bars:
    """Cycles of each layer on both sides."""
    series = _both([layer.figures["cycles"] for layer in found.layers])
    return Bars("layer-cycles", "Cycles per layer", "cycles", "cycles", _names(found), series, grouped=True)


def traffic_chart(found: Comparison) -> Bars:
    """Bytes that each layer read from and wrote to system memory, on both sides."""
    moved = []
    for layer in found.layers:
        read, written = layer.figures["dram_read_bytes"], layer.figures["dram_write_bytes"]
        moved.append(tuple(((one or 0) + (other or 0)) / 1024 for one, other in zip(read, written, strict=True)))
    title, axis = "DRAM traffic per layer, read and written", "DRAM traffic (KiB)"
    return Bars("layer-traffic", title, axis, "KiB", _names(found), _both(moved), grouped=True)


def kinds_chart(found: Comparison) -> Bars:
    """Cycles of the run by kind, on both sides."""
    series = _both(found.kinds.values())
    return Bars(
        "kind-cycles", "Cycles by kind", "cycles", "cycles", tuple(found.kinds), series, layers=False, grouped=True
    )


def _both(rows: Iterable[tuple[float | None, ...]]) -> tuple[Series, Series]:
    """A series a side; what is not there counts as 0."""
    first, second = zip(*rows, strict=True)
    return Series("A", tuple(one or 0 for one in first), FIRST), Series("B", tuple(one or 0 for one in second), SECOND)
