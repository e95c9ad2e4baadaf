"""Two runs side by side: what changed in the conditions, the totals and the layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.report.schema import Layer, RunReport

SEPARATE_PART = ":requantise"
"""Ends the name of a layer that another schedule fuses into the one before it."""


@dataclass(frozen=True)
class Sums:
    """Figures of a layer, its parts taken together."""

    kinds: tuple[str, ...]
    cycles: int
    macs: int
    dram_bytes: int


@dataclass(frozen=True)
class LayerPair:
    """A layer in both runs; None where a run does not have it."""

    name: str
    before: Sums | None
    after: Sums | None

    @property
    def change(self) -> int:
        """Cycles of the second run less those of the first."""
        return cycles_of(self.after) - cycles_of(self.before)

    @property
    def kind(self) -> str:
        """What the layer is, by its first part."""
        found = self.before or self.after
        return found.kinds[0] if found else ""


@dataclass(frozen=True, eq=False)
class Comparison:
    """``layers`` in the first run's order, then those of the second alone. ``totals``: name, unit and both values."""

    before: RunReport
    after: RunReport
    totals: tuple[tuple[str, str, float, float], ...]
    kinds: tuple[tuple[str, int, int], ...]
    settings: tuple[tuple[str, Any, Any], ...]
    layers: tuple[LayerPair, ...]

    @property
    def movers(self) -> tuple[LayerPair, ...]:
        """The layers whose cycles changed, the largest change first."""
        changed = [pair for pair in self.layers if pair.change]
        return tuple(sorted(changed, key=lambda pair: -abs(pair.change)))


def cycles_of(sums: Sums | None) -> int:
    """Its cycles; none for a layer that is not there."""
    return sums.cycles if sums is not None else 0


def compare(before: RunReport, after: RunReport) -> Comparison:
    """Compare two runs. A layer and its requantisation count as one, as they are where the schedule fuses them."""
    first, second = _by_layer(before.layers), _by_layer(after.layers)
    names = dict.fromkeys([*first, *second])
    kinds = [(kind, before.kinds[kind], after.kinds[kind]) for kind in before.kinds]
    return Comparison(
        before,
        after,
        tuple(_totals(before, after)),
        tuple(row for row in kinds if row[1] or row[2]),
        tuple(_settings(before, after)),
        tuple(LayerPair(name, first.get(name), second.get(name)) for name in names),
    )


def _by_layer(layers: Iterable[Layer]) -> dict[str, Sums]:
    found: dict[str, Sums] = {}
    for layer in layers:
        name = layer.name.removesuffix(SEPARATE_PART)
        known = found.get(name, Sums((), 0, 0, 0))
        moved = layer.dram_read_bytes + layer.dram_write_bytes
        kinds = tuple(dict.fromkeys((*known.kinds, layer.kind)))
        found[name] = Sums(kinds, known.cycles + layer.cycles, known.macs + layer.macs, known.dram_bytes + moved)
    return found


_TOTALS = {
    "cycles": "cycles",
    "lower_bound_cycles": "cycles",
    "macs": "MACs",
    "dram_read_bytes": "bytes",
    "dram_write_bytes": "bytes",
    "sram_peak_bytes": "bytes",
    "instructions": "",
}


def _totals(before: RunReport, after: RunReport) -> Iterable[tuple[str, str, float, float]]:
    for name, unit in _TOTALS.items():
        yield name.replace("_", " "), unit, getattr(before.totals, name), getattr(after.totals, name)
    yield "utilisation", "%", 100 * before.totals.utilization, 100 * after.totals.utilization
    times = (1e3 * one.totals.cycles / one.timing["clock_hz"] for one in (before, after))
    yield "time", "ms", *times
    yield "nodes on the CPU", "", before.host.nodes, after.host.nodes
    yield "CPU (estimate)", "cycles", before.host.estimated_cycles, after.host.estimated_cycles


def _settings(before: RunReport, after: RunReport) -> Iterable[tuple[str, Any, Any]]:
    """Conditions that differ."""
    for name in ("model", "version", "schedule", "seed"):
        yield from _different(name, getattr(before, name), getattr(after, name))
    for name in ("arch", "timing"):
        first, second = flat(getattr(before, name)), flat(getattr(after, name))
        for key in dict.fromkeys([*first, *second]):
            yield from _different(key, first.get(key), second.get(key))
    for name in ("package", "input"):
        yield from _different(f"hash of the {name}", before.hashes.get(name), after.hashes.get(name))


def _different(name: str, first: Any, second: Any) -> Iterable[tuple[str, Any, Any]]:
    if first != second:
        yield name, first, second


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Keys of Arch or Timing as ``--set`` writes them: ``pe.ic``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found
