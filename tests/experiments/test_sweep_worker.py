"""Shared compilations change nothing: programs and cycles equal those compiled alone, with data."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest

from byoc.compiler import compile, partition_package
from byoc.emission.region import values_of
from byoc.options import CompileOptions, Schedule
from dla_sim.device import Device
from dla_sim.presets import load_preset
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from experiments.running.network import load_network
from experiments.sweep.worker import (
    MachineJob,
    NetworkJob,
    RegionCompiler,
    blank_regions,
    read_blank,
)
from experiments.version import compiler_version
from isa.arch import Arch, PeArray
from isa.program import Segment

SIZES = [1 << exponent for exponent in range(15, 29)]
ARRAYS = (PeArray(ic=4, oc=16), PeArray(ic=1, oc=32, ow=2))
TIMINGS = (Timing(), Timing(bus_bytes=16, dram_latency=31, queue_depth=1), Timing(flash_bytes=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "schedule", "sizes"),
    [
        ("digits-cnn", "default", SIZES),
        ("digits-cnn", "seed", SIZES),
        ("resnet-8", "default", SIZES),
        ("mobilenet-v1", "default", SIZES[4::2]),
    ],
)
def test_shared_work_changes_nothing(network: str, schedule: Schedule, sizes: list[int]) -> None:
    options = CompileOptions(schedule)
    package = load_network(network).package
    whole = partition_package(package, Arch(sram_bytes=1 << 30))
    generator = random.Random(network)
    compared = 0
    for array in ARRAYS:
        compiler = RegionCompiler(blank_regions(whole.regions, package.graph.values))
        for size in generator.sample(sizes, len(sizes)):
            arch = Arch(pe=array, sram_bytes=size)
            alone = compile(package, arch, options)
            if alone.partition.placement != whole.placement:
                continue  # the machine is too small; a sweep records that and compiles nothing
            programs = compiler.compile(arch, options)
            timed = compiler.prepare_timings(programs)
            assert len(programs) == len(alone.programs)
            compared += 1
            for index, (bare, timing_model) in enumerate(zip(programs, timed, strict=True)):
                program = alone.programs[index]
                assert np.array_equal(bare.program.words, program.words)
                assert bare.program.provenance == program.provenance
                assert bare.program.arch == arch
                assert bare.program.command_address == program.command_address
                assert bare.compulsory_bytes == alone.reports[index].compulsory_bytes
                for timing in TIMINGS:
                    trace = Device(arch, timing).run(program, {}, timing_only=True).trace
                    cycles = timing_model.run(timing)
                    assert (cycles.cycles, cycles.kinds, cycles.units) == (
                        trace.cycles,
                        trace.kinds,
                        trace.units,
                    )
                    assert (timing_model.macs, timing_model.sram_peak_bytes) == (
                        trace.macs,
                        trace.sram_peak_bytes,
                    )
    assert compared > len(sizes)


def test_programs_travel_without_their_constants_but_with_the_place_of_them() -> None:
    package = load_network("digits-cnn").package
    found = partition_package(package, load_preset().arch)
    compiler = RegionCompiler(blank_regions(found.regions, package.graph.values))
    (compiled,) = compiler.compile(load_preset().arch, CompileOptions())
    data = pickle.dumps(compiled.program, pickle.HIGHEST_PROTOCOL)
    (segment,) = compiled.program.segments
    (sent,) = pickle.loads(data).segments
    assert len(data) < segment.data.size
    assert (sent.address, sent.data.size, sent.data.strides) == (
        segment.address,
        segment.data.size,
        (0,),
    )
    own = Segment(64, np.arange(9, dtype=np.uint8))
    assert pickle.loads(pickle.dumps(own)).data.tolist() == own.data.tolist()


def test_regions_travel_without_their_weights() -> None:
    package = load_network("digits-cnn").package
    found = partition_package(package, load_preset().arch)
    data = blank_regions(found.regions, package.graph.values)
    regions, values = read_blank(data)
    assert len(data) < 10_000
    assert [region.inputs for region in regions] == [region.inputs for region in found.regions]
    kept = {name for region in found.regions for name in values_of(region, found.graph.values)}
    assert set(values) == kept  # the shapes of inner tensors decide how they are laid out
    assert kept > {name for region in regions for name in (*region.inputs, *region.outputs)}
    blanked = 0
    for region, bare in zip(found.regions, regions, strict=True):
        for operation, other in zip(region.operations, bare.operations, strict=True):
            weights = getattr(operation, "weights", None)
            blank = getattr(other, "weights", None)
            assert (weights is None) == (blank is None)
            if weights is not None:
                assert (blank.shape, blank.dtype) == (weights.shape, weights.dtype)
                assert (blank == weights.flat[0]).all()
                assert not any(blank.strides)
                blanked += 1
    assert blanked == 4


def test_a_timing_serves_no_other_program() -> None:
    package = load_network("digits-cnn").package
    whole = partition_package(package, Arch())
    compiler = RegionCompiler(blank_regions(whole.regions, package.graph.values))
    small, large, other = (
        compiler.compile(Arch(sram_bytes=size, pe=PeArray(ic=ic)), CompileOptions())
        for ic, size in ((8, 1 << 20), (8, 1 << 24), (4, 1 << 24))
    )
    (first,) = compiler.prepare_timings(small)
    assert first.resize(large[0].program) is not None
    assert first.resize(other[0].program) is None


def test_points_run_alone_if_the_engine_for_many_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A numba that does not load fails no point; an impossible Timing keeps its own message."""
    package = load_network("digits-cnn").package
    whole = partition_package(package, Arch())
    regions = blank_regions(whole.regions, package.graph.values)
    machine = MachineJob(Arch(), ("{}", '{"fetch_bytes": 12}', '{"queue_depth": 1}'))
    job = NetworkJob(compiler_version(), regions, CompileOptions(), (machine,))
    expected = job.run().outcomes

    def fail(timed: ProgramTiming, timings: list[Timing]) -> None:
        raise OSError("cannot load llvmlite")

    monkeypatch.setattr(ProgramTiming, "run_together", fail)
    assert job.run().outcomes == expected
    assert [(one.places, one.figures is None) for one in expected[0]] == [
        ((0, 2), False),
        ((1,), True),
    ]


