"""Limiters of a network and of its most expensive layers, from the breakdown of their cycles.

One sentence describes each limiter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.report.schema import Figures, Layer, RunReport

MOST_LAYERS = 10
"""Number of layers described."""
LARGE = 0.15
"""Least share of the cycles for a second part to be named."""


@dataclass(frozen=True)
class Limit:
    """Limiter of a layer or of the whole run.

    ``parts`` are the parts of its ``cycles`` (docs/machine.md, section 7), largest first.
    """

    name: str
    cycles: int
    parts: tuple[tuple[str, int], ...]
    utilisation: float
    moved_bytes: int

    @property
    def sentence(self) -> str:
        """Text that explains the limiter of a layer or a run, with its figures.

        It names the second cause too if its share is large.
        """
        told = [
            self._explain_part(*part)
            for number, part in enumerate(self.parts[:2])
            if not number or self._large(part[1])
        ]
        return ", and ".join(told) or "takes no cycles"

    def _large(self, cycles: int) -> bool:
        return cycles >= LARGE * self.cycles

    def _explain_part(self, part: str, cycles: int) -> str:
        sentence = _ON_LANES if part == "compute" and not self.utilisation else _SENTENCES[part]
        share = cycles / self.cycles
        moved = f"{self.moved_bytes / 1024:,.1f} KiB"
        return sentence.format(share=share, waits=cycles, moved=moved, full=self.utilisation)


_SENTENCES = {
    "compute": "computes in {share:.0%} of its cycles, with {full:.0%} of the array at work",
    "scratchpad": "waits {waits:,} cycles for banks of the scratchpad, which serve operands in "
    "turn",
    "weights": "waits {waits:,} cycles for its constants; {moved} cross the bus",
    "input": "waits {waits:,} cycles for its input; {moved} cross the bus",
    "bus": "waits {waits:,} cycles for the bus, which others have; {moved} cross it",
    "store": "waits {waits:,} cycles for its stores; {moved} cross the bus",
    "issue": "waits {waits:,} cycles for commands: it is small, and setting it up takes longer "
    "than it does",
}


_ON_LANES = "computes in {share:.0%} of its cycles, on the lanes: it has nothing for the array"


def whole(found: Figures | RunReport) -> Limit:
    """Return the limiter of a whole run."""
    parts: Counter[str] = Counter()
    for layer in found.layers:
        parts.update(layer.breakdown)
    totals = found.totals
    moved = totals.dram_read_bytes + totals.dram_write_bytes
    return _limit("all layers", totals.cycles, parts, totals.utilization, moved)


def most_expensive(found: Figures) -> tuple[Limit, ...]:
    """Return the limiters of the most expensive layers, most cycles first.

    Ties keep the order of the layers.
    """
    ranked = sorted(found.layers, key=lambda layer: -layer.cycles)
    return tuple(layer_limit(layer) for layer in ranked[:MOST_LAYERS] if layer.cycles)


def layer_limit(layer: Layer) -> Limit:
    """Return the limiter of a layer."""
    moved = layer.dram_read_bytes + layer.dram_write_bytes
    return _limit(layer.name, layer.cycles, layer.breakdown, layer.utilization, moved)


def _limit(
    name: str, cycles: int, parts: Mapping[str, int], utilisation: float, moved: int
) -> Limit:
    """Return a limiter whose cycle categories are sorted by cycles.

    Ties keep the order of docs/machine.md.
    """
    found = sorted(
        ((part, taken) for part, taken in parts.items() if taken), key=lambda one: -one[1]
    )
    return Limit(name, cycles, tuple(found), utilisation, moved)
