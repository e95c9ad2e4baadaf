"""The direction of imports: isa knows none of ours; byoc and dla_sim know isa only; experiments knows all."""

from __future__ import annotations

import ast
import graphlib
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
    """Dotted names of everything that a file imports, wherever in the file: a name's own, or its module's and its."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _modules() -> dict[str, Path]:
    """Every file of the four packages by its dotted name."""
    found: dict[str, Path] = {}
    for package in FLOORS:
        root = _package_root(package)
        for path in sorted(root.rglob("*.py")):
            found[".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


def _module_of(name: str, modules: dict[str, Path]) -> str:
    """The module that an imported name is, or belongs to; empty for modules that are not ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_imports_only_go_down(package: str) -> None:
    for path in sorted(_package_root(package).rglob("*.py")):
        climbing = ({name.partition(".")[0] for name in _imported(path)} & FLOORS.keys()) - FLOORS[package]
        assert not climbing, f"{path.name} of {package} imports {sorted(climbing)}"


def test_no_import_runs_in_a_circle() -> None:
    """Not even one inside a function, or for types alone."""
    modules = _modules()
    graph = {
        module: {_module_of(name, modules) for name in _imported(path)} - {module, ""}
        for module, path in modules.items()
    }
    assert sum(map(len, graph.values())) > len(modules)
    graphlib.TopologicalSorter(graph).prepare()


def test_all_four_packages_come_from_one_place() -> None:
    """``isa`` and ``byoc`` are names of unrelated distributions too: ours must not be shadowed."""
    assert len({_package_root(package).parent for package in FLOORS}) == 1
