"""A cocotb test of your own RTL with the project's agent: the flow of ``dla rtl compare``.

Run it with ``python examples/own_rtl/own_bench.py``. It needs the extra ``rtl`` and Icarus Verilog.
docs/own-rtl.md lists the ports of the RTL. To test your own RTL, change PROGRAM, SOURCES and TOP.
"""

import sys
from pathlib import Path

import cocotb
import numpy as np
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from experiments.rtl.agent import Agent
from experiments.rtl.comparison import outcome_lines, source_case
from experiments.rtl.export import program_source

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "largest.asm"
SOURCES = [HERE / "own_machine.v"]
TOP = "own_machine"
HEADER = HERE.parents[1] / "docs" / "isa"  # dla_isa.vh; `dla isa --format verilog` writes it, too


@cocotb.test()
async def the_rtl_equals_the_simulator(dut):
    # 1. The program, its inputs and the simulator's results.
    inputs = []
    for name in "ab":
        values = np.random.default_rng(ord(name)).integers(-128, 128, 40, dtype=np.int8)
        np.save(f"{name}.npy", values)
        inputs.append(f"{name}={name}.npy")
    case = source_case(program_source(PROGRAM, inputs, []))

    # 2. The agent drives the ports until the interrupt, or the first command that differs.
    outcome = await Agent(dut, case, bits_only=True, scratchpad="scratchpad").run()

    # 3. The lines name the command, the address, and the expected and actual bytes.
    assert not outcome.count, "\n".join(outcome_lines(outcome))
    dut._log.info("%d commands equal the simulator, %d cycles", outcome.commands, outcome.cycles)


if __name__ == "__main__":
    runner = get_runner("icarus")
    runner.build(sources=SOURCES, hdl_toplevel=TOP, includes=[HEADER], timescale=("1ns", "1ps"))
    results = runner.test(hdl_toplevel=TOP, test_module=Path(__file__).stem, test_dir=Path.cwd())
    sys.exit(get_results(results)[1])
