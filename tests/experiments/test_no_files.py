"""Paths that are no files, given to every command that reads one: one line with the reason.

No command waits.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from experiments.cli import main, results
from isa import program_file
from isa.errors import InputError
from isa.reading import file_fault, first_bytes, read_bytes
from tests.experiments.command_line import save_tiny
from tests.experiments.golden_corpora import small_corpus
from tests.fuzz_inputs.execution import execute

COMMANDS = {
    "run": "tiny.onnx", "partition": "tiny.onnx", "compile": "tiny.onnx",
    "emit": "tiny.onnx --save-inputs", "generate": "gpt2-decoder-small --tokens 1",
    "export": "tiny.onnx --bare-metal",
    "simulate": "tiny.prog --image 0=zeros.bin", "asm": "tiny.s", "disasm": "tiny.prog",
    "report": "run.json", "sweep": "spec.toml", "explore": "spec.toml", "advise": "tiny.onnx",
    "tune": "tiny.onnx",
    "explain": "tiny.onnx",
    "system": "system.toml", "split": "tiny.onnx system.toml --by rows", "repro": "run.json",
    "presets": "mine.toml",
    "golden add": "new tiny.prog --name own/x", "golden check": "corpus",
    "golden bless": "corpus --reason why",
    "golden list": "corpus", "golden snapshot": "tiny.onnx",
    "golden diff": "default preset=balanced-256 --model tiny.onnx",
    "golden export": "tiny.prog --output made",
    "rtl build": "--output made", "rtl synth": "", "rtl ports": "", "rtl check": "corpus",
    "rtl compare": "tiny.prog top.v --top top",
    "rtl case": "tiny.prog --output made", "rtl waves": "tiny.prog --cycles 1:2 --output made.vcd",
}  # fmt: skip
"""The words of every command that reads files, where all of them are given."""
READS = re.compile(r"FILE|\.toml|\.jsonl|MODEL|DLA|PROGRAM|TEXT|RUN|LOG|DIR")
OTHERS = {
    # places of results
    ("golden record", "folder"), ("golden add", "folder"), ("simulate", "dump_sram"),
    ("golden bless", "reason"),
    ("report", "cost"),  # needs the results of a sweep; "sweep cost" reads such a table, too
}  # fmt: skip
"""Parameters that read no file, although their help names one."""
NAMES = {
    *((command, "case") for command in ("golden export", "rtl compare", "rtl case", "rtl waves")),
    *((command, "machine") for command in ("run", "partition", "advise")),
}
"""What names a file or something else: a path that is no file is none of both."""
KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "a pipe, not a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device, not a file"),
    "directory": (Path.mkdir, "a directory"),
    "socket": (lambda path: _bind(path), "a socket, not a file"),
    "broken link": (
        lambda path: path.symlink_to("absent"),
        "a link to absent, which does not exist",
    ),
    "loop": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "nothing": (lambda path: None, "no such file"),
}


def _bind(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the whole path may be too long for a socket
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in main.COMMANDS:
        found = main.get_command(name)
        if isinstance(found, typer.Typer):
            yield from (
                (f"{name} {item.name}", item.callback)
                for item in found.registered_commands
                if item.callback
            )
        else:
            yield name, found


def _mark(part: inspect.Parameter) -> Any:
    marks = getattr(part.annotation, "__metadata__", ())
    return next(
        (
            mark
            for mark in marks
            if hasattr(mark, "metavar") and not isinstance(mark, results.Destination)
        ),
        None,
    )


def _readers() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every command and parameter that reads files, and the words that give it the file BAD."""
    for command, function in _commands():
        words = [*command.split(), *COMMANDS.get(command, "").split()]
        place = len(command.split())
        for part in inspect.signature(function, eval_str=True).parameters.values():
            mark = _mark(part)
            if mark is None:
                continue
            positional = isinstance(mark, typer.models.ArgumentInfo)
            marks = part.annotation.__metadata__
            reads = READS.search(mark.metavar or "") and not any(
                isinstance(one, results.Destination) for one in marks
            )
            if reads and (command, part.name) not in OTHERS:
                assert command in COMMANDS, f"dla {command} reads {mark.metavar}"
                form = "BAD" if "=" not in mark.metavar else mark.metavar.partition("=")[0] + "=BAD"
                given = (
                    [*words[:place], form, *words[place + 1 :]]
                    if positional
                    else [*words, mark.default, form]
                )
                yield command, part.name, tuple(given)
            place += positional


