"""Commands never replace their inputs or files of another kind, and never wait forever.

The rows are those of the cases that lost somebody's file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer

from experiments.cli.main import application, main
from experiments.cli.results import Destination
from experiments.literal import neutral
from isa import files
from isa.files import is_leftover
from tests.experiments.command_line import dla, save_tiny


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its package and program, samples, a machine, and files of others."""
    folder = tmp_path_factory.mktemp("originals")
    save_tiny(folder, "b.onnx")
    save_tiny(folder, "other.onnx")
    assert main(["compile", str(folder / "b.onnx"), "-o", str(folder / "e.dla")]) == 0
    assert main(["emit", str(folder / "e.dla"), "-o", str(folder / "p.prog")]) == 0
    shutil.copy(folder / "e.dla", folder / "b.dla")
    np.savez(folder / "c.npz", image=np.zeros((2, 1, 3, 8, 8), np.float32))
    (folder / "machine.toml").write_text("[arch]\nsram_bytes = 65536\n")
    (folder / "notes.md").write_text("# Notes\n")
    (folder / "link.json").symlink_to("b.onnx")
    (folder / "empty.json").write_text("")
    (folder / "sub").mkdir()
    os.link(folder / "b.onnx", folder / "hard.csv")
    return folder


@pytest.fixture
def folder(originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(originals, tmp_path / "here", symlinks=True)
    (tmp_path / "here" / "hard.csv").unlink()
    os.link(tmp_path / "here" / "b.onnx", tmp_path / "here" / "hard.csv")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not is_leftover(path)
    }


INPUT = "the command reads it, and a result never replaces an input; choose another place"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run b.onnx --csv b.onnx", f"b.onnx: {INPUT}"),
        ("run b.onnx --json b.onnx", f"b.onnx: {INPUT}"),
        ("run b.onnx --json sub/../b.onnx", f"sub/../b.onnx: {INPUT}"),
        ("run b.onnx --json link.json", f"link.json: {INPUT}"),
        ("run b.onnx --csv hard.csv", f"hard.csv: {INPUT}"),
        ("run b.onnx --trace b.onnx", f"b.onnx: {INPUT}"),
        ("run b.onnx --calibration c.npz --json c.npz", f"c.npz: {INPUT}"),
        ("run b.onnx --preset machine.toml --csv machine.toml", f"machine.toml: {INPUT}"),
        ("compile b.onnx -o b.onnx", f"b.onnx: {INPUT}"),
        ("compile b.dla", f"b.dla: {INPUT}"),
        ("emit e.dla -o e.dla", f"e.dla: {INPUT}"),
        ("partition b.onnx --csv b.onnx", f"b.onnx: {INPUT}"),
        ("golden snapshot e.dla -o e.dla", f"e.dla: {INPUT}"),
        ("disasm p.prog -o p.prog", f"p.prog: {INPUT}"),
        (
            "run b.onnx --trace other.onnx",
            "other.onnx: is called as an ONNX model, and the result is a timeline; name it other.",
        ),
        (
            "run b.onnx --trace new.json",
            "new.json: is called as JSON, and the result is a timeline; name it new.pftrace",
        ),
        (
            "run b.onnx --json c.npz",
            "c.npz: is arrays (.npz), and the result JSON; remove it first, or choose ",
        ),
        (
            "run b.onnx --json notes.md",
            "notes.md: is text, and the result JSON; remove it first, or choose another ",
        ),
        (
            "run b.onnx --csv notes.md",
            "notes.md: is called as Markdown, and the result is a table; name it notes.csv",
        ),
        (
            "run b.onnx --csv machine.toml",
            "machine.toml: is called as TOML, and the result is a table; name it machine.csv",
        ),
        (
            "compile b.onnx -o other.onnx",
            "other.onnx: is binary data, and the result a package; remove it first, or",
        ),
        (
            "golden snapshot b.onnx -o e.dla",
            "e.dla: is a package, and the result a snapshot; remove it first, or ",
        ),
        (
            "simulate e.dla --dump-sram 0..16:notes.md",
            "notes.md: is text, and the result binary data; remove it ",
        ),
        (
            "tune b.onnx --log e.dla",
            "e.dla: is a package, and the result JSON; remove it first, or choose another",
        ),
        (
            "sweep machine.toml -o e.dla",
            "e.dla: is a package, and the result a database; remove it first, or",
        ),
    ],
)
def test_nothing_of_the_users_is_replaced(
    line: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _contents(folder)
    found = dla(capsys, *line.split())
    assert found.status == 2
    assert found.err.startswith(f"error: {said}")
    assert _contents(folder) == before


def test_results_replace_older_ones_and_empty_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        words = "run e.dla --json empty.json --csv new.csv --trace new.pftrace"
        assert dla(capsys, *words.split()).status == 0
        assert dla(capsys, "emit", "b.onnx", "-o", "p.prog").status == 0
        assert dla(capsys, "compile", "b.onnx", "-o", "e2.dla").status == 0
    assert (folder / "empty.json").read_text().startswith("{")


def _commands(group: typer.Typer) -> Iterator[tuple[str, typer.models.CommandInfo]]:
    for command in group.registered_commands:
        yield command.name or "", command
    for below in group.registered_groups:
        assert below.typer_instance is not None
        yield from _commands(below.typer_instance)


def test_every_option_that_writes_says_so() -> None:
    """Every option that names a result is marked as one.

    Otherwise its file would count as an input, or would not be checked before the work.
    """
    import inspect

    writing = {
        "json",
        "csv",
        "trace",
        "timeline",
        "html",
        "png",
        "output",
        "export",
        "junit",
    }
    found = 0
    for name, command in _commands(application()):
        assert command.callback is not None
        for part in inspect.signature(command.callback).parameters.values():
            marks = [
                one
                for one in getattr(part.annotation, "__metadata__", ())
                if isinstance(one, Destination)
            ]
            expected = part.name in writing or (part.name == "log" and name in ("tune", "simulate"))
            expected &= not isinstance(part.default, bool)  # a flag names no file
            assert bool(marks) == expected, f"{name}: {part.name}"
            found += expected
    assert found > 30


def test_a_pipe_that_nobody_reads_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "READER_SECONDS", 0.1)
    os.mkfifo("pipe")
    found = dla(capsys, "run", "e.dla", "--json", "pipe")
    said = (
        "error: pipe: a pipe that nobody reads; begin to read it first, or choose another place\n"
    )
    assert (found.status, found.err) == (2, said)
    assert dla(capsys, "run", "pipe").status == 2


