"""cocotb test of ``cosimulation``: run the agent on a user's RTL and write its result."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import cocotb

from dla_sim.rtl.simulator.case import Case, expect
from experiments.rtl.agent import Agent
from experiments.rtl.cocotb_run import CASE, DESIGN, FOLDER, RESULT
from isa.errors import InputError


@cocotb.test()
async def compare(dut: Any) -> None:
    """Run the program of the comparison on the top level ``dut``."""
    folder = Path(os.environ[FOLDER])
    design = json.loads((folder / DESIGN).read_text())
    name, program, inputs, timing = pickle.loads((folder / CASE).read_bytes())
    options = {name: design[name] for name in ("bits_only", "scratchpad", "max_cycles")}
    result: dict[str, Any]
    try:
        case = Case(name, program, inputs, timing, expect(program, inputs, timing))
        outcome = await Agent(dut, case, **options).run()
        result = {
            name: getattr(outcome, name) for name in ("ended", "cycles", "seconds", "commands")
        }
        result["differences"] = [
            (item.kind, item.command, dict(item.details)) for item in outcome.differences
        ]
    except InputError as error:
        result = {"error": str(error)}
    (folder / RESULT).write_text(json.dumps(result))
