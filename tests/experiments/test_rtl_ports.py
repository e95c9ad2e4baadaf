"""``dla rtl ports``: rates at the hardware's ports against hand counts and the simulator."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dla_sim.presets import load_hardware
from dla_sim.rtl.ports import ReadPort, WritePort
from experiments.cli.main import main
from experiments.rtl import memory_ports
from isa.instruction import Unit
from isa.variants import VARIANTS

BALANCED = load_hardware("balanced-64", isa="v4")
FOUND = memory_ports.hardware_ports(BALANCED)


def rate(instruction: str, operand: str, access: str) -> list[int]:
    """Bytes in a cycle, port by port."""
    return [
        row["bytes"]
        for row in memory_ports.port_rows(FOUND)
        if (row["instruction"], row["operand"], row["access"]) == (instruction, operand, access)
    ]


@pytest.mark.parametrize(
    ("instruction", "operand", "access", "expected"),
    [
        # ic * ow along the first oc; each other element its own
        ("OP_CONV", "EX_INPUT_ADDRESS", "read", [4, 4 * 15]),
        ("OP_CONV", "EX_OPERAND_ADDRESS", "read", [4 * 16]),
        # blocks from lane 0 of ic, from lanes 1 to 3
        ("OP_CONV", "EX_CHANNEL_ADDRESS", "read", [16 * 8, 3 * 16 * 8]),
        ("OP_CONV", "EX_OUTPUT_ADDRESS", "write", [16 * 4, 3 * 16 * 4]),  # int32
        # int8 by a port that records of 8 bytes pass as well
        ("OP_E_ADD", "EX_OPERAND_ADDRESS", "read", [64]),
        ("OP_E32_ADD", "EX_OPERAND_ADDRESS", "read", [64 * 4]),
        ("OP_LUT", "EX_OPERAND_ADDRESS", "read", [64]),
        # a coordinate of the row, one of the column
        ("OP_RESIZE", "EX_OPERAND_ADDRESS", "read", [64 * 4, 64 * 4]),
        ("OP_NORM", "EX_OPERAND_ADDRESS", "read", [64 * 8]),  # gain and bias
        ("OP_DMA_READ", "LD_SRAM_ADDRESS", "write", [8]),
        ("OP_DMA_WRITE", "ST_SRAM_ADDRESS", "read", [8]),
    ],
)
def test_bytes_a_cycle_of_balanced_64(
    instruction: str, operand: str, access: str, expected: list[int]
) -> None:
    """An array of {4, 16, 1} and 64 lanes."""
    assert rate(instruction, operand, access) == expected


def test_every_operand_of_every_instruction_has_a_port() -> None:
    for instruction in VARIANTS["v4"].instructions:
        for register in instruction.registers if instruction.unit is Unit.EX else ():
            if register.endswith("_ADDRESS"):
                assert rate(
                    instruction.mnemonic, register, "write" if "OUTPUT" in register else "read"
                ), (
                    instruction.mnemonic,
                    register,
                )


def test_engines_share_lanes_widest_with_widest() -> None:
    reads = [ReadPort("a", 2, 8, None), ReadPort("b", 3, 1, None), ReadPort("c", 4, 4, None)]
    one = memory_ports.Ports("one", (), (reads[0], reads[1], WritePort("w", 9, 9, "sync")))
    other = memory_ports.Ports("other", (), (reads[2],))
    assert memory_ports.merge_ports([one, other], ReadPort) == {8: 2, 4: 2, 1: 1}
    assert memory_ports.merge_ports([one, other], WritePort) == {9: 9}


def test_the_command_lists_ports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = tmp_path / "ports.json", tmp_path / "ports.csv"
    words = [
        "rtl",
        "ports",
        "--preset",
        "balanced-64",
        "--isa",
        "v4",
        "--json",
        str(places[0]),
        "--csv",
        str(places[1]),
    ]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert (
        "EX reads by 320 addresses at once, 960 bytes a cycle: 64 x 8, 64 x 4, 192 x 1 (lanes x "
        "bytes)" in out
    )
    assert "EX writes by 64 addresses at once, 256 bytes a cycle: 64 x 4 (lanes x bytes)" in out
    document = json.loads(places[0].read_text())
    rows = list(csv.DictReader(places[1].read_text().splitlines()))
    assert [row["port"] for row in document["ports"]] == [row["port"] for row in rows]
    assert document["ex"]["write"] == [{"lanes": 64, "lane_bytes": 4}]


def test_wires_are_counted_before_they_are_written_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rtl", "ports", "--isa", "v4", "--set", "pe.ic=65536", "--set", "pe.ow=2"]) == 2
    said = (
        "error: the machine has 2,097,152 processing elements; hardware is written of at most "
        "4,096\n"
    )
    assert capsys.readouterr().err == said
