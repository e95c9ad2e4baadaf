"""``import dla``: the packages' public names, which no file in the working folder replaces."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import dla
from experiments.models import digits
from tests.experiments.command_line import save_tiny

FOLDER = Path(digits.__file__).parent
PACKAGES = ("isa", "byoc", "dla_sim", "experiments", "dla")
FOREIGN = ("isa.py", "dla_sim.py", "byoc/__init__.py", "experiments/__init__.py")


def _declared(package: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return where type checkers find each public name, and where it is loaded from.

    Both are ``module:name`` by name.
    """
    file = import_module(package).__file__
    assert file is not None
    (block,) = (
        node
        for node in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    shown = {
        alias.asname or alias.name: f"{statement.module}:{alias.name}"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    (homes,) = (
        node for node in ast.walk(ast.Module(block.orelse, [])) if isinstance(node, ast.Dict)
    )
    found = ast.literal_eval(homes)
    return shown, {name: home if ":" in home else f"{home}:{name}" for name, home in found.items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_completion_offers_the_public_names_and_nothing_else(package: str) -> None:
    module = import_module(package)
    assert dir(module) == sorted(module.__all__)
    shown, loaded = _declared(package)
    assert shown == loaded
    assert sorted(loaded) == sorted(module.__all__)
    for name, home in loaded.items():
        place, _, defined = home.partition(":")
        assert inspect.unwrap(getattr(module, name)) is getattr(import_module(place), defined)
    with pytest.raises(AttributeError, match=rf"^module '{package}' has no attribute 'nothing'$"):
        _ = module.nothing


def _foreign(folder: Path) -> None:
    for name in FOREIGN:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine = True\n", encoding="utf-8")


def _python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -c`` in ``folder``, from which it imports first, like notebooks."""
    home = Path(dla.__file__).parent.parent
    code = f"import sys; sys.path.insert(1, {str(home)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


def test_nothing_in_the_working_folder_takes_the_place_of_a_package(tmp_path: Path) -> None:
    _foreign(tmp_path)
    code = (
        "import dla, isa, byoc, dla_sim, experiments\nprint(dla.Device, isa.Arch, "
        "dla.compile.__module__)"
    )
    done = _python(tmp_path, code)
    assert (done.stdout, done.stderr) == (
        "<class 'dla_sim.device.Device'> <class 'isa.arch.Arch'> byoc.compiler\n",
        "",
    )


def test_nor_in_the_process_that_runs_tensorflow_lite(tmp_path: Path) -> None:
    _foreign(tmp_path)
    model = str(FOLDER / digits.TFLITE_FILE)
    done = _python(tmp_path, f"import dla\nprint(dla.run({model!r}).report.check.mismatches)")
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_what_was_imported_before_is_named(tmp_path: Path) -> None:
    _foreign(tmp_path)
    done = _python(tmp_path, "import byoc\nimport dla")
    message = (
        f"ImportError: dla needs its own package 'byoc', and {tmp_path / 'byoc' / '__init__.py'} "
        "has been imported "
        "under that name; rename that, or import dla first"
    )
    assert done.stderr.splitlines()[-1] == message


def test_the_command_runs_where_the_names_are_taken(tmp_path: Path) -> None:
    _foreign(tmp_path)
    done = _python(tmp_path, "import dla.__main__\nsys.exit(dla.__main__.main(['--version']))")
    assert (done.returncode, done.stdout[:4], done.stderr) == (0, "dla ", "")


SWEEP = """
import dla
from experiments.cli.main import main
print(main(["sweep", "grid.toml", "--workers", "1"]))
"""
SPAWN = """
import multiprocessing
from experiments.sweep import pools
pools._context = lambda: multiprocessing.get_context("spawn")
"""


@pytest.mark.parametrize("start", ["", SPAWN], ids=["usual", "spawn"])
def test_workers_of_a_notebook_import_nothing_from_its_folder(start: str, tmp_path: Path) -> None:
    """Nor do they run what the notebook or the script does."""
    _foreign(tmp_path)
    save_tiny(tmp_path)
    (tmp_path / "grid.toml").write_text('networks = "tiny.onnx"\n', encoding="utf-8")
    done = _python(tmp_path, f"import dla\n{start}{SWEEP}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 points: 1 ok, 0 infeasible, 0 failed; 1 machine compiled\n")
    assert done.stdout.endswith("\n0\n")


def test_a_script_that_sweeps_needs_no_guard(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    (tmp_path / "grid.toml").write_text('networks = "tiny.onnx"\n', encoding="utf-8")
    home = Path(dla.__file__).parent.parent
    (tmp_path / "study.py").write_text(
        f"import sys\nsys.path.insert(1, {str(home)!r})\n{SWEEP}", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "study.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout.count("1 points: 1 ok")) == (0, "", 1)


def test_its_source_is_no_second_package() -> None:
    with pytest.raises(
        ImportError, match=r"^experiments\.dla is installed as dla; write 'import dla'$"
    ):
        import_module("experiments.dla")
