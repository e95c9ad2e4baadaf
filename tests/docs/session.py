"""Run the blocks of one guide: ``dla`` in this process, other commands in a shell.

Python runs in one namespace.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from experiments.cli.main import main
from tests.docs.blocks import Block, Command, commands, differs
from tests.experiments.command_line import without_progress
from tests.plugins.installation import forget, write_information

ROOT = Path(__file__).parents[2]
_SHELL = set("|&;<>()$`*?[]~#{}\n")
_STATUS = "echo $?"
_INSTALL = ("python3", "-m", "pip", "install")
_VARIES = re.compile(
    r"(?<=ONNX Runtime )\d[\w.]*|(?<=-)[0-9a-f]{8}(?=\.json)|"
    r"\d+e[-+]\d\d(?= of the range)|[\d.]+(?= dB)"
)
"""In a block marked ``varies``: a runtime's version, a report's digest, and floating-point
differences to the model.
"""
_EXAMPLES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Session:
    """State between the blocks of one guide, in the working folder ``folder``."""

    def __init__(self, guide: Path, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._guide = guide
        self._folder = folder
        self._patch = patch
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._environment = self._shell_environment()
        # modules that change within a second look unchanged
        patch.setattr(sys, "dont_write_bytecode", True)

    def _shell_environment(self) -> dict[str, str]:
        """Return an environment whose ``dla`` and ``python`` are those of this process.

        They find the guide's own files.
        """
        programs = self._folder / ".programs"
        programs.mkdir()
        for name, words in (("dla", "-m experiments.cli.main"), ("python", ""), ("python3", "")):
            (programs / name).write_text(
                f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n'
            )
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": path, "PYTHONPATH": f"{self._folder}{os.pathsep}{ROOT}"}

    def run(self, block: Block) -> None:
        """Run one block.

        AssertionError with guide and line if it does not do what the guide shows.
        """
        if "no-test" in block.words:
            return
        if block.file is not None:
            self._write(block.file, block.text)
        elif block.language == "console":
            self._console(commands(block), varies="varies" in block.words)
        elif block.language == "python" and block.text.lstrip().startswith(">>>"):
            self._examples(block)
        elif block.language == "python":
            code = compile(
                "\n" * (block.line - 1) + block.text, str(self._guide), "exec", dont_inherit=True
            )
            exec(code, self._names)

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self._look_again()
        if path.name == "pyproject.toml":
            self._install(path.parent, tomllib.loads(text)["project"])

    def _install(self, folder: Path, project: dict[str, Any]) -> None:
        """Apply the effects of ``pip install -e folder`` to this process and the commands."""
        write_information(
            folder, project["name"], project["version"], project.get("entry-points", {})
        )
        self._patch.syspath_prepend(str(folder))
        self._environment["PYTHONPATH"] = f"{folder}{os.pathsep}{self._environment['PYTHONPATH']}"
        self._look_again()

    def _look_again(self) -> None:
        """Forget modules of the guide, which may have changed and are imported again."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(f"{self._folder}{os.sep}"):
                del sys.modules[name]
        invalidate_caches()
        forget()

    def _console(self, listed: list[Command], *, varies: bool) -> None:
        status = 0
        for number, command in enumerate(listed):
            if command.text == _STATUS:
                output = f"{status}\n"
            else:
                status, output = self._execute(command.text)
                shown = number + 1 < len(listed) and listed[number + 1].text == _STATUS
                assert status == 0 or shown, self._failure(command, f"exit status {status}", output)
            if command.output:
                shown_lines = [
                    _VARIES.sub("...", line) if varies else line for line in command.output
                ]
                assert not differs(shown_lines, output), self._failure(
                    command, "other output", output
                )

    def _execute(self, text: str) -> tuple[int, str]:
        words = [] if _SHELL & set(text) else shlex.split(text)
        if words[:1] == ["dla"]:
            output = io.StringIO()
            with redirect_stdout(output), redirect_stderr(output):
                status = main(words[1:])
            return status, output.getvalue()
        if words[:5] == [*_INSTALL, "-e"]:
            folder = self._folder / words[5]
            self._install(
                folder,
                tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"],
            )
            return 0, ""
        done = subprocess.run(
            ["bash", "-c", text], cwd=self._folder, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        self._look_again()
        return done.returncode, without_progress(done.stdout)

    def _examples(self, block: Block) -> None:
        name = str(self._guide)
        parser = doctest.DocTestParser()
        test = parser.get_doctest(block.text, self._names, name, name, block.line - 1)
        test.globs = self._names  # by default examples get a copy
        output = io.StringIO()
        runner = doctest.DocTestRunner(checker=_Checker(), optionflags=_EXAMPLES, verbose=False)
        runner.run(test, out=output.write, clear_globs=False)
        assert runner.failures == 0, (
            f"{self._guide.name}, block at line {block.line}:\n{output.getvalue()}"
        )

    def _failure(self, command: Command, what: str, output: str) -> str:
        shown = "\n".join(command.output)
        return (
            f"{self._guide.name}:{command.line}: $ {command.text}\n{what}\n--- shown\n{shown}\n--- "
            f"printed\n{output}"
        )


class _Checker(doctest.OutputChecker):
    """Output of Python examples by the same rules as that of commands."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not differs(want.splitlines(), got)
