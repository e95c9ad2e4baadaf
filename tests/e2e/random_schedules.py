"""Random schedules of random graphs, which must not change a bit.

A schedule has tilings, resident tensors and groups. ``python -m tests.e2e.random_schedules --count
N --seed S`` draws them from all possible choices, far from those of the compiler, and compares
every tensor that leaves a region with ONNX Runtime.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from typing import Literal

import numpy as np

from byoc.compiler import partition_package
from byoc.options import Choices, CompileOptions, LayerChoice
from byoc.scheduling.residency import choice_of
from byoc.tuning.moves import Drawing, Grouping
from byoc.tuning.subject import TuningSubject
from dla_sim.timing import Timing
from experiments.tune.tuning import clock_of
from isa.arch import Arch
from isa.errors import InputError
from tests.e2e.harness import compare
from tests.e2e.random_graphs import random_graph, random_machine
from tests.e2e.random_quantisation import random_package

DRAWS = 4
"""Schedules of a graph."""
STEPS = 6
"""Steps from the compiler's groups to those of a schedule."""
Outcome = Literal["exact", "without a place", "different", "failed"]


def outcomes(seed: int, *, shown: bool = True) -> Iterator[Outcome]:
    """Yield the outcomes of some schedules of one graph.

    Raises InputError for a graph that cannot be quantised.
    """
    model, feeds = random_graph(seed, shown=shown)
    package = random_package(model, feeds, seed)
    arch = random_machine(seed)[0].model_copy(update={"numerics": "onnxruntime"})
    given = {name: feeds[name] for name in package.graph.inputs}
    partition = partition_package(package, arch, CompileOptions())
    subject = TuningSubject(partition.regions, partition.graph.values, arch, clock_of(Timing()))
    random = np.random.default_rng(seed)
    for _ in repeat(None, DRAWS if subject.sites else 0):
        try:
            done = compare(package, given, arch, chosen=drawn_choices(subject, arch, random))
        except InputError:
            yield "without a place"
        except Exception as error:
            print(f"{seed}: {type(error).__name__}: {error}", flush=True)
            yield "failed"
        else:
            yield "different" if done.mismatches else "exact"


def drawn_choices(subject: TuningSubject, arch: Arch, random: np.random.Generator) -> Choices:
    """Draw residents and groups, and tilings of layers that fit next to these residents.

    Some are left to the compiler.
    """
    share = random.choice([0.0, 0.3, 1.0])
    residents = tuple(name for _, name in subject.candidates if random.random() < share)
    layers = []
    for site in subject.sites:
        resident, budget = subject.room(site, residents)
        tiling = Drawing(site.geometry, arch, resident, budget).fresh(random)
        left_open = tiling is None or random.random() < 0.2
        layers.append(LayerChoice(site.name) if left_open else choice_of(site.name, tiling))
    grouping = Grouping(subject, random)
    groups = subject.place(subject.own())
    for _ in range(int(random.integers(STEPS))):
        groups = grouping.change(groups, int(random.integers(-1, len(groups)))) or groups
    return Choices(tuple(layers), residents, tuple(group for _, group in groups))


def main() -> int:
    """Run many and print what came of them; exit status 1 where one differed or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts = Counter[str]()
    for seed in range(given.seed, given.seed + given.count):
        try:
            for number, found in enumerate(outcomes(seed)):
                counts[found] += 1
                if found in ("different", "failed"):
                    print(f"{seed}: schedule {number} {found}", flush=True)
        except InputError as error:
            print(f"{seed} refused: {error}", flush=True)
    print("\n".join(f"{count:9} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["different"] or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
