"""Limiters of a network and of its most expensive layers, from the breakdown of their cycles.

One sentence describes each limiter.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.figure import brief, size_text
from experiments.report.schema import Figures, Layer, RunReport, RunTotals

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
    utilisation: float | None
    macs: int
    read_bytes: int | None
    write_bytes: int | None

    @property
    def moved_bytes(self) -> int:
        """Bytes loaded and stored over the bus."""
        return (self.read_bytes or 0) + (self.write_bytes or 0)

    @property
    def bound(self) -> str:
        """Resource that takes most of the cycles: memory, compute, bank or issue."""
        shares = Counter[str]()
        for part, cycles in self.parts:
            shares[part if self._has_own_parts else _BOUNDS[part]] += cycles
        return max(shares, key=lambda one: shares[one], default="")

    @property
    def sentence(self) -> str:
        """Text that names the limiter of a layer or a run, with its figures.

        It names every cause with a large share.
        """
        if not self.parts:
            return "takes no cycles"
        shares = [
            f"{cycles / self.cycles:.0%}{'' if number else ' of its cycles'} "
            f"{f'are {part!r}' if self._has_own_parts else _DOES[part]}"
            for number, (part, cycles) in enumerate(self.parts)
            if not number or cycles >= LARGE * self.cycles
        ]
        return f"is {self.bound}-bound: it {self._work}; {', '.join(shares)}"

    @property
    def _has_own_parts(self) -> bool:
        """True for the parts of a described machine, which reports no bytes."""
        return self.read_bytes is None

    @property
    def _work(self) -> str:
        if self.read_bytes is None or self.write_bytes is None:
            return f"has {brief(self.macs)} MACs" if self.macs else "has no MACs"
        if self.bound == "compute" and self.utilisation is not None:
            used = f"uses {self.utilisation:.0%} of the array for {brief(self.macs)} MACs"
            return used if self.macs else "works on the lanes and has no MACs"
        does = f"loads {size_text(self.read_bytes)}"
        if self.write_bytes:
            does += f" and stores {size_text(self.write_bytes)}"
        return f"{does} for {brief(self.macs)} MACs"


_BOUNDS = {
    "compute": "compute",
    "scratchpad": "bank",
    "weights": "memory",
    "input": "memory",
    "bus": "memory",
    "store": "memory",
    "issue": "issue",
}
_DOES = {
    "compute": "compute",
    "scratchpad": "wait for banks of the scratchpad",
    "weights": "wait for weights",
    "input": "wait for input",
    "bus": "wait for the bus, which other transfers use",
    "store": "wait for stores",
    "issue": "wait for commands",
}


def whole(found: Figures | RunReport) -> Limit:
    """Return the limiter of a whole run."""
    parts: Counter[str] = Counter()
    for layer in found.layers:
        parts.update(layer.breakdown)
    return _limit("all layers", found.totals, parts)


def most_expensive(found: Figures | RunReport) -> tuple[Limit, ...]:
    """Return the limiters of the most expensive layers, most cycles first.

    Ties keep the order of the layers.
    """
    ranked = sorted(found.layers, key=lambda layer: -layer.cycles)
    return tuple(layer_limit(layer) for layer in ranked[:MOST_LAYERS] if layer.cycles)


def layer_limit(layer: Layer) -> Limit:
    """Return the limiter of a layer."""
    return _limit(layer.name, layer, layer.breakdown)


def _limit(name: str, found: Layer | RunTotals, parts: Mapping[str, int]) -> Limit:
    """Return a limiter whose cycle categories are sorted by cycles.

    Ties keep the order of docs/machine.md.
    """
    ranked = sorted(
        ((part, taken) for part, taken in parts.items() if taken), key=lambda one: -one[1]
    )
    return Limit(
        name,
        found.cycles,
        tuple(ranked),
        found.utilization,
        found.macs,
        found.dram_read_bytes,
        found.dram_write_bytes,
    )
