"""The machine as hardware against the simulator, on a small array: 0 differences.

The golden corpus's programs, random ones, and a network run on hardware with open configuration.
All tests use one build, whose kind of numbers changes from turn to turn. All machines, and
thousands of random programs, are ``python -m tests.dla_sim.rtl.compare``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dla_sim.presets import load_hardware
from dla_sim.rtl.parameters import Limits, strap_values
from dla_sim.rtl.simulator.case import Case, difference_text, run_cases
from experiments.golden.store import choose, open_corpus
from experiments.rtl.comparison import corpus_cases
from experiments.rtl.device import make_hardware
from experiments.rtl.hardware import SMALL, build_of, open_executable, run_each
from experiments.running.inference import infer
from experiments.running.network import load_network, network_feeds
from isa.device import DEVICE_REGISTERS, FaultReason
from isa.program import Program
from tests.dla_sim.mapped_systems import (
    LENGTH,
    RELU,
    System,
    random_inputs,
    small_program,
)
from tests.dla_sim.rtl.compare import network_cases
from tests.dla_sim.rtl.random_programs import random_cases
from tests.dla_sim.rtl.small_machines import reduce_to_limits
from tests.rotation import choose_cases

MOST_CYCLES = 20_000
RANDOM = 300
CHOSEN = choose_cases(SMALL, 2)
"""Hardware with the kind of numbers of this turn."""


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds are kept where the user's are."""
    monkeypatch.delenv("DLA_NO_CACHE")


def golden(limits: Limits) -> Iterable[Case]:
    corpus = open_corpus(Path("tests/golden"))
    cases = corpus_cases(
        corpus, choose(corpus.entries, (), ()), partial(reduce_to_limits, limits=limits)
    )
    return [
        case
        for case in cases
        if case.expected is not None and case.expected.trace.cycles <= MOST_CYCLES
    ]


def network(limits: Limits) -> Iterable[Case]:
    preset = load_hardware("balanced-64", isa="v4")
    arch = reduce_to_limits(preset.arch.model_copy(update={"numerics": limits.numerics}), limits)
    hardware = preset.model_copy(update={"arch": arch})
    digits = load_network("digits-cnn")
    return network_cases(infer(digits, hardware, network_feeds(digits)))


@pytest.mark.slow
@pytest.mark.parametrize("limits", CHOSEN, ids=lambda limits: str(limits.numerics))
def test_hardware_is_the_simulator(limits: Limits) -> None:
    cases = [*golden(limits), *random_cases(range(RANDOM), limits), *network(limits)]
    mine = [case for case in cases if build_of(case.program, case.timing) == limits]
    outcomes = list(run_each(mine))
    assert len(outcomes) > 400
    wrong = [
        f"{one.case.name}: {difference_text(one.case, one.differences[0])}"
        for one in outcomes
        if one.count
    ]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("limits", CHOSEN, ids=lambda limits: str(limits.numerics))
def test_what_registers_hold_before_the_reset_does_not_matter(limits: Limits) -> None:
    """Each instruction, with other bits in all registers and memories every time."""
    corpus = open_corpus(Path("tests/golden"))
    executable = open_executable(limits)
    names = [
        name
        for name in choose(corpus.entries, ("L0",), ())
        if name.startswith(f"L0/v4-{limits.numerics}-")
    ]
    cases = list(corpus_cases(corpus, names, partial(reduce_to_limits, limits=limits)))
    assert len(cases) > 25
    for seed, case in enumerate(cases, start=1):
        straps = strap_values(case.program.arch, case.timing)
        (outcome,) = run_cases(executable, [(case, straps)], seed=seed)
        assert outcome.count == 0, f"{case.name}: {difference_text(case, outcome.differences[0])}"


def run_both(program: Program, inputs: dict[str, Any]) -> tuple[System, System]:
    """Run a program on the simulator and on the hardware, both behind the register map."""
    simulated = System(program)
    hardware = System(program, execute=make_hardware(simulated.simulator))
    for system in (simulated, hardware):
        system.start(inputs)
    return simulated, hardware


ARRAY = (
    '.arch {"alignment":8,',
    f'.arch {{"alignment":8,"numerics":"{CHOSEN[0].numerics}","pe":{{"ic":2,"oc":2,"ow":1}},',
)


@pytest.mark.slow
def test_the_hardware_has_all_registers_and_bytes_of_the_simulator() -> None:
    program = small_program(ARRAY)
    for seed in range(2):
        simulated, hardware = run_both(program, random_inputs(program, seed))
        assert simulated.read("STATUS") == 2
        assert simulated.counter("CYCLES") > 100
        for name in DEVICE_REGISTERS:
            assert hardware.read(name) == simulated.read(name), name
        assert hardware.memory == simulated.memory


@pytest.mark.slow
def test_an_overflow_of_the_hardware_is_the_same_fault() -> None:
    add = (RELU, "OP_E32_ADD pop.LD push.ST")
    program = small_program(ARRAY, (LENGTH, "SET EX_LENGTH, 16"), add)
    simulated, hardware = run_both(program, {"x": np.full(64, 127, np.int8)})
    assert hardware.fault() == simulated.fault() == (FaultReason.OVERFLOW, 7, 0)
    assert hardware.memory == simulated.memory
