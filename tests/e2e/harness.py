"""Run a quantised network on the device and compare all outputs with ONNX Runtime.

These are the outputs of every region and of the graph. Every program passes the command-stream
sanitizer first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.compiled import CompiledNetwork, Partition
from byoc.compiler import compile
from byoc.host.runtime import NetworkRun, Runtime
from byoc.host.sessions import Oracle
from byoc.importing import import_model
from byoc.options import NOTHING, Choices
from byoc.package.package import Package
from dla_sim.device import Device
from dla_sim.timing import Timing
from experiments.models import MODELS
from isa.arch import Arch
from isa.sanitizer import sanitize


@dataclass(frozen=True, eq=False)
class Comparison:
    """Result of a comparison: compared tensors and elements, and how many of these differ.

    ``network`` ran in ``cycles`` cycles, which is ``run``.
    """

    network: CompiledNetwork
    run: NetworkRun[Any]
    tensors: int
    elements: int
    mismatches: int
    cycles: int

    @property
    def partition(self) -> Partition:
        """The partition that ran."""
        return self.network.partition


@lru_cache(maxsize=2)
def package(name: str) -> Package:
    """A built-in network, imported once while its tests run.

    The large ones are not kept for longer.
    """
    model = MODELS[name]
    return import_model(model.build(0), name, calibration=model.calibration(0))


@dataclass(frozen=True, eq=False)
class Simulation:
    """A network that ran."""

    network: CompiledNetwork
    run: NetworkRun[Any]

    @property
    def results(self) -> frozenset[str]:
        """The tensors that leave the regions that ran."""
        regions = self.network.partition.regions
        ran = [region for region in regions if region.index in self.run.traces]
        return frozenset(name for region in ran for name in region.outputs)

    def comparison(self, expected: Mapping[str, NDArray[Any]]) -> Comparison:
        """Its tensors held to those expected."""
        different = 0
        for name, wanted in expected.items():
            found = self.run.values[name]
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype
            different += int(np.count_nonzero(found != wanted))
        cycles = sum(trace.cycles for trace in self.run.traces.values())
        return Comparison(
            self.network,
            self.run,
            len(expected),
            sum(item.size for item in expected.values()),
            different,
            cycles,
        )


def simulate(
    package: Package,
    inputs: Mapping[str, NDArray[Any]],
    arch: Arch,
    schedule: str = "default",
    *,
    emulate_depthwise: bool = False,
    grouped: str = "auto",
    chosen: Choices = NOTHING,
) -> Simulation:
    """Compile, sanitise and run; no region takes fewer cycles than its roofline."""
    options: dict[str, Any] = {
        "emulate_depthwise": emulate_depthwise,
        "grouped": grouped,
        "chosen": chosen,
    }
    network = compile(package, arch, schedule=schedule, **options)
    for program in network.programs.values():
        # A warning ("unused result") is legal: a strided window may skip the last rows of its
        # input.
        assert [finding.text for finding in sanitize(program) if finding.level == "error"] == []
    run = Runtime(network, Device(arch, Timing())).run(inputs)
    for index, trace in run.traces.items():
        demand = network.reports[index].demand
        assert trace.cycles >= Timing().least_cycles(
            demand.compute_cycles, demand.commands, demand.apart
        )
    return Simulation(network, run)


def compare(
    package: Package,
    inputs: Mapping[str, NDArray[Any]],
    arch: Arch | None = None,
    schedule: str = "default",
    **options: Any,
) -> Comparison:
    """:func:`simulate` and compare with the oracle.

    Floats at the model's edge are compared to the bit as well.
    """
    found = simulate(package, inputs, arch or Arch(), schedule, **options)
    names = sorted(found.results)
    arranged = {name: package.graph.values[name].arrange(array) for name, array in inputs.items()}
    numerics = found.network.arch.numerics
    return found.comparison(
        Oracle(package.model, package.graph, names, numerics=numerics).values(arranged)
    )
