"""The Verilog unit of this folder in its test bench, simulated with Icarus Verilog."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiments.rtl.export import Export, Operation, write_export

ROOT = Path(__file__).parents[2]
UNIT = Path(__file__).parent / "post_unit"
EXECUTED = (
    "OP_REQUANT", "OP_ACT_RELU", "OP_ACT_LRELU", "OP_E_ABS", "OP_C_MIN", "OP_C_MAX", "OP_E_ADD",
    "OP_E32_ADD",
    "OP_E32_SHIFT",
)  # fmt: skip
PIPELINE = 7
"""Cycles of fill and drain together that the unit needs."""
_LINE = re.compile(
    r"(PASS|FAIL) (\S+): (\d+) operations executed, (\d+) stood in for, (\d+) differences"
)


@dataclass(frozen=True)
class Simulation:
    """One run of the simulator: passed and executed operations by export.

    It has output and exit status too.
    """

    passed: Mapping[str, bool]
    executed: Mapping[str, int]
    output: str
    status: int


def require_icarus() -> None:
    """Skip the test where Icarus Verilog is not installed."""
    for program in ("iverilog", "vvp"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian package iverilog)")


def machine(export: Export) -> tuple[bool, int]:
    """Return the compile-time properties of a simulation: fixed-point numbers, and lanes."""
    arch = export.source.program.arch
    return arch.numerics == "fixed", arch.lanes


def owed(export: Export) -> int:
    """Return the number of operations that the unit executes.

    They are its own instructions, except those that overwrite operands which they must still read.
    """
    own = (item for item in export.operations if item.command.instruction.mnemonic in EXECUTED)
    return sum(not overwrites(item) for item in own)


def overwrites(operation: Operation) -> bool:
    """Return True if a unit would overwrite bytes that it must still read.

    The unit reads and writes in ascending order.
    """
    command = operation.command
    operands = operation.reads
    output = command["EX_OUTPUT_ADDRESS"]
    elements = [operands[0]] if command.instruction.mnemonic == "OP_REQUANT" else operands
    if any(
        item.access.address < output < item.access.end for item in elements if item.access.total
    ):
        return True
    written = [item.access for item in operation.writes if item.access.total]
    records = [item.access for item in operands if item not in elements and item.access.total]
    return any(
        one.address < other.end and other.address < one.end for one in written for other in records
    )


def simulate(exports: Mapping[str, Export], folder: Path, sources: Path = UNIT) -> Simulation:
    """Simulate the unit in ``sources`` on ``exports`` of one machine, in ``folder``."""
    for name, export in exports.items():
        write_export(export, folder / name)
    (folder / "list").write_text("".join(f"{folder / name}\n" for name in exports))
    first = next(iter(exports))
    sizes = {
        "WORDS": max(len(item.source.program.words) for item in exports.values()),
        "OPERATIONS": max(1, *(len(item.operations) for item in exports.values()), 1),
        "SRAM_BYTES": max(64, *(item.sram_before.size for item in exports.values()), 64),
        "DRAM_BYTES": max(64, *(item.dram_before.size for item in exports.values()), 64),
    }
    timing = exports[first].source.timing
    if timing.ex_fill + timing.ex_drain < PIPELINE:
        sizes |= {"EX_FILL": 8, "EX_DRAIN": 8}
    settings = [f"-Ptestbench.{name}={value}" for name, value in sizes.items()]
    bench = folder / first / "testbench.sv"
    verilog = sorted(sources.glob("*.v"))
    target = [
        "-g2012",
        "-Wall",
        "-Wno-timescale",
        "-I",
        str(ROOT / "docs/isa"),
        "-s",
        "testbench",
        *settings,
    ]
    compiled = _run(
        "iverilog", *target, "-o", str(folder / "simulation"), str(bench), *map(str, verilog)
    )
    assert (compiled.returncode, compiled.stdout) == (0, ""), compiled.stdout
    return _results(
        _run("vvp", "-n", str(folder / "simulation"), f"+list={folder / 'list'}"), folder
    )


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


def _results(done: subprocess.CompletedProcess[str], folder: Path) -> Simulation:
    found = [match.groups() for match in map(_LINE.match, done.stdout.splitlines()) if match]
    names = [str(Path(place).relative_to(folder)) for _, place, *_ in found]
    passed = {name: row[0] == "PASS" for name, row in zip(names, found, strict=True)}
    executed = {name: int(row[2]) for name, row in zip(names, found, strict=True)}
    return Simulation(passed, executed, done.stdout, done.returncode)
