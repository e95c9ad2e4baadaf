"""Comparison of two snapshots: conditions, totals, and the values and figures of every layer.

A snapshot is one side of a comparison: a network on a machine, or a run report.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any, Literal

from numpy.typing import NDArray

from experiments.figure import all_figures, figures_of
from experiments.report.schema import Layer, RunReport, RunTotals
from experiments.running.check import compare_tensors
from isa.errors import InputError

RECORDED = ("cycles", "instructions", "dram_read_bytes", "dram_write_bytes", "macs")
"""Figures that snapshots of all versions record, in this order.

Newer figures follow them.
"""
_OF_LAYERS = {figure.name for figure in figures_of(Layer)}
COUNTED = {
    figure.name: figure
    for figure in figures_of(RunTotals)
    if figure.name == "instructions" or (figure.kind is int and figure.name in _OF_LAYERS)
}
"""Figures known for every layer and for the whole run, where they are the sum over the layers."""
FIGURES = tuple(
    sorted(COUNTED, key=lambda name: RECORDED.index(name) if name in RECORDED else len(RECORDED))
)
OF_RUNS = {figure.name: figure for figure in all_figures(RunReport)}
"""All figures that a run report may contain, by name."""
MILLISECONDS = "milliseconds"
"""Name of the only total that is not a figure: the time of the cycles at the machine's clock."""
MOVERS = 10
"""Maximum length of the list of layers with the largest changes."""

Verdict = Literal["equal", "differ", "unknown", "only in A", "only in B"]
Pair = tuple[float | None, float | None]


@dataclass(frozen=True, eq=False)
class LayerSnapshot:
    """One layer of a run's snapshot: its figures and its output tensors.

    ``figures`` holds the known ones of :data:`FIGURES` by name. ``values`` holds output tensors by
    name; None if the source of the snapshot does not contain them. ``kinds`` are the layer's kinds
    of operation; empty if unknown, as in a file.
    """

    name: str
    figures: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, NDArray[Any]] | None = None
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Recorded results of a network on one machine, for comparison.

    ``conditions`` describe the run: equal texts mean equal conditions. ``totals`` are by name,
    those of :data:`FIGURES` first. ``kinds`` (cycles by kind) and ``command`` are empty if unknown.
    """

    title: str
    conditions: Mapping[str, str]
    layers: tuple[LayerSnapshot, ...]
    totals: Mapping[str, float]
    kinds: Mapping[str, int] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True)
class LayerPair:
    """One layer in two compared runs A and B: verdict on its values, and its figures in both.

    Unknown figures are None.
    """

    name: str
    kinds: tuple[str, ...]
    values: Verdict
    remark: str
    figures: Mapping[str, tuple[int | None, int | None]]

    @property
    def change(self) -> int:
        """Cycles of the layer in run B minus run A; a run without the layer counts as 0."""
        before, after = self.figures["cycles"]
        return (after or 0) - (before or 0)


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Changes between two runs: differing conditions, totals, cycles by kind, and layers.

    ``kinds`` contains kinds that both sides record. Layers are matched by name and ordered as in A;
    layers of B alone come last.
    """

    a: Snapshot
    b: Snapshot
    conditions: Mapping[str, tuple[str, str]]
    totals: Mapping[str, Pair]
    kinds: Mapping[str, tuple[int, int]]
    layers: tuple[LayerPair, ...]

    @property
    def differing(self) -> tuple[LayerPair, ...]:
        return tuple(layer for layer in self.layers if layer.values == "differ")

    @property
    def movers(self) -> tuple[LayerPair, ...]:
        """Layers whose cycles differ between two runs, largest change first."""
        return tuple(
            sorted(
                (layer for layer in self.layers if layer.change),
                key=lambda layer: -abs(layer.change),
            )
        )

    @property
    def has_values(self) -> bool:
        """True if either of the compared snapshots records values of a layer."""
        return any(layer.values is not None for side in (self.a, self.b) for layer in side.layers)

    @property
    def verdict(self) -> str:
        """Short text that says whether the values of all layers are equal in two runs."""
        if self.differing:
            return f"{len(self.differing)} differ"
        known = sum(layer.values == "equal" for layer in self.layers)
        return "equal" if known == len(self.layers) else f"{known} equal"


