"""Helpers for tests of the debugger: simulated regions of small networks and random programs."""

from __future__ import annotations

from functools import cache

import numpy as np

from byoc.host.runtime import region_inputs
from dla_sim.device import Device
from dla_sim.presets import Preset, load_hardware
from dla_sim.timing import Timing
from experiments.running.inference import infer
from experiments.running.network import load_network, network_feeds
from experiments.running.simulate import SimulatedRegion
from isa.assembler import assemble
from isa.program import Program

OVERFLOWING = """
.program "overflow"
.arch {}
.memory 4096 commands 1024
.image 0x0
.data ////fw==
    SET LD_BYTES, 4
    OP_DMA_READ push.EX
    SET EX_LENGTH, 1
    SET EX_OUTPUT_ADDRESS, 64
    OP_E32_ADD pop.LD
    OP_END
"""
"""Adds 2^31 - 1 to itself, which is more than int32 holds."""


@cache
def digits_regions(isa: str = "v4") -> tuple[Preset, tuple[SimulatedRegion, ...]]:
    """Return the machine and the regions of the digits network.

    There are two regions if the depthwise convolution stays on the CPU (v1), else one.
    """
    hardware = load_hardware(None, (), isa)
    network = load_network("digits-cnn")
    done = infer(network, hardware, network_feeds(network))
    programs = done.compiled.programs
    runs = [
        SimulatedRegion(
            index,
            programs[index],
            trace,
            imaged=programs[index],
            inputs=region_inputs(programs[index], done.result.values),
        )
        for index, trace in done.result.traces.items()
    ]
    return hardware, tuple(runs)


def program_region(program: Program, timing: Timing, seed: int = 0) -> SimulatedRegion:
    """A program on inputs drawn from ``seed``; only its times are known."""
    rng = np.random.default_rng(seed)
    inputs = {
        tensor.name: rng.integers(-128, 128, tensor.shape).astype(tensor.dtype)
        for tensor in program.inputs
    }
    trace = Device(program.arch, timing).run(program, inputs, timing_only=True).trace
    return SimulatedRegion(0, program, trace, imaged=program, inputs=inputs)


def overflowing_program() -> Program:
    """The program of :data:`OVERFLOWING`."""
    return assemble(OVERFLOWING)
