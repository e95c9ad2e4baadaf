"""More memory, elements or bandwidth do not cost cycles."""

from __future__ import annotations

from benchmarks.compiler import Points, measure, slower


def test_larger_machines_are_not_slower() -> None:
    """A network that took more cycles with more memory, when its residents were chosen for one plan alone."""
    points: Points = {}
    for part in measure("resnext-11", ("4x4", "8x8", "16x16"), (64, 128, 256, 512), (4, 8)):
        points |= part
    assert len(points) == 3 * 4 * 2
    assert list(slower(points)) == []
