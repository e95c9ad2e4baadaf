"""Advice against sweeps: is the best single change of a sweep among the first three advised?

``python -m tests.experiments.advice_against_sweeps --count N`` measures the N smallest built-in
networks. The sweep changes one key of the machine at a time, to about 200 values within a factor
of 8, more and other values than ``dla advise`` tries. Advised options of the compiler and tunings
take places among the first three, although the sweep has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import dla
from byoc.options import DEFAULTS
from dla_sim.presets import Preset, apply_settings, load_hardware
from experiments.advise.advice import WORTH, Advised
from experiments.advise.bench import Bench
from experiments.cost.table import load_table
from experiments.running.network import load_network
from isa.errors import InputError

NETWORKS = (
    "digits-cnn", "micro-speech", "keyword-spotting", "streaming-wake-word", "autoencoder",
    "lstm-small", "resnet-8", "person-detection", "visual-wake-words", "resnext-11",
    "resnet-8-large", "mobilenet-v3-small", "shufflenet-v2", "mobilenet-v1", "mobilenet-v3-large",
    "squeezenet", "light-shufflenet", "mobilenet-v2", "light-squeezenet", "bert-2-128",
    "efficientnet-b0", "gpt2-1", "resnet-18", "light-alexnet", "bert-2-256", "wavenet",
    "ssd-mobilenet-v1", "vit-tiny", "lstm", "light-inception-v1", "unet", "super-resolution",
)  # fmt: skip
"""Networks of the comparison, smallest first."""
FIRST = 3
"""Number of advised changes that count."""
SHARE = 0.95
"""Share of the sweep's best gain that the advised change of this kind must bring."""
KINDS = {
    "sram_bytes": "scratchpad", "sram_banks": "banks", "pe.ic": "array", "pe.oc": "array",
    "pe.ow": "array", "bus_bytes": "bus", "burst_bytes": "burst", "dram_latency": "latency",
    "outstanding_bursts": "bursts in flight", "queue_depth": "queues", "fetch_bytes": "fetch",
    "post_lanes": "lanes",
}  # fmt: skip
"""Kinds of advised changes by the key that the sweep changes."""
POWERS = ("sram_banks", "bus_bytes", "burst_bytes")
"""Keys whose values are powers of two."""
VALUES = 17
"""Number of values that the sweep tries for each other key."""


@dataclass(frozen=True)
class SweptPoint:
    """One change of a sweep, its kind, and the cycles of accelerator and CPU together."""

    kind: str
    words: str
    both: int


@dataclass(frozen=True)
class Comparison:
    """Best change of a sweep over one network, and the first changes that are advised."""

    network: str
    points: int
    now: int
    best: SweptPoint
    advised: tuple[Advised, ...]

    @property
    def gain(self) -> int:
        return self.now - self.best.both

    @property
    def found(self) -> bool:
        """True if one of the first advised changes has the kind and the gain of the best.

        If no change of the sweep is worth listing, no change may be advised.
        """
        if self.gain <= WORTH * self.now:
            return not self.advised
        return any(
            one.change.what == self.best.kind and self.now - one.point.both >= SHARE * self.gain
            for one in self.advised[:FIRST]
        )

    def __str__(self) -> str:
        told = "; ".join(
            f"{one.change.words} {one.point.both / self.now - 1:+.1%}" for one in self.advised[:3]
        )
        return (
            f"{'found ' if self.found else 'MISSED'} {self.network}: best of {self.points} points "
            f"{self.best.words} {-self.gain / self.now:+.1%}; advised {told or 'nothing'}"
        )


def sweep_values(hardware: Preset) -> Iterator[tuple[str, str]]:
    """Yield about 200 changes of one key, as (key, setting), within a factor of 8."""
    settled = hardware.arch.list_settled_values() | dict(hardware.timing)
    settled |= {"post_lanes": settled.get("post_lanes") or hardware.arch.pe.count}
    for key in KINDS:
        now = settled[key]
        if key in POWERS:
            values = {now * 2**step for step in range(7)} | {now // 2**step for step in range(7)}
        elif key == "sram_bytes":
            grain = 64 * hardware.arch.sram_banks
            values = {round(now * 2 ** (step / 4) / grain) * grain for step in range(-12, 13)}
        else:
            values = {round(now * 8 ** (step / VALUES)) for step in range(-VALUES, VALUES + 1)}
        for value in sorted(values - {now, 0}):
            if now / 8 <= value <= 8 * now:
                yield key, f"{key}={value}"


def sweep(network: str, hardware: Preset) -> list[SweptPoint]:
    """Measure every single change of the sweep; the first point is the machine itself."""
    bench = Bench(load_network(network).package, DEFAULTS, load_table())
    found = [SweptPoint("", "no change", bench.point(hardware).both)]
    for key, setting in sweep_values(hardware):
        try:
            both = bench.point(apply_settings(hardware, (setting,))).both
        except InputError:  # the machine cannot exist, or the network cannot be compiled for it
            continue
        found.append(SweptPoint(KINDS[key], setting, both))
    other = apply_settings(hardware, ("numerics=fixed",))
    return [*found, SweptPoint("numerics", "numerics=fixed", bench.point(other).both)]


def compare(network: str) -> Comparison:
    """Sweep around the default machine and ask for advice."""
    now, *points = sweep(network, load_hardware())
    best = min(points, key=lambda one: one.both)
    return Comparison(network, len(points), now.both, best, dla.advise(network).faster)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each network, and the number of networks whose best change was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=len(NETWORKS), help="number of networks")
    parser.add_argument("--first", type=int, default=0, help="number of networks left out")
    given = parser.parse_args(arguments)
    found = []
    for network in NETWORKS[given.first : given.count]:
        begin = perf_counter()
        found.append(compare(network))
        print(f"{found[-1]} ({perf_counter() - begin:.0f} s)", flush=True)
    hits = sum(one.found for one in found)
    print(f"{hits} of {len(found)} networks: the best change of the sweep is among the first three")
    return 0 if all(one.found for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
