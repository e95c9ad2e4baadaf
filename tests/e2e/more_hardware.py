"""Draw pairs of machines that differ in one property and compare their cycles.

The machine with more hardware must not take more cycles.

``python -m tests.e2e.more_hardware --count N --seed S`` draws layers and networks, and machines of
v4 and v5. One machine of a pair has twice or four times the memory, banks, bytes of the bus or
processing elements of the other. It prints the pairs that cost over 0.5 % more cycles, worst first,
and how many there are of each kind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import numpy as np

from byoc import import_model
from byoc.compiler import compile
from byoc.package.package import Package
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from isa.errors import InputError
from tests.e2e.more_memory import KINDS, LIMIT, package_of
from tests.e2e.random_networks import random_network

GROWTHS = ("memory", "banks", "bus", "array")
"""What the larger machine has more of."""
ARRAYS = ((4, 16, 1), (8, 8, 1), (16, 16, 1), (2, 32, 1), (1, 64, 1), (8, 8, 2))
"""Input channels, output channels and columns of the array."""
WORD_BYTES = 64
"""Bytes of a word: every bus that is drawn is at most half as wide."""
PAIRS = 4
"""Pairs of machines for one subject."""


@dataclass(frozen=True)
class DrawnMachine:
    """Properties in which machines of a pair differ."""

    isa: str
    array: tuple[int, int, int]
    kib: int
    banks: int
    bus: int

    @property
    def arch(self) -> Arch:
        """The machine; words of v5 are as wide on all."""
        words: dict[str, Any] = {"word_bytes": WORD_BYTES} if self.isa == "v5" else {}
        ic, oc, ow = self.array
        pe = PeArray(ic=ic, oc=oc, ow=ow)
        return Arch(isa=self.isa, pe=pe, sram_bytes=self.kib << 10, sram_banks=self.banks, **words)

    def cycles(self, package: Package) -> tuple[int, int]:
        """Return how many nodes of a network the machine runs, and its cycles."""
        timing = Timing(bus_bytes=self.bus)
        compiled = compile(package, self.arch, timing=timing, data=False)
        nodes = sum(len(region.nodes) for region in compiled.partition.regions)
        return nodes, sum(
            ProgramTiming(program).run(timing).cycles for program in compiled.programs.values()
        )


@dataclass(frozen=True)
class DrawnPair:
    """A network on a machine and on one with more of ``growth``: cycles of both."""

    name: str
    growth: str
    smaller: DrawnMachine
    larger: DrawnMachine
    before: int
    after: int

    @property
    def cost(self) -> float:
        """The cycles that more hardware costs, as a share."""
        return self.after / self.before - 1

    @property
    def text(self) -> str:
        """The pair in one line."""
        more = f"{self.growth} {self.smaller.isa}: {self.before:,} -> {self.after:,} cycles"
        return f"{self.cost:+.2%} {self.name}, more {more}, {self.smaller} -> {self.larger}"


def drawn_machine(random: np.random.Generator, isa: str) -> DrawnMachine:
    """Return a random machine."""
    kib, banks, bus = (
        int(random.choice(sizes)) for sizes in ((16, 32, 64, 128, 256), (4, 8, 16), (4, 8, 16))
    )
    return DrawnMachine(isa, ARRAYS[int(random.integers(len(ARRAYS)))], kib, banks, bus)


def grown(machine: DrawnMachine, growth: str, random: np.random.Generator) -> DrawnMachine:
    """Return the machine with more of one thing."""
    times = int(random.choice([2, 4]))
    if growth == "memory":
        return replace(machine, kib=machine.kib * times)
    if growth == "banks":
        return replace(machine, banks=machine.banks * times)
    if growth == "bus":
        return replace(machine, bus=machine.bus * 2)
    array = list(machine.array)
    side = int(random.integers(len(machine.array)))
    array[side] *= times
    return replace(machine, array=(array[0], array[1], array[2]))


def subjects(seed: int) -> Iterator[tuple[str, Package]]:
    """Yield layers as networks have them, and random networks, by turns and without end."""
    random = np.random.default_rng(seed)
    layers = [
        (f"{kind} {number}", layer)
        for kind, layers in KINDS.items()
        for number, layer in enumerate(layers)
    ]
    for number in count(seed):
        name, layer = layers[int(random.integers(len(layers)))]
        yield name, package_of(layer)
        model, inputs = random_network(number)
        yield f"random {number}", import_model(model, calibration=iter([inputs]))


def pairs(
    seed: int, growths: Sequence[str] = GROWTHS, isas: Sequence[str] = ("v4", "v5")
) -> Iterator[DrawnPair]:
    """Yield pairs without end. A pair of which one machine cannot run as many nodes is left out."""
    random = np.random.default_rng(seed)
    for name, package in subjects(seed):
        for _ in range(PAIRS):
            growth = growths[int(random.integers(len(growths)))]
            smaller = drawn_machine(random, isas[int(random.integers(len(isas)))])
            larger = grown(smaller, growth, random)
            try:
                (nodes, before) = smaller.cycles(package)
                (others, after) = larger.cycles(package)
            except InputError:  # a part does not fit the smaller machine
                continue
            if nodes == others and before:
                yield DrawnPair(name, growth, smaller, larger, before, after)


def report(found: Sequence[DrawnPair]) -> float:
    """Print the pairs that cost too much and a line a kind of growth; the worst cost."""
    for pair in sorted(found, key=lambda pair: -pair.cost):
        if pair.cost > LIMIT:
            print(pair.text)
    for isa in sorted({pair.smaller.isa for pair in found}):
        for growth in GROWTHS:
            costs = [
                pair.cost for pair in found if (pair.smaller.isa, pair.growth) == (isa, growth)
            ]
            over = sum(cost > LIMIT for cost in costs)
            worst = max(costs, default=0.0)
            print(
                f"{isa} more {growth}: {over} of {len(costs)} pairs over {LIMIT:.1%}, worst "
                f"{worst:+.2%}"
            )
    return max((pair.cost for pair in found), default=0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare machines with less and with more hardware.

    Exit status 1 where more costs too many cycles.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.more_hardware", description=main.__doc__
    )
    parser.add_argument("--count", type=int, default=1000, help="pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--growth", action="append", choices=GROWTHS, help="only more of this; repeatable"
    )
    parser.add_argument(
        "--isa", action="append", choices=("v4", "v5"), help="only this ISA; repeatable"
    )
    given = parser.parse_args(arguments)
    drawn = pairs(given.seed, given.growth or GROWTHS, given.isa or ("v4", "v5"))
    return 1 if report(list(islice(drawn, given.count))) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
