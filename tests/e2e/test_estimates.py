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


@pytest.mark.parametrize("isa", rotate(["v4", "v5"], 2))
def test_the_compiler_expects_the_latency_of_the_memory(isa: str) -> None:
    """With 400 and 1,000 cycles of latency, regions take the expected cycles within 1 %.

    Programs compiled for the default latency take more cycles in the geometric mean, and more than
    expected. The buses are equal in all else.
    """
    arch = Arch(isa=isa, pe=PeArray(ic=16, oc=16), sram_bytes=1 << 16)
    ratios = list[float]()
    errors = list[tuple[float, float]]()
    for name, package in networks(["keyword-spotting", "micro-speech", "streaming-wake-word"]):
        for latency, bursts in ((400, 64), (1000, 128)):
            timing = Timing(dram_latency=latency, outstanding_bursts=bursts)
            told, default = (
                _expect(compile(package, arch, timing=known, data=False), timing)
                for known in (timing, None)
            )
            assert told[1] <= default[1], (name, latency)
            ratios.append(told[1] / default[1])
            errors.append((abs(told[0] / told[1] - 1), abs(default[0] / default[1] - 1)))
    assert geometric_mean(ratios) < 0.97
    assert max(error for error, _ in errors) < 0.01
    assert min(error for _, error in errors) > 0.05


def _expect(compiled: CompiledNetwork, timing: Timing) -> tuple[int, int]:
    """Return the expected cycles of all regions, and those of the simulator."""
    expected = sum(sum(report.estimates.values()) for report in compiled.reports.values())
    runs = (ProgramTiming(program).run(timing) for program in compiled.programs.values())
    return expected, sum(run.cycles for run in runs)
