"""The device: rejected programs and messages, independent runs, and reports."""

from __future__ import annotations

import gc
import re
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dla_sim
from dla_sim.device import Device
from dla_sim.engine.accounts import CAUSES
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from isa.assembler import assemble
from isa.errors import InputError
from isa.program import Executor, Program
from tests.dla_sim.compiled import compiled_program

COPY = """
.program "copy"
.arch {"sram_bytes":65536}
.memory 0x4000 commands 0x0
.tensor ["x","input","int8",[2,32],4096]
.tensor ["y","output","int8",[2,32],6144]
.tensor ["z","output","int32",[4],8192]
.image 0x2000
.data AQAAAAIAAAADAAAABAAAAA==
    SET LD_DRAM_ADDRESS, 0x1000
    SET LD_BYTES, 64
    OP_DMA_READ push.EX
    OP_SYNC unit=EX pop.LD push.ST
    SET ST_DRAM_ADDRESS, 0x1800
    SET ST_BYTES, 64
    OP_DMA_WRITE pop.EX
    OP_END
"""
X = np.arange(64, dtype=np.int8).reshape(2, 32)


def copy() -> Program:
    """A program that copies x to y; z is a constant that it does not touch."""
    return assemble(COPY)


def test_a_run_gives_outputs_and_a_trace() -> None:
    program = copy()
    executor: Executor[dla_sim.Trace] = Device(program.arch)
    result = executor.run(program, {"x": X})
    assert np.array_equal(result.outputs["y"], X)
    assert result.outputs["z"].tolist() == [1, 2, 3, 4]
    trace = result.trace
    assert (
        trace.dram_read_bytes,
        trace.dram_write_bytes,
        trace.fetch_bytes,
        trace.sram_peak_bytes,
    ) == (64, 64, 64, 64)
    assert (trace.instructions, trace.command_words, trace.macs) == (4, 8, 0)


def test_runs_do_not_influence_one_another() -> None:
    program = copy()
    device = Device(program.arch)
    first = device.run(program, {"x": X})
    second = device.run(program, {"x": X[::-1]})
    assert np.array_equal(first.outputs["y"], X)
    assert np.array_equal(second.outputs["y"], X[::-1])
    assert np.array_equal(first.trace.times.end, second.trace.times.end)
    assert first.trace.units == second.trace.units


@pytest.mark.parametrize("compiled", [False, True])
def test_a_batch_returns_the_outputs_of_its_inferences(compiled: bool) -> None:
    program = compiled_program("digits-cnn", "default")
    device = Device(program.arch, compiled=compiled)
    random = np.random.default_rng(0)
    inputs = {
        one.name: random.integers(-128, 128, (3, *one.shape)).astype(one.dtype)
        for one in program.inputs
    }
    found = device.run(program, inputs)
    for number in range(3):
        one = device.run(program, {name: value[number] for name, value in inputs.items()})
        assert found.trace is one.trace
        for name, value in one.outputs.items():
            assert np.array_equal(found.outputs[name][number], value)


def test_inferences_of_a_batch_do_not_influence_one_another() -> None:
    program = assemble(COPY.replace("SET ST_BYTES, 64", "SET ST_BYTES, 32"))
    batch = np.stack([X, -X])
    outputs = Device(program.arch).run(program, {"x": batch}).outputs
    assert np.array_equal(outputs["y"][:, 0], batch[:, 0])
    assert not outputs["y"][:, 1].any()
    assert outputs["z"].tolist() == [[1, 2, 3, 4]] * 2


@pytest.mark.parametrize("compiled", [False, True])
def test_a_device_keeps_no_memory_of_a_program_that_is_gone(compiled: bool) -> None:
    program = replace(compiled_program("digits-cnn", "default"))
    device = Device(program.arch, compiled=compiled)
    device.run(program, {one.name: np.zeros(one.shape, one.dtype) for one in program.inputs})
    memory = weakref.ref(device.load(program).memory.data)
    del program
    gc.collect()
    assert memory() is None


def test_what_a_program_never_writes_is_zero_in_every_run() -> None:
    text = COPY.replace("SET ST_BYTES, 64", "SET ST_BYTES, 32")
    program = assemble(text)
    device = Device(program.arch)
    for sign in (1, -1):
        assert np.array_equal(device.run(program, {"x": sign * X}).outputs["y"][1], np.zeros(32))
    assert device.load(program) is device.load(program)


def test_constants_that_a_run_overwrites_are_restored() -> None:
    """The program reads the constants at z, then stores the input over them."""
    text = COPY.replace("    SET LD_DRAM_ADDRESS, 0x1000\n", LOAD_CONSTANTS).replace(
        "pop.EX\n", "pop.EX\n" + STORE_OVER
    )
    program = assemble(text)
    device = Device(program.arch)
    for _ in range(2):
        outputs = device.run(program, {"x": X}).outputs
        assert outputs["y"][0, :4].tolist() == [1, 0, 0, 0]
        assert outputs["z"].view(np.int8).tolist() == X.reshape(-1)[:16].tolist()


