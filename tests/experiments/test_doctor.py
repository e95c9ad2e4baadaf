"""``dla doctor``: every declared dependency and extra, with the packages to install."""

from __future__ import annotations

import json
import platform
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from dla_sim.kernels import products
from experiments import installation
from experiments.installation import PURPOSES, look
from tests.experiments.command_line import dla

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))[
    "project"
]
WANTED = ["numpy>=2.0", 'numba>=0.61; extra == "fast"', 'dla-byoc-simulator[fast]; extra == "test"',
          'dask[distributed]>=2025.1; extra == "sweep"', 'pandas>=2.2; extra == "sweep"',
          'winmore>=1; sys_platform == "nowhere"']  # fmt: skip


def pretend(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    """An installation with these packages."""

    monkeypatch.setattr(installation, "requires", lambda name: WANTED)
    monkeypatch.setattr(installation, "version_of", lambda name: versions.get(name, ""))


def test_every_extra_has_a_purpose() -> None:
    assert PURPOSES.keys() == PROJECT["optional-dependencies"].keys()


def test_what_is_needed_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    found = look()
    assert all(one.fits for one in found.needed)
    assert {one.wanted for one in found.needed} <= set(PROJECT["dependencies"])
    said = dla(capsys, "doctor")
    assert (said.status, said.err) == (0, "")
    assert "core " in said.out
    assert json.loads(dla(capsys, "doctor", "--json", "-").out)["needed"][0].keys() == {
        "wanted",
        "found",
        "fits",
    }


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("int8", "are exact here"),
        ("uint8", "saturate at 16 bits here (no VNNI)"),
        (None, "no exact integer products"),
    ],
)
def test_integer_kernels_are_those_measured(
    kind: str | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Exact:
        def __init__(self, session: str, flipped: bool) -> None:
            self.kind = session

    monkeypatch.setattr(products, "session", lambda name: name)
    monkeypatch.setattr(products, "IntegerProducts", Exact)
    monkeypatch.setattr(products, "is_exact", lambda way: way.kind == kind)
    products.integer_products.cache_clear()
    try:
        said = dla(capsys, "doctor").out
    finally:
        products.integer_products.cache_clear()
    assert words in next(line for line in said.splitlines() if line.startswith("integers"))


@pytest.mark.parametrize(
    ("baseline", "found", "words"),
    [
        (["X86_V2"], ["X86_V3"], "AVX2;"),
        (["X86_V2"], ["X86_V3", "X86_V4", "AVX512_ICL"], "AVX-512 with VNNI;"),
        (["NEON", "ASIMD"], ["ASIMDDP"], "NEON with dot products;"),
        ([], [], f"{platform.machine()};"),
    ],
)
def test_vector_instructions_have_their_usual_names(
    baseline: list[str], found: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    simd = {"baseline": baseline, "found": found}
    monkeypatch.setattr(np, "show_config", lambda mode: {"SIMD Extensions": simd})
    assert installation.integers().startswith(words)


def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, {"numpy": "2.3", "dask": "2024.1", "pandas": "2.2"})
    found = look()
    assert [(one.wanted, one.found, one.fits) for one in found.needed] == [
        ("numpy>=2.0", "2.3", True)
    ]
    assert {extra.name: extra.missing for extra in found.extras} == {
        "fast": ("numba>=0.61",),
        "sweep": ("dask[distributed]>=2025.1",),
    }
    said = dla(capsys, "doctor")
    assert said.status == 0
    assert (
        f"for {PURPOSES['fast']}: {sys.executable} -m pip install 'numba>=0.61'"
        in said.out.splitlines()
    )
    assert "'dask[distributed]>=2025.1'" in said.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("versions", "word"), [({}, "missing"), ({"numpy": "1.26.4"}, "does not fit")]
)
def test_a_lack_of_what_is_needed_is_status_1(
    versions: dict[str, str],
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretend(monkeypatch, versions)
    said = dla(capsys, "doctor")
    assert said.status == 1
    assert word in said.out
    assert f"needed: {sys.executable} -m pip install 'numpy>=2.0'" in said.out.splitlines()


def test_a_folder_that_was_never_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "requires", requires)
    assert (look().needed, look().extras) == ((), ())
