"""The page on Python has an example of every public name, and all form a typed script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import dla
from tests.docs.blocks import blocks
from tests.docs.session import ROOT

PAGE = ROOT / "docs" / "python.md"
WRONG = {
    'dla.rnu("digits-cnn")': 'Module has no attribute "rnu"',
    'dla.run("digits-cnn").totals': '"Result" has no attribute "totals"',
    'dla.run("digits-cnn", inputs=dla)': 'Argument "inputs" has incompatible type Module; '
    "expected ",
    'dla.sweep("grid.toml", worker=1)': 'Unexpected keyword argument "worker"; did you mean '
    '"workers"?',
    'dla.compile("a", dla.load_hardware().arch)': 'Argument 1 to "compile" has incompatible type '
    '"str"; expected ',
    'dla.compile(dla.load_package("a"), dla.load_hardware().arch, strick=True)': "Unexpected "
    'keyword argument "strick" for "compile"; did you mean "strict"?',
    'dla.tune("digits-cnn", measurement=3)': 'Unexpected keyword argument "measurement"; did you '
    'mean "measurements"?',
    'dla.system("a.toml", polcy="edf")': 'Unexpected keyword argument "polcy"; did you mean '
    '"policy"?',
    'dla.advise("digits-cnn", target=3)': 'Unexpected keyword argument "target"; did you mean ',
}


_WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ImportError(f"{name} is no part of the plain install")

EXTRAS = {
    "ai_edge_litert", "amaranth", "dask", "distributed", "lightgbm", "numba", "optuna", "pandas",
    "pyarrow",
}
sys.meta_path.insert(0, Absent())
"""


@pytest.mark.slow
def test_the_python_of_the_readme_runs_without_extras(tmp_path: Path) -> None:
    texts = [
        block.text
        for block in blocks((ROOT / "README.md").read_text(encoding="utf-8"))
        if block.language == "python"
    ]
    assert texts
    script = "\n".join([_WITHOUT_EXTRAS, *texts])
    paths = f"{ROOT}{os.pathsep}{ROOT / 'experiments'}"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr


def _script() -> str:
    """All Python of the page."""
    return "\n".join(
        block.text
        for block in blocks(PAGE.read_text(encoding="utf-8"))
        if block.language == "python"
    )


def _checked(folder: Path, *scripts: str) -> list[str]:
    """Return mypy's output for a user's scripts with the packages installed as usual."""
    venv.create(folder / "venv", with_pip=False)
    variables = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
    site = Path(sysconfig.get_path("purelib", "venv", variables))
    for package in ("isa", "byoc", "dla_sim", "experiments"):
        (site / package).symlink_to(ROOT / package)
    (site / "dla").symlink_to(ROOT / "experiments" / "dla")
    (site / "others.pth").write_text(
        "\n".join(place for place in sys.path if place.endswith("site-packages"))
    )
    (folder / "mypy.ini").write_text("[mypy]\n")
    python = folder / "venv" / "bin" / "python"
    words = [
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "mypy.ini",
        "--python-executable",
        str(python),
        *scripts,
    ]
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    ).stdout.splitlines()


def test_everything_public_has_an_example() -> None:
    assert {name for name in dla.__all__ if not re.search(rf"\bdla\.{name}\b", _script())} == set()


@pytest.mark.slow
def test_a_script_with_all_of_it_passes_mypy(tmp_path: Path) -> None:
    """And one that is wrong does not: the types are there."""
    (tmp_path / "right.py").write_text(_script(), encoding="utf-8")
    (tmp_path / "wrong.py").write_text("\n".join(["import dla", *WRONG]), encoding="utf-8")
    said = _checked(tmp_path, "right.py", "wrong.py")
    errors = [line for line in said if ": error: " in line]
    assert len(errors) == len(WRONG), "\n".join(said)
    for number, (error, message) in enumerate(zip(errors, WRONG.values(), strict=True), start=2):
        assert error.startswith(f"wrong.py:{number}: error: {message}")
    assert said[-1] == f"Found {len(WRONG)} errors in 1 file (checked 2 source files)"