def test_points_together_have_the_figures_of_each_point_alone() -> None:
    """Every field of a Timing is changed once."""
    package = load_network("digits-cnn").package
    whole = partition_package(package, Arch(isa="v4"))
    regions = blank_regions(whole.regions, package.graph.values)
    switches = {"dram_row_bytes": 128, "dram_refresh_interval": 1000, "dram_rate": 0.5}
    switches |= {"ex_fill": 5000, "ex_drain": 7000}  # enough to be the bound
    defaults = {name: field.default for name, field in Timing.model_fields.items()}
    changes = {name: switches.get(name, 2 * (value or 4)) for name, value in defaults.items()}
    changes["flash_rate"] = 0.25
    base = {"flash_bytes": 4}
    texts = tuple(json.dumps({**base, name: value}) for name, value in changes.items())
    machine = MachineJob(Arch(isa="v4"), texts)
    job = NetworkJob(compiler_version(), regions, CompileOptions(), (machine,), keep=True)
    result = job.run()
    (together,) = result.outcomes
    machines = tuple(MachineJob(machine.arch, (text,), result.programs) for text in texts)
    alone = replace(job, machines=machines, keep=False).run().outcomes
    assert len(together) < len(texts)
    found = {}
    for outcome in together:
        for index, place in enumerate(outcome.places):
            figures = outcome.figures or ()
            found[place] = [item[index] if type(item) is list else item for item in figures]
    expected = [list(outcome.figures or ()) for (outcome,) in alone]
    assert all(expected)
    assert [found[place] for place in range(len(texts))] == expected
