"""The SystemVerilog test bench of an export, from the template ``testbench.sv`` beside this file."""

from __future__ import annotations

from importlib.resources import files

from experiments.golden.export import Export

SMALLEST_MEMORY = 64


def testbench(export: Export) -> str:
    """The text of the test bench for ``export``: the template with the case's sizes and the machine's parameters."""
    program, timing = export.source.program, export.source.timing
    values = {
        "NAME": " ".join(export.source.name.split()),
        "WORDS": len(program.words),
        "OPERATIONS": max(1, len(export.operations)),
        "SRAM_BYTES": max(SMALLEST_MEMORY, export.sram_before.size),
        "DRAM_BYTES": max(SMALLEST_MEMORY, export.dram_before.size),
        "FIXED": int(program.arch.numerics == "fixed"),
        "LANES": program.arch.lanes,
        "EX_FILL": timing.ex_fill,
        "EX_DRAIN": timing.ex_drain,
    }
    text = files(__package__).joinpath("testbench.sv").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
