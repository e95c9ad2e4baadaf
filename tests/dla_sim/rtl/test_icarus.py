"""The machine's Verilog on Icarus, where every register is unknown until it is written.

Programs of the golden corpus are compared by total cycles, and by every byte of both memories at
the end.
"""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dla_sim.device import Device
from dla_sim.inspection import Playback
from dla_sim.rtl.parameters import limits_of, strap_values
from dla_sim.rtl.simulator.case import Case
from dla_sim.rtl.simulator.machine_text import machine_text
from experiments.golden.store import open_corpus
from experiments.rtl.comparison import corpus_cases
from experiments.rtl.hardware import SMALL
from tests.dla_sim.rtl.small_machines import reduce_to_limits
from tests.rtl.bench import require_icarus

BENCH = Path(__file__).with_name("icarus_bench.sv")
INSTRUCTIONS = ("conv", "e-mul", "lut", "norm", "permute", "pool", "softmax", "sync")
NAMES = (*(f"L0/v4-onnxruntime-op-{name}" for name in INSTRUCTIONS), "L1/pipeline")
"""Of one machine but for the variant of its ISA, which hardware does not have."""
DRAM = 1 << 16


def compiled(case: Case, folder: Path) -> None:
    """Makes ``simulation`` in ``folder``: the machine of ``case`` and no other."""
    arch = case.program.arch
    timing = case.timing
    (folder / "machine.v").write_text(
        machine_text(limits_of(arch, timing), strap_values(arch, timing))
    )
    sizes = ["-P", f"bench.BUS={timing.bus_bytes}", "-P", f"bench.DRAM={DRAM}"]
    words = [
        "iverilog",
        "-g2012",
        *sizes,
        "-s",
        "bench",
        "-o",
        "simulation",
        str(BENCH),
        "machine.v",
    ]
    subprocess.run(words, cwd=folder, check=True)


def simulated(
    case: Case, memories: Playback, limit: int, folder: Path
) -> tuple[str, dict[str, NDArray[np.uint8]]]:
    """Return the output of the simulation of ``case`` in ``folder``, and the final memories.

    ``memories`` limits how far they go.
    """
    before = {"dram": memories.machine.dram, "sram": memories.machine.sram}
    for name, memory in before.items():
        (folder / f"{name}.hex").write_text(memory.tobytes().hex("\n"))
    numbers = {
        "command_address": case.program.command_address, "command_words": len(case.program.words),
        "dram_bytes": before["dram"].size, "sram_bytes": before["sram"].size, "limit": limit,
    }  # fmt: skip
    words = ["vvp", "-n", "simulation", *(f"+{name}={number}" for name, number in numbers.items())]
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    texts = {
        name: re.sub(r"//.*", "", (folder / f"{name}_after.hex").read_text()) for name in before
    }
    assert "x" not in "".join(texts.values()), "a byte is unknown"
    return done.stdout, {
        name: np.frombuffer(bytes.fromhex(text), np.uint8) for name, text in texts.items()
    }


@pytest.mark.slow
def test_icarus_finds_the_same_cycles_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_icarus()
    monkeypatch.delenv("DLA_NO_CACHE")
    cases = list(
        corpus_cases(
            open_corpus(Path("tests/golden")), NAMES, partial(reduce_to_limits, limits=SMALL[0])
        )
    )
    assert len({limits_of(case.program.arch, case.timing) for case in cases}) == 1
    assert len({tuple(strap_values(case.program.arch, case.timing).items()) for case in cases}) == 1
    compiled(cases[0], tmp_path)
    for case in cases:
        assert case.expected is not None
        total = case.expected.trace.cycles
        playback = Playback(
            Device(case.program.arch, case.timing), case.program, case.inputs, case.expected.trace
        )
        said, after = simulated(case, playback, 2 * total, tmp_path)
        assert said == f"cycles {total} interrupt 1 fault 0\n", case.name
        playback.run(total)
        assert np.array_equal(after["dram"], playback.machine.dram), case.name
        assert np.array_equal(after["sram"], playback.machine.sram), case.name
