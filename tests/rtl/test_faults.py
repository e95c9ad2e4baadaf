"""Faults in the Verilog are found by golden cases, and the test bench says where."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from experiments.golden.record import record_case
from experiments.golden.store import open_corpus
from experiments.rtl.export import Export, build_export, case_source
from isa.arch import Arch
from tests.rtl.bench import ROOT, UNIT, require_icarus, simulate
from tests.rtl.random_operations import random_case

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Fault:
    """A replacement of ``old`` by ``new`` in ``file``.

    On the case, a line of the test bench begins with ``message``.
    """

    name: str
    file: str
    old: str
    new: str
    case: str
    message: str


FAULTS = (
    Fault("ties-go-up", "float32_to_integer.v", "aligned[25] & (|aligned[24:0] | "
                                                "aligned[26])", "aligned[25]",
          "L2/requant-ties", "word 10: scratchpad byte 0x102 is 0xf5, golden 0xf6"),
    Fault("converted-by-truncation", "float32_round.v", "half & (rest | kept[0])", "1'b0",
          "random", "word"),
    Fault("zero-point-forgotten", "clamp_int8.v", "value + offset", "value",
          "L2/requant-zero-high", "word"),
    Fault("records-not-advanced", "channel_counter.v", "number + 1 == channels ? 0 : number + "
                                                       "1", "number",
          "L1/requant-planes", "word"),
    Fault("lanes-beyond-the-end-write", "post_sequencer.v", "~({LANES{1'b1}} << "
                                                            "remaining)", "{LANES{1'b1}}",
          "L1/requant-planes", "word"),
    Fault("a-stage-too-many", "post_sequencer.v", "AFTER = EX_FILL + EX_DRAIN - BEFORE",
          "AFTER = EX_FILL + EX_DRAIN - BEFORE + 1", "L0/v2-onnxruntime-op-c-max", "word"),
    Fault("ties-away-are-up", "fixed_shift_right.v", "(mask >> 1) + {31'b0, "
                                                     "value[31]}", "mask >> 1",
          "L2/requant-multipliers-fixed", "word"),
    Fault("product-not-saturated", "fixed_high_multiply.v", "truncated > 64'sd2147483647", "1'b0",
          "L2/requant-multipliers-fixed", "word"),
    Fault("shift-not-saturated", "fixed_shift_left.v", "wide[70:31] == {40{wide[31]}}", "1'b1",
          "random-fixed", "word"),
    Fault("ties-of-factors-down", "float64_scale.v", "55'd1 << (places - "
                                                     "13'sd1)", "55'd0 << (places - 13'sd1)",
          "L2/requant-once-fixed", "word"),
    Fault("product-not-float64", "float64_scale.v", "shifted[31] &", "1'b0 &",
          "L2/requant-once-fixed", "word"),
    Fault("overflow-unnoticed", "lane_integer.v", "sum[32] ^ sum[31]", "1'b0",
          "L2/wide-add-overflow", "word"),
    Fault("signs-ignored", "lane_integer.v", "wire signed [7:0]  a = "
                                             "first[7:0]", "wire [7:0] a = first[7:0]",
          "L2/max-every", "word"),
)  # fmt: skip


@cache
def export(name: str) -> Export:
    """The export of a case of the committed corpus, or of a random one."""
    if name.startswith("random"):
        arch = Arch(post_lanes=8, numerics="fixed" if name == "random-fixed" else "onnxruntime")
        with np.errstate(all="ignore"):
            return build_export(case_source(record_case(random_case(arch, 0))))
    return build_export(case_source(open_corpus(ROOT / "tests/golden").case(name)))


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_found(fault: Fault, tmp_path: Path) -> None:
    require_icarus()
    sources = tmp_path / "unit"
    shutil.copytree(UNIT, sources)
    text = (sources / fault.file).read_text()
    assert text.count(fault.old) == 1
    (sources / fault.file).write_text(text.replace(fault.old, fault.new))
    done = simulate({"case": export(fault.case)}, tmp_path, sources)
    assert done.status == 1
    assert done.passed == {"case": False}
    assert any(line.startswith(fault.message) for line in done.output.splitlines()), done.output
