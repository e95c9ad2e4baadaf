"""A few hundred mutated inputs of every kind end as bad input may: done, different, or one line and exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz_inputs.__main__ import KINDS, cases, prepare, run_case

CHUNKS, CASES = 6, 50
SEED = 10


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("originals"))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_mutated_inputs(originals: Path, chunk: int) -> None:
    drawn = list(cases(SEED, CHUNKS * CASES))[chunk::CHUNKS]
    assert len(drawn) == CASES
    for kind, seed in drawn:
        command, ending = run_case(kind, seed, originals)
        assert not ending.wrong, f"{kind.name}, seed {seed}, {command}: {ending}"


def test_every_kind_is_mutated() -> None:
    assert {kind.name for kind, _ in cases(SEED, CHUNKS * CASES)} == {kind.name for kind in KINDS}
