"""Names and layout of code: verbs for functions, unique class names, one statement a line."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("isa", "byoc", "dla_sim", "experiments")
OTHERS = ("benchmarks", "examples", "tests")
"""Folders beside the packages whose files and functions have the same limits."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXCEPTIONS = {
    "between": "a method that plug-ins call (docs/adding-an-instruction.md)",
    "delayed": "documented for plug-ins (docs/adding-an-instruction.md)",
    "fused_cycles": "documented for plug-ins (docs/adding-an-instruction.md)",
    "gated_clock": "documented for plug-ins (docs/adding-an-instruction.md)",
    "held_out_digits": "documented for users (docs/inputs.md)",
    "on_channels": "a hook of plug-in operators (docs/adding-an-instruction.md)",
    "padded_input": "documented for plug-ins (docs/adding-an-instruction.md)",
    "streaming_wake_word": "a network of the zoo, named like its model",
    "strided": "documented for plug-ins (docs/adding-an-instruction.md)",
}
"""Functions that are named otherwise, and why. At most 20."""

PARTICIPLES = _words(
    """
    become begun bent bitten blown borne bought bound broken brought built caught chosen dealt
    died done drawn driven eaten fallen fed felt forgotten fought found frozen gave given gone
    gotten grown heard held hidden hung kept known laid lain led left lent lost lying made meant
    met overwritten ran ridden rewritten said saw seen sent shaken shown shrunk sold sought spent
    spoken spun stolen stood struck stuck sunk taken taught thought told took torn uncut
    understood unknown unwritten won worn wound written wrote
    """
)
"""Irregular participles and past tenses."""
NOT_PARTICIPLES = _words(
    "bed bleed breed embed exceed feed heed need proceed seed shed speed succeed weed"
)
GERUNDS = _words(
    """
    bring building decoding encoding finding heading listing mapping meaning nothing ordering
    padding pooling ring rounding scaling scheduling setting sharding spacing spelling spring
    string swing thing tiling timing training warning
    """
)
"""Nouns and verbs in -ing."""
PREPOSITIONS = _words(
    """
    about above across after again against along alongside amid among apart around as at away
    before behind below beneath beside besides between beyond by despite down elsewhere except for
    in inside into near of off on once onto out outside over past per since through throughout
    till together toward towards under underneath until up upon via with within without
    """
)
THIRD_PERSON = _words(
    """
    adds admits are asks begins belongs breaks changes chooses computes concerns contains covers
    crowds does feeds fetches fits gains gives goes happens holds joins keeps leaves lies makes
    meets multiplies needs packs preempts puts replaces rewrites rides says stands stays takes
    tells touches turns uses varies vouches waits wants was works writes yields
    """
)

MOST_TUPLES_PER_1000_LINES = 2
MOST_LINES_PER_FILE = 600
MOST_LINES_PER_FUNCTION = 60
MOST_COMPLEXITY = 20


def fault_of(name: str, returns: str = "") -> str:
    """Return why ``name`` is no name of a function that returns ``returns``; empty if it is one."""
    words = name.strip("_").split("_")
    first = words[0]
    if first in PREPOSITIONS or (first in ("to", "from") and len(words) == 1):
        return "preposition"
    plural = returns == "bool" and re.search(r"[^s]s$", first) and first not in ("is", "has")
    if first in THIRD_PERSON or plural:
        return "third person"
    if first in PARTICIPLES or (first.endswith("ed") and first not in NOT_PARTICIPLES):
        return "participle"
    if first.endswith("ing") and first not in GERUNDS:
        return "participle"
    return ""


def _files(folders: Iterable[str] = PACKAGES) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions except properties, which are nouns, and rules, whose names are in reports."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            special = node.name.startswith("__") and node.name.endswith("__")
            if not special and not re.search(r"property|\.setter|\brule\(", decorators):
                yield node


@pytest.mark.parametrize(
    ("name", "returns", "fault"),
    [
        ("arranged", "", "participle"),
        ("_held_to_file", "", "participle"),
        ("going_on_in", "", "participle"),
        ("beside", "", "preposition"),
        ("_with_tables", "", "preposition"),
        ("vouches", "", "third person"),
        ("reads", "bool", "third person"),
        ("reads", "Int64", ""),
        ("assign_layouts", "", ""),
        ("is_fused", "bool", ""),
        ("to_stored", "", ""),
        ("seed_all", "", ""),
    ],
)
def test_kinds_of_names_are_told_apart(name: str, returns: str, fault: str) -> None:
    assert fault_of(name, returns) == fault


def test_functions_are_named_by_verbs() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} ({fault})"
        for path in _files()
        for node in _functions(_tree(path))
        if (fault := fault_of(node.name, ast.unparse(node.returns) if node.returns else ""))
        and node.name not in EXCEPTIONS
    ]
    assert wrong == []


def test_few_names_are_exceptions_and_all_exist() -> None:
    names = {node.name for path in _files() for node in _functions(_tree(path))}
    assert len(EXCEPTIONS) <= 20
    assert set(EXCEPTIONS) <= names


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for path in _files():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def _is_unrelated(node: ast.AST) -> bool:
    """Return True for ``a, b = x, y`` in which no value reads an earlier target."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or len(target.elts) != len(node.value.elts):
        return False
    if any(isinstance(one, ast.Starred) for one in (*target.elts, *node.value.elts)):
        return False
    read = [{n.id for n in ast.walk(value) if isinstance(n, ast.Name)} for value in node.value.elts]
    bound = [{n.id for n in ast.walk(one) if isinstance(n, ast.Name)} for one in target.elts]
    return not any(bound[i] & read[j] for i in range(len(bound)) for j in range(i + 1, len(read)))


def test_unrelated_values_are_assigned_apart() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in _files()
        for node in ast.walk(_tree(path))
        if _is_unrelated(node)
    ]
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in _files())
    assert len(found) <= MOST_TUPLES_PER_1000_LINES * lines / 1000, found


def _ruff_settings() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    settings: dict[str, Any] = tomllib.loads(text)["tool"]["ruff"]
    return settings


def _is_ignored(rule: str) -> bool:
    lint = _ruff_settings()["lint"]
    return any(rule in rules for rules in (lint["ignore"], *lint["per-file-ignores"].values()))


def test_lines_have_at_most_100_columns() -> None:
    settings = _ruff_settings()
    assert settings["line-length"] == 100
    assert "E" in settings["lint"]["select"]
    assert not _is_ignored("E501")


def test_complexity_is_at_most_20() -> None:
    """Require that ruff measures every folder: packages, tests, benchmarks and examples."""
    lint = _ruff_settings()["lint"]
    assert "C901" in lint["select"]
    assert lint["mccabe"]["max-complexity"] == MOST_COMPLEXITY
    assert not _is_ignored("C901")


def test_files_have_at_most_600_lines() -> None:
    counts = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n")
        for path in _files((*PACKAGES, *OTHERS))
    }
    assert {name: n for name, n in counts.items() if n > MOST_LINES_PER_FILE} == {}


def test_functions_have_at_most_60_lines() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.name}": node.end_lineno - node.lineno + 1
        for path in _files((*PACKAGES, *OTHERS))
        for node in _functions(_tree(path))
        if node.end_lineno and node.end_lineno - node.lineno >= MOST_LINES_PER_FUNCTION
    }
    assert long == {}
