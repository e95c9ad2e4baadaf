"""A user of the installed command: runs it in a folder and reads what it prints."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from experiments.cli.main import main
from tests.experiments.command_line import without_progress

PROGRAMS = Path(sys.executable).parent
"""Where ``dla`` and ``python`` of this installation are."""
SHELL = set("|&<>;$`*?~(){}#!\\")
"""Characters of command lines that need a shell."""
WITH_WORKERS = {"explore", "sweep"}
"""Commands whose workers are processes of the installed package."""


def split_line(line: str) -> list[list[str]] | None:
    """Return the arguments of ``dla`` commands joined by ``&&``, or None for other lines."""
    parts = line.split(" && ")
    commands = [[] if SHELL & {*part} else shlex.split(part) for part in parts]
    if any(words[:1] != ["dla"] or WITH_WORKERS & {*words} for words in commands):
        return None
    return [words[1:] for words in commands]


class User:
    """Somebody at a terminal in an empty folder.

    What they see is standard output and errors, together. ``in_process``: lines of ``dla`` commands
    alone are called in this process, which saves their start of about a second.
    """

    def __init__(self, folder: Path, cache: Path, *, in_process: bool = False) -> None:
        self.folder = folder
        self._in_process = in_process
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DLA_", "PYTHON"))
        }
        path = f"{PROGRAMS}{os.pathsep}{kept.get('PATH', '')}"
        self._environment = {**kept, "PATH": path, "DLA_CACHE_DIR": str(cache), "COLUMNS": "120"}

    def types(self, line: str, *, status: int = 0, **environment: str) -> str:
        """Return what a command line prints.

        AssertionError if it ends with another status or a traceback.
        """
        commands = split_line(line) if self._in_process and not environment else None
        if commands is not None:
            return self._call(commands, line, status)
        return self._run(["bash", "-c", line], line, status, environment)

    def runs(self, script: str, *, status: int = 0) -> str:
        """Return the output of a Python script."""
        (self.folder / "script.py").write_text(script, encoding="utf-8")
        return self._run([str(PROGRAMS / "python"), "script.py"], script, status, {})

    def _run(self, words: list[str], typed: str, status: int, environment: dict[str, str]) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self._environment | environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        seen = done.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8"))
        return self._read(seen, typed, done.returncode, status)

    def _call(self, commands: list[list[str]], typed: str, status: int) -> str:
        seen = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(seen), redirect_stderr(seen):
            patch.chdir(self.folder)
            for name in os.environ.keys() - self._environment.keys():
                patch.delenv(name)
            for name, value in self._environment.items():
                patch.setenv(name, value)
            returned = next(filter(None, map(main, commands)), 0)
        return self._read(seen.buffer.getvalue().decode(), typed, returned, status)

    @staticmethod
    def _read(printed: str, typed: str, returned: int, status: int) -> str:
        seen = without_progress(printed)
        assert returned == status, f"{typed}\nexit status {returned}\n{seen}"
        assert status == 1 or "Traceback" not in seen, seen
        return seen

    def fails(self, line: str, **environment: str) -> str:
        """Return the one error line, without ``error: ``, of a command line with exit status 2."""
        seen = self.types(line, status=2, **environment)
        assert seen.startswith("error: "), seen
        assert seen.count("\n") == 1, seen
        return seen.removeprefix("error: ").rstrip()

    def has(self, name: str) -> Path:
        """A file that should be there and not empty."""
        assert (self.folder / name).stat().st_size
        return self.folder / name


def own_network(
    folder: Path, *, shape: tuple[int | str, ...] = (1, 3, 16, 16), unsupported: bool = False
) -> Path:
    """Save ``mine.onnx``, a small float network like one of an exporter.

    With ``unsupported`` one operator is not supported.
    """
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(8, 3, 3, 3)), "b1": rng.normal(size=8),
        "w2": rng.normal(size=(8, 10)), "b2": rng.normal(size=10),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node(
            "Gemm", ["f", "w2", "b2"], ["s" if unsupported else "scores"], name="classifier"
        ),
    ]
    constants = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    ]
    if unsupported:
        nodes.append(helper.make_node("Hardmax", ["s"], ["scores"], name="largest"))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [shape[0], 10])
    graph = helper.make_graph(nodes, "mine", [image], [scores], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
        folder / "mine.onnx",
    )
    return folder / "mine.onnx"


def samples(count: int = 4) -> np.ndarray:
    """Images for ``mine.onnx``."""
    return np.random.default_rng(1).normal(size=(count, 1, 3, 16, 16)).astype(np.float32)


SWEEP = """\
networks = "digits-cnn"
[arch]
pe.oc = [8, 16]
sram_bytes = ["4 KiB", "64 KiB"]
[timing]
bus_bytes = [4, 8]
"""


def without(user: User, package: str) -> str:
    """Return a folder for the front of the path in which ``package`` cannot be imported.

    It simulates that the package is not installed.
    """
    (user.folder / "missing" / package).mkdir(parents=True)
    text = f"raise ModuleNotFoundError(\"No module named '{package}'\", name={package!r})\n"
    (user.folder / "missing" / package / "__init__.py").write_text(text)
    return str(user.folder / "missing")
