"""A user in a checkout who runs another copy gets a message.

Golden outputs are then not checked without insisting.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments import version
from experiments.version import other_checkout
from isa.sources import HOME
from tests.experiments.command_line import dla
from tests.experiments.golden_corpora import small_corpus

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project, as far as one can see from outside."""
    for mark in (
        "pyproject.toml",
        *(f"{name}/__init__.py" for name in ("isa", "byoc", "dla_sim", "experiments/dla")),
    ):
        (tmp_path / mark).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / mark).touch()
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    return tmp_path


def test_only_another_copy_is_another(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert HOME == ROOT
    assert other_checkout(ROOT / "tests") is None
    assert other_checkout(tmp_path_factory.mktemp("elsewhere")) is None
    assert other_checkout(checkout) == other_checkout(checkout / "tests" / "deep") == checkout


def test_an_installed_copy_of_the_same_code_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python -m pip install .`` in a checkout, and then ``dla``, as README.md begins."""
    for name in ("isa", "byoc", "dla_sim", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "experiments" / "dla").rename(tmp_path / "dla")
    monkeypatch.setattr(version, "HOME", tmp_path)
    assert other_checkout(ROOT) is None
    with (tmp_path / "dla" / "__init__.py").open("a") as file:
        file.write("# older\n")
    assert other_checkout(ROOT / "tests") == ROOT
    (tmp_path / "dla" / "__init__.py").write_bytes(
        (ROOT / "experiments" / "dla" / "__init__.py").read_bytes()
    )
    (tmp_path / "isa" / "gone.py").touch()  # the checkout has it no more
    assert other_checkout(ROOT) == ROOT


def test_it_is_said(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(checkout / "corpus")
    monkeypatch.chdir(checkout / "tests")
    note = f"note: dla runs the copy in {ROOT}; to run this checkout: pip install -e {checkout}\n"
    assert dla(capsys, "presets").err == note
    assert dla(capsys, "presets", "--quiet").err == ""
    refused = dla(capsys, "golden", "check", "../corpus")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == (
        f"{note}error: dla would check the copy in {ROOT}; to check this checkout: pip install -e "
        f"{checkout}; "
        "else pass --installed\n"
    )
    checked = dla(capsys, "golden", "check", "../corpus", "--installed")
    assert checked.status == 0
    assert checked.out.endswith(f"checked: {ROOT}\n")
    assert f"in {ROOT}" in dla(capsys, "doctor").out
