"""Legal programs have no layout finding, and every fault that changes results has one."""

from __future__ import annotations

import random
from collections import Counter

from isa.sanitizer import inspect
from tests.e2e.layout_faults import Trial, drawn_fault, drawn_program

SEEDS = range(28)


def test_layout_faults_are_found_and_legal_programs_are_not_accused() -> None:
    """``python -m tests.e2e.layout_faults`` draws as many as wanted."""
    found: Counter[str] = Counter()
    for seed in SEEDS:
        program = drawn_program(seed)
        assert program is not None
        trial = Trial(program)
        assert [finding.text for finding in inspect(trial.stream) if finding.level == "error"] == []
        fault = drawn_fault(trial.stream, random.Random(seed))
        assert fault is not None
        verdict = trial.verdict(seed, fault)
        found.update((verdict.outcome, verdict.kind))
    assert found["missed"] == found["suspected"] == 0, found
    assert found["layout mismatch"] >= 10, found