@dataclass(frozen=True, eq=False)
class ManyRuns:
    """Runs to compare, named by the letters A, B, C and so on; raise InputError for too many."""

    sides: tuple[Snapshot, ...]

    def __post_init__(self) -> None:
        if len(self.sides) > len(ascii_uppercase):
            raise InputError(f"{len(self.sides)} runs; compare at most {len(ascii_uppercase)}")

    @property
    def letters(self) -> str:
        return ascii_uppercase[: len(self.sides)]

    def collect_rows(
        self, of_side: Callable[[Snapshot], Mapping[str, Any]]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield each key that a run has, with the value of each run; None if unknown."""
        tables = [of_side(side) for side in self.sides]
        for name in dict.fromkeys(name for one in tables for name in one):
            yield name, tuple(one.get(name) for one in tables)

    @property
    def layers(self) -> Iterator[tuple[str, tuple[int | None, ...]]]:
        """Cycles of each layer in each run; None if a run lacks the layer."""
        return self.collect_rows(
            lambda side: {layer.name: layer.figures.get("cycles") for layer in side.layers}
        )


def compare(a: Snapshot, b: Snapshot) -> RunComparison:
    """Compare two snapshots and return the changes from ``a`` to ``b``."""
    first = {layer.name: layer for layer in a.layers}
    second = {layer.name: layer for layer in b.layers}
    texts = {
        key: (a.conditions.get(key, "-"), b.conditions.get(key, "-"))
        for key in (*a.conditions, *b.conditions)
    }
    totals = {
        name: (a.totals.get(name), b.totals.get(name)) for name in (*FIGURES, *a.totals, *b.totals)
    }
    kinds = {name: (a.kinds[name], b.kinds[name]) for name in a.kinds if name in b.kinds}
    return RunComparison(
        a,
        b,
        {key: pair for key, pair in texts.items() if pair[0] != pair[1]},
        totals,
        {name: pair for name, pair in kinds.items() if any(pair)},
        tuple(_layer(name, first.get(name), second.get(name)) for name in {**first, **second}),
    )


def _layer(name: str, a: LayerSnapshot | None, b: LayerSnapshot | None) -> LayerPair:
    verdict, remark = _values(a, b)
    first, second = (layer.figures if layer is not None else {} for layer in (a, b))
    kinds = dict.fromkeys(kind for layer in (a, b) if layer is not None for kind in layer.kinds)
    return LayerPair(
        name,
        tuple(kinds),
        verdict,
        remark,
        {key: (first.get(key), second.get(key)) for key in FIGURES},
    )


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
    if found.first is None:
        return "equal", ""
    return "differ", (
        f"{found.mismatches} of {found.elements} elements, by at most {found.max_abs_diff}; the "
        f"first in tensor '{found.first.tensor}' at {list(found.first.coordinates)}: "
        f"{found.first.oracle} in A, {found.first.dla} in B"
    )


def _type(value: NDArray[Any]) -> str:
    return f"{value.dtype} {list(value.shape)}"


def comparison_json(found: RunComparison) -> dict[str, Any]:
    return {
        "schema": "dla-golden-diff/1",
        "a": found.a.title,
        "b": found.b.title,
        "conditions": {key: list(pair) for key, pair in found.conditions.items()},
        "totals": {key: list(found.totals[key]) for key in FIGURES},
        "differing": [layer.name for layer in found.differing],
        "movers": [{"name": layer.name, "cycles": layer.change} for layer in found.movers[:MOVERS]],
        "layers": [
            {"name": layer.name, "values": layer.values, "remark": layer.remark}
            | {key: list(pair) for key, pair in layer.figures.items()}
            for layer in found.layers
        ],
    }


def comparison_rows(found: RunComparison) -> list[dict[str, Any]]:
    """Return a table row per layer of two compared runs, with its verdict and all figures.

    Unknown figures are None.
    """
    return [
        {"layer": layer.name, "values": layer.values, "remark": layer.remark}
        | {
            f"{key}_{side}": value
            for key, pair in layer.figures.items()
            for side, value in zip("ab", pair, strict=True)
        }
        for layer in found.layers
    ]
