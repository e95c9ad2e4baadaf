"""A hundred mutated inputs of all kinds end as bad input may; slow tests take 50 of 200 more.

They succeed, give another result, or print one line and end with exit status 2.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.fuzz_inputs.__main__ import cases, prepare, run_case
from tests.fuzz_inputs.execution import execute_together
from tests.fuzz_inputs.kinds import KINDS
from tests.rotation import choose_cases

CHUNKS = 6
QUICK = 2
"""Chunks of the quick set, which have all kinds of inputs."""
CASES = 50
SEED = 10


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("originals"))


@pytest.mark.parametrize(
    "chunk",
    [
        *range(QUICK),
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in choose_cases(range(QUICK, CHUNKS), CHUNKS - QUICK)
        ),
    ],
)
def test_mutated_inputs(originals: Path, chunk: int) -> None:
    drawn = list(cases(SEED, CHUNKS * CASES))[chunk * CASES : (chunk + 1) * CASES]
    assert len(drawn) == CASES
    for kind, seed in drawn:
        command, ending = run_case(kind, seed, originals)
        assert not ending.wrong, f"{kind.name}, seed {seed}, {command}: {ending}"


def test_every_kind_is_mutated() -> None:
    assert {kind.name for kind, _ in cases(SEED, QUICK * CASES)} == {kind.name for kind in KINDS}


def _raise() -> int:
    raise ValueError("wrong")


def _refuse() -> int:
    print("error: wrong", file=sys.stderr)
    return 2


def test_cases_of_one_child_end_as_they_would_alone(tmp_path: Path) -> None:
    actions = {
        "raise": (_raise, (1, "traceback")),
        "refuse": (_refuse, (2, "")),
        "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL) or 0, (-11, "killed")),
        "leave": (lambda: os._exit(0), (-2, "killed")),
        "run": (lambda: 0, (0, "")),
    }
    for name in actions:
        (tmp_path / name).mkdir()
    found = execute_together([(action, tmp_path / name) for name, (action, _) in actions.items()])
    assert [(ending.status, ending.wrong) for ending in found] == [
        wanted for _, wanted in actions.values()
    ]
    assert found[1].message == "error: wrong\n"
