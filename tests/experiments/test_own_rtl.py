"""``dla rtl compare`` and its cocotb agent, on the RTL of the example and on faults in it."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dla_sim.rtl.simulator.case import Case, Outcome, difference_text
from experiments.rtl.comparison import source_case
from experiments.rtl.cosimulation import check_sources, compare_design
from experiments.rtl.design import Design
from experiments.rtl.export import program_source
from isa.errors import InputError
from isa.program import Segment
from tests.experiments.command_line import dla
from tests.rtl.bench import require_icarus

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_rtl"
TOP = "own_machine"
INCLUDE = f"-I{ROOT / 'docs' / 'isa'}"


@pytest.fixture
def tensors(tmp_path: Path) -> list[str]:
    """Write the two inputs of ``largest.asm``; return the values of ``--tensor``."""
    for name in "ab":
        values = np.random.default_rng(ord(name)).integers(-128, 128, 40, dtype=np.int8)
        np.save(tmp_path / f"{name}.npy", values)
    return [f"{name}={tmp_path / name}.npy" for name in "ab"]


@pytest.fixture
def case(tensors: list[str]) -> Case:
    return source_case(program_source(EXAMPLE / "largest.asm", tensors, ()))


def compared(
    case: Case,
    folder: Path,
    changes: Sequence[tuple[str, str]] = (),
    *,
    scratchpad: str | None = "scratchpad",
    bits_only: bool = True,
    max_cycles: int | None = None,
    build_arg: Sequence[str] = (INCLUDE,),
) -> Outcome:
    """Compare the example's RTL after ``changes`` of its text."""
    require_icarus()
    text = (EXAMPLE / "own_machine.v").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "changed.v").write_text(text)
    sources = (str(folder / "changed.v"),)
    return compare_design(
        case, Design(sources, TOP, "icarus", build_arg, bits_only, scratchpad, max_cycles)
    )


def first_text(outcome: Outcome) -> str:
    assert outcome.first is not None
    return difference_text(outcome.case, outcome.first)


def test_rtl_with_other_cycles_has_the_same_bytes(case: Case, tmp_path: Path) -> None:
    outcome = compared(case, tmp_path)
    assert (outcome.ended, outcome.commands, outcome.differences) == ("interrupt", 4, ())
    # 14 words are fetched, 4 commands have 40 bytes each; the interrupt follows the last word
    assert outcome.cycles == 14 + 4 * 40


