"""``dla rtl compare`` on the exported Verilog: equal in bits and cycles, and with seeded faults.

A module around the machine ties its configuration. A fault of the cycles is a machine with other
constants, so the first command that differs follows from the simulator with these constants.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dla_sim.device import Device
from dla_sim.rtl.parameters import limits_of, strap_values
from dla_sim.rtl.simulator.case import Case, Outcome, difference_text
from dla_sim.rtl.simulator.machine_text import machine_text
from dla_sim.timing import Timing
from experiments.rtl.comparison import outcome_lines, source_case
from experiments.rtl.cosimulation import compare_design
from experiments.rtl.design import Design
from experiments.rtl.export import program_source
from tests.rtl.bench import require_icarus

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_rtl" / "largest.asm"
TENSORS = """.memory 1024 commands 512
.tensor ["c","input","int8",[40],192]
.tensor ["d","input","int8",[40],256]
.tensor ["z","output","int8",[40],320]"""
SECOND_TILE = """    SET LD_DRAM_ADDRESS, 192
    SET LD_SRAM_ADDRESS, 256
OP_DMA_READ
    SET LD_DRAM_ADDRESS, 256
    SET LD_SRAM_ADDRESS, 320
OP_DMA_READ push.EX
    SET EX_INPUT_ADDRESS, 256
    SET EX_OPERAND_ADDRESS, 320
    SET EX_OUTPUT_ADDRESS, 384
OP_C_MIN pop.LD push.ST
    SET ST_SRAM_ADDRESS, 384
    SET ST_DRAM_ADDRESS, 320
