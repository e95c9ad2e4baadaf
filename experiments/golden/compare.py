"""Comparison of two snapshots: per layer values and figures, totals, and the largest movers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from experiments.golden.snapshot import FIGURES, LayerSnapshot, Snapshot
from experiments.running.check import TensorComparison, compare_tensors

Verdict = Literal["equal", "differ", "unknown", "only in A", "only in B"]
MOVERS = 10
Pair = tuple[int | None, int | None]


@dataclass(frozen=True)
class LayerDifference:
    """One layer on both sides: what became of its values, and its figures there (None where not known)."""

    name: str
    values: Verdict
    remark: str
    figures: Mapping[str, Pair]

    @property
    def cycles(self) -> int:
        """Cycles of B minus those of A; a side without the layer counts as 0."""
        before, after = self.figures["cycles"]
        return (after or 0) - (before or 0)


@dataclass(frozen=True)
class SnapshotDifference:
    """Two snapshots: titles, conditions that differ, layers in the order of A (those only in B last), totals."""

    titles: tuple[str, str]
    conditions: Mapping[str, tuple[str, str]]
    layers: tuple[LayerDifference, ...]
    totals: Mapping[str, Pair]

    @property
    def differing(self) -> tuple[LayerDifference, ...]:
        """Layers whose values differ."""
        return tuple(layer for layer in self.layers if layer.values == "differ")

    @property
    def movers(self) -> tuple[LayerDifference, ...]:
        """Up to :data:`MOVERS` layers whose cycles changed, the largest change first."""
        moved = sorted((layer for layer in self.layers if layer.cycles), key=lambda layer: -abs(layer.cycles))
        return tuple(moved[:MOVERS])


def compare_snapshots(a: Snapshot, b: Snapshot) -> SnapshotDifference:
    """What changed from ``a`` to ``b``."""
    first = {layer.name: layer for layer in a.layers}
    second = {layer.name: layer for layer in b.layers}
    layers = tuple(_layer(name, first.get(name), second.get(name)) for name in {**first, **second})
    keys = dict.fromkeys((*a.conditions, *b.conditions))
    texts = {key: (a.conditions.get(key, "unknown"), b.conditions.get(key, "unknown")) for key in keys}
    conditions = {key: pair for key, pair in texts.items() if pair[0] != pair[1]}
    totals: dict[str, Pair] = {name: (a.totals.get(name), b.totals.get(name)) for name in FIGURES}
    return SnapshotDifference((a.title, b.title), conditions, layers, totals)


def _layer(name: str, a: LayerSnapshot | None, b: LayerSnapshot | None) -> LayerDifference:
    verdict, remark = _values(a, b)
    sides = tuple(layer.figures if layer is not None else {} for layer in (a, b))
    figures: dict[str, Pair] = {key: (sides[0].get(key), sides[1].get(key)) for key in FIGURES}
    return LayerDifference(name, verdict, remark, figures)


def _values(a: LayerSnapshot | None, b: LayerSnapshot | None) -> tuple[Verdict, str]:
    if a is None:
        return "only in B", ""
    if b is None:
        return "only in A", ""
    if a.values is None or b.values is None:
        return "unknown", "no values are recorded"
    if a.values.keys() != b.values.keys():
        return "differ", "the layers have other tensors"
    for name, value in a.values.items():
        if value.shape != b.values[name].shape or value.dtype != b.values[name].dtype:
            return "differ", f"tensor '{name}' is {_type(value)} in A, {_type(b.values[name])} in B"
    found = compare_tensors(b.values, a.values)
    return ("differ", _first(found)) if found.mismatches else ("equal", "")


def _type(value: NDArray[Any]) -> str:
    return f"{value.dtype} {list(value.shape)}"


def _first(found: TensorComparison) -> str:
    first = found.first
    assert first is not None
    return (
        f"{found.mismatches} of {found.elements} elements, by at most {found.max_abs_diff}; the first in tensor "
        f"'{first.tensor}' at {list(first.coordinates)}: {first.expected} in A, {first.actual} in B"
    )


def difference_json(difference: SnapshotDifference) -> dict[str, Any]:
    """The comparison as plain JSON values."""
    return {
        "schema": "dla-golden-diff/1",
        "a": difference.titles[0],
        "b": difference.titles[1],
        "conditions": {key: list(pair) for key, pair in difference.conditions.items()},
        "totals": {key: list(pair) for key, pair in difference.totals.items()},
        "differing": [layer.name for layer in difference.differing],
        "movers": [{"name": layer.name, "cycles": layer.cycles} for layer in difference.movers],
        "layers": [
            {"name": layer.name, "values": layer.values, "remark": layer.remark}
            | {key: list(pair) for key, pair in layer.figures.items()}
            for layer in difference.layers
        ],
    }
