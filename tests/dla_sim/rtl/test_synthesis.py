"""Synthesis: gates without latches or loops, modules counted once, no values before reset."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dla_sim.rtl import synthesis
from dla_sim.rtl.machine import NAME
from dla_sim.rtl.parameters import Limits
from dla_sim.rtl.simulator.machine_text import machine_text
from dla_sim.rtl.synthesis import check, synthesise
from experiments.rtl.build import split_text
from experiments.rtl.hardware import SMALL
from isa.errors import InputError
from tests.rotation import choose_cases

KINDS = (*SMALL, *(replace(limits, ic=1, oc=1, ow=1, lanes=1, pipelined=False) for limits in SMALL))

COUNTER = """
module part(clk, a, y);
  input clk;
  input [7:0] a;
  output [7:0] y;
  reg [7:0] y;
  always @(posedge clk)
    y <= y + a;
endmodule
module top(clk, a, y, z);
  input clk;
  input [7:0] a;
  output [7:0] y;
  output [7:0] z;
  part first (
    .clk(clk), .a(a), .y(y)
  );
  part second (
    .clk(clk), .a(z), .y(z)
  );
endmodule
"""
MACRO = "module macro(input [7:0] address, output [7:0] data);\nendmodule\n"


def test_components_are_counted_once_and_multiplied() -> None:
    found = synthesise(COUNTER, MACRO, "top")
    assert found.counts() == {"top": 1, "part": 2}
    part = found.components["part"]
    assert (part.registers, found.components["top"].gates, part.memory_bits) == (8, 0, 0)
    assert part.levels >= 8, "a carry goes through all bits"
    assert found.total("gates") == 2 * part.gates > 2 * 8 * 4


@pytest.mark.parametrize(
    "text",
    [
        "reg [7:0] y;\n  always @* if (a[0]) y = a;",  # a latch
        "wire [7:0] x;\n  assign x = ~y;\n  assign y = x & a;",  # a loop
        "wire [7:0] x;\n  assign y = x & a;",  # nothing drives x
        "reg [7:0] y = 1;\n  always @(posedge a[0]) y <= a;",  # a register with a value of its own
        "reg [7:0] x [0:3];\n  initial x[0] = 1;\n  always @(posedge a[0]) x[a[1]] <= a;\n  assign "
        "y = x[a[2]];",
        "assign y = a;\n  assign y = ~a;",  # two drive y
    ],
)
def test_what_is_no_hardware_is_refused(text: str) -> None:
    module = f"module top(a, y);\n  input [7:0] a;\n  output [7:0] y;\n  {text}\nendmodule\n"
    with pytest.raises(InputError, match=r"Yosys refuses top: .*ERROR"):
        synthesise(module, MACRO, "top")


def test_a_yosys_that_breaks_off_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthesis, "_RUN", "raise MemoryError('all used')")
    with pytest.raises(
        InputError, match=r"breaks off at top \(MemoryError: all used\).*choose a smaller array"
    ):
        check(COUNTER, MACRO, "top")


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits", choose_cases(KINDS, 4), ids=lambda limits: f"{limits.numerics}-{limits.pipelined}"
)
def test_the_whole_machine_is_hardware(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLA_NO_CACHE")  # tests of the same hardware need the same Verilog
    machine, scratchpad = split_text(machine_text(limits))
    check(machine, scratchpad, NAME)
    assert not re.search(r"\binitial\b", machine)