OP_DMA_WRITE pop.EX
OP_END"""
"""Additions to the example's program: the minimum of two more inputs."""
PORTS = """
    input clk, rst, input [31:0] command_address, command_words,
    output memory_valid, memory_write, output [31:0] memory_address, output [3:0] memory_count,
    output [63:0] memory_write_data, input [63:0] memory_read_data, output interrupt, fault,
    output probe_ld_start, probe_ld_done, probe_ex_start, probe_ex_done, probe_st_start,
    output probe_st_done
"""
PLAIN = re.findall(r"\b(?!input|output)[a-z]\w+", PORTS)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return the example with a second tile and random inputs."""
    folder = tmp_path_factory.mktemp("program")
    text = EXAMPLE.read_text()
    for old, new in ((".memory 512 commands 256", TENSORS), ("OP_END", SECOND_TILE)):
        assert old in text
        text = text.replace(old, new)
    (folder / "two-tiles.asm").write_text(text)
    for name in "abcd":
        values = np.random.default_rng(ord(name)).integers(-128, 128, 40, dtype=np.int8)
        np.save(folder / f"{name}.npy", values)
    tensors = [f"{name}={folder / name}.npy" for name in "abcd"]
    return source_case(program_source(folder / "two-tiles.asm", tensors, ()))


@pytest.fixture(scope="module")
def machine(case: Case) -> str:
    """Return the Verilog of the smallest machine with one engine and an open configuration."""
    require_icarus()
    limits = limits_of(case.program.arch, case.timing)
    return machine_text(replace(limits, engines=("elementwise",)))


def run(
    case: Case,
    machine: str,
    folder: Path,
    timing: Timing,
    **faults: str,
) -> Outcome:
    """Compare the machine with the constants of ``timing``.

    ``faults`` are expressions of ports of the machine; their ports are those of the machine with
    the prefix ``own_``.
    """
    straps = strap_values(case.program.arch, timing)
    wires = {name: f"own_{name}" if name in faults else name for name in PLAIN}
    given = faults.pop("memory_read_data", None)
    lines = [
        f"wire [63:0] own_memory_read_data = {given};" if given else "",
        *(
            f"wire {WIDTHS.get(name, '')}own_{name}; assign {name} = {text};"
            for name, text in faults.items()
        ),
    ]
    connections = [f".{name}({wire})" for name, wire in wires.items()]
    connections += [f".configuration_{name}({value})" for name, value in straps.items()]
    connections += [".lookup_ld_constant(1'b0)", ".lookup_st_constant(1'b0)"]
    text = f"module around({PORTS});\n" + "\n".join(lines)
    text += f"\ndla_machine machine({', '.join(connections)});\nendmodule\n"
    (folder / "around.v").write_text(text)
    (folder / "machine.v").write_text(machine)
    sources = (str(folder / "around.v"), str(folder / "machine.v"))
    return compare_design(case, Design(sources, "around", scratchpad="machine.scratchpad.bytes"))


def test_the_exported_verilog_equals_the_simulator(
    case: Case, machine: str, tmp_path: Path
) -> None:
    outcome = run(case, machine, tmp_path, case.timing)
    assert case.expected is not None
    assert (outcome.ended, outcome.differences) == ("interrupt", ())
    assert (outcome.commands, outcome.cycles) == (8, case.expected.trace.cycles)


def first_other(case: Case, timing: Timing) -> tuple[int, str, int, int]:
    """Return the first event of the simulator that has another cycle with ``timing``.

    The result is the command, ``start`` or ``end``, and both cycles. An end is observed in the last
    cycle of the command.
    """
    assert case.expected is not None
    one = case.expected.trace.times
    device = Device(case.program.arch, timing)
    other = device.run(case.program, case.inputs, timing_only=True).trace.times
    found = []
    for kind, before, after, late in (
        ("start", one.start, other.start, 0),
        ("end", one.end, other.end, 1),
    ):
        for number, pair in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
            if pair[0] != pair[1]:
                found.append((min(pair) - late, number, kind, *pair))
    _, number, kind, expected, actual = min(found)
    return number, kind, expected, actual


CONSTANTS = ("ex_fill", "ex_drain", "dma_setup", "dma_drain", "dram_latency")


@pytest.mark.parametrize("key", CONSTANTS)
def test_a_fault_of_the_cycles_names_its_command(
    key: str, case: Case, machine: str, tmp_path: Path
) -> None:
    timing = case.timing.model_copy(update={key: getattr(case.timing, key) + 3})
    outcome = run(case, machine, tmp_path, timing)
    number, kind, expected, actual = first_other(case, timing)
    first = outcome.first
    assert first is not None
    assert (first.command, first.kind, dict(first.details)) == (
        number, kind, {"expected": expected, "actual": actual},
    )  # fmt: skip


FAULTS = {
    "read-bit": (
        {"memory_read_data": "memory_read_data ^ (memory_address == 256)"},
        "word 18, LD OP_DMA_READ push.EX: 1 of 40 bytes differ, the first in scratchpad at 0x140 ",
    ),
    "written-bit": (
        {"memory_write_data": "own_memory_write_data ^ {memory_address == 320, 5'b0}"},
        "word 25, ST OP_DMA_WRITE pop.EX: 1 of 40 bytes differ, the first in system memory at 0x1",
    ),
    "unknown-bit": (
        {"memory_write_data": "memory_address == 136 ? 64'bx : own_memory_write_data"},
        "word 12, ST OP_DMA_WRITE pop.EX: port memory_write_data has unknown bits (x or z) in ",
    ),
    "address": (
        {"memory_address": "own_memory_address + (memory_write ? 512 : 0)"},
        "word 12, ST OP_DMA_WRITE pop.EX: 40 of 40 bytes differ, the first in system memory at ",
    ),
    "end-missing": ({"probe_ex_done": "0"}, "word 8, EX OP_C_MAX pop.LD push.ST: never ended"),
    "fault": (
        {"fault": "probe_ex_start"},
        "word 8, EX OP_C_MAX pop.LD push.ST: fault in cycle 363; expected: False",
    ),
}
"""Expressions of ports, and the beginning of the report.

The words are positions in the program. In the simulator the first EX command starts in cycle 363.
"""
WIDTHS = {"memory_address": "[31:0] ", "memory_write_data": "[63:0] "}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_bytes_names_its_command(
    name: str, case: Case, machine: str, tmp_path: Path
) -> None:
    faults, text = FAULTS[name]
    outcome = run(case, machine, tmp_path, case.timing, **faults)
    assert outcome.first is not None
    assert difference_text(case, outcome.first).startswith(text), outcome.differences


def test_a_wrong_lane_names_the_command_that_computes(
    case: Case, machine: str, tmp_path: Path
) -> None:
    start = machine.index("module lane_choice(")
    end = machine.index("endmodule", start)
    lane = machine[start:end].replace("$signed(a) < $signed(b)", "a < b")
    assert lane != machine[start:end]
    outcome = run(case, machine[:start] + lane + machine[end:], tmp_path, case.timing)
    lines = list(outcome_lines(outcome))
    assert lines[1].startswith("  word 8, EX OP_C_MAX pop.LD push.ST: ")
    assert "of 40 bytes differ, the first in scratchpad at 0x" in lines[1]
    assert lines[2].startswith("  registers of word 8: EX_OUTPUT_ADDRESS=128 EX_LENGTH=40 ")
