"""Who is in a checkout, and runs another copy, reads it; golden outputs are then not checked without insisting."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.version import HOME, other_checkout
from tests.experiments.command_line import dla
from tests.experiments.golden_corpora import small_corpus

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project, as far as one can see from outside."""
    for mark in ("pyproject.toml", *(f"{name}/__init__.py" for name in ("isa", "byoc", "dla_sim", "experiments/dla"))):
        (tmp_path / mark).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / mark).touch()
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    return tmp_path


def test_only_another_copy_is_another(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert HOME == ROOT
    assert other_checkout(ROOT / "tests") is None
    assert other_checkout(tmp_path_factory.mktemp("elsewhere")) is None
    assert other_checkout(checkout) == other_checkout(checkout / "tests" / "deep") == checkout


def test_it_is_said(checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small_corpus(checkout / "corpus")
    monkeypatch.chdir(checkout / "tests")
    note = f"note: {checkout} is a checkout, but {ROOT} runs; pip install -e there makes it run\n"
    assert dla(capsys, "presets").err == note
    refused = dla(capsys, "golden", "check", "../corpus")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == (
        f"{note}error: {checkout} is a checkout, but {ROOT} would be checked; pip install -e there, or insist with "
        "--installed\n"
    )
    checked = dla(capsys, "golden", "check", "../corpus", "--installed")
    assert checked.status == 0
    assert checked.out.endswith(f"checked: {ROOT}\n")
    assert f"in {ROOT}" in dla(capsys, "doctor").out
