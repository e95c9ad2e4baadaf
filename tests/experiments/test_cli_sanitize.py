"""``dla simulate --sanitize``: findings one a line, and their effect on the exit status."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isa import program_file
from isa.dataflow import Dataflow
from tests.experiments.command_line import dla
from tests.isa import test_sanitizer_layouts as packed
from tests.isa.sanitizer_programs import CHAIN, program

pytestmark = pytest.mark.usefixtures("fresh_folder")

MAXIMUM = ("OP_ACT_RELU pop.LD", "OP_C_MAX pop.LD")
"""An operation that needs no scales."""
Capture = pytest.CaptureFixture[str]


def test_a_package_is_checked_for_the_machine_it_runs_on(capsys: Capture) -> None:
    assert dla(capsys, "compile", "digits-cnn", "-o", "digits.dla").status == 0
    for options in ([], ["--schedule", "seed", "--isa", "v1"]):
        found = dla(capsys, "simulate", "digits.dla", "--sanitize", *options)
        assert found.status == 0
        assert found.out.startswith("digits.dla: no findings on ")
        assert " cycles, " in found.out


def _simulate(capsys: Capture, *changes: tuple[str, str]) -> tuple[int, list[str]]:
    program_file.save(program(CHAIN, *changes), Path("chain.prog"))
    np.save("x.npy", np.zeros(64, np.int8))
    outcome = dla(capsys, "simulate", "chain.prog", "--sanitize", "--tensor", "x=x.npy")
    return outcome.status, outcome.out.splitlines()


def test_errors_stop_the_run(capsys: Capture) -> None:
    status, lines = _simulate(capsys, (" push.EX", ""), (" pop.LD", ""))
    assert status == 1
    assert lines == [
        ": error: read-after-write race: OP_ACT_RELU at word 5 on EX (layer 'relu', tile 1) reads "
        "scratchpad bytes 0x0 "
        "to 0x40 that OP_DMA_READ at word 2 on LD (layer 'in', tile 0) writes; neither waits for "
        "the other",
        "chain.prog: 1 finding on 1 command stream",
    ]


def test_warnings_do_not(capsys: Capture) -> None:
    status, lines = _simulate(
        capsys, MAXIMUM, ("OP_END", "SET LD_SRAM_ADDRESS, 512\nOP_DMA_READ\nOP_END")
    )
    assert status == 0
    assert not any("layouts" in line for line in lines)  # ideal memory has none
    assert "warning: unused result: nothing reads what OP_DMA_READ at word 11" in lines[0]
    assert any(" cycles, " in line for line in lines)


def test_images_hold_data(capsys: Capture) -> None:
    changed = program(CHAIN, MAXIMUM, ("LD_DRAM_ADDRESS, 0", "LD_DRAM_ADDRESS, 64"))
    program_file.save(changed, Path("chain.prog"))
    np.save("x.npy", np.zeros(64, np.int8))
    Path("image.bin").write_bytes(bytes(64))
    arguments = ["simulate", "chain.prog", "--sanitize", "--tensor", "x=x.npy"]
    assert dla(capsys, *arguments).status == 1
    assert dla(capsys, *arguments, "--image", "64=image.bin").status == 0


@pytest.mark.parametrize("flow", [packed.FLOW, None])
def test_a_program_of_banked_memory_without_data_flow_has_no_check_of_layouts(
    flow: Dataflow | None, capsys: Capture
) -> None:
    """One line says so; the race in the program ends the command before the run."""
    program_file.save(packed.program(flow), Path("packed.prog"))
    outcome = dla(capsys, "simulate", "packed.prog", "--sanitize")
    line = "packed.prog: layouts not checked: the program states no data flow"
    assert outcome.out.splitlines().count(line) == (flow is None)
