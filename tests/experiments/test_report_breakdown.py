"""The breakdown of the layers' cycles in reports: sums that must hold, and its table."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from dla_sim.device import Device
from dla_sim.presets import Preset
from dla_sim.timing import Timing
from experiments.report.figures import RegionRun, figures
from experiments.report.schema import Figures
from experiments.report.tables import breakdown_table
from isa.arch import Arch
from isa.assembler import assemble

LOAD_AND_STORE = """
.arch {}
.memory 0x4000 commands 0x0
.tensor ["x","input","int8",[64],8192]
.tensor ["y","output","int8",[64],12288]
    SET LD_DRAM_ADDRESS, 0x2000
    SET LD_BYTES, 64
.source [3,"first","DMA","load",0,[]]
    OP_DMA_READ push.EX
.source [4,"first","ISSUE","sync",0,[]]
    OP_SYNC unit=EX pop.LD push.ST
    SET ST_DRAM_ADDRESS, 0x3000
    SET ST_BYTES, 64
.source [7,"last","DMA","store",0,[]]
    OP_DMA_WRITE pop.EX
    OP_END
"""


def machine_figures(bus_bytes: int = 8) -> Figures:
    program = assemble(LOAD_AND_STORE)
    hardware = Preset(name="test", arch=Arch(), timing=Timing(bus_bytes=bus_bytes))
    trace = Device(hardware.arch, hardware.timing).run(program, {}, timing_only=True).trace
    return figures(hardware, [RegionRun(0, program, trace)])


def test_the_figures_hold_the_breakdown() -> None:
    found = machine_figures()
    assert [layer.name for layer in found.layers] == ["first", "last"]
    for layer in found.layers:
        assert sum(layer.breakdown.values()) == layer.cycles
    assert found.layers[0].breakdown["input"] > 0
    assert found.layers[1].breakdown["store"] > 0


def changed(layer: int, breakdown: dict[str, int]) -> dict[str, Any]:
    content = machine_figures().model_dump()
    content["layers"][layer]["breakdown"] = breakdown
    return content


def test_a_breakdown_that_does_not_add_up_is_refused() -> None:
    right = dict(machine_figures().layers[0].breakdown)
    with pytest.raises(ValidationError, match="the sum of the breakdown of first"):
        Figures.model_validate(changed(0, {**right, "store": right["store"] + 1}))
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        Figures.model_validate(
            changed(0, {**right, "store": -1, "bus": right["bus"] + right["store"] + 1})
        )
    del right["bus"]
    with pytest.raises(ValidationError, match="the parts of layer first"):
        Figures.model_validate(changed(0, right))


def test_the_table_shows_what_occurs_and_the_totals() -> None:
    found = machine_figures()
    table = breakdown_table(found)
    assert table is not None
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    text = capture.get()
    assert "wait input" in text
    assert "wait weights" not in text
    assert f"{found.totals.cycles:,}" in next(
        line for line in text.splitlines() if line.split()[:1] == ["total"]
    )


def test_reports_without_a_breakdown_have_no_table() -> None:
    found = machine_figures()
    layers = tuple(layer.model_copy(update={"breakdown": {}}) for layer in found.layers)
    assert breakdown_table(found.model_copy(update={"layers": layers})) is None
