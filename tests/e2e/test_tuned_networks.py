"""Schedules that a search tries on small machines keep ONNX Runtime's outputs.

Their cycles are as measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from byoc.compiler import partition_package
from byoc.importing import import_model
from byoc.package.package import Package
from byoc.tuning.subject import TuningSubject
from dla_sim.timing import Timing
from experiments.models import MODELS
from experiments.tune.search import Evolution
from experiments.tune.tuning import clock_of
from isa.arch import Arch, PeArray
from tests.e2e.harness import Comparison, compare, package
from tests.e2e.random_networks import random_network
from tests.rotation import choose_cases


def tried(
    imported: Package, feed: dict[str, NDArray[Any]], arch: Arch, seed: int, count: int
) -> list[Comparison]:
    """Run the first ``count`` schedules of a search without a cost model on data.

    Schedules that cannot be placed are skipped.
    """
    found = partition_package(imported, arch)
    subject = TuningSubject(found.regions, found.graph.values, arch, clock_of(Timing()))
    proposals = Evolution(subject, seed, None).proposals()
    choices = next(proposals)
    runs = []
    for _ in range(count):
        measured = subject.measure(choices)
        if measured.cycles is not None:
            runs.append(compare(imported, feed, arch, chosen=choices))
            assert runs[-1].cycles == measured.cycles
        try:
            choices = proposals.send(measured)
        except StopIteration:
            break
    return runs


@pytest.mark.parametrize(
    ("name", "sram", "count"),
    [("digits-cnn", 2048, 5), ("digits-cnn", 4096, 5), ("resnet-8", 8192, 2)],
)
def test_tried_schedules_of_networks_are_exact(name: str, sram: int, count: int) -> None:
    arch = Arch(isa="v4", pe=PeArray(ic=8, oc=8), sram_bytes=sram)
    runs = tried(package(name), MODELS[name].sample_input(), arch, sram, count)
    assert len(runs) > 1
    assert [run.mismatches for run in runs] == [0] * len(runs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", choose_cases(range(12), 3))
def test_tried_schedules_of_random_networks_are_exact(seed: int) -> None:
    model, feed = random_network(seed)
    imported = import_model(model, calibration=[feed])
    random = np.random.default_rng(seed)
    arch = Arch(
        isa="v4", pe=PeArray(ic=4, oc=4), sram_bytes=int(random.choice([1024, 4096, 1 << 16]))
    )
    if not partition_package(imported, arch).regions:
        arch = arch.model_copy(update={"sram_bytes": 1 << 20})
    runs = tried(imported, feed, arch, seed, 8)
    assert [run.mismatches for run in runs] == [0] * len(runs)
    assert all(run.elements for run in runs)
