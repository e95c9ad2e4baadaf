"""The command itself: light to start, options the same everywhere, quiet when piped."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer import Typer

from dla_sim.presets import DEFAULT_PRESET
from experiments.cli.main import PANELS, get_command
from experiments.models import MODELS
from experiments.running import given
from tests.experiments.command_line import dla

MAIN = "from experiments.cli.main import main"
HEAVY = ("numpy", "onnx", "onnxruntime", "pydantic", "simpy", "matplotlib", "PIL")


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from experiments.cli.main import main; status = main(['--help']); "
        f"print([name for name in {HEAVY} if name in sys.modules], status, file=sys.stderr)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stderr == "[] 0\n"
    assert "Compile ONNX and TensorFlow Lite networks" in found.stdout


@pytest.mark.parametrize(
    ("program", "most", "starts"),
    [
        ("import dla", 6, 1),
        (f"{MAIN}; main(['--help'])", 42, 1),
        (f"{MAIN}; main(['run', 'digits-cnn', '--no-advice'])", 600, 1),
        (f"{MAIN}; main(['run', 'autoencoder', '--no-advice'])", 460, 2),
    ],
)
def test_a_start_imports_few_modules(
    program: str, most: int, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers limit the modules that are not in Python's standard library.

    Which of the library an interpreter loads by itself depends on the packages beside it. The last
    of several starts is counted: its compiled network comes from the cache.
    """
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("DLA_NO_CACHE", raising=False)
    counted = f"import sys; bare = set(sys.modules); {program}; found = sys.modules.keys() - bare"
    own = "[one for one in found if one.partition('.')[0] not in sys.stdlib_module_names]"
    shown = f"print(*sorted({own}), file=sys.stderr)"
    for _ in range(starts):
        found = subprocess.run(
            [sys.executable, "-c", f"{counted}; {shown}"],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
    assert len(found.stderr.split()) <= most, found.stderr


def test_help_has_the_first_sentence_of_every_command() -> None:
    for name, (_, sentence) in (row for panel in PANELS.values() for row in panel.items()):
        command = get_command(name)
        text = command.info.help if isinstance(command, Typer) else inspect.getdoc(command)
        assert sentence == " ".join(text.split("\n\n")[0].split()), name


@pytest.mark.parametrize(
    "words",
    ["run digits-cnn --html", "report run.json", "golden diff a b --html page.html", "serve ."],
)
def test_commands_for_pages_need_plotly_first(
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "plotly", None)
    found = dla(capsys, *words.split())
    assert found.status == 2
    assert found.out == ""
    assert re.fullmatch(r"error: pages need plotly; install it with: .*plotly.*\n", found.err)
    assert not list(tmp_path.iterdir())


def test_two_dashes_before_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert dla(capsys, "--", "models") == dla(capsys, "models")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    found = dla(capsys, "--version")
    assert found.status == 0
    assert found.out.startswith("dla 0.")


@pytest.mark.parametrize(
    "command",
    ["run", "compile", "partition", "emit", "asm", "disasm", "simulate", "models", "report"],
)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], command: str) -> None:
    found = dla(capsys, command, "--help")
    assert (found.status, found.err) == (0, "")
    assert f"dla {command}" in found.out


def test_options_are_the_same_on_every_command_that_takes_them() -> None:
    seen: dict[str, object] = {}
    for command in ("run", "compile", "partition", "emit", "simulate"):
        for name, parameter in inspect.signature(
            get_command(command), eval_str=True
        ).parameters.items():
            if (command, name) == ("simulate", "preset"):
                continue  # a program brings its own Arch, so there the preset has no default
            declared = parameter.annotation, parameter.default
            assert seen.setdefault(name, declared) == declared, (command, name)


def test_default_preset_is_the_recommended_machine() -> None:
    assert given.DEFAULT_PRESET == DEFAULT_PRESET


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = dla(capsys, "models")
    assert found.status == 0
    assert all(name in found.out for name in MODELS)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """``dla disasm FILE | head``: the pipe breaks while the text is written."""
    start = "import sys; from experiments.cli.main import main; sys.exit(main({}))"
    make = start.format(["emit", "digits-cnn", "-o", "digits.prog"])
    subprocess.run([sys.executable, "-c", make], cwd=tmp_path, check=True, capture_output=True)
    reader, writer = os.pipe()
    os.close(reader)
    show = [sys.executable, "-c", start.format(["disasm", "digits.prog"])]
    with os.fdopen(writer, "wb") as pipe:
        shown = subprocess.run(show, cwd=tmp_path, check=False, stdout=pipe, stderr=subprocess.PIPE)
    assert (shown.returncode, shown.stderr) == (0, b"")
