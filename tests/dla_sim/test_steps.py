"""Tables of steps: the same bits as the semantics, for weights that are known and any input."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from dla_sim.device import Device
from dla_sim.kernels.steps import KnownBytes
from isa.arch import Arch
from isa.instruction import Machine
from tests.dla_sim.compiled import compiled_program
from tests.dla_sim.kernel_bench import make_load, prepare_table
from tests.isa.bench import make_command
from tests.isa.packed_cases import DRAWS, bytes_where_they_lie
from tests.isa.packed_operands import machines, placed
from tests.isa.test_packing import plain_result

COMMANDS = 100
IN_TABLES = {
    "OP_CONV": 8, "OP_DEPTH_CONV": 20, "OP_GROUP_CONV": 20, "OP_E_ADD": 20, "OP_LUT": 20,
    "OP_POOL": 5,
}  # fmt: skip
"""Least number of the ``COMMANDS`` random commands that become rows, by mnemonic."""


@pytest.mark.parametrize("mnemonic", sorted(IN_TABLES))
def test_rows_mean_what_the_semantics_mean(mnemonic: str) -> None:
    """Random commands whose operands are constant, except their input, which changes."""
    random = np.random.default_rng(zlib.crc32(mnemonic.encode()))
    known = machines("onnxruntime")
    in_tables = 0
    for _ in range(COMMANDS):
        arch = known[int(random.integers(len(known)))]
        drawn = DRAWS[mnemonic](random, arch)
        case = placed(drawn, plain_result(drawn, arch), arch, random)
        size = case.before.size
        access = case.command.instruction.operands(case.command, arch).reads[0]
        steps = prepare_table(case.command, case.before, arch)
        in_tables += len(steps) == 1
        for _ in range(2):
            dram = case.before.copy()
            dram[access.address : access.end] = random.integers(
                0, 256, access.end - access.address, np.uint8
            )
            expected = dram.copy()
            case.command.instruction.semantics(case.command, Machine(arch, expected, dram))
            machine = Machine(arch, np.zeros(size, np.uint8), dram)
            for step in steps:
                step(machine)
            told = arch, case.command.registers, case.command.fields
            assert np.array_equal(machine.sram, expected), told
    assert in_tables >= IN_TABLES[mnemonic]


def test_rows_of_copies_mean_what_the_semantics_mean() -> None:
    random = np.random.default_rng(0)
    arch = Arch(isa="v5")
    for _ in range(COMMANDS):
        command, dram = bytes_where_they_lie(random)
        expected = dram.copy()
        command.instruction.semantics(command, Machine(arch, expected, dram))
        machine = Machine(arch, np.zeros(dram.size, np.uint8), dram)
        (step,) = prepare_table(command, dram, arch)
        step(machine)
        assert np.array_equal(machine.sram, expected), (command.registers, command.fields)


def test_bytes_are_known_until_a_command_writes_others() -> None:
    known = KnownBytes(Arch(), 64, np.arange(64, dtype=np.uint8), [(48, 64)])
    assert known.read(0, 1) is None
    known.apply(make_load(64))
    found = known.read(8, 40)
    assert found is not None
    assert found.tolist() == list(range(8, 48))
    assert known.read(8, 41) is None
    registers = {"EX_OUTPUT_ADDRESS": 4, "EX_INPUT_ADDRESS": 16, "EX_LENGTH": 4}
    known.apply(make_command("OP_E_ABS", registers))
    assert known.read(0, 4) is not None
    assert known.read(0, 5) is None
    assert known.read(8, 32) is not None


def test_a_compiled_device_runs_the_same_program() -> None:
    """Commands in tables and commands with kernels take turns."""
    program = compiled_program("digits-cnn", "default")
    random = np.random.default_rng(0)
    plain, fast = (Device(program.arch, compiled=compiled) for compiled in (False, True))
    for _ in range(3):
        inputs = {
            one.name: random.integers(-128, 128, one.shape).astype(one.dtype)
            for one in program.inputs
        }
        expected, found = (device.run(program, inputs) for device in (plain, fast))
        for name, value in expected.outputs.items():
            assert np.array_equal(found.outputs[name], value)
        assert found.trace.cycles == expected.trace.cycles
    assert 1 < len(fast.load(program).steps) < len(plain.load(program).steps)


@pytest.mark.slow
@pytest.mark.skipif(
    "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"), reason="needs AVX2"
)
def test_rows_on_processors_without_vnni(tmp_path: Path) -> None:
    """The same tests with code for a processor that multiplies pairs of int16."""
    processor = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}
    command = (sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", "not slow", __file__)
    done = subprocess.run(
        command,
        env=os.environ | processor | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