def test_the_command_names_the_first_wrong_command(
    tensors: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_icarus()
    text = (EXAMPLE / "own_machine.v").read_text()
    (tmp_path / "wrong.v").write_text(text.replace("wire signed [7:0] x", "wire [7:0] x"))
    words = [str(EXAMPLE / "largest.asm"), str(tmp_path / "wrong.v"), "--top", TOP]
    words += [word for tensor in tensors for word in ("--tensor", tensor)]
    said = dla(
        capsys, "rtl", "compare", *words, "--build-arg", INCLUDE, "--bits-only", "--scratchpad",
        "scratchpad",
    )  # fmt: skip
    a, b = (np.load(tmp_path / f"{name}.npy") for name in "ab")
    unsigned = np.where(a.view(np.uint8) > b.view(np.uint8), a, b)
    wrong = np.flatnonzero(unsigned != np.maximum(a, b))
    place = 128 + wrong[0]
    assert said.status == 1
    assert said.out.startswith(
        f"own/largest: 1 difference\n  word 8, EX OP_C_MAX pop.LD push.ST: {wrong.size} of 40 "
        f"bytes differ, the first in scratchpad at {place:#x} (byte {wrong[0]} of the result): "
        f"{unsigned[wrong[0] :][:16].tobytes().hex()}, expected "
        f"{np.maximum(a, b)[wrong[0] :][:16].tobytes().hex()}\n  registers of word 8: "
    )
    assert said.err == "difference: own/largest: own_machine differs from the simulator\n"


def test_the_first_command_with_other_cycles_is_named(case: Case, tmp_path: Path) -> None:
    outcome = compared(case, tmp_path, bits_only=False)
    # two words are fetched in the cycles 0 and 1, then 40 bytes are copied
    assert first_text(outcome) == "word 1, LD OP_DMA_READ: ends at 42, expected 232"
    assert outcome.count == 1


LAST = "assign probe_st_done = stores & last;"
FAULTS = {
    "load-address": (
        [("scratchpad[load_to + step] <=", "scratchpad[load_to + step + (load_from == 64)] <=")],
        {},
        "word 4, LD OP_DMA_READ push.EX: ",
    ),
    "byte-missing": (
        [("if (computes) scratch", "if (computes & step != 39) scratch")],
        {},
        "word 8, EX OP_C_MAX pop.LD push.ST: 1 of 40 bytes differ, the first in scratchpad at "
        "0xa7 (byte 39 of the result): xx, expected ",
    ),
    "unknown-bytes": (
        [("scratchpad[load_to + step] <= memory_read_data[7:0]", "scratchpad[load_to] <= 0")],
        {"scratchpad": None},
        "word 12, ST OP_DMA_WRITE pop.EX: port memory_write_data has unknown bits (x or z) in "
        "cycle 134",
    ),
    "no-reset": (
        [("step, busy, interrupt} <= 0", "step, busy} <= 0")],
        {},
        "port interrupt has unknown bits (x or z) in cycle 0",
    ),
    "store-elsewhere": (
        [("store_to + step;", "store_to + step + 256 * (step == 5);")],
        {},
        "word 12, ST OP_DMA_WRITE pop.EX: 1 of 40 bytes differ, the first in system memory at "
        "0x85 (byte 5 of the result): 00",
    ),
    "stray-byte": (
        [("stores ? store_bytes", "stores ? store_bytes + 1"),
         ("= {56'b0,", "= step == 40 ? 64'h55 : {56'b0,")],
        {},
        "system memory byte 0xa8 is 55 at the end and should be 00; no command writes it so",
    ),
    "outside": (
        [("store_to + step;", "store_to + step + 512 * (step == 5);")],
        {},
        "word 12, ST OP_DMA_WRITE pop.EX: write of 1 bytes at 0x285 in cycle 138, outside the "
        "memory",
    ),
    "wide": (
        [("fetches ? 8 : 1", "fetches ? 9 : 1")],
        {},
        "read of 9 bytes at 0x100 in cycle 0, wider than the data port",
    ),
    "hangs": ([(LAST, "assign probe_st_done = 0;"), ("busy <= !last;", "busy <= !last | stores;")],
              {"max_cycles": 150}, "no interrupt in 150 cycles"),
    "no-end": ([(LAST, "assign probe_st_done = 0;")], {},
               "word 12, ST OP_DMA_WRITE pop.EX: never ended"),
    "second-end": (
        [(LAST, "assign probe_st_done = stores & last | fetches & next == 360;")],
        {},
        "ST starts or ends a command in cycle 174 that the program does not have",
    ),
    "without-ends": (
        [("probe_ld_done", "ld_done"), ("x > y ? x : y", "x > y ? y : x")],
        {"scratchpad": None},
        "word 12, ST OP_DMA_WRITE pop.EX: ",
    ),
}  # fmt: skip
"""Changes of the RTL, further settings of the comparison, and the beginning of the report.

The example fetches one word a cycle and copies or compares 40 bytes in 40 cycles. The words 0 to
12 and three commands take the cycles 0 to 132, the store 133 to 172, and OP_END cycle 173.
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_bytes_names_its_command(name: str, case: Case, tmp_path: Path) -> None:
    changes, settings, text = FAULTS[name]
    outcome = compared(case, tmp_path, changes, **settings)  # type: ignore[arg-type]
    assert first_text(outcome).startswith(text)
    if name == "hangs":
        assert difference_text(case, outcome.differences[1]) == (
            "word 12, ST OP_DMA_WRITE pop.EX: never ended"
        )


def test_bad_input_gives_one_line(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = str(EXAMPLE / "own_machine.v")
    (tmp_path / "design.txt").write_text("module a; endmodule")
    for file, text in (
        ("missing.v", "missing.v: no such file"),
        (
            str(tmp_path / "design.txt"),
            f"{tmp_path}/design.txt: is no Verilog file; its name must ",
        ),
    ):
        with pytest.raises(InputError, match=text):
            check_sources(Design((good, file), TOP))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"^Icarus Verilog is not installed; install it"):
        compare_design(case, Design((good,), TOP))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^comparing your own RTL needs cocotb; install"):
        compare_design(case, Design((good,), TOP))


BAD = {
    "port": ([("interrupt", "done")], {}, "the top level has no port interrupt; docs/own-rtl.md"),
    "end": ([("probe_ld_done", "ld_done")], {"bits_only": False},
            "the top level has no port probe_ld_done, which shows the cycles of commands; add it "
            "or pass --bits-only"),
    "scratchpad": ([], {"scratchpad": "unit.bytes"}, "unit.bytes: the RTL has no array of bytes"),
    "no-array": ([], {"scratchpad": "first"}, "first: the RTL has no array of bytes or words"),
    "index": ([("[0:4095]", "[1:4096]")], {}, "scratchpad: .* or its first index is not 0"),
    "width": ([("[31:0] command_address", "[7:0] command_address")], {},
              "port command_address has 8 bits, too few for 256"),
    "option": ([], {"build_arg": ("-z",)}, "icarus cannot run the RTL: iverilog: .* option"),
    "small": ([("[0:4095]", "[0:127]")], {},
              "scratchpad: has 128 bytes, and the program writes 168; choose a program for a"),
    "syntax": ([("endmodule", "end")], {}, "icarus cannot run the RTL: .*changed.v:.* syntax"),
    "top": ([("module own_machine", "module another")], {},
            "icarus cannot run the RTL: error: Unable to find the root module \"own_machine\""),
    "finish": ([("busy <= !last;", "busy <= !last; $finish;")], {},
               r"own_machine: \$finish or \$fatal ended the simulation"),
    "include": ([("dla_isa.vh", "absent.vh")], {},
                "icarus cannot run the RTL: .*changed.v:.* Include file absent.vh not found"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_rtl_that_cannot_be_compared(name: str, case: Case, tmp_path: Path) -> None:
    changes, settings, text = BAD[name]
    with pytest.raises(InputError, match=text) as error:
        compared(case, tmp_path, changes, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_machine_with_a_flash_needs_its_address_decoder(case: Case, tmp_path: Path) -> None:
    program = replace(case.program, segments=(Segment(200, np.ones(8, np.uint8)),))
    timing = case.timing.model_copy(update={"flash_bytes": 1})
    with pytest.raises(InputError, match="the top level has no port lookup_ld_address, which the"):
        compared(replace(case, program=program, timing=timing), tmp_path)
