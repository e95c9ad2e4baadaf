"""The RTL's executable behind the register map: bits, cycles and counters of the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.rtl.device import make_hardware
from isa.device import DEVICE_REGISTERS, FaultReason
from isa.program import Program
from tests.dla_sim.mapped_systems import LENGTH, RELU, System, random_inputs, small_program

ARCH = '.arch {"alignment":8,'
SMALL = ARCH + '"pe":{"ic":2,"oc":2,"ow":1},'
OVERFLOW = ((LENGTH, "SET EX_LENGTH, 16"), (RELU, "OP_E32_ADD pop.LD push.ST"))


def run_both(program: Program, inputs: dict[str, Any]) -> tuple[System, System]:
    simulated = System(program)
    hardware = System(program, execute=make_hardware(simulated.simulator))
    for system in (simulated, hardware):
        system.start(inputs)
    return simulated, hardware


@pytest.mark.slow
def test_the_hardware_has_all_registers_and_bytes_of_the_simulator() -> None:
    program = small_program((ARCH, SMALL))
    for seed in range(2):
        simulated, hardware = run_both(program, random_inputs(program, seed))
        assert simulated.read("STATUS") == 2
        assert simulated.counter("CYCLES") > 100
        for name in DEVICE_REGISTERS:
            assert hardware.read(name) == simulated.read(name), name
        assert hardware.memory == simulated.memory


@pytest.mark.slow
def test_an_overflow_of_the_hardware_is_the_same_fault() -> None:
    program = small_program((ARCH, SMALL), *OVERFLOW)
    simulated, hardware = run_both(program, {"x": np.full(64, 127, np.int8)})
    assert hardware.fault() == simulated.fault() == (FaultReason.OVERFLOW, 7, 0)
    assert hardware.memory == simulated.memory
