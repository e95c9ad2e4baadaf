"""The programs of ``examples`` run, and the packages among them work once installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from experiments.cli.main import main
from tests.docs.session import ROOT
from tests.plugins.installation import write_information
from tests.rtl.bench import require_icarus

EXAMPLES = ROOT / "examples"


def test_import_to_report(tmp_path: Path) -> None:
    program = [sys.executable, EXAMPLES / "import_to_report.py"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "42 of 44 nodes on the accelerator" in done.stdout
    assert "equal to ONNX Runtime" in done.stdout
    assert (tmp_path / "run.json").is_file()


def test_tvm_byoc(tmp_path: Path) -> None:
    program = [sys.executable, EXAMPLES / "tvm_byoc.py"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "equal to ONNX Runtime" in done.stdout


@pytest.mark.slow
def test_own_bench(tmp_path: Path) -> None:
    require_icarus()
    program = [sys.executable, EXAMPLES / "own_rtl" / "own_bench.py"]
    environment = {name: os.environ[name] for name in os.environ if name != "PYTEST_CURRENT_TEST"}
    done = subprocess.run(
        program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 commands equal the simulator, 174 cycles" in done.stdout


KINDS = ("operator", "instruction")


def _write(kind: str, name: str) -> subprocess.CompletedProcess[str]:
    """Write a package with ``dla new``, and return the result of its tests."""
    assert main(["new", kind, name]) == 0
    return _run_tests(name)


def _run_tests(name: str) -> subprocess.CompletedProcess[str]:
    """Install a written package and run its tests."""
    folder = Path(name)
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    write_information(folder, project["name"], project["version"], project["entry-points"])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name],
        env={**os.environ, "PYTHONPATH": str(folder.resolve())},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["mine", "my-new-thing"])
def test_the_tests_of_a_written_package_pass(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = _write(kind, name)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^[23] passed", done.stdout, re.MULTILINE)
    texts = [path.read_text(encoding="utf-8") for path in Path(name).glob("*.*") if path.is_file()]
    assert not re.search(r"my.?(sub|slope)", "".join(texts), re.IGNORECASE)


def test_the_tests_fail_if_the_instruction_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "instruction", "wrong"]) == 0
    file = Path("wrong/wrong.py")
    text = file.read_text(encoding="utf-8")
    assert "        a, b, [float_value" in text
    file.write_text(text.replace("        a, b, [float_value", "        b, a, [float_value"))
    done = _run_tests("wrong")
    assert done.returncode == 1, done.stdout


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("My-Slope", "'My-Slope': write lower-case words with hyphens, for example my-slope"),
        ("a b", "'a b': write lower-case words with hyphens, for example my-slope"),
        ("../x", "'../x': write lower-case words with hyphens, for example my-slope"),
        ("json", "json: the name is taken by Python or an installed package; choose another"),
        ("import", "import: the name is taken by Python or an installed package; choose another"),
        ("softmax", "softmax: the name is taken by the project; choose another, such as my-"),
        ("kept", "kept exists; dla new overwrites nothing: choose another name"),
    ],
)
def test_other_names_are_rejected_and_nothing_is_overwritten(
    kind: str,
    name: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kept").mkdir()
    assert main(["new", kind, name]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {says}")
    assert said.count("\n") == 1
    assert [*tmp_path.iterdir()] == [tmp_path / "kept"]
    assert [*Path("kept").iterdir()] == []


def test_the_name_of_an_instruction_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "instruction", "conv"]) == 2
    assert "conv: the name is taken by the project" in capsys.readouterr().err
