"""What the compiler keeps: operators are named by their families, whose base asks what many answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from onnx import defs

import byoc
from byoc.operators.forms import Reading
from byoc.operators.operator import Operator
from byoc.operators.registry import built_in

FOLDER = Path(byoc.__file__).parent
OPERATORS = frozenset(schema.name for schema in defs.get_all_schemas())
FAULTS = Path("runtimes", "runtime_faults.py")
"""The one other file that names operators: those that ONNX Runtime computes wrongly."""
MOST_ALONE = 1
"""Questions of the operators' base that one family alone answers."""
MOST_ASKED = 15
"""Questions that the operators' base asks in all; what is declared as data does not count."""


def _documents(tree: ast.AST) -> Iterator[ast.AST]:
    """The docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr):
            yield node.body[0].value


def named_operators(path: Path) -> set[str]:
    """ONNX operators whose names stand as strings in a file."""
    tree = ast.parse(path.read_text())
    documents = set(_documents(tree))
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in documents)
    return {str(node.value) for node in texts if node.value in OPERATORS}


def test_operators_are_named_by_families_and_readers_only() -> None:
    places = {path.relative_to(FOLDER): path for path in FOLDER.rglob("*.py")}
    others = {place: path for place, path in places.items() if place.parts[0] not in ("operators", "frontend")}
    assert named_operators(others.pop(FAULTS))
    assert len(others) > 50
    assert {str(place): found for place, path in others.items() if (found := named_operators(path))} == {}


def test_what_one_family_answers_is_its_own() -> None:
    assert built_in().families
    classes, bases = list(_subclasses(Operator)), (Operator, Reading)
    questions = [question for base in bases for question in vars(base).items()]
    hooks = {name for name, item in questions if not name.startswith("_") and _is_hook(item)}
    hooks |= {name for base in bases for name, kind in base.__annotations__.items() if str(kind).startswith("ClassVar")}
    answers = {name: {item.__name__ for item in classes if name in vars(item)} for name in hooks}
    alone = {name: found for name, found in answers.items() if len(found) == 1}
    assert len(alone) <= MOST_ALONE, alone
    asked = {name for name, item in questions if name in hooks and answers[name] and _is_hook(item)}
    assert len(asked) <= MOST_ASKED, asked


def _is_hook(item: object) -> bool:
    return callable(item) or isinstance(item, classmethod | property)


def _subclasses(family: type[Operator]) -> Iterator[type[Operator]]:
    """The project's classes below ``family``."""
    for each in family.__subclasses__():
        if each.__module__.startswith("byoc."):
            yield each
        yield from _subclasses(each)
