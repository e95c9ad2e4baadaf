"""The direction of imports: isa knows none of ours; byoc and dla_sim know isa only; experiments knows all."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

FLOORS = {
    "isa": {"isa"},
    "byoc": {"isa", "byoc"},
    "dla_sim": {"isa", "dla_sim"},
    "experiments": {"isa", "byoc", "dla_sim", "experiments"},
}


def _package_root(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_imports_only_go_down(package: str) -> None:
    for path in sorted(_package_root(package).rglob("*.py")):
        climbing = (_imported(path) & FLOORS.keys()) - FLOORS[package]
        assert not climbing, f"{path.name} of {package} imports {sorted(climbing)}"


def test_all_four_packages_come_from_one_place() -> None:
    """``isa`` and ``byoc`` are names of unrelated distributions too: ours must not be shadowed."""
    assert len({_package_root(package).parent for package in FLOORS}) == 1