READERS = {f"{command} {name}": (command, name, words) for command, name, words in _readers()}


@pytest.fixture(scope="module")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("materials")
    before = Path.cwd()
    os.chdir(folder)
    try:
        save_tiny(folder)
        Path("spec.toml").write_text('networks = "tiny.onnx"\n')
        Path("system.toml").write_text('[[accelerator]]\nname = "npu"\ncount = 2\n')
        assert main.main(["emit", "tiny.onnx", "--output", "tiny.prog"]) == 0
        assert main.main(["disasm", "tiny.prog", "--output", "tiny.s"]) == 0
        assert main.main(["run", "tiny.onnx", "--json", "run.json"]) == 0
        Path("zeros.bin").write_bytes(bytes(program_file.load(Path("tiny.prog")).dram_bytes))
        Path("top.v").write_text("module top; endmodule\n")
        small_corpus(Path("corpus"))
    finally:
        os.chdir(before)
    return folder


@pytest.mark.parametrize("reader", READERS)
def test_no_file_is_read(materials: Path, tmp_path: Path, reader: str) -> None:
    command, parameter, words = READERS[reader]
    program = program_file.load(materials / "tiny.prog")
    shutil.copytree(materials, tmp_path, dirs_exist_ok=True)
    others = [kind for kind in KINDS if kind != "pipe"]
    for kind in ("pipe", others[list(READERS).index(reader) % len(others)]):
        (make, reason) = KINDS[kind]
        bad = tmp_path / f"bad-{kind.split()[0]}{_ending(parameter)}"
        make(bad)
        named = {
            "BAD": bad.name,
            "NAME=BAD": f"{program.inputs[0].name}={bad.name}",
            "ADDRESS=BAD": f"0={bad.name}",
        }
        given = [named.get(word, word) for word in words]
        ending = execute(lambda given=given: main.main(given), tmp_path)  # type: ignore[misc]
        assert (ending.status, ending.wrong) == (2, ""), f"{given}: {ending}"
        assert bad.name in ending.message
        corpus = "no golden corpus here" if parameter in ("folder", "corpus") else reason
        assert (command, parameter) in NAMES or corpus in ending.message, (
            f"{given}: {ending.message}"
        )


def _ending(parameter: str) -> str:
    """Return the ending of a file's name if the ending determines its kind."""
    endings = {
        "model": ".onnx",
        "preset": ".toml",
        "name": ".toml",
        "cost": ".toml",
        "inputs": ".npz",
        "input": ".npz",
    }
    return endings.get(parameter, "")


@pytest.mark.parametrize("kind", KINDS)
def test_why_a_path_is_no_file(tmp_path: Path, kind: str) -> None:
    make, reason = KINDS[kind]
    path = tmp_path / "bad"
    make(path)
    assert reason in file_fault(path)
    assert first_bytes(path, 4) == b""
    with pytest.raises(InputError, match=r"bad: .*; give another"):
        read_bytes(path, 10, "a report", "give another")


def test_files_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"abc")
    assert (file_fault(path), first_bytes(path, 2)) == ("", b"ab")
    # the user of the tests may be allowed to read everything
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert file_fault(path) == "cannot be read (Permission denied)"
    assert file_fault(path / "below") == "cannot be read (Not a directory)"
    assert file_fault(Path("a\0b")) == "no name that a file can have"
