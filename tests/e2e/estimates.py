"""Compare estimated with measured cycles of layers on machines of v4 and v5.

The layers are those of networks, and drawn ones. ``python -m tests.e2e.estimates`` prints the share
of layers whose estimate is within 5 % of the measured cycles, and the worst layers. It groups them
by what took most of their cycles besides computing.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from byoc import import_model
from byoc.compiler import CompilerPool, compile
from byoc.package.package import Package
from dla_sim.device import Device
from dla_sim.presets import Preset, load_hardware
from dla_sim.timing import Timing
from experiments.models import MODELS
from isa.program import Program
from tests.e2e.more_memory import KINDS, package_of
from tests.e2e.random_networks import random_network

NEAR = 0.05
"""What an estimate may be off, as a share of the measured cycles."""
NETWORKS = (
    "resnet-8", "keyword-spotting", "visual-wake-words", "streaming-wake-word", "micro-speech",
    "light-shufflenet",
    "lstm-small", "super-resolution",
)  # fmt: skip
ARRAYS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "{4,16} 64 KiB": ("balanced-64", {"sram_bytes": 1 << 16}),
    "{4,16} 512 KiB": ("balanced-64", {}),
    "{16,16} 64 KiB": ("balanced-256", {"sram_bytes": 1 << 16}),
    "{16,16} 1 MiB": ("balanced-256", {}),
    "{32,32} 256 KiB": ("balanced-64", {"pe.ic": 32, "pe.oc": 32, "sram_bytes": 1 << 18}),
}
"""A preset and settings by the name of a machine."""


@dataclass(frozen=True)
class LayerEstimate:
    """Expected and measured cycles of a layer.

    ``parts`` splits the measured ones (docs/machine.md, section 7).
    """

    network: str
    layer: str
    machine: str
    expected: int
    measured: int
    parts: Mapping[str, int]

    @property
    def error(self) -> float:
        """The expected cycles beyond the measured ones, as a share of these."""
        return self.expected / self.measured - 1 if self.measured else float(self.expected > 0)

    @property
    def cause(self) -> str:
        """The part with most of the measured cycles besides computing."""
        others = {
            part: cycles for part, cycles in self.parts.items() if part != "compute" and cycles
        }
        return max(others, key=lambda part: others[part], default="compute")

    @property
    def text(self) -> str:
        """The layer with its cycles, in one line."""
        where = f"{self.network}, {self.layer} on {self.machine}"
        return f"{self.error:+7.1%} {where}: {self.expected:,} expected, {self.measured:,} measured"


def machines(isa: str) -> Mapping[str, Preset]:
    """Return the machines of an ISA by name."""
    return {
        f"{isa} {name}": load_hardware(preset, settings, isa)
        for name, (preset, settings) in ARRAYS.items()
    }


def drawn_layers() -> Iterator[tuple[str, Package]]:
    """Yield the layers of :mod:`tests.e2e.more_memory`, each a network of its own."""
    for kind, layers in KINDS.items():
        for number, layer in enumerate(layers):
            yield f"{kind} {number}", package_of(layer)


def networks(names: Sequence[str]) -> Iterator[tuple[str, Package]]:
    """Yield built-in networks."""
    for name in names:
        model = MODELS[name]
        yield name, import_model(model.build(0), name, calibration=model.calibration(0))


def drawn_networks(count: int, seed: int) -> Iterator[tuple[str, Package]]:
    """Yield random networks of three to eight operators."""
    for number in range(seed, seed + count):
        model, inputs = random_network(number)
        yield f"random {number}", import_model(model, calibration=iter([inputs]))


def layers_of(
    name: str, package: Package, machine: str, hardware: Preset, pool: CompilerPool
) -> list[LayerEstimate]:
    """Return the cycles of every layer of a network on one machine."""
    compiled = compile(package, hardware.arch, timing=hardware.timing, data=False, pool=pool)
    found = []
    for index, program in compiled.programs.items():
        measured = _measured(program, hardware.timing)
        for layer, expected in compiled.reports[index].estimates.items():
            parts = measured.get(layer, {})
            found.append(LayerEstimate(name, layer, machine, expected, sum(parts.values()), parts))
    return found


def _measured(program: Program, timing: Timing) -> Mapping[str, Mapping[str, int]]:
    trace = Device(program.arch, timing).run(program, {}, timing_only=True).trace
    return {layer.name: parts for layer, parts in zip(trace.layers, trace.breakdown, strict=True)}


def _share(layers: Sequence[LayerEstimate]) -> str:
    near = sum(abs(layer.error) <= NEAR for layer in layers)
    off = np.array([abs(layer.error) for layer in layers])
    return (
        f"{near}/{len(layers)} = {near / len(layers):.1%} within {NEAR:.0%}, median "
        f"{np.median(off):.2%}"
    )


def report(layers: Sequence[LayerEstimate], shown: int) -> None:
    """Print the share of layers that are near, by machine, and the worst by cause."""
    by_machine = defaultdict[str, list[LayerEstimate]](list)
    by_cause = defaultdict[str, list[LayerEstimate]](list)
    for layer in layers:
        by_machine[layer.machine].append(layer)
        if abs(layer.error) > NEAR:
            by_cause[layer.cause].append(layer)
    for cause, members in sorted(by_cause.items(), key=lambda item: -len(item[1])):
        print(f"{cause}: {len(members)} layers")
        for layer in sorted(members, key=lambda layer: -abs(layer.expected - layer.measured))[
            :shown
        ]:
            parts = [f"{part} {cycles:,}" for part, cycles in layer.parts.items() if cycles]
            print(f"  {layer.text}; {', '.join(parts)}")
    for machine, members in by_machine.items():
        print(f"{machine}: {_share(members)}")
    print(f"all: {_share(layers)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the expected with the measured cycles of layers."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.estimates", description=main.__doc__)
    parser.add_argument(
        "--isa", action="append", help="only this ISA; repeatable (v4 and v5 by default)"
    )
    parser.add_argument(
        "--network", action="append", choices=tuple(MODELS), help="only this network; repeatable"
    )
    parser.add_argument("--count", type=int, default=20, help="random networks")
    parser.add_argument("--seed", type=int, default=0, help="number of the first random network")
    parser.add_argument(
        "--shown", type=int, default=8, help="worst layers of each cause that are printed"
    )
    given = parser.parse_args(arguments)
    drawn = () if given.network else (*drawn_layers(), *drawn_networks(given.count, given.seed))
    packages = (*networks(given.network or NETWORKS), *drawn)
    for isa in given.isa or ("v4", "v5"):
        found: list[LayerEstimate] = []
        for name, package in packages:
            pool = CompilerPool()
            for machine, hardware in machines(isa).items():
                found += layers_of(name, package, machine, hardware, pool)
        report(found, given.shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
