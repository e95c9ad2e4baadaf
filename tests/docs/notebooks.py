"""Execute the notebooks of docs/notebooks and store their output.

The command is ``python -m tests.docs.notebooks``.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.docs.session import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
LONGEST_CELL = 600
"""Seconds after which a cell hangs, on however busy a computer."""
_VERSION = re.compile(r"(ONNX Runtime|LiteRT) \d+(\.\w+)*")
_KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def executed(path: Path, folder: Path) -> Any:
    """Execute a notebook in a new process in ``folder`` and return it with its output.

    It contains nothing else of the machine.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=LONGEST_CELL, kernel_name="python3", record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    client.execute()
    notebook.metadata = nbformat.from_dict(_KERNEL)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({})
    return notebook


def shown(notebook: Any) -> list[list[str]]:
    """The text of every output of all cells, spaces and the oracle's version aside.

    Of pictures that they are there.
    """
    return [[_text(output) for output in cell.get("outputs", ())] for cell in notebook.cells]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return _words(output.text)
    if "image/png" in output.data:
        return "a picture"
    return _words(output.data["text/plain"])


def _words(text: str) -> str:
    return _VERSION.sub(r"\1", " ".join(text.split()))


if __name__ == "__main__":
    for _path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as _folder:
            nbformat.write(executed(_path, Path(_folder)), _path)
