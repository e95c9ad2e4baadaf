"""The Verilog unit equals every golden case of its instructions on every machine.

Bits and cycles are equal.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from dla_sim.timing import Timing
from experiments.golden.case import StoredCase
from experiments.golden.check import runnable
from experiments.golden.record import record_case
from experiments.golden.store import open_corpus
from experiments.rtl.export import Export, build_export, case_source
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Unit
from tests.golden_cases.builder import Builder
from tests.golden_cases.operations import generator, int8
from tests.golden_cases.tensor_operations import Addition
from tests.rtl.bench import EXECUTED, ROOT, UNIT, machine, owed, require_icarus, simulate
from tests.rtl.random_operations import ROUNDS, random_case

pytestmark = pytest.mark.slow

LARGEST = 16_000
"""Elements of the unit's operations up to which a case is simulated here: 100,000 take Icarus
ten seconds.
"""
TOO_LARGE = {
    "L2/large-requant-1-2-70000", "L2/large-requant-1-300-300", "L2/large-requant-40-8-300",
    "L2/large-add",
    "L2/add-every-pair", "L2/add-every-pair-fixed", "L2/requant-over-its-operand",
    "networks/resnet-8-balanced-64-v2-default", "networks/resnet-8-balanced-64-v2-default-fixed",
    "networks/resnet-8-seed-i64-v1-seed", "networks/thin-mobilenet-seed-i64-v1-seed",
}  # fmt: skip
"""Golden cases that are left out for their size, by name: no other may be.

``python -m tests.rtl.large`` runs them.
"""


def golden_cases() -> tuple[list[StoredCase], list[StoredCase]]:
    """Return the committed cases with an instruction of the unit: those to simulate, the others.

    The others are too large. The unit has the first form of the instructions, without look-up, for
    machines without banked memory.
    """
    corpus = open_corpus(ROOT / "tests/golden")
    own = re.compile(rf"({'|'.join(EXECUTED)})\b")
    chosen = []
    too_large = []
    for name in corpus.entries:
        case = corpus.case(name)
        if case.record.refused is not None or "look_up=" in case.assembly:
            continue
        if own.search(case.assembly) and not runnable(case).arch.words:
            elements = sum(row.written for row in case.record.commands if own.match(row.text))
            (chosen if elements <= LARGEST else too_large).append(case)
    return chosen, too_large


def by_machine(exports: Iterable[tuple[str, Export]]) -> list[dict[str, Export]]:
    """One simulation serves all exports of one kind of numbers and lanes."""
    groups: dict[tuple[bool, int], dict[str, Export]] = defaultdict(dict)
    for name, export in exports:
        groups[machine(export)][name] = export
    return list(groups.values())


def check(exports: dict[str, Export], folder: Path) -> int:
    """Simulate ``exports`` of one machine; the number of operations that the unit executed."""
    done = simulate(exports, folder)
    assert done.status == 0, done.output
    assert done.passed == dict.fromkeys(exports, True), done.output
    assert done.executed == {name: owed(export) for name, export in exports.items()}
    return sum(done.executed.values())


def test_golden_cases(tmp_path: Path) -> None:
    require_icarus()
    cases, too_large = golden_cases()
    assert {case.name for case in too_large} <= TOO_LARGE
    exports = {case.name: build_export(case_source(case)) for case in cases}
    groups = by_machine(exports.items())
    executed = sum(check(group, tmp_path / str(number)) for number, group in enumerate(groups))
    seen = {
        item.command.instruction.mnemonic
        for export in exports.values()
        for item in export.operations
    }
    print(f"{len(exports)} golden cases, {len(groups)} machines, {executed} operations")
    assert set(EXECUTED) <= seen
    assert executed >= len(exports)


@pytest.mark.parametrize("numerics", ["onnxruntime", "fixed"])
@pytest.mark.parametrize("lanes", [1, 5, 64])
def test_random_operations(numerics: str, lanes: int, tmp_path: Path) -> None:
    """Seeded operations on corner accumulators and scales of every size equal the unit.

    They use every register that an instruction reads.
    """
    require_icarus()
    arch = Arch.model_validate({"numerics": numerics, "post_lanes": lanes, "sram_bytes": 65536})
    with np.errstate(all="ignore"):  # float32 overflow to infinity is part of the specification
        exports = {
            f"seed{seed}": build_export(case_source(record_case(random_case(arch, seed))))
            for seed in range(3)
        }
    assert check(exports, tmp_path) >= 3 * ROUNDS * len(EXECUTED)


@pytest.mark.parametrize(("fill", "drain"), [(0, 7), (7, 0), (3, 9), (20, 1)])
def test_fill_and_drain_are_those_of_the_timing(fill: int, drain: int, tmp_path: Path) -> None:
    require_icarus()
    timing = Timing(ex_fill=fill, ex_drain=drain)
    case = Addition(45).case("L1/own", "an addition", Arch(post_lanes=8), timing)
    exported = build_export(case_source(record_case(case)))
    assert [
        item.end - item.start for item in exported.operations if item.command.unit is Unit.EX
    ] == [fill + 6 + drain]
    assert check({"own": exported}, tmp_path) == 1


@pytest.mark.parametrize(
    ("output", "executed"),
    [(0, 1), (1, 0), (99, 0), (100, 1), (199, 1), (200, 1), (201, 0), (299, 0), (300, 1)],
)
def test_results_over_operands(output: int, executed: int, tmp_path: Path) -> None:
    """In place and before an operand is executed.

    What would overwrite bytes that are still to be read is refused.
    """
    require_icarus()
    builder = Builder(Arch(post_lanes=8), "overlap")
    source = builder.input("input", int8(generator("overlap"), 512))
    target = builder.output("result", "int8", (100,))
    builder.read(source, builder.scratch(512), 512, "push.EX")
    registers = {
        "EX_INPUT_ADDRESS": 0,
        "EX_OPERAND_ADDRESS": 200,
        "EX_LENGTH": 100,
        "EX_OUTPUT_ADDRESS": output,
    }
    builder.operation("OP_C_MIN", registers, "pop.LD push.ST")
    builder.write(target, output, 100, "pop.EX")
    case = record_case(builder.case("L2/overlap", "results over operands"))
    if not executed:
        with pytest.raises(InputError, match="a program that the machine refuses"):
            case_source(case)
        return
    exported = build_export(case_source(case))
    assert owed(exported) == executed
    assert check({"overlap": exported}, tmp_path) == executed


def test_a_pipeline_longer_than_fill_and_drain_is_refused(tmp_path: Path) -> None:
    require_icarus()
    sources = [str(path) for path in sorted(UNIT.glob("*.v"))]
    settings = ["-Pdla_post_unit.EX_FILL=6", "-Pdla_post_unit.EX_DRAIN=0"]
    words = [
        "iverilog",
        "-g2012",
        "-I",
        str(ROOT / "docs/isa"),
        "-s",
        "dla_post_unit",
        *settings,
        "-t",
        "null",
    ]
    done = subprocess.run([*words, *sources], text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert "ex_fill_and_ex_drain_are_less_than_the_7_cycles_of_the_pipeline" in done.stderr
