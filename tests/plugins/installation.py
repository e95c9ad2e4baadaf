"""Install a package for one test: a distribution in a folder on ``sys.path``.

It has the files that an installer writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from byoc.operators import registry
from isa import plugins

HERE = Path(__file__).parent


def write_distribution(
    folder: Path,
    name: str,
    modules: Mapping[str, str],
    entry_points: Mapping[str, Mapping[str, str]],
) -> None:
    """Write distribution ``name`` 1.0 to ``folder``.

    ``modules`` are texts by name, and ``entry_points`` are targets by group and name.
    """
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
    write_information(folder, name, "1.0", entry_points)


def write_information(
    folder: Path, name: str, version: str, entry_points: Mapping[str, Mapping[str, str]]
) -> None:
    """Write the metadata of distribution ``name`` with its entry points to ``folder``."""
    information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (information / "METADATA").write_text(text, encoding="utf-8")
    lines: list[str] = []
    for group, targets in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {target}" for key, target in targets.items())]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """``folder`` on ``sys.path`` for the time of the block.

    Nothing of it stays known afterwards.
    """
    names = [path.stem for path in folder.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        forget()
        try:
            yield
        finally:
            forget()
            for name in names:
                sys.modules.pop(name, None)


def forget() -> None:
    """Let the process look again for installed packages."""
    plugins.load_installed_table.cache_clear()
    registry.load_installed_families.cache_clear()
    plugins.has_entry_points.cache_clear()


def source_of(name: str) -> str:
    """The text of a package in this folder."""
    return (HERE / f"{name}.py").read_text(encoding="utf-8")
