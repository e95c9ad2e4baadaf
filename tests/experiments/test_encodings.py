"""Terminals with encodings other than UTF-8: missing characters become ASCII.

No command ends in a traceback.
"""

from __future__ import annotations

import io
import sys
import unicodedata
from pathlib import Path

import onnx
import pytest

from experiments.cli.main import main
from experiments.literal import ASCII
from tests.experiments.command_line import save_tiny, tiny_model

ENCODINGS = ("ascii", "cp1252", "latin-1")
COMMANDS = (
    "--help",
    "presets",
    "settings",
    "isa --format markdown",
    "support --format markdown",
    "partition tiny.onnx",
    "run tiny.onnx --json run.json --cost horowitz-45nm",
    "explain tiny.onnx",
    "report run.json --tables",
    "report run.json run.json --tables",
    "emit no-such-µ.onnx",
)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_command_prints_in_every_encoding(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path)
    for command in COMMANDS:
        written = io.BytesIO()
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, io.TextIOWrapper(written, encoding, write_through=True))
        status = main(command.split())
        text = written.getvalue().decode(encoding)
        assert status == (2 if command.startswith("emit") else 0), text
        assert "�" not in text
        assert "\\u" not in text, (command, text)
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a → b × c", "a -> b x c"),
        ("⌈OH / 2⌉ ≥ 3 µs", "ceil(OH / 2) >= 3 us"),
        ("café", "cafe"),
        ("x₁²", "x1^2"),
        ("層", "\\u5c64"),
    ],
)
def test_what_stands_in(text: str, shown: str) -> None:
    assert text.encode("ascii", ASCII).decode("ascii") == shown


def test_no_sign_of_our_own_is_an_escape() -> None:
    """Whatever the packages may print has something readable in ASCII."""
    root = Path(__file__).parents[2]
    files = [
        path
        for name in ("isa", "byoc", "dla_sim", "experiments")
        for path in (root / name).rglob("*.py")
    ]
    signs = {sign for path in files for sign in path.read_text("utf-8") if ord(sign) > 127}
    shown = {sign: sign.encode("ascii", ASCII).decode("ascii") for sign in signs}
    assert len(signs) > 20
    assert {
        unicodedata.name(sign): text for sign, text in shown.items() if text.startswith("\\")
    } == {}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_results_are_utf_8_in_every_encoding(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tiny_model()
    model.graph.node[0].name = "層→1"
    onnx.save(model, "named.onnx")
    for words, file in (["--json"], "a.json"), (["--csv"], "a.csv"):
        assert main(["partition", "named.onnx", *words, file]) == 0
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
        assert main(["partition", "named.onnx", *words, "-"]) == 0
        assert written.getvalue() == Path(file).read_bytes()
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
    assert "層→1" in Path("a.csv").read_text("utf-8")


def test_only_encoding_falls_back() -> None:
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("ascii", ASCII)
