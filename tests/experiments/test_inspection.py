"""``dla simulate --break``, ``--until``, ``--dump-sram``: stops, displays and bad values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.debug.session import Stop, find_stop, hex_lines
from tests.experiments.command_line import dla, save_tiny
from tests.experiments.debug_runs import digits_regions

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]
SIMULATE = ("simulate", "digits.dla", "--isa", "v4")


def _digits(capsys: Capture) -> None:
    assert dla(capsys, "compile", "digits-cnn", "-o", "digits.dla").status == 0


def test_breakpoints_are_starts_and_ends_of_commands() -> None:
    _, regions = digits_regions()
    trace = regions[0].trace
    for number, command in enumerate(trace.commands):
        assert find_stop(regions, str(command.index), None) == Stop(
            0, trace.times.start[number], number
        )
        assert find_stop(regions, f"0/{command.index:#x}:after", None) == Stop(
            0, trace.times.end[number], number
        )
    last = len(regions[0].program.words) - 1
    assert find_stop(regions, str(last), None) == Stop(0, trace.cycles - 1, None)
    assert find_stop(regions, f"{last}:after", None) == Stop(0, trace.cycles, None)


def test_a_layer_breaks_at_its_first_start_and_after_its_last_end() -> None:
    _, regions = digits_regions("v1")
    for run, region in enumerate(regions):
        for layer in region.trace.labels.layers:
            members = [
                n
                for n, source in enumerate(region.trace.sources)
                if source and source.layer == layer
            ]
            before = find_stop(regions, layer, None)
            after = find_stop(regions, f"{layer}:after", None)
            assert before is not None
            assert after is not None
            assert (before.run, before.cycle) == (run, region.trace.times.start[members].min())
            assert (after.run, after.cycle) == (run, region.trace.times.end[members].max())


def test_cycles_of_regions_add_up() -> None:
    _, regions = digits_regions("v1")
    first, second = (region.trace.cycles for region in regions)
    assert find_stop(regions, None, first - 1) == Stop(0, first - 1, None)
    assert find_stop(regions, None, first) == Stop(1, 0, None)
    assert find_stop(regions, None, first + second) == Stop(1, second, None)


def test_effects_up_to_the_cycle_are_there_and_no_others(capsys: Capture) -> None:
    """The first command loads weights to address 0; they appear with its last cycle, not before."""
    _digits(capsys)
    _, (region,) = digits_regions()
    first = region.trace.commands[0]
    end = int(region.trace.times.end[0])
    (segment,) = region.program.segments
    expected = segment.data[first["LD_DRAM_ADDRESS"] - segment.address :][
        : first["LD_BYTES"]
    ].tobytes()
    dump = f"{first['LD_SRAM_ADDRESS']}..{first['LD_SRAM_ADDRESS'] + first['LD_BYTES']}:bytes.bin"
    for cycle, content in ((end - 1, bytes(len(expected))), (end, expected)):
        assert dla(capsys, *SIMULATE, "--until", str(cycle), "--dump-sram", dump).status == 0
        assert Path("bytes.bin").read_bytes() == content
    assert expected.strip(b"\0")


def test_the_whole_run_shows_the_last_regions_scratchpad(capsys: Capture) -> None:
    _digits(capsys)
    _, (region,) = digits_regions()
    store = region.trace.commands[-1]
    first = store["ST_SRAM_ADDRESS"]
    done = dla(
        capsys,
        *SIMULATE,
        "--dump-sram",
        f"{first}..{first + 10}:out.bin",
        "-o",
        "out.npz",
    )
    assert done.status == 0
    assert "utilisation" in done.out
    assert done.out.endswith(f"out.bin: 10 bytes of the scratchpad from {first:#x} on\n")
    with np.load("out.npz") as outputs:
        codes = np.frombuffer(Path("out.bin").read_bytes(), np.int8)
        assert np.argmax(outputs["logits"]) == np.argmax(codes)


def test_a_breakpoint_shows_units_tokens_operands_and_registers(capsys: Capture) -> None:
    _digits(capsys)
    _, (region,) = digits_regions()
    trace = region.trace
    number = next(
        n
        for n, command in enumerate(trace.commands)
        if command.instruction.mnemonic == "OP_MAT_MUL"
    )
    command = trace.commands[number]
    shown = dla(capsys, *SIMULATE, "--break", "classifier:after").out
    assert shown.startswith("region 0 at cycle ")
    shown = dla(capsys, *SIMULATE, "--break", str(command.index)).out
    start = trace.times.start[number]
    end = trace.times.end[number]
    assert shown.startswith(f"region 0 at cycle {start:,} of {trace.cycles:,}\n")
    assert (
        f"executes word {command.index} OP_MAT_MUL requantise=1 pop.LD push.ST (layer "
        "'classifier', tile 0), "
        f"cycles {start:,} to {end:,}" in shown
    )
    assert "  tokens  LD to EX: 0, EX to LD: 0, EX to ST: 0, ST to EX: 0\n" in shown
    for name in command.registers:
        assert f"\n  {name} " in shown
    assert f"\n  EX_OUTPUT_CHANNELS     {command['EX_OUTPUT_CHANNELS']}\n" in shown
    assert shown.count("\n  reads  scratchpad 0x") == 3
    assert shown.count("\n  writes scratchpad 0x") == 1


def test_a_wait_is_named_with_the_command_that_ends_it(capsys: Capture) -> None:
    _digits(capsys)
    _, (region,) = digits_regions()
    trace = region.trace
    convolution = next(n for n, command in enumerate(trace.commands) if command.unit.name == "EX")
    cycle = int(trace.times.start[convolution]) - 1
    shown = dla(capsys, *SIMULATE, "--until", str(cycle)).out
    pusher = next(command for command in trace.commands if command.push_next)
    assert (
        f"in queue: word {trace.commands[convolution].index} OP_CONV_RELU mapping=2 pop.LD (layer "
        "'conv', tile 0), "
        f"waits for a token from LD, which word {pusher.index} pushes at {cycle + 1:,}\n" in shown
    )


_RANGE = "write it as FIRST..END or FIRST..END:FILE, for example 0x100..0x200"
_INSIDE = (
    "the scratchpad has the bytes 0x0 to 0x80000; FIRST must lie below END, and END not beyond"
)


def test_bad_values_are_one_line_each(capsys: Capture) -> None:
    _digits(capsys)
    _, (region,) = digits_regions()
    words = len(region.program.words)
    cycles = region.trace.cycles
    first = region.trace.commands[0].index
    layers = ", ".join(region.trace.labels.layers)
    bad = {
        ("--break", "nowhere"): f"--break nowhere: no layer has this name; layers are {layers}",
        ("--break", "pointwize"): "--break pointwize: no layer has this name; layers are pointwise "
        "and 4 more",
        ("--break", "0"): f"--break 0: word 0 is a SET; the next operation is word {first}",
        ("--break", "0/0x0"): f"--break 0/0x0: word 0 is a SET; the next operation is word {first}",
        ("--break", f"{words}"): f"--break {words}: the program has the words 0 to {words - 1}; "
        "'dla disasm' shows them",
        ("--break", "4/2"): "--break 4/2: there is no region 4; regions are 0 to 0",
        ("--break", "2", "--until", "4"): "--break 2 and --until 4: choose one of them",
        ("--until", f"{cycles + 1}"): f"--until {cycles + 1}: the run ends at cycle {cycles}; "
        f"choose a cycle from 0 to {cycles}",
        ("--dump-sram", "12"): f"--dump-sram 12: {_RANGE}",
        ("--dump-sram", "-1..4"): f"--dump-sram -1..4: {_RANGE}",
        ("--dump-sram", "8..8"): f"--dump-sram 8..8: {_INSIDE}",
        ("--dump-sram", "0..0x80001"): f"--dump-sram 0..0x80001: {_INSIDE}",
        ("--until", "5", "-o", "x.npz"): "digits.dla: --output, --json and --csv need the whole "
        "run; "
        "leave out --break and --until",
    }
    for arguments, message in bad.items():
        found = dla(capsys, *SIMULATE, *arguments)
        assert (found.status, found.err) == (2, f"error: {message}\n")
    assert not Path("x.npz").exists()


def test_several_regions_need_a_region_and_none_shows_nothing(capsys: Capture) -> None:
    _digits(capsys)
    found = dla(capsys, "simulate", "digits.dla", "--isa", "v1", "--break", "2")
    assert (
        found.err
        == "error: --break 2: the network has 2 regions, a program each; write 0/2 or 1/2\n"
    )
    word = digits_regions("v1")[1][1].trace.commands[0].index
    shown = dla(capsys, "simulate", "digits.dla", "--isa", "v1", "--break", f"1/{word}").out
    assert shown.startswith("region 1 at cycle ")
    assert dla(capsys, "compile", save_tiny(Path()), "-o", "tiny.dla").status == 0
    found = dla(
        capsys,
        "simulate",
        "tiny.dla",
        "--set",
        "sram_bytes=64",
        "--set",
        "sram_banks=1",
        "--until",
        "1",
    )
    assert found.err == (
        "error: tiny.dla: no node runs on the DLA, so there is nothing to look at; 'dla partition' "
        "says why\n"
    )


def test_equal_lines_of_a_dump_are_shown_once() -> None:
    data = bytes(range(4)) + bytes(60) + b"\x01"
    assert list(hex_lines(0x1C, data)) == [
        "0000001c  00 01 02 03",
        "00000020  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        "*",
        "00000050  00 00 00 00 00 00 00 00 00 00 00 00 01",
    ]