LOAD_CONSTANTS = """
    SET LD_DRAM_ADDRESS, 0x1000
    SET LD_SRAM_ADDRESS, 256
    SET LD_BYTES, 16
    OP_DMA_READ
    SET LD_SRAM_ADDRESS, 0
    SET LD_DRAM_ADDRESS, 0x2000
"""
STORE_OVER = """
    SET ST_BYTES, 16
    SET ST_SRAM_ADDRESS, 256
    SET ST_DRAM_ADDRESS, 0x2000
    OP_DMA_WRITE
"""


def test_timing_alone_takes_the_same_cycles() -> None:
    program = copy()
    device = Device(program.arch)
    alone = device.run(program, {}, timing_only=True)
    assert alone.outputs == {}
    assert alone.trace.units == device.run(program, {"x": X}).trace.units


def test_causes_sum_to_the_total_for_many_timings() -> None:
    program = copy()
    for bus in (1, 4, 64):
        for latency in (0, 7, 300):
            trace = (
                Device(program.arch, Timing(bus_bytes=bus, dram_latency=latency))
                .run(program, {"x": X})
                .trace
            )
            assert set(trace.units) == {"LD", "EX", "ST"}
            for causes in trace.units.values():
                assert tuple(causes) == tuple(cause for cause in CAUSES if cause != "flash")
                assert sum(causes.values()) == trace.cycles


@pytest.mark.parametrize(
    ("arch", "key", "wanted", "present"),
    [
        (Arch(), "sram_bytes", 65536, 524288),
        (Arch(sram_bytes=65536, pe=PeArray(oc=16)), "pe.oc", 8, 16),
        (Arch(sram_bytes=65536, isa="v1"), "isa", "v2", "v1"),
    ],
)
def test_programs_for_another_machine_are_refused(
    arch: Arch, key: str, wanted: object, present: object
) -> None:
    program = copy()
    message = (
        f"program 'copy' is for another machine: its Arch {program.arch.digest()} has {key} = "
        f"{wanted}, "
        f"the device's {arch.digest()} has {present}; compile the program for this device"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Device(arch).run(program, {"x": X})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing; give int8 [2, 32]"),
        ({"x": X, "w": X}, "the program has no input 'w'; its inputs are x"),
        ({"x": X[0]}, "input 'x' is int8 [32]; give int8 [2, 32]"),
        ({"x": np.zeros((0, 2, 32), np.int8)}, "input 'x' is int8 [0, 2, 32]; give int8 [2, 32]"),
        ({"x": X.astype(np.int32)}, "input 'x' is int32 [2, 32]; give int8 [2, 32]"),
        ({"x": X.tolist()}, "input 'x' is a list; give int8 [2, 32]"),
        ({"w": X.tolist()}, "the program has no input 'w'; its inputs are x"),
    ],
)
def test_inputs_that_do_not_fit(inputs: dict[str, Any], message: str) -> None:
    program = copy()
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Device(program.arch).run(program, inputs)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "SET LD_BYTES, 64", "SET LD_BYTES, 65537",
            "OP_DMA_READ at word 2 touches 65537 bytes from 0x1000 to 0x11001; the system memory "
            "has 16384 bytes",
        ),
        (
            "    OP_DMA_READ", "    SET LD_SRAM_ADDRESS, 65500\n    OP_DMA_READ",
            "OP_DMA_READ at word 3 touches 64 bytes from 0xffdc to 0x1001c; the scratchpad has "
            "65536 bytes",
        ),
        (
            "SET ST_DRAM_ADDRESS, 0x1800", "SET ST_DRAM_ADDRESS, 0x3f",
            "OP_DMA_WRITE at word 6 writes bytes 0x3f to 0x7f of system memory, over the command "
            "words at 0x0",
        ),
    ],
)  # fmt: skip
def test_commands_that_leave_the_memories(old: str, new: str, message: str) -> None:
    program = assemble(COPY.replace(old, new))
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Device(program.arch).load(program)


def test_endless_rows_are_refused() -> None:
    """Rows at stride 0 stay inside the memory however many there are."""
    rows = "".join(f"    SET LD_COUNT_{d}, 1000000\n" for d in (1, 2, 3))
    program = assemble(COPY.replace("    OP_DMA_READ", rows + "    OP_DMA_READ"))
    with pytest.raises(
        InputError, match="OP_DMA_READ at word 5 touches 64000000000000000000 bytes"
    ):
        Device(program.arch).load(program)


def test_a_large_scratchpad_costs_nothing() -> None:
    """Only what a program can touch is made: 4 GiB of scratchpad run like any other."""
    program = assemble(COPY.replace("65536", str(1 << 32)))
    assert np.array_equal(Device(program.arch).run(program, {"x": X}).outputs["y"], X)


def test_the_package_offers_its_interface() -> None:
    for name in dla_sim.__all__:
        assert getattr(dla_sim, name).__name__ == name
    assert dla_sim.Device is Device
    assert not hasattr(dla_sim, "Machine")


@pytest.mark.parametrize("name", ["arch", "timing"])
def test_a_machine_of_another_type_is_named_in_one_line(name: str) -> None:
    with pytest.raises(InputError, match=rf"^Device: {name} is 'balanced-64', which is no \w+; "):
        Device(**{name: "balanced-64"})  # type: ignore[arg-type]
