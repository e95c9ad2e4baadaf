"""Names are printed literally: without markup, and with escapes for control characters."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import onnx
import pytest

from experiments.cli import options
from experiments.literal import literal
from tests.experiments.command_line import dla, tiny_model

HOSTILE = "[/c] [bold]x[/bold] :smile: \x1b[31mred\x1b]0;title\x07 \x9b2J a\rb \u202egpj"
SHOWN = r"[/c] [bold]x[/bold] :smile: \x1b[31mred\x1b]0;title\x07 \x9b2J a\rb \u202egpj"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv_1/层 é", "conv_1/层 é"),
        (HOSTILE, SHOWN),
        ("two\nlines\t", r"two\nlines\t"),
        ("\ud800 \u200b\u00a0", r"\ud800 \u200b\xa0"),
        (r"C:\x1b", r"C:\x1b"),
    ],
)
def test_what_cannot_be_seen_is_an_escape(text: str, shown: str) -> None:
    assert literal(text) == shown


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny network with hostile names, and a Hardmax that stays on the CPU."""
    made = tiny_model(softmax=True)
    for node in made.graph.node:
        node.name = f"{node.name} {HOSTILE}"
        for texts in (node.input, node.output):
            for number, name in enumerate(texts):
                texts[number] = (
                    f"{name} {HOSTILE}" if name not in ("weights", "image", "result") else name
                )
    made.graph.name = HOSTILE
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "[red]tiny.onnx"
    onnx.save(made, path)
    return path


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Everything that a command prints; none of it may be an order to the terminal."""
    found = dla(capsys, *words)
    assert found.status == 0, found.err
    for text in (found.out, found.err):
        assert all(line == literal(line) for line in text.split("\n"))
    return found.out


def test_names_are_only_names_on_the_terminal(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In tables cells are folded, so each part of a name is looked for alone.

    The screen of a run has only the ends of long names.
    """
    for words in (
        ["run", model, "--all", "--json", "run.json"],
        ["run", model, "--json", "seed.json", "--set", "bus_bytes=16"],
        ["partition", model],
        ["compile", model, "-o", "tiny.dla"],
        ["report", "run.json"],
        ["report", "run.json", "seed.json"],
        ["golden", "diff", "run.json", "seed.json"],
        ["repro", "run.json"],
    ):
        out = printed(capsys, *words)
        if "--all" in words or words[0] in ("partition", "report"):
            assert r"\x1b[31mred\x1b]0;title\x07" in out, words
            assert "[bold]x[/bold]" in out, words


def test_names_in_refusals_are_only_names(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = dla(capsys, "run", f"nowhere {HOSTILE}.onnx")
    assert refused.err.startswith(rf"error: nowhere {SHOWN[:40]}")
    assert refused.err.count("\n") == 1


class _Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_goes_on_is_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status line, on a terminal."""
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with options.stages() as progress:
        progress(f"reading {HOSTILE}")
    assert f"reading {SHOWN}" in terminal.getvalue()
