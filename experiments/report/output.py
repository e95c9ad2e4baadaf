"""Where reports go: one page, and pictures, in a folder of their own unless the user says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE_ENDINGS = (".html", ".htm")


@dataclass(frozen=True)
class Places:
    """The file of the page, and the folder of the pictures, or None where none are wanted."""

    page: Path
    pictures: Path | None


def places(name: str, beside: Path, output: Path | None, pictures: Path | None) -> Places:
    """Where the report called ``name`` goes.

    ``output``: a file that ends in .html (then pictures are made only if ``pictures`` says where), or a folder for
    both; without it the folder ``<name>-report`` next to ``beside``.
    """
    if output is not None and output.suffix.lower() in PAGE_ENDINGS and not output.is_dir():
        return Places(output, pictures)
    folder = output or beside.with_name(f"{name}-report")
    return Places(folder / f"{name}.html", pictures or folder)
