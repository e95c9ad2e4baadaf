"""Expected cycles of layers are near the measured ones."""

from __future__ import annotations

from statistics import geometric_mean

import pytest

from byoc.compiled import CompiledNetwork
from byoc.compiler import CompilerPool, compile
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from tests.e2e.estimates import NEAR, layers_of, machines, networks
from tests.rotation import rotate


@pytest.mark.parametrize("isa", rotate(["v4", "v5"], 2))
def test_layers_take_about_what_was_expected(isa: str) -> None:
    """95 % of the layers of light-shufflenet take the expected cycles within 5 %.

    Once 69 % did on v4 with 64 KiB, and 87 % on v5.
    """
    ((name, package),) = networks(["light-shufflenet"])
    machine = f"{isa} {{4,16}} 64 KiB"
    layers = layers_of(name, package, machine, machines(isa)[machine], CompilerPool())
    near = sum(abs(layer.error) <= NEAR for layer in layers)
    assert near >= 0.95 * len(layers) > 50, [
        layer.text for layer in layers if abs(layer.error) > NEAR
    ]


WIDE = Arch(pe=PeArray(ic=16, oc=16), sram_bytes=1 << 16)
FAR = Timing(dram_latency=400, outstanding_bursts=64)
FARTHER = Timing(dram_latency=1000, outstanding_bursts=128)
FLASH = Timing(dram_latency=32, flash_bytes=1)
"""The memories of the memory mode ``flash``."""


@pytest.mark.parametrize("isa", rotate(["v4", "v5"], 2))
@pytest.mark.parametrize(("timing", "share"), [(FAR, 0.98), (FARTHER, 0.93), (FLASH, 0.97)])
def test_the_compiler_expects_the_latency_and_the_flash(
    isa: str, timing: Timing, share: float
) -> None:
    """Regions take about the expected cycles, and at most ``share`` of those without ``timing``.

    The share is the geometric mean of four networks. Programs compiled without the Timing, for a
    bus that is equal in all else, take more cycles than expected.
    """
    arch = Arch(isa=isa) if timing.flash else WIDE.model_copy(update={"isa": isa})
    ratios = list[float]()
    errors = list[tuple[float, float]]()
    for name, package in networks(["keyword-spotting", "micro-speech", "resnet-8", "autoencoder"]):
        told, default = (
            _expect(compile(package, arch, timing=known, data=False), timing)
            for known in (timing, None)
        )
        assert told[1] <= default[1], name
        ratios.append(told[1] / default[1])
        errors.append((abs(told[0] / told[1] - 1), abs(default[0] / default[1] - 1)))
    assert geometric_mean(ratios) < share
    assert max(error for error, _ in errors) < 0.06
    assert min(other - error for error, other in errors) > 0.02


def _expect(compiled: CompiledNetwork, timing: Timing) -> tuple[int, int]:
    """Return the expected cycles of all regions, and those of the simulator."""
    expected = sum(sum(report.estimates.values()) for report in compiled.reports.values())
    runs = (ProgramTiming(program).run(timing) for program in compiled.programs.values())
    return expected, sum(run.cycles for run in runs)