def test_pipes_in_the_cache_are_no_entries(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DLA_NO_CACHE", raising=False)
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path / "cache"))
    assert dla(capsys, "run", "b.onnx", "--json", "r.json").status == 0
    kept = list((tmp_path / "cache").iterdir())
    assert sorted(path.suffix for path in kept) == ["", ".answer", ".package"]
    for path in kept:
        path.unlink()
        os.mkfifo(path)
    assert dla(capsys, "run", "b.onnx", "--json", "r.json").status == 0
    assert dla(capsys, "cache", "--clear").out == f"{tmp_path / 'cache'}: 0 entries removed\n"
    assert all(path.is_fifo() for path in kept)


def test_only_what_is_ours_is_cleared(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DLA_NO_CACHE", raising=False)
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path / "cache"))
    assert dla(capsys, "run", "b.onnx", "--json", "r.json").status == 0
    theirs = {
        "z.package": b"of somebody else",
        "e.package": Path("e.dla").read_bytes(),
        "notes": b"x",
    }
    theirs |= {".0123456789abcdef.part": b"y" * 100, "rtl": b"a file"}
    for name, content in theirs.items():
        (tmp_path / "cache" / name).write_bytes(content)
    assert dla(capsys, "cache", "--clear").out == f"{tmp_path / 'cache'}: 2 entries removed\n"
    assert {path.name: path.read_bytes() for path in (tmp_path / "cache").iterdir()} == theirs
    (tmp_path / "cache" / "secret").write_bytes(b"x" * 32)
    assert dla(capsys, "cache", "--clear").status == 0
    assert (tmp_path / "cache" / "secret").read_bytes() == b"x" * 32


@pytest.mark.parametrize(
    ("text", "shown"),
    [("=cmd|' /C calc'!A0",
      "'=cmd|' /C calc'!A0"), ("+a", "'+a"), ("-x", "'-x"), ("@SUM(A1)", "'@SUM(A1)"),
     ("-1.5e3", "-1.5e3"), ("a=b", "a=b"), (-3, -3), ("", ""), (None, None)],
)  # fmt: skip
def test_cells_of_tables_are_no_formulas(text: object, shown: object) -> None:
    assert neutral(text) == shown


def test_names_in_a_systems_table_are_no_formulas(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The case ``big/names.toml``."""
    (folder / "names.toml").write_text(
        '[[accelerator]]\nname = "npu"\n[run]\nuntil = "100us"\n'
        '[[task]]\nname = "=cmd|\' /C calc\'!A0"\ncpu = "1us"\nperiod = "20us"\n'
    )
    found = dla(capsys, "system", "names.toml", "--csv", "-")
    assert found.status == 0
    assert found.out.splitlines()[1].startswith("'=cmd|' /C calc'!A0,")
