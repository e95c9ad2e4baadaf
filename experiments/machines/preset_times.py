"""Times of networks on our own machines, with constants in a memory of published contents.

Arm's compiler compresses the weights of a network, and Arm publishes the size of the file. Our
weights are random and compress differently. The rate of the memory is therefore multiplied by the
ratio of both sizes, so that our constants take the time of the published file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from byoc.compiler import compile_regions, partition_package
from byoc.estimate.bus import bus_of
from byoc.importing import import_model
from byoc.options import DEFAULTS, Choices
from byoc.package.package import Package
from byoc.scheduling.search_pool import SearchPool
from dla_sim.presets import load_preset
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from experiments.machines.inception import build_inception_v3
from experiments.models import MODELS
from experiments.models.inputs import photograph_crops

RATE_PLACES = 6
"""Decimal places of a rate."""
EACH_LAYER_ALONE = replace(DEFAULTS, chosen=Choices(residents=(), groups=()))
"""Options with which every layer reads its inputs from memory and writes its result there."""


@dataclass(frozen=True)
class NetworkTime:
    """Cycles of a network on a machine, in total and by layer."""

    cycles: int
    layers: Mapping[str, int]
    clock_hz: int

    @property
    def milliseconds(self) -> float:
        """Time of one inference."""
        return self.cycles / self.clock_hz * 1000


@cache
def import_network(name: str) -> Package:
    """Return the quantised package of a built-in network, or of ``inception-v3``."""
    if name != "inception-v3":
        model = MODELS[name]
        return import_model(model.build(0), name, calibration=model.calibration(0))
    crops = ({"image": crop} for crop in photograph_crops(2, 0, 299))
    return import_model(build_inception_v3(), name, calibration=crops)


def time_network(
    name: str, preset: str, file_bytes: int | None = None, *, alone: bool = False
) -> NetworkTime:
    """Compile and time a network without data.

    Args:
        name: built-in network, or ``inception-v3``.
        preset: machine with a flash.
        file_bytes: bytes of the published file with compressed weights; None if ours are read.
        alone: whether no tensor stays in the scratchpad between layers.
    """
    machine = load_preset(preset)
    found = partition_package(import_network(name), machine.arch)
    # the rate of the flash follows from the compiled constants, so schedules do not depend on it
    pool: SearchPool[Any] = SearchPool(replace(bus_of(machine.timing), flash=None))
    compiled = compile_regions(
        found.regions,
        found.graph.values,
        machine.arch,
        EACH_LAYER_ALONE if alone else DEFAULTS,
        data=False,
        searches=pool,
    )
    timing = machine.timing
    if file_bytes is not None:
        constants = sum(report.demand.constants for _, report in compiled)
        timing = scale_flash_rate(timing, constants / file_bytes)
    cycles = 0
    layers: dict[str, int] = {}
    for program, _ in compiled:
        timed = ProgramTiming(program)
        cycles += timed.run(timing).cycles
        layers |= timed.layers(timing)
    return NetworkTime(cycles, layers, timing.clock_hz)


def scale_flash_rate(timing: Timing, factor: float) -> Timing:
    """Return ``timing`` with the rate of its flash multiplied by ``factor``."""
    rate = float(timing.flash_rate or timing.flash_bytes) * factor
    return Timing.model_validate(timing.model_dump() | {"flash_rate": round(rate, RATE_PLACES)})


def predict_milliseconds(
    name: str, preset: str, file_bytes: int | None = None, *, alone: bool = False
) -> float:
    """Return the time of one inference in milliseconds, as :func:`time_network` does."""
    return time_network(name, preset, file_bytes, alone=alone).milliseconds
